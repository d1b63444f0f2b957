"""PostgreSQL for the storage of a home: connections, the schema, who sees what, and errors.

Import it only where ``memory.storage`` names a server: psycopg is an extra
(``hermes-plugins[postgres]``). `Database` is the one class through which this project uses
PostgreSQL. Everything is in the schema ``hermes``; each component (the archive, the notes, the
outbox) has its tables there and brings them as a `Component`.

Row-level security enforces the namespace a second time, below our queries. Connections use the
role ``hermes_tenant``, which owns nothing, and the policies compare each row with the setting
``hermes.namespace`` of the connection. Where that role is missing and may not be created, the
connection remains the owner, for whom the policies hold as well (``FORCE ROW LEVEL SECURITY``).
Whoever can send any statement can change a setting. The table ``hermes.tenants`` binds a login role
to a namespace; a session of such a role sees that one, whatever it sets.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from math import inf
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from hermes_core.errors import DatabaseError, ForeignDatabase
from hermes_core.storage.address import shown_address
from hermes_core.storage.frozen import FROZEN_STATE, MOVED_HINT
from hermes_core.storage.sql import Rows
from hermes_core.storage.sqlite import close_before_fork
from hermes_core.storage.time_limit import TURN_SECONDS, deadline, time_limit

_T = TypeVar("_T")

Connection = psycopg.Connection[tuple[Any, ...]]
Migration = str | Callable[[Connection], None]

SCHEMA: Final = "hermes"
#: The role of every connection; it owns nothing, so that no policy is passed by.
ROLE: Final = "hermes_tenant"
#: The namespace of a session, in SQL.
NAMESPACE: Final = "hermes.current_namespace()"
#: Whether a transaction acts for nobody in particular, in SQL: its scope names no person.
FOR_NOBODY: Final = "(SELECT coalesce(current_setting('hermes.scope', true), '')) IN ('', '{}')"
#: What makes a schema ours. Another program may have one called ``hermes``.
_MARK: Final = "hermes-plugins: the memory of AI agents"
#: A number for ``pg_advisory_xact_lock``: two processes that start don't both migrate.
_LOCK: Final = 0x48504D53  # "HPMS"
_OLDEST_SERVER: Final = 140_000

CONNECT_SECONDS: Final = 5
STATEMENT_SECONDS: Final = 30
#: How much longer we wait for the server to say that a statement took too long.
_GRACE_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 300
_MOST_CONNECTIONS: Final = 8
#: After the server could not be reached: how long calls with a time limit don't try, and how long
#: the one may take that tries then. Calls without a limit are in the background and try again
#: sooner, but a command that asks ten questions does not wait ten times.
_OUTAGE_SECONDS: Final = 10.0
_TRIAL_SECONDS: Final = 1.0
_BACKGROUND_SECONDS: Final = 0.5
#: Less than that is no time to answer in.
_LEAST_SECONDS: Final = 0.05
#: How often to look whether the connection that we wait for could not be made.
_FIRST_LOOK, _LONGEST_LOOK = 0.02, 0.25
#: The name of our pools in what psycopg logs.
_POOL: Final = "hermes-plugins"
#: libpq takes no shorter one.
_SHORTEST_TIMEOUT: Final = 2

# A failover, or a cable that was pulled: TCP alone would wait for a quarter of an hour.
_DEFAULTS: Final[Mapping[str, str]] = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "application_name": "hermes-plugins",
    # Of several hosts in the URL, the one that takes writes: a standby is passed over.
    "target_session_attrs": "read-write",
}


# -- errors ----------------------------------------------------------------------------------


class Fault(Enum):
    """What is wrong with the server, as far as callers act on it."""

    UNREACHABLE = "unreachable"
    BUSY = "busy"
    READ_ONLY = "read-only"
    MOVED = "moved"
    DISK_FULL = "disk full"
    REFUSED = "refused"
    OTHER = "other"


class PostgresError(DatabaseError):
    """PostgreSQL can't be used; ``fault`` says in which way."""

    def __init__(self, what: str, *, where: str = "", hint: str = "", fault: Fault) -> None:
        super().__init__(what, where=where, hint=hint)
        self.fault = fault


_HINTS: Final = {
    Fault.UNREACHABLE: "check that the server is running and that memory.storage is right",
    Fault.BUSY: "try again; if it persists, look at the server's load and max_connections",
    Fault.READ_ONLY: "name the primary in memory.storage, or all hosts, separated by commas",
    Fault.MOVED: MOVED_HINT,
    Fault.DISK_FULL: "free some disk space on the server; what was stored before is safe",
    Fault.REFUSED: (
        "check the user and its rights, the password (HERMES_STORAGE_PASSWORD) and the database"
    ),
    Fault.OTHER: "",
}

# By SQLSTATE; the longest beginning counts.
_FAULTS: Final = {
    "08": Fault.UNREACHABLE,
    "57P": Fault.UNREACHABLE,  # the server shuts down, starts, or crashed
    "25006": Fault.READ_ONLY,
    FROZEN_STATE: Fault.MOVED,
    "53": Fault.BUSY,
    "53100": Fault.DISK_FULL,
    "57014": Fault.BUSY,  # statement_timeout
    "55P03": Fault.BUSY,  # lock_timeout
    "40": Fault.BUSY,  # a deadlock, or serialisation
    "28": Fault.REFUSED,
    "3D000": Fault.REFUSED,
    "42501": Fault.REFUSED,
}
# What libpq says before there is an SQLSTATE: while connecting.
_TEXTS: Final = (
    ("session is read-only", Fault.READ_ONLY),
    ("server is in hot standby mode", Fault.READ_ONLY),
    ("authentication failed", Fault.REFUSED),
    ("no password supplied", Fault.REFUSED),
    ("no pg_hba.conf entry", Fault.REFUSED),
    ("role ", Fault.REFUSED),
    ("database ", Fault.REFUSED),
    ("too many clients", Fault.BUSY),
    ("remaining connection slots", Fault.BUSY),
    ("No space left on device", Fault.DISK_FULL),
)


def fault_of(error: BaseException | None) -> Fault:
    """What an error, or the one that it wraps, says about the server."""
    if isinstance(error, PostgresError):
        return error.fault
    if isinstance(error, DatabaseError):
        return fault_of(error.__cause__)
    if isinstance(error, PoolTimeout) or (isinstance(error, NoAnswer) and not error.had_time):
        return Fault.BUSY
    if not isinstance(error, psycopg.Error):
        return Fault.OTHER
    if error.sqlstate:
        beginnings = (error.sqlstate[:length] for length in range(len(error.sqlstate), 0, -1))
        return next((_FAULTS[each] for each in beginnings if each in _FAULTS), Fault.OTHER)
    otherwise = isinstance(error, psycopg.OperationalError)
    found = (fault for part, fault in _TEXTS if part in str(error))
    return next(found, Fault.UNREACHABLE if otherwise else Fault.OTHER)


def is_temporary(error: BaseException) -> bool:
    """Whether it may succeed later: the server is unreachable, busy, full, a standby, or left."""
    return fault_of(error) in (
        Fault.UNREACHABLE, Fault.BUSY, Fault.READ_ONLY, Fault.DISK_FULL, Fault.MOVED,
    )  # fmt: skip


# -- text ------------------------------------------------------------------------------------
#
# PostgreSQL stores every character but NUL. U+FFFE, which is no character, stands for it, followed
# by "0"; and followed by "1" for itself. So every text comes back as it was.

_ESCAPES: Final = {"\0": "\ufffe0", "\ufffe": "\ufffe1"}
_ESCAPED: Final = re.compile("[\0\ufffe]")
_ESCAPE: Final = re.compile("\ufffe([01])")


def to_text(text: str) -> str:
    """Text as PostgreSQL can store it."""
    if "\0" not in text and "\ufffe" not in text:
        return text
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)


def from_text(stored: str) -> str:
    """Text as it was before `to_text`."""
    if "\ufffe" not in stored:
        return stored
    return _ESCAPE.sub(lambda found: "\0" if found[1] == "0" else "\ufffe", stored)


# -- components ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Component:
    """What one part of the storage has in the database.

    Attributes:
        name: Such as "archive"; its tables begin with it.
        migrations: The nth takes version n to n + 1. All that are needed run in one transaction,
            as the owner of the schema. A string may have several statements.
        private: Tables that the role may not use directly, only through functions.
        grants: For tables that the role may not insert into or change as it likes, what it may do.
    """

    name: str
    migrations: Sequence[Migration]
    private: tuple[str, ...] = ()
    grants: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The newest version."""
        return len(self.migrations)


def protected(table: str, condition: str = "true") -> str:
    """Statements that protect a table with a column ``namespace``.

    Args:
        table: Its name, without the schema.
        condition: What a row must fulfil besides, to be seen or written.
    """
    # In a subquery, the function is called once per statement and not once per row.
    rule = f"namespace = (SELECT {NAMESPACE}) AND ({condition})"
    return f"""
ALTER TABLE {SCHEMA}.{table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {SCHEMA}.{table} FORCE ROW LEVEL SECURITY;
CREATE POLICY {table}_rows ON {SCHEMA}.{table} USING ({rule}) WITH CHECK ({rule});
"""


# -- connections -----------------------------------------------------------------------------


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time. Nobody knows whether it did what it was asked for.

    Args:
        seconds: How much time it had. If there was none, because the call had used up its time
            before, that says nothing about the server.
    """

    def __init__(self, seconds: float) -> None:
        self.had_time = seconds >= _LEAST_SECONDS
        had = f"no answer within {seconds:.1f} s"
        super().__init__(had if self.had_time else "the call had used up its time")


class _LimitedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed when the server does not answer in time.

    A server that was stopped, and a network that drops everything, say nothing: without a limit, a
    call would wait for TCP to give up.
    """

    #: How long one answer may take, whatever the limit of the thread is.
    seconds: float = CONNECT_SECONDS
    #: Where it came from, while it is in use.
    pool: ConnectionPool[Any] | None = None

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait for an answer; psycopg calls it for all that it sends."""
        now = monotonic()
        end = min(deadline(), now + self.seconds)
        try:
            return super().wait(_until(gen, now, end), *args, **kwargs)
        except NoAnswer:
            # What it would say now belongs to a question that nobody asks any more.
            self.pgconn.finish()
            raise


def _until(gen: Generator[Any, Any, _T], begin: float, end: float) -> Generator[Any, Any, _T]:
    """The same generator; it ends with an error if it is not done in time.

    Psycopg resumes it whenever there is something to read, and every tenth of a second.
    """
    try:
        state = next(gen)
        while True:
            state = gen.send((yield state))
            # After that: what has arrived by now counts.
            if monotonic() >= end:
                raise NoAnswer(end - begin)
    except StopIteration as done:
        result: _T = done.value
        return result


def _is_of_others(record: logging.LogRecord) -> bool:
    """Whether psycopg logs something about a pool that is not ours."""
    args = record.args if isinstance(record.args, tuple) else ()
    return not any(
        isinstance(each, _LimitedConnection) or (isinstance(each, str) and each.startswith(_POOL))
        for each in args
    )


@dataclass(frozen=True, slots=True)
class _Outage:
    """The server could not be reached: since when, and why."""

    at: float
    error: BaseException


# -- a database for all threads of a process -------------------------------------------------


class Database:
    """One namespace of one database, for all threads of a process.

    Connections are made when first needed. A forked child makes its own.

    Args:
        url: ``postgresql://user@host/database``; several hosts are tried in their order.
        namespace: Whose rows are seen.
        password: "" leaves it to PGPASSWORD, PGPASSFILE and what else libpq uses.
        statement_seconds: How long one statement may take.
        connections: At most so many at a time; more threads wait.

    Every method raises `DatabaseError` if the database can't be used.
    """

    def __init__(
        self,
        url: str,
        namespace: str = "default",
        password: str = "",
        *,
        statement_seconds: float = STATEMENT_SECONDS,
        connections: int = _MOST_CONNECTIONS,
    ) -> None:
        self.namespace = namespace
        #: The address without anything secret, for messages and `status`.
        self.where = shown_address(url)
        self._url = url
        self._password = password
        self._seconds = statement_seconds
        self._connections = connections
        self._lock = threading.RLock()
        self._pool: ConnectionPool[_LimitedConnection] | None = None
        self._in_use = 0
        self._ready: set[str] = set()
        self._preparing = threading.Lock()
        #: Why the last connection could not be made.
        self._failure: _Outage | None = None
        #: Why the server can't be used, until it could be used again.
        self._outage: _Outage | None = None
        self._next_trial = 0.0
        #: Pools of the parent in a forked child: closing them would end the parent's connections.
        self._inherited: list[object] = []
        self._parent = os.getpid()
        close_before_fork(self)

    @property
    def prefix(self) -> str:
        """A few letters for the namespace, for keys of an index that all namespaces share."""
        return sha256(self.namespace.encode()).hexdigest()[:6]

    # -- transactions ----------------------------------------------------------------------

    @contextmanager
    def transaction(
        self,
        component: Component,
        scope: Mapping[str, str] | None = None,
        *,
        seconds: float = CONNECT_SECONDS,
    ) -> Iterator[Connection]:
        """Commit everything done inside, or nothing.

        Args:
            component: Whose tables are used; they are created or migrated if need be.
            scope: What is put into the setting ``hermes.scope`` for the policies, as JSON.
            seconds: How long to wait for a connection.
        """
        with self.errors():
            self._prepare(component, seconds)
            connection = self._begun(scope, seconds)
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                self._give_back(connection)
            self._outage = None

    @contextmanager
    def connection(
        self, component: Component, *, seconds: float = CONNECT_SECONDS
    ) -> Iterator[Connection]:
        """A connection on which every statement commits by itself. It may have been cut."""
        with self.errors():
            self._prepare(component, seconds)
            connection = self._take(seconds)
            try:
                yield connection
            finally:
                self._give_back(connection)
            self._outage = None

    def _begun(self, scope: Mapping[str, str] | None, seconds: float) -> _LimitedConnection:
        """A connection in a new transaction."""
        begin = sql.SQL("BEGIN; SELECT set_config('hermes.scope', {}, true)").format(
            json.dumps(dict(scope), ensure_ascii=False) if scope is not None else ""
        )
        connection = self._take(seconds)
        try:
            connection.execute(begin)
        except psycopg.OperationalError as error:
            self._give_back(connection)
            if not connection.closed or isinstance(error, NoAnswer):
                raise
        except BaseException:
            self._give_back(connection)
            raise
        else:
            return connection
        # The server had ended the connection, and `_give_back` has closed all others. Nothing is
        # lost by another attempt: the transaction has not begun.
        connection = self._take(seconds)
        try:
            connection.execute(begin)
        except BaseException:
            self._give_back(connection)
            raise
        return connection

    def vacuum(self, component: Component) -> None:
        """Free the space of deleted rows of a component, as the owner of its tables."""
        with self.errors():
            self._prepare(component)
            with self._as_owner() as connection:
                tables = connection.execute(
                    "SELECT relname FROM pg_class WHERE relnamespace = 'hermes'::regnamespace"
                    " AND relkind = 'r' AND starts_with(relname, %s)",
                    (f"{component.name}_",),
                ).fetchall()
                for (table,) in tables:
                    name = sql.Identifier(SCHEMA, table)
                    connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(name))

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection of the user who connects, without our role; nothing is created."""
        with self.errors(), psycopg.connect(self._conninfo(), autocommit=True) as connection:
            connection.execute(self._settings())
            yield connection

    @contextmanager
    def as_owner(self, component: Component) -> Iterator[Connection]:
        """A connection with the rights of the owner of the tables, in one transaction."""
        with self.errors():
            self._prepare(component)
        with self.connected() as connection, connection.transaction():
            yield connection

    # -- connections -----------------------------------------------------------------------

    def _take(self, seconds: float) -> _LimitedConnection:
        """A connection for this thread alone, until `_give_back`."""
        begin = monotonic()
        end = min(begin + self._patience(seconds), deadline())
        look = _FIRST_LOOK
        while True:
            pool = self._opened()
            try:
                connection = pool.getconn(max(min(look, end - monotonic()), 0.001))
            except PoolClosed:  # by another thread, see `_discard`
                if self._pool is pool or monotonic() >= end:
                    raise
            except PoolTimeout as error:
                self._check_outage(error, begin, end)
                look = min(look * 2, _LONGEST_LOOK)
            else:
                connection.pool = pool
                with self._lock:
                    self._in_use += 1
                return connection

    def _patience(self, seconds: float) -> float:
        """How long to wait for a connection; raises at once during an outage."""
        outage = self._outage
        if outage is None:
            return seconds
        now = monotonic()
        if deadline() == inf:
            if now < outage.at + _BACKGROUND_SECONDS:
                raise self._error(outage.error) from outage.error
            return seconds
        with self._lock:
            if now < self._next_trial:
                raise self._error(outage.error) from outage.error
            self._next_trial = now + _OUTAGE_SECONDS
        return min(seconds, _TRIAL_SECONDS)

    def _check_outage(self, error: PoolTimeout, begin: float, end: float) -> None:
        """Raise if there is no use in waiting for a connection any longer."""
        failure = self._failure
        if failure is not None and failure.at >= begin:
            raise self._lost(failure.error)
        if monotonic() < end:
            return
        if self._in_use >= self._connections:
            raise error
        raise self._lost(NoAnswer(end - begin)) from error

    def _lost(self, error: BaseException) -> BaseException:
        """Remember that the server can't be reached, and why."""
        if isinstance(error, NoAnswer) and not error.had_time:
            return error
        now = monotonic()
        with self._lock:
            self._outage = _Outage(now, error)
            self._next_trial = now + _OUTAGE_SECONDS
        return error

    def _give_back(self, connection: _LimitedConnection) -> None:
        pool, connection.pool = connection.pool, None
        with self._lock:
            self._in_use -= 1
        if not connection.closed:
            with suppress(psycopg.Error):
                if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    connection.rollback()
        if pool is None:
            return
        with suppress(psycopg.Error, PoolClosed, ValueError):
            pool.putconn(connection)
        if connection.closed:
            # A server that restarted has ended the others as well: the next one must not fail.
            self._discard(pool)

    def _discard(self, pool: ConnectionPool[Any] | None) -> None:
        """Close all connections of a pool that are not in use; the next use makes new ones."""
        with self._lock:
            if pool is None or self._pool is not pool:
                return
            self._pool = None
        pool.close(timeout=0)

    @contextmanager
    def _as_owner(self, seconds: float = CONNECT_SECONDS) -> Iterator[Connection]:
        """A connection with the rights of the user who connects."""
        connection = self._take(seconds)
        try:
            connection.execute("RESET ROLE")
            yield connection
            # There may be a role now that was not there when it was made.
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        finally:
            self._give_back(connection)

    def _opened(self) -> ConnectionPool[_LimitedConnection]:
        pool = self._pool
        if pool is not None:
            return pool
        with self._lock:
            if self._pool is None:
                # We say ourselves what is wrong, once and with a hint.
                logging.getLogger("psycopg.pool").addFilter(_is_of_others)
                self._pool = ConnectionPool(
                    self._conninfo(),
                    name=_POOL,
                    connection_class=self._recording(),
                    kwargs={"autocommit": True},
                    min_size=0,
                    max_size=self._connections,
                    max_idle=_IDLE_SECONDS,
                    configure=self._configure,
                    # Whoever waits for a connection hears of a failure, and asks again later.
                    reconnect_timeout=0.001,
                    num_workers=1,
                    open=True,
                )
            return self._pool

    def _recording(self) -> type[_LimitedConnection]:
        """A class of connections that keeps why one could not be made: the pool does not say."""
        database = self

        class Recording(_LimitedConnection):
            @classmethod
            def connect(cls, *args: Any, **kwargs: Any) -> Any:
                try:
                    made = super().connect(*args, **kwargs)
                except psycopg.Error as error:
                    database._failure = _Outage(monotonic(), error)
                    raise
                database._failure = None
                return made

        return Recording

    def _conninfo(self) -> str:
        given = conninfo_to_dict(self._url)
        # Time for each of several hosts, the last of which may be the one that answers.
        hosts = str(given.get("host") or given.get("hostaddr") or "").count(",") + 1
        each = max(CONNECT_SECONDS // hosts, _SHORTEST_TIMEOUT)
        values = {**_DEFAULTS, "connect_timeout": str(each), **given}
        if self._password:
            values["password"] = self._password
        return make_conninfo("", **values)

    def _configure(self, connection: Connection) -> None:
        """Set up a connection of the pool: its limits, its role, and its namespace."""
        connection.execute(self._settings())
        if has_role(connection):
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(ROLE)))
        if isinstance(connection, _LimitedConnection):
            connection.seconds = self._seconds + _GRACE_SECONDS

    def _settings(self) -> sql.Composed:
        milliseconds = int(self._seconds * 1000)
        return sql.SQL(
            "SET search_path = {schema}; SET statement_timeout = {limit};"
            " SET lock_timeout = {limit}; SET idle_in_transaction_session_timeout = {idle};"
            " SET TimeZone = 'UTC'; SELECT set_config('hermes.namespace', {namespace}, false)"
        ).format(
            schema=sql.Identifier(SCHEMA),
            limit=milliseconds,
            idle=_IDLE_SECONDS * 1000,
            namespace=self.namespace,
        )

    def close(self) -> None:
        """Close the connections; the next use makes new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
            self._ready.clear()
        if pool is not None:
            pool.close(timeout=1.0)

    # -- the schema ------------------------------------------------------------------------

    def _prepare(self, component: Component, seconds: float = CONNECT_SECONDS) -> None:
        """Create or migrate the tables of a component, once per process."""
        if component.name in self._ready:
            return
        # Another thread may be at it, with more time than this one has.
        left = min(deadline() - monotonic(), self._seconds)
        if not self._preparing.acquire(timeout=max(left, 0)):
            raise self._lost(NoAnswer(left))
        try:
            if component.name not in self._ready:
                # The connections have dropped the rights of the owner.
                with self._as_owner(seconds) as connection:
                    migrate(connection, component, self.where)
                self._ready.add(component.name)
        finally:
            self._preparing.release()

    # -- errors ----------------------------------------------------------------------------

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Psycopg's errors as `DatabaseError`: what, where, what to do."""
        try:
            yield
        except (psycopg.Error, PoolClosed) as error:
            if isinstance(error, NoAnswer):
                self._lost(error)
            if fault_of(error) is Fault.READ_ONLY:
                # A failover has made a standby of it: a new connection finds the primary.
                self._discard(self._pool)
            raise self._error(error) from error

    def _error(self, error: BaseException) -> PostgresError:
        fault = fault_of(error)
        text = _reason(error)
        if isinstance(error, PoolTimeout):
            text = f"all {self._connections} connections are in use"
        for secret in filter(None, (self._password,)):
            text = text.replace(secret, "[password]")
        what = text if fault is Fault.MOVED else f"PostgreSQL can't be used: {text}"
        return PostgresError(what, where=self.where, hint=_HINTS[fault], fault=fault)

    # -- forks -----------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Let no thread be in the middle of making a pool."""
        self._lock.acquire()
        self._parent = os.getpid()

    def after_fork(self) -> None:
        """Go on; a child makes its own connections, and leaves those of its parent alone."""
        if os.getpid() != self._parent:
            self._inherited.append(self._pool)
            self._pool, self._in_use = None, 0
            self._preparing = threading.Lock()
        self._lock.release()


def _reason(error: BaseException) -> str:
    """The first line of an error's text; libpq adds what was tried, and SQL its context."""
    diagnosis = getattr(getattr(error, "diag", None), "message_primary", None)
    lines = [each.strip() for each in str(diagnosis or error).splitlines() if each.strip()]
    if not lines:
        return type(error).__name__
    # With several hosts, the last line is about the last one of them.
    several = [each for each in lines if not each.startswith("Is the server running")]
    line = several[-1] if lines[0].startswith("Multiple connection attempts") else lines[0]
    return line.removeprefix("connection failed: ")


# -- the schema ------------------------------------------------------------------------------


def migrate(connection: Connection, component: Component, where: str) -> None:
    """Create or migrate the tables of a component, in one transaction.

    Raises:
        ForeignDatabase: The schema belongs to another program, or to a newer version of this
            one. It is not changed.
    """
    if connection.info.server_version < _OLDEST_SERVER:
        found = connection.info.server_version // 10_000
        raise ForeignDatabase(
            f"PostgreSQL {found} is too old", where=where, hint="it must be 14 or newer"
        )
    with connection.transaction():
        if component_version(connection, component, where) == component.version:
            _grant(connection, component)
            return
        # Only now: whoever starts with a current schema waits for nobody. Then look again.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        version = component_version(connection, component, where)
        if version < 0:
            _create(connection)
            version = 0
        for migration in component.migrations[version:]:
            if callable(migration):
                migration(connection)
            else:
                connection.execute(sql.SQL(migration))
        connection.execute(
            "INSERT INTO hermes.versions VALUES (%s, %s)"
            " ON CONFLICT (component) DO UPDATE SET version = excluded.version",
            (component.name, component.version),
        )
        _grant(connection, component)


def component_version(connection: Connection, component: Component, where: str) -> int:
    """The version of a component; -1 if there is no schema yet. Raises if it is not ours."""
    row = connection.execute(
        "SELECT obj_description(oid, 'pg_namespace'), EXISTS (SELECT 1 FROM pg_class"
        " WHERE relnamespace = pg_namespace.oid AND relname = 'versions')"
        " FROM pg_namespace WHERE nspname = %s",
        (SCHEMA,),
    ).fetchone()
    if row is None:
        return -1
    if row != (_MARK, True):
        raise ForeignDatabase(
            f"its schema {SCHEMA} belongs to another program",
            where=where,
            hint="it was not changed; use another database",
        )
    found = connection.execute(
        "SELECT version FROM hermes.versions WHERE component = %s", (component.name,)
    ).fetchone()
    version = int(found[0]) if found else 0
    if version > component.version:
        raise ForeignDatabase(
            f"its tables for the {component.name} are of a newer version of hermes-plugins "
            f"(format {version}, this one knows {component.version})",
            where=where,
            hint="it was not changed; upgrade hermes-plugins",
        )
    return version


# A session can set every setting and give up its role, but can't change who logged in.
_TENANTS: Final = """
CREATE TABLE hermes.tenants (login name PRIMARY KEY, namespace text NOT NULL);
CREATE FUNCTION hermes.current_namespace() RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = hermes, pg_temp AS $$
BEGIN
    RETURN coalesce(
        (SELECT namespace FROM tenants WHERE login = session_user),
        current_setting('hermes.namespace', true));
END $$;
"""


def _create(connection: Connection) -> None:
    connection.execute("CREATE SCHEMA hermes")
    connection.execute(sql.SQL("COMMENT ON SCHEMA hermes IS {}").format(_MARK))
    connection.execute(
        "CREATE TABLE hermes.versions (component text PRIMARY KEY, version integer NOT NULL)"
    )
    connection.execute(_TENANTS)
    with suppress(psycopg.errors.InsufficientPrivilege), connection.transaction():
        _create_role(connection)


def _create_role(connection: Connection) -> None:
    """Create the role of our connections, unless it is there, and become a member of it."""
    name = sql.Identifier(ROLE)
    found = "SELECT 1 FROM pg_roles WHERE rolname = %s"
    if connection.execute(found, (ROLE,)).fetchone() is None:
        # Roles belong to the server, and another database may just have created it.
        taken = (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation)
        with suppress(*taken), connection.transaction():
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(name))
    if not has_role(connection):
        connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(name))


def has_role(connection: Connection) -> bool:
    """Whether there is the role that owns nothing, and this connection may use it."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = %(role)s"
        " AND pg_has_role(current_user, oid, 'MEMBER'))",
        {"role": ROLE},
    ).fetchone()
    return bool(row and row[0])


def _grant(connection: Connection, component: Component) -> None:
    """Let the role use the tables of a component, but for the private ones.

    At every start: an administrator may have created the role after the tables.
    """
    if not has_role(connection):
        return
    tables = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'hermes'::regnamespace"
        " AND relkind = 'r' AND starts_with(relname, %s) AND relname != ALL(%s)"
        " AND NOT has_table_privilege(%s, oid, 'SELECT')",
        (f"{component.name}_", list(component.private), ROLE),
    ).fetchall()
    if not tables:
        return
    role = sql.Identifier(ROLE)
    grants = {
        f"{SCHEMA}.{table}": component.grants.get(table, "SELECT, INSERT, UPDATE, DELETE")
        for (table,) in tables
    }
    # No sequences: the numbers of rows need no right, and nobody else has to take one.
    grants |= {f"SCHEMA {SCHEMA}": "USAGE", f"{SCHEMA}.versions": "SELECT"}
    for what, rights in grants.items():
        statement = sql.SQL(f"GRANT {rights} ON {what} TO {{role}}")
        connection.execute(statement.format(role=role))


# -- one for each database and namespace of a process ------------------------------------------


class _Databases:
    """Every `Database` of this process, by address and namespace."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[tuple[str, str, str], Database] = {}

    def get(self, url: str, namespace: str, password: str) -> Database:
        with self._lock:
            key = (url, namespace, password)
            if key not in self._all:
                self._all[key] = Database(url, namespace, password)
            return self._all[key]


# Module state, since the server limits how many connections there are: managers share theirs.
_DATABASES: Final = _Databases()


def shared_database(url: str, namespace: str, password: str = "") -> Database:
    """The `Database` that all managers of this process share for an address and a namespace."""
    return _DATABASES.get(url, namespace, password)


# -- statements that SQLite understands, too -------------------------------------------------


class Transactions:
    """The transactions of one store, one at a time for all threads of a process.

    A nested one is part of the outer one, but what it did is undone if it fails.

    Args:
        database: Where.
        component: Its tables.
        tables: Their names in the statements, without the name of the component.
        scope: For the policies; see `Database.transaction`.
    """

    def __init__(
        self,
        database: Database,
        component: Component,
        tables: tuple[str, ...],
        scope: Mapping[str, str] | None = None,
    ) -> None:
        #: Held during a transaction. Take it to make several steps one for this process.
        self.lock = threading.RLock()
        self.where = database.where
        self._database = database
        self._component = component
        self._names = (tables, f"{component.name}_")
        self._scope = scope
        self._current: Connection | None = None
        self._pid = os.getpid()
        close_before_fork(self)

    @contextmanager
    def begin(self) -> Iterator[TranslatedConnection]:
        """Commit everything done inside, or nothing."""
        # Short statements of a store that all threads share: no thread waits long for another one.
        with time_limit(TURN_SECONDS), self.lock:
            if self._current is not None:
                with self._current.transaction():
                    yield TranslatedConnection(self._current, *self._names)
                return
            with self._database.transaction(self._component, self._scope) as connection:
                self._current = connection
                try:
                    yield TranslatedConnection(connection, *self._names)
                finally:
                    self._current = None

    def read(self, work: Callable[[TranslatedConnection], _T]) -> _T:
        """Run ``work``, which only reads; each of its statements sees what is committed then."""
        with time_limit(TURN_SECONDS), self.lock:
            # Without a transaction there is no scope.
            if self._current is None and self._scope is None:
                # One message per statement, instead of three. It fails if the server has closed
                # the connection; then the next try gets a new one.
                try:
                    with self._database.connection(self._component) as connection:
                        return work(TranslatedConnection(connection, *self._names))
                except PostgresError as error:
                    if error.fault is not Fault.UNREACHABLE:
                        raise
            with self.begin() as translated:
                return work(translated)

    def before_fork(self) -> None:
        """Don't wait for the lock: whoever holds it may wait for that of the database."""

    def after_fork(self) -> None:
        """In a child, forget the transaction of another thread, which does not exist there."""
        if self._pid != os.getpid():
            self._pid, self.lock, self._current = os.getpid(), threading.RLock(), None


class TranslatedConnection:
    """A connection that takes statements as `storage.sql` describes them.

    Args:
        connection: The connection.
        tables: The names of the tables in the statements. In PostgreSQL, where one schema has the
            tables of all stores, they begin with ``prefix``.
        prefix: Such as ``outbox_``.
    """

    def __init__(self, connection: Connection, tables: tuple[str, ...], prefix: str) -> None:
        self._connection = connection
        self._names = (tables, prefix)

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""
        cursor = self._connection.cursor(row_factory=_decoded)
        return cursor.execute(_translated(statement, *self._names), _encoded(values))

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Rows:
        """Run a statement once for each row of values."""
        cursor = self._connection.cursor()
        cursor.executemany(_translated(statement, *self._names), [_encoded(row) for row in rows])
        return cursor


@lru_cache(maxsize=256)
def _translated(statement: str, tables: tuple[str, ...], prefix: str) -> str:
    text = statement.replace("%", "%%").replace("?", "%s")
    return re.sub(rf"\b({'|'.join(tables)})\b", rf"{prefix}\1", text)


def _encoded(values: Sequence[Any]) -> list[Any]:
    return [to_text(each) if isinstance(each, str) else each for each in values]


def _decoded(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:  # noqa: ARG001 - psycopg's signature
    """Makes the rows of a cursor."""
    return lambda row: tuple(from_text(each) if isinstance(each, str) else each for each in row)
