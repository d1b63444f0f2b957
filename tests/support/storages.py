"""Files or PostgreSQL: where the homes of a test store what they remember."""

from __future__ import annotations

import os
import time
from typing import Any
from unittest.mock import patch

import pytest

from hermes_core.storage import time_limit


class Storage:
    """Where a test stores what it remembers: in files, or in a namespace of a database."""

    #: That of the running test.
    current: Storage

    def __init__(self, url: str = "") -> None:
        self.url = url
        self._connection: Any = None
        self._interrupted: Any = None
        self._take_namespace()

    def begin_example(self) -> None:
        """Have the next example of a test find nothing of the one before, which is over."""
        self.close()
        self._take_namespace()

    def _take_namespace(self) -> None:
        self.namespace = f"test-{os.urandom(6).hex()}"

    @property
    def config(self) -> str:
        """The lines for the section ``memory`` of config.yaml."""
        if not self.url:
            return ""
        return f"  storage: {self.url}\n  storage_namespace: {self.namespace}\n"

    @property
    def settings(self) -> dict[str, str]:
        """The same as settings of a provider."""
        return {"storage": self.url, "storage_namespace": self.namespace} if self.url else {}

    @property
    def statement(self) -> str:
        """A statement for a script that has made a ``manager`` without a config.yaml."""
        if not self.url:
            return "pass"
        return (
            "from hermes_core.outbox.writer import OutboxSettings; "
            "from hermes_core.storage.postgres import shared_database; "
            "manager._configure("
            f"OutboxSettings(database=shared_database({self.url!r}, {self.namespace!r})))"
        )

    @property
    def database(self) -> Any:
        if not self.url:
            return None
        from hermes_core.storage.postgres import shared_database

        return shared_database(self.url, self.namespace)

    def execute(self, statement: str, *values: str) -> Any:
        """Run a statement in the test's namespace, by other code than ours."""
        import psycopg

        if self._connection is None:
            self._connection = psycopg.connect(self.url, autocommit=True)
            self._connection.execute("SET search_path = hermes")
        self._connection.execute(
            "SELECT set_config('hermes.namespace', %s, false)", (self.namespace,)
        )
        return self._connection.execute(statement, values)

    def interrupt(self) -> None:
        """Let no connection to the server succeed in this process, until `restore`."""
        import psycopg

        from hermes_core.storage.postgres import Database

        error = psycopg.OperationalError("connection refused")
        self._interrupted = patch.object(Database, "_take", side_effect=error)
        self._interrupted.start()

    def restore(self) -> None:
        """Let connections succeed again."""
        if self._interrupted is not None:
            self._interrupted.stop()
            self._interrupted = None

    def close(self) -> None:
        self.restore()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self.url:
            from hermes_core.storage.postgres.database import _DATABASES

            for database in _DATABASES._all.values():
                database.close()
            _DATABASES._all.clear()


Storage.current = Storage()


def wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls wait ten minutes more for the server: on a busy machine, seconds are nothing.

    tests/live is about these limits.
    """
    monkeypatch.setattr(time_limit, "monotonic", lambda: time.monotonic() + 600)


def scaled(large: int, small: int) -> int:
    """How often a test repeats itself: often in `make stress`.

    Over PostgreSQL, each repetition starts processes that connect, which takes several times as
    long. So there are fewer of them.
    """
    if not os.environ.get("HERMES_STRESS"):
        return small
    return max(small, large // 10) if Storage.current.url else large
