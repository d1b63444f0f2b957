"""Imports conversations from hermes-agent, JSONL, ChatGPT, Claude, Claude Code and Codex.

Importing a file twice stores its messages once.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import count as counting
from pathlib import Path
from typing import Any, Final, NamedTuple

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
from hermes_builtin.sessions.hermes_agent import Imported, is_ours, names_here
from hermes_builtin.sessions.words import storable
from hermes_core.errors import HermesError
from hermes_core.privacy.origin import IMPORT, is_external
from hermes_core.session import TERMINAL
from hermes_core.storage.sqlite import read_only

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
    """What an import brought."""

    origin: str
    sessions: int = 0
    messages: int = 0
    known: int = 0
    skipped: int = 0


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
        NotImportedError: There is nothing that is known here, or a file can't be read.
    """
    files = {path: path.stat().st_size for path in sorted(folder.rglob("*.jsonl"))}
    total, done = sum(files.values()), 0
    taken = ImportResult("")
    for path, length in files.items():
        before = done
        shown = None if progress is None else partial(_further, progress, before, total)
        result = _import_transcript(archive, path, owner, shown)
        if result is not None:
            origins = dict.fromkeys(filter(None, (*taken.origin.split(", "), result.origin)))
            counts = (sum(each) for each in zip(taken[1:], result[1:], strict=True))
            taken = ImportResult(", ".join(origins), *counts)
        done += length
    if not taken.origin:
        raise NotImportedError(
            "has no sessions of Claude Code or Codex in it",
            where=str(folder),
            hint="see ~/.claude/projects and ~/.codex/sessions",
        )
    return taken


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
        return _take(archive, hermes_agent.ORIGIN, found, total, progress)
    size = path.stat().st_size
    shown = None if progress is None else partial(_further, progress, 0, size)
    transcript = _import_transcript(archive, path, owner, shown)
    if transcript is not None:
        return transcript
    try:
        origin, parsed = _parsed(path, _text(path))
    except (OSError, UnicodeDecodeError, *_BAD_ZIPS) as error:
        what = f"can't be read: {error}"
        raise NotImportedError(what, where=str(path), hint=_KINDS) from error
    owned = (each._replace(facts=_owned(each.facts, owner)) for each in parsed)
    return _take(archive, origin, owned, len(parsed), progress)


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


def _name(archive: Archive, origin: str, imported: Imported) -> str:
    """The name under which a conversation is stored, or will be.

    Names are the same on every machine. One that another conversation has is not enough.
    """
    for number in counting():
        if imported.facts.id:
            names = names_here(origin, imported.facts.id)
            name = names[number] if number < len(names) else f"{names[-1]}-{number}"
        else:
            base = f"jsonl-{_fingerprint(imported.messages[:1])}"
            name = f"{base}-{number}" if number else base
        session = archive.session(name, EVERYBODY)
        # A name is taken if it is free, if an earlier import of this origin made it, or if the
        # stored conversation says the same. Otherwise the next name is tried.
        if session is None or (imported.facts.id and archive.imported(origin, name)):
            return name
        if _is_of(session, imported.facts) and _alike(archive.messages(session), imported.messages):
            return name
    raise AssertionError


def _is_of(session: Session, facts: SessionFacts) -> bool:
    """Whether a session is of the person whose conversation is imported."""
    place = facts.platform or facts.source or TERMINAL
    return session.owner == Scope(*map(storable, (*facts[2:5], place)))


def _alike(stored: Iterable[Message], messages: list[NewMessage]) -> bool:
    """Whether two conversations are the same, as far as both go."""
    pairs = zip(stored, messages, strict=False)
    return all((one.role, one.content) == (other.role, other.content) for one, other in pairs)


def _not_stored(
    archive: Archive, session: Session | None, messages: list[NewMessage]
) -> list[NewMessage]:
    """The messages that we do not have: some may have been rewritten, or inserted."""
    if session is None:
        return messages
    # By content and number, not by place: an export may have been edited, and a conversation may
    # contain "yes" several times.
    stored = Counter((each.role, each.content) for each in archive.messages(session))
    left = []
    for message in messages:
        if stored[message.role, message.content] > 0:
            stored[message.role, message.content] -= 1
        else:
            left.append(message)
    return left


def _take(
    archive: Archive,
    origin: str,
    conversations: Iterable[Imported],
    total: int,
    progress: Progress | None,
) -> ImportResult:
    taken = ImportResult(origin)
    # One by one: which name a conversation gets depends on those before it.
    for done, imported in enumerate(conversations, 1):
        new: list[NewMessage] = []
        if imported.messages:
            name = _name(archive, origin, imported)
            # `position` alone is not trusted: the archive may have lost or deleted messages since.
            new = _not_stored(archive, archive.session(name, EVERYBODY), imported.messages)
            new = [_as_imported(each) for each in new]
            archive.take_over(origin, imported.position, imported.facts._replace(id=name), new)
        taken = taken._replace(
            sessions=taken.sessions + bool(new),
            messages=taken.messages + len(new),
            known=taken.known + (not new),
        )
        if progress is not None:
            progress(done, total)
    return taken


def _as_imported(message: NewMessage) -> NewMessage:
    """A message with its origin: what a file says that a user said may be anybody's words."""
    origin = message_origin("", message)
    if is_external(origin):
        return message
    return message._replace(extra={**(message.extra or {}), "origin": IMPORT})


def _text(path: Path) -> str:
    if not zipfile.is_zipfile(path):
        return path.read_text("utf-8-sig")
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.rpartition("/")[2] == _ZIPPED]
        if not names:
            raise NotImportedError(f"has no {_ZIPPED} in it", where=str(path), hint=_KINDS)
        return archive.read(names[0]).decode("utf-8-sig")


def _parsed(path: Path, text: str) -> tuple[str, list[Imported]]:
    """What kind of export it is, and its conversations."""
    if not text.strip():  # an empty file is a copy or download that failed, not an empty export
        todo = "export or copy it again"
        raise NotImportedError("is empty", where=str(path), hint=todo)
    try:
        # One JSON document is an export of ChatGPT or Claude; several lines of JSON are not one
        # document.
        whole = json.loads(text)
    except ValueError:
        return "jsonl", list(_jsonl(path, text))
    except RecursionError as error:
        todo = "export the conversations again"
        raise NotImportedError("is nested too deeply", where=str(path), hint=todo) from error
    entries = whole if isinstance(whole, list) else [whole]
    entries = [entry for entry in entries if isinstance(entry, dict)]
    readers: dict[str, tuple[str, Callable[[Mapping[str, Any]], Imported]]] = {
        "mapping": ("chatgpt", _chatgpt),
        "chat_messages": ("claude", _claude),
    }
    for key, (origin, read) in readers.items():
        if entries and all(key in entry for entry in entries):
            return origin, _each(path, entries, read)
    if entries and all("messages" in entry or "role" in entry for entry in entries):
        lines = "\n".join(map(json.dumps, entries))
        return "jsonl", list(_jsonl(path, lines))
    raise NotImportedError(
        "holds no conversations that are known here",
        where=str(path),
        hint=_KINDS,
    )


def _each(
    path: Path, entries: list[dict[str, Any]], read: Callable[[Mapping[str, Any]], Imported]
) -> list[Imported]:
    found = []
    for number, entry in enumerate(entries, 1):
        try:
            found.append(read(entry))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NotImportedError(
                f"conversation {number} is not of the form it should have: {error!r}",
                where=str(path),
                hint="export the conversations again, or remove this one from the file",
            ) from error
    return found


# -- ChatGPT and Claude ------------------------------------------------------------------------


def _chatgpt(entry: Mapping[str, Any]) -> Imported:
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
    return Imported(facts, messages, len(messages))


def _claude(entry: Mapping[str, Any]) -> Imported:
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
    return Imported(facts, messages, len(messages))


def _time(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


# -- JSONL ---------------------------------------------------------------------------------------


def _jsonl(path: Path, text: str) -> Iterator[Imported]:
    """A line is a message, or a conversation with its ``messages``."""
    now = time.time()
    loose: dict[str, list[NewMessage]] = {}
    # Not `splitlines`: it also splits at U+2028, which is valid inside a JSON string.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if "messages" in entry:
                messages = [new_message(each, now) for each in entry["messages"]]
                yield _conversation(_identity(entry), messages, entry)
            elif "role" in entry:
                loose.setdefault(_identity(entry), []).append(new_message(entry, now))
            else:
                raise ValueError("neither a message nor a conversation")  # noqa: TRY301
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise NotImportedError(
                f"line {number} is not a message: {error}",
                where=str(path),
                hint="correct this line, or remove it",
            ) from error
    for name, messages in loose.items():
        yield _conversation(name, messages, {})


def _identity(entry: Mapping[str, Any]) -> str:
    """The conversation that a line says it belongs to; the id of a message says nothing."""
    keys = ("session_id", "conversation_id", *(("id",) if "messages" in entry else ()))
    return str(next(filter(None, map(entry.get, keys)), ""))


def _conversation(name: str, messages: list[NewMessage], entry: Mapping[str, Any]) -> Imported:
    """A conversation; what our own export says of it is taken over."""

    def text_of(key: str) -> str:
        value = entry.get(key)
        return value if isinstance(value, str) else ""

    kept = [each for each in messages if each.content.strip() or each.extra]
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
    return Imported(facts, kept, len(kept))


def _fingerprint(messages: list[NewMessage]) -> str:
    """A name for a conversation that has none: what it says, in its order."""
    said = "\0".join(f"{each.role}\0{each.content}" for each in messages)
    return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]
