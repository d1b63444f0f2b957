"""The password of a database, in a keyring that is locked when the agent starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scripts import run_script

pytestmark = pytest.mark.postgres_only("about its password")

AGENT = """
    import os
    os.environ.update({environment!r})
    from pathlib import Path
    from hermes_core import MemoryManager

    manager = MemoryManager.from_config({home!r})
    manager.initialize_all("s1")
    for number in range(3):
        manager.sync_all(f"question {{number}}", "answer")
    print(len(list(Path({home!r}, "spool").glob("*"))), flush=True)
    Path({locked!r}).unlink()
    manager.flush_pending(60)
    manager.shutdown_all()
"""


@pytest.fixture
def locked(machine, tmp_path: Path, database_url: str) -> Path:
    """The file that locks the keyring, which has the password of the database."""
    machine.environment["PYTHON_KEYRING_BACKEND"] = "support.keyrings.LockedNow"
    machine.write_config(f"memory:\n  storage: {database_url}\n")
    machine.run("secrets", "set", "HERMES_STORAGE_PASSWORD", input="secret\n").done()
    file = tmp_path / "keyring.json.locked"
    file.touch()
    return file


def test_the_agent_runs_and_the_turns_reach_the_archive_later(machine, locked: Path) -> None:
    names = ("PYTHON_KEYRING_BACKEND", "TEST_KEYRING", "HOME")
    environment = {each: machine.environment[each] for each in names}
    script = AGENT.format(environment=environment, home=str(machine.home), locked=str(locked))
    done = run_script(script)
    assert done.returncode == 0, done
    assert int(done.stdout) > 0, done
    assert machine.run("sessions", "export").done().out.count("question") == 3


@pytest.mark.parametrize("command", [("status",), ("doctor",), ("storage", "status")])
def test_the_commands_report_it_beside_everything_else(machine, locked: Path, command) -> None:
    result = machine.run(*command)
    assert result.code == 1
    assert "the password HERMES_STORAGE_PASSWORD can't be read" in result.out
    assert "hint:" in result.out + result.err
    assert machine.run(*command, "--json").out.startswith("{")
    locked.unlink()
    machine.run(*command)
