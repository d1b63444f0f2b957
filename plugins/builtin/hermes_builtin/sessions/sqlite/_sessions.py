"""Sessions in the tables: which there are, who may see them, where they come from."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final

from hermes_builtin.sessions._model import Scope, Session

_COLUMNS: Final = ", ".join(Session._fields)
_LARGEST: Final = 1e15


class Sessions:
    """The sessions as seen through one connection."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._parents: dict[str, str] = {}

    def by_id(self, session_id: str) -> Session | None:
        """The session of this name."""
        return next(self._where("id = ?", session_id), None)

    def by_number(self, numbers: Iterable[int]) -> Iterator[Session]:
        """Sessions by their numbers, the largest first."""
        wanted = f"[{','.join(map(str, numbers))}]"
        return self._where(
            "number IN (SELECT value FROM json_each(?)) ORDER BY number DESC", wanted
        )

    def newest(
        self,
        scope: Scope,
        limit: int,
        *,
        oldest: bool = False,
        after: float | None = None,
        before: float | None = None,
    ) -> Iterator[Session]:
        """The sessions that may be seen, those with the newest messages first, or the oldest.

        With ``after`` and ``before`` only those that were going on in that time.
        """
        given: dict[str, object] = {
            f"{name} = ?": value for name, value in zip(scope._fields, scope, strict=True) if value
        }
        given |= {} if after is None else {"active >= ?": after}
        given |= {} if before is None else {"started < ?": before}
        where = " AND ".join(given) or "1"
        values = list(given.values())
        order = "active, number" if oldest else "active DESC, number DESC"
        return self._where(f"{where} ORDER BY {order} LIMIT ?", *values, limit)

    def in_times(self, times: Iterable[tuple[float, float]], limit: int) -> Iterator[Session]:
        """Sessions that were going on in one of these times, at most so many of each."""
        for begin, end in times:
            yield from self._where(
                "active >= ? AND started <= ? ORDER BY active LIMIT ?", begin, end, limit
            )

    def times(self, numbers: Iterable[int]) -> Iterator[tuple[int, float]]:
        """When sessions had their last message."""
        return self._database.execute(
            "SELECT number, active FROM archive_sessions"
            " WHERE number IN (SELECT value FROM json_each(?))",
            (f"[{','.join(map(str, numbers))}]",),
        )

    @staticmethod
    def is_in(session: Session, scope: Scope) -> bool:
        """Whether a session may be seen."""
        return all(
            not wanted or getattr(session, name) == wanted
            for name, wanted in zip(scope._fields, scope, strict=True)
        )

    def lineage(self, session: Session) -> list[str]:
        """The ids of a session and of those that it continues."""
        return self._climbed(session.id, session.parent)

    def root_of(self, session_id: str) -> str:
        """The first session of the lineage of a session, which need not be there."""
        return self._climbed(session_id, self._parent(session_id))[-1]

    def _climbed(self, session_id: str, parent: str) -> list[str]:
        found = dict.fromkeys([session_id])
        while parent and parent not in found:
            found[parent] = None
            parent = self._parent(parent)
        return list(found)

    def root(self, session: Session) -> str:
        """The first session of a lineage."""
        return self.lineage(session)[-1] if session.parent else session.id

    def _parent(self, session_id: str) -> str:
        """The session that one continues; remembered, since many may share a lineage."""
        if session_id not in self._parents:
            row = self._database.execute(
                "SELECT parent FROM archive_sessions WHERE id = ?", (session_id,)
            ).fetchone()
            self._parents[session_id] = row[0] if row and isinstance(row[0], str) else ""
        return self._parents[session_id]

    def _where(self, condition: str, *values: object) -> Iterator[Session]:
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM archive_sessions WHERE {condition}",  # noqa: S608
            values,
        )
        return map(_session, rows)


def _session(row: tuple[Any, ...]) -> Session:
    """A session, whatever damage has made of its columns."""
    texts = [text if isinstance(text, str) else "" for text in row[1:8]]
    started, ended, active, messages = row[8:]
    return Session._make(
        (
            row[0],
            *texts,
            _number(started),
            None if ended is None else _number(ended),
            _number(active),
            int(_number(messages)),
        )
    )


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and abs(value) < _LARGEST
    return float(value) if is_number else 0.0
