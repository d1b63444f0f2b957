"""The `session_search` tool: its arguments, and its answers from past conversations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import groupby
from typing import Any, Final, NamedTuple

from hermes_builtin.sessions import display
from hermes_builtin.sessions.archive import (
    NOBODY,
    ROLES,
    TALK,
    Archive,
    Found,
    Hit,
    Message,
    Reader,
    SearchOptions,
    Session,
    Span,
    Titled,
    Window,
    message_origin,
    window_of,
)
from hermes_builtin.sessions.conversations import Conversations
from hermes_builtin.sessions.display import LINK
from hermes_builtin.sessions.numbers import role_name
from hermes_builtin.sessions.query import LONGEST_QUERY, Query, parse
from hermes_builtin.sessions.session_text import SessionText
from hermes_builtin.sessions.spool import Waiting
from hermes_builtin.sessions.words import storable
from hermes_core import HermesError
from hermes_core.privacy.origin import ASSISTANT, authority, is_external, lowest

# -- The arguments of `session_search`, as a model passes them ----------------------------------


class BadRequest(Exception):  # noqa: N818 - the tool answers with it
    """Arguments that can't be meant; the text is for the model."""


class Request(NamedTuple):
    """The tool's arguments, checked."""

    query: str = ""
    roles: frozenset[str] = frozenset()
    limit: int = 3
    newest: bool | None = None
    session_id: str = ""
    around: int | None = None
    window: int = 5
    full: bool = False
    profile: str = ""

    @classmethod
    def of(cls, args: Mapping[str, Any]) -> Request:
        """Check what a model passed.

        As in hermes-agent, a number or an order that makes no sense counts as not given.

        Raises:
            BadRequest: It can't be known what is meant.
        """
        if not isinstance(args, Mapping):
            raise BadRequest("The arguments must be an object.")
        return cls(
            _text(args, "query"),
            _roles(args.get("role_filter")),
            # Clamped, not refused: a model that asks for 100 wants many, and a refusal costs a
            # turn.
            min(max(_number(args.get("limit"), 3), 1), 10),
            {"newest": True, "oldest": False}.get(_word(args.get("sort"))),
            _text(args, "session_id"),
            _message_id(args.get("around_message_id")),
            min(max(_number(args.get("window"), 5), 1), 20),
            _word(args.get("detail")) == "full",
            _text(args, "profile"),
        )


def linked(link: str, own: str = "") -> tuple[str, str]:
    """The profile and the id that a link ``@session:profile/id`` names.

    ``own`` is the reader's profile, which may have a slash in its name.
    """
    text = link.strip().removeprefix(LINK)
    if own and text.startswith(f"{own}/"):
        return own, text[len(own) + 1 :]
    profile, slash, name = text.partition("/")
    return (profile, name) if slash else ("", profile)


def _text(args: Mapping[str, Any], name: str) -> str:
    value = args.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a string.")
    value = storable(value)
    # A query in quotes and an id may have blanks at their ends.
    return value if name in ("query", "session_id") else value.strip()


def _word(value: Any) -> str:
    return value.strip().lower() if isinstance(value, str) else ""


def _number(value: Any, default: int) -> int:
    if isinstance(value, bool):
        return default
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return default


def _message_id(value: Any) -> int | None:
    if value is None:
        return None
    number = _number(value, -1)
    if not 0 <= number < 2**63:
        raise BadRequest("around_message_id must be a whole number.")
    return number


def _roles(given: Any) -> frozenset[str]:
    texts = given if isinstance(given, list | tuple) else [given]
    parts = [part for text in texts if isinstance(text, str) for part in text.split(",")]
    roles = frozenset(part.strip().lower() for part in parts if part.strip())
    unknown = roles - {*ROLES, "system"}
    if unknown:
        raise BadRequest(
            f"role_filter has {', '.join(sorted(unknown))[:100]}; use user, assistant, tool."
        )
    return roles


# -- The `session_search` tool: a model's way into past conversations ---------------------------

SCHEMA: Final[dict[str, Any]] = {
    "name": "session_search",
    "description": (
        "Search past conversations. Use it when the user refers to something said before, or "
        "when you would otherwise ask for what they may have told you already. With query: the "
        "best matching conversations, each with the messages around the hit and how it began and "
        'ended. Ask in plain words; "a phrase", -without, prefix*, role:user, after:2026-01, '
        "before:7d also work; titles are searched too. With session_id: that conversation. With "
        "session_id and around_message_id: the messages around one; messages_before and "
        "messages_after count those shown on either side, remaining_before and remaining_after "
        "those beyond. With nothing: the newest conversations. Name a conversation to the user by "
        "its link."
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
            "detail": {
                "type": "string",
                "enum": ["adaptive", "full"],
                "description": "adaptive (default): the best conversation with its messages, the "
                "others with the hit alone. full: all with their messages.",
            },
            "session_id": {
                "type": "string",
                "description": "Read this conversation: its id, or a link @session:profile/id.",
            },
            "around_message_id": {
                "type": "integer",
                "description": "With session_id: show the messages around this one.",
            },
            "window": {
                "type": "integer",
                "description": "Messages on either side of it: 5, 1 to 20.",
            },
            "profile": {
                "type": "string",
                "description": "Only conversations of this profile. Default: your own.",
            },
        },
        "required": [],
    },
}

# Of a long conversation: how it begins, how it ends, and the hit with what is around it.
_READ_FIRST: Final = 20
_READ_LAST: Final = 10
_BOOKEND: Final = 3
_AROUND_HIT: Final = 5
_ANSWER: Final = 48_000  # characters of conversation in one answer
_LONGEST_MESSAGE: Final = 4000
_BOOKEND_LENGTH: Final = 300
_PREVIEW: Final = 60
# Tool results of a conversation that its other messages are compared with.
_TOOL_MESSAGES: Final = 100

_OTHER_ROLES: Final = (
    'There are matches in messages of other roles: ask with role_filter "user,assistant,tool".'
)
_ROLES_OF_QUERY: Final = "There are matches, but by others than the query's role: asks for."
_HIDDEN: Final = "There are matches, but only in conversations of subagents and tools."
_HERE: Final = "It was said in this conversation only, which is not searched."
_EXCLUDED: Final = "There are matches, but all of them have what the query excludes."
_SOME_WORDS: Final = "No message matches; the titles of these have some of the words."
_OTHER_TIME: Final = "There are matches, but none in that time."


class _Match(NamedTuple):
    """A conversation to show: found by a message, or by its title (``message_id`` is None)."""

    session: Session
    message_id: int | None


class _Excerpt(NamedTuple):
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

    match: _Match
    lineage: list[str]
    window: Window
    anchor: Message
    begin: list[Message]
    end: list[Message]
    tools: list[Message]
    full: bool


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
        self, answer: dict[str, Any], request: Request, current: str, waiting: Waiting
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
            return {**answer, "message": f"{note} They are not part of this."}
        elif not more:
            note = f"{note} They could not be searched."
        elif more["results"]:
            # Then why nothing was found in the archive is no news.
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
                hits = _user_first(archive, hits)
            excerpts = _excerpts(archive, hits, titled, query, options, full=request.full)
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
    ) -> tuple[Found, list[Titled], str]:
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

    def _results(self, excerpts: list[_Excerpt], words: frozenset[str]) -> list[dict[str, Any]]:
        most = _ANSWER // max(len(excerpts), 1)
        return [self._result(each, words, most) for each in excerpts]

    def _result(self, excerpt: _Excerpt, words: frozenset[str], most: int) -> dict[str, Any]:
        """A conversation that was found."""
        session, window, anchor = excerpt.match.session, excerpt.window, excerpt.anchor
        shown = window.messages if excerpt.full else [anchor]
        # Plus two: the message with the hit gets two shares, and one is for the ends of the
        # conversation.
        share = max(most // (len(window.messages) + 2), 200)
        by_title = excerpt.match.message_id is None
        origins = _Origins(session, self._current, lambda: excerpt.tools)
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
            "messages": [_shown(each, anchor, words, share, origins) for each in shown],
            "bookend_end": [origins.label(each, _BOOKEND_LENGTH) for each in excerpt.end],
            **_counts(window, anchor.id),
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
        window = archive.around(session, around, request.window, ())
        if not window.messages:
            raise BadRequest(f"around_message_id {around} is not in session {named.id[:200]}")
        share = min(_LONGEST_MESSAGE, _ANSWER // len(window.messages))
        origins = _Origins(
            session,
            self._current,
            lambda: archive.last(session, _TOOL_MESSAGES, ("tool", "")),
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
            **_counts(window, around),
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
        messages = archive.first(session, session.messages if whole else _READ_FIRST)
        last = [] if whole else archive.last(session, _READ_LAST)
        share = min(_LONGEST_MESSAGE, _ANSWER // max(len(messages) + len(last), 1))
        origins = _Origins(
            session,
            self._current,
            lambda: archive.last(session, _TOOL_MESSAGES, ("tool", "")),
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


# -- Conversations that were found, with what is shown of them ----------------------------------


def _user_first(archive: Reader, hits: list[Hit]) -> list[Hit]:
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


def _excerpts(
    archive: Reader,
    hits: list[Hit],
    titled: list[Titled],
    query: Query,
    options: SearchOptions,
    *,
    full: bool,
) -> list[_Excerpt]:
    """The hits in their order, and conversations that only their titles let find.

    Whoever asks for an exact title wants that conversation: it comes first, as in hermes-agent.
    Others come last; one has a place among full results if its title has several words of the
    query, and all of them.
    """
    by_title = [_Match(each.session, None) for each in titled]
    exact = [match for match, each in zip(by_title, titled, strict=True) if each.exact][:1]
    by_message = [_Match(hit.session, hit.message_id) for hit in hits]
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


def _by_root(matches: list[_Match], lineages: Mapping[int, list[str]]) -> dict[str, _Match]:
    """The first match of each lineage, by the first session of it."""
    found: dict[str, _Match] = {}
    for match in matches:
        found.setdefault(lineages[match.session.number][-1], match)
    return found


def _read_excerpts(
    archive: Reader, matches: list[_Match], lineages: Mapping[int, list[str]], *, full: bool
) -> list[_Excerpt]:
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
            _Excerpt(
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


def _anchors(archive: Reader, matches: list[_Match]) -> list[tuple[_Match, int]]:
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


def _spans(match: _Match, anchor_id: int, full: bool) -> list[Span]:
    """What to read of a conversation: around a message, both ends, and what its tools returned."""
    session = match.session
    # What only the user says is compared with nothing.
    compared = full or role_name(anchor_id) != "user" or session.source in NOBODY
    ends = _BOOKEND if full else 0
    return [
        *Span.around(session, anchor_id, _AROUND_HIT, TALK),
        Span.first_of(session, ends, TALK),
        Span.last_of(session, ends, TALK),
        Span.last_of(session, _TOOL_MESSAGES if compared else 0, ("tool", "")),
    ]


class _Origins:
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
        origin = message_origin(self._source, message)
        if origin != ASSISTANT:
            self._reader.add(message.content[:_LONGEST_MESSAGE], origin)
            return origin
        copied = self._read.copied(message.content[:_LONGEST_MESSAGE])
        for each in copied:
            self._reader.add(*each)
        return lowest((origin for _, origin in copied), origin)

    def label(self, message: Message, most: int, **place: Any) -> dict[str, Any]:
        """A message to show, with its origin unless its role says it."""
        shown = display.message(message, most, **place)
        origin = self.of(message)
        return shown if origin == message.role else {**shown, "origin": origin}


def _shown(
    each: Message, anchor: Message, words: frozenset[str], share: int, origins: _Origins
) -> dict[str, Any]:
    if each.id != anchor.id:
        return origins.label(each, share)
    around = display.first_hit(each.content, words) if len(each.content) > share else 0
    return origins.label(each, 2 * share, around=around, anchor=True)


def _counts(window: Window, anchor_id: int) -> dict[str, int]:
    """How many messages of a window are on either side of one, and how many are beyond it."""
    before = window.shown_before(anchor_id)
    return {
        "messages_before": before,
        "messages_after": len(window.messages) - 1 - before,
        "remaining_before": window.before,
        "remaining_after": window.after,
    }


def _absent(query: Query) -> str:
    if query.has_words:
        return "No conversation that was searched has these words."
    return "None of the newest messages has these signs; older ones were not read."


def _preview(messages: list[Message]) -> str:
    text = " ".join(messages[0].content[: 4 * _PREVIEW].split()) if messages else ""
    return text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}..."
