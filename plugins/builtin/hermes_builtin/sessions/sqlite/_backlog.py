"""Messages that are stored and not indexed yet: when that is done, and for how long at most."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import suppress
from time import monotonic
from typing import Final

from hermes_builtin.sessions.sqlite._care import mark_index
from hermes_builtin.sessions.sqlite._connections import Connections, is_damage
from hermes_builtin.sessions.sqlite._indexing import BATCH, Indexer, is_pending
from hermes_builtin.sessions.sqlite._quiet import QuietWork
from hermes_core.database import WAIT_SECONDS, transaction
from hermes_core.errors import DatabaseError

logger = logging.getLogger("hermes_builtin")

#: So many messages may wait for a quiet moment to be indexed; the first search pays for them.
_MOST_PENDING: Final = 16 * BATCH
#: What nobody waits for waits for no other process for longer than this.
_BRIEFLY: Final = 0.5
#: So long may the index hold up the end; what is left, the next search pays for.
_CLOSING_SECONDS: Final = 1.0


class Backlog:
    """Has messages indexed in a quiet moment, when somebody searches, or at the end."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._indexer = Indexer()
        self._pending = 0
        self._quiet = QuietWork(self._tidy_up)

    def stir(self) -> None:
        """Somebody is about to write, and should wait for one step at most."""
        self._quiet.stir(has_work=False)

    def add(self, messages: int) -> None:
        """So many more were stored."""
        self._pending += messages
        if self._pending >= _MOST_PENDING:
            self._in_passing()
        self._quiet.stir(has_work=self._pending >= BATCH)

    def index_all(self) -> DatabaseError | None:
        """Index all that is not yet; why not, if it can't be done.

        What is stored is safe whatever becomes of the index.
        """
        with self._connections.reading() as database:
            more = is_pending(database)
        try:
            while more:
                more = self._index_some(WAIT_SECONDS)
        except DatabaseError as error:
            return error
        return None

    def forget(self) -> None:
        """Words may have left the table of terms."""
        self._indexer.forget()

    def end(self) -> None:
        """Stop what is done in quiet moments."""
        self._quiet.end()

    def close(self) -> None:
        """Index what can be indexed soon, and stop."""
        self.end()
        end = monotonic() + _CLOSING_SECONDS
        more = self._pending > 0
        while more and monotonic() < end:
            more = self._in_passing()

    def _tidy_up(self) -> bool:
        """Do some of what a turn should not wait for; whether there is more."""
        if self._in_passing():
            return True
        with suppress(DatabaseError):  # then the next turn that finds the WAL too long does it
            self._connections.checkpoint()
        return False

    def _in_passing(self) -> bool:
        """Index some messages, if that can be done now; whether there are more."""
        try:
            return self._index_some(_BRIEFLY)
        except DatabaseError as error:
            self._pending = max(self._pending - BATCH, 0)  # not with every turn again
            logger.warning("sessions: the index is behind: %s", error)
            return False

    def _index_some(self, seconds: float) -> bool:
        """Index some messages; whether there are more."""
        try:
            with self._connections.hurried(seconds) as database:
                indexed, more = self._indexed(database)
        except DatabaseError as error:
            # Nothing in the index can be in the way of a message that is not in it yet.
            if is_damage(error) or isinstance(error.__cause__, sqlite3.IntegrityError):
                with suppress(DatabaseError), self._connections.writing() as database:
                    mark_index(database)
            raise
        self._pending = max(self._pending - indexed, 0)
        return more

    def _indexed(self, database: sqlite3.Connection) -> tuple[int, bool]:
        try:
            with transaction(database):
                return self._indexer.some_pending(database)
        except BaseException:  # before anybody else writes
            self._indexer.forget()
            raise
