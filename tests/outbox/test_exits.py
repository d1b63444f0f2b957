"""However a process ends, it ends, and what was not delivered is still there."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from support.agents import agent
from support.journals import texts
from support.outboxes import stored
from support.scripts import run_script
from support.storages import Storage, scaled

pytestmark = [pytest.mark.usefixtures("both_storages"), pytest.mark.scaled]


BEGIN = """
    import logging
    from pathlib import Path
    from support.journals import Journal, noted
    logging.disable(logging.CRITICAL)
    home = Path({home!r})
    manager = MemoryManager(home=home, deadlines=Deadlines(shutdown=1.0, write={write}))
    {storage}
    manager.add_provider(Journal())
    manager.initialize_all("s1")
    said = 0
    def talk():
        global said
        while True:
            manager.sync_all("more", "answer")
            said += 1
    def until(condition):
        while not condition():
            time.sleep(0.005)
    def overdue():
        return any(each.overdue for each in manager._external._workers.values())
"""


def waiting(home: Path) -> list[str]:
    return [payload for payload, state in stored(home, "payload, state") if state == "waiting"]


ENDINGS = {
    "shutdown": ("manager.shutdown_all()", 0),
    "end": ("pass", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(4)", 4),
    "exception": ("raise RuntimeError('the host fails')", 1),
    "threads": ("threading.Thread(target=talk, daemon=True).start(); until(lambda: said > 9)", 0),
}


@pytest.mark.stress
@pytest.mark.parametrize("write", [120, 0.1], ids=["patient", "overdue"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_beside_a_write_that_hangs_and_loses_nothing(
    home: Path, ending: str, write: float
) -> None:
    statement, code = ENDINGS[ending]
    (home / "hold").touch()
    done = run_script(
        BEGIN.format(home=str(home), write=write, storage=Storage.current.statement)
        + f"""
    for number in range(5):
        manager.sync_all(f"turn {{number}}", "answer")
    until(lambda: noted(home, "begin"))
    until(lambda: overdue() or {write} > 1)
    {statement}
""",
        timeout=30,
    )
    assert done.returncode == code, done.stderr
    assert "Fatal Python error" not in done.stderr
    if ending != "exception":
        assert done.stderr == ""
    (home / "hold").unlink()
    kept = waiting(home)
    assert [f'"turn {number}"' in kept[number] for number in range(5)] == [True] * 5


def test_calls_and_shutdown_return_beside_a_provider_that_hangs_everywhere(home: Path) -> None:
    done = run_script(
        f"""
        import logging
        from support.providers import DRIVE, TOOL, Gate, Recorder
        logging.disable(logging.CRITICAL)
        provider = Recorder(tools=[TOOL])
        deadlines = Deadlines(initialize=0.2, prefetch=0.2, tool=0.2, hook=0.2, write=0.2,
                              shutdown=1.0, available=0.2)
        manager = MemoryManager(home={str(home)!r}, deadlines=deadlines)
        {Storage.current.statement}
        manager.add_provider(provider)
        manager.initialize_all("s1")
        for hook in DRIVE:
            provider.answers[hook] = Gate()
        provider.answers["shutdown"] = Gate()
        for drive in DRIVE.values():
            drive(manager)
        manager.shutdown_all()
        """,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(waiting(home)) == 4


def test_no_process_crashes_that_ends_while_a_delivery_runs(home: Path) -> None:
    count = scaled(100, 4)
    chance = random.Random(11)
    for number in range(count):
        pause = f"import time; time.sleep({chance.random() / 100})"
        process = agent(home, f"s{number}", "u", count=30, ending=pause)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    kept = {json.loads(payload)["user_content"] for payload in waiting(home)}
    assert len({*texts(home)} | kept) == 30 * count
