"""What a Honcho server keeps: workspaces, peers, sessions, messages and conclusions, in SQLite.

The limits, the answers and the order of things are those of server 3.0.12. Only the models are
missing: a sentence that somebody says becomes a conclusion as it stands, and what is like what
is told by the words that two texts share.
"""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

_TABLES = """
CREATE TABLE IF NOT EXISTS workspaces (id TEXT PRIMARY KEY, body TEXT);
CREATE TABLE IF NOT EXISTS peers (workspace TEXT, id TEXT, body TEXT, PRIMARY KEY (workspace, id));
CREATE TABLE IF NOT EXISTS sessions (
    workspace TEXT, id TEXT, body TEXT, PRIMARY KEY (workspace, id));
CREATE TABLE IF NOT EXISTS members (
    workspace TEXT, session TEXT, peer TEXT, me INTEGER, others INTEGER,
    joined INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (workspace, session, peer));
CREATE TABLE IF NOT EXISTS messages (
    n INTEGER PRIMARY KEY, workspace TEXT, session TEXT, peer TEXT, body TEXT);
CREATE TABLE IF NOT EXISTS conclusions (
    n INTEGER PRIMARY KEY, workspace TEXT, id TEXT, observer TEXT, observed TEXT, body TEXT);
CREATE TABLE IF NOT EXISTS cards (
    workspace TEXT, observer TEXT, observed TEXT, card TEXT,
    PRIMARY KEY (workspace, observer, observed));
"""
OBSERVERS = 10  # of one session
_LATER = 2  # a deletion that was accepted is carried out so many requests later
_SENTENCES = 20  # of one message, so that a megabyte does not become 38,000 conclusions
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a about an and are as at be by called did do for has have how i in is it me my of on or "
        "our said that the this to was we what when where which who with you your",
    )
)


class Refused(Exception):  # noqa: N818 - reads as what happened
    """The server does not do what it was asked."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail


class Pair(NamedTuple):
    """Who knows something, and of whom."""

    observer: str
    observed: str


class Work(NamedTuple):
    """What the deriver has to do: whose words to draw conclusions from."""

    workspace: str
    session: str
    peer: str
    text: str


class Store:
    """All that a server knows. Its caller sees to it that one request is served at a time.

    ``deriver`` says whether the second process runs, which draws conclusions and carries out
    deletions. What it has not done waits in ``waiting``.
    """

    def __init__(self, path: str = ":memory:") -> None:
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.executescript(_TABLES)
        self.deriver = True
        self.waiting: list[Work] = []
        self.done = 0
        self._deletions: list[list[Any]] = []

    def close(self) -> None:
        self._db.close()

    def begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def end(self, *, keep: bool) -> None:
        self._db.execute("COMMIT" if keep else "ROLLBACK")

    def work(self) -> None:
        """What the deriver does between two requests."""
        if not self.deriver:
            return
        work, self.waiting = self.waiting, []
        for each in work:
            self._derive(each)
        for each in self._deletions:
            each[0] -= 1
        due = [each for each in self._deletions if each[0] <= 0]
        self._deletions = [each for each in self._deletions if each[0] > 0]
        for _, delete, names in due:
            delete(*names)

    def later(self, delete: Any, *names: str) -> None:
        """Accept a deletion, which is carried out in the background."""
        self._deletions.append([_LATER, delete, names])

    # -- workspaces, peers and sessions -----------------------------------------------------------

    def workspace(self, name: str, given: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Whether it is new, and what it is."""
        row = self._one("SELECT body FROM workspaces WHERE id = ?", name)
        if row:
            return False, json.loads(row[0])
        made = {"id": name, **_extras(given), "created_at": now()}
        self._db.execute("INSERT INTO workspaces VALUES (?, ?)", (name, json.dumps(made)))
        return True, made

    def require_workspace(self, name: str) -> None:
        if not self._one("SELECT 1 FROM workspaces WHERE id = ?", name):
            raise Refused(404, f"Workspace {name} not found")

    def workspaces(self) -> list[dict[str, Any]]:
        return [json.loads(row[0]) for row in self._db.execute("SELECT body FROM workspaces")]

    def require_no_sessions(self, name: str) -> None:
        self.require_workspace(name)
        if any(each["is_active"] for each in self.sessions(name)):
            raise Refused(409, f"Workspace {name} has active sessions")

    def delete_workspace(self, name: str) -> None:
        for table in ("peers", "members", "messages", "conclusions", "cards"):
            self._db.execute(f"DELETE FROM {table} WHERE workspace = ?", (name,))
        self._db.execute("DELETE FROM workspaces WHERE id = ?", (name,))

    def peer(
        self, workspace: str, name: str, given: Mapping[str, Any]
    ) -> tuple[bool, dict[str, Any]]:
        row = self._one("SELECT body FROM peers WHERE workspace = ? AND id = ?", workspace, name)
        if row:
            return False, json.loads(row[0])
        made = {"id": name, "workspace_id": workspace, "created_at": now(), **_extras(given)}
        row_ = (workspace, name, json.dumps(made))
        self._db.execute("INSERT INTO peers VALUES (?, ?, ?)", row_)
        return True, made

    def require_peer(self, workspace: str, name: str) -> None:
        if not self._one("SELECT 1 FROM peers WHERE workspace = ? AND id = ?", workspace, name):
            raise Refused(404, f"Peer {name} not found in workspace {workspace}")

    def session(
        self, workspace: str, name: str, given: Mapping[str, Any]
    ) -> tuple[bool, dict[str, Any]]:
        found = self._one("SELECT body FROM sessions WHERE workspace = ? AND id = ?",
                          workspace, name)  # fmt: skip
        if found:
            return False, json.loads(found[0])
        made = {
            "id": name, "is_active": True, "workspace_id": workspace,
            **_extras(given), "created_at": now(),
        }  # fmt: skip
        row = (workspace, name, json.dumps(made))
        self._db.execute("INSERT INTO sessions VALUES (?, ?, ?)", row)
        return True, made

    def require_session(self, workspace: str, name: str) -> dict[str, Any]:
        row = self._one("SELECT body FROM sessions WHERE workspace = ? AND id = ?",
                        workspace, name)  # fmt: skip
        if not row:
            raise Refused(404, f"Session {name} not found in workspace {workspace}")
        found: dict[str, Any] = json.loads(row[0])
        return found

    def sessions(self, workspace: str) -> list[dict[str, Any]]:
        rows = self._db.execute("SELECT body FROM sessions WHERE workspace = ?", (workspace,))
        return [json.loads(row[0]) for row in rows]

    def delete_session(self, workspace: str, name: str) -> None:
        self.require_session(workspace, name)
        key = (workspace, name)
        for table in ("members", "messages"):
            self._db.execute(f"DELETE FROM {table} WHERE workspace = ? AND session = ?", key)
        self._db.execute(
            "DELETE FROM conclusions WHERE workspace = ? AND body ->> 'session_id' = ?", key
        )
        self._db.execute("DELETE FROM sessions WHERE workspace = ? AND id = ?", key)

    def update_session(self, workspace: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        made = self.require_session(workspace, name)
        made |= {key: value for key, value in given.items() if value is not None}
        self._db.execute("UPDATE sessions SET body = ? WHERE workspace = ? AND id = ?",
                         (json.dumps(made), workspace, name))  # fmt: skip
        return made

    def sessions_of(self, workspace: str, peer: str) -> list[dict[str, Any]]:
        """Those that somebody takes part in."""
        rows = self._db.execute(
            "SELECT body FROM sessions JOIN members ON members.workspace = sessions.workspace"
            " AND members.session = sessions.id WHERE sessions.workspace = ? AND peer = ?"
            " ORDER BY sessions.rowid",
            (workspace, peer),
        )
        return [json.loads(row[0]) for row in rows]

    def peers(self, workspace: str) -> list[dict[str, Any]]:
        rows = self._db.execute("SELECT body FROM peers WHERE workspace = ?", (workspace,))
        return [json.loads(row[0]) for row in rows]

    def join(self, workspace: str, session: str, peers: Mapping[str, Any]) -> None:
        """Add peers; one that is there already keeps what was set for it.

        Whoever is named has joined just now, also if they were there before.
        """
        now_at = self._one("SELECT coalesce(max(n), 0) FROM messages")
        for name, config in peers.items():
            self.peer(workspace, name, {})
            me, others = config.get("observe_me"), config.get("observe_others")
            self._db.execute(
                "INSERT INTO members VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET joined = excluded.joined",
                (workspace, session, name, me, others, now_at[0] if now_at else 0),
            )
        self._require_few_observers(workspace, session)

    def configure(self, workspace: str, session: str, peer: str, config: Mapping[str, Any]) -> None:
        """Change what is set for somebody in a session."""
        self._db.execute(
            "UPDATE members SET me = ?, others = ? WHERE (workspace, session, peer) = (?, ?, ?)",
            (config.get("observe_me"), config.get("observe_others"), workspace, session, peer),
        )
        self._require_few_observers(workspace, session)

    def _require_few_observers(self, workspace: str, session: str) -> None:
        seen = self.members(workspace, session).values()
        if sum(1 for each in seen if each["observe_others"]) > OBSERVERS:
            raise Refused(400, f"Session {session} has more than {OBSERVERS} observers")

    def members(self, workspace: str, session: str) -> dict[str, dict[str, bool | None]]:
        rows = self._db.execute(
            "SELECT peer, me, others FROM members WHERE workspace = ? AND session = ?",
            (workspace, session),
        )
        return {
            peer: {"observe_me": _flag(me), "observe_others": _flag(others)}
            for peer, me, others in rows
        }

    # -- messages ---------------------------------------------------------------------------------

    def add_messages(
        self, workspace: str, session: str, given: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        self.session(workspace, session, {})
        self.join(workspace, session, {each["peer_id"]: {} for each in given})
        return [self._add_message(workspace, session, each) for each in given]

    def _add_message(self, workspace: str, session: str, given: dict[str, Any]) -> dict[str, Any]:
        text, peer = given["content"], given["peer_id"]
        if "\0" in text:
            raise Refused(500, "An unexpected error occurred")  # PostgreSQL takes no NUL
        made = {
            "id": new_id(), "content": text, "peer_id": peer, "session_id": session,
            "metadata": given.get("metadata") or {},
            "created_at": given.get("created_at") or now(),
            "workspace_id": workspace, "token_count": len(text) // 4,
        }  # fmt: skip
        row = (workspace, session, peer, json.dumps(made))
        self._db.execute("INSERT INTO messages VALUES (NULL, ?, ?, ?, ?)", row)
        work = Work(workspace, session, peer, text)
        if self.deriver:
            self._derive(work)
        else:
            self.waiting.append(work)
        return made

    def _derive(self, work: Work) -> None:
        """What the deriver concludes: who may know something of whom, the session says."""
        workspace, session, peer, text = work
        self.done += 1
        members = self.members(workspace, session)
        switched = self.require_session(workspace, session)["configuration"]
        thinks = (switched.get("reasoning") or {}).get("enabled") is not False
        if members[peer]["observe_me"] is False or not thinks:
            return
        observers = [peer, *(name for name, each in members.items() if each["observe_others"])]
        for sentence in _sentences(text)[:_SENTENCES]:
            for observer in dict.fromkeys(observers):
                self.conclude(workspace, Pair(observer, peer), f"{peer} said: {sentence}", session)

    def messages(self, workspace: str, session: str = "") -> list[dict[str, Any]]:
        rows = self._db.execute(
            "SELECT body FROM messages WHERE workspace = ? AND ? IN ('', session) ORDER BY n",
            (workspace, session),
        )
        return [json.loads(row[0]) for row in rows]

    def heard(self, workspace: str, peer: str) -> list[dict[str, Any]]:
        """What was said since somebody joined, in each of their sessions."""
        rows = self._db.execute(
            "SELECT body FROM messages JOIN members ON members.workspace = messages.workspace"
            " AND members.session = messages.session WHERE messages.workspace = ?"
            " AND members.peer = ? AND messages.n > members.joined ORDER BY messages.n",
            (workspace, peer),
        )
        return [json.loads(row[0]) for row in rows]

    # -- conclusions ------------------------------------------------------------------------------

    def conclude(
        self, workspace: str, pair: Pair, content: str, session: str | None
    ) -> dict[str, Any]:
        made = {
            "id": new_id(), "content": content, "observer_id": pair.observer,
            "observed_id": pair.observed, "session_id": session, "level": "explicit",
            "created_at": now(),
        }  # fmt: skip
        row = (workspace, made["id"], *pair, json.dumps(made))
        self._db.execute("INSERT INTO conclusions VALUES (NULL, ?, ?, ?, ?, ?)", row)
        return made

    def conclusions(self, workspace: str, pair: Pair | None = None) -> list[dict[str, Any]]:
        """The newest first."""
        where, more = ("", ()) if pair is None else (" AND observer = ? AND observed = ?", pair)
        rows = self._db.execute(
            f"SELECT body FROM conclusions WHERE workspace = ?{where} ORDER BY n DESC",
            (workspace, *more),
        )
        return [json.loads(row[0]) for row in rows]

    def delete_conclusion(self, workspace: str, name: str) -> None:
        done = self._db.execute(
            "DELETE FROM conclusions WHERE workspace = ? AND id = ?", (workspace, name)
        )
        if not done.rowcount:
            raise Refused(404, f"Conclusion {name} not found")

    def card(self, workspace: str, pair: Pair) -> list[str] | None:
        row = self._one(
            "SELECT card FROM cards WHERE workspace = ? AND observer = ? AND observed = ?",
            workspace, *pair,
        )  # fmt: skip
        return json.loads(row[0]) if row else None

    def set_card(self, workspace: str, pair: Pair, card: list[str]) -> None:
        row = (workspace, *pair, json.dumps(card))
        self._db.execute("INSERT OR REPLACE INTO cards VALUES (?, ?, ?, ?)", row)

    def _one(self, query: str, *values: str) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._db.execute(query, values).fetchone()
        return found


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def new_id() -> str:
    return secrets.token_urlsafe(16)[:21]


def ranked(
    query: str, items: Iterable[dict[str, Any]], limit: int, *, nearest: bool = True
) -> list[dict[str, Any]]:
    """What shares words with a query, the best first.

    Args:
        query: What is looked for.
        items: What has a ``content``.
        limit: So many.
        nearest: If nothing does, give the first ones: a search by meaning always finds something.
    """
    known = list(items)
    wanted = _words(query)
    scored = [(len(wanted & _words(each["content"])), each) for each in known]
    hits = sorted((each for each in scored if each[0]), key=lambda each: -each[0])
    found = [each for _, each in hits] or (known if nearest else [])
    return found[:limit]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower())) - _COMMON


def _sentences(text: str) -> list[str]:
    parts = re.split(r"(?<=[.!?。])\s+|\n+", text)
    return [part.strip() for part in parts if part.strip()]


def _extras(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": given.get("metadata") or {},
            "configuration": given.get("configuration") or {}}  # fmt: skip


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)
