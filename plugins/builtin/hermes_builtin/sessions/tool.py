"""The `session_search` tool: its arguments, and its answers from past conversations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from hermes_builtin.sessions import display
from hermes_builtin.sessions.archive import (
    ROLES,
    TALK,
    Archive,
    Reader,
    SearchAnswer,
    SearchOptions,
    Session,
    TitleMatch,
)
from hermes_builtin.sessions.conversations import Conversations
from hermes_builtin.sessions.excerpts import (
    LONGEST_MESSAGE,
    TOOL_MESSAGES,
    Excerpt,
    MessageLabels,
    counts,
    excerpts_of,
    preview,
    shown_message,
    user_first,
)
from hermes_builtin.sessions.query import LONGEST_QUERY, Query, parse
from hermes_builtin.sessions.request import BadRequest, Request, linked
from hermes_builtin.sessions.spool import SpoolStatus
from hermes_builtin.sessions.words import storable
from hermes_core import HermesError
from hermes_core.privacy.origin import is_external

# Of a long conversation: how it begins, how it ends, and the hit with what is around it.
_READ_FIRST: Final = 20
_READ_LAST: Final = 10
_ANSWER: Final = 48_000  # characters of conversation in one answer
_BOOKEND_LENGTH: Final = 300

_OTHER_ROLES: Final = (
    'There are matches in messages of other roles: ask with role_filter "user,assistant,tool".'
)
_ROLES_OF_QUERY: Final = "There are matches, but by others than the query's role: asks for."
_HIDDEN: Final = "There are matches, but only in conversations of subagents and tools."
_HERE: Final = "It was said in this conversation only, which is not searched."
_EXCLUDED: Final = "There are matches, but all of them have what the query excludes."
_SOME_WORDS: Final = "No message matches; the titles of these have some of the words."
_OTHER_TIME: Final = "There are matches, but none in that time."


class SessionSearch:
    """Answers calls of the tool, for one agent."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations
        self._scope = conversations.scope
        self._current = conversations.text()
        #: Searched instead of the archive: what waits in the spool.
        self._instead: Archive | None = None

    @property
    def _archive(self) -> Archive:
        return self._conversations.archive if self._instead is None else self._instead

    def call(
        self,
        args: Mapping[str, Any],
        session_id: str = "",
        context: Mapping[str, Any] | None = None,
    ) -> str:
        """The answer as JSON; an error is said to be one.

        Args:
            args: What the model passed.
            session_id: The session that asks.
            context: What the host says about this call: a user, a chat.
        """
        self._scope = self._conversations.scope_for(context or {})
        self._current = self._conversations.text(session_id)
        try:
            answer = self._answer(Request.of(args), session_id or self._conversations.session_id)
        except (BadRequest, HermesError) as error:
            answer = {"success": False, "error": str(error)}
        return json.dumps(answer, ensure_ascii=False)

    def _answer(self, request: Request, current: str) -> dict[str, Any]:
        waiting = self._conversations.spool.waiting()
        if not waiting.turns:
            return self._answer_from_archive(request, current)
        try:
            answer = self._answer_from_archive(request, current)
        except (BadRequest, HermesError) as error:
            answer = {"success": False, "error": str(error)}
        return self._with_spool(answer, request, current, waiting)

    def _answer_from_archive(self, request: Request, current: str) -> dict[str, Any]:
        if request.session_id and request.around is not None:
            return self._scroll(request)
        if request.session_id:
            return self._read(request)
        if request.query.strip():
            return self._discover(request, current)
        return self._browse(request, current)

    def _with_spool(
        self, answer: dict[str, Any], request: Request, current: str, waiting: SpoolStatus
    ) -> dict[str, Any]:
        """The answer, and what the turns have to say that are not in the archive yet."""
        try:
            with self._conversations.spool.as_archive() as spooled:
                self._instead = spooled
                more = self._answer_from_archive(request, current)
        except (BadRequest, HermesError, OSError):
            more = {}
        finally:
            self._instead = None
        results = [*(answer.get("results") or ()), *(more.get("results") or ())]
        if not answer["success"] and not more.get("results", more.get("success")):
            return {**answer, "error": f"{answer['error']} ({waiting.text})"}
        note = f"{waiting.text}."
        if not answer["success"]:
            note = f"Only turns that are not in the archive yet were looked at: {answer['error']}"
            answer = more
        elif "results" not in answer:
            return {**answer, "message": f"{note} They are not included."}
        elif not more:
            note = f"{note} They could not be searched."
        elif more["results"]:
            # Then why nothing was found in the archive is not new.
            said = answer.get("message", "") if answer["results"] else ""
            count = len(results)
            answer = {**answer, "message": said, "count": count, "results": results}
            if "sessions_searched" in answer:
                answer["sessions_searched"] = count
            note = f"{note} They were searched, too."
        return {**answer, "message": " ".join(filter(None, [answer.get("message"), note]))}

    # -- discover -------------------------------------------------------------------------

    def _discover(self, request: Request, current: str) -> dict[str, Any]:
        query = parse(request.query)
        options = SearchOptions(
            self._scope,
            request.roles or TALK,
            request.limit,
            request.newest,
            # The session that asks is in the model's context already, and so is what it was
            # compressed from.
            without=tuple(filter(None, [storable(current), self._conversations.parent_id])),
            profiles=self._profiles(request.profile),
        )
        with self._archive.reading(self._scope) as archive:
            found, titled, note = self._found(archive, query, options)
            hits = found.hits
            if request.newest is None:
                hits = user_first(archive, hits)
            excerpts = excerpts_of(archive, hits, titled, query, options, full=request.full)
        notes = [note] if note else []
        if len(request.query) > LONGEST_QUERY:
            notes.append(f"Only the first {LONGEST_QUERY:,} characters of the query were used.")
        words = found.words or {term.word for term in query.with_nothing_required().terms}
        results = self._results(excerpts, frozenset(words))
        answer: dict[str, Any] = {
            "success": True,
            "mode": "discover",
            "query": request.query[:500],
            "detail": "full" if request.full else "adaptive",
            "results": results,
            "count": len(results),
            "sessions_searched": len(results),
        }
        if found.approximate and (results or not query.has_words):
            answer["approximate"] = True
        if found.approximate and found.hits and query.has_words:
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

    @staticmethod
    def _found(
        archive: Reader, query: Query, options: SearchOptions
    ) -> tuple[SearchAnswer, list[TitleMatch], str]:
        """What a query finds, by messages and by titles; and a note, if it is not what was asked.

        Phrases and AND are strict. If they find nothing, the words alone are better.
        """
        titled = archive.titled(query, options)
        found = archive.search(query, options)
        if found.hits or titled:
            return found, titled, ""
        words_only = found
        if query.required:
            words_only = archive.search(query.with_nothing_required(), options)
        if words_only.hits:
            partly = "The newest messages were read for it: n" if found.approximate else "N"
            note = f"{partly}othing matches the query as it stands; these have its words."
            return words_only, titled, note
        # Search never comes back empty when something is there: before giving up, titles with
        # any of the words.
        titled = archive.titled(query.with_any_word(), options)
        return found, titled, _SOME_WORDS if titled else ""

    def _results(self, excerpts: list[Excerpt], words: frozenset[str]) -> list[dict[str, Any]]:
        most = _ANSWER // max(len(excerpts), 1)
        return [self._result(each, words, most) for each in excerpts]

    def _result(self, excerpt: Excerpt, words: frozenset[str], most: int) -> dict[str, Any]:
        """A conversation that was found."""
        session, window, anchor = excerpt.match.session, excerpt.window, excerpt.anchor
        shown = window.messages if excerpt.full else [anchor]
        # Plus two: the message with the hit gets two shares, and one is for the ends of the
        # conversation.
        share = max(most // (len(window.messages) + 2), 200)
        by_title = excerpt.match.message_id is None
        origins = MessageLabels(session, self._current, lambda: excerpt.tools)
        result = {
            "session_id": session.id,
            "link": display.link(session),
            "when": display.when(session.started),
            "source": session.source[: display.FACT],
            "model": "unknown",
            "title": session.title[: display.FACT],
            "matched_role": "session_title" if by_title else anchor.role,
            "match_message_id": anchor.id,
            "snippet": display.title(session, words)
            if by_title
            else display.snippet(anchor, words),
            "bookend_start": [origins.label(each, _BOOKEND_LENGTH) for each in excerpt.begin],
            "messages": [shown_message(each, anchor, words, share, origins) for each in shown],
            "bookend_end": [origins.label(each, _BOOKEND_LENGTH) for each in excerpt.end],
            **counts(window, anchor.id),
            "detail": "full" if excerpt.full else "compact",
        }
        if is_external(origin := origins.of(anchor)):
            result["origin"] = origin
        if len(excerpt.lineage) > 1:
            result["parent_session_id"] = excerpt.lineage[-1]
        return result

    def _why_nothing(self, query: Query, options: SearchOptions) -> str:
        """Why a search found nothing: what was not looked at, or that it is not there."""
        reasons = [self._out_of_sight(query, options) or _absent(query)]
        scope = options.scope
        if scope.platform or scope.chat_id or scope.profile not in (None, "default"):
            reasons.append("Only conversations of this user, chat and profile were searched.")
        elif options.profiles:
            reasons.append(f"Only profile {max(options.profiles)!r} was searched.")
        if missing := self._conversations.elsewhere():
            reasons.append(
                f"{missing:,} conversations of hermes-agent in this home are not imported; the "
                "user can run: hermes-plugins sessions import"
            )
        return " ".join(reasons)

    def _out_of_sight(self, query: Query, options: SearchOptions) -> str:
        """Why existing matches are not found; "" if there are none."""
        all_roles = options._replace(roles=frozenset((*ROLES, "")), limit=1)
        plain = query._replace(roles=frozenset())
        timeless = plain._replace(after=None, before=None)
        # From the likeliest reason to the least; each is one search with one restriction lifted.
        for other, where, reason in (
            (plain, all_roles, _ROLES_OF_QUERY if query.roles else _OTHER_ROLES),
            (plain, all_roles._replace(hidden=True), _HIDDEN),
            (plain, all_roles._replace(without=()), _HERE),
            (plain.with_nothing_excluded(), all_roles, _EXCLUDED),
            (timeless, all_roles, _OTHER_TIME),
        ):
            if self._archive.search(other, where).hits:
                return reason
        return ""

    # -- scroll, read, browse ---------------------------------------------------------------

    def _scroll(self, request: Request) -> dict[str, Any]:
        archive = self._archive
        named = self._session(request)
        around = request.around or 0
        session = self._owner(named, around)
        window = archive.around(session, around, request.window, (), self._scope)
        if not window.messages:
            raise BadRequest(f"around_message_id {around} is not in session {named.id[:200]}")
        share = min(LONGEST_MESSAGE, _ANSWER // len(window.messages))
        origins = MessageLabels(
            session,
            self._current,
            lambda: archive.last(session, TOOL_MESSAGES, ("tool", ""), self._scope),
        )
        answer = {
            "success": True,
            "mode": "scroll",
            "session_id": session.id,
            "link": display.link(session),
            "around_message_id": around,
            "window": request.window,
            "session_meta": display.session_facts(session),
            "messages": [
                origins.label(each, share, anchor=each.id == around) for each in window.messages
            ],
            **counts(window, around),
            "count": len(window.messages),
        }
        if session.id != named.id:
            answer["warning"] = (
                f"Message {around} is in {session.id[:200]}, which is of the same conversation as "
                f"{named.id[:200]}."
            )
        return answer

    def _owner(self, named: Session, message_id: int) -> Session:
        """The session that has a message, if it is of the same lineage as the one named."""
        archive = self._archive
        owner = archive.owner(message_id, self._scope)
        if owner is None or owner.number == named.number:
            return named
        return owner if archive.lineage(owner)[-1] == archive.lineage(named)[-1] else named

    def _read(self, request: Request) -> dict[str, Any]:
        archive = self._archive
        session = self._session(request)
        # Whole if both parts cover it: "0 messages are left out" would be nonsense.
        whole = session.messages <= _READ_FIRST + _READ_LAST
        count = session.messages if whole else _READ_FIRST
        messages = archive.first(session, count, scope=self._scope)
        last = [] if whole else archive.last(session, _READ_LAST, scope=self._scope)
        share = min(LONGEST_MESSAGE, _ANSWER // max(len(messages) + len(last), 1))
        origins = MessageLabels(
            session,
            self._current,
            lambda: archive.last(session, TOOL_MESSAGES, ("tool", ""), self._scope),
        )
        answer: dict[str, Any] = {
            "success": True,
            "mode": "read",
            "session_id": session.id,
            "link": display.link(session),
            "session_meta": display.session_facts(session),
            "messages": [origins.label(each, share) for each in (*messages, *last)],
            "message_count": session.messages,
            "count": len(messages) + len(last),
            "truncated": not whole,
        }
        if not whole:
            left_out = session.messages - len(messages) - len(last)
            answer["message"] = (
                f"{left_out:,} messages in the middle are left out: "
                f"scroll with around_message_id {messages[-1].id}."
            )
        return answer

    def _session(self, request: Request) -> Session:
        """The session that is named by its id or its link."""
        archive = self._archive
        # As it stands first: an id may contain a slash and look like a link.
        session = archive.session(request.session_id, self._scope)
        profiles = self._profiles(request.profile)
        if session is None:
            profile, name = linked(request.session_id, self._scope.profile or "")
            profiles = profiles or self._profiles(profile)
            session = archive.session(name, self._scope)
        # Not there, or not theirs: the same words for both.
        if session is None or (profiles and session.profile not in profiles):
            raise BadRequest(f"session_id not found: {request.session_id[:200]}")
        return session

    def _profiles(self, wanted: str) -> frozenset[str]:
        """The profiles to which a request is limited; empty for all that this agent sees.

        Raises:
            BadRequest: This agent may not see that profile, or it has no conversations.
        """
        own = self._scope.profile
        if not wanted or wanted == own:
            return frozenset()
        if own:
            raise BadRequest(
                f"profile {wanted[:100]!r} can't be read: you run as profile {own[:100]!r} and "
                "see its conversations only. Omit profile."
            )
        profiles = frozenset((wanted, "") if wanted == display.DEFAULT_PROFILE else (wanted,))
        if not self._archive.has_profile(profiles):
            raise BadRequest(f"There are no conversations of profile {wanted[:100]!r} here.")
        return profiles

    def _browse(self, request: Request, current: str) -> dict[str, Any]:
        archive = self._archive
        here = archive.session(current, self._scope)
        profiles = self._profiles(request.profile)
        # One more, because the session that asks is usually the newest and is left out.
        found = archive.browse(self._scope, request.limit + 1, profiles=profiles)
        sessions = [each for each in found if here is None or each.number != here.number]
        sessions = sessions[: request.limit]
        results = [
            {
                "session_id": session.id,
                "link": display.link(session),
                "title": session.title[: display.FACT],
                "source": session.source[: display.FACT],
                "started_at": session.started,
                "last_active": session.active,
                "message_count": session.messages,
                "preview": preview(archive.first(session, 1, ("user",), self._scope)),
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
