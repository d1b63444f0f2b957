"""The five tools. Names, arguments and keys of the answers are hermes-agent's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hermes_core import HermesError
from hermes_core.service import Tool
from hermes_memory_honcho.names import FoundMessage, SearchFilter
from hermes_memory_honcho.settings import LEVELS, HonchoSettings
from hermes_memory_honcho.texts import around, clipped, storable

if TYPE_CHECKING:
    from hermes_memory_honcho.service import HonchoService

# -- How the tools are described to the model ---------------------------------------------------


def _schema(
    name: str, description: str, properties: dict[str, Any], required: tuple[str, ...] = ()
) -> dict[str, Any]:
    peer = {
        "type": "string",
        "description": "Whom it is about: user (default), ai, or the id of a peer.",
    }
    parameters = {
        "type": "object",
        "properties": {**properties, "peer": peer},
        "required": list(required),
    }
    return {"name": name, "description": description, "parameters": parameters}


PROFILE: Final = _schema(
    "honcho_profile",
    "Read or write the card of a peer: a short list of lasting facts such as name, role and "
    "preferences. No model runs, so it is the cheapest call. With card it is replaced, "
    "without it is read. An empty card comes with a hint why.",
    {
        "card": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The facts of the new card; none to clear it. Leave it out to read.",
        }
    },
)

SEARCH: Final = _schema(
    "honcho_search",
    "Search what was literally said in all past conversations of a peer, by meaning and by words. "
    "Returns excerpts, the best first, and runs no model. For a fact that was once stated; ask "
    "honcho_reasoning where it takes thought.",
    {
        "query": {"type": "string", "description": "What to look for: a topic, a name, a fact."},
        "max_tokens": {
            "type": "integer",
            "description": "The most tokens to return: 800 by default, at most 2000.",
        },
        "since": {"type": "string", "description": "Only from this day on, such as 2026-01-31."},
        "until": {"type": "string", "description": "Only up to this day."},
        "session": {"type": "string", "description": "Only this session, by its name."},
        "metadata": {
            "type": "object",
            "description": "Only messages whose metadata has these values.",
        },
    },
    ("query",),
)

REASONING: Final = _schema(
    "honcho_reasoning",
    "Ask Honcho's own model a question about a peer. It looks through messages and conclusions "
    "and writes an answer, which takes seconds and costs tokens: use it for what needs weighing, "
    "honcho_search for a plain fact.",
    {
        "query": {"type": "string", "description": "The question, in plain words."},
        "reasoning_level": {
            "type": "string",
            "enum": list(LEVELS),
            "description": "How hard it thinks. minimal is for a single fact and is cut off "
            "early; low for a plain question; max for a thorough search.",
        },
    },
    ("query",),
)

CONTEXT: Final = _schema(
    "honcho_context",
    "What Honcho has on this session and a peer, in one call: summary, conclusions, card and the "
    "last messages. No question and no model: to look around.",
    {
        "tokens": {
            "type": "integer",
            "description": "The most tokens to return: 2000 by default, at most 16000.",
        }
    },
)

CONCLUDE: Final = _schema(
    "honcho_conclude",
    "Store, list or delete conclusions: lasting facts about a peer, for all later conversations. "
    "Give exactly one of conclusion, delete_id and list. Delete what is private, by an id that "
    "list has shown; for what is merely wrong, write the right fact instead.",
    {
        "conclusion": {"type": "string", "description": "The fact to store."},
        "delete_id": {"type": "string", "description": "The id of the conclusion to delete."},
        "list": {"type": "boolean", "description": "True to list conclusions with their ids."},
        "query": {"type": "string", "description": "With list: what to search for."},
    },
)

# -- The five tools. Names, arguments and keys of the answers are hermes-agent's ----------------

# Limits of hermes-agent's tools. Honcho counts tokens, we cut characters: four are about one token.
_SEARCH_TOKENS: Final = 800
_MOST_SEARCH_TOKENS: Final = 2000
_CHARS_PER_TOKEN: Final = 4
_RESULT_CHARS: Final = 300
_LONGEST_RESULT: Final = 1200
_CONCLUSIONS: Final = 20
_CONTEXT_TOKENS: Final = 2000
_FEWEST_TOKENS: Final = 50
_MOST_CONTEXT_TOKENS: Final = 16_000
_RECENT: Final = 20
_RECENT_CHARS: Final = 400


class Tools:
    """What the model may ask of Honcho.

    Args:
        service: Returns Honcho, once a session runs.
        settings: Returns its settings.
        session: Returns the session of Honcho that runs now.
        may_write: Whether this is the agent itself.
    """

    def __init__(
        self,
        service: Callable[[], HonchoService],
        settings: Callable[[], HonchoSettings],
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
            # None is marked as writing: each also reads, which a subagent may do.
            # `_require_writing` refuses the rest.
            Tool(PROFILE, self._profile),
            Tool(SEARCH, self._search),
            Tool(REASONING, self._reasoning),
            Tool(CONTEXT, self._context),
            Tool(CONCLUDE, self._conclude),
        ]

    def _profile(self, args: dict[str, Any]) -> dict[str, Any]:
        service = self._service()
        peer = service.peer(args.get("peer", ""))
        if "card" in args:
            self._require_writing("honcho_profile")
            card = service.set_card(peer, args["card"])
            if not card:
                return {"result": "Peer card cleared.", "card": []}
            return {"result": f"Peer card updated ({len(card)} facts).", "card": card}
        found = service.card(peer)
        if found:
            return {"result": found}
        return {"result": "No profile facts available yet.", "hint": self._why_empty(peer)}

    def _why_empty(self, peer: str) -> str:
        settings, service = self._settings(), self._service()
        is_seen = settings.user_observed.me
        if peer == service.names.ai:
            is_seen = settings.ai_observed.me and settings.user_observed.others
        if not is_seen:
            why = "Honcho is set to make no picture of this peer (observation in honcho.json)"
        else:
            why = "Honcho writes the card in time, from what is said; a server before 3.0 has none"
        return f"This is not an error: {why}. Try honcho_reasoning, or honcho_search."

    def _search(self, args: dict[str, Any]) -> dict[str, Any]:
        service = self._service()
        query = _needed(args, "query")
        peer = service.peer(args.get("peer", ""))
        tokens = min(
            max(args.get("max_tokens", _SEARCH_TOKENS), _FEWEST_TOKENS), _MOST_SEARCH_TOKENS
        )
        room = int(tokens) * _CHARS_PER_TOKEN
        among = SearchFilter(*(args.get(name, "") for name in ("since", "until", "session")))
        among = among._replace(metadata=args.get("metadata", {}))
        # As many results as fit, if each has the usual length; the longest ones are cut.
        found = service.search(query, peer, max(3, min(20, room // _RESULT_CHARS)), among)
        text = "\n\n".join(self._excerpt(each, query) for each in found if each.text.strip())
        return {"result": clipped(text, room) or "No relevant context found."}

    def _excerpt(self, found: FoundMessage, query: str) -> str:
        who = "assistant" if found.peer == self._service().names.ai else found.peer
        return f"[{who} · {found.session}] {around(found.text, query, _LONGEST_RESULT)}"

    def _reasoning(self, args: dict[str, Any]) -> dict[str, Any]:
        service, settings = self._service(), self._settings()
        query = _needed(args, "query")
        # With `dialecticDynamic: false` the person pays for one level and the model can't raise it.
        chosen = args.get("reasoning_level") if settings.dialectic_dynamic else None
        level = chosen or settings.dialectic_level
        answer = service.think(query, service.peer(args.get("peer", "")), level)
        return {"result": answer or "No result from Honcho."}

    def _context(self, args: dict[str, Any]) -> dict[str, Any]:
        service = self._service()
        tokens = _tokens(args.get("tokens", _CONTEXT_TOKENS), _MOST_CONTEXT_TOKENS)
        found = service.context(self._session(), service.peer(args.get("peer", "")), tokens)
        recent = [f"  [{each.peer}] {clipped(each.text, _RECENT_CHARS)}" for each in found.recent]
        sections = {
            "Summary": found.summary,
            "Representation": found.portrait.representation,
            "Card": "\n".join(found.portrait.card),
            "Recent messages": "\n".join(recent[-_RECENT:]),
        }
        text = "\n\n".join(f"## {title}\n{body}" for title, body in sections.items() if body)
        return {"result": clipped(text, tokens * _CHARS_PER_TOKEN) or "No context available yet."}

    def _conclude(self, args: dict[str, Any]) -> dict[str, Any]:
        conclusion = args.get("conclusion", "").strip()
        number = args.get("delete_id", "").strip()
        query = args.get("query", "").strip()
        listing = bool(args.get("list"))
        # JSON schema could say this with `oneOf`, but some model APIs reject that keyword.
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
        kept = storable(conclusion)
        return {"result": f"Conclusion saved for {args.get('peer') or 'user'}: {kept}"}

    def _require_writing(self, tool: str) -> None:
        if not self._may_write():
            raise HermesError(f"{tool} writes for the agent itself alone; here it only reads")


def _tokens(asked: float, most: int) -> int:
    return int(min(max(asked, _FEWEST_TOKENS), most))


def _needed(args: dict[str, Any], key: str) -> str:
    value = str(args[key]).strip()
    if not value:
        raise HermesError(f"Missing required parameter: {key}")
    return value
