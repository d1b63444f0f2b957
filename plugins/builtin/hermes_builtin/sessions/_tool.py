"""The `session_search` tool: a model's way into past conversations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from hermes_builtin.sessions import _show
from hermes_builtin.sessions._conversations import Conversations
from hermes_builtin.sessions._model import (
    ROLES,
    TALK,
    Found,
    Hit,
    Message,
    Session,
)
from hermes_builtin.sessions._query import LONGEST_QUERY, Query, parse
from hermes_builtin.sessions._request import BadRequest, Request
from hermes_builtin.sessions.archive import SearchOptions
from hermes_core import HermesError

SCHEMA: Final[dict[str, Any]] = {
    "name": "session_search",
    "description": (
        "Search past conversations. Use it when the user refers to something said before, or "
        "when you would otherwise ask for what they may have told you already. With query: the "
        "best matching conversations, each with the messages around the hit and how it began and "
        'ended. Ask in plain words; "a phrase", -without, prefix*, role:user, after:2026-01, '
        "before:7d also work. With session_id: that conversation. With session_id and "
        "around_message_id: the messages around one. With nothing: the newest conversations."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "role_filter": {
                "type": "string",
                "description": "Whose messages: user, assistant, tool; several with commas. "
                "Default: user,assistant.",
            },
            "limit": {"type": "integer", "description": "Conversations to return: 3, 1 to 10."},
            "sort": {
                "type": "string",
                "enum": ["newest", "oldest"],
                "description": "By time instead of by relevance.",
            },
            "session_id": {"type": "string", "description": "Read this conversation."},
            "around_message_id": {
                "type": "integer",
                "description": "With session_id: show the messages around this one.",
            },
            "window": {
                "type": "integer",
                "description": "Messages on either side of it: 5, 1 to 20.",
            },
        },
        "required": [],
    },
}

_READ_FIRST: Final = 20
_READ_LAST: Final = 10
_BOOKEND: Final = 3
_AROUND_HIT: Final = 5
_ANSWER: Final = 48_000  # characters of conversation in one answer
_LONGEST_MESSAGE: Final = 4000
_BOOKEND_LENGTH: Final = 300
_PREVIEW: Final = 60

_OTHER_ROLES: Final = (
    'There are matches in messages of other roles: ask with role_filter "user,assistant,tool".'
)
_ROLES_OF_QUERY: Final = "There are matches, but by others than the query's role: asks for."
_HIDDEN: Final = "There are matches, but only in conversations of subagents and tools."
_HERE: Final = "It was said in this conversation only, which is not searched."
_EXCLUDED: Final = "There are matches, but all of them have what the query excludes."
_OTHER_TIME: Final = "There are matches, but none in that time."


class SessionSearch:
    """Answers calls of the tool, for one agent."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations
        self._scope = conversations.scope

    def call(
        self, args: Mapping[str, Any], session_id: str = "", told: Mapping[str, Any] | None = None
    ) -> str:
        """The answer as JSON; an error is said to be one.

        Args:
            args: What the model gave.
            session_id: The session that asks.
            told: What the host says of this call: a user, a chat.
        """
        self._scope = self._conversations.scope_for(told or {})
        try:
            answer = self._answer(Request.of(args), session_id or self._conversations.session_id)
        except (BadRequest, HermesError) as error:
            answer = {"success": False, "error": str(error)}
        return json.dumps(answer, ensure_ascii=False)

    def _answer(self, request: Request, current: str) -> dict[str, Any]:
        if request.session_id and request.around is not None:
            return self._scroll(request)
        if request.session_id:
            return self._read(request)
        if request.query.strip():
            return self._discover(request, current)
        return self._browse(request, current)

    # -- discover -------------------------------------------------------------------------

    def _discover(self, request: Request, current: str) -> dict[str, Any]:
        query = parse(request.query)
        archive, scope = self._conversations.archive, self._scope
        parent = self._conversations.parent_id
        options = SearchOptions(
            scope,
            request.roles or TALK,
            request.limit,
            request.newest,
            without=(*archive.names(current, scope), *filter(None, [parent])),
        )
        found = archive.search(query, options)
        notes: list[str] = []
        if len(request.query) > LONGEST_QUERY:
            notes.append(f"Only the first {LONGEST_QUERY:,} characters of the query were used.")
        if not found.hits and query.required:
            plainly = archive.search(query.with_nothing_required(), options)
            if plainly.hits:
                partly = "The newest messages were read for it: n" if found.approximate else "N"
                notes.append(
                    f"{partly}othing matches the query as it stands; these have its words."
                )
                found = plainly
        most = _ANSWER // max(len(found.hits), 1)
        shown = (self._result(hit, found, most) for hit in found.hits)
        results = [each for each in shown if each is not None]
        answer: dict[str, Any] = {
            "success": True,
            "mode": "discover",
            "query": request.query[:500],
            "results": results,
            "count": len(results),
        }
        if found.approximate and (results or not query.has_words):
            answer["approximate"] = True
        if found.approximate and results and query.has_words:
            notes.append(
                "These words are in very many messages: the newest conversations were looked at. "
                "A rarer word finds more."
            )
        if found.behind:
            notes.append(f"The newest messages were not looked at: {found.behind}")
        if not results:
            notes.append(self._why_nothing(query, options))
        if notes:
            answer["message"] = " ".join(notes)
        return answer

    def _result(self, hit: Hit, found: Found, most: int) -> dict[str, Any] | None:
        """A conversation that was found; None if it was deleted in the meantime."""
        archive, session = self._conversations.archive, hit.session
        window = archive.around(session, hit.message_id, _AROUND_HIT, TALK)
        if not window.messages:
            return None
        ids = [each.id for each in window.messages]
        anchor = next(each for each in window.messages if each.id == hit.message_id)
        first = archive.first(session, _BOOKEND, TALK) if window.before else []
        last = archive.last(session, _BOOKEND, TALK) if window.after else []
        begin = [each for each in first if each.id < ids[0]]
        end = [each for each in last if each.id > ids[-1]]
        share = max(most // (len(ids) + 2), 200)
        lineage = archive.lineage(session)
        result = {
            "session_id": session.id,
            "when": _show.when(session.started),
            "source": session.source[: _show.FACT],
            "title": session.title[: _show.FACT],
            "matched_role": anchor.role,
            "match_message_id": hit.message_id,
            "snippet": _show.snippet(anchor, found.words),
            "bookend_start": [_show.message(each, _BOOKEND_LENGTH) for each in begin],
            "messages": [self._shown(each, hit, found, share) for each in window.messages],
            "bookend_end": [_show.message(each, _BOOKEND_LENGTH) for each in end],
            "messages_before": window.before,
            "messages_after": window.after,
        }
        if len(lineage) > 1:
            result["parent_session_id"] = lineage[-1]
        return result

    @staticmethod
    def _shown(each: Message, hit: Hit, found: Found, share: int) -> dict[str, Any]:
        if each.id != hit.message_id:
            return _show.message(each, share)
        around = _show.first_hit(each.content, found.words) if len(each.content) > share else 0
        return _show.message(each, 2 * share, around=around, anchor=True)

    def _why_nothing(self, query: Query, options: SearchOptions) -> str:
        """Why a search found nothing: what was not looked at, or that it is not there."""
        reasons = [self._out_of_sight(query, options) or _absent(query)]
        scope = options.scope
        if scope.user_id or scope.chat_id or scope.profile not in ("", "default"):
            reasons.append("Only conversations of this user, chat and profile were searched.")
        if missing := self._conversations.elsewhere():
            reasons.append(
                f"{missing:,} conversations of hermes-agent in this home are not imported; the "
                "user can run: hermes-plugins sessions import"
            )
        return " ".join(reasons)

    def _out_of_sight(self, query: Query, options: SearchOptions) -> str:
        """What keeps matches from being found, if there are any."""
        all_roles = options._replace(roles=frozenset((*ROLES, "")), limit=1)
        plain = query._replace(roles=frozenset())
        timeless = plain._replace(after=None, before=None)
        for other, where, reason in (
            (plain, all_roles, _ROLES_OF_QUERY if query.roles else _OTHER_ROLES),
            (plain, all_roles._replace(hidden=True), _HIDDEN),
            (plain, all_roles._replace(without=()), _HERE),
            (plain.with_nothing_excluded(), all_roles, _EXCLUDED),
            (timeless, all_roles, _OTHER_TIME),
        ):
            if self._conversations.archive.search(other, where).hits:
                return reason
        return ""

    # -- scroll, read, browse ---------------------------------------------------------------

    def _scroll(self, request: Request) -> dict[str, Any]:
        archive = self._conversations.archive
        session = self._session(request.session_id)
        around = request.around or 0
        window = archive.around(session, around, request.window, ())
        if not window.messages:
            raise BadRequest(f"around_message_id {around} is not in session {session.id[:200]}")
        share = min(_LONGEST_MESSAGE, _ANSWER // len(window.messages))
        return {
            "success": True,
            "mode": "scroll",
            "session_id": session.id,
            "around_message_id": around,
            "window": request.window,
            "session_meta": _show.session_facts(session),
            "messages": [
                _show.message(each, share, anchor=each.id == around) for each in window.messages
            ],
            "messages_before": window.before,
            "messages_after": window.after,
            "count": len(window.messages),
        }

    def _read(self, request: Request) -> dict[str, Any]:
        archive = self._conversations.archive
        session = self._session(request.session_id)
        whole = session.messages <= _READ_FIRST + _READ_LAST
        messages = archive.first(session, session.messages if whole else _READ_FIRST)
        last = [] if whole else archive.last(session, _READ_LAST)
        share = min(_LONGEST_MESSAGE, _ANSWER // max(len(messages) + len(last), 1))
        answer: dict[str, Any] = {
            "success": True,
            "mode": "read",
            "session_id": session.id,
            "session_meta": _show.session_facts(session),
            "messages": [_show.message(each, share) for each in (*messages, *last)],
            "message_count": session.messages,
            "count": len(messages) + len(last),
        }
        if not whole:
            left_out = session.messages - len(messages) - len(last)
            answer["truncated"] = True
            answer["message"] = (
                f"{left_out:,} messages in the middle are left out: "
                f"scroll with around_message_id {messages[-1].id}."
            )
        return answer

    def _session(self, session_id: str) -> Session:
        session = self._conversations.archive.session(session_id, self._scope)
        if session is None:  # not there, or not theirs: the same words for both
            raise BadRequest(f"session_id not found: {session_id[:200]}")
        return session

    def _browse(self, request: Request, current: str) -> dict[str, Any]:
        archive = self._conversations.archive
        here = archive.names(current, self._scope)
        found = archive.browse(self._scope, request.limit + 1)
        sessions = [each for each in found if each.id not in here][: request.limit]
        results = [
            {
                "session_id": session.id,
                "title": session.title[: _show.FACT],
                "source": session.source[: _show.FACT],
                "started_at": session.started,
                "last_active": session.active,
                "message_count": session.messages,
                "preview": _preview(archive.first(session, 1, ("user",))),
            }
            for session in sessions
        ]
        answer: dict[str, Any] = {
            "success": True,
            "mode": "browse",
            "results": results,
            "count": len(results),
        }
        if not results:
            missing = self._conversations.elsewhere()
            answer["message"] = (
                f"{missing:,} conversations of hermes-agent are not imported yet: the user can "
                "run: hermes-plugins sessions import"
                if missing
                else "There are no past conversations."
            )
        return answer


def _absent(query: Query) -> str:
    if query.has_words:
        return "No conversation that was searched has these words."
    return "None of the newest messages has these signs; older ones were not read."


def _preview(messages: list[Message]) -> str:
    text = " ".join(messages[0].content[: 4 * _PREVIEW].split()) if messages else ""
    return text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}..."
