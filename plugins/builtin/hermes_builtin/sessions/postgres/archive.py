"""`PostgresArchive`: every conversation of a namespace in a PostgreSQL database."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from psycopg.errors import UniqueViolation

from hermes_builtin.sessions.archive import (
    ALWAYS,
    EVERYBODY,
    NO_PLATFORMS,
    REPLACED,
    ROLES,
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
    indexed_words,
    marker,
)
from hermes_builtin.sessions.numbers import (
    SESSION_BITS,
    bounds,
)
from hermes_builtin.sessions.postgres.index import (
    IS_PENDING,
    IndexedRow,
    PostgresIdleIndexer,
    PostgresIndex,
)
from hermes_builtin.sessions.postgres.reader import PostgresReader, scope_values
from hermes_builtin.sessions.postgres.schema import COMPONENT
from hermes_builtin.sessions.postgres.search import all_sessions, key_of
from hermes_builtin.sessions.postgres.turn_json import (
    extra_text,
    json_text,
    message_row,
    session_facts,
)
from hermes_builtin.sessions.query import Query, Term
from hermes_builtin.sessions.ranking import Totals
from hermes_builtin.sessions.words import storable
from hermes_core.dispatch.process_state import stores_turns
from hermes_core.errors import DatabaseError
from hermes_core.session import TERMINAL
from hermes_core.storage.logger import SafeLogger
from hermes_core.storage.migration import counted
from hermes_core.storage.postgres import (
    Connection,
    Database,
    ServerFault,
    fault_of,
    from_text,
    is_temporary,
    is_undone,
    to_text,
)

logger = SafeLogger(logging.getLogger("hermes_builtin"), {})

# Totals only weigh words; counting sessions at each search would cost more than it changes.
_TOTAL_SECONDS: Final = 60.0
_PAGE: Final = 500
#: Messages per transaction: nobody else waits long for a session or a word.
_STEP: Final = 200
_MOST_NAMED: Final = 20
_SEARCHED: Final = 20
_SHOWN: Final = 20


@stores_turns("append")
class PostgresArchive(Reader):
    """Every conversation of a namespace.

    A message is in the index when it is stored: other machines search for it the moment after.

    Args:
        database: The database, which other parts of this process may use as well.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._totals = (0.0, Totals(0, 0))
        self._index = PostgresIndex(database)
        self._backlog = PostgresIdleIndexer(self._index.add_some)

    @property
    def where(self) -> str:
        """The address of the database and the namespace, for people."""
        return f"{self._database.where} ({self._database.namespace})"

    # -- writing --------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create the tables, if need be."""
        self._index.namespace()

    def append(
        self, facts: SessionFacts, messages: Sequence[NewMessage], key: uuid.UUID | None = None
    ) -> list[int]:
        """Store messages, all or none, and begin the session if it is new; return their ids.

        Args:
            facts: What is known of the session.
            messages: What was said.
            key: What the writer calls this turn. One that was stored under this key before is
                not stored again, and its ids are returned.
        """
        # No key is ever deleted: a turn waits in a spool for as long as its machine is off. A row
        # takes 170 bytes.
        turn = key or uuid.uuid4()
        values = self._append_values(turn, facts, messages)
        for is_last in (False, True):
            try:
                with self._database.connection(COMPONENT) as connection:
                    # One statement, so one way to the server and back; it commits by itself.
                    row = connection.execute(_APPEND, values).fetchone()
                break
            except DatabaseError as error:
                if _is_known_turn(error.__cause__) and (stored := self._stored_before(turn)):
                    return stored[0]
                # The connection was cut, maybe after the server had stored the turn; or the server
                # has undone it, to end a deadlock. With the same key, another attempt stores it
                # once.
                if is_last or not (fault_of(error) is ServerFault.UNREACHABLE or is_undone(error)):
                    raise
        self._backlog.add(len(messages))
        return list(row[0]) if row else []

    def _stored_before(self, turn: uuid.UUID) -> list[list[int]]:
        """The ids of a turn that was stored under this key, if there is one."""
        with self._transaction(EVERYBODY) as database:
            query = "SELECT ids FROM hermes.archive_turns WHERE key = %s"
            return [list(ids) for (ids,) in database.execute(query, (turn,))]

    @staticmethod
    def _append_values(
        turn: uuid.UUID, facts: SessionFacts, messages: Sequence[NewMessage]
    ) -> tuple[Any, ...]:
        rows = [message_row(message) for message in messages]
        return (
            turn,
            session_facts(facts),
            json.dumps(rows, ensure_ascii=False),
            max((row["at"] for row in rows), default=None),
        )

    def end(self, session_id: str, at: float, scope: Scope) -> None:
        """Record when a session ended, if it may be seen."""
        session = self.session(session_id, scope)
        if session is not None:
            with self._transaction(scope) as database:
                database.execute(
                    "UPDATE hermes.archive_sessions SET ended = %s WHERE number = %s",
                    (at, session.number),
                )

    def once(self, what: str) -> bool:
        """Whether this is the first time that somebody asks, so that a thing is said once."""
        with self._transaction(EVERYBODY) as database:
            done = database.execute(
                "INSERT INTO hermes.archive_meta VALUES (%s, %s, 'yes') ON CONFLICT DO NOTHING",
                (self._database.namespace, what),
            )
            return done.rowcount == 1

    def marked(self, prefix: str) -> list[str]:
        """Everything that `once` was asked with this beginning, and the marks of deletions."""
        query = "SELECT key FROM hermes.archive_meta WHERE starts_with(key, %s) ORDER BY key"
        with self._transaction(EVERYBODY) as database:
            return [key for (key,) in database.execute(query, (prefix,))]

    def imported(self, origin: str, session: str) -> int:
        """How much of a session of somebody else, or of anybody, was taken over before."""
        with self._transaction(EVERYBODY) as database:
            row = database.execute(
                "SELECT position FROM hermes.archive_imports"
                " WHERE key = %(key)s AND session = %(session)s AND (origin = %(origin)s"
                " OR %(origin)s::text = '' AND NOT starts_with(origin, 'spool:'))",
                {
                    "key": key_of(storable(session)),
                    "session": to_text(storable(session)),
                    "origin": origin,
                },
            ).fetchone()
        return int(row[0]) if row else 0

    def take_over(
        self,
        origin: str,
        position: int,
        facts: SessionFacts,
        messages: Sequence[NewMessage],
        key: uuid.UUID | None = None,
    ) -> None:
        """Store imported messages, and that this was done up to ``position``."""
        values = self._append_values(key or uuid.uuid4(), facts, messages) if messages else ()
        name = storable(facts.id)
        # Messages and position in one transaction: an import that was interrupted would store
        # messages twice.
        with self._transaction(EVERYBODY) as database:
            if messages:
                _append_once(database, values)
                self._backlog.add(len(messages))
            database.execute(
                "INSERT INTO hermes.archive_imports VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT (namespace, key, origin) DO UPDATE SET position = excluded.position",
                (self._database.namespace, key_of(name), origin, to_text(name), position),
            )

    def delete(self, sessions: Sequence[Session], progress: Progress | None = None) -> int:
        """Delete sessions; returns the number of deleted messages."""
        # Indexed first: words that nobody uses any more leave the vocabulary with them.
        self.index_pending()
        gone = 0
        for done, session in enumerate(sessions, 1):
            self.once(deletion_mark(session))  # first: half a session is deleted by the next sync
            more = True
            while more:
                with self._transaction(EVERYBODY) as database:
                    query = "SELECT hermes.archive_delete(%s, %s)"
                    count = int(_one(database, query, session.number, _STEP)[0])
                gone += count
                more = count > 0
            if progress is not None:
                progress(done, len(sessions))
        return gone

    def set_title(self, session: Session, title: str) -> None:
        """Give a session another title, or none."""
        with self._transaction(EVERYBODY) as database:
            database.execute(
                "UPDATE hermes.archive_sessions SET title = %s WHERE number = %s",
                (to_text(storable(title)), session.number),
            )

    def remove(self, session: Session, numbers: Sequence[int]) -> None:
        """Delete some messages of a session, and the session if none is left."""
        self.index_pending()
        for start in range(0, len(numbers) or 1, _STEP):
            with self._transaction(EVERYBODY) as database:
                database.execute(
                    "SELECT hermes.archive_remove(%s, %s::bigint[])",
                    (session.number, list(numbers[start : start + _STEP])),
                )

    def replace_message(self, number: int, message: NewMessage) -> None:
        """Put another text in the place of a message."""
        self.index_pending()
        row = (number, storable(message.content), extra_text(message))
        with self._transaction(EVERYBODY) as database:
            self._store_again(database, [row])

    def texts(self, matches: Matches) -> TextOccurrences:
        """The messages and titles that have a text."""
        messages: list[int] = []
        previews: list[str] = []
        for rows, _, _ in self._pages():
            for number, content, extra in rows:
                if matches(content) or (extra and matches(extra)):
                    messages.append(number)
                    previews.append(content)
        sessions = self.sessions(EVERYBODY)
        titles = [each.number for each in sessions if each.title and matches(each.title)]
        return TextOccurrences(messages[::-1], titles, previews[::-1][:_SHOWN])

    def replace_texts(self, matches: Matches) -> TextOccurrences:
        """Put a marker in the place of messages that have a text, and remove such titles."""
        self.index_pending()
        self.once(f"{REPLACED}{os.urandom(8).hex()}")
        found = self.texts(matches)
        for start in range(0, len(found.messages), _STEP):
            with self._transaction(EVERYBODY) as database:
                self._replace(database, found.messages[start : start + _STEP], matches)
        with self._transaction(EVERYBODY) as database:
            database.execute(
                "UPDATE hermes.archive_sessions SET title = '' WHERE number = ANY (%s)",
                (found.titles,),
            )
        return found

    def _replace(self, database: Connection, numbers: list[int], matches: Matches) -> None:
        rows = []
        forgotten = marker(matches)
        query = "SELECT id, content, extra FROM hermes.archive_messages WHERE id = ANY (%s)"
        for number, content, extra in database.execute(query, (numbers,)).fetchall():
            text = from_text(content)
            facts = facts_of(from_text(extra)) if extra else {}
            # A tool's call is dropped as a whole: its arguments without the text would be another.
            kept = {
                key: each for key, each in facts.items() if not matches(json.dumps({key: each}))
            }
            text = (forgotten if matches(text) else text) or forgotten
            rows.append((number, text, json_text(kept) if kept else None))
        self._store_again(database, rows)

    def _store_again(
        self, database: Connection, rows: Sequence[tuple[int, str, str | None]]
    ) -> None:
        """Give messages other texts, and have them found by these."""
        numbers = [number for number, _, _ in rows]
        for number, text, facts_text in rows:
            database.execute(
                "UPDATE hermes.archive_messages SET content = %s, size = %s, extra = %s"
                " WHERE id = %s",
                (to_text(text), len(text), facts_text and to_text(facts_text), number),
            )
        database.execute("SELECT hermes.archive_unindex(%s)", (numbers,))
        self._index.put(database, rows)

    def unused(
        self, text: str = "", user_id: str | None = None, platform: str = "", *, delete: bool
    ) -> Unused:
        """What is left of a text or a person that no conversation has; it can be deleted."""
        words = " ".join(dict.fromkeys(indexed_words(text, None)))
        user = None if user_id is None else to_text(storable(user_id))
        with self._transaction(EVERYBODY) as database:
            query = "SELECT * FROM hermes.archive_unused(%s, %s, %s, %s)"
            found = _one(database, query, words, user, to_text(platform) or None, delete)
        return Unused(*map(int, found))

    def erase_deleted(self) -> bool:
        """Have the server free what was deleted or replaced; returns whether that could be done.

        Its log (WAL), its standbys and its backups keep what they have for as long as they are
        configured to.
        """
        try:
            self._database.vacuum(COMPONENT)
        except DatabaseError as error:
            logger.warning("sessions: what was deleted could not be erased: %s", error)
            return False
        return True

    # -- reading --------------------------------------------------------------------------

    def _transaction(self, scope: Scope) -> AbstractContextManager[Connection]:
        """A transaction in which only what a scope includes is seen."""
        return self._database.transaction(COMPONENT, scope_values(scope))

    @contextmanager
    def reading(self, scope: Scope) -> Iterator[Reader]:
        """Several reads of one call, in one transaction.

        Always indexed before: a turn of a second ago, of any machine, must be found.
        """
        behind = None
        for is_indexed in (False, True):
            with self._transaction(scope) as database:
                if is_indexed or not _one(database, IS_PENDING)[0]:
                    yield PostgresReader(database, scope, self._count, behind)
                    return
            # In separate transactions: whoever waits for its lock does not wait for a search.
            behind = self.index_pending()

    @contextmanager
    def _reader(self, scope: Scope) -> Iterator[PostgresReader]:
        with self._transaction(scope) as database:
            yield PostgresReader(database, scope, self._count)

    def session(self, session_id: str, scope: Scope) -> Session | None:
        """One session, if it may be seen."""
        with self._reader(scope) as reader:
            return reader.session(session_id, scope)

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
        with self._reader(scope) as reader:
            return reader.browse(scope, limit, hidden=hidden, profiles=profiles, within=within)

    def search(self, query: Query, options: SearchOptions) -> SearchAnswer:
        """The sessions that say most of what a query asks for."""
        with self.reading(options.scope) as reader:
            return reader.search(query, options)

    def titled(self, query: Query, options: SearchOptions) -> list[TitleMatch]:
        """The sessions whose titles a query asks for, those that it names exactly first."""
        with self._reader(options.scope) as reader:
            return reader.titled(query, options)

    def _count(self, database: Connection) -> Totals:
        """About how much there is."""
        at, totals = self._totals
        if not totals.messages or time.monotonic() - at > _TOTAL_SECONDS:
            # Of the namespace, whatever the scope: a word weighs the same for everybody.
            row = _one(database, "SELECT messages, sessions FROM hermes.archive_totals()")
            totals = Totals(int(row[0]), int(row[1]))
            self._totals = (time.monotonic(), totals)
        return totals

    def owner(self, message_id: int, scope: Scope) -> Session | None:
        """The session that a message belongs to, if it may be seen."""
        with self._reader(scope) as reader:
            return reader.owner(message_id, scope)

    def people(self, user_id: str | None = None) -> list[tuple[str, str]]:
        """The platform and the id of each user with a conversation, or of those with this id."""
        with self._transaction(EVERYBODY) as database:
            rows = database.execute(
                "SELECT DISTINCT platform, source, user_id FROM hermes.archive_sessions"
                " WHERE user_id != '' AND user_id = coalesce(%s::text, user_id)",
                (None if user_id is None else to_text(storable(user_id)),),
            ).fetchall()
        return sorted(
            {
                (from_text(platform or source or TERMINAL), from_text(user))
                for platform, source, user in rows
                if platform or source not in NO_PLATFORMS
            }
        )

    def has_profile(self, profiles: Iterable[str]) -> bool:
        """Whether there is a session of one of these profiles."""
        with self._reader(EVERYBODY) as reader:
            return reader.has_profile(profiles)

    def lineages(self, sessions: Sequence[Session]) -> list[list[str]]:
        """For each session its id and the ids of those that it continues, up to the first."""
        with self._reader(EVERYBODY) as reader:
            return reader.lineages(sessions)

    def read(self, spans: Sequence[Span], scope: Scope | None = None) -> list[list[Message]]:
        """For each span its messages, in their order; of everybody, if no scope is given."""
        with self._reader(EVERYBODY if scope is None else scope) as reader:
            return reader.read(spans)

    def messages(self, session: Session) -> Iterator[Message]:
        """All that was said in a session."""
        low, high = bounds(session.number)
        while True:
            (page,) = self.read([Span(low, high, _PAGE)])
            yield from page
            if len(page) < _PAGE:
                return
            low = page[-1].id + 1

    def sessions(self, scope: Scope = EVERYBODY) -> Iterator[Session]:
        """All sessions, the oldest first."""
        # One statement, so one moment: with a statement per page, sessions in which somebody speaks
        # meanwhile would move from one page to another, and others be left out.
        with self._transaction(scope) as database:
            found = list(all_sessions(database, _PAGE))
        return (each for each in found if each.is_in(scope))

    # -- maintenance ----------------------------------------------------------------------

    def stats(self) -> Stats:
        """How much there is; ``bytes`` is what the tables of all namespaces take."""
        with self._transaction(EVERYBODY) as database:
            sessions, messages, oldest, newest = _one(
                database,
                "SELECT count(*), coalesce(sum(messages), 0), min(started), max(active)"
                " FROM hermes.archive_sessions",
            )
            size = _one(
                database,
                "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
                " WHERE relnamespace = 'hermes'::regnamespace AND relkind = 'r'"
                " AND starts_with(relname, 'archive_')",
            )[0]
            sources = database.execute(
                "SELECT source, count(*) FROM hermes.archive_sessions"
                " GROUP BY source ORDER BY 2 DESC"
            ).fetchall()
        by_source = {from_text(source): count for source, count in sources}
        return Stats(sessions, int(messages), oldest, newest, size, by_source)

    def check(
        self, progress: Progress | None = None, *, newest: int | None = None
    ) -> list[ArchiveProblem]:
        """Look at everything, also with the queries that the tool uses.

        The server has its own checksums; this looks at what only we can know.
        """
        error = self.index_pending()
        if error is not None and is_temporary(error):
            # Messages that are not in the index yet are no damage.
            raise error
        # If it can't be done for another reason, a look at everything says why.
        problems = [*self._sessions_problems(), *self._index_problems(progress, newest)]
        problems += self._search_problems()
        if len(problems) > _MOST_NAMED:
            more = len(problems) - _MOST_NAMED
            only = all(each.index_only for each in problems)
            problems = [*problems[:_MOST_NAMED], ArchiveProblem(f"and {more:,} more", only)]
        return problems

    def _sessions_problems(self) -> Iterator[ArchiveProblem]:
        with self._transaction(EVERYBODY) as database:
            rows = database.execute(_MISCOUNTED).fetchall()
            damage = database.execute("SELECT * FROM hermes.archive_damage()").fetchall()
        for what, amount in damage:
            yield ArchiveProblem(f"{amount:,} {what}")
        for name, number, there, stored in rows:
            if name is None:
                what = f"{there} messages belong to session number {number}, which is not there"
            else:
                what = f"session {name}: {there} messages are there, {stored} were stored"
            yield ArchiveProblem(what)

    def _index_problems(
        self, progress: Progress | None, newest: int | None
    ) -> Iterator[ArchiveProblem]:
        """Whether each message can be found by each of its words, and by their beginnings."""
        known: set[str] = set()
        unlisted: set[str] = set()
        for rows, done, total in self._pages(newest):
            if progress is not None:
                progress(done, total)
            missing, lost = self._missing(rows, known)
            if missing or lost:
                # Others write meanwhile: what is not indexed yet, or deleted by now, is not damage.
                error = self.index_pending()
                if error is not None and is_temporary(error):
                    raise error
                again = self._messages_of([row[0] for row in rows])
                missing, lost = self._missing(again, known)
            unlisted |= lost
            for each in missing:
                yield ArchiveProblem(f"index: message {each} is missing in it", index_only=True)
        if unlisted:
            what = f"index: its table of words lacks {counted(len(unlisted), 'words')}"
            yield ArchiveProblem(what, index_only=True)

    def _missing(self, rows: Sequence[IndexedRow], known: set[str]) -> tuple[list[int], set[str]]:
        """The messages that can't be found by all of their words, and words that are not listed.

        Args:
            rows: The messages.
            known: Words that are listed; those of the messages are added.
        """
        words = [indexed_words(content, extra) for _, content, extra in rows]
        unknown = {word for each in words for word in each} - known
        texts = list(map(" ".join, words))
        with self._transaction(EVERYBODY) as database:
            query = "SELECT * FROM hermes.archive_missing(%s::bigint[], %s::text[])"
            found = database.execute(query, ([row[0] for row in rows], texts)).fetchall()
            query = "SELECT term FROM hermes.archive_counts(%s)"
            listed = {term for (term,) in database.execute(query, (list(unknown),))}
        known |= listed
        return [number for (number,) in found], unknown - listed

    def _messages_of(self, numbers: Sequence[int]) -> list[IndexedRow]:
        with self._transaction(EVERYBODY) as database:
            rows = database.execute(
                "SELECT id, content, extra FROM hermes.archive_messages WHERE id = ANY(%s)",
                (list(numbers),),
            ).fetchall()
        return [_indexed(row) for row in rows]

    def _pages(self, newest: int | None = None) -> Iterator[tuple[list[IndexedRow], int, int]]:
        """Messages, the newest first, some at a time; with how many were before, and in all."""
        total = min(self.stats().messages, newest if newest is not None else 1 << 62)
        below, done = 1 << 62, 0
        while done < total:
            with self._transaction(EVERYBODY) as database:
                rows = database.execute(
                    "SELECT id, content, extra FROM hermes.archive_messages WHERE id < %s"
                    " ORDER BY id DESC LIMIT %s",
                    (below, min(_PAGE, total - done)),
                ).fetchall()
            if not rows:
                return
            yield [_indexed(row) for row in rows], done, total
            below, done = rows[-1][0], done + len(rows)

    def _search_problems(self) -> Iterator[ArchiveProblem]:
        """The tool's own queries, for words that are there."""
        for session in self.browse(EVERYBODY, _SEARCHED, hidden=True):
            message = next(iter(self.first(session, 1)), None)
            extra = json.dumps(dict(message.extra)) if message and message.extra else None
            words = indexed_words(message.content, extra) if message else []
            if not words:
                continue
            options = SearchOptions(EVERYBODY, frozenset((*ROLES, "")), limit=1, hidden=True)
            found = self.search(Query((Term(words[0]),)), options).hits
            if not found and self.first(session, 1):  # else somebody has deleted it just now
                yield ArchiveProblem(f"a search for {words[0]!r} finds nothing", index_only=True)

    def repair(self, progress: Progress | None = None) -> dict[str, Any]:
        """Count the messages of sessions and build the index again; says what was done."""
        problems = self.check()
        done: dict[str, Any] = {
            "problems": len(problems), "copy": "", "lost": 0, "recover": "",
        }  # fmt: skip
        if not problems:
            return done
        with self._transaction(EVERYBODY) as database:
            database.execute("SELECT hermes.archive_recount(), hermes.archive_repair()")
            database.execute("SELECT hermes.archive_forget_index()")
        counts: Counter[str] = Counter()
        for rows, before, total in self._pages():
            with self._transaction(EVERYBODY) as database:
                self._index.put_again(database, rows, counts)
            if progress is not None:
                progress(before + len(rows), total)
        self._index.settle(counts)
        return done

    def index_pending(self, step: Callable[[], object] | None = None) -> DatabaseError | None:
        """Index all that is not yet; why not, if it can't be done."""
        return self._index.add_all(step)

    def close(self) -> None:
        """Index what can be indexed soon. The connections belong to the whole process."""
        self._backlog.close()


_APPEND: Final = "SELECT hermes.archive_append(%s, %s::jsonb, %s::json, %s::double precision)"
_COUNTS: Final = (
    f"(SELECT id >> {SESSION_BITS} AS number, count(*) AS there, max(id) AS last"  # noqa: S608
    " FROM hermes.archive_messages GROUP BY 1) AS counted"
)
_MISCOUNTED: Final = (
    "SELECT id, number, coalesce(there, 0), messages FROM hermes.archive_sessions"  # noqa: S608
    f" FULL JOIN {_COUNTS} USING (number)"
    " WHERE messages IS DISTINCT FROM coalesce(there, 0)"
)


def _indexed(row: tuple[Any, ...]) -> IndexedRow:
    return row[0], from_text(row[1]), row[2] and from_text(row[2])


def _is_known_turn(error: BaseException | None) -> bool:
    """Whether the server refused a turn because one with the same key is there."""
    known = "archive_turns_pkey"
    return isinstance(error, UniqueViolation) and error.diag.constraint_name == known


def _append_once(database: Connection, values: tuple[Any, ...]) -> None:
    """Append a turn in a transaction, unless one with the same key is there."""
    try:
        with database.transaction():
            database.execute(_APPEND, values)
    except UniqueViolation as error:
        if not _is_known_turn(error):
            raise


def _one(database: Connection, query: str, *values: Any) -> tuple[Any, ...]:
    row = database.execute(query, values).fetchone()
    return row or ()
