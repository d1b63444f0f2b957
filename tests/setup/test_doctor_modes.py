"""`doctor --fix` leaves the databases alone: closing one by hand cancels SQLite's locks."""

from __future__ import annotations

import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from support.commands import posix_only

from hermes_core.checkup.doctor import run_doctor
from hermes_core.config import load_config


@posix_only
@pytest.mark.parametrize("name", ["state.db", "sessions.db", "outbox.db"])
def test_a_database_that_others_can_read_is_left_to_a_person(machine, name):
    path = machine.home / name
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE somebody (s)")  # a file without a byte counts as damaged
        path.chmod(0o644)
    report = json.loads(machine.run("doctor", "--fix", "--json").out)  # it is not our database
    row = {each["check"]: each for each in report["checks"]}[name]
    assert (row["state"], row["fixable"]) == ("warning", False)
    assert f"chmod 600 {path}" in row["todo"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@posix_only
def test_what_can_not_be_fixed_is_reported_with_everything_else(home, monkeypatch):
    env = home / ".env"
    env.write_text("A=1\n")
    env.chmod(0o644)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "chmod", refuse)
    findings = {each.check: each for each in run_doctor(load_config(home), fix=True)}
    assert findings[".env"].state == "warning"
    assert "can't be fixed: " in findings[".env"].detail
    assert "Operation not permitted" in findings[".env"].detail
    assert "chmod 600" in findings[".env"].todo
    assert findings["secrets"].state == "ok"
