"""Entries of the notes: the text format, and add, replace and remove on a list of entries.

No files and no tools here: everything in this module works on strings and lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final, NamedTuple

from hermes_core import HermesError

# -- What can go wrong with notes ---------------------------------------------------------------


class NotesError(HermesError):
    """A notebook can't be read or changed."""


class FileChanged(Exception):  # noqa: N818 - reads as what happened; never leaves the package
    """The file was changed between reading and writing it."""


class RefusalError(Exception):
    """An operation can't be carried out on the entries as they are.

    ``current`` says that whoever asked must see the entries to choose; ``matches`` are the
    entries among which, where there are several. ``text`` is written for the model; ``what`` and
    ``hint`` say it to a person at the command line, if that needs other words.
    """

    def __init__(
        self,
        text: str,
        *,
        current: bool = False,
        matches: tuple[str, ...] = (),
        what: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(text)
        self.text = text
        self.current = current
        self.matches = matches
        self.what = what
        self.hint = hint


# -- The notes as text: entries with a line between them that holds nothing but ``§`` -----------
#
# The format is hermes-agent's, which may write to the same files. Reading is generous,
# since people edit them by hand; writing is exact.

SEPARATOR: Final = "§"
DELIMITER: Final = f"\n{SEPARATOR}\n"

# A line of an entry that would be taken for the separator, however often it was escaped.
_LOOKS_LIKE_SEPARATOR: Final = re.compile(rf"^(\s*)(\\*{SEPARATOR}\s*)$", re.MULTILINE)
_ESCAPED: Final = re.compile(rf"^(\s*)\\(\\*{SEPARATOR}\s*)$", re.MULTILINE)
_SEPARATOR_LINE: Final = re.compile(rf"^[^\S\n]*{SEPARATOR}[^\S\n]*$", re.MULTILINE)
_HEADING: Final = re.compile(r"^## ", re.MULTILINE)
# A blank, or the punctuation that ends a sentence or a part of it.
_CONTINUES: Final = re.compile(r"[^\S\n]|[,.;:!?)\]}'\u2019\u201d\u2026%]+(?=\s|$)")


class KnownText(NamedTuple):
    """What was in a file when it was last looked at, and the entries that we saw in it.

    ``inode`` is the file's: who replaces the file by another has appended nothing.
    """

    text: str
    entries: list[str]
    inode: int = 0


def render(entries: Sequence[str]) -> str:
    """The text of a file with these entries."""
    text = DELIMITER.join(entries)
    # The joined text has one separator between each two entries, so fewer than `len(entries)` means
    # that no entry contains one.
    if text.count(SEPARATOR) < len(entries):  # none of them has one
        return text
    return DELIMITER.join(
        _LOOKS_LIKE_SEPARATOR.sub(r"\1\\\2", entry) if SEPARATOR in entry else entry
        for entry in entries
    )


def parse(text: str, known: KnownText | None = None, inode: int = 0) -> list[str]:
    """The entries of a file, as the person who wrote it would count them.

    Args:
        text: What is in the file now.
        known: What was in it before. Text that has been appended to that without a
            separator (``echo ... >> MEMORY.md``) is a separate entry.
        inode: The file's inode now, where it is known.
    """
    if known is not None and text == known.text:
        return list(known.entries)
    # An editor writes a new file; `echo >>` appends to the same one. Only the latter proves that
    # the text behind the known one is a separate entry.
    same_file = known is not None and known.inode in (0, inode)
    if known is not None and same_file and known.text and text.startswith(known.text):
        appended = unify(text[len(known.text) :])
        # Somebody may continue the last entry in place: text that begins with a blank or
        # punctuation belongs to it.
        if not _CONTINUES.match(appended):
            return [*known.entries, *split(appended)]
    text = unify(text)
    entries = split(text)
    if len(entries) == 1 and not _has_separator(text):
        return _sections(text)
    return entries


def unify(text: str) -> str:
    """Text with plain line ends and without a byte order mark."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def tidy(content: str) -> str:
    """An entry as it is stored."""
    return unify(content).strip()


def _has_separator(text: str) -> bool:
    return _SEPARATOR_LINE.search(text) is not None


def split(text: str) -> list[str]:
    """The entries of a text that we wrote."""
    if text.count(SEPARATOR) == text.count(DELIMITER):  # nearly always, and much faster
        return [entry for entry in map(str.strip, text.split(DELIMITER)) if entry]
    return _non_empty(_SEPARATOR_LINE.split(text))


def _sections(text: str) -> list[str]:
    """A file from before there were separators: each ``##`` heading with what is below it."""
    starts = [match.start() for match in _HEADING.finditer(text)]
    edges = [0, *starts, len(text)]
    return _non_empty(text[begin:end] for begin, end in pairwise(edges))


def _non_empty(pieces: Iterable[str]) -> list[str]:
    entries = (piece.strip() for piece in pieces)
    return [
        _ESCAPED.sub(r"\1\2", entry) if SEPARATOR in entry else entry for entry in entries if entry
    ]


def text_hash(text: str) -> str:
    """What stands for a text, whatever is in it."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def entry_id(text: str) -> str:
    """A short name for an entry, the same wherever it is shown."""
    # 32 bits are enough to pick one of a few dozen entries, and short enough to type.
    return text_hash(text)[:8]


def usage(length: int, limit: int) -> str:
    """How full a notebook is: ``12% — 264/2,200 chars``."""
    # At most 100: a file that an editor made too long would confuse the model with "230%".
    percent = min(100, length * 100 // limit)
    return f"{percent}% — {length:,}/{limit:,} chars"


def previews(entries: Sequence[str], width: int = 80) -> list[str]:
    """The beginnings of entries, for a choice among them."""
    lines = (" ".join(entry.split()) for entry in entries)
    return [line if len(line) <= width else f"{line[:width]}..." for line in lines]


# -- add, replace and remove on a list of entries: no files here, no tools ----------------------

ACTIONS: Final = ("add", "replace", "remove")


class Operation(NamedTuple):
    """One change that is wanted.

    ``entry`` is the id of the entry that is meant, if that was known when the change
    was asked for: another one that has come to match ``old_text`` is not touched. ``origin`` says
    where its content comes from, if that was judged.
    """

    action: str
    content: str = ""
    old_text: str = ""
    entry: str = ""
    origin: str = ""


class NoteStep(NamedTuple):
    """One change that was made: what a mirror receives.

    ``old_text`` is the whole entry that went. ``number`` says which of the operations it was, and
    ``origin`` where its content comes from.
    """

    action: str
    content: str
    old_text: str = ""
    number: int = 0
    origin: str = ""


class OperationPlan(NamedTuple):
    """What an operation would do: the entry that goes, or what stands against it."""

    wanted: Operation
    goes: str = ""
    problem: RefusalError | None = None


def operation(action: Any, content: Any, old_text: Any) -> Operation:
    """A checked operation; refuses what can't be meant."""
    if action not in ACTIONS:
        raise RefusalError(f"Unknown action {shown(action)}. Use add, replace or remove.")
    new, old = _text(content, "content"), _text(old_text, "old_text")
    if action in ("add", "replace") and not new:
        raise RefusalError(
            f"content is required for {action}.",
            what="the text of the note is empty",
            hint='name it, for example: hermes-plugins memory add "likes tea"'
            if action == "add"
            else "to remove a note: hermes-plugins memory remove OLD",
        )
    if action in ("replace", "remove") and not old:
        raise RefusalError(
            f"old_text is required for {action}: pass a part that only this entry has.",
            current=True,
        )
    return Operation(action, new, old)


def shown(value: Any) -> str:
    """A value for a message, however large it is."""
    return previews([repr(value)])[0]


def _text(value: Any, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RefusalError(f"{name} must be a string.")
    try:
        # A lone surrogate can't be written to a UTF-8 file; models produce them when output is cut.
        value.encode()
    except UnicodeEncodeError:
        raise RefusalError(f"{name} has half of a surrogate pair in it; send it again.") from None
    return tidy(value)


def apply(entries: Sequence[str], wanted: Operation) -> tuple[list[str], NoteStep | None]:
    """The entries after an operation, and the step that it was; None if nothing changed."""
    after = list(entries)
    if wanted.action == "add":
        if wanted.content in after:
            return after, None
        after.append(wanted.content)
        return after, NoteStep("add", wanted.content, origin=wanted.origin)
    position = _find(after, wanted)
    old = after[position]
    if wanted.action == "remove":
        del after[position]
        return after, NoteStep("remove", old, old)
    if wanted.content == old:
        return after, None
    if wanted.content in after:  # it would be there twice
        del after[position]
    else:
        after[position] = wanted.content
    return after, NoteStep("replace", wanted.content, old, origin=wanted.origin)


def apply_all(
    entries: Sequence[str], operations: Sequence[Operation]
) -> tuple[list[str], list[NoteStep]]:
    """The entries after all operations, and the steps that they were."""
    after, steps = list(entries), []
    for number, wanted in enumerate(operations, 1):
        with _numbered(number, operations):
            after, step = apply(after, wanted)
        if step is not None:
            steps.append(step._replace(number=number))
    return after, steps


def plan(entries: Sequence[str], operations: Sequence[Operation]) -> list[OperationPlan]:
    """What each operation would do, after those before it that can be carried out."""
    after, found = list(entries), []
    for number, wanted in enumerate(operations, 1):
        goes = ""
        try:
            with _numbered(number, operations):
                if wanted.action != "add":
                    goes = after[_find(after, wanted)]
                after, _ = apply(after, wanted)
        except RefusalError as refused:
            found.append(OperationPlan(wanted, problem=refused))
        else:
            found.append(OperationPlan(wanted, goes))
    return found


def expected(entries: Sequence[str], waiting: Iterable[Sequence[Operation]]) -> list[str]:
    """The entries after the writes that wait, without those that can't be carried out."""
    after = list(entries)
    for operations in waiting:
        with suppress(RefusalError):
            after, _ = apply_all(after, operations)
    return after


def with_entry_ids(entries: Sequence[str], operations: Sequence[Operation]) -> list[Operation]:
    """The operations, each with the id of the entry that it means; refuses what can't be done."""
    found = []
    for wanted, goes, problem in plan(entries, operations):
        if problem is not None:
            raise problem
        found.append(wanted._replace(entry=entry_id(goes)) if goes else wanted)
    return found


@contextmanager
def _numbered(number: int, operations: Sequence[Operation]) -> Iterator[None]:
    """A refusal says which of several operations it is about."""
    try:
        yield
    except RefusalError as refused:
        if len(operations) > 1:
            refused.text = f"Operation {number}: {refused.text}"
        raise


def _find(entries: Sequence[str], wanted: Operation) -> int:
    """Where the one entry is that is meant."""
    position = _matching(entries, wanted.old_text)
    # An approval may come days later: by then `old_text` may match another entry than the person
    # saw.
    if wanted.entry and entry_id(entries[position]) != wanted.entry:
        raise RefusalError(
            f"The entry with {previews([wanted.old_text])[0]!r} is not the one you "
            "selected: that one was changed or removed since.",
            current=True,
        )
    return position


def _matching(entries: Sequence[str], old_text: str) -> int:
    """Where the one entry is that has ``old_text`` in it, or is it."""
    if old_text in entries:
        return entries.index(old_text)
    found = [index for index, entry in enumerate(entries) if old_text in entry]
    if not found:
        raise RefusalError(f"No entry contains {previews([old_text])[0]!r}.", current=True)
    # Equal entries are one choice: whichever is changed, the result is the same.
    distinct = list(dict.fromkeys(entries[index] for index in found))
    if len(distinct) > 1:
        raise RefusalError(
            f"{len(distinct)} entries have {previews([old_text])[0]!r} in them: be more specific.",
            matches=tuple(distinct),
        )
    return found[0]
