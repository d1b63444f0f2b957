"""An outbox.db that an earlier version made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core.outbox import OutboxStore, WriteState
from hermes_core.outbox.sqlite import OUTBOX, OutboxFile
from hermes_core.storage.sqlite_connection import Schema, open_database

pytestmark = pytest.mark.files_only(
    "about the formats of the file; test_postgres.py has the others"
)


def test_what_waits_in_a_file_of_the_first_version_still_does(home: Path) -> None:
    path = home / "outbox.db"
    first = Schema(OUTBOX.name, OUTBOX.application_id, OUTBOX.migrations[:1], OUTBOX.prepare)
    open_database(path, first).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "INSERT INTO streams (provider, owner, session, keywords) VALUES ('p', '', 's', '{}')"
        )
        database.execute(
            "INSERT INTO writes (stream, event_id, hook, payload, created) "
            "VALUES (1, 'e', 'sync_turn', '{}', 5.0)"
        )
    store = OutboxStore(OutboxFile(path), max_bytes=10**8)
    assert store.handed_over(["e"]) == 0  # the table that newer versions add is there
    (stream,) = store.waiting_streams()
    assert (stream.writes, stream.due) == (1, 0.0)
    write = store.next_waiting(1, turns=True)
    assert write is not None
    assert (write.event_id, write.state, write.faults) == ("e", WriteState.WAITING, 0)
    store.close()
