"""A notebook (MEMORY.md or USER.md): its text, its cap, its guard and its history.

Files are read with care and replaced under the lock that hermes-agent takes too. In a database,
the lock is that of a row, and text and history change in one transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from hermes_builtin.notes.entries import (
    FileChanged,
    NotesError,
    NoteStep,
    Operation,
    RefusalError,
    apply_all,
    expected,
    parse,
    render,
    usage,
    with_entry_ids,
)
from hermes_builtin.notes.guard import HiddenText, find_secret, scan
from hermes_builtin.notes.guard_decisions import GuardDecisions
from hermes_builtin.notes.history import Change, History, edited_origin, origin_after_repeat
from hermes_builtin.notes.history_file import FILE_EDIT
from hermes_builtin.notes.notes_text import NotesText, TextUpdate
from hermes_core.privacy.origin import ASSISTANT, PERSON

#
# The file under the lock is the truth. Whatever somebody else wrote to it (an editor,
# ``echo >>``, another agent) is taken over as it stands and noted as a file edit.

FILES: Final = {"memory": "MEMORY.md", "user": "USER.md"}
TARGETS: Final = tuple(FILES)

UNDO: Final = "undo"

# An editor saves once. A program that wins five times in a row writes all the time.
_TRIES: Final = 5


#: A person at the command line.
COMMAND: Final = "command"
#: A person at the page of `hermes-plugins ui`.
PAGE: Final = "page"


class Author(NamedTuple):
    """Who changes a notebook: tool, command, page, file edit, check or approval; which session."""

    who: str = "tool"
    session: str = ""

    @property
    def origin(self) -> str:
        """Where the words come from, unless they were judged."""
        return PERSON if self.who in (COMMAND, PAGE, FILE_EDIT) else ASSISTANT


class Page(NamedTuple):
    """What is in a notebook at one moment."""

    entries: list[str]
    length: int
    limit: int

    @property
    def usage(self) -> str:
        """How full it is."""
        return usage(self.length, self.limit)


class WriteResult(NamedTuple):
    """What came of a change.

    Attributes:
        page: What is in the notebook now.
        steps: What was done to it.
        durable: False if a power cut could undo it.
        changed: Whether anything was changed.
        conflicts: Entries that somebody else changed, too, while a person edited them. Both new
            versions are in the notebook.
    """

    page: Page
    steps: list[NoteStep]
    durable: bool = True
    changed: bool = False
    conflicts: tuple[str, ...] = ()


class Notebook:
    """MEMORY.md or USER.md."""

    def __init__(
        self,
        text: NotesText,
        target: str,
        limit: int,
        history: History,
        decisions: GuardDecisions,
        *,
        key: str = "",
        before_write: Callable[[], None] | None = None,
    ) -> None:
        self.target = target
        #: What it is called in the history and among pending writes; a user's has its own.
        self.key = key or target
        self.limit = limit
        self._before_write = before_write
        self.text = text
        self._history = history
        self._vouching = decisions

    @property
    def name(self) -> str:
        """MEMORY.md or USER.md."""
        return FILES[self.target]

    def read(self) -> Page:
        """What is in it now. Takes no lock: a file is always whole."""
        return self._page(self._history.entries(self.key, *self.text.look()))

    def findings(self, entries: Sequence[str]) -> dict[str, HiddenText]:
        """The entries that the prompt must not have, unless a person has allowed them.

        These are orders to the model, which the guard finds, and secrets.
        """
        # One look at all of them is nearly always enough.
        if not entries or (scan("\n\n".join(entries)) or find_secret(list(entries))) is None:
            return {}
        found = {entry: find_secret(entry) or scan(entry) for entry in entries}
        return {
            entry: finding
            for entry, finding in found.items()
            if finding is not None and not self._vouching.is_allowed(entry)
        }

    def origins(self, entries: Sequence[str]) -> dict[str, str]:
        """Where the entries come from."""
        return self._history.origins(self.key, entries)

    def check(self, operations: Sequence[Operation]) -> None:
        """Refuse content that is too large, has a secret, or that the guard objects to."""
        for number, wanted in enumerate(operations, 1):
            which = f"Operation {number}: " if len(operations) > 1 else ""
            if len(wanted.content) > self.limit:
                raise RefusalError(
                    f"{which}This entry alone has {len(wanted.content):,} characters, and all of "
                    f"{FILES[self.target]} may have {self.limit:,}. Save the gist of it.",
                    current=True,
                    what=f"{which}the note has {len(wanted.content):,} characters, and all of "
                    f"{FILES[self.target]} may have {self.limit:,}",
                    hint="shorten it",
                )
            # First, since the guard stores what it refuses.
            self._refuse_secret(wanted.content, which)
            finding = scan(wanted.content)
            # What is refused is stored by its id, so that the person can allow exactly this text.
            if finding is not None and not self._vouching.is_allowed(wanted.content):
                name = self._vouching.block(self.key, wanted.content, str(finding))
                raise RefusalError(
                    f"{which}Not saved: this looks like an attempt to command the model "
                    f"({finding}). {finding.advice} If the user wants this note as it is, they "
                    f"can run: hermes-plugins memory allow {name}",
                    what=f"{which}not saved: this looks like an attempt to command the model "
                    f"({finding})",
                    hint=f"to save it as it is, run: hermes-plugins memory allow {name}",
                )

    def _refuse_secret(self, content: str, which: str = "") -> None:
        secret = find_secret(content)
        if secret is not None and not self._vouching.is_allowed(content):
            raise RefusalError(
                f"{which}Not saved: this contains a secret ({secret.detail}), and notes are part "
                "of every system prompt. Save the note without it. The user can store the secret "
                "with: hermes-plugins secrets set",
                what=f"{which}not saved: this contains a secret ({secret.detail}), and notes are "
                "part of every system prompt",
                hint="save the note without it; to store it: hermes-plugins secrets set VARIABLE",
            )

    def prepare(self) -> None:
        """Make ready what a write needs beside the file."""
        if self._before_write is not None:
            self._before_write()

    def with_entry_ids(
        self, operations: Sequence[Operation], waiting: Iterable[Sequence[Operation]]
    ) -> list[Operation]:
        """The operations as they can wait: checked, and with the ids of the entries they mean.

        Args:
            operations: What is wanted.
            waiting: What waits already: an operation may be about what that will save.
        """
        self.check(operations)
        self.prepare()
        return with_entry_ids(expected(self.read().entries, waiting), operations)

    def change(self, operations: Sequence[Operation], author: Author) -> WriteResult:
        """Carry out all operations, or none.

        Raises:
            RefusalError: One of them can't be carried out, or the notebook would be too full.
            NotesError: The file can't be read or written; it is as it was.
        """
        self.check(operations)
        action = operations[0].action if len(operations) == 1 else "batch"
        return self._rewrite(partial(apply_all, operations=operations), action, author)

    def edited(self, base: Sequence[str], text: str, author: Author) -> WriteResult:
        """Store what a person made of the entries ``base`` in an editor."""
        wanted = parse(text)
        # Only new entries are checked: a person must be able to save a notebook that has an older
        # objection.
        self.check([Operation("add", entry) for entry in wanted if entry not in base])
        merge = _merger(base, wanted)
        conflicts: list[str] = []

        def edit(entries: list[str]) -> tuple[list[str], list[NoteStep]]:
            conflicts[:] = _changed_by_both(base, wanted, entries)
            return merge(entries)

        written = self._rewrite(edit, "edit", author, replaced=_surplus(base, wanted))
        return written._replace(conflicts=tuple(conflicts))

    def take_over(self, base: Sequence[str], wanted: Sequence[str]) -> WriteResult:
        """Store what somebody made of the entries ``base`` in a copy of the file.

        As it stands, like any edit of a file: the guard keeps objections out of the prompt.
        """
        return self._rewrite(
            _merger(base, wanted),
            "edit",
            Author(FILE_EDIT),
            capped=False,
            replaced=_surplus(base, wanted),
        )

    def merge(
        self, entries: Sequence[str], author: Author, removed: Sequence[str] = ()
    ) -> WriteResult:
        """Add the entries of a notebook of another home that are not here, as they stand.

        Args:
            entries: What the other home has.
            author: Who asks for it.
            removed: Entries that were removed there.
        """
        return self._rewrite(_merger(removed, entries), "import", author, capped=False)

    def restore(
        self, changes: Iterable[Change], text: str, origins: Iterable[Mapping[str, str]]
    ) -> bool:
        """Take over the history and the text of a notebook of another home.

        Args:
            changes: What happened there, oldest first; at least one.
            text: What the last of them left.
            origins: Where its entries come from, some at a time.

        Returns:
            Whether that was done. Nothing is changed if there is anything here.
        """
        self.prepare()
        with self.text.locked():
            if self.text.read() or self._history.last(self.key) is not None:
                return False
            aside = self.text.write_aside(text)
            try:
                self._history.restore(self.key, _until_made(changes, aside), origins)
                self.text.put_in_place(aside, expected="")
            except BaseException:
                aside.discard()
                self._history.drop(self.key)
                raise
        return True

    def undo(self, change: Change, author: Author) -> WriteResult:
        """Undo one change, and leave what came after it.

        Raises:
            RefusalError: That would bring back an entry with a secret.
            NotesError: The file can't be read or written; it is as it was.
        """
        base, wanted = change.known.entries, self._history.before(change)
        for entry in _surplus(wanted, base):
            self._refuse_secret(entry)
        return self._rewrite(_merger(base, wanted), UNDO, author, capped=False)

    def forget(self, matches: Callable[[str], bool]) -> None:
        """Remove every entry that matches, from the file and from the history of it.

        Nothing is recorded: a record would have the entry in it.
        """
        with self.text.locked():
            for _ in range(_TRIES):
                with suppress(FileChanged):
                    inode = self._without(matches)
                    self._history.erase(self.key, matches, inode)
                    return
        todo = "close the program that changes it, and try again"
        raise NotesError("is being changed all the time", where=self.text.place, hint=todo)

    def _without(self, matches: Callable[[str], bool]) -> int:
        """Write the file without some entries; returns which file it is then, 0 for the same."""
        before, inode = self.text.look()
        try:
            entries = self._history.catch_up(self.key, before, inode)
        except NotesError:  # a damaged history must not keep an entry in the file
            entries = self._history.entries(self.key, before, inode)
        kept = [each for each in entries if not matches(each)]
        if kept == entries:
            return 0
        aside = self.text.write_aside(render(kept))
        try:
            self.text.put_in_place(aside, expected=before)
        except BaseException:
            aside.discard()
            raise
        return aside.inode

    def _rewrite(
        self,
        edit: Callable[[list[str]], tuple[list[str], list[NoteStep]]],
        action: str,
        author: Author,
        *,
        capped: bool = True,
        replaced: Sequence[str] = (),
    ) -> WriteResult:
        """Make a change; ``replaced`` are entries that its author removed, still there or not."""
        self.prepare()
        with self.text.locked():
            for _ in range(_TRIES):
                try:
                    return self._rewrite_once(
                        edit, action, author, capped=capped, replaced=replaced
                    )
                except FileChanged:
                    continue  # an editor was faster; its text is the truth now
        raise NotesError(
            "is being changed all the time by a program that does not take its lock",
            where=self.text.place,
            hint="close the program that changes it, and try again",
        )

    def _rewrite_once(
        self,
        edit: Callable[[list[str]], tuple[list[str], list[NoteStep]]],
        action: str,
        author: Author,
        *,
        capped: bool,
        replaced: Sequence[str],
    ) -> WriteResult:
        before, inode = self.text.look()
        entries = self._history.catch_up(self.key, before, inode)
        changed, steps = edit(list(entries))
        if changed == entries:
            self._separate(before, entries)
            return WriteResult(self._page(entries), [])
        text = render(changed)
        if capped and len(text) > self.limit:
            page = self._page(entries)
            # A notebook that is over its cap may still shrink: only growth is refused.
            if len(text) > page.length:
                raise _full(page, len(text))
        change = Change(self.key, author.who, action, author.session, before, text)
        steps, origins = self._with_origins(steps, action, author, replaced)
        durable = self._make(change, changed, origins)
        return WriteResult(Page(changed, len(text), self.limit), steps, durable, changed=True)

    def _with_origins(
        self, steps: list[NoteStep], action: str, author: Author, replaced: Sequence[str]
    ) -> tuple[list[NoteStep], dict[str, str]]:
        """The steps with their origins, and the origins of what they add."""
        known = self._history.recorded_origins([step.content for step in steps])
        old_texts = [step.old_text for step in steps if step.old_text]
        gone = self._history.recorded_origins([*old_texts, *replaced])

        def given(step: NoteStep) -> str:
            # Who takes a change back says nothing new; nor does a file that has a known text.
            is_new = action != UNDO and (author.who != FILE_EDIT or step.content not in known)
            own = author.origin if is_new else ""
            return step.origin or (edited_origin(step.content, gone) if own == PERSON else own)

        origins = {
            step.content: origin_after_repeat(known.get(step.content), origin)
            for step in steps
            if step.action != "remove" and (origin := given(step))
        }
        found = {**known, **origins}
        steps = [step._replace(origin=found.get(step.content, ASSISTANT)) for step in steps]
        return steps, origins

    def _make(self, change: Change, entries: list[str], origins: Mapping[str, str]) -> bool:
        """Record a change and make it; False if a power cut could undo it."""
        # The order covers every crash. Before the rename, the temporary file exists and says "not
        # made". After it, the temporary name is gone and the record is true. See `Change.made`.
        aside = self.text.write_aside(change.after)
        try:
            noted = self._history.begin(
                change._replace(inode=aside.inode, temporary=aside.path), entries, origins
            )
        except BaseException:
            aside.discard()
            raise
        try:
            durable = self.text.put_in_place(aside, expected=change.before)
        except BaseException:
            # Until the note is gone, the temporary file says that nothing was changed.
            with suppress(NotesError):
                self._history.forget(noted.id)
                aside.discard()
            raise
        with suppress(NotesError):
            # The change is made. If the history fails now, the next look finds the record complete.
            self._history.finish(self.key, noted)
        return durable

    def _separate(self, before: str, entries: list[str]) -> None:
        """Insert separators between entries that another program merged."""
        last = self._history.last(self.key)
        if last is None or last.who != FILE_EDIT or parse(before) == entries:
            return
        text = render(entries)
        aside = self.text.write_aside(text)
        try:
            self.text.put_in_place(aside, expected=before)
        except BaseException:
            aside.discard()
            raise
        with suppress(NotesError):
            self._history.separated(self.key, text, aside.inode)

    def _page(self, entries: list[str]) -> Page:
        return Page(entries, len(render(entries)), self.limit)


def _until_made(changes: Iterable[Change], aside: TextUpdate) -> Iterator[Change]:
    """Changes, the last one marked: as long as its temporary file exists, it was not made."""
    last: Change | None = None
    for each in changes:
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last._replace(inode=aside.inode, temporary=aside.path)


def _merger(
    base: Sequence[str], wanted: Sequence[str]
) -> Callable[[list[str]], tuple[list[str], list[NoteStep]]]:
    """Makes of the entries as they are now what ``wanted`` makes of ``base``."""

    def merge(entries: list[str]) -> tuple[list[str], list[NoteStep]]:
        if entries == base:
            result = list(wanted)
        else:
            # Three-way merge by entries: what was removed from `base` goes, what was added is
            # appended, and what others have changed since stays.
            result = _surplus(entries, _surplus(base, wanted))
            result += [entry for entry in _surplus(wanted, base) if entry not in result]
        return result, steps_between(entries, result)

    return merge


def _changed_by_both(
    base: Sequence[str], wanted: Sequence[str], entries: Sequence[str]
) -> list[str]:
    """The entries of ``base`` that are neither in ``wanted`` nor there any more."""
    if not _surplus(wanted, base) or not _surplus(entries, base):
        return []  # one of them only removed something
    theirs = _surplus(base, entries)
    return [entry for entry in _surplus(base, wanted) if entry in theirs]


def steps_between(before: Sequence[str], after: Sequence[str]) -> list[NoteStep]:
    """The removals and additions that lead from one list of entries to another."""
    removed = [NoteStep("remove", entry, entry) for entry in _surplus(before, after)]
    return removed + [NoteStep("add", entry) for entry in _surplus(after, before)]


def _surplus(entries: Sequence[str], other: Sequence[str]) -> list[str]:
    """Those entries that ``other`` has not, or has less often."""
    # A multiset: an entry may occur twice in a file that a person edited.
    left = Counter(other)
    found = []
    for entry in entries:
        if left[entry] > 0:
            left[entry] -= 1
        else:
            found.append(entry)
    return found


def _full(before: Page, length: int) -> RefusalError:
    full = (
        f"The notebook is full: {before.length:,} of {before.limit:,} characters are used, and "
        f"this would make {length:,}"
    )
    return RefusalError(
        f"{full}. Consolidate: in one call with operations, remove or shorten what is outdated or "
        "said twice, and add the new entry.",
        current=True,
        what=full,
        hint="remove or shorten what is outdated: hermes-plugins memory edit",
    )
