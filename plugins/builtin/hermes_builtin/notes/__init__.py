"""The two notebooks, MEMORY.md and USER.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hermes_builtin.notes.entries import (
    NotesError,
    NoteStep,
    Operation,
    OperationPlan,
    RefusalError,
    entry_id,
    expected,
    operation,
    plan,
    previews,
    render,
)
from hermes_builtin.notes.guard import HiddenText, without_secrets
from hermes_builtin.notes.guard_decisions import GuardDecisions, RefusedWrite
from hermes_builtin.notes.history import Change, History, origin_after_repeat
from hermes_builtin.notes.history_file import Matches
from hermes_builtin.notes.notebook import (
    COMMAND,
    PAGE,
    TARGETS,
    Author,
    Notebook,
    Page,
    WriteResult,
)
from hermes_builtin.notes.pending import PendingWrite, PendingWrites
from hermes_builtin.notes.people import (
    PER_USER,
    Person,
    checked_name,
)
from hermes_builtin.notes.storage import open_storage
from hermes_builtin.notes.tool import (
    ALLOW,
    ASK,
    REFUSE,
    REMINDER,
    SCHEMA,
    Judge,
    NotesTool,
    NudgeCounter,
    WriteRules,
    review_prompt,
    schema,
    snapshot,
)
from hermes_builtin.notes.view import view
from hermes_core.config.storage import home_database
from hermes_core.errors import HermesError
from hermes_core.privacy.origin import is_external

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Database

__all__ = [
    "ALLOW",
    "ASK",
    "COMMAND",
    "PAGE",
    "REFUSE",
    "REMINDER",
    "SCHEMA",
    "TARGETS",
    "Author",
    "Change",
    "HiddenText",
    "History",
    "NoteStep",
    "Notebook",
    "Notes",
    "NotesError",
    "NotesSettings",
    "NotesTool",
    "NudgeCounter",
    "Operation",
    "OperationPlan",
    "Page",
    "PendingWrite",
    "Person",
    "RefusalError",
    "WriteResult",
    "entry_id",
    "operation",
    "origin_after_repeat",
    "previews",
    "render",
    "review_prompt",
    "schema",
    "snapshot",
    "view",
    "without_secrets",
]

#: All other words ask for approval; those that nobody knows are a problem of the config too.
_NO: Final = frozenset({"off", "false", "no", "0", "disabled", ""})


class NotesSettings(NamedTuple):
    """What config.yaml says about the notes, with hermes-agent's names and defaults."""

    memory_enabled: bool = True
    user_profile_enabled: bool = True
    memory_char_limit: int = 2200
    user_char_limit: int = 1375
    write_approval: bool = False
    nudge_interval: int = 10
    user_notes: str = "shared"
    external_notes: str = ASK

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NotesSettings:
        """Those of our keys that have a value."""
        given = {key: values[key] for key in cls._fields if values.get(key) is not None}
        # YAML reads `off` as False, but a quoted "off" is text. What is neither asks for approval:
        # a typo must not switch a safeguard off.
        if isinstance(approval := given.get("write_approval"), str):
            given["write_approval"] = approval.strip().casefold() not in _NO
        if given.get("external_notes") not in (None, ALLOW, REFUSE):
            given["external_notes"] = ASK
        return cls(**given)


class Notes:
    """Both notebooks of a home as one person has them, their history, and what waits.

    With ``user_notes: per-user`` everybody has their own USER.md. The one of the home is for the
    owner of the machine. Whoever has no id elsewhere has none: it could be anybody.
    """

    def __init__(
        self,
        home: Path,
        settings: NotesSettings | None = None,
        person: Person | None = None,
        database: Database | None = None,
    ) -> None:
        self.settings = settings or NotesSettings()
        self.person = person or Person()
        self._home, self._database = home, database
        #: Where its files are, if it has any: notes, copies of them, and older ones.
        self.folder = home / "memories"
        key = self._user_key()
        only = "" if key == "user" else key or "nobody"
        self._storage = open_storage(home, database, only)
        self.database = self._storage.database
        self.pending = PendingWrites(self._storage.records)
        self.history = History(self._storage.database)
        self.decisions = GuardDecisions(self._storage.database)
        keys = {"memory": "memory", "user": key}
        self.notebooks = {target: self.book(key) for target, key in keys.items() if key}

    @classmethod
    def open(cls, home: Path, memory: Mapping[str, Any], person: Person | None = None) -> Notes:
        """The notes of a home, where its section ``memory`` of config.yaml says.

        Raises:
            HermesError: They are in a database that can't be used here.
        """
        return cls(home, NotesSettings.of(memory), person, home_database(home, memory))

    def of(self, person: Person) -> Notes:
        """The notes as another person has them."""
        return Notes(self._home, self.settings, person, self._database)

    def _user_key(self) -> str:
        """Which USER.md it is; "" for none."""
        if self.settings.user_notes != PER_USER or self.person.is_owner:
            return "user"
        return f"user/{self.person.folder}" if self.person.user_id else ""

    def book(self, key: str) -> Notebook:
        """A notebook by the key that the history has: ``memory``, ``user`` or ``user/FOLDER``.

        Raises:
            NotesError: There can be no such notebook.
        """
        target, slash, name = key.partition("/")
        if target not in TARGETS or (slash and target != "user"):
            raise NotesError(f"there is no notebook {key!r}")
        limits = (self.settings.memory_char_limit, self.settings.user_char_limit)
        person = self.person if name == self.person.folder else None
        people = self._storage.people
        return Notebook(
            self._storage.text(target, name),
            target,
            dict(zip(TARGETS, limits, strict=True))[target],
            self.history,
            self.decisions,
            key=key,
            before_write=None if person is None else partial(people.introduce, person),
        )

    def owner(self, key: str) -> Person:
        """Whose notebook it is; the owner of the machine has those of the home.

        Raises:
            NotesError: Nobody noted it.
        """
        name = key.partition("/")[2]
        if not name:
            return Person()
        if (person := self._storage.people.person(checked_name(name))) is None:
            where = self._storage.text("user", name).place
            todo = "name the user: --user ID --platform NAME"
            raise NotesError("it is not known whose notes these are", where=where, hint=todo)
        return person

    def introduce(self, person: Person) -> None:
        """Note whose USER.md is in the folder of a person."""
        self._storage.people.introduce(person)

    def people(self) -> list[Person]:
        """Everybody with their own USER.md."""
        return self._storage.people.all()

    def has_own(self, key: str) -> bool:
        """Whether the user with this notebook has their own notes or history."""
        return self._storage.people.exists(checked_name(key.partition("/")[2]))

    def drop_own(self, key: str) -> None:
        """Delete a user's notebook, and who it is; its history stays."""
        with self.book(key).text.locked():
            # With the lock's file: the name of the folder tells who it was.
            self._storage.people.drop(key.partition("/")[2])

    def all_notebooks(self) -> list[Notebook]:
        """These notebooks, and those of everybody else."""
        keys = [f"user/{person.folder}" for person in self.people()]
        own = {book.key for book in self.notebooks.values()}
        return [*self.notebooks.values(), *(self.book(key) for key in keys if key not in own)]

    def enabled(self) -> dict[str, Notebook]:
        """The notebooks that are switched on, and that this person has."""
        switches = {
            "memory": self.settings.memory_enabled,
            "user": self.settings.user_profile_enabled,
        }
        return {name: book for name, book in self.notebooks.items() if switches[name]}

    def tool(
        self,
        committed: Callable[[str, WriteResult, Author], None],
        unstored: Callable[[HermesError], None],
        judge: Judge | None = None,
    ) -> NotesTool:
        """The `memory` tool over these notebooks. Without a judge, every note is the model's."""
        rules = WriteRules(self.settings.write_approval, self.settings.external_notes)
        return NotesTool(self.enabled(), self.pending, rules, committed, unstored, judge=judge)

    def external_texts(self) -> list[tuple[str, str]]:
        """The notes that strangers may have written, with their origins."""
        found: list[tuple[str, str]] = []
        for notebook in self.notebooks.values():
            with suppress(NotesError):
                origins = notebook.origins(notebook.read().entries)
                found += [each for each in origins.items() if is_external(each[1])]
        return found

    def change(self, target: str, operations: Sequence[Operation], author: Author) -> WriteResult:
        """Change a notebook as a person, whom no approval stops."""
        return self.notebooks[target].change(operations, author)

    def undo(self, number: int | None, author: Author) -> tuple[Change, WriteResult]:
        """Take back one change, or the newest."""
        if number is None:
            self.catch_up()  # an edit that nobody has noticed yet comes first
            change = self.history.newest([book.key for book in self.notebooks.values()])
        else:
            change = self.history.change(number)
        if change is None:
            what = "nothing to undo" if number is None else "no such change"
            raise NotesError(what, hint="see: hermes-plugins memory history")
        return change, self.book(change.target).undo(change, author)

    def catch_up(self) -> None:
        """Record what others did to the files."""
        for notebook in self.notebooks.values():
            with notebook.text.locked():
                self.history.catch_up(notebook.key, *notebook.text.look())

    def approve(self, name: str, author: Author) -> tuple[PendingWrite, WriteResult]:
        """Carry out a write that waited; it stays pending if that fails."""
        staged = self.pending.get(name)
        # The write belongs to the session that asked for it, not to the command that approves it.
        author = author._replace(session=staged.session)
        try:
            notebook = self.book(staged.target)
        except NotesError as error:
            raise NotesError(f"{staged.id}: {error.what}", hint=error.hint) from error
        written = notebook.change(staged.operations, author)
        # After the change: a crash in between leaves a record whose second approval changes nothing
        # or is refused. The other order could lose the write.
        self.pending.discard(name)
        return staged, written

    def planned(self) -> list[tuple[PendingWrite, list[OperationPlan]]]:
        """What waits, oldest first, and what each would do after those before it."""
        entries: dict[str, list[str]] = {}
        found = []
        for staged in self.pending.all():
            before = entries.get(staged.target)
            before = self._readable(staged.target) if before is None else before
            found.append((staged, plan(before, staged.operations)))
            # Each write is shown as it will be after those before it are approved.
            entries[staged.target] = expected(before, [staged.operations])
        return found

    def _readable(self, key: str) -> list[str]:
        """The entries; none if they can't be read, which `show` and `approve` tell."""
        try:
            return self.book(key).read().entries
        except NotesError:
            return []

    def allow(self, name: str) -> str:
        """Vouch for a text that the guard objects to: one in the files, or a refused write."""
        found = [(target, text) for target, text in self._objected() if entry_id(text) == name]
        for target, text in found:
            self.decisions.allow(text, target)
        if found:
            return found[0][1]
        for notebook in self.all_notebooks():
            notebook.read()  # raises: the text may be in one that can't be read
        what = f"the guard has rejected nothing with the id {name}"
        raise NotesError(what, hint="to see the ids: hermes-plugins memory show")

    def blocked(self) -> list[RefusedWrite]:
        """Writes that the guard refused."""
        return self.decisions.blocked()

    def forget(self, key: str, matches: Matches) -> int:
        """Remove entries of a notebook, and all that is recorded of their texts.

        Returns:
            How many there were in it.
        """
        book = self.book(key)
        entries = [each for each in book.read().entries if matches(each)]
        changes = self.history.matching(matches) if self.history.exists else []
        recorded = [each for _, target, having in changes if target == key for each in having]
        blocked = [each for each in self.decisions.matching(matches) if each.target == key]
        texts = [*entries, *recorded, *(each.text for each in blocked)]
        # First what is recorded of the texts: it is found by them.
        self.decisions.erase([each.id for each in blocked], texts)
        if book.text.exists:
            book.forget(matches)
        elif self.history.exists:
            self.history.erase(key, matches)
        self._forget_pending(key, matches)
        return len(entries)

    def _forget_pending(self, key: str, matches: Matches) -> None:
        for write in self.pending.all():
            texts = [text for each in write.operations for text in (each.content, each.old_text)]
            if write.target == key and any(map(matches, texts)):
                self.pending.erase(write.id)

    def _objected(self) -> Iterator[tuple[str, str]]:
        """Notebooks, and what the guard objects to in them."""
        for notebook in self.all_notebooks():
            with suppress(NotesError):
                for each in notebook.findings(notebook.read().entries):
                    yield notebook.key, each
        yield from ((each.target, each.text) for each in self.blocked())

    def close(self) -> None:
        """Close the files."""
        self._storage.close()

    def check(self) -> None:
        """Raise `NotesError` unless the history has no damage."""
        self._storage.database.check()
