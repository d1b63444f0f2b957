"""Imports conversations from hermes-agent, JSONL, ChatGPT, Claude, Claude Code and Codex.

Importing a file twice stores its messages once.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zipfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import chain, islice
from itertools import count as counting
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from hermes_builtin.sessions import coding_agents, hermes_agent
from hermes_builtin.sessions.archive import (
    EVERYBODY,
    Archive,
    Message,
    NewMessage,
    Progress,
    Scope,
    Session,
    SessionFacts,
    content_text,
    message_origin,
    new_message,
)
from hermes_builtin.sessions.display import DEFAULT_PROFILE
from hermes_builtin.sessions.hermes_agent import ImportedSession, is_ours, names_here
from hermes_builtin.sessions.json_stream import JsonEntry, JsonStream
from hermes_builtin.sessions.session_merge import batches
from hermes_builtin.sessions.words import storable
from hermes_core.errors import HermesError
from hermes_core.privacy.origin import IMPORT, is_external
from hermes_core.session import TERMINAL
from hermes_core.storage.sqlite_connection import read_only

_ZIPPED: Final = "conversations.json"


#: What zipfile raises for one that is damaged, or that needs a password.
_BAD_ZIPS: Final = (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError)


_KINDS: Final = (
    "name a state.db of hermes-agent, JSONL, a session of Claude Code or Codex, or the"
    " conversations.json of ChatGPT or Claude"
)


class NotImportedError(HermesError):
    """A file can't be imported."""


class ImportResult(NamedTuple):
    """What an import brought.

    ``skipped`` is what could not be read; ``problem`` says where it is, if that is a fault of the
    file and not of an agent that is writing to it.
    """

    origin: str
    sessions: int = 0
    messages: int = 0
    known: int = 0
    skipped: int = 0
    problem: str = ""


def import_folder(
    archive: Archive, folder: Path, owner: Scope = EVERYBODY, progress: Progress | None = None
) -> ImportResult:
    """Import what Claude Code or Codex stored below a folder, one session after the other.

    Args:
        archive: Where it goes.
        folder: The folder, such as ``~/.claude/projects`` or ``~/.codex/sessions``.
        owner: Whose they are.
        progress: Called with the bytes that were read, and how many there are.

    Raises:
        NotImportedError: There is nothing that is known here.
    """
    files = {path: _size(path) for path in sorted(folder.rglob("*.jsonl")) if not path.is_dir()}
    total, done = sum(files.values()), 0
    taken = ImportResult("")
    for path, length in files.items():
        before = done
        shown = None if progress is None else partial(_further, progress, before, total)
        try:
            result = _import_transcript(archive, path, owner, shown)
        except NotImportedError as error:  # one of thousands: import the others
            place = path.relative_to(folder)
            result = ImportResult("", skipped=1, problem=f"{place}: {error.what}")
        taken = taken if result is None else _sum(taken, result)
        done += length
    if not taken.origin and taken.problem:
        raise NotImportedError(taken.problem, where=str(folder), hint="check its permissions")
    if not taken.origin:
        raise NotImportedError(
            "has no sessions of Claude Code or Codex in it",
            where=str(folder),
            hint="see ~/.claude/projects and ~/.codex/sessions",
        )
    return taken


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a link to nothing: the import of this file says so
        return 0


def _sum(one: ImportResult, other: ImportResult) -> ImportResult:
    origins = dict.fromkeys(filter(None, (*one.origin.split(", "), other.origin)))
    return ImportResult(
        ", ".join(origins),
        one.sessions + other.sessions,
        one.messages + other.messages,
        one.known + other.known,
        one.skipped + other.skipped,
        one.problem or other.problem,
    )


def _further(progress: Progress, before: int, total: int, at: int) -> None:
    progress(before + at, total)


def _import_transcript(
    archive: Archive, path: Path, owner: Scope, progress: Callable[[int], None] | None
) -> ImportResult | None:
    """Import a file of Claude Code or Codex; None if it is neither."""
    try:
        kind = coding_agents.kind_of(path)
        if not kind:
            return None
        done = coding_agents.import_transcript(
            archive,
            path,
            kind,
            adapt=partial(_owned, owner=owner),
            as_imported=_as_imported,
            progress=progress,
        )
    except OSError as error:
        what = f"can't be read: {error.strerror or error}"
        raise NotImportedError(what, where=str(path), hint="check its permissions") from error
    known = int(not done.messages and bool(done.known))
    return ImportResult(kind, done.sessions, done.messages, known, done.skipped)


def import_file(
    archive: Archive,
    path: Path,
    owner: Scope = EVERYBODY,
    progress: Progress | None = None,
    *,
    hidden: bool = False,
) -> ImportResult:
    """Import the conversations of a file: hermes-agent's state.db, JSONL, or an export.

    Args:
        archive: Where they go.
        path: The file.
        owner: Whose they are, where the file does not say.
        progress: Called with the progress.
        hidden: Whether to import what was hidden in hermes-agent, too.

    Raises:
        NotImportedError: The file is not one of these, or damaged.
        DatabaseError: hermes-agent's state.db can't be read.
    """
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "is not a file"
        raise NotImportedError(what, where=str(path), hint=_KINDS)
    if _is_database(path):
        if is_ours(path):  # its views look like hermes-agent's tables
            raise NotImportedError(
                "is an archive of hermes-plugins",
                where=str(path),
                hint="run hermes-plugins sessions export FILE in its home, and import that file",
            )
        theirs = hermes_agent.conversations(path, archive, hidden=hidden)
        found = (each._replace(facts=_owned(each.facts, owner)) for each in theirs)
        total = hermes_agent.count(path, hidden=hidden)
        shown = None if progress is None else partial(_further, progress, 0, total)
        return _take(archive, hermes_agent.ORIGIN, found, shown)
    size = path.stat().st_size
    shown = None if progress is None else partial(_further, progress, 0, size)
    transcript = _import_transcript(archive, path, owner, shown)
    return transcript or _import_export(archive, path, owner, progress)


def _is_database(path: Path) -> bool:
    """Asked of SQLite: a database must not be opened by anybody else."""
    try:
        with read_only(path) as database:
            database.execute("PRAGMA schema_version")
            return bool(database.execute("SELECT 1 FROM sqlite_master").fetchone())
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
            return False
        what = f"can't be read: {error}"
        raise NotImportedError(what, where=str(path), hint=_KINDS) from error


def _owned(facts: SessionFacts, owner: Scope) -> SessionFacts:
    owned = facts._replace(profile=facts.profile or owner.profile or DEFAULT_PROFILE)
    if facts.user_id:  # of the platform that the file says
        return owned
    return owned._replace(
        user_id=owner.user_id or "", platform=facts.platform or owner.platform or ""
    )


def _name(archive: Archive, origin: str, imported: ImportedSession) -> str:
    """The name under which a conversation is stored, or will be.

    Names are the same on every machine. One that another conversation has is not enough.
    """
    for number in counting():
        if imported.facts.id:
            names = names_here(origin, imported.facts.id)
            name = names[number] if number < len(names) else f"{names[-1]}-{number}"
        else:
            name = _unnamed(imported.messages, number)
        session = archive.session(name, EVERYBODY)
        # A name is taken if it is free, if an earlier import of this origin made it, or if the
        # stored conversation says the same. Otherwise the next name is tried.
        if session is None or (imported.facts.id and archive.imported(origin, name)):
            return name
        if _is_of(session, imported.facts) and _alike(archive.messages(session), imported.messages):
            return name
    raise AssertionError


def _unnamed(messages: Collection[NewMessage], number: int) -> str:
    """The names of a conversation that has none.

    First by its first message. Thousands of conversations may begin with the same instructions, so
    then by all up to what a user says first; only of those that are still the same, by a number.
    """
    if not number:
        return f"jsonl-{_fingerprint(islice(messages, 1))}"
    first = next((at for at, each in enumerate(messages, 1) if each.role == "user"), 1)
    base = f"jsonl-{_fingerprint(islice(messages, first))}"
    return f"{base}-{number}" if first == 1 or number > 1 else base


def _is_of(session: Session, facts: SessionFacts) -> bool:
    """Whether a session is of the person whose conversation is imported."""
    place = facts.platform or facts.source or TERMINAL
    return session.owner == Scope(*map(storable, (*facts[2:5], place)))


def _alike(stored: Iterable[Message], messages: Iterable[NewMessage]) -> bool:
    """Whether two conversations are the same, as far as both go."""
    pairs = zip(stored, messages, strict=False)
    return all((one.role, one.content) == (other.role, other.content) for one, other in pairs)


def _not_stored(
    archive: Archive, session: Session | None, messages: Iterable[NewMessage]
) -> Iterator[NewMessage]:
    """The messages that we do not have: some may have been rewritten, or inserted."""
    # By content and number, not by place: an export may have been edited, and a conversation may
    # contain "yes" several times. As hashes: a conversation may have a gigabyte.
    stored = Counter(map(_digest, archive.messages(session) if session is not None else ()))
    for message in messages:
        digest = _digest(message) if stored else b""
        if stored[digest] > 0:
            stored[digest] -= 1
        else:
            yield message


def _digest(message: Message | NewMessage) -> bytes:
    said = f"{message.role}\0{message.content}"
    return sha256(said.encode("utf-8", "surrogatepass")).digest()[:16]


def _take(
    archive: Archive,
    origin: str,
    conversations: Iterable[ImportedSession],
    progress: Callable[[int], None] | None,
) -> ImportResult:
    taken = ImportResult(origin)
    # One by one: which name a conversation gets depends on those before it.
    for done, imported in enumerate(conversations, 1):
        shown = (lambda: None) if progress is None else partial(progress, done - 1)
        count = _store_new(archive, origin, imported, shown) if imported.messages else 0
        taken = taken._replace(
            sessions=taken.sessions + bool(count),
            messages=taken.messages + count,
            known=taken.known + (bool(imported.messages) and not count),
        )
        if progress is not None:
            progress(done)
    return taken


def _store_new(
    archive: Archive, origin: str, imported: ImportedSession, show: Callable[[], object]
) -> int:
    """Store what is new of a conversation in batches; returns how many messages that were."""
    name = _name(archive, origin, imported)
    facts = imported.facts._replace(id=name)
    # `position` alone is not trusted: the archive may have lost or deleted messages since.
    new = _not_stored(archive, archive.session(name, EVERYBODY), imported.messages)
    count = 0
    last: list[NewMessage] = []
    for batch in batches(map(_as_imported, new)):
        if last:
            # Not all of it yet: an import that is interrupted here has to look at it again.
            archive.take_over(origin, min(count, imported.position), facts, last)
            show()
        count, last = count + len(batch), batch
    archive.take_over(origin, imported.position, facts, last)
    return count


def _as_imported(message: NewMessage) -> NewMessage:
    """A message with its origin: what a file says that a user said may be anybody's words."""
    origin = message_origin("", message)
    if is_external(origin):
        return message
    return message._replace(extra={**(message.extra or {}), "origin": IMPORT})


# -- exports, as a stream ----------------------------------------------------------------------


def _import_export(
    archive: Archive, path: Path, owner: Scope, progress: Progress | None
) -> ImportResult:
    """Import JSON lines, or an export of ChatGPT or Claude, one conversation after the other."""
    try:
        # A copy or a download that failed, and not an export without conversations.
        if not path.stat().st_size:
            raise NotImportedError("is empty", where=str(path), hint="export or copy it again")
        with _opened(path) as (file, size):
            export = _Export(path, file)
            owned = (
                each._replace(facts=_owned(each.facts, owner)) for each in export.conversations()
            )
            shown = None if progress is None else lambda _: progress(min(export.at, size), size)
            taken = _take(archive, export.origin, owned, shown)
    except (OSError, *_BAD_ZIPS) as error:
        what = f"can't be read: {error}"
        raise NotImportedError(what, where=str(path), hint=_KINDS) from error
    if export.problem and not taken.messages and not taken.known:
        raise NotImportedError(
            export.problem, where=str(path), hint="export it again, or correct it"
        )
    return taken._replace(skipped=export.skipped, problem=export.problem)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """The file with the conversations, which may be in a ZIP file, and its size."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            yield file, path.stat().st_size
        return
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.rpartition("/")[2] == _ZIPPED]
        if not names:
            raise NotImportedError(f"has no {_ZIPPED} in it", where=str(path), hint=_KINDS)
        with archive.open(names[0]) as file:
            yield file, archive.getinfo(names[0]).file_size


class _Export:
    """A file with conversations, of which one is in memory at a time.

    Attributes:
        origin: Who wrote it.
        at: How many bytes have been read.
        skipped: How many entries can't be used.
        problem: The first of them, and what is wrong with it.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._now = time.time()
        self.at = self.skipped = 0
        self.problem = ""
        self._entries = self._usable()
        self._first = next(self._entries, None)
        self.origin = "jsonl" if self._first is None else self._kind(self._first.value)

    def _usable(self) -> Iterator[JsonEntry]:
        """The entries that are objects."""
        try:
            for entry in JsonStream(self._file):
                self.at = entry.start + entry.length
                if entry.problem or not isinstance(entry.value, dict):
                    self._skip(entry.place, entry.problem or "is not a message or a conversation")
                else:
                    yield entry
        except (OSError, *_BAD_ZIPS) as error:  # a failing disk, a damaged ZIP file
            self._skip(f"what follows byte {self.at:,}", f"can't be read: {error}")

    def _skip(self, place: str, problem: str) -> None:
        self.skipped += 1
        self.problem = self.problem or f"{place} {problem}"

    def _kind(self, entry: Mapping[str, Any]) -> str:
        for key, (origin, _) in _READERS.items():
            if key in entry:
                return origin
        if "messages" in entry or "role" in entry:
            return "jsonl"
        raise NotImportedError(
            "holds no conversations that are known here",
            where=str(self._path),
            hint=_KINDS,
        )

    def conversations(self) -> Iterator[ImportedSession]:
        """Each conversation; messages on separate lines come last."""
        loose: dict[str, _LooseMessages] = {}
        entries = self._entries if self._first is None else chain([self._first], self._entries)
        for entry in entries:
            try:
                if self.origin != "jsonl":
                    yield self._exported(entry.value)
                elif "messages" in entry.value:
                    messages = [new_message(each, self._now) for each in entry.value["messages"]]
                    yield _conversation(_identity(entry.value), messages, entry.value)
                else:
                    self._add_loose(loose, entry)
            except _BAD_FORMS as error:
                self._skip(entry.place, f"is not of the form it should have: {error!r:.200}")
        if loose:
            self.at = 0  # their bytes are read once more
        for name, each in loose.items():
            facts = _conversation(name, [], {}).facts._replace(started=each.started)
            yield ImportedSession(facts, each, len(each))

    def _add_loose(self, loose: dict[str, _LooseMessages], entry: JsonEntry) -> None:
        message = self._message(entry.value)
        if _is_kept(message):
            of = loose.setdefault(_identity(entry.value), _LooseMessages(self, message.at))
            of.places.extend((entry.start, entry.length))

    def _exported(self, entry: Mapping[str, Any]) -> ImportedSession:
        for origin, read in _READERS.values():
            if origin == self.origin:
                return read(entry)
        raise AssertionError

    def _message(self, entry: Mapping[str, Any]) -> NewMessage:
        if "role" not in entry:
            raise ValueError("neither a message nor a conversation")
        return new_message(entry, self._now)

    def message_at(self, start: int, length: int) -> NewMessage:
        """Read again a message that is on a separate line."""
        self.at += length
        self._file.seek(start)
        return self._message(json.loads(self._file.read(length)))


class _LooseMessages(Collection[NewMessage]):
    """Messages of a conversation, one line each, which may be far apart.

    It has where they are, not what they say: a file may be one conversation of a gigabyte.
    """

    def __init__(self, export: _Export, started: float) -> None:
        self._export = export
        self.started = started
        self.places = array("q")

    def __len__(self) -> int:
        return len(self.places) // 2

    def __iter__(self) -> Iterator[NewMessage]:
        for start, length in zip(self.places[::2], self.places[1::2], strict=True):
            yield self._export.message_at(start, length)

    def __contains__(self, message: object) -> bool:
        return any(each == message for each in self)


# -- ChatGPT and Claude ------------------------------------------------------------------------


def _chatgpt(entry: Mapping[str, Any]) -> ImportedSession:
    mapping = entry["mapping"]
    chain = []
    name = entry.get("current_node")
    # ChatGPT stores a tree of edited messages. From the current leaf up to the root is what the
    # person sees; without one, any leaf will do.
    if name not in mapping:
        name = next((key for key, node in mapping.items() if not node.get("children")), None)
    seen = set()
    while name in mapping and name not in seen:
        seen.add(name)
        chain.append(mapping[name].get("message"))
        name = mapping[name].get("parent")
    started = float(entry.get("create_time") or 0.0)
    messages = []
    for node in filter(None, reversed(chain)):
        content = node.get("content") or {}
        text = content_text(content.get("parts") or content.get("text"))
        role = str((node.get("author") or {}).get("role") or "other")
        if text.strip() and role != "system":
            messages.append(NewMessage(role, text, float(node.get("create_time") or started)))
    identity = entry.get("conversation_id") or entry.get("id") or _fingerprint(messages)
    facts = SessionFacts(
        f"chatgpt-{identity}",
        source="chatgpt",
        title=str(entry.get("title") or ""),
        started=started,
    )
    return ImportedSession(facts, messages, len(messages))


def _claude(entry: Mapping[str, Any]) -> ImportedSession:
    started = _time(entry.get("created_at"))
    messages = []
    for each in entry["chat_messages"]:
        # Newer exports of Claude have parts in `content`, older ones only `text`.
        text = content_text(each.get("content")) or str(each.get("text") or "")
        attached = [
            str(file.get("extracted_content") or file.get("file_name") or "")
            for file in each.get("attachments") or ()
        ]
        text = "\n".join(filter(None, [text, *attached]))
        role = {"human": "user"}.get(each.get("sender"), str(each.get("sender") or "other"))
        if text.strip():
            messages.append(NewMessage(role, text, _time(each.get("created_at")) or started))
    facts = SessionFacts(
        f"claude-{entry.get('uuid') or _fingerprint(messages)}",
        source="claude",
        title=str(entry.get("name") or ""),
        started=started,
    )
    return ImportedSession(facts, messages, len(messages))


def _time(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


_READERS: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], ImportedSession]]]] = {
    "mapping": ("chatgpt", _chatgpt),
    "chat_messages": ("claude", _claude),
}
#: What reading an entry raises if it is something else.
_BAD_FORMS: Final = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


# -- JSONL ---------------------------------------------------------------------------------------


def _identity(entry: Mapping[str, Any]) -> str:
    """The conversation that a line says it belongs to; the id of a message says nothing."""
    keys = ("session_id", "conversation_id", *(("id",) if "messages" in entry else ()))
    return str(next(filter(None, map(entry.get, keys)), ""))


def _conversation(
    name: str, messages: list[NewMessage], entry: Mapping[str, Any]
) -> ImportedSession:
    """A conversation; what our own export says of it is taken over."""

    def text_of(key: str) -> str:
        value = entry.get(key)
        return value if isinstance(value, str) else ""

    kept = list(filter(_is_kept, messages))
    facts = SessionFacts(
        storable(name),
        source=text_of("source") or "import",
        user_id=text_of("user_id"),
        chat_id=text_of("chat_id"),
        profile=text_of("profile"),
        title=text_of("title"),
        parent=text_of("parent"),
        started=kept[0].at if kept else 0.0,
        platform=text_of("platform"),
        name=text_of("name"),
    )
    return ImportedSession(facts, kept, len(kept))


def _is_kept(message: NewMessage) -> bool:
    return bool(message.content.strip() or message.extra)


def _fingerprint(messages: Iterable[NewMessage]) -> str:
    """A name for a conversation that has none: what it says, in its order."""
    found = sha256()
    for number, each in enumerate(messages):
        said = f"{each.role}\0{each.content}".encode("utf-8", "surrogatepass")
        found.update(b"\0" + said if number else said)
    return found.hexdigest()[:16]
