"""The memory in the OpenAI Agents SDK, with its own runner, over HTTP to a stand-in model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.fake_model import FakeModel
from support.frameworks import FENCE, PAGE, PER_USER, ScriptedModel, archived, managed

from hermes_core import FakeProvider

pytestmark = pytest.mark.xdist_group("frameworks")


@pytest.fixture(scope="module")
def sdk() -> Any:
    import agents

    agents.set_tracing_disabled(disabled=True)
    return agents


@pytest.fixture
def script() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
def model(script: ScriptedModel) -> Iterator[FakeModel]:
    with FakeModel(answerers=[script]) as served:
        yield served


@asynccontextmanager
async def agent_of(sdk, model: FakeModel, **options: Any):
    """An agent on the stand-in."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=model.url, api_key="none", max_retries=0) as client:
        llm = sdk.OpenAIChatCompletionsModel("m", client)
        yield sdk.Agent(name="Helper", instructions="Be helpful.", model=llm, **options)


def with_session(sdk, model, home, work, *, provider=None, tools=(), **who):
    """Run ``work(agent, session)`` in a session, in an event loop of its own."""
    from hermes_adapters.openai_agents import MemorySession

    async def run():
        memory = managed(home, provider) if provider else None
        async with (
            agent_of(sdk, model, tools=list(tools)) as agent,
            MemorySession("s1", memory=memory, home=home, **who) as session,
        ):
            found = await work(session.equip(agent), session)
        if memory is not None:
            assert await memory.flush_pending(10)
            await memory.shutdown_all()
        return found

    return asyncio.run(run())


def test_a_run_recalls_calls_tools_and_is_stored(sdk, model, script, tmp_path: Path) -> None:
    provider = FakeProvider(prefetch="- Allergic to nuts.")

    async def work(agent, session):
        first = await sdk.Runner.run(agent, "note: Drinks green tea.", session=session)
        second = await sdk.Runner.run(agent, "hello", session=session)
        return first.final_output, second.final_output

    found = with_session(sdk, model, tmp_path, work, provider=provider)
    assert found == ("done", "You said: hello")
    system = script.prompts[0].system
    assert system.startswith("Be helpful.\n\n")
    assert system.index(FENCE) < system.index("Allergic to nuts")
    assert (tmp_path / "memories" / "USER.md").read_text("utf-8") == "Drinks green tea."
    assert [(each.user, each.assistant) for each in provider.turns] == [
        ("note: Drinks green tea.", "done"),
        ("hello", "You said: hello"),
    ]
    assert "Allergic" not in str(provider.turns)
    assert provider.of("prefetch")[0].arguments["query"].startswith("note:")


def test_a_streamed_run_shows_no_recalled_text(sdk, model, tmp_path: Path) -> None:
    provider = FakeProvider(prefetch="- Allergic to nuts.")

    async def work(agent, session):
        result = sdk.Runner.run_streamed(agent, "echo", session=session)
        shown = [piece async for piece in session.stream(result)]
        return "".join(shown), len(shown)

    shown, pieces = with_session(sdk, model, tmp_path, work, provider=provider)
    assert pieces > 1
    assert "Sure." in shown
    assert "Tea." in shown
    assert "Allergic" not in shown
    assert "Allergic" not in str(provider.turns)
    assert len(provider.turns) == 1
    assert len(provider.of("prefetch")) == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_a_model_that_fails_interrupts_the_turn(sdk, model, script, tmp_path, streamed) -> None:
    async def ask(agent, session, text):
        if not streamed:
            return (await sdk.Runner.run(agent, text, session=session)).final_output
        result = sdk.Runner.run_streamed(agent, text, session=session)
        return "".join([piece async for piece in session.stream(result)])

    async def work(agent, session):
        model.status = 400
        with pytest.raises(Exception, match="told to fail"):
            await ask(agent, session, "one")
        model.status = 0
        return await ask(agent, session, "two")

    provider = FakeProvider()
    assert with_session(sdk, model, tmp_path, work, provider=provider) == "You said: two"
    assert [each.user for each in provider.turns] == ["two"]
    assert archived(tmp_path, "s1") == [("user", "two"), ("assistant", "You said: two")]


def test_a_run_that_ends_with_a_tool_s_result_is_stored(sdk, model, tmp_path: Path) -> None:
    @sdk.function_tool
    def fetch() -> str:
        return PAGE

    async def work(agent, session):
        agent = agent.clone(tool_use_behavior="stop_on_first_tool")
        await sdk.Runner.run(agent, "fetch", session=session)

    with_session(sdk, model, tmp_path, work, tools=[fetch])
    assert archived(tmp_path, "s1")[-1] == ("assistant", PAGE)


def test_a_tool_then_a_model_that_fails_is_not_stored(sdk, model, tmp_path: Path) -> None:
    @sdk.function_tool
    def fetch() -> str:
        model.status = 400
        return PAGE

    async def work(agent, session):
        with pytest.raises(Exception, match="told to fail"):
            await sdk.Runner.run(agent, "fetch", session=session)

    with_session(sdk, model, tmp_path, work, tools=[fetch])
    assert archived(tmp_path, "s1") == []


def test_a_note_of_a_tool_s_words_waits_for_approval(sdk, model, tmp_path: Path) -> None:
    @sdk.function_tool
    def fetch() -> str:
        return PAGE

    async def work(agent, session):
        return (await sdk.Runner.run(agent, "fetch and note", session=session)).final_output

    assert with_session(sdk, model, tmp_path, work, tools=[fetch]) == "staged"
    assert not (tmp_path / "memories" / "MEMORY.md").exists()


def test_two_users_in_one_process_see_their_own_memories(sdk, model, script, tmp_path) -> None:
    from hermes_adapters.openai_agents import MemorySession

    (tmp_path / "config.yaml").write_text(PER_USER, "utf-8")

    async def talk(agent, user: str, *texts: str):
        who = {"home": tmp_path, "platform": "telegram", "user_id": user}
        for text in texts:
            async with MemorySession("chat", **who) as session:
                await sdk.Runner.run(session.equip(agent), text, session=session)

    async def both():
        async with agent_of(sdk, model) as agent:
            await asyncio.gather(
                talk(agent, "ann", "note: Ann drinks tea.", "ann again"),
                talk(agent, "ben", "note: Ben drinks coffee.", "ben again"),
            )

    asyncio.run(both())
    by_text = {each.user: str(each.body["messages"]) for each in script.prompts}
    assert "Ann drinks tea." in by_text["ann again"]
    assert "Ben" not in by_text["ann again"]
    assert "Ben drinks coffee." in by_text["ben again"]
    assert "Ann" not in by_text["ben again"]


def test_it_is_a_session_of_the_sdk(sdk, tmp_path: Path) -> None:
    """What the SDK's own sessions do: SQLiteSession is run beside it."""
    from hermes_adapters.openai_agents import MemorySession

    items = [{"role": "user", "content": f"{n}"} for n in range(3)]
    answers = [{"role": "assistant", "content": f"answer {n}"} for n in range(3)]
    both = [each for pair in zip(items, answers, strict=True) for each in pair]

    async def work(session):
        assert isinstance(session, sdk.Session)
        seen = [await session.get_items(), await session.pop_item()]
        for each in both:
            await session.add_items([each])
        await session.add_items([])
        seen += [await session.get_items(), await session.get_items(2), await session.get_items(0)]
        seen += [await session.get_items(limit=99), await session.pop_item()]
        seen += [await session.pop_item(), await session.get_items()]
        (await session.get_items())[0]["content"] = "changed by the caller"
        seen.append(await session.get_items())
        await session.clear_session()
        seen += [await session.get_items(), await session.pop_item()]
        await session.add_items(both[:2])
        return [*seen, await session.get_items()]

    async def ours():
        async with MemorySession("s1", home=tmp_path) as session:
            found = await work(session)
        async with MemorySession("s1", home=tmp_path) as session:  # after a restart
            assert await session.get_items() == both[:2]
        limit = sdk.SessionSettings(limit=1)
        async with MemorySession("s1", home=tmp_path, session_settings=limit) as session:
            assert await session.get_items() == both[1:2]
        return found

    theirs = sdk.SQLiteSession("s1", tmp_path / "theirs.db")
    assert asyncio.run(ours()) == asyncio.run(work(theirs))
    theirs.close()
    assert archived(tmp_path, "s1")[:2] == [("user", "0"), ("assistant", "answer 0")]


@pytest.mark.parametrize("item", ["text", {"role": "user", "content": object()}, None])
def test_an_item_that_is_none_is_refused(sdk, tmp_path: Path, item: Any) -> None:
    from hermes_adapters.openai_agents import MemorySession

    async def work():
        async with MemorySession("s1", home=tmp_path) as session:
            with pytest.raises(sdk.exceptions.UserError, match="an item of a session is"):
                await session.add_items([item])
            with pytest.raises(sdk.exceptions.UserError, match="at most 4,000,000"):
                await session.add_items([{"role": "user", "content": "x" * 5_000_000}])
            assert await session.get_items() == []

    asyncio.run(work())


def test_an_archive_that_can_t_be_read_costs_no_turn(sdk, model, tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()  # in its place

    async def work(agent, session):
        return (await sdk.Runner.run(agent, "hello", session=session)).final_output

    assert with_session(sdk, model, tmp_path, work) == "You said: hello"
    (tmp_path / "state.db").rmdir()
    assert archived(tmp_path, "s1") == [("user", "hello"), ("assistant", "You said: hello")]


def test_what_can_t_work_is_refused(sdk, model, tmp_path: Path) -> None:
    from hermes_adapters.openai_agents import MemorySession

    for wrong in ("", None, 7):
        with pytest.raises(sdk.exceptions.UserError, match="a session id is text"):
            MemorySession(wrong)
    with pytest.raises(sdk.exceptions.UserError, match="open the session first"):
        _ = MemorySession("s1", home=tmp_path).tools

    async def work(agent, session):
        with pytest.raises(sdk.exceptions.UserError, match="session=session"):
            await sdk.Runner.run(agent, "hello")

    with_session(sdk, model, tmp_path, work)
