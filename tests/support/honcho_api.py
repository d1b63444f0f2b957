"""The endpoints of a Honcho server, over `Store`: what is asked, what is refused, what is answered.

A limit that is broken is a 422 with the words of the real server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from support.honcho_requests import (
    Reply,
    Request,
    chosen,
    invalid,
    name_of,
    paged,
    takes,
    text_of,
)
from support.honcho_store import Pair, Refused, Store, ranked

_CONTENT = 25_000
_MESSAGES = 100
_QUERY = 10_000
_SUMMARY_AFTER = {"short": 20, "long": 60}
_REPRESENTED = 25


Handler = Callable[[Request], Reply]
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = []


def _on(method: str, path: str) -> Callable[[Handler], Handler]:
    pattern = re.compile("/v3/workspaces" + path.replace("*", "([^/]+)"))

    def register(handler: Handler) -> Handler:
        ROUTES.append((method, pattern, handler))
        return handler

    return register


def answer(store: Store, method: str, path: str, body: Any, query: dict[str, str]) -> Reply:
    """Serve one request."""
    matched = [(known, each, pattern.fullmatch(path)) for known, pattern, each in ROUTES]
    here = [(known, each, found.groups()) for known, each, found in matched if found]
    for known, handler, names in here:
        if known == method:
            if names:
                store.require_workspace(names[0])
            return handler(Request(store, names, body, query))
    raise Refused(405, "Method Not Allowed") if here else Refused(404, "Not Found")


# -- workspaces and peers -------------------------------------------------------------------------


@_on("POST", "")
def _workspace(request: Request) -> Reply:
    new, made = request.store.workspace(name_of(request.field("id"), "id"), request.body)
    return Reply(201 if new else 200, made)


@_on("POST", "/list")
def _workspaces(request: Request) -> Reply:
    return paged(request, request.store.workspaces())


@_on("DELETE", "/*")
def _delete_workspace(request: Request) -> Reply:
    request.store.require_no_sessions(request.workspace)
    request.store.later(request.store.delete_workspace, request.workspace)
    return Reply(202, {"message": "Workspace deletion accepted"})


@_on("GET", "/*/queue/status")
def _queue(request: Request) -> Reply:
    done, waiting = request.store.done, len(request.store.waiting)
    counts = {"total": done + waiting, "completed": done, "in_progress": 0, "pending": waiting}
    told = {f"{name}_work_units": count for name, count in counts.items()}
    return Reply(200, {**told, "sessions": {}})


@_on("POST", "/*/peers/list")
def _peers(request: Request) -> Reply:
    return paged(request, request.store.peers(request.workspace))


@_on("POST", "/*/peers/*/sessions")
def _sessions_of(request: Request) -> Reply:
    request.store.require_peer(*request.names)
    return paged(request, request.store.sessions_of(*request.names))


@_on("POST", "/*/peers")
def _peer(request: Request) -> Reply:
    name = name_of(request.field("id"), "id")
    new, made = request.store.peer(request.workspace, name, request.body)
    return Reply(201 if new else 200, made)


@_on("GET", "/*/peers/*/card")
def _card(request: Request) -> Reply:
    return Reply(200, {"peer_card": request.store.card(request.workspace, _pair(request))})


@_on("PUT", "/*/peers/*/card")
def _set_card(request: Request) -> Reply:
    request.store.set_card(request.workspace, _pair(request), request.field("peer_card"))
    return _card(request)


@_on("GET", "/*/peers/*/context")
def _peer_context(request: Request) -> Reply:
    pair = _pair(request)
    told = _representation(request, pair, request.query)
    card = request.store.card(request.workspace, pair)
    return Reply(200, {"peer_id": pair.observer, "target_id": pair.observed,
                       "representation": told, "peer_card": card})  # fmt: skip


@_on("POST", "/*/peers/*/representation")
def _represent(request: Request) -> Reply:
    pair = _pair(request, request.field("target"))
    return Reply(200, {"representation": _representation(request, pair, request.body or {})})


@_on("POST", "/*/peers/*/chat")
def _chat(request: Request) -> Reply:
    """The model looks through what the observer knows of somebody, and has heard at all."""
    query = text_of(request.field("query"), _QUERY, "query", least=1)
    pair = _pair(request, request.field("target"))
    filters = request.field("filters")
    if set(filters or {}) - {"session_id"}:
        raise invalid("value_error", ["filters"], "only session_id is supported", filters)
    known = chosen(request.store.conclusions(request.workspace, pair), filters)
    here = [each["id"] for each in request.store.sessions_of(request.workspace, pair.observer)]
    said = chosen(request.store.messages(request.workspace), {"session_id": {"in": here}})
    said = chosen(said, filters)
    facts = [each for some in (known, said) for each in ranked(query, some, 5, nearest=False)]
    told = "; ".join(each["content"] for each in facts)
    answer = f"Known of {pair.observed}: {told}" if told else ""
    if request.field("stream"):
        return Reply(200, stream=tuple(re.findall(r"\S+\s*", answer)))
    return Reply(200, {"content": answer or None})


def _pair(request: Request, target: str | None = None) -> Pair:
    """Whose view of whom; both have to be there."""
    observer = request.names[1]
    observed = target or request.query.get("target") or observer
    for name in (observer, observed):
        request.store.require_peer(request.workspace, name)
    return Pair(observer, observed)


def _representation(request: Request, pair: Pair, options: dict[str, Any]) -> str:
    found = request.store.conclusions(request.workspace, pair)
    most = int(options.get("max_conclusions") or _REPRESENTED)
    query = options.get("search_query")
    if query:
        top = int(options.get("search_top_k") or most)
        found = ranked(takes(query, "search_query"), found, top)
    lines = [f"[{each['created_at'][:19].replace('T', ' ')}] {each['content']}" for each in found]
    return "## Explicit Observations\n\n" + "\n".join(lines[:most]) + "\n"


# -- sessions and messages ------------------------------------------------------------------------


@_on("POST", "/*/sessions")
def _session(request: Request) -> Reply:
    name = name_of(request.field("id"), "id")
    peers = {name_of(peer, "peers"): each for peer, each in (request.field("peers") or {}).items()}
    new, made = request.store.session(request.workspace, name, request.body)
    request.store.join(request.workspace, name, peers)
    return Reply(201 if new else 200, made)


@_on("POST", "/*/sessions/list")
def _sessions(request: Request) -> Reply:
    return paged(request, request.store.sessions(request.workspace))


@_on("DELETE", "/*/sessions/*")
def _delete_session(request: Request) -> Reply:
    request.store.update_session(*request.names, {"is_active": False})
    request.store.later(request.store.delete_session, *request.names)
    return Reply(202, {"message": "Session deleted successfully"})


@_on("PUT", "/*/sessions/*")
def _change_session(request: Request) -> Reply:
    return Reply(200, request.store.update_session(*request.names, request.body))


@_on("PUT", "/*/sessions/*/peers/*/config")
def _configure(request: Request) -> Reply:
    request.store.require_session(*request.names[:2])
    request.store.configure(*request.names, request.body)
    return Reply(204)


@_on("POST", "/*/sessions/*/messages/upload")
def _upload(request: Request) -> Reply:
    """A file becomes messages of somebody, of a size that the server likes."""
    workspace, session = request.names
    text, peer = str(request.field("file")), name_of(request.field("peer_id"), "peer_id")
    pieces = [text[at : at + _CONTENT] for at in range(0, len(text), _CONTENT)]
    facts = {"metadata": json.loads(request.field("metadata") or "{}"),
             "created_at": request.field("created_at")}  # fmt: skip
    given = [{"content": takes(each, "file"), "peer_id": peer, **facts} for each in pieces]
    return Reply(201, request.store.add_messages(workspace, session, given))


@_on("POST", "/*/sessions/*/peers")
def _join(request: Request) -> Reply:
    found = request.store.require_session(*request.names)
    request.store.join(*request.names, {name_of(name): each for name, each in request.body.items()})
    return Reply(200, found)


@_on("GET", "/*/sessions/*/peers")
def _members(request: Request) -> Reply:
    request.store.require_session(*request.names)
    there = request.store.members(*request.names)
    known = request.store.peers(request.workspace)
    return paged(request, [each for each in known if each["id"] in there])


@_on("GET", "/*/sessions/*/peers/*/config")
def _member(request: Request) -> Reply:
    workspace, session, peer = request.names
    found = request.store.members(workspace, session).get(peer)
    if found is None:
        raise Refused(404, f"Peer {peer} not found in session {session}")
    return Reply(200, found)


@_on("POST", "/*/sessions/*/messages")
def _add_messages(request: Request) -> Reply:
    workspace, session = request.names
    name_of(session)
    given = request.field("messages")
    if not 1 <= len(given) <= _MESSAGES:
        message = f"List should have at most {_MESSAGES} items after validation"
        raise invalid("too_long", ["messages"], message, len(given))
    for at, each in enumerate(given):
        text_of(each.get("content"), _CONTENT, "messages", at, "content")
        name_of(each.get("peer_id"), "messages", at, "peer_id")
    return Reply(201, request.store.add_messages(workspace, session, given))


@_on("POST", "/*/sessions/*/messages/list")
def _messages(request: Request) -> Reply:
    request.store.require_session(*request.names)
    return paged(request, chosen(request.store.messages(*request.names), request.field("filters")))


@_on("GET", "/*/sessions/*/summaries")
def _summaries(request: Request) -> Reply:
    found = request.store.require_session(*request.names)
    return Reply(200, {"id": found["id"], "short_summary": _summary(request, "short"),
                       "long_summary": _summary(request, "long")})  # fmt: skip


@_on("GET", "/*/sessions/*/context")
def _context(request: Request) -> Reply:
    workspace, session = request.names
    request.store.require_session(workspace, session)
    said = request.store.messages(workspace, session)
    room = int(request.query.get("tokens") or 100_000)
    shown = [each for at, each in enumerate(said)
             if sum(one["token_count"] for one in said[at:]) <= room * 6 // 10]  # fmt: skip
    told: dict[str, Any] = {"id": session, "messages": shown, "summary": None}
    if request.query.get("summary") == "true":
        told["summary"] = _summary(request, "short")
    target = request.query.get("peer_target")
    if target:
        pair = Pair(request.query.get("peer_perspective") or target, target)
        told["peer_representation"] = _representation(request, pair, request.query)
        told["peer_card"] = request.store.card(workspace, pair)
    return Reply(200, told)


def _summary(request: Request, kind: str) -> dict[str, Any] | None:
    """The last one of its kind: a short one every 20 messages, a long one every 60."""
    said = request.store.messages(request.names[0], request.names[1])
    every = _SUMMARY_AFTER[kind]
    covered = len(said) // every * every
    if not covered:
        return None
    text = f"{covered} messages, from: {said[0]['content'][:100]}"
    last = said[covered - 1]
    return {"content": text, "message_id": last["id"], "summary_type": kind,
            "created_at": last["created_at"], "token_count": len(text) // 4}  # fmt: skip


# -- search and conclusions -----------------------------------------------------------------------


@_on("POST", "/*/search")
def _search_workspace(request: Request) -> Reply:
    filters = dict(request.field("filters") or {})
    viewer = filters.pop("peer_perspective", None)
    store = request.store
    heard = store.heard(request.workspace, viewer) if viewer else store.messages(request.workspace)
    return _found(request, chosen(heard, filters))


@_on("POST", "/*/peers/*/search")
def _search_peer(request: Request) -> Reply:
    request.store.require_peer(*request.names)
    said = chosen(request.store.messages(request.workspace), {"peer_id": request.names[1]})
    return _found(request, chosen(said, request.field("filters")))


@_on("POST", "/*/sessions/*/search")
def _search_session(request: Request) -> Reply:
    said = request.store.messages(*request.names)
    return _found(request, chosen(said, request.field("filters")))


def _found(request: Request, said: list[dict[str, Any]]) -> Reply:
    query = text_of(request.field("query"), _QUERY, "query")
    return Reply(200, ranked(query, said[::-1], request.field("limit", 10)))


@_on("POST", "/*/conclusions")
def _conclude(request: Request) -> Reply:
    made = []
    for at, each in enumerate(request.field("conclusions")):
        text = text_of(each["content"], 65_535, "conclusions", at, "content", least=1)
        pair = Pair(each["observer_id"], each["observed_id"])
        for name in pair:
            request.store.require_peer(request.workspace, name)
        session = each.get("session_id")
        if session:
            request.store.require_session(request.workspace, session)
        made.append(request.store.conclude(request.workspace, pair, text, session))
    return Reply(201, made)


@_on("POST", "/*/conclusions/list")
def _conclusions(request: Request) -> Reply:
    known = request.store.conclusions(request.workspace)
    return paged(request, chosen(known, request.field("filters")))


@_on("POST", "/*/conclusions/query")
def _ask_conclusions(request: Request) -> Reply:
    known = chosen(request.store.conclusions(request.workspace), request.field("filters"))
    query = text_of(request.field("query"), _QUERY, "query")
    return Reply(200, ranked(query, known, request.field("top_k", 10)))


@_on("DELETE", "/*/conclusions/*")
def _delete_conclusion(request: Request) -> Reply:
    request.store.delete_conclusion(*request.names)
    return Reply(204)
