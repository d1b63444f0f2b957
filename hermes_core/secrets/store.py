"""Secrets of providers: where they are stored, looked up, moved and deleted.

A secret is in one store: the OS keyring if a real one answers, else ``.env``. Every change
follows one order, so that a process that dies at any point leaves the secret readable: store
it, read it back, record it in the index, and only then remove it from the other store.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, get_args

from hermes_core.errors import SecretsError
from hermes_core.secrets._files import SecretEntry, SecretIndex, Store, locked
from hermes_core.secrets._keyring import SECONDS, Keyring
from hermes_core.secrets.env_file import (
    EnvFile,
    check_name,
    check_value,
    is_alike_in_a_shell,
    is_interpolated,
)

BACKENDS: Final = ("auto", *get_args(Store))
NOT_SET: Final = "not set"
NO_ANSWER: Final = "in the keyring, which does not answer"
SET_IN: Final = {"keyring": "set (keyring)", "dotenv": "set (.env)"}
# A .env also has settings such as LOG_LEVEL. Masking "info" everywhere would destroy texts.
_SOUNDS_SECRET: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|AUTH|DSN|WEBHOOK|COOKIE", re.IGNORECASE
)
_PLAIN_TEXT: Final = "; .env is plain text, readable only by you"
_INTERPOLATED: Final = "; but hermes-agent puts something else for the ${...} in it"
_NOT_ALIKE: Final = "; but a shell that sources .env reads something else, or runs it"
_MOVE: Final = "run hermes-plugins secrets move --to dotenv where it does"


class _NoAnswerError(SecretsError):
    """The secret is in the keyring, which does not answer."""


class Choice(NamedTuple):
    """Where new secrets go and why; ``problem`` says why they can't."""

    store: Store
    reason: str
    problem: str = ""


class StoredSecret(NamedTuple):
    """Where a secret went and why; ``shadowed`` if this process has another value."""

    store: Store
    reason: str
    shadowed: bool


class Secret(NamedTuple):
    """A value and the store that it came from."""

    value: str
    store: Store

    def __repr__(self) -> str:
        """Without the value: this is what ends up in logs and tracebacks."""
        return f"Secret(store={self.store!r})"


class Name(NamedTuple):
    """What is known of a secret, without its value."""

    variable: str
    provider: str
    store: Store
    state: str


class Secrets:
    """The secrets of one home.

    Args:
        home: The Hermes home.
        backend: ``auto``, ``keyring`` or ``dotenv``: where new secrets go.
        seconds: How long the keyring may take to answer.
    """

    def __init__(self, home: Path, backend: str = "auto", seconds: float = SECONDS) -> None:
        if backend not in BACKENDS:
            raise SecretsError(
                f"{backend!r} is not a store of secrets", hint=f"use one of {', '.join(BACKENDS)}"
            )
        self.home = home
        self.backend = backend
        self.env_file = EnvFile(home / ".env")
        self.index = SecretIndex(home / "secrets.json")
        self.keyring = Keyring(home, seconds)

    def where(self) -> Choice:
        """Return the store for new secrets, and the reason in words."""
        if self.backend == "dotenv":
            return Choice("dotenv", "secrets.backend is dotenv")
        problem = self.keyring.problem()
        if self.backend == "keyring":
            return Choice("keyring", "secrets.backend is keyring", problem)
        if problem:
            return Choice("dotenv", problem + _PLAIN_TEXT)
        return Choice("keyring", "the OS keyring answers")

    def set(self, variable: str, value: str, provider: str = "") -> StoredSecret:
        """Store a secret, and remove it from where it was before."""
        check_value(check_name(variable), value)
        with locked(self.index.path):
            before = self.index.read().get(variable)
            provider = provider or (before.provider if before else "")
            # Crash windows: after `_store` the value exists twice, and `.env` is read first; after
            # `change` the index names the new store; `_remove_old` only deletes what nobody reads
            # any more.
            store, reason = self._store(variable, value, provider)
            self.index.change(variable, SecretEntry(store, provider))
            reason += self._remove_old(variable, before, SecretEntry(store, provider))
        # A variable of this process overrides every store, so the person has to know that it
        # differs.
        return StoredSecret(store, reason, os.environ.get(variable) not in (None, "", value))

    def get(self, variable: str, provider: str = "") -> Secret | None:
        """Look a secret up: first in ``.env``, then in the keyring.

        Args:
            variable: Its name.
            provider: Who asks, for the message if the keyring does not answer. The index
                knows whose secret it is.

        Returns:
            The secret, or None if it is not set.

        Raises:
            SecretsError: It is in the keyring, which does not answer.
        """
        check_name(variable)
        # Twice: between two looks it may have moved from the second store to the first.
        return self._look(variable, provider) or self._look(variable, provider)

    def state(self, variable: str) -> str:
        """Whether a secret is set, and where; never its value."""
        try:
            found = self.get(variable)
        except _NoAnswerError:
            return NO_ANSWER
        return SET_IN[found.store] if found else NOT_SET

    def names(self) -> list[Name]:
        """What the index knows and what has a value in .env, by name."""
        known = self.index.read()
        in_file = {key for key, value in self.env_file.read().items() if value}
        found = []
        # `.env` first, as in `get`: the index may name a keyring entry that `.env` overrides.
        for variable in sorted({*known, *in_file}):
            entry = known.get(variable, SecretEntry("dotenv"))
            if variable in in_file:
                found.append(Name(variable, entry.provider, "dotenv", SET_IN["dotenv"]))
            else:
                state = self._known_state(variable, entry)
                found.append(Name(variable, entry.provider, entry.store, state))
        return found

    def values(self, *, keyring: bool = True) -> frozenset[str]:
        """Every secret that can be read now. Not all that is in .env is one.

        Args:
            keyring: Whether the keyring is asked, which may be slow.
        """
        ours = self.index.read()
        in_file = self.env_file.read()
        found = set()
        for variable in {*ours, *in_file} if keyring else in_file:
            if variable not in ours and not _SOUNDS_SECRET.search(variable):
                continue
            # Masking is best effort: a keyring that is locked must not keep the agent from
            # starting.
            with suppress(SecretsError):
                secret = self.get(variable)
                found.add(secret.value if secret is not None else "")
        return frozenset(found - {""})

    def delete(self, variable: str) -> bool:
        """Remove a secret from its store; return whether there was one."""
        check_name(variable)
        # Before the lock: deleting what is not there creates no lock file and no folder.
        if variable not in {*self.index.read(), *self.env_file.read()}:
            return False
        with locked(self.index.path):
            entry = self.index.read().get(variable)
            if entry and entry.store == "keyring":
                # The keyring first: if it does not answer, nothing is deleted and the index still
                # names it.
                self._delete_from_keyring(variable, entry)
            self.env_file.change({variable: None})
            if entry:
                self.index.change(variable, None)
        return True

    def move(self, to: str) -> list[str]:
        """Move all secrets of the index to one store; return the names of those that moved.

        Raises:
            SecretsError: Some could not be moved and stay where they are; it names them.
        """
        if to not in get_args(Store):
            raise SecretsError(f"{to!r} is not a store of secrets", hint="use keyring or dotenv")
        if not self.index.read():
            return []
        # Asked once before the loop: without it, each secret would fail by itself after its
        # deadline.
        if to == "keyring" and (problem := self.keyring.problem()):
            todo = "to move them to .env: hermes-plugins secrets move --to dotenv"
            raise SecretsError(f"{problem}; nothing was moved", hint=todo)
        moved: list[str] = []
        failed: list[SecretsError] = []
        with locked(self.index.path):
            for variable, entry in self.index.read().items():
                try:
                    done = self._move(variable, entry, "keyring" if to == "keyring" else "dotenv")
                except SecretsError as error:
                    error.where = error.where or variable
                    failed.append(error)
                else:
                    moved += [variable] if done else []
        if failed:
            done_text = f"moved: {', '.join(moved)}; " if moved else ""
            problems = "; ".join(f"{each.where}: {each.what}" for each in failed)
            raise SecretsError(
                f"{done_text}not moved, or not wholly: {problems}", hint=failed[0].hint
            )
        return moved

    def _store(self, variable: str, value: str, provider: str) -> tuple[Store, str]:
        choice = self.where()
        if choice.problem:
            raise SecretsError(
                f"{choice.problem}, and {choice.reason}",
                where=variable,
                hint="nothing was stored; set secrets.backend to auto or dotenv to use .env",
            )
        if choice.store == "dotenv":
            return "dotenv", choice.reason + self._write_env(variable, value)
        try:
            self.keyring.set(variable, value, provider)
        except SecretsError as error:
            # With "auto" a person wants the secret stored somewhere safe enough; with "keyring"
            # nowhere else.
            if self.backend != "auto":
                raise
            note = self._write_env(variable, value)
            with suppress(SecretsError):  # the value may have been stored in spite of the error
                self.keyring.delete(variable, provider)
            return "dotenv", f"{error.what}{_PLAIN_TEXT}{note}"
        return "keyring", choice.reason

    def _write_env(self, variable: str, value: str) -> str:
        """Write to .env and read back; says what a person should know of it."""
        self.env_file.change({variable: value})
        # Read back: an editor or hermes-agent may write the file without our lock.
        if self.env_file.read().get(variable) != value:
            raise SecretsError(
                "was written, but does not read back",
                where=str(self.env_file.path),
                hint="does another program write to it?",
            )
        note = "" if is_alike_in_a_shell(value) else _NOT_ALIKE
        return note + (_INTERPOLATED if is_interpolated(value) else "")

    def _remove_old(self, variable: str, before: SecretEntry | None, now: SecretEntry) -> str:
        """Remove a secret from its old store; return a note if that fails."""
        if now.store == "keyring":
            self.env_file.change({variable: None})
        if before and before.store == "keyring" and before != now:
            try:
                self.keyring.delete(variable, before.provider)
            except SecretsError as error:
                return f"; an older value is still in the keyring: {error.what}"
        return ""

    def _look(self, variable: str, provider: str) -> Secret | None:
        if value := self.env_file.read().get(variable):
            return Secret(value, "dotenv")
        entry = self.index.read().get(variable)
        if entry is None or entry.store != "keyring":
            return None
        value = self._ask_keyring(variable, entry.provider, asker=provider)
        return Secret(value, "keyring") if value else None

    def _ask_keyring(self, variable: str, provider: str, asker: str = "") -> str | None:
        try:
            return self.keyring.get(variable, provider)
        except SecretsError as error:
            raise _NoAnswerError(
                f"in the keyring, which does not answer here (cron, ssh): {error.what}",
                where=f"{variable} of {asker}" if asker else variable,
                hint=_MOVE,
            ) from None  # not chained: a backend's error may contain the value

    def _known_state(self, variable: str, entry: SecretEntry) -> str:
        if entry.store != "keyring":
            return NOT_SET
        try:
            found = self._ask_keyring(variable, entry.provider)
        except _NoAnswerError:
            return NO_ANSWER
        return SET_IN["keyring"] if found else NOT_SET

    def _delete_from_keyring(self, variable: str, entry: SecretEntry) -> None:
        try:
            self.keyring.delete(variable, entry.provider)
        except SecretsError as error:
            raise _NoAnswerError(
                f"in the keyring, which does not answer here: {error.what}; nothing was deleted",
                where=variable,
                hint="delete it where it does",
            ) from None

    def _move(self, variable: str, entry: SecretEntry, to: Store) -> bool:
        """Move one secret; whether there was something to do."""
        value = self.env_file.read().get(variable)
        if to == "keyring" and value:
            self.keyring.set(variable, value, entry.provider)
        elif to == "dotenv" and entry.store == "keyring":
            value = value or self._ask_keyring(variable, entry.provider)
            if not value:
                return False
            self._write_env(variable, value)
        else:
            return False
        now = SecretEntry(to, entry.provider)
        self.index.change(variable, now)
        if note := self._remove_old(variable, entry, now):
            raise SecretsError(f"it is in .env now{note}", where=variable)
        return True
