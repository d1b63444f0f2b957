"""A home as the page uses it: its configuration, its stores, and the secrets to be masked."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from hermes_builtin.notes import Notes
from hermes_builtin.sessions.archive import Archive
from hermes_builtin.sessions.conversations import open_archive
from hermes_builtin.sessions.location import close_shared, locate
from hermes_builtin.sessions.spool import Spool
from hermes_core import Config, ConfigError, HermesError, Redactor, load_config
from hermes_core.config.names import normalise
from hermes_core.outbox import OutboxStore, admin
from hermes_core.secrets import Secrets

#: How long the values of secrets are remembered: a keyring answers slowly.
_SECRETS_SECONDS: Final = 30.0
#: How long a page may wait for turns that are handed over from the spool.
_HAND_OVER_SECONDS: Final = 1.0


class Home:
    """Opens what a home remembers, wherever config.yaml says that it is.

    Threads may share it.

    Args:
        folder: HERMES_HOME.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._archives: dict[str, Archive] = {}
        self._redactor: tuple[float, Redactor] = (0.0, Redactor())

    # -- configuration ------------------------------------------------------------------------

    def config(self) -> Config:
        """What config.yaml says.

        Raises:
            ConfigError: It can't be read.
        """
        return load_config(self.folder)

    def config_or_defaults(self) -> Config:
        """What config.yaml says; the defaults if it can't be read, which `status` reports."""
        try:
            return self.config()
        except ConfigError:
            return Config(self.folder)

    # -- stores -------------------------------------------------------------------------------

    @contextmanager
    def notes(self) -> Iterator[Notes]:
        """The notes of everybody."""
        with closing(Notes.open(self.folder, self.config().memory)) as notes:
            yield notes

    def archive(self) -> Archive:
        """The archive, with the turns that waited in the spool; open until `close`.

        One for all requests: it remembers how much there is, which a search weighs words by.
        """
        where = locate(self.folder, self.config().memory)
        with self._lock:
            archive = self._archives.get(where.shown)
            if archive is None:
                archive = self._archives[where.shown] = where.open_shared()
        with suppress(HermesError, OSError):  # `waiting_turns` says what waits, and why
            self._spool().hand_over(archive, _HAND_OVER_SECONDS)
        return archive

    def waiting_turns(self) -> str:
        """How many turns wait for the archive, and why; "" if none does."""
        return self._spool().waiting().text

    def _spool(self) -> Spool:
        return Spool(self.folder, partial(open_archive, self.folder))

    @contextmanager
    def outbox(self) -> Iterator[OutboxStore]:
        """The outbox, to look at. A damaged file stays where it is."""
        with closing(admin.open_store(self.config(), set_aside=False)) as store:
            yield store

    def close(self) -> None:
        """Close the archive."""
        with self._lock:
            for archive in self._archives.values():
                close_shared(archive)
            self._archives.clear()

    # -- secrets ------------------------------------------------------------------------------

    def masked(self, text: str, *, known_only: bool = False) -> str:
        """A text as the page may have it.

        Args:
            text: Anything.
            known_only: Mask the stored secrets only, and not what looks like a secret. For names
                and ids.
        """
        return str(self._current_redactor().redact(text, known_only=known_only).value)

    def _current_redactor(self) -> Redactor:
        made, redactor = self._redactor
        if not made or monotonic() - made > _SECRETS_SECONDS:
            redactor = Redactor(self._secret_values())
            self._redactor = (monotonic(), redactor)
        return redactor

    def _secret_values(self) -> set[str]:
        """The stored secrets, and the variables that the provider's own fields name."""
        config = self.config_or_defaults()
        found: set[str] = set()
        with suppress(HermesError):
            found |= Secrets(self.folder, config.secrets_backend).values()
        facts = config.selection.facts.get(normalise(config.selection.name))
        names = facts.env if facts is not None else ()
        return found | {value for name in names if (value := os.environ.get(name))}
