"""Conversations that were found, with what the tool `session_search` shows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import groupby
from typing import Any, Final, NamedTuple

from hermes_builtin.sessions import display
from hermes_builtin.sessions.archive import (
    NOBODY,
    TALK,
    Hit,
    Message,
    Reader,
    SearchOptions,
    Session,
    Span,
    TitleMatch,
    Window,
    message_origin,
    window_of,
)
from hermes_builtin.sessions.numbers import role_name
from hermes_builtin.sessions.query import Query
from hermes_builtin.sessions.session_text import SessionText
from hermes_core.privacy.origin import ASSISTANT, authority, lowest

_BOOKEND: Final = 3


_AROUND_HIT: Final = 5


LONGEST_MESSAGE: Final = 4000


_PREVIEW: Final = 60


# Tool results of a conversation that its other messages are compared with.
TOOL_MESSAGES: Final = 100


class ConversationMatch(NamedTuple):
    """A conversation to show: found by a message, or by its title (``message_id`` is None)."""

    session: Session
    message_id: int | None


class Excerpt(NamedTuple):
    """What is shown of a conversation that was found.

    Attributes:
        match: The conversation.
        lineage: The ids of the conversation and of those that it continues.
        window: The messages around the one that was found, or around its first.
        anchor: That message.
        begin: How it begins, if that is to be shown and the window does not.
        end: How it ends.
        tools: What its tools returned at last, which its other messages are compared with.
    """

    match: ConversationMatch
    lineage: list[str]
    window: Window
    anchor: Message
    begin: list[Message]
    end: list[Message]
    tools: list[Message]
    full: bool


def user_first(archive: Reader, hits: list[Hit]) -> list[Hit]:
    """The hits, of equals those of the user before those that strangers may have written."""
    groups = [list(group) for _, group in groupby(hits, key=lambda hit: hit.score)]
    equals = [hit for group in groups if len(group) > 1 for hit in group]
    if not equals:  # each costs a look at its message
        return hits
    found = archive.read([Span(hit.message_id, hit.message_id, 1) for hit in equals])
    known = {
        hit.message_id: authority(message_origin(hit.session.source, each))
        for hit, messages in zip(equals, found, strict=True)
        for each in messages
    }
    for group in groups:
        group.sort(key=lambda hit: known.get(hit.message_id, 0), reverse=True)
    return [hit for group in groups for hit in group]


def excerpts_of(
    archive: Reader,
    hits: list[Hit],
    titled: list[TitleMatch],
    query: Query,
    options: SearchOptions,
    *,
    full: bool,
) -> list[Excerpt]:
    """The hits in their order, and conversations that only their titles let find.

    Whoever asks for an exact title wants that conversation: it comes first, as in hermes-agent.
    Others come last; one has a place among full results if its title has several words of the
    query, and all of them.
    """
    by_title = [ConversationMatch(each.session, None) for each in titled]
    exact = [match for match, each in zip(by_title, titled, strict=True) if each.exact][:1]
    by_message = [ConversationMatch(hit.session, hit.message_id) for hit in hits]
    sessions = {each.session.number: each.session for each in (*by_message, *by_title)}
    found_lineages = archive.lineages(list(sessions.values()))
    lineages = dict(zip(sessions, found_lineages, strict=True))
    by_root = _by_root([*exact, *by_message], lineages)
    found = list(by_root.values())[: options.limit]
    others = _by_root(by_title, lineages)
    more = [match for root, match in others.items() if root not in by_root]
    if more and len(found) == options.limit > 1 and len(query.terms) > 1:
        # The last hit makes room for one conversation whose title has all words.
        found.pop()
    return _read_excerpts(archive, [*found, *more][: options.limit], lineages, full=full)


def _by_root(
    matches: list[ConversationMatch], lineages: Mapping[int, list[str]]
) -> dict[str, ConversationMatch]:
    """The first match of each lineage, by the first session of it."""
    found: dict[str, ConversationMatch] = {}
    for match in matches:
        found.setdefault(lineages[match.session.number][-1], match)
    return found


def _read_excerpts(
    archive: Reader,
    matches: list[ConversationMatch],
    lineages: Mapping[int, list[str]],
    *,
    full: bool,
) -> list[Excerpt]:
    """What is shown of conversations: all of it is read at once."""
    anchors = _anchors(archive, matches)
    # The best result always in full: one good answer saves the model a second call.
    first = anchors[0][0] if anchors else None
    wanted = [(match, anchor, full or match is first) for match, anchor in anchors]
    read = iter(archive.read([span for each in wanted for span in _spans(*each)]))
    excerpts = []
    for match, anchor_id, is_full in wanted:
        before, here, after, begin, end, tools = (next(read) for _ in range(6))
        window = window_of(match.session, before, here, after)
        if not window.messages:  # deleted in the meantime
            continue
        shown = window.messages
        excerpts.append(
            Excerpt(
                match,
                lineages[match.session.number],
                window,
                shown[window.shown_before(anchor_id)],
                [each for each in begin if each.id < shown[0].id] if window.before else [],
                [each for each in end if each.id > shown[-1].id] if window.after else [],
                tools,
                is_full,
            )
        )
    return excerpts


def _anchors(
    archive: Reader, matches: list[ConversationMatch]
) -> list[tuple[ConversationMatch, int]]:
    """The matches and the messages to show: of one that its title lets find, the first."""
    untold = [match for match in matches if match.message_id is None]
    if not untold:
        return [(match, match.message_id or 0) for match in matches]
    found = archive.read([Span.first_of(match.session, 1) for match in untold])
    firsts = {
        match.session.number: messages[0].id
        for match, messages in zip(untold, found, strict=True)
        if messages
    }
    return [
        (
            match,
            firsts.get(match.session.number, 0) if match.message_id is None else match.message_id,
        )
        for match in matches
    ]


def _spans(match: ConversationMatch, anchor_id: int, full: bool) -> list[Span]:
    """What to read of a conversation: around a message, both ends, and what its tools returned."""
    session = match.session
    # What only the user says is compared with nothing.
    compared = full or role_name(anchor_id) != "user" or session.source in NOBODY
    ends = _BOOKEND if full else 0
    return [
        *Span.around(session, anchor_id, _AROUND_HIT, TALK),
        Span.first_of(session, ends, TALK),
        Span.last_of(session, ends, TALK),
        Span.last_of(session, TOOL_MESSAGES if compared else 0, ("tool", "")),
    ]


class MessageLabels:
    """Where the messages of a conversation come from, for the session that reads them now.

    What the assistant wrote may repeat what a tool returned. The archive has both, so this is
    compared when somebody reads it, and not when the turn is stored.

    Args:
        session: The conversation.
        reader: The words of the session that reads it: a note may be made of what it reads.
        tools: Returns the last messages of its tools, when they are needed.
    """

    def __init__(
        self, session: Session, reader: SessionText, tools: Callable[[], list[Message]]
    ) -> None:
        self._source = session.source
        self._reader = reader
        self._tools = tools

    @cached_property
    def _read(self) -> SessionText:
        """What the tools of the conversation returned."""
        text = SessionText()
        for each in self._tools():
            text.add(each.content, message_origin(self._source, each))
        return text

    def of(self, message: Message) -> str:
        """Where a message comes from, if an answer repeats what a tool returned too."""
        origin = message_origin(self._source, message)
        if origin != ASSISTANT:
            self._reader.add(message.content[:LONGEST_MESSAGE], origin)
            return origin
        copied = self._read.copied(message.content[:LONGEST_MESSAGE])
        for each in copied:
            self._reader.add(*each)
        return lowest((origin for _, origin in copied), origin)

    def label(self, message: Message, most: int, **place: Any) -> dict[str, Any]:
        """A message to show, with its origin unless its role says it."""
        shown = display.message(message, most, **place)
        origin = self.of(message)
        return shown if origin == message.role else {**shown, "origin": origin}


def shown_message(
    each: Message, anchor: Message, words: frozenset[str], share: int, origins: MessageLabels
) -> dict[str, Any]:
    """A message of an excerpt; the one that was found gets two shares of the room."""
    if each.id != anchor.id:
        return origins.label(each, share)
    around = display.first_hit(each.content, words) if len(each.content) > share else 0
    return origins.label(each, 2 * share, around=around, anchor=True)


def counts(window: Window, anchor_id: int) -> dict[str, int]:
    """How many messages of a window are on either side of one, and how many are beyond it."""
    before = window.shown_before(anchor_id)
    return {
        "messages_before": before,
        "messages_after": len(window.messages) - 1 - before,
        "remaining_before": window.before,
        "remaining_after": window.after,
    }


def preview(messages: list[Message]) -> str:
    """The beginning of the first message."""
    text = " ".join(messages[0].content[: 4 * _PREVIEW].split()) if messages else ""
    return text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}..."
