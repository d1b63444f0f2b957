"""``$HERMES_HOME/.env``: read by python-dotenv's parser, written so that all else stays.

python-dotenv itself does not write safely (it leaves mode 0644, severs links, checks no
names), so the writer is ours. Every new text is read back before it replaces the old one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple

from hermes_core.errors import SecretsError
from hermes_core.secrets._files import locked, read_text, write_text

#: A process can't be given a longer variable on Linux (128 KB with its name).
MAX_VALUE_BYTES: Final = 100_000

# What POSIX shells and Windows both accept.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The byte order mark that Windows editors write. python-dotenv would read it as part of a name.
_MARK: Final = "\ufeff"
_OTHERS: Final = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH

#: The parts of an assignment that its replacement keeps. The text is known to be valid.
_PARTS: Final = re.compile(
    r"""
    \s*? (?P<indent>[^\S\r\n]*)
    (?P<export>export[^\S\r\n]+)?
    (?:'[^']+'|[^=\#\s]+) [^\S\r\n]*
    (?: =[^\S\r\n]*
        (?: (?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*") (?P<quoted>[^\S\r\n]*\#[^\r\n]*)?
          | (?!['"])[^\r\n]*? (?P<plain>(?:[^\S\r\n]+|(?<=\s))\#[^\r\n]*)?
        )
      | (?P<bare>[^\S\r\n]*\#[^\r\n]*)?
    )
    [^\S\r\n]* (?P<end>\r\n|\n|\r|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)

# Characters that mean nothing to a shell or to python-dotenv; such values need no quotes.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:@%+,=-]+")
#: A carriage return needs an escape: python-dotenv opens the file in text mode.
_NOT_IN_SINGLE: Final = re.compile(r"'|\\\\|\\\Z|\r")
_NOT_IN_DOUBLE: Final = re.compile(r"[$`\r]")
_INTERPOLATED: Final = re.compile(r"\$\{[^}]*\}")


# -- names and values --------------------------------------------------------------------------


def check_name(variable: str) -> str:
    """Return the name if a shell accepts it.

    Raises:
        SecretsError: It is not a variable's name. The message leaves it out, because it may
            be a misplaced value.
    """
    if not _NAME.fullmatch(variable):
        raise SecretsError(
            "the name given is not the name of a variable",
            hint="letters, digits and _ only, not beginning with a digit: HONCHO_API_KEY",
        )
    return variable


def check_value(variable: str, value: str) -> str:
    """Return the value if every store can hold it; no message contains it.

    Raises:
        SecretsError: A store could not hold it.
    """
    if problem := _problem(value):
        what = f"the value {problem}; nothing was stored"
        raise SecretsError(what, where=variable, hint="check the value at its source")
    return value


def _problem(value: str) -> str:
    if not value:
        return "is empty"
    if "\0" in value:
        return "has a NUL character, which no variable can hold"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if size > MAX_VALUE_BYTES:
        return f"has {size:,} bytes; a variable can't hold more than {MAX_VALUE_BYTES:,}"
    return ""


# -- the file ----------------------------------------------------------------------------------


class EnvFile:
    """A .env. ``${...}`` in it is not interpolated."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, str]:
        """All variables that have a value; none if the file is missing."""
        return _values(self._text().removeprefix(_MARK))

    def change(self, changes: Mapping[str, str | None]) -> None:
        """Set variables, or delete them (None): all or nothing, in one replacement.

        Afterwards only the owner can read the file, whatever its mode was before.
        """
        forms = {check_name(key): _quoted(key, value) for key, value in changes.items()}
        with locked(self.path):
            text = self._text()
            mark = _MARK if text.startswith(_MARK) else ""
            before = after = text.removeprefix(_MARK)
            for key, form in forms.items():
                after = changed(after, key, form)
            if after == before:
                return
            self._check(before, after, changes)
            write_text(self.path, mark + after)

    def exposed(self) -> str:
        """A warning if others than the owner can read or write the file, else ""."""
        try:
            mode = self.path.stat().st_mode
        except OSError:
            return ""
        if os.name == "nt" or not stat.S_ISREG(mode) or not mode & _OTHERS:
            return ""
        mode = stat.S_IMODE(mode)
        return f"{self.path} can be read by others (mode {mode:04o}): chmod 600 {self.path}"

    def _text(self) -> str:
        return read_text(self.path) or ""

    def _check(self, before: str, after: str, changes: Mapping[str, str | None]) -> None:
        """Read the new text before it is written: an open quote above could swallow a line."""
        wanted = {**_values(before), **changes}
        if _values(after) != {key: each for key, each in wanted.items() if each is not None}:
            raise SecretsError(
                "can't be changed without touching other lines; nothing was written",
                where=str(self.path),
                hint="look for a quote that is not closed",
            )


class _Assignment(NamedTuple):
    """``KEY=value`` in a text, with the blank lines before it."""

    key: str
    value: str | None
    start: int
    text: str


def _assignments(text: str) -> Iterator[_Assignment]:
    """All assignments of a text, in order; the parser skips what it can't read, by the line."""
    if not text:
        return
    from dotenv.parser import parse_stream  # noqa: PLC0415 - slow; not every home has a .env

    start = 0
    for each in parse_stream(StringIO(text, newline="")):
        if each.key is not None:
            yield _Assignment(each.key, each.value, start, each.original.string)
        start += len(each.original.string)


def _values(text: str) -> dict[str, str]:
    # python-dotenv opens the file in text mode: a line end inside quotes is read as "\n".
    found = {each.key: each.value for each in _assignments(re.sub(r"\r\n|\r", "\n", text))}
    return {key: value for key, value in found.items() if value is not None}


# -- writing -----------------------------------------------------------------------------------


def changed(text: str, key: str, value: str | None) -> str:
    """The text with the value of a key set, or with the key removed; all else as it was.

    ``value`` is already quoted. Of several assignments one is left: the last, which counts.
    """
    # From the last one backwards, so that the places of the earlier ones stay valid while the text
    # changes.
    found = [each for each in _assignments(text) if each.key == key]
    for each in reversed(found):
        line = _replaced(each, value if each is found[-1] else None)
        text = text[: each.start] + line + text[each.start + len(each.text) :]
    if found or value is None:
        return text
    return _appended(text, f"{key}={value}")


def _replaced(old: _Assignment, value: str | None) -> str:
    """The text of an assignment with another value, or only the blank lines before it."""
    parts = _PARTS.fullmatch(old.text)
    if parts is None:  # the parser of a later version knows more: the change is refused
        return old.text
    blank = old.text[: parts.start("indent")]
    if value is None:
        return blank
    # What a shell would take for part of the assignment goes: exotic blanks, "KEY = value".
    indent = parts["indent"] if not parts["indent"].strip(" \t") else ""
    export = "export " if parts["export"] else ""
    comment = parts["quoted"] or parts["plain"] or parts["bare"] or ""
    gap, mark, comment = comment.partition("#")
    if mark and (not gap or gap.strip(" \t")):
        gap = " "
    return f"{blank}{indent}{export}{old.key}={value}{gap}{mark}{comment}{parts['end']}"


def _appended(text: str, line: str) -> str:
    # The line ends of the file, not of the platform.
    ends = re.search(r"\r\n|\n|\r", text)
    line_end = ends[0] if ends else "\n"
    gap = line_end if text and not text.endswith(("\n", "\r")) else ""
    return f"{text}{gap}{line}{line_end}"


def quoted(value: str) -> str:
    """The value in a form that python-dotenv reads back, and if possible a shell too.

    In single quotes a shell knows no escapes, but python-dotenv does; in double quotes a
    shell expands ``$`` and `````, but python-dotenv has no escape for them. Where no form suits
    both, python-dotenv decides: agents read the file with it.
    """
    if _PLAIN.fullmatch(value):
        return value
    if not _NOT_IN_SINGLE.search(value):
        return f"'{value}'"
    # python-dotenv before 1.2.3 misreads a backslash before the last quote if another quote is
    # further down in the file. `EnvFile._check` finds out.
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r")
    return f'"{escaped}"'


def is_alike_in_a_shell(value: str) -> bool:
    """Whether a shell that sources the file reads the same value."""
    return not (_NOT_IN_SINGLE.search(value) and _NOT_IN_DOUBLE.search(value))


def is_interpolated(value: str) -> bool:
    """Whether a reader that interpolates, as hermes-agent does, would read another value."""
    return bool(_INTERPOLATED.search(value))


def _quoted(key: str, value: str | None) -> str | None:
    return None if value is None else quoted(check_value(key, value))
