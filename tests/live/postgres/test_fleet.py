"""Two machines on one database: one delivers what the other left, and a cable is pulled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Machine, wait_until
from support.journals import PLUGIN, noted, texts
from support.netns import FleetMachine
from support.notes import start_python
from support.postgres_faults import FleetHome, OwnServer
from support.sites import add_directory

pytestmark = pytest.mark.xdist_group("postgres-fleet")

#: An agent: how far its clock is ahead, its home, its session, and how many turns it takes.
_AGENT = """
import sys, time
ahead, home, session, count = float(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
now = time.time
time.time = lambda: now() + ahead
from hermes_core import MemoryManager
manager = MemoryManager.from_config(home)
manager.initialize_all(session, user_id="anna", platform="cli")
for number in range(count):
    manager.sync_all(f"{session} {number}", "answer")
    print(number, flush=True)
print("done", flush=True)
time.sleep(300)
"""
_HOUR = 3600.0


@pytest.fixture(scope="module")
def own_server(folder: Path) -> Iterator[OwnServer]:
    """A server that other machines reach."""
    made = OwnServer(folder / "fleet", listen_addresses="*")
    try:
        made.create()
        yield made
    finally:
        made.remove()


@pytest.fixture
def machines() -> Iterator[tuple[FleetMachine, FleetMachine]]:
    one = FleetMachine(1)
    try:
        two = FleetMachine(2)
        try:
            yield one, two
        finally:
            two.close()
    finally:
        one.close()


def home_of(
    folder: Path, machine: FleetMachine, server: OwnServer, like: FleetHome | None = None
) -> FleetHome:
    """A home with a journal as its provider, of the fleet of another one."""
    url = f"postgresql://hermes@{machine.gateway}:{server.port}/hermes"
    made = FleetHome(Machine(folder), url)
    made.namespace = like.namespace if like is not None else made.namespace
    made.use(url)
    add_directory(made.home, "journal", PLUGIN)
    with (made.home / "config.yaml").open("a") as file:
        file.write("  provider: journal\n")
    return made


@pytest.mark.parametrize("ahead", [0.0, 2 * _HOUR, -2 * _HOUR])
def test_a_machine_delivers_what_a_dead_one_left_when_its_claim_has_expired(
    machines: tuple[FleetMachine, FleetMachine], server: OwnServer, tmp_path: Path, ahead: float
) -> None:
    """By the clock of the server, whatever that of the machine says."""
    ours = home_of(tmp_path / "a", machines[0], server)
    theirs = home_of(tmp_path / "b", machines[1], server, ours)
    (ours.home / "hold").touch()
    first = machines[0].start(_AGENT, 0, ours.home, "s1", 10)
    assert first.stdout is not None
    assert wait_until(lambda: noted(ours.home, "begin"), 60)
    assert [first.stdout.readline() for _ in range(11)][-1] == "done\n"
    second = machines[1].start(_AGENT, ahead, theirs.home, "s2", 3)
    assert wait_until(lambda: len(texts(theirs.home)) == 3, 60), second.stderr
    first.kill()
    first.wait()
    # The other machine can't know that it is dead. It respects the claim.
    assert set(texts(theirs.home)) == {f"s2 {number}" for number in range(3)}
    with server.server.admin("hermes") as admin:
        admin.execute("UPDATE hermes.outbox_streams SET expires = 1 WHERE holder LIKE 'machine1/%'")
    assert wait_until(lambda: len(texts(theirs.home)) == 13, 60)
    delivered = [each for each in texts(theirs.home) if each.startswith("s1")]
    assert delivered == [f"s1 {number}" for number in range(10)]
    assert all(
        row["attempt"] > 1 for row in noted(theirs.home, "end") if row["text"].startswith("s1")
    )


def test_a_machine_whose_cable_is_pulled_loses_and_doubles_nothing(
    machines: tuple[FleetMachine, FleetMachine], server: OwnServer, tmp_path: Path
) -> None:
    home = home_of(tmp_path / "a", machines[0], server)
    (home.home / "config.yaml").write_text(
        (home.home / "config.yaml").read_text().replace("  provider: journal\n", "")
    )
    process = machines[0].start(_AGENT.replace("answer", "answer"), 0, home.home, "s1", 2000)
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    machines[0].unplug()
    assert wait_until(lambda: home.spooled() >= 3, 60)
    machines[0].plug()
    assert wait_until(lambda: home.spooled() == 0, 60)
    process.kill()
    said = sum(line.strip().isdigit() for line in process.stdout) + 5
    stored = home.stored("s1", server.url)
    waiting = home.spooled()
    assert stored == [f"s1 {number}" for number in range(len(stored))]
    # The one that was under way when the process was killed may be there, too.
    assert len(stored) + waiting - said in (0, 1)


def test_a_session_that_goes_on_in_another_process_writes_behind_what_waits(
    server: OwnServer, tmp_path: Path
) -> None:
    home = FleetHome(Machine(tmp_path / "m"), server.url)
    add_directory(home.home, "journal", PLUGIN)
    with (home.home / "config.yaml").open("a") as file:
        file.write("  provider: journal\n")
    server.kill()
    for _ in range(2):
        _run_and_kill(home, 2)
    assert (home.home / "spool" / "writes.jsonl").read_bytes().count(b"\n") == 4
    server.start()
    with start_python(_AGENT, 0, home.home, "s1", 3) as process:
        arrived = wait_until(lambda: len(texts(home.home)) == 7, 60)
        process.kill()
    assert arrived
    assert [each.split()[-1] for each in texts(home.home)] == ["0", "1", "0", "1", "0", "1", "2"]


def _run_and_kill(home: FleetHome, turns: int) -> None:
    """Have an agent take turns in its session, and kill it."""
    # Leaving it closes its pipes and waits for it.
    with start_python(_AGENT, 0, home.home, "s1", turns) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(turns + 1)][-1] == "done\n"
        process.kill()


def test_writes_for_a_provider_wait_for_the_server_and_arrive_in_order(
    server: OwnServer, tmp_path: Path
) -> None:
    home = FleetHome(Machine(tmp_path / "m"), server.url)
    add_directory(home.home, "journal", PLUGIN)
    with (home.home / "config.yaml").open("a") as file:
        file.write("  provider: journal\n")
    talk = home.talk("s1")
    talk.say("s1 0")
    assert talk.manager.flush_pending(60)
    server.kill()
    talk.say("s1 1")
    talk.say("s1 2")
    warnings = talk.manager.warnings
    assert [each for each in warnings if "2 turns wait in the spool" in each]
    assert [each for each in warnings if "2 writes wait for the outbox" in each]
    assert not talk.manager.flush_pending(0.1)
    server.start()
    assert wait_until(lambda: talk.manager.flush_pending(10), 60)
    talk.say("s1 3")
    assert talk.manager.flush_pending(60)
    assert texts(home.home) == [f"s1 {number}" for number in range(4)]
    talk.close()


def test_writes_of_a_process_that_was_killed_while_the_server_was_down_arrive_in_order_and_once(
    server: OwnServer, tmp_path: Path
) -> None:
    home = FleetHome(Machine(tmp_path / "m"), server.url)
    add_directory(home.home, "journal", PLUGIN)
    with (home.home / "config.yaml").open("a") as file:
        file.write("  provider: journal\n")
    assert home.machine.run("storage", "status").code == 0
    server.kill()
    _run_and_kill(home, 5)
    for code, told in (home.status(), home.doctor()):
        assert code == 1
        assert "5 writes wait for the outbox in the spool" in told
    server.start()
    # The archive has the turns as well, and a backfill must not add them a second time.
    assert home.machine.run("sessions", "stats").code == 0
    done = home.machine.run("outbox", "backfill", "--since", "1d")
    assert done.code == 0, done
    talk = home.talk("s2")
    assert wait_until(lambda: talk.manager.flush_pending(10), 60)
    assert texts(home.home) == [f"s1 {number}" for number in range(5)]
    talk.close()
    assert not (home.home / "spool" / "writes.jsonl").exists()
    assert home.status()[0] == 0
