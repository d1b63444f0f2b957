"""The index of words of the archive in PostgreSQL: filled in idle time, and before a search."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final
from zlib import crc32

from hermes_builtin.sessions.archive import indexed_words
from hermes_builtin.sessions.postgres.schema import COMPONENT
from hermes_core.dispatch.worker import Worker
from hermes_core.errors import DatabaseError
from hermes_core.storage.logger import SafeLogger
from hermes_core.storage.postgres import Connection, Database, ServerFault, fault_of, from_text

logger = SafeLogger(logging.getLogger("hermes_builtin"), {})

#: One message of so many has its words counted; the counts are only for planning.
SAMPLE: Final = 32
#: So many messages are indexed in one transaction.
BATCH: Final = 512
#: Words per transaction, when their counts are set.
_TERMS: Final = 2000
#: How long nothing must have been stored. A model takes longer than this to answer.
_QUIET_SECONDS: Final = 0.25
#: So long may the index hold up the end; what is left, the next search pays for.
_CLOSING_SECONDS: Final = 1.0
#: With the number of a namespace: who puts messages into its index.
_INDEX_LOCK: Final = 0x48504149  # "HPAI"
# By the order of the index of such sessions: for EXISTS, the planner expects to find one among the
# first rows of the table, and reads all of them if there is none.
IS_PENDING: Final = (
    "SELECT (SELECT number FROM hermes.archive_sessions WHERE indexed < next"
    " ORDER BY namespace, number LIMIT 1) IS NOT NULL"
)


#: What the index has of a message: its number, its content, and the rest of it.
IndexedRow = tuple[int, str, str | None]


class PostgresIndex:
    """The words of the messages of a namespace.

    Args:
        database: Where.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._namespace: int | None = None

    def namespace(self) -> int:
        """The number of the namespace in the index."""
        if self._namespace is None:
            with self._database.transaction(COMPONENT, {}) as database:
                row = database.execute("SELECT hermes.archive_begin()").fetchone()
                self._namespace = int(row[0]) if row else 0
        return self._namespace

    def add_all(self, step: Callable[[], object] | None = None) -> DatabaseError | None:
        """Index all that is not yet; why not, if it can't be done."""
        try:
            while self.add_some(wait=True):
                if step is not None:
                    step()
        except DatabaseError as error:
            return error
        return None

    def add_some(self, *, wait: bool) -> int:
        """Index some messages; how many, also if somebody else is doing it and ``wait`` is not."""
        number = self.namespace()
        with self._database.transaction(COMPONENT, {}) as database:
            if database.execute(IS_PENDING).fetchone() == (False,):
                return 0
            lock = "pg_advisory_xact_lock" if wait else "pg_try_advisory_xact_lock"
            # One at a time in a namespace, since two would do the same work.
            row = database.execute(f"SELECT {lock}(%s, %s)", (_INDEX_LOCK, number)).fetchone()
            if row == (False,):
                return 0
            rows = database.execute(
                "SELECT id, content, extra FROM hermes.archive_pending(%s)", (BATCH,)
            ).fetchall()
            texts = [(row[0], from_text(row[1]), row[2] and from_text(row[2])) for row in rows]
            self.put(database, texts)
        return len(rows)

    def put(self, database: Connection, rows: Sequence[IndexedRow]) -> None:
        """Put messages into the index."""
        words = [indexed_words(content, extra) for _, content, extra in rows]
        self._put(database, rows, words, _counted(words, rows))

    def put_again(
        self, database: Connection, rows: Sequence[IndexedRow], counts: Counter[str]
    ) -> None:
        """Put messages into the index that were counted before; count them for `settle`."""
        words = [indexed_words(content, extra) for _, content, extra in rows]
        counted = _counted(words, rows)
        counts.update(counted)
        self._put(database, rows, words, dict.fromkeys(counted, 0))

    @staticmethod
    def _put(
        database: Connection,
        rows: Sequence[IndexedRow],
        words: Sequence[Sequence[str]],
        counts: Mapping[str, int],
    ) -> None:
        texts = [" ".join(dict.fromkeys(each)) for each in words]
        database.execute(
            "SELECT hermes.archive_index(%s::bigint[], %s::text[], %s::text[], %s::integer[])",
            ([row[0] for row in rows], texts, list(counts), list(counts.values())),
        )

    def settle(self, counts: Mapping[str, int]) -> None:
        """Have the table of words say what was counted, without words that no message has."""
        number = self.namespace()
        words = sorted(counts)
        for at in range(0, len(words), _TERMS):
            some = words[at : at + _TERMS]
            with self._database.transaction(COMPONENT, {}) as database:
                values = (some, [counts[each] for each in some])
                database.execute("SELECT hermes.archive_set_counts(%s, %s::integer[])", values)
        last = ""
        while True:
            with self._database.transaction(COMPONENT, {}) as database:
                # Nobody else indexes meanwhile: a word may come into use again.
                database.execute("SELECT pg_advisory_xact_lock(%s, %s)", (_INDEX_LOCK, number))
                query = "SELECT hermes.archive_terms_after(%s, %s)"
                found = [term for (term,) in database.execute(query, (last, _TERMS))]
                unused = [each for each in found if each not in counts]
                database.execute("SELECT hermes.archive_drop_unused(%s::text[])", (unused,))
            if len(found) < _TERMS:
                return
            last = found[-1]


class PostgresIdleIndexer:
    """Has messages indexed in a quiet moment, or at the end; whoever searches does it before."""

    def __init__(self, index_some: Callable[..., int]) -> None:
        self._index_some = index_some
        self._pending = 0
        self._last_write = 0.0
        self._worker = Worker("hermes-index", step=self._work_if_quiet, linger=0)

    def add(self, messages: int) -> None:
        """Count messages that were stored, and have them indexed when there are many."""
        self._pending += messages
        self._last_write = time.monotonic()
        if self._pending >= BATCH and not self._worker.alive:
            self._worker.wake()

    def close(self) -> None:
        """Stop, and index what can be indexed soon."""
        self._worker.stop(inf)
        end = time.monotonic() + _CLOSING_SECONDS
        while self._pending and time.monotonic() < end:
            self._index_briefly()

    def _work_if_quiet(self) -> float | None:
        """Do some work that a turn should not wait for; return when to go on, or None."""
        noise = self._last_write + _QUIET_SECONDS - time.monotonic()
        if noise > 0:
            return noise
        self._index_briefly()
        return 0 if self._pending else None

    def _index_briefly(self) -> None:
        try:
            indexed = self._index_some(wait=False)
        except DatabaseError as error:
            # Others use the server: nothing is wrong, and the next search indexes what is left.
            log = logger.debug if fault_of(error) is ServerFault.BUSY else logger.warning
            log("sessions: the index is behind: %s", error)
            indexed = 0
        # None: all is done, or somebody else does it, or it can't be done now.
        self._pending = max(self._pending - indexed, 0) if indexed else 0


def hash_of(content: str) -> int:
    """A number by which messages are sampled."""
    return crc32(content.encode("utf-8", "replace"))


def _counted(words: Iterable[Sequence[str]], rows: Iterable[IndexedRow]) -> Counter[str]:
    """Each word, and in about how many messages it is: so many as the sampled ones stand for."""
    counts: Counter[str] = Counter()
    for found, row in zip(words, rows, strict=True):
        amount = SAMPLE if hash_of(row[1]) % SAMPLE == 0 else 0
        for word in set(found):
            counts[word] += amount
    return counts
