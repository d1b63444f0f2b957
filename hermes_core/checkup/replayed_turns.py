"""switch.db: the turns that replays have handed to each provider, by their event ids.

A batch is noted as begun before it goes to the outbox, and as done afterwards. So a run after a
crash knows which turns may have arrived.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import Schema

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
