"""Conversations of several machines: messages are only added, until a session is deleted.

A deletion says how far its machine had read each log: messages up to there are deleted, and what
another machine adds at the same time stays. A message that `forget` gave another text is replaced
by that one. The title with the latest time counts.

A message may be said several times at the same time. Its copies can't be told apart, so only their
number counts: as many as the logs have names for it, and those that are not sent yet.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from hermes_builtin.sessions.archive import (
    DELETED,
    EVERYBODY,
    REPLACED,
    Archive,
    Message,
    Scope,
    Session,
    SessionFacts,
    deleted_session,
)
from hermes_builtin.sessions.words import storable
from hermes_builtin.sync.log import (
    MOST_CHARACTERS,
    MOST_LINES,
    Line,
    MachineLog,
    Record,
    in_steps,
    last_line,
)
from hermes_builtin.sync.message_names import Copies, MessageNames, moment_of
from hermes_builtin.sync.session_lines import (
    DELETE,
    FACTS,
    KINDS,
    MESSAGE,
    REPLACE,
    SESSION,
    FactsMissingError,
    fold_deletion,
    fold_message,
    fold_replacement,
    read_message,
    session_line,
)
from hermes_builtin.sync.state import State, Tag
from hermes_core.session import TERMINAL

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class SessionsResult:
    """What happened to the conversations."""

    sessions: int = 0
    messages: int = 0
    deleted: int = 0
    sent_sessions: int = 0
    sent_messages: int = 0
    sent_deletions: int = 0


class KnownSession(NamedTuple):
    """What is known of a session: see the table ``sessions`` of the state."""

    messages: int = -1
    active: float = 0.0
    title: str = ""
    stamp: float = 0.0
    stamped_by: str = ""
    ended: float | None = None


class _Changes(NamedTuple):
    """What is new in a session.

    Attributes:
        new: Messages by their names.
        gone: The names of replaced messages, by when they were said.
        total: How many messages it has.
        title: Its new title; None if that is not new.
    """

    new: Mapping[str, Message]
    gone: Mapping[str, list[str]]
    total: int
    title: str | None
    #: The tags of messages whose lines our log has lost.
    lost: Mapping[str, Tag] = {}


def _hashed(title: str) -> str:
    return sha256(title.encode("utf-8", "surrogatepass")).hexdigest()[:16] if title else ""


class SessionsSync:
    """The conversations of a home, and what the logs say about them."""

    def __init__(
        self,
        archive: Archive,
        state: State,
        result: SessionsResult,
        clock: Callable[[], float],
    ) -> None:
        self.archive = archive
        self.state = state
        self.result = result
        self._clock = clock
        self.found: dict[str, Session] | None = None
        #: The sessions that got messages.
        self.touched: set[str] = set()

    def _sessions(self) -> dict[str, Session]:
        if self.found is None:
            self.found = {each.key: each for each in self.archive.sessions(EVERYBODY)}
        return self.found

    def session(self, key: str) -> Session | None:
        """A session as it is now, not as it was when all were read."""
        found = self._sessions().get(key)
        return None if found is None else self.archive.session(found.id, EVERYBODY)

    def remember(self, key: str, facts: SessionFacts) -> None:
        """A session was begun."""
        place = facts.platform or facts.source or TERMINAL
        owner = Scope(*map(storable, (facts.user_id, facts.chat_id, facts.profile, place)))
        found = self.archive.session(facts.id, owner)
        if found is not None:
            self._sessions()[key] = found

    def stored(self, key: str) -> KnownSession:
        """What is known of a session."""
        rows = self.state.rows(
            "SELECT messages, active, title, stamp, stamped_by, ended FROM sessions"
            " WHERE session = ?",
            key,
        )
        return KnownSession(*rows[0]) if rows else KnownSession()

    @staticmethod
    def store(database: sqlite3.Connection, key: str, stored: KnownSession) -> None:
        """Store what is known of a session."""
        database.execute(
            "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)", (key, *stored)
        )

    # -- deletions here -------------------------------------------------------------------

    def publish_deletions(self, *, dry_run: bool = False) -> None:
        """Append which sessions were deleted here since the last time."""
        marks = self._new_marks(DELETED)
        sizes: dict[str, int] = {}
        for mark in marks:
            key, size = deleted_session(mark)
            sizes[key] = max(sizes.get(key, 0), size)
        known = {key: seen for key, size in sizes.items() if (seen := self._seen(key, size))}
        self.result.sent_deletions += len(known)
        if dry_run or not marks:
            return
        with self.state.publishing() as publish, self.state.transaction() as database:
            for key, seen in known.items():
                publish({"type": DELETE, "session": key, "seen": seen})
                fold_deletion(database, key, seen)
                self.state.set(erase="yes")
            database.executemany("INSERT INTO marks VALUES (?)", [(each,) for each in marks])

    def ignore_marks(self) -> None:
        """What was deleted before the first sync is nothing to tell."""
        marks = [*self._new_marks(DELETED), *self._new_marks(REPLACED)]
        with self.state.transaction() as database:
            database.executemany("INSERT INTO marks VALUES (?)", [(each,) for each in marks])

    def _new_marks(self, prefix: str) -> list[str]:
        known = {mark for (mark,) in self.state.rows("SELECT mark FROM marks")}
        return [each for each in self.archive.marked(prefix) if each not in known]

    def _seen(self, key: str, size: int) -> dict[str, int]:
        """How far each log was read for a session that had so many messages when it was deleted.

        Empty if nothing of the session is shared.
        """
        query = "SELECT machine, max(seq) FROM messages WHERE session = ? GROUP BY machine"
        known: dict[str, int] = dict(self.state.rows(query, key))
        storing = json.loads(self.state.get("storing") or "{}")
        # A run was interrupted around one call of the archive: had that stored its messages?
        if storing.get("session") == key and size >= storing["size"]:
            known[storing["machine"]] = max(known.get(storing["machine"], 0), storing["seq"])
        read = dict(self.state.rows("SELECT machine, sessions FROM logs")) if known else {}
        machines = sorted({*known, *read})
        return {each: max(known.get(each, 0), read.get(each, 0)) for each in machines}

    # -- what was said here ---------------------------------------------------------------

    def publish_replaced(self) -> None:
        """Append which texts were replaced here, before a log is read that still has them."""
        self.remove_deleted()
        self._finish_storing()
        if self._new_marks(REPLACED):
            self.publish()
            self.found = None

    def _finish_storing(self) -> None:
        """Find out what the archive had stored when a run was interrupted around a call of it."""
        storing = json.loads(self.state.get("storing") or "{}")
        if not storing:
            return
        key, session = str(storing["session"]), self.session(storing["session"])
        stored = [] if session is None else list(self._interrupted(session, storing))
        with self.state.transaction() as database:
            for seq, name, moment in stored:
                tag = Tag(storing["machine"], seq)
                if not self.is_deleted(key, tag):
                    fold_message(database, key, name, moment, tag)
                    if storing.get("old"):
                        fold_replacement(database, key, storing["old"])
            self.state.set(storing="")

    def _interrupted(self, session: Session, storing: Record) -> Iterator[tuple[int, str, str]]:
        """The messages of an interrupted call that are here, or were and have another text now."""
        messages = storing.get("messages", [])
        names = [*self.known_names(session.key), *(name for _, name, _ in messages)]
        # The name of what was replaced comes last, so a copy has it only if that was not done.
        old = storing.get("old", "")
        names = [*dict.fromkeys(name for name in names if name != old), old]
        named = _named(self.archive.messages(session), MessageNames(names))
        local = {name: moment_of(each) for name, each in named}
        others = {moment for name, moment in local.items() if name not in names}
        may_differ = session.messages >= storing["size"] and bool(self._new_marks(REPLACED))
        for seq, name, moment in messages if old not in local else ():
            if name in local or (may_differ and moment in others):
                yield seq, name, moment

    def known_names(self, key: str) -> list[str]:
        """The names of the messages of a session that the logs have."""
        query = "SELECT DISTINCT id FROM messages WHERE session = ? ORDER BY length(id), id"
        return [name for (name,) in self.state.rows(query, key)]

    def copies(self, key: str) -> Copies:
        """The messages of a session that are here, and those that the logs have."""
        session = self.session(key)
        return Copies(
            () if session is None else self.archive.messages(session), self.known_names(key)
        )

    def remove_deleted(self) -> None:
        """Remove the messages that another machine has deleted, by how many copies are left.

        The state says so before it is done, so a run that was interrupted removes none twice.
        """
        removing = json.loads(self.state.get("removing") or "[]")
        if not removing:
            return
        key, left = removing
        session = self.session(key)
        if session is not None:
            copies = Copies(self.archive.messages(session), ())
            self.archive.remove(session, copies.beyond(left))
            self.found = None
        self.state.set(removing="")

    def is_deleted(self, key: str, tag: Tag) -> bool:
        """Whether a deletion of the session covers a line."""
        query = "SELECT 1 FROM deleted WHERE session = ? AND machine = ? AND seq >= ?"
        return bool(self.state.rows(query, key, *tag))

    def publish(self, progress: Progress | None = None, *, dry_run: bool = False) -> None:
        """Append what was said here since the last time."""
        self.found = None
        replaced = self._new_marks(REPLACED)
        sessions = self._sessions()
        for done, (key, session) in enumerate(sessions.items(), 1):
            stored = self.stored(key)
            if replaced or self._has_changed(session, stored):
                self._publish_session(session, stored, bool(replaced), dry_run=dry_run)
            if progress is not None:
                progress(done, len(sessions))
        if replaced and not dry_run:
            with self.state.transaction() as database:
                rows = [(each,) for each in replaced]
                database.executemany("INSERT INTO marks VALUES (?)", rows)

    @staticmethod
    def _has_changed(session: Session, stored: KnownSession) -> bool:
        now = (session.messages, session.active, _hashed(session.title) or stored.title)
        has_ended = (session.ended or 0.0) > (stored.ended or 0.0)
        return has_ended or now != (stored.messages, stored.active, stored.title)

    def _publish_session(
        self, session: Session, stored: KnownSession, replaced: bool, *, dry_run: bool
    ) -> None:
        key = session.key
        rows = self.state.rows("SELECT id, moment FROM messages WHERE session = ?", key)
        known, lost = dict(rows), self._lost(key)
        forgotten = self.state.rows("SELECT id FROM forgotten WHERE session = ?", key)
        names = MessageNames(self.known_names(key), (name for (name,) in forgotten))
        local = dict(_named(self.archive.messages(session), names))
        # A text that was replaced has left a message with another name at the same moment.
        gone: dict[str, list[str]] = {}
        for name in sorted(known.keys() - local.keys()) if replaced else ():
            gone.setdefault(known[name], []).append(name)
        new = [name for name in local if name not in known or name in lost]
        if not local and not known:
            return
        # Only `forget` removes a title; one that is missing was not given yet.
        has_new_title = _hashed(session.title) != stored.title and (bool(session.title) or replaced)
        title = session.title if has_new_title else None
        if not dry_run:
            if gone or (has_new_title and stored.title):
                self.state.set(erase="yes")
            messages = {name: local[name] for name in new}
            self._write(session, stored, _Changes(messages, gone, len(local), title, lost))
        self.result.sent_sessions += bool(new) or has_new_title
        self.result.sent_messages += len(new)

    def _lost(self, key: str) -> dict[str, Tag]:
        """The messages of a session whose lines our log has lost."""
        query = (
            "SELECT id, machine, seq FROM messages WHERE session = ? AND machine = ? AND seq > ?"
        )
        lost = self.state.lost_now.items()
        return {
            name: Tag(*tag) for each in lost for name, *tag in self.state.rows(query, key, *each)
        }

    def _write(self, session: Session, stored: KnownSession, changes: _Changes) -> None:
        """Append the facts of a session, then its new messages, some at a time."""
        now = stored._replace(active=session.active)
        if changes.title is not None:
            # Later than the title that it replaces, whatever the clocks of the machines say.
            stamp = max(self._clock(), stored.stamp + 0.001)
            title = _hashed(changes.title)
            now = now._replace(title=title, stamp=stamp, stamped_by=self.state.machine)
        has_ended = (session.ended or 0.0) > (stored.ended or 0.0)
        if has_ended:
            now = now._replace(ended=session.ended)
        left = {moment: list(names) for moment, names in changes.gone.items()}
        items = iter(changes.new.items())
        is_new = changes.title is not None or has_ended
        # Our log may have lost the title.
        is_wanted = is_new or stored.stamped_by in self.state.lost_now
        while (batch := list(_limited(items))) or is_wanted:
            with self.state.publishing() as publish, self.state.transaction() as database:
                again = self._tag_again(batch, changes, stored) if not is_new else None
                record = _session_record(session, now)
                publish({**record, "as": [*again]} if again else record)
                for name, message in batch:
                    record = _message_record(database, session.key, name, message, left)
                    lost = changes.lost.get(name)
                    tag = publish({**record, "as": [*lost]} if lost else record)
                    fold_message(database, session.key, name, moment_of(message), lost or tag)
                # The number at last: a run that was interrupted looks again.
                self.store(database, session.key, now._replace(messages=-1))
            is_wanted = is_new = False
        with self.state.transaction() as database:
            self.store(database, session.key, now._replace(messages=changes.total))

    def _tag_again(
        self, batch: list[tuple[str, Message]], changes: _Changes, stored: KnownSession
    ) -> Tag | None:
        """The tag of facts that are said again: who has deleted what they were about ignores them.

        None if they are needed for something that is new.
        """
        if not batch:
            by = stored.stamped_by
            return Tag(by, self.state.read_up_to(by, "sessions"))
        tags = [changes.lost.get(name) for name, _ in batch]
        return None if None in tags else tags[-1]

    # -- what was said elsewhere ----------------------------------------------------------

    def apply(
        self, logs: Iterable[MachineLog], progress: Progress | None = None, *, dry_run: bool = False
    ) -> None:
        """Read what was said on other machines, and store it here."""
        logs = list(logs)
        if dry_run:
            self._count(logs)
            return
        after = {log.machine: self.state.read_up_to(log.machine, "sessions") for log in logs}
        last = {log.machine: last_line(log, after[log.machine]) for log in logs}
        total = sum(log.size(after[log.machine]) for log in logs)
        done = 0
        for log in logs:
            try:
                for lines in in_steps(log.lines(after[log.machine]), last[log.machine]):
                    _Step(self, log).apply(lines)
                    self.state.set_read(log.machine, "sessions", lines[-1].seq)
                    done += sum(len(str(each.record.get("content", ""))) for each in lines)
                    if progress is not None:
                        progress(min(done, total), total)
            except FactsMissingError:
                log.is_incomplete = True
        self._begin_again(logs)
        self.result.sessions = len(self.touched)

    def _begin_again(self, logs: list[MachineLog]) -> None:
        """Read again the facts of sessions of which a part was deleted: the rest of them counts."""
        keys = {*json.loads(self.state.get("again") or "[]")}
        for log in (*logs, self.state.log) if keys else ():
            if not log.folder.is_dir():
                continue
            step, read = _Step(self, log), self.state.read_up_to(log.machine, "sessions")
            for line in log.lines(0):
                if line.seq > read:
                    break
                if line.kind == SESSION and line.record["session"] in keys:
                    step.begin(Tag.of(log.machine, line), line.record)
        self.state.set(again="")

    def _count(self, logs: Iterable[MachineLog]) -> None:
        for log in logs:
            keys = set()
            for line in log.lines(self.state.read_up_to(log.machine, "sessions")):
                self.result.messages += line.kind == MESSAGE
                self.result.deleted += line.kind == DELETE
                keys |= {line.record["session"]} if line.kind == MESSAGE else set()
            self.result.sessions += len(keys)


class _Step:
    """Some lines of one log, of which the archive gets messages of a session in one call."""

    def __init__(self, sync: SessionsSync, log: MachineLog) -> None:
        self._sync, self._log = sync, log
        self._archive, self._state, self._result = sync.archive, sync.state, sync.result
        self._facts: dict[str, Record] = {}
        self._waiting: list[tuple[Tag, Record]] = []
        self._touched = sync.touched

    def apply(self, lines: Iterable[Line]) -> None:
        """Store what they say in the archive and in the state."""
        for line in lines:
            if line.kind not in KINDS:
                continue
            tag, record = Tag.of(self._log.machine, line), line.record
            if self._waiting and (
                line.kind != MESSAGE
                or self._waiting[-1][0].machine != tag.machine
                or self._waiting[-1][1]["session"] != record["session"]
            ):
                self._store_messages()
            if line.kind == MESSAGE:
                self._waiting.append((tag, record))
            elif line.kind == SESSION:
                self.begin(tag, record)
            elif line.kind == REPLACE:
                self._replace(tag, record)
            else:
                self._delete(record)
        self._store_messages()

    def begin(self, tag: Tag, record: Record) -> None:
        """Facts of a session, unless a deletion covers them."""
        key = str(record["session"])
        self._facts[key] = record
        if self._sync.is_deleted(key, tag):
            return
        stored = self._sync.stored(key)
        session = self._sync.session(key)
        title = str(record.get("title", ""))
        stamp = (float(record.get("stamp", 0)), str(record.get("by", "")))
        # A title that a person gave here and that was not sent yet stays, and is sent as newer.
        is_published = session is None or _hashed(session.title) in (
            "",
            stored.title,
            _hashed(title),
        )
        if stamp > (stored.stamp, stored.stamped_by):
            if session is not None and is_published and session.title != title:
                if not title:
                    self._state.set(erase="yes")
                self._archive.set_title(session, title)
            published = _hashed(title) if is_published or session is None else stored.title
            stored = stored._replace(title=published, stamp=stamp[0], stamped_by=stamp[1])
        if record.get("ended") is not None:
            ended = max(float(record["ended"]), stored.ended or 0.0)
            stored = stored._replace(ended=ended)
        with self._state.transaction() as database:
            self._sync.store(database, key, stored._replace(messages=-1))
        if session is None:
            facts = self._facts_of(key)
            self._archive.append(facts, [])
            self._sync.remember(key, facts)
        self._end(key)

    def _end(self, key: str) -> None:
        """Set when a session ended, unless something was said after that."""
        session, ended = self._sync.session(key), self._sync.stored(key).ended
        is_other = session is not None and ended is not None and session.ended != ended
        if session is not None and ended is not None and is_other and ended >= session.active:
            self._archive.end(session.id, ended, EVERYBODY)

    def _store_messages(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        key = str(waiting[0][1]["session"])
        kept = [each for each in waiting if not self._is_dead(key, *each)]
        session, copies = self._sync.session(key), self._sync.copies(key)
        new = [record for _, record in kept if not copies.take(record["id"])]
        if new:
            messages = [read_message(each, self._log.name) for each in new]
            facts = self._facts_of(key)
            self._storing(key, kept, (session.messages if session else 0) + len(new))
            self._archive.append(facts, messages)
            if session is None:
                self._sync.remember(key, facts)
            self._touched.add(key)
            self._result.messages += len(new)
        with self._state.transaction() as database:
            for tag, record in kept:
                fold_message(database, key, record["id"], moment_of(read_message(record, "")), tag)
            self._state.set(storing="")
        self._end(key)

    def _storing(self, key: str, lines: list[tuple[Tag, Record]], size: int, old: str = "") -> None:
        """Before the archive is called: if this process ends, the next run looks what it did."""
        tag = max(at for at, _ in lines)  # all of one machine
        names = [(at.seq, each["id"], moment_of(read_message(each, ""))) for at, each in lines]
        begun = {"session": key, "machine": tag.machine, "seq": tag.seq, "size": size, "old": old}
        self._state.set(storing=json.dumps({**begun, "messages": names}))

    def _facts_of(self, key: str) -> SessionFacts:
        record = self._facts.get(key)
        if record is None:
            record = session_line(self._log, key)
            self._facts[key] = record
        values: dict[str, Any] = {each: str(record.get(each, "")) for each in FACTS}
        stored = self._sync.stored(key)
        title = str(record.get("title", ""))
        return SessionFacts(
            str(record["id"]),
            **values,
            # Another machine's title may count.
            title=title if _hashed(title) == stored.title else "",
            started=float(record.get("started", 0)),
        )

    def _is_dead(self, key: str, tag: Tag, record: Record) -> bool:
        return self._sync.is_deleted(key, tag) or self._is_forgotten(key, record["id"])

    def _is_forgotten(self, key: str, name: str) -> bool:
        query = "SELECT 1 FROM forgotten WHERE session = ? AND id = ?"
        return bool(self._state.rows(query, key, name))

    def _replace(self, tag: Tag, record: Record) -> None:
        """Put another text in the place of a message, or add it where there is none."""
        key, old = str(record["session"]), str(record["old"])
        session = self._sync.session(key)
        is_dead = "role" not in record or self._is_dead(key, tag, record)
        copies = self._sync.copies(key)
        if not self._is_forgotten(key, old):
            copies.take(old)
        numbers = copies.beyond(copies.left_without({old}))
        if session is not None and numbers:
            if is_dead or copies.take(record["id"]):
                self._archive.remove(session, numbers)
            else:
                self._storing(key, [(tag, record)], 0, old)
                self._archive.replace_message(numbers[0], read_message(record, self._log.name))
        with self._state.transaction() as database:
            fold_replacement(database, key, old)
            self._state.set(erase="yes")
        if not is_dead:
            self._waiting.append((tag, record))
            self._store_messages()

    def _delete(self, record: Record) -> None:
        key, seen = str(record["session"]), {str(m): int(s) for m, s in record["seen"].items()}
        query = "SELECT id, machine, seq FROM messages WHERE session = ?"
        rows = self._state.rows(query, key)
        alive = {name for name, machine, seq in rows if seq > seen.get(machine, 0)}
        doomed = {name for name, _, _ in rows} - alive
        session, copies = self._sync.session(key), self._sync.copies(key)
        with self._state.transaction() as database:
            fold_deletion(database, key, seen)
            again = {*json.loads(self._state.get("again") or "[]"), key}
            self._state.set(erase="yes", again=json.dumps(sorted(again)))
            if session is not None and (doomed or not session.messages):
                self._state.set(removing=json.dumps([key, copies.left_without(doomed)]))
                self._result.deleted += 1
        self._sync.remove_deleted()


class KeptLines:
    """What is left of our log when the texts of what was deleted and forgotten are removed."""

    def __init__(self, state: State) -> None:
        self._state = state
        #: Facts that messages after them still need, though a deletion covers them.
        self._needed: set[int] = set()
        last: dict[str, int] = {}
        for line in state.log.lines(0):
            key = str(line.record.get("session", ""))
            if line.kind == SESSION:
                last[key] = line.seq
            elif line.kind in (MESSAGE, REPLACE) and self._is_live(key, line) and key in last:
                self._needed.add(last[key])

    def of(self, line: Line) -> Record | None:
        """What is left of a line; None for nothing."""
        record, key = line.record, str(line.record.get("session", ""))
        if line.kind == SESSION:
            return self._of_session(key, line)
        if line.kind == DELETE or "role" not in record or self._is_live(key, line):
            return record
        # What a message replaced must not come back, also if that message is gone, too.
        kept = {"seq": line.seq, "type": REPLACE, "session": key, "old": record.get("old")}
        return kept if line.kind == REPLACE else None

    def _is_live(self, key: str, line: Line) -> bool:
        query = "SELECT 1 FROM messages WHERE session = ? AND id = ? AND machine = ? AND seq = ?"
        tag = Tag.of(self._state.machine, line)
        return bool(self._state.rows(query, key, line.record.get("id", ""), *tag))

    def _of_session(self, key: str, line: Line) -> Record | None:
        query = "SELECT 1 FROM deleted WHERE session = ? AND machine = ? AND seq >= ?"
        is_deleted = bool(self._state.rows(query, key, *Tag.of(self._state.machine, line)))
        if is_deleted and line.seq not in self._needed:
            return None
        rows = self._state.rows("SELECT title FROM sessions WHERE session = ?", key)
        title = str(line.record.get("title", ""))
        if not title or (not is_deleted and rows and rows[0][0] == _hashed(title)):
            return line.record
        left_out = ("title", "stamp", "by")
        return {name: value for name, value in line.record.items() if name not in left_out}


def all_deletions(state: State) -> Iterator[Record]:
    """Every deletion and every replaced text that is known, for a new log."""
    seen: dict[str, dict[str, int]] = {}
    for key, machine, seq in state.rows("SELECT session, machine, seq FROM deleted"):
        seen.setdefault(key, {})[machine] = seq
    for key, numbers in seen.items():
        yield {"type": DELETE, "session": key, "seen": numbers}
    for key, old in state.rows("SELECT session, id FROM forgotten"):
        yield {"type": REPLACE, "session": key, "old": old}


def _named(messages: Iterable[Message], names: MessageNames) -> Iterator[tuple[str, Message]]:
    return ((names.of(each), each) for each in messages)


def _limited(items: Iterator[tuple[str, Message]]) -> Iterator[tuple[str, Message]]:
    """Some of the items: not too many, and not too long."""
    characters = 0
    for name, message in islice(items, MOST_LINES):
        yield name, message
        characters += len(message.content)
        if characters > MOST_CHARACTERS:
            return


def _session_record(session: Session, now: KnownSession) -> dict[str, Any]:
    facts = {name: getattr(session, name) for name in FACTS}
    if _hashed(session.title) == now.title and now.stamp:  # else another machine's title counts
        facts |= {"title": session.title, "stamp": now.stamp, "by": now.stamped_by}
    return {
        "type": SESSION,
        "session": session.key,
        "id": session.name or session.id,
        **{name: value for name, value in facts.items() if value},
        "started": session.started,
        **({} if now.ended is None else {"ended": now.ended}),
    }


def _message_record(
    database: sqlite3.Connection,
    key: str,
    name: str,
    message: Message,
    gone: dict[str, list[str]],
) -> dict[str, Any]:
    """A message for the log; if it took the place of another one, that one is gone."""
    record: dict[str, Any] = {"type": MESSAGE, "session": key, "id": name}
    if olds := gone.get(moment_of(message)):
        record |= {"type": REPLACE, "old": olds.pop()}
        fold_replacement(database, key, record["old"])
    record |= {"role": message.role, "at": message.at, "content": message.content}
    return {**record, "extra": dict(message.extra)} if message.extra else record
