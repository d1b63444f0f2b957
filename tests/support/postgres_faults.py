"""Servers of PostgreSQL that a test may kill, stop, fill up, replicate and promote."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from hermes_builtin.sessions.archive import EVERYBODY
from hermes_builtin.sessions.postgres import PostgresArchive
from hermes_core.storage.postgres import Database
from hermes_core.storage.processes import _descendants

from . import postgres
from .archives import Talk
from .commands import Machine, wait_until
from .other_user import NOBODY
from .postgres import OWNER, Server


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        return int(free.getsockname()[1])


class OwnServer:
    """A server of one test.

    Args:
        folder: Where its data are; it is created, and belongs to the user who runs the server.
        settings: In addition to those of all tests.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        if sys.platform == "win32" or (programs := postgres.binaries()) is None:
            pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
        self.programs = programs
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.settings = {"wal_level": "replica", **settings}
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        give_away(folder)

    @property
    def url(self) -> str:
        return f"postgresql://{OWNER}@127.0.0.1:{self.port}/hermes"

    @property
    def server(self) -> Server:
        return Server(self.folder, self.port)

    def create(self) -> None:
        """Make a cluster with an empty database, and start it."""
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync",
                  "-E", "UTF8", "--locale=C.UTF-8")  # fmt: skip
        trusted = "local all all trust\nhost all all all trust\nhost replication all all trust\n"
        (self.data / "pg_hba.conf").write_text(trusted)
        self.start()
        with closing(self.server.admin()) as admin:
            admin.execute(f"CREATE ROLE {OWNER} LOGIN CREATEROLE")
            admin.execute(f"CREATE DATABASE hermes OWNER {OWNER}")

    def start(self, *, wait: bool = True) -> None:
        given = {
            **postgres._SETTINGS, "autovacuum": "off", **self.settings,
            "port": str(self.port), "unix_socket_directories": str(self.folder),
        }  # fmt: skip
        options = [part for key, value in given.items() for part in ("-c", f"{key}={value}")]
        # What a killed one left would keep the new one from starting.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **_identity(),
            )  # fmt: skip
        if wait:
            postgres._wait(self.server)

    def signal(self, number: int) -> None:
        """Send a signal to the server and to all its processes, which have their own groups."""
        process = self._process
        assert process is not None
        for pid in (process.pid, *_descendants(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill -9, all of it at once."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        """Of its first process."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """End it as an administrator does; connections are ended."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            self._process = None

    def ensure_runs(self) -> None:
        """Start it, or let it go on, whatever a test has done to it."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        self.signal(signal.SIGCONT)

    def promote(self) -> None:
        self._run("pg_ctl", "promote", "-D", self.data, "-w")

    def standby(self, folder: Path, **settings: str) -> OwnServer:
        """A server that follows this one."""
        other = OwnServer(folder, **settings)
        self._run("pg_basebackup", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres",
                  "-D", other.data, "-R", "-X", "stream", "-c", "fast", "--no-sync")  # fmt: skip
        name = "primary_conninfo"
        other.settings[name] = (
            f"host=127.0.0.1 port={self.port} user=postgres application_name=standby"
        )
        other.start()
        return other

    def _run(self, program: str, *arguments: Any) -> None:
        command = [self.programs / program, *arguments]
        done = subprocess.run(
            command, capture_output=True, check=False, cwd=self.folder, **_identity()
        )
        assert done.returncode == 0, done.stderr.decode()

    def remove(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGCONT)
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def give_away(folder: Path) -> None:
    """Let the server, which refuses root, have a folder."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)


def _identity() -> dict[str, Any]:
    return postgres._identity()


class FleetHome:
    """A home on a server, and what the archive has of it."""

    def __init__(self, machine: Machine, url: str) -> None:
        self.machine = machine
        self.home = machine.home
        self.namespace = f"test-{os.urandom(6).hex()}"
        self.use(url)

    def use(self, url: str) -> None:
        self.url = url
        self.home.joinpath("config.yaml").write_text(
            f"memory:\n  storage: {url}\n  storage_namespace: {self.namespace}\n", "utf-8"
        )

    def talk(self, session: str = "now") -> Talk:
        return Talk(self.home, session)

    def stored(self, session: str = "now", url: str = "") -> list[str]:
        """What the user said, as the archive has it; asked with a new connection."""
        database = Database(url or self.url, self.namespace)
        try:
            archive = PostgresArchive(database)
            found = archive.session(session, EVERYBODY)
            messages = archive.messages(found) if found is not None else ()
            return [each.content for each in messages if each.role == "user"]
        finally:
            database.close()

    def spooled(self) -> int:
        """How many turns wait in the spool."""
        files = (self.home / "spool").glob("turns-*.jsonl")
        with suppress(FileNotFoundError):
            return sum(each.read_bytes().count(b"\n") for each in files)
        return 0

    def is_handed_over(self) -> bool:
        return wait_until(lambda: self.spooled() == 0, 60)

    def status(self) -> tuple[int, str]:
        done = self.machine.run("status")
        assert "Traceback" not in done.out + done.err
        return done.code, done.out + done.err

    def doctor(self) -> tuple[int, str]:
        # It waits for locks as long as the server lets a statement wait, which is 30 seconds.
        done = self.machine.run("doctor", timeout=120)
        assert "Traceback" not in done.out + done.err
        return done.code, done.out + done.err
