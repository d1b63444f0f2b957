"""Google's Agent Development Kit: `HermesMemoryService`, the memory as a memory service.

    runner = Runner(agent=agent, app_name="shop", memory_service=HermesMemoryService(), ...)

Sessions go to the archive of conversations, explicit memories to the items of the home.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_adapters.frameworks import require
from hermes_adapters.people import (
    MemoryOwner,
    NotebookEntry,
    SessionManagers,
    in_thread,
    matching_notes,
    note_id,
    search,
)
from hermes_builtin import Items, ItemWrite, StoredItem
from hermes_core import resolve_home

require("google-adk", extra="adk", tested=">=2.13,<2.14")

from google.adk.memory.base_memory_service import (  # noqa: E402 - after the check
    BaseMemoryService,
    SearchMemoryResponse,
)
from google.adk.memory.memory_entry import MemoryEntry  # noqa: E402
from google.genai import types  # noqa: E402

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.sessions.session import Session

#: The session in which searches run, and that of events without one.
_NO_SESSION: Final = "adk"
#: Namespaces of items: which events are in the archive, halves of turns, and facts. LangGraph's
#: store has the facts of the same person, too.
_STORED: Final = "adk-stored"
_WAITING: Final = "adk-waiting"
_FACTS: Final = ("memories",)
_MOST_WAITING: Final = 1000
#: As many as ADK's own service returns at most.
_MOST: Final = 10
#: Of each conversation that was found.
_MESSAGES_PER_HIT: Final = 2


class HermesMemoryService(BaseMemoryService):
    """The memory of every user of every app, each for themselves.

    Args:
        home: HERMES_HOME; by default the environment's.
        person: Whose memory an app's user has: takes app name and user id, returns platform and
            user id. By default these two. ``lambda app, user: ("cli", "")`` is the owner of the
            machine, whose memory `hermes-plugins chat` and MCP clients have.
    """

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        *,
        person: Callable[[str, str], tuple[str, str]] | None = None,
    ) -> None:
        folder = Path(home).absolute() if home is not None else resolve_home()
        self._memories = SessionManagers(folder)
        self._items = Items(folder, **MemoryOwner()._asdict())
        self._person_of = person

    async def add_session_to_memory(self, session: Session) -> None:
        """Store a session's turns; those that are stored already are not stored again."""
        person = self._person(session.app_name, session.user_id)
        await in_thread(partial(self._add, person, session.id, list(session.events)))

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,  # noqa: ARG002 - has no meaning here
    ) -> None:
        """Store the turns of some events; a turn without an answer is not one yet."""
        person = self._person(app_name, user_id)
        await in_thread(partial(self._add, person, session_id or _NO_SESSION, list(events)))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store facts of one user; one with the id or the text of another replaces it.

        Raises:
            ValueError: One has no text, or is too large. None of them is stored then.
        """
        person = self._person(app_name, user_id)
        writes = [_fact(each, dict(custom_metadata or {})) for each in memories]
        await in_thread(partial(self._change, person, writes))

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """Return facts that share words with a query, then what conversations say about it."""
        person = self._person(app_name, user_id)
        return SearchMemoryResponse(memories=await in_thread(partial(self._find, person, query)))

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Delete a fact.

        Raises:
            NotImplementedError: It is a note or a message of a conversation.
        """
        person = self._person(app_name, user_id)
        if (memory_id or "").startswith(("message:", "note:")):
            raise NotImplementedError("run hermes-plugins forget, or hermes-plugins memory remove")
        if memory_id:
            await in_thread(partial(self._change, person, [ItemWrite(_FACTS, memory_id, None)]))

    def close(self) -> None:
        """Deliver what waits, and shut the memory down."""
        self._memories.close()
        self._items.close()

    def _person(self, app_name: str, user_id: str) -> MemoryOwner:
        if not app_name or not user_id:
            raise ValueError("app_name and user_id are needed: they say whose memory it is")
        chosen = self._person_of(app_name, user_id) if self._person_of else (app_name, user_id)
        return MemoryOwner(*chosen)

    def _change(self, person: MemoryOwner, writes: Sequence[ItemWrite]) -> None:
        self._items.of(*person).change(writes)

    def _add(self, person: MemoryOwner, session_id: str, events: Iterable[Event]) -> None:
        stored, waiting = (_STORED, _label(session_id)), (_WAITING, _label(session_id))
        given = [each for each in map(_event_message, events) if each is not None]
        known = {each.id for each in given}
        items = self._items.of(*person)
        # The session is ours alone from here on: nobody else stores the same turn.
        with self._memories.session(session_id, person) as memory:
            kept = sorted(items.search(waiting, limit=_MOST_WAITING), key=lambda each: each.created)
            earlier = [_EventMessage(**each.value) for each in kept if each.key not in known]
            halves = {each.key for each in kept}
            for turn in _turns([*earlier, *given]):
                new = [each for each in turn if not items.get(stored, each.id, refresh=False)]
                asked = "\n".join(each.text for each in turn if each.role == "user")
                answer = "\n".join(each.text for each in new if each.role == "assistant")
                if asked and answer.strip():
                    memory.sync_all(asked, answer, messages=[each.message() for each in turn])
                    # Afterwards: a crash in between stores a turn twice, and loses none.
                    items.change([
                        *(ItemWrite(stored, each.id, {}) for each in new),
                        *(ItemWrite(waiting, each.id, None) for each in new if each.id in halves),
                    ])  # fmt: skip
                else:  # half a turn: the other half may come later
                    items.change([ItemWrite(waiting, each.id, asdict(each), each.text)
                                  for each in new if each.id not in halves])  # fmt: skip

    def _find(self, person: MemoryOwner, query: str) -> list[MemoryEntry]:
        if not isinstance(query, str):
            raise TypeError(f"query is text, not {type(query).__name__}")
        if not query.strip():
            return []
        items = self._items.of(*person)
        ranked = [*items.search(_FACTS, query=query), *items.search((_WAITING,), query=query)]
        found = [each for each in ranked if each.score is not None]
        with self._memories.session(f"{_NO_SESSION}-search", person) as memory:
            # The notebooks of a home may be shared: see memory.user_notes.
            noted = () if person.user_id else matching_notes(memory, query)
            answer = search(memory, query=query, limit=_MOST, detail="full")
        facts = [*map(_of_item, found), *map(_of_note, noted)]
        said = [each for hit in answer.get("results", ()) for each in _of_hit(hit)]
        # Both get their share.
        return [*facts[: max(_MOST - len(said), _MOST // 2)], *said][:_MOST]


@dataclass(frozen=True)
class _EventMessage:
    """What an event says: a message of the user, the agent or a tool."""

    id: str
    role: str
    text: str
    tool: str = ""

    def message(self) -> dict[str, Any]:
        """Return it as a message; what tools returned is what the turn has read."""
        named = {"name": self.tool} if self.tool else {}
        return {"role": self.role, "content": self.text, **named}


def _event_message(event: Event) -> _EventMessage | None:
    if event.partial:  # the whole text follows
        return None
    results = event.get_function_responses()
    if results:
        text = "\n".join(str(each.response) for each in results)
        return _EventMessage(event.id, "tool", text, results[0].name or "")
    text = _text(event.content)
    return (
        _EventMessage(event.id, "user" if event.author == "user" else "assistant", text)
        if text
        else None
    )


def _turns(said: Iterable[_EventMessage]) -> Iterator[list[_EventMessage]]:
    """Messages from one of the user to the next."""
    turn: list[_EventMessage] = []
    for each in said:
        if each.role == "user" and turn and any(one.role != "user" for one in turn):
            yield turn
            turn = []
        turn.append(each)
    if turn:
        yield turn


def _label(session_id: str) -> str:
    """A session id as a label of a namespace, which has no periods."""
    return session_id.encode("utf-8", "surrogatepass").hex()


def _text(content: types.Content | None) -> str:
    parts = (content.parts if content else None) or ()
    return "\n".join(each.text for each in parts if each.text and not each.thought)


def _fact(entry: MemoryEntry, metadata: dict[str, Any]) -> ItemWrite:
    text = _text(entry.content)
    if not text.strip():
        raise ValueError("a memory without text")
    about = {"author": entry.author or "", "timestamp": entry.timestamp or ""}
    value = {"text": text, **about, "metadata": {**metadata, **entry.custom_metadata}}
    return ItemWrite(_FACTS, entry.id or note_id(text), value, text)


def _of_item(item: StoredItem) -> MemoryEntry:
    value = item.value
    when = value.get("timestamp") or datetime.fromtimestamp(item.updated, UTC).isoformat()
    found = _entry(item.key, str(value.get("text", "")), str(value.get("author") or ""), when)
    found.custom_metadata = dict(value.get("metadata") or {})
    return found


def _of_note(note: NotebookEntry) -> MemoryEntry:
    return _entry(f"note:{note.id}", note.text, "notes", None)


def _of_hit(hit: Mapping[str, Any]) -> Iterator[MemoryEntry]:
    """The message that matches with its answer or question; the first two if the title does."""
    messages = [each for each in hit.get("messages", ()) if each["content"]]
    anchors = [at for at, each in enumerate(messages) if each.get("anchor")]
    start = anchors[0] if anchors else 0
    if start and messages[start]["role"] != "user":
        start -= 1
    for each in messages[start : start + _MESSAGES_PER_HIT]:
        when = datetime.fromtimestamp(each["timestamp"], UTC).isoformat()
        name = f"message:{hit['session_id']}:{each['id']}"
        yield _entry(name, each["content"], each["role"], when)


def _entry(name: str, text: str, author: str, when: str | None) -> MemoryEntry:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return MemoryEntry(id=name, content=content, author=author, timestamp=when)
