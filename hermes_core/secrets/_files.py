"""How the files of secrets are read, locked and written: regular files, for their owner."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hermes_core.errors import HermesError, SecretsError
from hermes_core.home import ensure_folder, replace_file
from hermes_core.locking import LockTimeoutError, file_lock

#: Longer than one change takes where the keyring lets every call wait.
LOCK_SECONDS: Final = 30
_MODE: Final = 0o600


def read_text(path: Path, hint: str = "") -> str | None:
    """The text of a regular file; None if there is none. Line ends stay as they are."""
    try:
        _check_kind(path, path.stat().st_mode)  # before it is opened: a FIFO would wait
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = f"can't be read: {error.strerror or error}"
        raise SecretsError(reason, where=str(path), hint=hint) from None
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        # Not chained: the exception carries the whole file.
        problem = SecretsError(
            f"is not UTF-8 in line {line}; nothing was changed",
            where=str(path),
            hint=hint or "save it as UTF-8",
        )
    raise problem


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
    raise SecretsError(f"is {kind}", where=str(path), hint="move it away")


def write_text(path: Path, text: str) -> None:
    """Replace a file at once; it is 0600 from its first byte. A link stays a link."""
    try:
        if path.exists() and not path.stat().st_mode & stat.S_IWUSR:
            raise SecretsError(
                "is read-only; nothing was changed",
                where=str(path),
                hint="make it writable if it may be changed",
            )
        replace_file(path, text.encode(), mode=_MODE)
        if stat.S_IMODE(path.stat().st_mode) != _MODE:  # a umask that takes even from the owner
            path.chmod(_MODE)
    except OSError as error:
        raise SecretsError(
            f"can't be written: {error.strerror or error}; nothing was changed", where=str(path)
        ) from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock beside a file, which need not exist; the folder is made if need be."""
    ensure_folder(path.parent)
    lock = path.with_name(f"{path.name}.lock")
    try:
        with file_lock(lock, LOCK_SECONDS):
            yield
    except LockTimeoutError as error:
        raise SecretsError(error.what, where=error.where, hint=error.hint) from None
    except HermesError:
        raise
    except OSError as error:
        raise SecretsError(
            f"can't be locked: {error.strerror or error}; nothing was changed", where=str(lock)
        ) from None
