"""The built-in's part of `hermes-plugins forget`: notes, pending writes and conversations.

A note that has the text is removed as a whole. A message's text is replaced, so that the
conversation stays readable; its words leave the index. Nothing of it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_builtin.notes import Notebook, Notes, NotesError, Person, previews
from hermes_builtin.sessions.archive import EVERYBODY, Archive, Scope, Session, SessionFacts
from hermes_builtin.sessions.conversations import keywords_of, open_archive
from hermes_builtin.sessions.display import link
from hermes_builtin.sessions.location import locate
from hermes_builtin.sessions.spool import Spool
from hermes_builtin.sessions.tool import linked
from hermes_core import DatabaseError, ForgetItem, ForgetReport, ForgetRequest, HermesError
from hermes_core.config import load_config
from hermes_core.session import TERMINAL, identity_text
from hermes_core.storage.search import Needles

#: How many passages of deleted conversations the files are searched for, and how long each is.
_PASSAGES: Final = 100
_SHORTEST_PASSAGE: Final = 12
_LONGEST_PASSAGE: Final = 60

Matches = Callable[[str], bool]


def forget(request: ForgetRequest) -> ForgetReport:
    """Find what a request means in the notes and conversations of a home, and delete it."""
    home = Path(request.home)
    items: list[ForgetItem] = []
    problems: list[str] = []
    # The spool first: what it hands over later must not have it any more.
    for part in (_forget_spool, _forget_notes, _forget_conversations):
        # What is damaged in one place must not keep the rest from being deleted.
        try:
            items += part(home, request)
        except (HermesError, OSError) as error:
            problems.append(str(error))
    return ForgetReport(tuple(each for each in items if each.count), tuple(problems))


def sessions_meant(request: ForgetRequest) -> dict[str, Any]:
    """Whose memories a request is about; see `BuiltinMethods.sessions_meant`."""
    home = Path(request.home)
    platforms: set[str] = set()
    if request.user_id:
        people = Notes(home).people()
        platforms = {each.platform for each in people if each.user_id == request.user_id}
    with _archive(home) as archive:
        chosen = _sessions(archive, request)
        if request.user_id:
            wanted = identity_text(request.user_id)
            platforms |= {platform for platform, _ in archive.people(wanted)}
        if request.text:
            # One of each person: memories of a provider belong to people, not to sessions.
            chosen = list({each.owner: each for each in archive.sessions(EVERYBODY)}.values())
        return {
            "platforms": sorted(platforms),
            "sessions": [
                {"session": each.name or each.id, "id": each.id, "keywords": keywords_of(each)}
                for each in chosen
            ],
            "passages": [] if request.text else _passages(archive, chosen),
        }


def _passages(archive: Archive, sessions: list[Session]) -> list[str]:
    """The beginnings of some messages, from all of the sessions."""
    found: list[str] = []
    each = max(_PASSAGES // max(len(sessions), 1), 1)
    for session in sessions[:_PASSAGES]:
        texts = [message.content.strip() for message in archive.first(session, each)]
        found += [text[:_LONGEST_PASSAGE] for text in texts if len(text) >= _SHORTEST_PASSAGE]
    return list(dict.fromkeys(found))


# -- notes --------------------------------------------------------------------------------------


def _forget_notes(home: Path, request: ForgetRequest) -> Iterator[ForgetItem]:
    with closing(Notes.open(home, load_config(home).memory)) as notes:
        if request.text:
            yield from _forget_entries(notes, request)
        else:
            yield from _forget_origins(notes, request)
        if request.delete and notes.history.exists:
            notes.database.erase_free_space()


def _forget_entries(notes: Notes, request: ForgetRequest) -> Iterator[ForgetItem]:
    """Entries of notebooks, and every other place that has their text."""
    matches = Needles.of(request.text).found_in
    books = [each for each in notes.all_notebooks() if each.text.exists]
    entries = {book.key: [e for e in book.read().entries if matches(e)] for book in books}
    changes = notes.history.matching(matches) if notes.history.exists else []
    blocked = notes.decisions.matching(matches)
    pending = [name for name, text in notes.pending.texts().items() if matches(text)]
    if request.delete:
        texts = [*(e for found in entries.values() for e in found), *(b.text for b in blocked)]
        texts += [entry for _, _, having in changes for entry in having]
        # First the hashes of allowed texts: they are found by the texts.
        notes.decisions.erase([each.id for each in blocked], texts)
        _erase_entries(notes, books, matches)
        for name in pending:
            notes.pending.erase(name)
    for key, found in entries.items():
        yield ForgetItem(_name(key), len(found), tuple(previews(found)))
    yield ForgetItem("note history", len(changes))
    yield ForgetItem("refused notes", len(blocked), tuple(previews([b.text for b in blocked])))
    yield ForgetItem("pending notes", len(pending))


def _erase_entries(notes: Notes, books: list[Notebook], matches: Matches) -> None:
    for book in books:
        book.forget(matches)
    if notes.history.exists:
        known = {book.key for book in books}
        for target in notes.history.targets():
            if target not in known:  # its file is gone
                notes.history.erase(target, matches)


def _name(key: str) -> str:
    target, slash, _ = key.partition("/")
    # Not the name of a user's folder: it contains the user's id.
    return "USER.md of a user" if slash else {"memory": "MEMORY.md", "user": "USER.md"}[target]


class _Origins(NamedTuple):
    """Which notes belong to a session or a person."""

    sessions: frozenset[str]
    key: str = ""  # of the person's own USER.md


def _forget_origins(notes: Notes, request: ForgetRequest) -> Iterator[ForgetItem]:
    """A person's own notebook, and which session a note was made in."""
    said = sessions_meant(request)["sessions"]
    names = {name for each in said for name in (each["session"], each["id"])}
    key = ""
    if request.user_id:
        key = f"user/{Person(request.platform, request.user_id).folder}"
    whose = _Origins(frozenset(names | {request.session_id} - {""}), key)
    pending = [each.id for each in notes.pending.all() if _is_of(each.session, each.target, whose)]
    blocked = [each.id for each in notes.blocked() if key and each.target == key]
    changes = of_session = 0
    if notes.history.exists:
        changes = notes.history.count(key) if key else 0
        of_session = notes.history.of_sessions(whose.sessions, clear=request.delete)
    has_folder = bool(key) and notes.has_own(key)
    entries = _own_entries(notes, key) if has_folder else []
    if request.delete:
        for name in pending:
            notes.pending.discard(name)
        notes.decisions.erase(blocked, entries)
        if key:
            _drop_notebook(notes, key)
    yield ForgetItem("USER.md of a user", len(entries), tuple(previews(entries)))
    yield ForgetItem("folder of a user", int(has_folder))
    yield ForgetItem("note history", changes + of_session)
    yield ForgetItem("refused notes", len(blocked))
    yield ForgetItem("pending notes", len(pending))


def _is_of(session: str, target: str, whose: _Origins) -> bool:
    is_said_there = bool(session) and session in whose.sessions
    return is_said_there or (bool(whose.key) and target == whose.key)


def _own_entries(notes: Notes, key: str) -> list[str]:
    with suppress(NotesError):
        return notes.book(key).read().entries
    return []


def _drop_notebook(notes: Notes, key: str) -> None:
    if notes.has_own(key):
        notes.drop_own(key)
    if notes.history.exists:
        notes.history.drop(key)


# -- conversations ------------------------------------------------------------------------------


@contextmanager
def _archive(home: Path) -> Iterator[Archive]:
    with closing(locate(home).open()) as archive:
        yield archive


def _sessions(archive: Archive, request: ForgetRequest) -> list[Session]:
    """The sessions that a request names."""
    if request.user_id:
        scope = Scope(user_id=identity_text(request.user_id), platform=request.platform or None)
        return list(archive.sessions(scope))
    if not request.session_id:
        return []
    found = archive.session(request.session_id, EVERYBODY)
    if found is None:
        # The link that an agent showed; it must be the session's own.
        other = archive.session(linked(request.session_id)[1], EVERYBODY)
        found = other if other is not None and link(other) == request.session_id.strip() else None
    return [] if found is None else [found]


def _forget_spool(home: Path, request: ForgetRequest) -> Iterator[ForgetItem]:
    """Turns that are not in the archive yet."""
    matches = Needles.of(request.text).found_in
    user = identity_text(request.user_id) if request.user_id else None

    def is_meant(facts: SessionFacts) -> bool:
        if user is None:
            name = request.session_id
            return bool(name) and facts.id in (name, linked(name)[1])
        platform = facts.platform or facts.source or TERMINAL
        return facts.user_id == user and request.platform in ("", platform)

    spool = Spool(home, partial(open_archive, home))
    yield ForgetItem("turns in the spool", spool.forget(matches, is_meant, delete=request.delete))


def _forget_conversations(home: Path, request: ForgetRequest) -> Iterator[ForgetItem]:
    where = locate(home)
    if not where.exists:
        return
    with closing(where.open()) as archive:
        if request.text:
            yield from _forget_messages(archive, request)
        else:
            chosen = _sessions(archive, request)
            messages = sum(each.messages for each in chosen)
            if request.delete:
                archive.delete(chosen)
            yield ForgetItem("conversations", len(chosen), tuple(map(_described, chosen)))
            yield ForgetItem("messages", messages)
        if request.delete and not archive.erase_deleted():
            raise DatabaseError(
                "an agent reads it, so its free space could not be emptied",
                where=where.shown,
                hint="run the same command again, or when no agent runs",
            )


def _forget_messages(archive: Archive, request: ForgetRequest) -> Iterator[ForgetItem]:
    matches = Needles.of(request.text).found_in
    found = archive.replace_texts(matches) if request.delete else archive.texts(matches)
    yield ForgetItem("messages", len(found.messages), tuple(previews(found.previews)))
    yield ForgetItem("titles of conversations", len(found.titles))


def _described(session: Session) -> str:
    title = f" {session.title}" if session.title else ""
    return f"{session.id}{title} ({session.messages:,} messages)"
