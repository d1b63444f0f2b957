"""`doctor --fix` leaves the databases alone: closing one by hand cancels SQLite's locks."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing

import pytest
from support.commands import posix_only
from support.fielded import rows_of


@posix_only
@pytest.mark.parametrize("name", ["state.db", "sessions.db", "outbox.db"])
def test_a_database_that_others_can_read_is_left_to_a_person(machine, name):
    path = machine.home / name
    with closing(sqlite3.connect(path)):
        path.touch()
        path.chmod(0o644)
    row = rows_of(machine, "--fix")[name]
    assert (row["state"], row["fixable"]) == ("warning", False)
    assert f"chmod 600 {path}" in row["todo"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
