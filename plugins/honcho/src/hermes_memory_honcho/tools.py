"""The five tools. Names, arguments and keys of the answers are hermes-agent's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hermes_core import HermesError
from hermes_core.backends import Tool
from hermes_memory_honcho.settings import Settings
from hermes_memory_honcho.texts import around, clipped
from hermes_memory_honcho.tool_schemas import CONCLUDE, CONTEXT, PROFILE, REASONING, SEARCH

if TYPE_CHECKING:  # it imports the SDK
    from hermes_memory_honcho.service import Excerpt, Service

_SEARCH_TOKENS: Final = 800
_MOST_SEARCH_TOKENS: Final = 2000
_CHARS_PER_TOKEN: Final = 4
_RESULT_CHARS: Final = 300
_LONGEST_RESULT: Final = 1200
_CONCLUSIONS: Final = 20
_RECENT: Final = 5
_RECENT_CHARS: Final = 200


class Tools:
    """What the model may ask of Honcho.

    Args:
        service: Gives Honcho, once a session runs.
        settings: Gives its settings.
        session: Gives the session of Honcho that runs now.
        may_write: Whether this is the agent itself.
    """

    def __init__(
        self,
        service: Callable[[], Service],
        settings: Callable[[], Settings],
        session: Callable[[], str],
        may_write: Callable[[], bool],
    ) -> None:
        self._service = service
        self._settings = settings
        self._session = session
        self._may_write = may_write

    def all(self) -> list[Tool]:
        """The tools."""
        return [
            Tool(PROFILE, self._profile),
            Tool(SEARCH, self._search),
            Tool(REASONING, self._reasoning),
            Tool(CONTEXT, self._context),
            Tool(CONCLUDE, self._conclude),
        ]

    def _profile(self, args: dict[str, Any]) -> dict[str, Any]:
        service = self._service()
        peer = service.peer(args.get("peer", ""))
        if args.get("card"):
            self._require_writing("honcho_profile")
            card = service.set_card(peer, args["card"])
            return {"result": f"Peer card updated ({len(card)} facts).", "card": card}
        found = service.card(peer)
        if found:
            return {"result": found}
        return {"result": "No profile facts available yet.", "hint": self._why_empty(peer)}

    def _why_empty(self, peer: str) -> str:
        settings, service = self._settings(), self._service()
        seen = settings.ai_observed if peer == service.names.ai else settings.user_observed
        if not seen.me:
            why = "Honcho is set to make no picture of this peer (observation in honcho.json)"
        else:
            why = "Honcho writes the card in time, from what is said; a server before 3.0 has none"
        return f"This is no error: {why}. Try honcho_reasoning, or honcho_search."

    def _search(self, args: dict[str, Any]) -> dict[str, Any]:
        service = self._service()
        query = _needed(args, "query")
        peer = service.peer(args.get("peer", ""))
        tokens = min(max(args.get("max_tokens", _SEARCH_TOKENS), 50), _MOST_SEARCH_TOKENS)
        room = int(tokens) * _CHARS_PER_TOKEN
        found = service.search(query, peer, max(3, min(20, room // _RESULT_CHARS)))
        text = "\n\n".join(self._excerpt(each, query) for each in found if each.text.strip())
        return {"result": clipped(text, room) or "No relevant context found."}

    def _excerpt(self, found: Excerpt, query: str) -> str:
        who = "assistant" if found.peer == self._service().names.ai else found.peer
        return f"[{who} · {found.session}] {around(found.text, query, _LONGEST_RESULT)}"

    def _reasoning(self, args: dict[str, Any]) -> dict[str, Any]:
        service, settings = self._service(), self._settings()
        query = _needed(args, "query")
        chosen = args.get("reasoning_level") if settings.dialectic_dynamic else None
        level = chosen or settings.dialectic_level
        answer = service.ask(query, service.peer(args.get("peer", "")), level)
        return {"result": answer or "No result from Honcho."}

    def _context(self, args: dict[str, Any]) -> dict[str, Any]:
        service = self._service()
        peer = service.peer(args.get("peer", ""))
        session = self._session()
        portrait = service.portrait(peer)
        recent = service.recent(session, _RECENT)
        sections = {
            "Summary": service.summary(session),
            "Representation": portrait.representation,
            "Card": "\n".join(portrait.card),
            "Recent messages": "\n".join(
                f"  [{each.peer}] {clipped(each.text, _RECENT_CHARS)}" for each in recent
            ),
        }
        text = "\n\n".join(f"## {title}\n{body}" for title, body in sections.items() if body)
        return {"result": text or "No context available yet."}

    def _conclude(self, args: dict[str, Any]) -> dict[str, Any]:
        conclusion = args.get("conclusion", "").strip()
        number = args.get("delete_id", "").strip()
        query = args.get("query", "").strip()
        listing = bool(args.get("list"))
        if [bool(conclusion), bool(number), listing].count(True) != 1:
            return {"error": "Exactly one of conclusion, delete_id, or list must be provided."}
        if query and not listing:
            return {"error": "query is only valid when list is true."}
        service = self._service()
        peer = service.peer(args.get("peer", ""))
        if listing:
            found = service.conclusions(peer, query, _CONCLUSIONS)
            return {"conclusions": [{"id": each, "content": text} for each, text in found]}
        self._require_writing("honcho_conclude")
        if number:
            service.delete_conclusion(peer, number)
            return {"result": f"Conclusion {number} deleted."}
        service.conclude(peer, conclusion)
        return {"result": f"Conclusion saved for {args.get('peer') or 'user'}: {conclusion}"}

    def _require_writing(self, tool: str) -> None:
        if not self._may_write():
            raise HermesError(f"{tool} writes for the agent itself alone; here it only reads")


def _needed(args: dict[str, Any], key: str) -> str:
    value = str(args[key]).strip()
    if not value:
        raise HermesError(f"Missing required parameter: {key}")
    return value
