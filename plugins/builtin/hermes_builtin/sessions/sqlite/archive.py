"""`SqliteArchive`: every conversation of a home in one SQLite file."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import urandom
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_builtin.sessions.archive import (
    ALWAYS,
    EVERYBODY,
    HIDDEN_SOURCES,
    REPLACED,
    ArchiveProblem,
    Matches,
    Message,
    NewMessage,
    Period,
    Progress,
    Reader,
    Scope,
    SearchAnswer,
    SearchOptions,
    Session,
    SessionFacts,
    Span,
    Stats,
    TextOccurrences,
    TitleMatch,
    Unused,
    deletion_mark,
    facts_of,
)
from hermes_builtin.sessions.numbers import (
    OTHER,
    bounds,
    role_code,
    role_name,
    session_of,
)
from hermes_builtin.sessions.query import Query
from hermes_builtin.sessions.ranking import Totals
from hermes_builtin.sessions.search import Search, merged
from hermes_builtin.sessions.source import Lineages
from hermes_builtin.sessions.sqlite import maintenance
from hermes_builtin.sessions.sqlite.database import archive_file
from hermes_builtin.sessions.sqlite.index import index_in_memory
from hermes_builtin.sessions.sqlite.maintenance import SqliteIdleIndexer, totals_of
from hermes_builtin.sessions.sqlite.repair import check, repair
from hermes_builtin.sessions.sqlite.rows import is_known_turn
from hermes_builtin.sessions.sqlite.search import SqliteSource
from hermes_builtin.sessions.sqlite.tables import Sessions, append, name_session
from hermes_builtin.sessions.words import storable
from hermes_core.dispatch.process_state import stores_turns
from hermes_core.errors import CHECK_FOLDER, DatabaseError
from hermes_core.storage.forks import close_before_fork
from hermes_core.storage.sqlite_connection import is_damage, is_unwritable

if TYPE_CHECKING:
    from uuid import UUID

# -- The archive in a SQLite file ---------------------------------------------------------------

# Totals only weigh words; counting sessions at each search would cost more than it changes.
_TOTAL_SECONDS: Final = 60.0
# Rows per read: a reader holds its lock and a snapshot of the WAL only for one page.
_PAGE: Final = 500


@stores_turns("append")
class SqliteArchive(Reader):
    """Every conversation of a home, in one file.

    Args:
        path: The file; made with the first message.
        durable: Whether what is stored survives a power cut, too.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self.path = path
        self._file = archive_file(path, durable=durable)
        self._totals = (0.0, Totals(0, 0))
        # Set at the first write that finds damage: writing on would destroy what `repair` can still
        # save.
        self._damage: DatabaseError | None = None
        self._backlog = SqliteIdleIndexer(self._file)

    # -- writing --------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the file, if need be, and its views.

        Raises:
            DatabaseError: It can't be opened for writing.
        """
        with self._file.writing():
            pass

    def append(
        self,
        facts: SessionFacts,
        messages: Sequence[NewMessage],
        key: UUID | None = None,  # noqa: ARG002 - a file says whether it was stored
    ) -> list[int]:
        """Store messages, all or none, and begin the session if it is new; return their ids."""
        if self._damage is not None:
            raise self._damage
        self._backlog.before_write()
        try:
            numbers = self._file.change(lambda database: append(database, facts, messages))
        except DatabaseError as error:
            if is_damage(error):
                self._damage = DatabaseError(
                    f"the archive is damaged, nothing more is written to it: {error.__cause__}",
                    where=str(self.path),
                    hint=error.hint,
                )
                raise self._damage from error
            raise
        self._backlog.add(len(messages))
        return numbers

    def index_pending(self, step: Callable[[], object] | None = None) -> DatabaseError | None:
        """Index all that is not yet; why not, if it can't be done."""
        return self._backlog.index_all(step)

    def end(self, session_id: str, at: float, scope: Scope) -> None:
        """Record when a session ended, if it may be seen."""
        session = self.session(session_id, scope)
        if session is not None:
            with self._file.transaction() as database:
                database.execute(
                    "UPDATE archive_sessions SET ended = ? WHERE number = ?", (at, session.number)
                )

    def once(self, what: str) -> bool:
        """Whether this is the first time that somebody asks, so that a thing is said once."""
        with self._file.transaction() as database:
            done = database.execute("INSERT OR IGNORE INTO archive_meta VALUES (?, 'yes')", (what,))
            return done.rowcount == 1

    def marked(self, prefix: str) -> list[str]:
        """Everything that `once` was asked with this beginning, and the marks of deletions."""
        query = "SELECT key FROM archive_meta WHERE substr(key, 1, ?) = ? ORDER BY key"
        with self._file.reading() as database:
            return [key for (key,) in database.execute(query, (len(prefix), prefix))]

    def imported(self, origin: str, session: str) -> int:
        """How much of a session of somebody else, or of anybody, was taken over before."""
        with self._file.reading() as database:
            row = database.execute(
                "SELECT position FROM archive_imports WHERE session = ?"
                " AND (origin = ? OR ? = '' AND origin NOT LIKE 'spool:%')",
                (storable(session), origin, origin),
            ).fetchone()
        return int(row[0]) if row else 0

    def take_over(
        self,
        origin: str,
        position: int,
        facts: SessionFacts,
        messages: Sequence[NewMessage],
        key: UUID | None = None,
    ) -> None:
        """Store imported messages, and that this was done up to ``position``."""
        with self._file.transaction() as database:
            # A file says whether a turn was stored. But the database that was moved to this file
            # may have stored it without being able to say so.
            if messages and not (key is not None and is_known_turn(database, key)):
                # Inside the transaction: messages and position are stored together, or an import
                # that was interrupted would store messages twice.
                self.append(facts, messages)
            database.execute(
                "INSERT OR REPLACE INTO archive_imports VALUES (?, ?, ?)",
                (origin, storable(facts.id), position),
            )

    def delete(self, sessions: Sequence[Session], progress: Progress | None = None) -> int:
        """Delete sessions; returns the number of deleted messages."""
        self._index_before_deleting()
        gone = 0
        for done, session in enumerate(sessions, 1):
            self.once(deletion_mark(session))  # first: half a session is deleted by the next sync
            gone += maintenance.delete(self._file, session)
            if progress is not None:
                progress(done, len(sessions))
        if gone:
            maintenance.tidy(self._file)
        return gone

    def set_title(self, session: Session, title: str) -> None:
        """Give a session another title, or none."""
        with self._file.transaction() as database:
            name_session(database, session.number, storable(title))

    def remove(self, session: Session, numbers: Sequence[int]) -> None:
        """Delete some messages of a session, and the session if none is left."""
        self._index_before_deleting()
        maintenance.remove(self._file, session, numbers)

    def replace_message(self, number: int, message: NewMessage) -> None:
        """Put another text in the place of a message."""
        self._index_before_deleting()
        maintenance.replace_message(self._file, number, message)

    def texts(self, matches: Matches) -> TextOccurrences:
        """The messages and titles that have a text."""
        return maintenance.find_texts(self._file, matches)

    def _index_before_deleting(self) -> None:
        behind = self.index_pending()
        if behind is not None and not is_damage(behind):  # a damaged index is rebuilt
            raise behind
        # Indexed first: FTS5 deletes a row of a contentless table only if it gets exactly its
        # words.
        self._backlog.forget()  # words that nobody uses any more leave the table of terms

    def replace_texts(self, matches: Matches) -> TextOccurrences:
        """Put a marker in the place of messages that have a text, and remove such titles."""
        self._index_before_deleting()
        self.once(f"{REPLACED}{urandom(8).hex()}")
        return maintenance.replace_texts(self._file, matches)

    def unused(self, *_: object, **__: object) -> Unused:
        """Nothing: words leave with their messages, and sessions alone name people."""
        return Unused()

    def erase_deleted(self) -> bool:
        """Leave no trace of what was deleted or replaced; returns whether that could be done."""
        return maintenance.erase_deleted(self._file)

    # -- reading --------------------------------------------------------------------------

    def reading(self, scope: Scope) -> AbstractContextManager[Reader]:  # noqa: ARG002 - the protocol
        """Several reads of one call. Each of them is cheap, so that they need nothing in common."""
        return nullcontext(self)

    def session(self, session_id: str, scope: Scope) -> Session | None:
        """One session, if it may be seen."""
        with self._file.reading() as database:
            found = Sessions(database).named(storable(session_id))
            return next((each for each in found if each.is_in(scope)), None)

    def lineages(self, sessions: Sequence[Session]) -> list[list[str]]:
        """For each session its id and the ids of those that it continues, up to the first."""
        with self._file.reading() as database:
            lineages = Lineages(Sessions(database).parents)
            return [lineages.of(each) for each in sessions]

    def browse(
        self,
        scope: Scope,
        limit: int,
        *,
        hidden: bool = False,
        profiles: Container[str] = (),
        within: Period = ALWAYS,
    ) -> list[Session]:
        """The sessions with the newest messages; of these profiles only, if any is named."""
        with self._file.reading() as database:
            found = []
            for session in Sessions(database).browsed(scope, within):
                shown = hidden or session.source not in HIDDEN_SOURCES
                if session.messages and shown and (not profiles or session.profile in profiles):
                    found.append(session)
                if len(found) >= limit:
                    break
            return found

    def search(self, query: Query, options: SearchOptions) -> SearchAnswer:
        """The sessions that say most of what a query asks for."""
        try:
            with self._file.reading() as database:
                # Always indexed before a search: a turn of a second ago must be found.
                pending, marked = maintenance.state_of_index(database)
            behind = self.index_pending() if pending else None
            if behind is not None:
                with self._file.reading() as database:
                    marked = maintenance.index_is_marked(database)
            if not marked:
                return self._search(query, options, behind)
        except DatabaseError as error:
            if not is_damage(error):
                raise
        # The index is damaged, the messages are not. A small archive is indexed again while the
        # model waits.
        try:
            maintenance.rebuild_if_small(self._file)
        except DatabaseError as error:
            if not is_unwritable(error):
                raise
            return self._search_in_memory(query, options, error)
        return self._search(query, options)

    def titled(self, query: Query, options: SearchOptions) -> list[TitleMatch]:
        """The sessions whose titles a query asks for, those that it names exactly first."""
        with self._file.reading() as database:
            source = SqliteSource.of(database, query, options)
            return Search(source, query, options, Totals(0, 0)).titled()

    def owner(self, message_id: int, scope: Scope) -> Session | None:
        """The session that a message belongs to, if it may be seen."""
        with self._file.reading() as database:
            if not self._select(database, "id = ?", message_id):
                return None
            found = next(Sessions(database).by_number([session_of(message_id)]), None)
            return found if found is not None and found.is_in(scope) else None

    def people(self, user_id: str | None = None) -> list[tuple[str, str]]:
        """The platform and the id of each user with a conversation, or of those with this id."""
        with self._file.reading() as database:
            return Sessions(database).people(user_id)

    def has_profile(self, profiles: Iterable[str]) -> bool:
        """Whether there is a session of one of these profiles."""
        with self._file.reading() as database:
            return Sessions(database).has_profile(profiles)

    def _search(
        self, query: Query, options: SearchOptions, behind: DatabaseError | None = None
    ) -> SearchAnswer:
        newest = None
        if behind is not None:
            # First: what another process indexes from now on is found below.
            newest = self._search_in_memory(query, options, behind, everything=False)
        with self._file.reading() as database:
            source = SqliteSource.of(database, query, options)
            found = Search(source, query, options, self._count(database)).found()
            return found if newest is None else merged(source, options, found, newest)

    def _search_in_memory(
        self, query: Query, options: SearchOptions, why: DatabaseError, *, everything: bool = True
    ) -> SearchAnswer:
        """Search messages that are not in the index, and can't be put into it now."""
        with (
            self._file.reading() as database,
            index_in_memory(database, everything=everything) as is_complete,
        ):
            source = SqliteSource.of(database, query, options)
            found = Search(source, query, options, self._count(database)).found()
        if is_complete:
            return found
        # An empty answer would say "not there", which nobody knows.
        if not found.hits:
            raise why
        return found._replace(behind=str(why))

    def _count(self, database: sqlite3.Connection) -> Totals:
        """About how much there is."""
        at, totals = self._totals
        if not totals.messages or time.monotonic() - at > _TOTAL_SECONDS:
            totals = totals_of(database)
            self._totals = (time.monotonic(), totals)
        return totals

    def read(
        self,
        spans: Sequence[Span],
        scope: Scope | None = None,  # noqa: ARG002 - compared by PostgreSQL alone
    ) -> list[list[Message]]:
        """For each span its messages, in their order."""
        with self._file.reading() as database:
            return [self._read(database, span) for span in spans]

    def _read(self, database: sqlite3.Connection, span: Span) -> list[Message]:
        order = " DESC" if span.last else ""
        condition = f"id BETWEEN ? AND ?{_role_condition(span.roles)} ORDER BY id{order} LIMIT ?"
        found = self._select(database, condition, span.low, span.high, span.most)
        return found[::-1] if span.last else found

    def messages(self, session: Session) -> Iterator[Message]:
        """All that was said in a session."""
        low, high = bounds(session.number)
        while True:
            with self._file.reading() as database:
                page = self._select(
                    database, "id BETWEEN ? AND ? ORDER BY id LIMIT ?", low, high, _PAGE
                )
            yield from page
            if len(page) < _PAGE:
                return
            # By id, not OFFSET: constant cost per page, and messages appended meanwhile are read,
            # too.
            low = page[-1].id + 1

    def sessions(self, scope: Scope = EVERYBODY) -> Iterator[Session]:
        """All sessions, the oldest first."""
        with self._file.reading() as database:
            found = list(Sessions(database).newest(scope, -1))
        return reversed(found)

    @staticmethod
    def _select(database: sqlite3.Connection, condition: str, *values: int) -> list[Message]:
        rows = database.execute(
            f"SELECT id, content, at, extra FROM archive_messages WHERE {condition}",  # noqa: S608
            values,
        )
        return [_message(*row) for row in rows]

    # -- maintenance ----------------------------------------------------------------------

    def stats(self) -> Stats:
        """How much there is."""
        with self._file.reading() as database:
            found = maintenance.stats(database)
        # Without a file, an empty database in memory was read.
        return found if self.path.exists() else found._replace(bytes=0)

    def check(
        self, progress: Progress | None = None, *, newest: int | None = None
    ) -> list[ArchiveProblem]:
        """Look at everything, also with the queries that the tool uses."""
        behind = self.index_pending()  # if it can't be done, a look at everything says why
        if behind is not None and not is_unwritable(behind):
            behind = None
        return check(self._file, progress, newest, is_behind=behind is not None)

    def repair(self, progress: Progress | None = None) -> dict[str, Any]:
        """Make it whole again, from a verified copy; says what was done."""
        self._damage = None
        behind = self.index_pending()
        if behind is not None and is_unwritable(behind):
            raise behind
        self._backlog.stop()  # nobody must open a file that is being replaced
        try:
            return repair(self._file, progress)
        except OSError as error:
            what = f"can't be repaired: {error.strerror or error}"
            raise DatabaseError(what, where=str(self.path), hint=CHECK_FOLDER) from error

    def copy_as(self, migration: str) -> None:
        """Store to what is frozen, for the migration with this id. "" ends that."""
        self._file.copy_as(migration)

    def close(self) -> None:
        """Close the file."""
        self._backlog.close()
        self._file.close()


def _role_condition(roles: Iterable[str]) -> str:
    codes = sorted({role_code(role) for role in roles})
    return f" AND (id & {OTHER}) IN ({', '.join(map(str, codes))})" if codes else ""


def _message(number: int, content: Any, at: Any, extra: Any) -> Message:
    """A message, whatever damage has made of its columns."""
    facts = facts_of(extra)
    role = role_name(number) or str(facts.pop("role", "other"))
    when = float(at) if isinstance(at, int | float) else 0.0
    return Message(number, role, content if isinstance(content, str) else "", when, facts)


# -- One archive for all who use a file in this process: a gateway has hundreds of managers -----


class SharedArchives:
    """Archives by file, each closed when its last user closes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[Path, tuple[SqliteArchive, int]] = {}

    def open(self, path: Path, *, durable: bool = False) -> SqliteArchive:
        """The archive of a file, as its first user wants it. Every call needs a `close`."""
        close_before_fork(self)
        with self._lock:
            archive, users = self._users.get(path) or (SqliteArchive(path, durable=durable), 0)
            self._users[path] = (archive, users + 1)
            return archive

    def close(self, archive: SqliteArchive) -> None:
        """One user less."""
        with self._lock:
            current, users = self._users.get(archive.path, (archive, 1))
            if current is archive and users > 1:
                self._users[archive.path] = (archive, users - 1)
                return
            if current is archive:
                self._users.pop(archive.path, None)
        # Outside of the lock: closing indexes for up to a second, and others may open their
        # archives.
        archive.close()

    def before_fork(self) -> None:
        """Let no thread be in the middle of a change that a child could not finish."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Let threads go on."""
        self._lock.release()
