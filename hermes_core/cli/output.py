"""How commands print: wrapped text, tables and progress on a terminal, plain lines elsewhere, JSON.

On a terminal, lines and tables are wrapped at words, states have colours, and rich draws progress.
When output is piped, every line stays as long as it is, the fields of a table are separated by
tabs and there are no colours: programs read it. `list` is run by shell prompts, so this module
imports rich only for the first progress bar.

What commands print contains text of plugins, services and models. `SafeStream` takes the place of
standard output and standard error, and shows every character that steers a terminal as an escape,
whoever prints it. It also masks the secrets that this process has read for a plugin. Colours are
ours: their codes carry a mark that no other text can contain. What belongs on one line has no line
breaks: `say` shows them as escapes, and `plain` as blanks.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from hermes_core.errors import HermesError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

#: The colour of each state, as a code of ANSI terminals.
_COLOURS: Final = {
    "active": 32,
    "changed": 33,
    "conflict": 31,
    "broken": 31,
    "no-provider": 90,
}
_BOLD: Final = 1
#: Control characters, C1 codes, direction marks, line and paragraph separators, and others that
#: can't be seen. Joiners are part of emoji and of many scripts, and do no harm.
_STEERING: Final = (
    *range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, 0x180E, 0x200B, 0x200E,
    0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC),
    *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE0080),
)  # fmt: skip
_ESCAPES: Final = {code: ascii(chr(code))[1:-1] for code in _STEERING}
_WIDTH: Final = 80
# Below 20 columns wrapping makes text unreadable; the terminal then breaks lines itself.
_NARROWEST: Final = 20
#: The last column of a table stands beside the others if it has this room.
_BESIDE: Final = 28
#: How far it is indented below them.
_BELOW: Final = 4
#: Where there is little room, a few cells that are wider than this do not widen their column.
_LONG: Final = 24
_FEW: Final = 0.25
#: So many columns stay beside each other, if they fit, when the others go below them.
_LEAST: Final = 4
#: What `duration`, `span` and `size` return after a number.
_UNITS: Final = frozenset(("ms", "s", "min", "h", "days", "B", "kB", "MB", "GB"))
#: What takes longer than this shows progress.
_SLOW_SECONDS: Final = 1.0
#: The last of the characters that JSON never contains.
_C0: Final = 0x1F


# -- streams ------------------------------------------------------------------------------------


class SafeStream:
    """A text stream that shows what would steer a terminal as escapes."""

    def __init__(self, stream: TextIO) -> None:
        #: For rich, which moves the cursor, and gets text that is plain already.
        self.unsafe = stream
        _mark()  # the same for all threads, which come later
        self.buffer = _SafeBuffer(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unsafe, name)

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        # Imported by whoever reads a secret; `list` reads none, and imports as little as it can.
        privacy = sys.modules.get("hermes_core.privacy.error_text")
        if privacy is not None:
            text = privacy.without_secrets(text)
        safe = text.translate(_ESCAPES)
        if _mark() in text:
            safe = safe.replace(_mark().translate(_ESCAPES), "\033[")
        self.unsafe.write(safe)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)


class _SafeBuffer(io.BufferedIOBase):
    """The bytes of a `SafeStream`, for click, which writes some of its texts as such."""

    def __init__(self, stream: SafeStream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write a text in UTF-8."""
        self._stream.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

    def flush(self) -> None:
        """Flush the stream, unless somebody has closed it."""
        # Also called when this is garbage collected, where Python 3.13 reports an error.
        if not self._stream.closed:
            self._stream.flush()


# -- text ---------------------------------------------------------------------------------------


def on_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def terminal_width(stream: TextIO | None = None) -> int:
    """Return the columns of the terminal behind standard output; 80 if it does not say."""
    try:
        # Not shutil's, which prefers the variable COLUMNS: shells export that one with an old
        # value.
        return os.get_terminal_size((stream or sys.stdout).fileno()).columns or _WIDTH
    except (OSError, ValueError):
        return _WIDTH


def paint(text: str, state: str) -> str:
    """Return text in the colour of a state, where colours are wanted."""
    return _styled(text, _COLOURS.get(state, 0))


def bold(text: str) -> str:
    """Return text in bold, where colours are wanted."""
    return _styled(text, _BOLD)


def _styled(text: str, code: int) -> str:
    if not code or not on_terminal() or not _has_colours():
        return text
    return f"{_mark()}{code}m{text}{_mark()}0m"


@cache
def _mark() -> str:
    """Return what precedes the codes of colours. No text of a plugin contains it: it is random."""
    return f"\033{os.urandom(8).hex()}["


def _has_colours() -> bool:
    # NO_COLOR: https://no-color.org. TERM=dumb: editors and CI that show escape sequences as text.
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say(text: str = "", *, indent: int | None = None) -> None:
    """Print a line. On a terminal, wrap it at words.

    Args:
        text: One line, which may contain what `paint` and `bold` return. A line break in it is
            shown as an escape.
        indent: How far to indent the lines after the first; by default two more than the first.
    """
    text = text.replace("\n", "\\n")
    if on_terminal():
        text = "\n".join(wrapped(text, terminal_width(), indent))
    sys.stdout.write(f"{text}\n")


def say_text(text: str, first: str = "", indent: int = 0) -> None:
    """Print a text of several lines: the first after a label, the others indented."""
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n")):
        say(f"{' ' * indent if number else first}{line}", indent=indent or None)


def say_field(label: str, value: str, width: int = 10) -> None:
    """Print ``label: value``, with the value aligned and wrapped in its own column.

    A path that has no room in that column, but in a line, starts on the next line: a terminal
    would break it in the middle.
    """
    if on_terminal():
        longest = max(map(width_of, value.split(" ")))
        if width + 1 + longest > terminal_width() >= longest:
            indent = min(_BELOW, terminal_width() - longest)
            say(f"{label}:")
            say(" " * indent + value, indent=indent)
        else:
            say(f"{label + ':':{width}} {value}", indent=width + 1)
    else:
        say(f"{label}: {value}" if not width else f"{label + ':':{width}} {value}")


def say_hint(hint: str, indent: int) -> None:
    """Print what to do about the problem above, if that is known."""
    if hint:
        say(f"{' ' * indent}hint: {plain(hint)}", indent=indent + len("hint: "))


def wrapped(text: str, width: int, indent: int | None = None) -> list[str]:
    """Split a line at words so that each part fits the width.

    A word that is longer than a line is left whole: a path or a URL must stay one to be copied.
    """
    if width_of(text) <= width or width < _NARROWEST:
        return [text]
    start = len(text) - len(text.lstrip(" "))
    # At least 20 columns stay for the text, however deep the indentation is.
    following = " " * min(start + 2 if indent is None else indent, width - _NARROWEST)
    lines, line = [], ""
    for word in _words(text):
        below = following + word.lstrip(" ")
        # A word that fits nowhere follows what it belongs to, such as a label or a dash.
        if line.strip() and width_of(line + word) > width >= width_of(below):
            lines.append(line)
            line = below
        else:
            line += word
    return [*lines, line]


def _words(text: str) -> Iterator[str]:
    """Yield each word with the blanks before it, so that what is aligned stays aligned."""
    blanks = ""
    for part in _parts(text):
        if part:
            for piece in [part] if part.isascii() else _pieces(part):
                yield blanks + piece
                blanks = ""
        blanks += " "


def _parts(text: str) -> list[str]:
    """Split a text at blanks, but not between a number and its unit."""
    parts: list[str] = []
    for part in text.split(" "):
        if parts and part.rstrip(".,;:)") in _UNITS and parts[-1][-1:].isdigit():
            parts[-1] += f" {part}"
        else:
            parts.append(part)
    return parts


def _pieces(word: str) -> Iterator[str]:
    """Split a word where a line may end: scripts with wide characters have no blanks."""
    from unicodedata import category, east_asian_width  # noqa: PLC0415 - few texts have them

    piece = before = ""
    for char in word:
        wide = east_asian_width(before or "a") in "WF" or east_asian_width(char) in "WF"
        # Neither after an opening bracket nor before punctuation or a combining character.
        joined = category(char)[0] in "MC" or category(char) in ("Po", "Pe", "Pf", "Lm")
        if before and wide and not joined and category(before) not in ("Ps", "Pi"):
            yield piece
            piece = ""
        piece += char
        before = char
    yield piece


def plain(text: str) -> str:
    """Return text of a plugin on one line: blanks for white space, escapes for other controls."""
    return " ".join(text.split()).translate(_ESCAPES)


def width_of(text: str) -> int:
    """Return how many columns a terminal takes for a text."""
    if "\033" in text:
        import re  # noqa: PLC0415 - few lines have colours

        text = re.sub(rf"{re.escape(_mark())}[0-9;]*m", "", text)
    text = text.translate(_ESCAPES)
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # noqa: PLC0415

    # Wide and fullwidth characters take two columns, combining ones none.
    wide = sum(east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(combining(char) > 0 for char in text)


def print_error(error: Exception) -> None:
    """Print what happened on one line of standard error, and what to do on the next."""
    hint = ""
    if isinstance(error, HermesError):
        text, hint = error.what, error.hint
        if error.where:
            text = f"{error.where}: {text}"
    elif isinstance(error, OSError):
        text = error.strerror or str(error)
    else:
        text = f"unexpected {type(error).__name__}: {error}"
        hint = "run the command again with --debug to see the traceback"
    _say_error(f"hermes-plugins: {_one_line(text)}")
    if hint:
        _say_error(f"hint: {_one_line(hint)}")


def _one_line(text: str) -> str:
    """Return a text with blanks for line breaks; other blanks stay, a path may have several."""
    return text.replace("\n", " ").replace("\t", " ").translate(_ESCAPES).strip()


def warn(text: str, hint: str = "") -> None:
    """Print a warning on standard error, and what to do about it, if that is known."""
    note(f"warning: {text}", hint)


def note(text: str, hint: str = "") -> None:
    """Print a remark on standard error, where it does not mix with what was asked for."""
    _say_error(plain(text))
    if hint:
        _say_error(f"hint: {plain(hint)}")


def print_traceback(text: str) -> None:
    """Print a traceback on standard error."""
    sys.stderr.write(f"{text.rstrip()}\n")


def _say_error(text: str) -> None:
    lines = [text]
    if sys.stderr.isatty():
        lines = wrapped(text, terminal_width(sys.stderr), indent=2)
    sys.stderr.write("".join(f"{line}\n" for line in lines))


# -- JSON ---------------------------------------------------------------------------------------


def print_json(**values: Any) -> None:
    """Print one object, with the version of its format."""
    _say_json(values, indent=2)


def print_json_line(**values: Any) -> None:
    """Print one object on one line, where more may follow."""
    _say_json(values, indent=None)


def _say_json(values: dict[str, Any], indent: int | None) -> None:
    import json  # noqa: PLC0415 - a table does not need it

    # Escapes where the stream can't encode all characters: JSON must stay valid.
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    # "schema" is the version of the format, so that scripts can notice a change.
    text = json.dumps({"schema": 1, **values}, indent=indent, ensure_ascii=not utf8)
    sys.stdout.write(f"{json_escaped(text)}\n")


def json_escaped(text: str) -> str:
    """Return JSON in which what would steer a terminal is written as escapes."""
    import json  # noqa: PLC0415 - as above

    return text.translate({code: json.dumps(chr(code))[1:-1] for code in _STEERING if code > _C0})


# -- tables -------------------------------------------------------------------------------------


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], states: Sequence[str]
) -> None:
    """Print a table on a terminal; elsewhere tabs between the fields and no header."""
    Table(header).print(rows, states)


class Table:
    """A table that can grow: its header is printed once, and its columns only get wider.

    On a terminal the columns are aligned, and the last one is wrapped at words: beside the
    others if there is room, else below them. Of many columns, several of the last may be below,
    all but the last with their titles.
    Nothing is aligned if even that does not fit.
    """

    def __init__(self, header: Sequence[str]) -> None:
        self._header = header
        self._widths: list[list[int]] = [[] for _ in header]
        self._begun = False

    def print(self, rows: Sequence[Sequence[str]], states: Sequence[str]) -> None:
        """Print more rows, each in the colour of its state."""
        # `plain` removes tabs and line breaks too, which would break the piped format.
        cells = [[plain(cell) for cell in row] for row in rows]
        if not on_terminal():
            sys.stdout.write("".join("\t".join(row) + "\n" for row in cells))
            return
        for widths, column in zip(self._widths, zip(*cells, strict=True), strict=True):
            widths.extend(map(width_of, column))
        layout = _layout([*map(width_of, self._header)], self._widths, terminal_width())
        if not self._begun and layout.header:
            _say_lines(layout.lines(self._header, header=True), bold)
        self._begun = True
        for row, state in zip(cells, states, strict=True):
            _say_lines(layout.lines(row, self._header), partial(paint, state=state))


def _say_lines(lines: Iterable[str], style: Callable[[str], str]) -> None:
    sys.stdout.write("".join(f"{style(line.rstrip())}\n" for line in lines))


class _Layout(NamedTuple):
    """How the rows of a table are printed; without ``widths`` no column is aligned.

    ``widths`` has the columns that are aligned. ``beside``: the last column stands beside them,
    and not below them.
    """

    room: int
    widths: Sequence[int] = ()
    beside: bool = False
    header: bool = False
    gap: int = 2

    def lines(
        self, row: Sequence[str], titles: Sequence[str] = (), *, header: bool = False
    ) -> list[str]:
        count = len(self.widths) or min(_LEAST, len(row) - 1)
        cells, rest = row[:count], row[count:]
        start = sum(self.widths) + self.gap * len(self.widths)
        pairs = list(zip(cells, map(width_of, cells), self.widths, strict=False))
        # One that does not fit its column takes room from those after it, which stay aligned
        # where there is enough.
        line, end = "", 0
        for cell, width, column in pairs:
            end += column + self.gap
            line += cell + " " * max(end - width_of(line) - width, self.gap)
        if not pairs:
            line = "  ".join(filter(None, cells))
        elif self.beside and width_of(line) == start:
            return wrapped(line + rest[0], self.room, start)
        lines = wrapped(line.rstrip(), self.room, _BELOW)
        # The header of a column that is not there would be read as one more row.
        indent = start if self.beside else _BELOW
        for text in () if header else _labelled(rest, titles[len(cells) :]):
            lines += wrapped(" " * indent + text, self.room, indent)
        return lines


def _labelled(cells: Sequence[str], titles: Sequence[str]) -> Iterator[str]:
    """The columns below a row: the last on its own line, the others before it with titles."""
    *others, last = cells
    # "-" says that there is no value, which needs no line.
    pairs = zip(titles, others, strict=False)
    labelled = [f"{title.lower()}: {cell}" for title, cell in pairs if cell not in ("", "-")]
    if labelled:
        yield "  ".join(labelled)
    if last and (last != "-" or not others):
        yield last


def _layout(header: list[int], columns: list[list[int]], room: int) -> _Layout:
    """The best layout for which there is room, from the widths of all cells."""
    last = min(max(header[-1], *columns[-1]), _BESIDE)
    for limit in (room, _LONG):
        titled = _titled(header[:-1], columns, limit)
        if sum(titled) + 2 * len(titled) + last <= room:
            return _Layout(room, titled, beside=True, header=True)
    # The last column below the others, then several of the last, if there are many.
    least = min(_LEAST, len(header) - 1)
    if (below := _below(header, columns, room, range(len(header) - 1, least - 1, -1))) is not None:
        return below
    for limit in (room, _LONG):
        cells = [_column_width(each, limit) for each in columns[:-1]]
        for gap in (2, 1):
            if sum(cells) + gap * (len(cells) - 1) <= room:
                return _Layout(room, cells, gap=gap)
    # Rather more of them below than one paragraph, in which the columns can't be told apart.
    return _below(header, columns, room, range(least - 1, 1, -1)) or _Layout(room)


def _below(
    header: list[int], columns: list[list[int]], room: int, counts: Iterable[int]
) -> _Layout | None:
    """The first layout that fits with so many columns beside each other, the rest below them."""
    for count in counts:
        for limit in (room, _LONG):
            titled = _titled(header[:count], columns, limit)
            for gap in (2, 1):
                if sum(titled) + gap * (count - 1) <= room:
                    return _Layout(room, titled, header=True, gap=gap)
    return None


def _titled(header: list[int], columns: list[list[int]], limit: int) -> list[int]:
    """The widths of columns that have room for their headers."""
    return [
        max(width, _column_width(cells, limit))
        for width, cells in zip(header, columns, strict=False)
    ]


def _column_width(cells: list[int], limit: int) -> int:
    """The width of the widest cell; without the few, if they are few, that exceed the limit."""
    short = [each for each in cells if each <= limit]
    return max(short if len(cells) - len(short) <= len(cells) * _FEW else cells, default=0)


def _console(stream: TextIO) -> Console:
    from rich.console import Console  # noqa: PLC0415 - never on the path of `list`

    plain_text = not _has_colours()
    unsafe: TextIO = getattr(stream, "unsafe", stream)  # tests have their own streams
    return Console(
        # highlight=False: rich would colour numbers and paths by itself.
        file=unsafe, width=terminal_width(stream), highlight=False, no_color=plain_text,
        color_system=None if plain_text else "auto",
    )  # fmt: skip


# -- progress -----------------------------------------------------------------------------------


class ProgressStep:
    """What a command reports while it works; shown only on a terminal."""

    def __init__(self, bar: Progress | None = None, task: TaskID | None = None) -> None:
        self._bar = bar
        self._task = task

    def show(self, text: str) -> None:
        """Say what happens now."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=plain(text))

    def update(self, done: int, total: int) -> None:
        """Say how many of how many are done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=max(total, 1))

    def advance(self, count: int = 1) -> None:
        """Say that so many more are done."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, count)


@contextmanager
def progress(text: str, total: int | None = None) -> Iterator[ProgressStep]:
    """Show on standard error that something takes time, and remove it when it is done.

    Nothing is shown if standard error is not a terminal, or one that wants no control codes.
    Leave the block before you ask the person something.

    Args:
        text: What happens, such as "Importing conversations".
        total: How many steps it has; None if that is not known.
    """
    if not sys.stderr.isatty() or not _has_colours():
        yield ProgressStep()
        return
    from rich import progress as rich_progress  # noqa: PLC0415 - only with a progress bar

    columns = [rich_progress.SpinnerColumn("line"), rich_progress.TextColumn("{task.description}")]
    if total is not None:
        columns += [rich_progress.BarColumn(bar_width=20), rich_progress.MofNCompleteColumn()]
    columns.append(rich_progress.TimeElapsedColumn())
    # Without redirection: what the command prints meanwhile belongs to standard output.
    with rich_progress.Progress(
        *columns, console=_console(sys.stderr), transient=True,
        redirect_stdout=False, redirect_stderr=False,
    ) as bar:  # fmt: skip
        yield ProgressStep(bar, bar.add_task(plain(text), total=total))


@contextmanager
def progress_if_slow(
    text: str, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Show progress only if something takes longer than a second, which it rarely does.

    Args:
        text: What happens.
        clock: Seconds; for tests.

    Yields:
        What to call after each step.
    """
    start = clock()
    with ExitStack() as bar:
        is_shown = False

        def step() -> None:
            nonlocal is_shown
            if not is_shown and clock() - start >= _SLOW_SECONDS:
                is_shown = True
                bar.enter_context(progress(text))

        yield step


# -- times and sizes ----------------------------------------------------------------------------

_SHORT: Final = 0.01
_KILO: Final = 1000
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400


def moment(at: float | None) -> str | None:
    """Return a time for JSON; None if there is none, or if no calendar has it."""
    from datetime import datetime  # noqa: PLC0415 - `list` shows no times

    if at is None:
        return None
    try:
        # With the offset of the local time zone, so that the value is unambiguous.
        return datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None


def day_and_time(at: float) -> str:
    """Return a time for people."""
    return (moment(at) or "?")[:19].replace("T", " ")


def duration(seconds: float) -> str:
    """Return how long something took."""
    if seconds < 1:
        # One digit below 10 ms, where calls of local providers differ.
        return f"{seconds * 1000:.{1 if seconds < _SHORT else 0}f} ms"
    return f"{seconds:.1f} s"


def span(seconds: float) -> str:
    """Return about how long ago, or how long until."""
    seconds = max(seconds, 0)
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min"
    # "30 h" says more than "1 days".
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR:.0f} h"
    return f"{seconds // _DAY:,.0f} days"


def amount(number: int, noun: str) -> str:
    """Return a number of things in words, such as "1 entry" or "1,200 conversations"."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("ry") else f"{number:,} {noun}s"


def size(count: int) -> str:
    """Return a number of bytes with a unit that fits; "-" where it is not known."""
    if count < _KILO:
        return f"{count} B" if count else "-"
    kilobytes = count / _KILO
    return f"{kilobytes:.1f} kB" if kilobytes < _KILO else f"{kilobytes / _KILO:,.1f} MB"
