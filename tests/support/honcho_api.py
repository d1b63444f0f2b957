"""The endpoints of a Honcho server, over `Store`: what is asked, what is refused, what is answered.

A limit that is broken is a 422 with the words of the real server.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from support.honcho_requests import Reply, Request, chosen, invalid, name_of, paged, text_of
from support.honcho_store import Pair, Refused, Store, ranked

_CONTENT = 25_000
_MESSAGES = 100
_QUERY = 10_000
_SUMMARY_AFTER = 20
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
    request.store.delete_workspace(request.workspace)
    return Reply(202, {"message": "Workspace deletion accepted"})


@_on("GET", "/*/queue/status")
def _queue(request: Request) -> Reply:
    counts = ("total", "completed", "in_progress", "pending")
    return Reply(200, {f"{name}_work_units": 0 for name in counts} | {"sessions": {}})


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
    query = text_of(request.field("query"), _QUERY, "query", least=1)
    pair = _pair(request, request.field("target"))
    facts = ranked(query, request.store.conclusions(request.workspace, pair), 5, nearest=False)
    told = "; ".join(each["content"] for each in facts)
    return Reply(200, {"content": f"Known of {pair.observed}: {told}" if told else None})


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
        found = ranked(text_of(query, _QUERY, "search_query"), found, top)
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
    request.store.delete_session(*request.names)
    return Reply(202, {"message": "Session deleted successfully"})


@_on("POST", "/*/sessions/*/peers")
def _join(request: Request) -> Reply:
    found = request.store.require_session(*request.names)
    request.store.join(*request.names, {name_of(name): each for name, each in request.body.items()})
    return Reply(200, found)


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
    return Reply(200, {"id": found["id"], "short_summary": _summary(request),
                       "long_summary": None})  # fmt: skip


@_on("GET", "/*/sessions/*/context")
def _context(request: Request) -> Reply:
    workspace, session = request.names
    request.store.require_session(workspace, session)
    said = request.store.messages(workspace, session)
    told: dict[str, Any] = {"id": session, "messages": said[-_MESSAGES:], "summary": None}
    if request.query.get("summary") == "true":
        told["summary"] = _summary(request)
    target = request.query.get("peer_target")
    if target:
        pair = Pair(request.query.get("peer_perspective") or target, target)
        told["peer_representation"] = _representation(request, pair, request.query)
        told["peer_card"] = request.store.card(workspace, pair)
    return Reply(200, told)


def _summary(request: Request) -> dict[str, Any] | None:
    said = request.store.messages(request.names[0], request.names[1])
    if len(said) < _SUMMARY_AFTER:
        return None
    text = f"{len(said)} messages, from: {said[0]['content'][:100]}"
    last = said[-1]
    return {"content": text, "message_id": last["id"], "summary_type": "short",
            "created_at": last["created_at"], "token_count": len(text) // 4}  # fmt: skip


# -- search and conclusions -----------------------------------------------------------------------


@_on("POST", "/*/search")
def _search_workspace(request: Request) -> Reply:
    filters = dict(request.field("filters") or {})
    viewer = filters.pop("peer_perspective", None)
    said = chosen(request.store.messages(request.workspace), filters)
    if viewer:
        seen = {
            each["id"]
            for each in request.store.sessions(request.workspace)
            if viewer in request.store.members(request.workspace, each["id"])
        }
        said = [each for each in said if each["session_id"] in seen]
    return _found(request, said)


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
