"""A notebook: its file, its history, its cap and its guard, behind three operations.

The file under the lock is the truth. Whatever somebody else wrote to it (an editor,
``echo >>``, another agent) is taken over as it stands and noted as a file edit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from hermes_builtin.notes._errors import FileChanged, NotesError, Refused
from hermes_builtin.notes._file import NotesFile
from hermes_builtin.notes._format import parse, render, usage
from hermes_builtin.notes._guard import Finding, scan
from hermes_builtin.notes._history import FILE_EDIT, Change, History
from hermes_builtin.notes._operations import Operation, Step, apply_all, expected, settle
from hermes_builtin.notes._vouching import Vouching

_FILES: Final = {"memory": "MEMORY.md", "user": "USER.md"}
TARGETS: Final = tuple(_FILES)

_TRIES: Final = 5


class Origin(NamedTuple):
    """Who changes a notebook: tool, command, import or approval; in which session."""

    who: str = "tool"
    session: str = ""


class Page(NamedTuple):
    """What is in a notebook at one moment."""

    entries: list[str]
    length: int
    limit: int

    @property
    def usage(self) -> str:
        """How full it is."""
        return usage(self.length, self.limit)


class Written(NamedTuple):
    """What came of a change. ``durable`` is False if a power cut could undo it."""

    page: Page
    steps: list[Step]
    durable: bool = True
    changed: bool = False


class Notebook:
    """MEMORY.md or USER.md."""

    def __init__(
        self, folder: Path, target: str, limit: int, history: History, vouching: Vouching
    ) -> None:
        self.target = target
        self.limit = limit
        self.file = NotesFile(folder / _FILES[target])
        self._history = history
        self._vouching = vouching

    def read(self) -> Page:
        """What is in it now. Takes no lock: a file is always whole."""
        return self._page(self._history.entries(self.target, *self.file.look()))

    def findings(self, entries: Sequence[str]) -> dict[str, Finding]:
        """The entries that the guard objects to, unless a person has allowed them."""
        # One look at all of them is nearly always enough.
        if not entries or scan("\n\n".join(entries)) is None:
            return {}
        found = {entry: scan(entry) for entry in entries}
        return {
            entry: finding
            for entry, finding in found.items()
            if finding is not None and not self._vouching.is_allowed(entry)
        }

    def check(self, operations: Sequence[Operation]) -> None:
        """Refuse content that is too large to be a note, or that the guard objects to."""
        for number, wanted in enumerate(operations, 1):
            which = f"Operation {number}: " if len(operations) > 1 else ""
            if len(wanted.content) > self.limit:
                raise Refused(
                    f"{which}This entry alone has {len(wanted.content):,} characters, and all of "
                    f"{_FILES[self.target]} may have {self.limit:,}. Save the gist of it."
                )
            finding = scan(wanted.content)
            if finding is not None and not self._vouching.is_allowed(wanted.content):
                name = self._vouching.block(self.target, wanted.content, str(finding))
                raise Refused(
                    f"{which}Not saved: this looks like an attempt to command the model "
                    f"({finding}). Notes are facts. If the user wants this one, they can run: "
                    f"hermes-plugins memory allow {name}"
                )

    def settle(
        self, operations: Sequence[Operation], waiting: Iterable[Sequence[Operation]]
    ) -> list[Operation]:
        """The operations as they can wait: checked, and with the ids of the entries they mean.

        Args:
            operations: What is wanted.
            waiting: What waits already: an operation may be about what that will save.
        """
        self.check(operations)
        return settle(expected(self.read().entries, waiting), operations)

    def change(self, operations: Sequence[Operation], origin: Origin) -> Written:
        """Carry out all operations, or none.

        Raises:
            Refused: One of them can't be carried out, or the notebook would be too full.
            NotesError: The file can't be read or written; it is as it was.
        """
        self.check(operations)
        action = operations[0].action if len(operations) == 1 else "batch"
        return self._rewrite(partial(apply_all, operations=operations), action, origin)

    def edited(self, base: Sequence[str], text: str, origin: Origin) -> Written:
        """Take over what a person made of the entries ``base`` in an editor."""
        wanted = parse(text)
        self.check([Operation("add", entry) for entry in wanted if entry not in base])
        return self._rewrite(_merger(base, wanted), "edit", origin)

    def undo(self, change: Change, origin: Origin) -> Written:
        """Take one change back, and keep what came after it."""
        base, wanted = change.known.entries, self._history.before(change)
        return self._rewrite(_merger(base, wanted), "undo", origin, capped=False)

    def _rewrite(
        self,
        edit: Callable[[list[str]], tuple[list[str], list[Step]]],
        action: str,
        origin: Origin,
        *,
        capped: bool = True,
    ) -> Written:
        with self.file.locked():
            for _ in range(_TRIES):
                try:
                    return self._rewrite_once(edit, action, origin, capped=capped)
                except FileChanged:
                    continue  # an editor was faster; its text is the truth now
        raise NotesError(
            "is being changed all the time by a program that does not take its lock",
            where=str(self.file.path),
            hint="nothing was changed",
        )

    def _rewrite_once(
        self,
        edit: Callable[[list[str]], tuple[list[str], list[Step]]],
        action: str,
        origin: Origin,
        *,
        capped: bool,
    ) -> Written:
        before, inode = self.file.look()
        entries = self._history.catch_up(self.target, before, inode)
        changed, steps = edit(list(entries))
        if changed == entries:
            self._separate(before, entries)
            return Written(self._page(entries), [])
        text = render(changed)
        if capped and len(text) > self.limit:
            page = self._page(entries)
            if len(text) > page.length:
                raise Refused(_full(page, len(text)), current=True)
        change = Change(self.target, origin.who, action, origin.session, before, text)
        durable = self._make(change, changed)
        return Written(Page(changed, len(text), self.limit), steps, durable, changed=True)

    def _make(self, change: Change, entries: list[str]) -> bool:
        """Note a change and make it; False if a power cut could undo it."""
        aside = self.file.write_aside(change.after)
        try:
            noted = self._history.begin(
                change._replace(inode=aside.inode, temporary=aside.path), entries
            )
        except BaseException:
            aside.discard()
            raise
        try:
            durable = self.file.put_in_place(aside, expected=change.before)
        except BaseException:
            # Until the note is gone, the temporary file says that nothing was changed.
            with suppress(NotesError):
                self._history.forget(noted.id)
                aside.discard()
            raise
        with suppress(NotesError):
            self._history.finish(self.target, noted)
        return durable

    def _separate(self, before: str, entries: list[str]) -> None:
        """Put separators between what others have run together, so that it stays apart."""
        last = self._history.last(self.target)
        if last is None or last.who != FILE_EDIT or parse(before) == entries:
            return
        text = render(entries)
        aside = self.file.write_aside(text)
        try:
            self.file.put_in_place(aside, expected=before)
        except BaseException:
            aside.discard()
            raise
        with suppress(NotesError):
            self._history.separated(self.target, text, aside.inode)

    def _page(self, entries: list[str]) -> Page:
        return Page(entries, len(render(entries)), self.limit)


def _merger(
    base: Sequence[str], wanted: Sequence[str]
) -> Callable[[list[str]], tuple[list[str], list[Step]]]:
    """Makes of the entries as they are now what ``wanted`` makes of ``base``."""

    def merge(entries: list[str]) -> tuple[list[str], list[Step]]:
        if entries == base:
            result = list(wanted)
        else:
            result = _without(entries, _surplus(base, wanted))
            result += [entry for entry in _surplus(wanted, base) if entry not in result]
        return result, steps_between(entries, result)

    return merge


def steps_between(before: Sequence[str], after: Sequence[str]) -> list[Step]:
    """The removals and additions that lead from one list of entries to another."""
    removed = [Step("remove", entry, entry) for entry in _surplus(before, after)]
    return removed + [Step("add", entry) for entry in _surplus(after, before)]


def _surplus(entries: Sequence[str], other: Sequence[str]) -> list[str]:
    """Those entries that ``other`` has not, or has less often."""
    left = Counter(other)
    found = []
    for entry in entries:
        if left[entry] > 0:
            left[entry] -= 1
        else:
            found.append(entry)
    return found


def _without(entries: Sequence[str], gone: Sequence[str]) -> list[str]:
    left = Counter(gone)
    kept = []
    for entry in entries:
        if left[entry] > 0:
            left[entry] -= 1
        else:
            kept.append(entry)
    return kept


def _full(before: Page, length: int) -> str:
    return (
        f"The notebook is full: {before.length:,} of {before.limit:,} characters are used, and "
        f"this would make {length:,}. Consolidate: in one call with operations, remove or "
        "shorten what is outdated or said twice, and add the new entry."
    )
