"""The home: can it be used, is it private, is there room?"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from hermes_core.config import load_config
from hermes_core.doctor._finding import OK, PROBLEM, WARNING, Finding
from hermes_core.errors import ConfigError, SecretsError
from hermes_core.filesystem import network_file_system
from hermes_core.locking import LockTimeoutError, file_lock
from hermes_core.secrets import Secrets

_ROOM: Final = 100_000_000
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_PRIVATE: Final = (".env", "secrets.json")
_DATABASES: Final = ("state.db", "sessions.db", "outbox.db")


def examine_home(home: Path) -> Iterator[Finding]:
    """The folder itself."""
    if not home.exists():
        yield Finding("home", OK, f"{home} is not there yet; it is made when it is needed")
        return
    if not os.access(home, os.W_OK | os.X_OK):
        yield Finding("home", PROBLEM, f"{home} can't be written to", "change its permissions")
        return
    free = shutil.disk_usage(home).free
    room = f"{home}, {free / 1e9:,.1f} GB free"
    if free < _ROOM:
        yield Finding("home", PROBLEM, room, "free some space: writes will fail soon")
    else:
        yield Finding("home", OK, room)
    if kind := network_file_system(home):
        yield Finding(
            "file system", WARNING, f"{kind}: writing is slower there", "use a local folder"
        )
    yield from _modes(home)


def _modes(home: Path) -> Iterator[Finding]:
    if os.name != "posix":
        return
    for name in (*_PRIVATE, *_DATABASES):
        path = home / name
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if not mode & _OTHERS:
            continue
        detail = f"others can read it (mode {mode:04o})"
        if name in _DATABASES:  # SQLite's alone, with what lies beside it: left to a person
            todo = f"when no agent runs: chmod 600 {path}*"
            yield Finding(name, WARNING, detail, todo)
        else:
            fix = partial(_make_private, path)
            yield Finding(name, WARNING, detail, f"chmod 600 {path}", fix)


def _make_private(path: Path) -> str:
    path.chmod(0o600)
    return f"{path.name} is private now"


def examine_config(home: Path) -> Iterator[Finding]:
    """config.yaml, and whether somebody holds its lock."""
    try:
        config = load_config(home)
    except ConfigError as error:
        for problem in error.problems:
            yield Finding("config.yaml", PROBLEM, problem, "correct it")
        return
    yield Finding("config.yaml", OK, "valid" if config.path.exists() else "none, which is fine")
    for lock in ("config.yaml.lock", ".env.lock"):
        if (home / lock).exists():
            try:
                with file_lock(home / lock, 0.2):
                    pass
            except LockTimeoutError as error:
                yield Finding(lock, WARNING, f"held by {error.holder}", "wait until it is done")
            except OSError as error:
                yield Finding(lock, PROBLEM, f"can't be used: {error.strerror}", "look at it")


def examine_secrets(home: Path, backend: str) -> Iterator[Finding]:
    """Whether the stores answer, and the secrets that we know of are there."""
    try:
        secrets = Secrets(home, backend)
        where = secrets.where()
        if where.problem:
            todo = "set secrets.backend to auto or dotenv, or unlock the keyring"
            yield Finding("secrets", PROBLEM, where.problem, todo)
        else:
            yield Finding("secrets", OK, where.reason)
        for each in secrets.names():
            if "does not answer" in each.state or each.state == "not set":
                yield Finding(
                    each.variable,
                    PROBLEM,
                    each.state,
                    "run where the keyring answers: hermes-plugins secrets move --to dotenv"
                    if "keyring" in each.state
                    else f"run: hermes-plugins secrets set {each.variable}",
                )
            else:
                yield Finding(each.variable, OK, each.state)
    except SecretsError as error:
        yield Finding("secrets", PROBLEM, error.what, error.hint)
