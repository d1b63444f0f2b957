"""The two notebooks, MEMORY.md and USER.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_builtin.notes.entries import (
    NotesError,
    Operation,
    Planned,
    Refused,
    Step,
    entry_id,
    expected,
    operation,
    plan,
    previews,
    render,
)
from hermes_builtin.notes.guard import Finding, without_secrets
from hermes_builtin.notes.history import Blocked, Change, GuardDecisions, History, NotesDatabase
from hermes_builtin.notes.notebook import TARGETS, Notebook, Origin, Page, Written, view
from hermes_builtin.notes.pending import Pending, Staged
from hermes_builtin.notes.tool import (
    REMINDER,
    SCHEMA,
    MemoryTool,
    NudgeCounter,
    review_prompt,
    schema,
    snapshot,
)

__all__ = [
    "REMINDER",
    "SCHEMA",
    "TARGETS",
    "Change",
    "Finding",
    "History",
    "MemoryTool",
    "Notebook",
    "Notes",
    "NotesError",
    "NudgeCounter",
    "Operation",
    "Origin",
    "Page",
    "Planned",
    "Refused",
    "Settings",
    "Staged",
    "Step",
    "Written",
    "entry_id",
    "operation",
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


class Settings(NamedTuple):
    """What config.yaml says about the notes, with hermes-agent's names and defaults."""

    memory_enabled: bool = True
    user_profile_enabled: bool = True
    memory_char_limit: int = 2200
    user_char_limit: int = 1375
    write_approval: bool = False
    nudge_interval: int = 10

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Settings:
        """Those of our keys that have a value."""
        given = {key: values[key] for key in cls._fields if values.get(key) is not None}
        # YAML reads `off` as False, but a quoted "off" is text. What is neither asks for approval:
        # a typo must not switch a safeguard off.
        if isinstance(approval := given.get("write_approval"), str):
            given["write_approval"] = approval.strip().casefold() not in _NO
        return cls(**given)


class Notes:
    """Both notebooks of a home, their history, and what waits for a person."""

    def __init__(self, home: Path, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.pending = Pending(home)
        # Files, names and limits are hermes-agent's: both programs may use one home.
        folder = home / "memories"
        self.database = NotesDatabase(folder / "history.db")
        self.history = History(self.database)
        self.decisions = GuardDecisions(self.database)
        limits = {
            "memory": self.settings.memory_char_limit,
            "user": self.settings.user_char_limit,
        }
        self.notebooks = {
            target: Notebook(folder, target, limits[target], self.history, self.decisions)
            for target in TARGETS
        }

    def enabled(self) -> dict[str, Notebook]:
        """The notebooks that are switched on."""
        switches = {
            "memory": self.settings.memory_enabled,
            "user": self.settings.user_profile_enabled,
        }
        return {name: book for name, book in self.notebooks.items() if switches[name]}

    def tool(self, committed: Callable[[str, Written, Origin], None]) -> MemoryTool:
        """The `memory` tool over these notebooks."""
        pending = self.pending if self.settings.write_approval else None
        return MemoryTool(self.enabled(), pending, committed)

    def change(self, target: str, operations: Sequence[Operation], origin: Origin) -> Written:
        """Change a notebook as a person, whom no approval stops."""
        return self.notebooks[target].change(operations, origin)

    def undo(self, number: int | None, origin: Origin) -> tuple[Change, Written]:
        """Take back one change, or the newest."""
        if number is None:
            self.catch_up()  # an edit that nobody has noticed yet comes first
            change = self.history.newest()
        else:
            change = self.history.change(number)
        if change is None:
            what = "nothing to undo" if number is None else "no such change"
            raise NotesError(what)
        return change, self.notebooks[change.target].undo(change, origin)

    def catch_up(self) -> None:
        """Record what others did to the files."""
        for target, notebook in self.notebooks.items():
            with notebook.file.locked():
                self.history.catch_up(target, *notebook.file.look())

    def approve(self, name: str, origin: Origin) -> tuple[Staged, Written]:
        """Carry out a write that waited; it stays pending if that fails."""
        staged = self.pending.get(name)
        # The write belongs to the session that asked for it, not to the command that approves it.
        origin = origin._replace(session=staged.session)
        written = self._notebook(staged).change(staged.operations, origin)
        # After the change: a crash in between leaves a record whose second approval changes nothing
        # or is refused. The other order could lose the write.
        self.pending.discard(name)
        return staged, written

    def planned(self) -> list[tuple[Staged, list[Planned]]]:
        """What waits, oldest first, and what each would do after those before it."""
        entries = {name: self._readable(book) for name, book in self.notebooks.items()}
        found = []
        for staged in self.pending.all():
            before = entries.get(staged.target, [])
            found.append((staged, plan(before, staged.operations)))
            # Each write is shown as it will be after those before it are approved.
            entries[staged.target] = expected(before, [staged.operations])
        return found

    @staticmethod
    def _readable(notebook: Notebook) -> list[str]:
        """The entries; none if they can't be read, which `show` and `approve` tell."""
        try:
            return notebook.read().entries
        except NotesError:
            return []

    def _notebook(self, staged: Staged) -> Notebook:
        if staged.target not in self.notebooks:
            raise NotesError(
                f"{staged.id} is for a notebook {staged.target!r}, which does not exist"
            )
        return self.notebooks[staged.target]

    def allow(self, name: str) -> str:
        """Vouch for a text that the guard objects to: one in the files, or a refused write."""
        for text in self._objected():
            if entry_id(text) == name:
                self.decisions.allow(text)
                return text
        raise NotesError(f"the guard has rejected nothing with the id {name}")

    def blocked(self) -> list[Blocked]:
        """Writes that the guard refused."""
        return self.decisions.blocked()

    def _objected(self) -> Iterator[str]:
        for notebook in self.notebooks.values():
            yield from notebook.findings(notebook.read().entries)
        yield from (each.text for each in self.blocked())

    def close(self) -> None:
        """Close the files."""
        self.database.close()
