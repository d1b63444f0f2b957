"""Keyrings for tests, chosen with PYTHON_KEYRING_BACKEND in a process of its own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError, PasswordSetError


class InMemory(KeyringBackend):
    """One that works, as long as the process lives."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service, username):
        return self.kept.get((service, username))

    def set_password(self, service, username, password):
        self.kept[service, username] = password

    def delete_password(self, service, username):
        if (service, username) not in self.kept:
            raise PasswordDeleteError("No such password!")
        del self.kept[service, username]


class InFile(InMemory):
    """One that works across processes: $TEST_KEYRING is its file."""

    @property
    def kept(self) -> dict[tuple[str, str], str]:
        path = Path(os.environ["TEST_KEYRING"])
        rows = json.loads(path.read_text()) if path.exists() else []
        return {(service, username): password for service, username, password in rows}

    @kept.setter
    def kept(self, _value: object) -> None:
        """Nothing is kept in memory."""

    def _write(self, kept: dict[tuple[str, str], str]) -> None:
        path = Path(os.environ["TEST_KEYRING"])
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps([[*key, password] for key, password in kept.items()]))
        fresh.replace(path)

    def set_password(self, service, username, password):
        self._write({**self.kept, (service, username): password})

    def delete_password(self, service, username):
        kept = self.kept
        if (service, username) not in kept:
            raise PasswordDeleteError("No such password!")
        del kept[service, username]
        self._write(kept)


class Watching(InMemory):
    """Writes to $TEST_SEEN what others see of the process that has a value in its hands."""

    def set_password(self, service, username, password):
        if username != password:  # not the test of itself
            seen = [Path(f"/proc/self/{each}").read_bytes() for each in ("cmdline", "environ")]
            Path(os.environ["TEST_SEEN"]).write_bytes(b"".join(seen))
        super().set_password(service, username, password)


class Plaintext(InMemory):
    """Works, but says itself that it is not to be recommended, as keyrings.alt does."""

    priority = 0.5


class Forgetful(InMemory):
    """Takes everything and gives nothing back."""

    def get_password(self, service, username):
        return None


class Changing(InMemory):
    """Gives back something else, once it has proved itself."""

    def get_password(self, service, username):
        value = super().get_password(service, username)
        return value if value is None or value == username else value[:10]


class RaisesOnSet(InMemory):
    """Refuses, and says aloud what it was given."""

    def set_password(self, service, username, password):
        raise PasswordSetError(f"can't store {password} for {username}")


class RaisesOnSecondSet(InMemory):
    """Proves itself, then refuses, and says aloud what it was given."""

    def set_password(self, service, username, password):
        if username != password:
            raise PasswordSetError(f"can't store {password} for {username}")
        super().set_password(service, username, password)


class Locked(InMemory):
    """A person has dismissed the prompt."""

    def get_password(self, service, username, password=None):
        raise KeyringLocked("Failed to unlock the collection!")

    set_password = delete_password = get_password


class LockedNow(InFile):
    """Locked while the file $TEST_KEYRING.locked exists."""

    def get_password(self, service, username):
        if Path(f"{os.environ['TEST_KEYRING']}.locked").exists():
            raise KeyringLocked("Failed to unlock the collection!")
        return super().get_password(service, username)


class Hanging(InMemory):
    """Waits for a window that nobody sees."""

    def get_password(self, service, username, password=None):
        time.sleep(3600)

    set_password = delete_password = get_password


class ReadOnly(InMemory):
    """Can't be written."""

    def set_password(self, service, username, password):
        raise NotImplementedError


class KeepsForEver(InMemory):
    """Deletes nothing, once it has proved itself."""

    def delete_password(self, service, username):
        if self.kept[service, username] != username:
            raise PasswordDeleteError("not allowed")
        super().delete_password(service, username)
