"""The built-in's part of `hermes-plugins forget`: notes, pending writes and conversations.

A note that has the text is removed as a whole. A message's text is replaced, so that the
conversation stays readable; its words leave the index. Nothing of it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from hermes_builtin.imported import forget_imported
from hermes_builtin.items import forget_items
from hermes_builtin.notes import Notes, NotesError, Person, previews
from hermes_builtin.sessions.archive import EVERYBODY, Archive, Scope, Session, SessionFacts
from hermes_builtin.sessions.conversations import keywords_of, open_archive
from hermes_builtin.sessions.display import link
from hermes_builtin.sessions.location import locate
from hermes_builtin.sessions.request import linked
from hermes_builtin.sessions.spool import Spool
from hermes_core import DatabaseError, ForgetItem, ForgetReport, ForgetRequest, HermesError
from hermes_core.config import load_config
from hermes_core.provider import ArchivedSession, RequestSessions
from hermes_core.session import TERMINAL, identity_text
from hermes_core.storage.search import Needles

#: Conversations whose id, user or chat has the text.
_IDS: Final = "ids of conversations"
#: How many passages of deleted conversations the files are searched for, and how long each is.
_PASSAGES: Final = 100
_SHORTEST_PASSAGE: Final = 12
_LONGEST_PASSAGE: Final = 60

Matches = Callable[[str], bool]


class _ForgetFindings:
    """What the parts of a `forget` found. A damaged one does not keep the others from running."""

    def __init__(self) -> None:
        self.items: list[ForgetItem] = []
        self.problems: list[str] = []

    def run(self, part: Callable[[], Iterable[ForgetItem]]) -> None:
        """Run one part: its items are kept, also those in front of an error."""
        with self.noting():
            for each in part():
                self.items.append(each)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Take down what can't be read or changed, and go on."""
        try:
            yield
        except (HermesError, OSError) as error:
            self.problems.append(str(error))


def forget(request: ForgetRequest) -> ForgetReport:
    """Find what a request means in the notes and conversations of a home, and delete it."""
    home = Path(request.home)
    parts = _ForgetFindings()
    # The spool first: what it hands over later must not have it any more.
    parts.run(partial(_forget_spool, home, request))
    with parts.noting(), closing(_notes(home, parts)) as notes:
        (_forget_entries if request.text else _forget_origins)(notes, request, parts)
        if request.delete and notes.history.exists:
            notes.database.erase_free_space()
    parts.run(partial(_forget_conversations, home, request))
    parts.run(partial(_forget_items, home, request))
    parts.run(partial(_forget_imported, home, request))
    items = tuple(each for each in parts.items if each.count)
    return ForgetReport(items, tuple(dict.fromkeys(parts.problems)))


def _notes(home: Path, parts: _ForgetFindings) -> Notes:
    """The notes of a home; those in its files if it is unknown where they are."""
    try:
        return Notes.open(home, load_config(home).memory)
    except (HermesError, OSError) as error:
        parts.problems.append(str(error))
        return Notes(home)


def sessions_of_request(request: ForgetRequest) -> RequestSessions:
    """Whose memories a request is about; see `BuiltinMethods.sessions_of_request`."""
    home = Path(request.home)
    platforms: set[str] = set()
    if request.user_id:
        people = Notes(home).people()
        platforms = {each.platform for each in people if each.user_id == request.user_id}
    try:
        return _sessions_of_request(home, request, platforms)
    except (HermesError, OSError) as error:
        # The other stores can be emptied without it.
        return RequestSessions(platforms=tuple(sorted(platforms)), problem=str(error))


def _sessions_of_request(
    home: Path, request: ForgetRequest, platforms: set[str]
) -> RequestSessions:
    with _archive(home) as archive:
        chosen = _sessions(archive, request)
        if request.user_id:
            wanted = identity_text(request.user_id)
            platforms = platforms | {platform for platform, _ in archive.people(wanted)}
        if request.text:
            # One of each person: memories of a provider belong to people, not to sessions.
            chosen = list({each.owner: each for each in archive.sessions(EVERYBODY)}.values())
        return RequestSessions(
            tuple(
                ArchivedSession(each.name or each.id, keywords_of(each), each.id) for each in chosen
            ),
            () if request.text else tuple(_passages(archive, chosen)),
            tuple(sorted(platforms)),
        )


def _passages(archive: Archive, sessions: list[Session]) -> list[str]:
    """The beginnings of some messages, from all of the sessions."""
    found: list[str] = []
    each = max(_PASSAGES // max(len(sessions), 1), 1)
    for session in sessions[:_PASSAGES]:
        texts = [message.content.strip() for message in archive.first(session, each)]
        found += [text[:_LONGEST_PASSAGE] for text in texts if len(text) >= _SHORTEST_PASSAGE]
    return list(dict.fromkeys(found))


# -- notes --------------------------------------------------------------------------------------


def _forget_entries(notes: Notes, request: ForgetRequest, parts: _ForgetFindings) -> None:
    """Entries of notebooks, and every other place that has their text."""
    matches = Needles.of(request.text).found_in
    books = [each for each in notes.all_notebooks() if each.text.exists]
    entries: dict[str, list[str]] = {}
    for book in books:
        with parts.noting():
            entries[book.key] = [each for each in book.read().entries if matches(each)]
    noted = [each for found in entries.values() for each in found]
    # First what is recorded of the texts: it is found by them.
    parts.run(partial(_forget_records, notes, request, noted))
    for book in books:
        with parts.noting():
            if request.delete and book.key in entries:
                book.forget(matches)
        found = entries.get(book.key, [])
        parts.items.append(ForgetItem(_name(book.key), len(found), tuple(previews(found))))
    known = {*entries}
    with parts.noting():
        # Those whose file is gone, or can't be read.
        if request.delete and notes.history.exists:
            for target in set(notes.history.targets()) - known:
                notes.history.erase(target, matches)
    parts.run(partial(_forget_pending, notes, request))


def _forget_records(notes: Notes, request: ForgetRequest, noted: list[str]) -> Iterator[ForgetItem]:
    """What the history has of changes, and of refused and allowed texts."""
    matches = Needles.of(request.text).found_in
    changes = notes.history.matching(matches) if notes.history.exists else []
    blocked = notes.decisions.matching(matches)
    if request.delete:
        texts = [*noted, *(each.text for each in blocked)]
        texts += [entry for _, _, having in changes for entry in having]
        notes.decisions.erase([each.id for each in blocked], texts)
    yield ForgetItem("note history", len(changes))
    yield ForgetItem("refused notes", len(blocked), tuple(previews([b.text for b in blocked])))


def _forget_pending(notes: Notes, request: ForgetRequest) -> Iterator[ForgetItem]:
    matches = Needles.of(request.text).found_in
    pending = [name for name, text in notes.pending.texts().items() if matches(text)]
    if request.delete:
        for name in pending:
            notes.pending.erase(name)
    yield ForgetItem("pending notes", len(pending))


def _name(key: str) -> str:
    target, slash, _ = key.partition("/")
    # Not the name of a user's folder: it contains the user's id.
    return "USER.md of a user" if slash else {"memory": "MEMORY.md", "user": "USER.md"}[target]


class _Origins(NamedTuple):
    """Which notes belong to a session or a person."""

    sessions: frozenset[str]
    key: str = ""  # of the person's own USER.md


def _forget_origins(notes: Notes, request: ForgetRequest, parts: _ForgetFindings) -> None:
    """A person's own notebook, and which session a note was made in."""
    said = sessions_of_request(request).sessions
    names = {name for each in said for name in (each.session, each.id)}
    key = ""
    if request.user_id:
        key = f"user/{Person(request.platform, request.user_id).folder}"
    whose = _Origins(frozenset(names | {request.session_id} - {""}), key)
    parts.run(partial(_forget_staged, notes, request, whose))
    has_folder = bool(key) and notes.has_own(key)
    entries = _own_entries(notes, key) if has_folder else []
    parts.run(partial(_forget_origin_records, notes, request, whose, entries))
    if has_folder:
        if request.delete:
            with parts.noting():
                notes.drop_own(key)
        parts.items.append(ForgetItem("USER.md of a user", len(entries), tuple(previews(entries))))
        parts.items.append(ForgetItem("folder of a user", 1))


def _forget_staged(notes: Notes, request: ForgetRequest, whose: _Origins) -> Iterator[ForgetItem]:
    pending = [each.id for each in notes.pending.all() if _is_of(each.session, each.target, whose)]
    if request.delete:
        for name in pending:
            notes.pending.discard(name)
    yield ForgetItem("pending notes", len(pending))


def _forget_origin_records(
    notes: Notes, request: ForgetRequest, whose: _Origins, entries: list[str]
) -> Iterator[ForgetItem]:
    key = whose.key
    blocked = [each.id for each in notes.blocked() if key and each.target == key]
    changes = of_session = 0
    if notes.history.exists:
        changes = notes.history.count(key) if key else 0
        of_session = notes.history.of_sessions(whose.sessions, clear=request.delete)
    if request.delete:
        notes.decisions.erase(blocked, entries)
        if key and notes.history.exists:
            notes.history.drop(key)
    yield ForgetItem("note history", changes + of_session)
    yield ForgetItem("refused notes", len(blocked))


def _is_of(session: str, target: str, whose: _Origins) -> bool:
    is_said_there = bool(session) and session in whose.sessions
    return is_said_there or (bool(whose.key) and target == whose.key)


def _own_entries(notes: Notes, key: str) -> list[str]:
    with suppress(NotesError):
        return notes.book(key).read().entries
    return []


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


def _forget_items(home: Path, request: ForgetRequest) -> Iterator[ForgetItem]:
    """What programs stored as items: see `hermes_builtin.items`."""
    matches = Needles.of(request.text).found_in if request.text else (lambda _: False)
    who = {"user_id": request.user_id, "platform": request.platform}
    found = forget_items(home, matches, **who, delete=request.delete)
    yield ForgetItem("items", len(found), tuple(previews(found)))


def _forget_imported(home: Path, request: ForgetRequest) -> Iterator[ForgetItem]:
    """Memories of providers that came with an import."""
    matches = Needles.of(request.text).found_in if request.text else (lambda _: False)
    who = {"user_id": request.user_id, "platform": request.platform}
    found = forget_imported(home, matches, **who, delete=request.delete)
    yield ForgetItem("imported memories", len(found), tuple(previews(found)))


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
        yield from _forget_unused(archive, request)
        if request.delete and not archive.erase_deleted():
            raise DatabaseError(
                "an agent reads it, so its free space could not be emptied",
                where=where.shown,
                hint="run the same command again, or when no agent runs",
            )


def _forget_unused(archive: Archive, request: ForgetRequest) -> Iterator[ForgetItem]:
    """What an earlier version, or another process at the same moment, has not removed."""
    user = identity_text(request.user_id) if request.user_id else None
    found = archive.unused(request.text, user, request.platform, delete=request.delete)
    yield ForgetItem("unused words of the index", found.words)
    yield ForgetItem("unused ids of users", found.people)


def _forget_messages(archive: Archive, request: ForgetRequest) -> Iterator[ForgetItem]:
    matches = Needles.of(request.text).found_in
    found = archive.replace_texts(matches) if request.delete else archive.texts(matches)
    yield ForgetItem("messages", len(found.messages), tuple(previews(found.previews)))
    yield ForgetItem("titles of conversations", len(found.titles))
    if not request.delete:
        # An id is part of other ids and of links: it goes with its conversation only.
        named = [each for each in archive.sessions(EVERYBODY) if _is_named(each, matches)]
        yield ForgetItem(_IDS, len(named), tuple(map(_described, named)))


def _is_named(session: Session, matches: Callable[[str], bool]) -> bool:
    ids = (session.id, session.name, session.parent, session.user_id, session.chat_id)
    return any(map(matches, (*ids, session.profile)))


def _described(session: Session) -> str:
    title = f" {session.title}" if session.title else ""
    return f"{session.id}{title} ({session.messages:,} messages)"
