"""The memory as a memory service of Google's Agent Development Kit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.lazy import Lazy

from hermes_builtin.items import LARGEST
from hermes_core import MemoryManager

pytestmark = pytest.mark.xdist_group("langgraph")

adk = Lazy("support.adk_parts")

ANN = {"app_name": "shop", "user_id": "ann"}


DEPLOY = (("user", "How do we deploy?"), ("bot", "With make release."))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def service(home: Path) -> Iterator[Any]:
    made = adk.HermesMemoryService()
    yield made
    made.close()


def run(call: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(call)


def texts(service: Any, query: str, **who: str) -> list[str]:
    found = run(service.search_memory(**{**ANN, **who}, query=query))
    return [each.content.parts[0].text for each in found.memories]


def archived(home: Path, name: str = "s1", user: str = "ann") -> list[str]:
    manager = MemoryManager.from_config(home)
    manager.initialize_all("look", platform="shop", user_id=user)
    answer = json.loads(manager.handle_tool_call("session_search", {"session_id": name}))
    manager.shutdown_all()
    return [each["content"] for each in answer.get("messages", ())]


def test_what_a_session_said_is_found(service: Any) -> None:
    run(service.add_session_to_memory(adk.session(*DEPLOY)))
    assert texts(service, "deploying") == [text for _, text in DEPLOY]
    [first, _] = run(service.search_memory(**ANN, query="deploy")).memories
    assert first.author == "user"
    assert first.timestamp.startswith("20")


def test_a_session_that_is_added_again_is_stored_once(home: Path, service: Any) -> None:
    talk = adk.session(*DEPLOY)
    run(service.add_session_to_memory(talk))
    run(service.add_session_to_memory(talk))
    talk.events.append(adk.event("user", "And back?"))  # its answer follows
    run(service.add_session_to_memory(talk))
    assert archived(home) == [text for _, text in DEPLOY]
    talk.events.append(adk.event("bot", "With make undo."))
    run(service.add_session_to_memory(talk))
    other = adk.HermesMemoryService()  # another process
    run(other.add_session_to_memory(talk))
    other.close()
    assert archived(home) == [*(text for _, text in DEPLOY), "And back?", "With make undo."]


def test_concurrent_adds_store_it_once(home: Path, service: Any) -> None:
    talk = adk.session(*DEPLOY)

    async def many() -> None:
        await asyncio.gather(*(service.add_session_to_memory(talk) for _ in range(5)))

    run(many())
    assert archived(home) == [text for _, text in DEPLOY]


def test_halves_of_a_turn_become_one(home: Path, service: Any) -> None:
    first, second = adk.session(*DEPLOY).events
    run(service.add_events_to_memory(**ANN, events=[first], session_id="s1"))
    assert archived(home) == []
    assert texts(service, "deploy") == ["How do we deploy?"]  # not lost meanwhile
    run(service.add_events_to_memory(**ANN, events=[second], session_id="s1"))
    run(service.add_events_to_memory(**ANN, events=[second], session_id="s1"))
    assert archived(home) == [text for _, text in DEPLOY]
    assert texts(service, "deploy") == [text for _, text in DEPLOY]


def test_parts_of_a_stream_and_thoughts_are_left_out(home: Path, service: Any) -> None:
    talk = adk.session(*DEPLOY)
    talk.events.insert(1, adk.event("bot", "With ma", partial=True))
    thought = adk.types.Content(role="model", parts=[adk.types.Part(text="hm", thought=True)])
    talk.events.insert(2, adk.Event(author="bot", content=thought))
    run(service.add_session_to_memory(talk))
    assert archived(home) == [text for _, text in DEPLOY]


@pytest.mark.parametrize("who", [{"user_id": "ben"}, {"app_name": "bank"}, {"user_id": "Ann"}])
def test_users_and_apps_are_kept_apart(service: Any, who: dict[str, str]) -> None:
    run(service.add_session_to_memory(adk.session(*DEPLOY)))
    fact = adk.MemoryEntry(content=adk.content("The release manager is Kim."))
    run(service.add_memory(**ANN, memories=[fact]))
    assert len(texts(service, "release")) == 3
    assert texts(service, "release", **who) == []


def test_facts_are_stored_replaced_and_deleted(service: Any) -> None:
    def fact(text: str, **more: Any) -> Any:
        return adk.MemoryEntry(content=adk.content(text), **more)

    run(service.add_memory(**ANN, memories=[fact("Tea is green"), fact("Tea is green")]))
    run(service.add_memory(**ANN, memories=[fact("Coffee is black", id="c")]))
    run(service.add_memory(**ANN, memories=[fact("Coffee is brown", id="c", author="kim")]))
    [found] = run(service.search_memory(**ANN, query="coffee")).memories
    assert (found.id, found.author) == ("c", "kim")
    assert texts(service, "tea") == ["Tea is green"]
    run(service.delete_memory(**ANN, memory_id="c"))
    assert texts(service, "coffee") == []
    run(service.delete_memory(**ANN, memory_id="unknown"))


def test_messages_are_deleted_by_a_person_only(service: Any) -> None:
    run(service.add_session_to_memory(adk.session(*DEPLOY)))
    [first, _] = run(service.search_memory(**ANN, query="deploy")).memories
    with pytest.raises(NotImplementedError, match="hermes-plugins forget"):
        run(service.delete_memory(**ANN, memory_id=first.id))


def test_wrong_input_is_an_error(service: Any) -> None:
    empty = adk.MemoryEntry(content=adk.types.Content(parts=[]))
    large = adk.MemoryEntry(content=adk.content("x" * LARGEST))
    for wrong in (empty, large):
        with pytest.raises(ValueError):
            run(
                service.add_memory(
                    **ANN, memories=[adk.MemoryEntry(content=adk.content("good")), wrong]
                )
            )
    assert texts(service, "good") == []
    with pytest.raises(ValueError, match="app_name and user_id"):
        run(service.search_memory(app_name="shop", user_id="", query="x"))
    with pytest.raises(TypeError, match="query is text"):
        run(service.search_memory(**ANN, query=5))  # type: ignore[arg-type]
    assert texts(service, "  ") == []


def test_the_owner_of_the_machine_can_be_the_user(home: Path) -> None:
    mine = adk.HermesMemoryService(person=lambda _app, _user: ("cli", ""))
    manager = MemoryManager.from_config(home)
    manager.initialize_all("at-the-terminal", platform="cli")
    manager.sync_all("My colour is crimson", "Noted.")
    manager.handle_tool_call(
        "memory", {"action": "add", "target": "user", "content": "Crimson is the colour."}
    )
    manager.shutdown_all()
    assert texts(mine, "crimson")[:2] == ["Crimson is the colour.", "My colour is crimson"]
    mine.close()


@pytest.mark.filterwarnings("ignore")
def test_an_agent_loads_memories_through_a_runner(service: Any) -> None:
    run(service.add_session_to_memory(adk.session(*DEPLOY)))

    async def talk() -> str:
        sessions = adk.InMemorySessionService()
        agent = adk.Agent(name="bot", model=adk.Model(model="stand-in"), tools=[adk.load_memory])
        runner = adk.Runner(
            agent=agent, app_name="shop", session_service=sessions, memory_service=service
        )
        made = await sessions.create_session(**ANN)
        said = ""
        async for each in runner.run_async(
            user_id="ann", session_id=made.id, new_message=adk.content("How did we deploy?")
        ):
            said += "".join(part.text or "" for part in each.content.parts)
        await service.add_session_to_memory(await sessions.get_session(**ANN, session_id=made.id))
        return said

    assert "With make release." in run(talk())
    assert "How did we deploy?" in texts(service, "deploy")
