"""`Database`: one namespace of one database, for all threads of a process."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from hermes_core.errors import SecretsError
from hermes_core.storage.address import shown_address
from hermes_core.storage.forks import close_before_fork
from hermes_core.storage.migration import COPYING, frozen_hint
from hermes_core.storage.outages import (
    Outage,
    end_outage,
    known_outage,
    note_outages,
    outages_are_remembered,
)
from hermes_core.storage.postgres.errors import (
    HINTS,
    NoAnswer,
    NoPassword,
    PostgresError,
    ServerFault,
    WrongEncoding,
    WrongNamespace,
    fault_of,
    reason_of,
)
from hermes_core.storage.postgres.schema import (
    ROLE,
    SCHEMA,
    Component,
    Connection,
    bound_namespace,
    has_role,
    migrate,
)
from hermes_core.storage.time_limit import deadline

_T = TypeVar("_T")
#: A password, or a function that finds it.
Password = str | Callable[[], str]

CONNECT_SECONDS: Final = 5
STATEMENT_SECONDS: Final = 30
#: How much longer we wait for the server to say that a statement took too long.
_GRACE_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 300
_MOST_CONNECTIONS: Final = 8
#: After the server could not be reached: how long calls with a time limit don't try, and how long
#: the one may take that tries then. Calls without a limit are in the background and try again
#: sooner, but not before as much time has passed as the last attempt took: a command that asks ten
#: questions does not wait ten times.
_OUTAGE_SECONDS: Final = 10.0
_TRIAL_SECONDS: Final = 1.0
_BACKGROUND_SECONDS: Final = 0.5
#: How often to look whether the connection that we wait for could not be made.
_FIRST_LOOK, _LONGEST_LOOK = 0.02, 0.25
#: The name of our pools in what psycopg logs.
_POOL: Final = "hermes-plugins"
#: libpq takes no shorter one.
_SHORTEST_TIMEOUT: Final = 2

#: The encoding of the database and of what we send. Another one has no place for most characters.
_ENCODING: Final = "UTF8"
# A failover, or a cable that was pulled: TCP alone would wait for a quarter of an hour.
_DEFAULTS: Final[Mapping[str, str]] = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    # Also if PGAPPNAME is set: `storage migrate` recognises other agents by it.
    "application_name": "hermes-plugins",
    # Of several hosts in the URL, the one that takes writes: a standby is passed over.
    "target_session_attrs": "read-write",
}
#: The variables that override our defaults, as they do those of libpq.
_VARIABLES: Final[Mapping[str, str]] = {
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
}


# -- connections -----------------------------------------------------------------------------


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


def _check_encoding(connection: Connection) -> None:
    """Raise if the database would refuse or garble what we store; before anything is sent."""
    found = connection.info.parameter_status("server_encoding")
    if found != _ENCODING:
        raise WrongEncoding(found or "of an unknown name")


@dataclass(frozen=True, slots=True)
class _Outage:
    """The server could not be reached: since when, why, and how long it took to find out."""

    at: float
    error: BaseException
    seconds: float = 0.0


# -- a database for all threads of a process -------------------------------------------------


class Database:
    """One namespace of one database, for all threads of a process.

    Connections are made when first needed. A forked child makes its own.

    Args:
        url: ``postgresql://user@host/database``; several hosts are tried in their order.
        namespace: Whose rows are seen.
        password: "" leaves it to PGPASSWORD, PGPASSFILE and what else libpq uses. A function is
            asked for it by the thread that connects: a keyring may be locked, or wait for a person.
        is_default: Nobody chose this namespace: if the login is bound to one, that is used.
        statement_seconds: How long one statement may take.
        connections: At most so many at a time; more threads wait.

    Every method raises `DatabaseError` if the database can't be used.
    """

    def __init__(
        self,
        url: str,
        namespace: str = "default",
        password: Password = "",
        *,
        is_default: bool = False,
        statement_seconds: float = STATEMENT_SECONDS,
        connections: int = _MOST_CONNECTIONS,
    ) -> None:
        self.namespace = namespace
        #: The address without anything secret, for messages and `status`.
        self.where = shown_address(url)
        self._url = url
        self._ask_password = password if callable(password) else None
        self._password = "" if callable(password) else password
        self._is_default = is_default
        self._copying = ""
        self._seconds = statement_seconds
        self._connections = connections
        self._lock = threading.RLock()
        self._pool: ConnectionPool[_LimitedConnection] | None = None
        self._in_use = 0
        self._ready: set[str] = set()
        self._preparing = threading.Lock()
        #: Why the last connection could not be made, and when somebody last asked for one.
        self._failure: _Outage | None = None
        self._asked = 0.0
        #: Why the server can't be used, until it could be used again.
        self._outage: _Outage | None = None
        self._next_trial = 0.0
        if (known := known_outage(url)) is not None:
            self._lost(psycopg.OperationalError(known.reason), known.seconds)
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
            self._found()

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
            self._found()

    def _begun(self, scope: Mapping[str, str] | None, seconds: float) -> _LimitedConnection:
        """A connection in a new transaction."""
        begin = sql.SQL("BEGIN; SELECT set_config('hermes.scope', {}, true)").format(
            json.dumps(dict(scope), ensure_ascii=False) if scope is not None else ""
        )
        if self._copying:
            begin += sql.SQL("; SELECT hermes.check_copy({})").format(self._copying)
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
        with (
            self.errors(),
            psycopg.connect(self._with_password(), autocommit=True) as connection,
        ):
            _check_encoding(connection)
            connection.execute(self._settings())
            self._agree(connection)
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
        patience = self._patience(seconds)
        begin = self._asked = monotonic()
        end = min(begin + patience, deadline())
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
        if outages_are_remembered():
            raise self._error(outage.error) from outage.error
        now = monotonic()
        if deadline() == inf:
            if now < outage.at + max(outage.seconds, _BACKGROUND_SECONDS):
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
            raise self._lost(failure.error, monotonic() - begin)
        if monotonic() < end:
            return
        if self._in_use >= self._connections:
            raise error
        raise self._lost(NoAnswer(end - begin), end - begin) from error

    def _lost(self, error: BaseException, seconds: float) -> BaseException:
        """Remember that the server can't be reached, why, and how long it took to find out."""
        if isinstance(error, NoAnswer) and not error.had_time:
            return error
        now = monotonic()
        with self._lock:
            self._outage = _Outage(now, error, seconds)
            self._next_trial = now + _OUTAGE_SECONDS
        # Not a wrong password: somebody may just have corrected it.
        if fault_of(error) is ServerFault.UNREACHABLE:
            note_outages([Outage(self._url, self._masked(reason_of(error)), seconds)])
        return error

    def _found(self) -> None:
        """The server answers."""
        if self._outage is not None:
            self._outage = None
            end_outage(self._url)

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
                    configure=self._configure_first,
                    # Whoever waits for a connection hears of a failure, and asks again later.
                    reconnect_timeout=0.001,
                    num_workers=1,
                    open=True,
                )
            return self._pool

    def _recording(self) -> type[_LimitedConnection]:
        """A class of connections that keeps why one could not be made: the pool does not say."""
        database = self

        class RecordingConnection(_LimitedConnection):
            @classmethod
            def connect(cls, *args: Any, **kwargs: Any) -> Any:
                failure = database._failure
                if failure is not None and failure.at >= database._asked:
                    # The pool tries each connection a second time. All who wait hear of the first
                    # attempt, so a command would wait for a second one that nobody needs.
                    raise psycopg.OperationalError(str(failure.error))
                try:
                    if database._ask_password is not None and (found := database._secret()):
                        kwargs["password"] = found
                    made = super().connect(*args, **kwargs)
                except psycopg.Error as error:
                    database._failure = _Outage(monotonic(), error)
                    raise
                database._failure = None
                return made

        return RecordingConnection

    def _secret(self) -> str:
        """The password; raises `NoPassword` if it can't be read."""
        if self._ask_password is not None:
            try:
                self._password = self._ask_password()
            except SecretsError as error:
                raise NoPassword(error) from error
        return self._password

    def _with_password(self) -> str:
        self._secret()
        return self._conninfo()

    def _conninfo(self) -> str:
        given = conninfo_to_dict(self._url)
        # Time for each of several hosts, the last of which may be the one that answers.
        hosts = str(given.get("host") or given.get("hostaddr") or "").count(",") + 1
        each = max(CONNECT_SECONDS // hosts, _SHORTEST_TIMEOUT)
        defaults = {
            name: value
            for name, value in {**_DEFAULTS, "connect_timeout": str(each)}.items()
            if not os.environ.get(_VARIABLES.get(name, ""))
        }
        values = {**defaults, **given, "client_encoding": _ENCODING}
        if self._password:
            values["password"] = self._password
        return make_conninfo("", **values)

    def _configure_first(self, connection: Connection) -> None:
        """Set up a new connection; the waiting caller gets the error."""
        try:
            self._configure(connection)
        except psycopg.Error as error:
            self._failure = _Outage(monotonic(), error)
            raise

    def _configure(self, connection: Connection) -> None:
        """Set up a connection of the pool: its limits, its role, and its namespace."""
        _check_encoding(connection)
        connection.execute(self._settings())
        if has_role(connection):
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(ROLE)))
        self._agree(connection)
        if isinstance(connection, _LimitedConnection):
            connection.seconds = self._seconds + _GRACE_SECONDS

    def _agree(self, connection: Connection) -> None:
        """Use the namespace that the login is bound to; raises if another one was chosen."""
        bound = bound_namespace(connection)
        if bound in ("", self.namespace):
            return
        if not self._is_default:
            raise WrongNamespace(connection.info.user, bound, self.namespace)
        self.namespace = bound
        connection.execute(self._settings())

    def _settings(self) -> sql.Composed:
        milliseconds = int(self._seconds * 1000)
        return sql.SQL(
            "SET search_path = {schema}; SET statement_timeout = {limit};"
            " SET lock_timeout = {limit}; SET idle_in_transaction_session_timeout = {idle};"
            " SET TimeZone = 'UTC'; SET default_transaction_isolation = 'read committed';"
            " SELECT set_config('hermes.namespace', {namespace}, false),"
            " set_config({copying}, {copy}, false)"
        ).format(
            schema=sql.Identifier(SCHEMA),
            limit=milliseconds,
            idle=_IDLE_SECONDS * 1000,
            namespace=self.namespace,
            copying=COPYING,
            copy=self._copying,
        )

    def copy_as(self, migration: str) -> None:
        """Store to a namespace that is frozen, for the migration with this id.

        Each transaction begins with a check that this is still its copy. "" ends that.
        """
        self._copying = migration
        self.close()

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
            raise self._lost(NoAnswer(left), left)
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
                self._lost(error, error.seconds)
            if fault_of(error) is ServerFault.READ_ONLY:
                # A failover has made a standby of it: a new connection finds the primary.
                self._discard(self._pool)
            raise self._error(error) from error

    def _error(self, error: BaseException) -> PostgresError:
        fault = fault_of(error)
        text = reason_of(error)
        if isinstance(error, PoolTimeout):
            text = f"all {self._connections} connections are in use"
        text = self._masked(text)
        if fault is ServerFault.MOVED:
            return PostgresError(text, where=self.where, hint=frozen_hint(text), fault=fault)
        what = f"PostgreSQL can't be used: {text}"
        hint = error.hint if isinstance(error, NoPassword) else HINTS[fault]
        return PostgresError(what, where=self.where, hint=hint, fault=fault)

    def _masked(self, text: str) -> str:
        return text.replace(self._password, "[password]") if self._password else text

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


# -- one for each database and namespace of a process ------------------------------------------


class _Databases:
    """Every `Database` of this process, by address and namespace."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[tuple[str, str, Password, bool], Database] = {}

    def get(self, url: str, namespace: str, password: Password, is_default: bool) -> Database:
        with self._lock:
            key = (url, namespace, password, is_default)
            if key not in self._all:
                self._all[key] = Database(url, namespace, password, is_default=is_default)
            return self._all[key]

    def known(
        self, url: str, namespace: str, password: Password, is_default: bool
    ) -> Database | None:
        return self._all.get((url, namespace, password, is_default))


# Module state, since the server limits how many connections there are: managers share theirs.
_DATABASES: Final = _Databases()


def shared_database(
    url: str, namespace: str, password: Password = "", *, is_default: bool = False
) -> Database:
    """The `Database` that all managers of this process share for an address and a namespace."""
    return _DATABASES.get(url, namespace, password, is_default)


def known_database(
    url: str, namespace: str, password: Password, *, is_default: bool = False
) -> Database | None:
    """The one that `shared_database` has returned; None if it was not called with these."""
    return _DATABASES.known(url, namespace, password, is_default)
