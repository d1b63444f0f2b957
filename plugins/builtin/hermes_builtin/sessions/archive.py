"""What an archive of conversations can do, whatever it is made of.

The tool and the commands know this and nothing of SQLite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from hermes_builtin.sessions._model import (
    Found,
    Message,
    NewMessage,
    Scope,
    Session,
    SessionFacts,
)
from hermes_builtin.sessions._query import Query

Progress = Callable[[int, int], None]


class SearchOptions(NamedTuple):
    """How to search: for whom, how much, in which order, and what to leave out."""

    scope: Scope
    roles: frozenset[str]
    limit: int
    newest: bool | None = None
    without: tuple[str, ...] = ()
    hidden: bool = False


class Window(NamedTuple):
    """A stretch of a conversation, and how much there is on either side of it."""

    messages: list[Message]
    before: int
    after: int


class Stats(NamedTuple):
    """How much an archive holds."""

    sessions: int
    messages: int
    oldest: float | None
    newest: float | None
    bytes: int
    by_source: dict[str, int]


class Problem(NamedTuple):
    """Something that is wrong. ``index_only`` if the conversations themselves are whole."""

    what: str
    index_only: bool = False


class Archive(Protocol):
    """Every conversation, in the order in which it was said."""

    def append(self, facts: SessionFacts, messages: Sequence[NewMessage]) -> list[int]:
        """Keep messages, all or none; the session is begun if it is new. Gives their ids."""

    def end(self, session_id: str, at: float, scope: Scope) -> None:
        """Note when a session ended, if it may be seen."""

    def session(self, session_id: str, scope: Scope) -> Session | None:
        """One session, if it may be seen."""

    def names(self, session_id: str, scope: Scope) -> tuple[str, ...]:
        """What a session of this name may be called in the archive."""

    def lineage(self, session: Session) -> list[str]:
        """The ids of a session and of those that it continues, up to the first."""

    def browse(self, scope: Scope, limit: int, *, hidden: bool = False) -> list[Session]:
        """The sessions with the newest messages."""

    def search(self, query: Query, options: SearchOptions) -> Found:
        """The sessions that say most of what a query asks for."""

    def around(
        self, session: Session, message_id: int, window: int, roles: Iterable[str]
    ) -> Window:
        """The messages on either side of one, and that one."""

    def first(self, session: Session, count: int, roles: Iterable[str] = ()) -> list[Message]:
        """How a session begins."""

    def last(self, session: Session, count: int, roles: Iterable[str] = ()) -> list[Message]:
        """How a session ends, in order."""

    def messages(self, session: Session) -> Iterator[Message]:
        """All that was said in a session."""

    def sessions(self, scope: Scope) -> Iterator[Session]:
        """All sessions, the oldest first."""

    def imported(self, origin: str, session: str) -> int:
        """How much of a session of somebody else was taken over before; of anybody for ""."""

    def take_over(
        self, origin: str, position: int, facts: SessionFacts, messages: Sequence[NewMessage]
    ) -> None:
        """Keep messages of somebody else, and that it was done up to ``position``."""

    def delete(self, sessions: Sequence[Session], progress: Progress | None = None) -> int:
        """Forget sessions; gives the number of messages that are gone."""

    def stats(self) -> Stats:
        """How much there is."""

    def check(self, progress: Progress | None = None) -> list[Problem]:
        """Look at everything, also with the queries that the tool uses."""

    def repair(self, progress: Progress | None = None) -> dict[str, Any]:
        """Make it whole again, from a verified copy; says what was done."""

    def close(self) -> None:
        """Let go of it."""
