"""What is wrong with a server: errors of psycopg and libpq, in one line with what to do."""

from __future__ import annotations

from enum import Enum
from typing import Final

import psycopg
from psycopg_pool import PoolTimeout

from hermes_core.errors import DatabaseError, SecretsError
from hermes_core.storage.migration import FROZEN_STATE, MOVED_HINT

#: In less time than that, no server answers.
_LEAST_SECONDS: Final = 0.05


class ServerFault(Enum):
    """What is wrong with the server, as far as callers act on it."""

    UNREACHABLE = "unreachable"
    BUSY = "busy"
    READ_ONLY = "read-only"
    MOVED = "moved"
    DISK_FULL = "disk full"
    REFUSED = "refused"
    NAMESPACE = "namespace"
    ENCODING = "encoding"
    ADDRESS = "address"
    OTHER = "other"


class PostgresError(DatabaseError):
    """PostgreSQL can't be used; ``fault`` says in which way."""

    def __init__(self, what: str, *, where: str = "", hint: str = "", fault: ServerFault) -> None:
        super().__init__(what, where=where, hint=hint)
        self.fault = fault


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time. Nobody knows whether it did what it was asked for.

    Args:
        seconds: How much time it had. If there was none, because the call had used up its time
            before, that says nothing about the server.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.had_time = seconds >= _LEAST_SECONDS
        had = f"no answer within {seconds:.1f} s"
        super().__init__(had if self.had_time else "the call had used up its time")


class NoPassword(psycopg.OperationalError):
    """The password is in a store that can't be read now."""

    def __init__(self, error: SecretsError) -> None:
        super().__init__(f"the password HERMES_STORAGE_PASSWORD can't be read: {error.what}")
        self.hint = error.hint


class WrongNamespace(psycopg.OperationalError):
    """The login is bound to another namespace than the one that was chosen."""

    def __init__(self, login: str, bound: str, chosen: str) -> None:
        super().__init__(
            f"the login {login} is bound to the namespace {bound}, "
            f"but memory.storage_namespace is {chosen}"
        )


class WrongEncoding(psycopg.OperationalError):
    """The database can't store every character, or does not know which ones it stores."""

    def __init__(self, encoding: str) -> None:
        super().__init__(f"the database has the encoding {encoding}; it must be UTF8")


HINTS: Final = {
    ServerFault.UNREACHABLE: "check that the server is running and that memory.storage is right",
    ServerFault.BUSY: "try again; if it persists, look at the server's load and max_connections",
    ServerFault.READ_ONLY: "name the primary in memory.storage, or all hosts, separated by commas",
    ServerFault.MOVED: MOVED_HINT,  # but see `frozen_hint`
    ServerFault.DISK_FULL: "free some disk space on the server; what was stored before is safe",
    ServerFault.REFUSED: (
        "check the user and its rights, the password (HERMES_STORAGE_PASSWORD) and the database"
    ),
    ServerFault.NAMESPACE: (
        "set memory.storage_namespace to the namespace of the login, or remove the setting"
    ),
    ServerFault.ENCODING: (
        "it was not changed; set memory.storage to a database that was created with "
        "ENCODING 'UTF8' TEMPLATE template0"
    ),
    ServerFault.ADDRESS: "correct memory.storage, or the PG* variables",
    ServerFault.OTHER: "",
}

# By SQLSTATE; the longest beginning counts.
_FAULTS: Final = {
    "08": ServerFault.UNREACHABLE,
    "57P": ServerFault.UNREACHABLE,  # the server shuts down, starts, or crashed
    "25006": ServerFault.READ_ONLY,
    FROZEN_STATE: ServerFault.MOVED,
    "53": ServerFault.BUSY,
    "53100": ServerFault.DISK_FULL,
    "57014": ServerFault.BUSY,  # statement_timeout
    "55P03": ServerFault.BUSY,  # lock_timeout
    "40": ServerFault.BUSY,  # a deadlock, or serialisation
    "28": ServerFault.REFUSED,
    "3D000": ServerFault.REFUSED,
    "42501": ServerFault.REFUSED,
}
# What libpq says before there is an SQLSTATE: while connecting.
_TEXTS: Final = (
    ("session is read-only", ServerFault.READ_ONLY),
    ("server is in hot standby mode", ServerFault.READ_ONLY),
    ("too many clients", ServerFault.BUSY),
    ("too many connections", ServerFault.BUSY),
    ("remaining connection slots", ServerFault.BUSY),
    ("the database system is ", ServerFault.UNREACHABLE),  # it starts, shuts down or recovers
    ("invalid port number", ServerFault.ADDRESS),
    ("authentication failed", ServerFault.REFUSED),
    ("no password supplied", ServerFault.REFUSED),
    ("no pg_hba.conf entry", ServerFault.REFUSED),
    ("role ", ServerFault.REFUSED),
    ("database ", ServerFault.REFUSED),
    ("No space left on device", ServerFault.DISK_FULL),
)


def fault_of(error: BaseException | None) -> ServerFault:
    """What an error, or the one that it wraps, says about the server."""
    if isinstance(error, PostgresError):
        return error.fault
    if isinstance(error, DatabaseError):
        return fault_of(error.__cause__)
    if isinstance(error, PoolTimeout) or (isinstance(error, NoAnswer) and not error.had_time):
        return ServerFault.BUSY
    if not isinstance(error, psycopg.Error):
        return ServerFault.OTHER
    return _server_fault(error)


def _server_fault(error: psycopg.Error) -> ServerFault:
    if isinstance(error, NoPassword):
        return ServerFault.REFUSED
    if isinstance(error, WrongNamespace):
        return ServerFault.NAMESPACE
    if isinstance(error, WrongEncoding):
        return ServerFault.ENCODING
    if error.sqlstate:
        beginnings = (error.sqlstate[:length] for length in range(len(error.sqlstate), 0, -1))
        return next((_FAULTS[each] for each in beginnings if each in _FAULTS), ServerFault.OTHER)
    otherwise = isinstance(error, psycopg.OperationalError)
    found = (fault for part, fault in _TEXTS if part in str(error))
    return next(found, ServerFault.UNREACHABLE if otherwise else ServerFault.OTHER)


def is_temporary(error: BaseException) -> bool:
    """Whether it may succeed later: the server is unreachable, busy, full, a standby, or left."""
    return fault_of(error) in (
        ServerFault.UNREACHABLE,
        ServerFault.BUSY,
        ServerFault.READ_ONLY,
        ServerFault.DISK_FULL,
        ServerFault.MOVED,
    )


def is_undone(error: BaseException | None) -> bool:
    """Whether the server undid a transaction because of others: a deadlock, or serialisation."""
    while isinstance(error, DatabaseError):
        error = error.__cause__
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("40")


def reason_of(error: BaseException) -> str:
    """The first line of an error's text; libpq adds what was tried, and SQL its context."""
    diagnosis = getattr(getattr(error, "diag", None), "message_primary", None)
    lines = [each.strip() for each in str(diagnosis or error).splitlines() if each.strip()]
    if not lines:
        return type(error).__name__
    # With several hosts, the last line is about the last one of them.
    several = [each for each in lines if not each.startswith("Is the server running")]
    line = several[-1] if lines[0].startswith("Multiple connection attempts") else lines[0]
    return line.removeprefix("connection failed: ")
