"""Conversations as a person looks at them: browse, search, read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from hermes_builtin.sessions.archive import (
    EVERYBODY,
    ROLES,
    Archive,
    Message,
    Period,
    Scope,
    SearchOptions,
    Session,
    Window,
    message_origin,
)
from hermes_builtin.sessions.display import marked
from hermes_builtin.sessions.query import parse
from hermes_builtin.sessions.results import SearchResult, exported, search_conversations
from hermes_builtin.sessions.words import storable
from hermes_core import HermesError
from hermes_core.privacy.origin import is_external
from hermes_core.session import identity_text
from hermes_inspector.notes import day_start

BROWSED: Final = 50
FOUND: Final = 20
#: Messages on either side of the one that is in view.
AROUND: Final = 50
#: Messages that are looked at to find the one that a note comes from.
_COMPARED: Final = 2000
_TITLE: Final = 120
_SECONDS: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,2})?")
_NUMBER: Final = re.compile("[0-9]{1,18}")
_WORD: Final = re.compile(r"\w+")
_MARKS: Final = re.compile(r">>>|<<<")

#: A text in pieces, each with whether it was looked for.
Pieces = tuple[tuple[str, bool], ...]
#: Hides secrets in a text. It gets whole texts: in a piece, a secret may not be recognised.
Mask = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which conversations to show; "" for any.

    Attributes:
        query: Words to look for.
        since: The first day.
        until: The last day.
        platform: Where it took place.
        user: Whose it is.
        hidden: Also those of subagents and tools.
        older: Where to go on: ``active:number`` of the last conversation on a page.
    """

    query: str = ""
    since: str = ""
    until: str = ""
    platform: str = ""
    user: str = ""
    hidden: bool = False
    older: str = ""

    @property
    def scope(self) -> Scope:
        """Whose conversations."""
        return Scope(
            user_id=identity_text(self.user) if self.user else None,
            platform=identity_text(self.platform) if self.platform else None,
        )

    @property
    def period(self) -> Period:
        """From when on, and until when.

        Raises:
            HermesError: A day can't be read.
        """
        after = day_start(self.since).timestamp() if self.since else None
        before = (day_start(self.until) + timedelta(days=1)).timestamp() if self.until else None
        return Period(after, before, _position(self.older))


def _position(text: str) -> tuple[float, int] | None:
    active, _, number = text.partition(":")
    if not text:
        return None
    if not _SECONDS.fullmatch(active) or not _NUMBER.fullmatch(number):
        raise HermesError("that page does not exist", hint="start with the newest")
    return float(active), int(number)


@dataclass(frozen=True, slots=True)
class Row:
    """A conversation in a list.

    Attributes:
        id: Its id.
        title: What it is about.
        at: When the newest message came; of a result, when the message was said.
        messages: How many messages it has.
        source: Where it comes from.
        user: Whose it is.
        snippet: The part that was looked for.
        message_id: The message that was found; 0 in a list without a search.
        role: Who said it.
    """

    id: str
    title: str
    at: float
    messages: int
    source: str
    user: str
    snippet: Pieces = ()
    message_id: int = 0
    role: str = ""


@dataclass(frozen=True, slots=True)
class ConversationList:
    """A page of conversations.

    Attributes:
        rows: The conversations.
        older: Where the next page begins; "" at the end.
        remark: Why nothing was found, or what was not searched.
    """

    rows: tuple[Row, ...]
    older: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    """A message in a conversation."""

    id: int
    role: str
    at: float
    text: Pieces
    origin: str
    external: bool
    tool: str = ""
    wanted: bool = False


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """A stretch of a conversation, with links to what is before and behind it."""

    row: Row
    platform: str
    chat: str
    profile: str
    started: float
    parent: str
    messages: tuple[ConversationMessage, ...]
    before: int
    after: int
    anchor: int


def conversation_list(archive: Archive, wanted: Filter, mask: Mask) -> ConversationList:
    """Browse, or search if there are words to look for."""
    if wanted.query.strip():
        return _found(archive, wanted, mask)
    found = archive.browse(wanted.scope, BROWSED + 1, hidden=wanted.hidden, within=wanted.period)
    shown = found[:BROWSED]
    last = shown[-1] if len(found) > BROWSED else None
    older = f"{last.active!r}:{last.number}" if last else ""
    return ConversationList(tuple(_row(archive, each, mask) for each in shown), older)


def _found(archive: Archive, wanted: Filter, mask: Mask) -> ConversationList:
    period = wanted.period
    query = parse(storable(wanted.query))
    # What is typed into the query itself is as good as the fields below it.
    query = query._replace(
        after=query.after if period.after is None else period.after,
        before=query.before if period.before is None else period.before,
    )
    # A person sees everything in their archive; only the model's tool hides subagents.
    options = SearchOptions(wanted.scope, frozenset((*ROLES, "")), FOUND, hidden=True)
    found = search_conversations(archive, query, options, mask)
    remarks = [found.reason] if found.reason else []
    if found.approximate:
        remarks.append("These words are very frequent; only the newest matches are ranked.")
    if found.behind:
        remarks.append(f"The newest messages were not searched: {found.behind}")
    rows = tuple(_result(archive, each, mask) for each in found.results)
    return ConversationList(rows, remark=" ".join(remarks))


def _row(archive: Archive, session: Session, mask: Mask) -> Row:
    title = session.title
    if not title:
        first = archive.first(session, 1, ("user",))
        title = first[0].content if first else ""
    return Row(
        session.id,
        _short(mask(title[: 4 * _TITLE])),
        session.active,
        session.messages,
        session.source or session.place,
        session.user_id,
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TITLE else f"{line[:_TITLE]}…"


def _result(archive: Archive, found: SearchResult, mask: Mask) -> Row:
    session, message, snippet = found
    row = _row(archive, session, mask)
    return Row(
        row.id, row.title, message.at, row.messages, row.source, row.user,
        tuple(_pieces(snippet)), message.id, message.role,
    )  # fmt: skip


def _pieces(snippet: str) -> Iterator[tuple[str, bool]]:
    for number, piece in enumerate(_MARKS.split(snippet)):
        if piece:
            yield piece, bool(number % 2)


# -- reading ------------------------------------------------------------------------------------


def find_session(archive: Archive, session_id: str) -> Session:
    """A conversation by its id.

    Raises:
        HermesError: There is none.
    """
    session = archive.session(session_id, EVERYBODY)
    if session is None:
        raise HermesError("no such conversation", where=session_id)
    return session


def conversation(
    archive: Archive, session_id: str, mask: Mask, *, at: int = 0, query: str = "", like: str = ""
) -> ConversationPage:
    """A conversation around a message, or from its beginning.

    Args:
        archive: Where it is.
        session_id: Its id.
        mask: Hides secrets.
        at: The message that is in view.
        query: The words that were looked for.
        like: A text, such as a note: the message that has most of its words is in view.

    Raises:
        HermesError: There is no such conversation.
    """
    session = find_session(archive, session_id)
    anchor = at or (_most_like(archive, session, like) if like else 0)
    window = archive.around(session, anchor, AROUND, ()) if anchor else None
    if window is None or not window.messages:
        anchor = 0
        messages = archive.first(session, 2 * AROUND)
        window = Window(messages, 0, max(session.messages - len(messages), 0))
    words = _index_words(f"{query} {like}")
    said = tuple(
        _said(session, each._replace(content=mask(each.content)), words, anchor)
        for each in window.messages
    )
    return ConversationPage(
        _row(archive, session, mask),
        session.place,
        session.chat_id,
        session.profile,
        session.started,
        session.parent,
        said,
        window.before,
        window.after,
        anchor,
    )


def _index_words(query: str) -> frozenset[str]:
    parsed = parse(storable(query)).with_nothing_required()
    return frozenset(term.word for term in parsed.terms)


def _said(
    session: Session, message: Message, words: frozenset[str], anchor: int
) -> ConversationMessage:
    origin = message_origin(session.source, message)
    return ConversationMessage(
        message.id,
        message.role,
        message.at,
        tuple(marked(message.content, words)),
        origin,
        is_external(origin),
        str(message.extra.get("tool_name") or ""),
        message.id == anchor,
    )


def _most_like(archive: Archive, session: Session, text: str) -> int:
    """The message that has most words of a text; 0 if none has any."""
    wanted = set(_WORD.findall(text.casefold()))
    best, most = 0, 0
    for number, message in enumerate(archive.messages(session)):
        if number >= _COMPARED:
            break
        shared = len(wanted.intersection(_WORD.findall(message.content.casefold())))
        # Of equals the first: who said it before the others repeated it.
        if shared > most:
            best, most = message.id, shared
    return best


def export_lines(archive: Archive, session_id: str = "") -> Iterator[str]:
    """One conversation or all of them, as lines of JSON."""
    sessions = [find_session(archive, session_id)] if session_id else archive.sessions(EVERYBODY)
    return (f"{exported(archive, each)}\n" for each in sessions)
