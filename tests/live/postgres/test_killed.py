"""Writers in several processes while the server is killed, replaced, or has no room left."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.commands import Machine, wait_until
from support.notes import start_python
from support.postgres_faults import FleetHome, OwnServer, give_away

pytestmark = pytest.mark.xdist_group("postgres-killed")

#: Takes turns and says which were acknowledged, until there is a file "stop"; then it hands over
#: what is left, for at most a minute.
_WRITER = """
import sys, time
from pathlib import Path
from hermes_core import MemoryManager

home, session = Path(sys.argv[1]), sys.argv[2]
manager = MemoryManager.from_config(home)
manager.initialize_all(session, platform="cli")
number = 0
while not (home / "stop").exists():
    manager.sync_all(f"{session} {number}", "Noted.")
    number += 1
    (home / "said").write_text(str(number))
    time.sleep(0.01)
end = time.monotonic() + 60
while list((home / "spool").glob("turns-*")) and time.monotonic() < end:
    time.sleep(0.1)
assert not [each for each in manager.warnings if "not stored" in each], manager.warnings
manager.shutdown_all()
print(number)
"""


def _writer(home: Path, session: str) -> subprocess.Popen[str]:
    # To a file: nobody reads a pipe meanwhile.
    with (home / "stderr").open("wb") as log:
        return start_python(_WRITER, home, session, stderr=log)


class Writers:
    """Processes, each with its own home, that write to one namespace."""

    def __init__(self, folder: Path, url: str, count: int) -> None:
        self.homes = [FleetHome(Machine(folder / f"w{number}"), url) for number in range(count)]
        for each in self.homes:
            each.namespace = self.homes[0].namespace
            each.use(url)
        self._processes = [
            _writer(each.home, f"w{number}") for number, each in enumerate(self.homes)
        ]

    def said(self) -> list[int]:
        found = []
        for each in self.homes:
            with suppress(FileNotFoundError, ValueError):
                found.append(int((each.home / "said").read_text()))
        return found

    def wait_for_more(self, turns: int = 8) -> None:
        """Every writer has so many more turns acknowledged, into the archive or the spool."""
        assert wait_until(lambda: len(self.said()) == len(self.homes), 60), self.errors()
        before = self.said()

        def have_more() -> bool:
            pairs = zip(self.said(), before, strict=False)
            return len(self.said()) == len(before) and all(now >= old + turns for now, old in pairs)

        assert wait_until(have_more, 60), self.errors()

    def errors(self) -> str:
        self.close()
        return "\n".join((each.home / "stderr").read_text()[-2000:] for each in self.homes)

    def finish(self) -> list[int]:
        """How many turns each of them had acknowledged."""
        for each in self.homes:
            (each.home / "stop").touch()
        counts = []
        for process in self._processes:
            out, _ = process.communicate(timeout=120)
            assert process.returncode == 0, self.errors()
            counts.append(int(out))
        return counts

    def assert_stored(self, url: str) -> None:
        """Every acknowledged turn is there, once and in order."""
        for number, (each, count) in enumerate(zip(self.homes, self.finish(), strict=True)):
            assert each.spooled() == 0
            expected = [f"w{number} {turn}" for turn in range(count)]
            assert each.stored(f"w{number}", url) == expected

    def close(self) -> None:
        for process in self._processes:
            process.kill()


def test_a_server_that_is_killed_five_times_loses_and_doubles_nothing(
    server: OwnServer, tmp_path: Path
) -> None:
    writers = Writers(tmp_path, server.url, 4)
    try:
        for _ in range(5):
            writers.wait_for_more()
            server.kill()
            writers.wait_for_more(3)
            server.start()
        writers.wait_for_more()
        writers.assert_stored(server.url)
    finally:
        writers.close()


def test_processes_that_start_together_on_an_empty_database_lose_and_double_nothing(
    folder: Path, tmp_path: Path
) -> None:
    """Nobody has created the schema or the role; all of them try to."""
    server = OwnServer(folder / "empty")
    writers: Writers | None = None
    try:
        server.create()
        writers = Writers(tmp_path, server.url, 6)
        writers.wait_for_more(3)
        writers.assert_stored(server.url)
        with server.server.admin("hermes") as admin:
            versions = admin.execute("SELECT component FROM hermes.versions ORDER BY 1").fetchall()
        assert ("archive",) in versions
        told = writers.homes[0].machine.run("storage", "status").done().out
        assert "row-level security, role hermes_tenant" in told
    finally:
        if writers is not None:
            writers.close()
        server.remove()


def test_a_failover_to_a_synchronous_standby_loses_and_doubles_nothing(
    folder: Path, tmp_path: Path
) -> None:
    primary = OwnServer(folder / "primary")
    standby: OwnServer | None = None
    writers: Writers | None = None
    try:
        primary.create()
        standby = primary.standby(folder / "standby")
        with primary.server.admin() as admin:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            admin.execute("SELECT pg_reload_conf()")
            synchronous = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            assert wait_until(lambda: admin.execute(synchronous).fetchone() is not None, 30)
        url = (
            f"postgresql://hermes@127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
            "/hermes?target_session_attrs=read-write"
        )
        writers = Writers(tmp_path, url, 2)
        writers.wait_for_more()
        alone = FleetHome(Machine(tmp_path / "alone"), standby.url)
        code, told = alone.status()
        assert code == 1
        assert "name the primary in memory.storage" in told
        primary.kill()
        writers.wait_for_more(3)
        standby.promote()
        writers.wait_for_more()
        writers.assert_stored(standby.url)
    finally:
        if writers is not None:
            writers.close()
        for each in filter(None, (standby, primary)):
            each.remove()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system with little room."""
    mounted = Path(tempfile.mkdtemp(prefix="hermes-pg-small-"))
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", mounted],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        mounted.rmdir()
        pytest.skip(f"a small file system can't be mounted: {done.stderr.decode().strip()}")
    give_away(mounted)
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)
        mounted.rmdir()


def test_a_disk_of_the_server_that_is_full(small_disk: Path, machine: Machine) -> None:
    server = OwnServer(small_disk / "server", max_wal_size="32MB", min_wal_size="32MB")
    try:
        server.create()
        home = FleetHome(machine, server.url)
        talk = home.talk()
        talk.say("turn 0")
        filler = small_disk / "filler"
        with suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(b"x" * 65536)
                file.flush()
        said = 1
        end = time.monotonic() + 60
        while not home.spooled() and time.monotonic() < end:
            talk.say(f"turn {said}", os.urandom(50_000).hex())
            said += 1
        assert home.spooled()
        for code, told in (home.status(), home.doctor()):
            assert "in the spool" in told, (code, told)
        filler.unlink()
        server.ensure_runs()
        assert home.is_handed_over()
        talk.close()
        assert home.stored() == [f"turn {number}" for number in range(said)]
    finally:
        server.remove()
        shutil.rmtree(small_disk / "server", ignore_errors=True)
