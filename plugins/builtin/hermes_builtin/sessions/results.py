"""What a person gets of conversations: the results of a search, and an export."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from hermes_builtin.sessions import display
from hermes_builtin.sessions.archive import (
    EVERYBODY,
    ROLES,
    Archive,
    Message,
    SearchOptions,
    Session,
    message_origin,
)
from hermes_builtin.sessions.query import Query


class SearchResult(NamedTuple):
    """A conversation that was found.

    ``snippet`` has ``>>>`` and ``<<<`` around the words that were looked for.
    """

    session: Session
    message: Message
    snippet: str


class SearchResults(NamedTuple):
    """The answer to a person's search.

    Attributes:
        results: The best first.
        words: The index words that were looked for, to show them in texts.
        approximate: A word was so frequent that not all of its messages were looked at.
        behind: Why the newest messages could not be looked at.
        reason: Why nothing was found; "" if something was.
    """

    results: list[SearchResult]
    words: frozenset[str]
    approximate: bool = False
    behind: str = ""
    reason: str = ""


def search_conversations(
    archive: Archive, query: Query, options: SearchOptions, mask: Callable[[str], str] = str
) -> SearchResults:
    """Search messages, then titles; say why if nothing is found.

    Args:
        archive: Where to search.
        query: What to search for.
        options: Whose, and how many.
        mask: Hides secrets in the texts that snippets are cut from.
    """
    found = archive.search(query, options)
    anchors = [archive.around(hit.session, hit.message_id, 0, ()).messages for hit in found.hits]
    results = [
        SearchResult(hit.session, anchor[0], display.snippet(anchor[0], found.words, mask))
        for hit, anchor in zip(found.hits, anchors, strict=True)
        if anchor
    ]
    known = {hit.session.number for hit in found.hits}
    results += _by_title(archive, query, options, known, mask)
    reason = "" if results else _why_nothing(archive, query, options)
    return SearchResults(
        results[: options.limit], found.words, found.approximate, found.behind, reason
    )


def _by_title(
    archive: Archive,
    query: Query,
    options: SearchOptions,
    known: AbstractSet[int],
    mask: Callable[[str], str],
) -> Iterator[SearchResult]:
    """Other conversations whose titles have the words, each with its first message.

    One of the words is enough where nothing else is found.
    """
    words = frozenset(term.word for term in query.with_nothing_required().terms)
    titled = archive.titled(query, options)
    if not titled and not known:
        titled = archive.titled(query.with_any_word(), options)
    for session, _ in titled:
        if session.number not in known:
            for first in archive.first(session, 1):
                title = display.title(session, words, mask)
                yield SearchResult(session, first._replace(role="session_title"), title)


def _why_nothing(archive: Archive, query: Query, options: SearchOptions) -> str:
    """Why a search found nothing, or that there is nothing."""
    every_role = options._replace(roles=frozenset((*ROLES, "")))
    for other, where, reason in (
        (query._replace(roles=frozenset()), every_role, "messages of other roles match"),
        (query, options._replace(scope=EVERYBODY), "conversations of other users match"),
        (query._replace(after=None, before=None), options, "messages of other times match"),
        (query.with_nothing_excluded(), options, "all matches contain an excluded word"),
        (query.with_nothing_required(), options, "its words occur, but not as a phrase"),
    ):
        if archive.search(other, where).hits:
            return f"No match; {reason}."
    return "No conversation matches."


# -- export -------------------------------------------------------------------------------------


def session_facts(session: Session) -> dict[str, Any]:
    """What is known of a conversation, for JSON."""
    facts = {key: value for key, value in session._asdict().items() if key != "number"}
    return {**facts, "platform": session.place}


def message_facts(session: Session, message: Message) -> dict[str, Any]:
    """A message, for JSON."""
    return {
        "role": message.role,
        "content": message.content,
        "timestamp": message.at,
        **message.extra,
        "origin": message_origin(session.source, message),
    }


def exported(archive: Archive, session: Session) -> str:
    """A conversation as one line of JSON, which `sessions import` reads."""
    facts = session_facts(session)
    return json.dumps(
        {
            "session_id": session.id,
            **{key: value for key, value in facts.items() if key not in ("id", "messages")},
            "messages": [message_facts(session, each) for each in archive.messages(session)],
        },
        ensure_ascii=False,
    )
