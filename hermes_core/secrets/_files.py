"""The files of secrets: how they are read, locked and written, and the index of names.

``$HERMES_HOME/secrets.json`` says which secrets there are and in which store; it holds names,
never values. A keyring can't list its entries, and a keyring that does not answer must not
look like a secret that was never set.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

from hermes_core.errors import CHECK_FOLDER, SecretsError
from hermes_core.storage.files import LockTimeoutError, file_lock, read_regular, replace_file
from hermes_core.storage.home import ensure_folder

#: Longer than one change takes where the keyring lets every call wait.
LOCK_SECONDS: Final = 30
_MODE: Final = 0o600
_MAX_BYTES: Final = 5_000_000


def read_text(path: Path, hint: str = "") -> str | None:
    """Return the text of a regular file, its line ends as they are; None if it is missing."""
    try:
        _check_kind(path, path.stat().st_mode)  # before it is opened: a FIFO would block
        content = read_regular(path, _MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = f"can't be read: {error.strerror or error}"
        todo = hint or "check its owner and its permissions"
        raise SecretsError(reason, where=str(path), hint=todo) from None
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
    # Outside of the `except` block: inside, Python would set `__context__` to the decoding error,
    # which has the content of the file.
    raise problem


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
    raise SecretsError(f"is {kind}", where=str(path), hint="move it away")


def write_text(path: Path, text: str) -> None:
    """Replace a file at once; it is 0600 from its first byte. A link stays a link."""
    try:
        # A rename ignores the mode of the file that it replaces. A person who made it read-only
        # means it.
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
            f"can't be written: {error.strerror or error}; nothing was changed",
            where=str(path),
            hint=CHECK_FOLDER,
        ) from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock beside a file, which need not exist; the folder is made if need be."""
    ensure_folder(path.parent)
    lock = path.with_name(f"{path.name}.lock")
    with ExitStack() as held:
        try:
            # A separate lock file: the file itself is replaced by a rename, and a lock on the old
            # one would protect nothing.
            held.enter_context(file_lock(lock, LOCK_SECONDS))
        except LockTimeoutError as error:
            raise SecretsError(error.what, where=error.where, hint=error.hint) from None
        except OSError as error:
            raise SecretsError(
                f"can't be locked: {error.strerror or error}; nothing was changed",
                where=str(lock),
                hint=CHECK_FOLDER,
            ) from None
        yield


Store = Literal["keyring", "dotenv"]
STORES: Final = ("keyring", "dotenv")
SCHEMA: Final = 1

_HINT: Final = (
    "move it away and set the secrets that are in the keyring again; those in .env are not touched"
)


class SecretEntry(NamedTuple):
    """Where a secret is, and whose it is."""

    store: Store
    provider: str = ""


class SecretIndex:
    """The file. Whoever changes it holds its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, SecretEntry]:
        """All entries by variable; none if there is no file. A broken file is an error."""
        return {
            variable: SecretEntry(entry["store"], entry.get("provider", ""))
            for variable, entry in self._data()["secrets"].items()
        }

    def change(self, variable: str, entry: SecretEntry | None) -> None:
        """Set the entry of a variable, or remove it."""
        data = self._data()
        known = data["secrets"]
        if entry is None:
            known.pop(variable, None)
        else:
            # Keys that a newer version has added to an entry are preserved.
            known[variable] = {**known.get(variable, {}), **entry._asdict()}
        write_text(self.path, json.dumps(data, indent=2) + "\n")

    def _data(self) -> dict[str, Any]:
        text = read_text(self.path, hint=_HINT)
        if text is None:
            return {"schema": SCHEMA, "secrets": {}}
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if problem := _problem(data):
            raise SecretsError(problem, where=str(self.path), hint=_HINT)
        return cast("dict[str, Any]", data)


def _problem(data: object) -> str:
    if not isinstance(data, dict):
        return "is not a JSON object"
    schema = data.get("schema")
    # Refused, not rewritten: an older version can't know what a newer one relies on.
    if isinstance(schema, int) and schema > SCHEMA:
        return f"was written by a newer version (schema {schema})"
    secrets = data.get("secrets")
    if schema != SCHEMA or not isinstance(secrets, dict):
        return "is not an index of secrets"
    for variable, entry in secrets.items():
        if not isinstance(entry, dict) or entry.get("store") not in STORES:
            return f"has no store for {variable}"
        if not isinstance(entry.get("provider", ""), str):
            return f"has no name of a provider for {variable}"
    return ""
