"""How far replays are, and what they have handed to each provider.

switch.json has an entry for each replay, switch.db the event ids of what was handed over. A batch
is noted as begun before it goes to the outbox, and as done afterwards. So a run after a crash knows
which turns may have arrived.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from hermes_core.checkup.journal import Journal
from hermes_core.config.names import normalise
from hermes_core.errors import HermesError
from hermes_core.outbox.records import ProviderKey
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import Schema

JOURNAL: Final = "switch.json"
REPLAYS: Final = Journal(
    JOURNAL,
    "an interrupted replay",
    "remove the file, and run `hermes-plugins switch NAME --replay` again",
)

DATABASE: Final = "switch.db"
_CREATE: Final = (
    "CREATE TABLE handed (provider TEXT NOT NULL, event TEXT NOT NULL, began REAL NOT NULL,"
    " done INTEGER NOT NULL, PRIMARY KEY (provider, event)) WITHOUT ROWID"
)
_SCHEMA: Final = Schema(
    "the list of replayed turns",
    application_id=0x48505357,  # "HPSW"
    migrations=(_CREATE,),
)
_HINT: Final = "move it away; the next replay hands over everything again"


# -- the journal ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replay:
    """How far the replay to one provider is. What it was handed is in `ReplayedTurns`.

    Attributes:
        provider: The provider's name.
        owner: Its owner.
        began: When it began; it has to go on with the list of what it handed over.
        asked: From when on turns are wanted.
        since: From when on this pass takes turns.
        until: Up to when.
        looks_up: Whether the provider may have turns already, so that it has to look.
        has_notes: Whether the notes are done.
        turns: How many turns were handed over.
        notes: How many notes.
        characters: How many characters they have.
        finished: When it had everything; 0.0 if it has not.
    """

    provider: str
    owner: str
    began: float = 0.0
    asked: float = 0.0
    since: float = 0.0
    until: float = 0.0
    looks_up: bool = False
    has_notes: bool = False
    turns: int = 0
    notes: int = 0
    characters: int = 0
    finished: float = 0.0

    @property
    def key(self) -> str:
        """Its name in the journal."""
        return f"{normalise(self.provider)}@{self.owner}"

    @property
    def target(self) -> ProviderKey:
        """The provider, as the outbox has it."""
        return ProviderKey(self.provider, self.owner)


def replays(home: Path) -> dict[str, Replay]:
    """What the journal says, by provider and owner.

    Raises:
        HermesError: It can't be read.
    """
    return REPLAYS.read(home, _parsed) or {}


def _parsed(data: dict[str, Any]) -> dict[str, Replay]:
    known = Replay.__dataclass_fields__  # a version of before has more
    found = []
    for each in data["replays"]:
        row = {key: value for key, value in each.items() if key in known}
        # It did not note which turns it had handed over: the provider has to look.
        found.append(Replay(**(row if "began" in row else {**row, "looks_up": True})))
    return {each.key: each for each in found}


def save_replay(home: Path, done: Replay) -> Replay:
    """Store how far a replay is; returns it."""
    known = {**replays(home), done.key: done}
    REPLAYS.write(home, {"replays": [asdict(each) for each in known.values()]})
    return done


def interrupted(home: Path) -> list[str]:
    """The providers whose replay did not reach its end."""
    try:
        return [each.provider for each in replays(home).values() if not each.finished]
    except HermesError:
        return ["NAME"]  # running it says what is wrong


# -- the list of events ---------------------------------------------------------------------------


class ReplayedTurns:
    """What one provider was handed in one home.

    Args:
        home: The home.
        provider: Its name in the journal.
        began: When its replay began; what earlier ones handed over does not count.
    """

    def __init__(self, home: Path, provider: str, began: float) -> None:
        self._file = SqliteFile(home / DATABASE, _SCHEMA, durable=True, damage_hint=_HINT)
        self._exists = (home / DATABASE).exists()
        self._provider = provider
        self._began = began

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def done(self, events: Sequence[str]) -> set[str]:
        """Return which of these turns were handed over."""
        return self._known(events, done=1)

    def begun(self, events: Sequence[str]) -> set[str]:
        """Return which of these turns may have been handed over when a run was interrupted."""
        return self._known(events, done=0)

    def interrupted(self) -> set[str]:
        """Return everything that may have been handed over when a run was interrupted."""
        return {event for (event,) in self._rows("SELECT event", done=0)}

    def count(self) -> int:
        """Return how many turns and notes were handed over."""
        return sum(count for (count,) in self._rows("SELECT count(*)", done=1))

    def _rows(self, what: str, *, done: int) -> list[tuple[Any]]:
        if not self._exists:
            return []
        find = f"{what} FROM handed WHERE provider = ? AND began = ? AND done = ?"
        values = (self._provider, self._began, done)
        return self._file.read(lambda database: database.execute(find, values).fetchall())

    def _known(self, events: Sequence[str], *, done: int) -> set[str]:
        if not self._exists:  # a dry run creates nothing
            return set()
        find = "SELECT 1 FROM handed WHERE provider = ? AND event = ? AND began = ? AND done = ?"

        def work(database: sqlite3.Connection) -> set[str]:
            each = ((event, (self._provider, event, self._began, done)) for event in events)
            return {event for event, values in each if database.execute(find, values).fetchone()}

        return self._file.read(work)

    def begin(self, events: Iterable[str]) -> None:
        """Note that these are about to be handed over."""
        self._set(events, 0)

    def finish(self, events: Iterable[str]) -> None:
        """Note that these were handed over: they are delivered, or wait in the outbox."""
        self._set(events, 1)

    def _set(self, events: Iterable[str], done: int) -> None:
        rows = [(self._provider, each, self._began, done) for each in events]
        statement = "INSERT OR REPLACE INTO handed VALUES (?, ?, ?, ?)"
        if rows:
            self._file.change(lambda database: database.executemany(statement, rows) and None)
            self._exists = True
