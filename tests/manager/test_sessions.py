"""Sessions: how they start, whose writes count, and that none gets into another's."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from support.providers import QUICK, Recorder, running

WRITES = ("sync_turn", "on_memory_write", "on_delegation", "on_session_end")


def test_initialize_has_the_keywords_of_the_contract_always(home: Path) -> None:
    external = Recorder()
    with running(external):
        pass
    (call,) = external.of("initialize")
    assert call.args == ("s1",)
    assert call.kwargs == {
        "hermes_home": str(home),
        "platform": "cli",
        "agent_context": "primary",
        "agent_identity": "default",
        "agent_workspace": "hermes",
    }
    assert all(isinstance(each, str) for each in call.kwargs.values())


def test_a_host_may_override_the_keywords_and_add_its_own() -> None:
    builtin, external = Recorder("builtin"), Recorder()
    given = {
        "hermes_home": "elsewhere",
        "platform": "telegram",
        "agent_context": "cron",
        "agent_identity": "coder",
        "agent_workspace": "team",
        "user_id": "u1",
        "chat_id": "c1",
        "something_new": [1],
    }
    with running(builtin, external, start=False) as manager:
        manager.initialize_all("s1", **given)
    for provider in (builtin, external):
        assert {**provider.of("initialize")[0].kwargs, **given} == provider.of("initialize")[
            0
        ].kwargs


def test_the_home_is_the_manager_s_own_if_it_has_one(home: Path, tmp_path: Path) -> None:
    external = Recorder()
    with running(external, home=tmp_path / "other"):
        pass
    assert external.of("initialize")[0].kwargs["hermes_home"] == str(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_inspection_has_the_same_keywords() -> None:
    external = Recorder()
    with running(external, start=False) as manager:
        manager.initialize_all_for_inspection("look", platform="web")
    (call,) = external.of("initialize_for_inspection")
    assert call.kwargs["platform"] == "web"
    assert call.kwargs["agent_context"] == "primary"
    assert external.of("initialize") == []


def _write_everything(manager: Any) -> None:
    manager.sync_all("u", "a")
    manager.on_memory_write("add", "memory", "x")
    manager.on_delegation("t", "r")
    manager.on_session_end([{"role": "user", "content": "u"}])
    assert manager.flush_pending(60)


@pytest.mark.parametrize("context", ["subagent", "cron", "flush", "something-new"])
def test_writes_of_other_contexts_reach_the_built_in_alone(context: str) -> None:
    builtin, external = Recorder("builtin"), Recorder(prefetch="recalled")
    with running(builtin, external, start=False) as manager:
        manager.initialize_all("s1", agent_context=context)
        _write_everything(manager)
        assert manager.prefetch_all("q") == "recalled"  # reading is free
    assert [each for each in external.hooks() if each in WRITES] == []
    assert [each for each in builtin.hooks() if each in WRITES] == [
        "sync_turn",
        "on_delegation",
        "on_session_end",
    ]


def test_writes_of_the_primary_agent_reach_both() -> None:
    builtin, external = Recorder("builtin"), Recorder()
    with running(builtin, external) as manager:
        _write_everything(manager)
    assert [each for each in external.hooks() if each in WRITES] == list(WRITES)
    assert builtin.of("sync_turn")


def test_the_context_is_that_of_the_latest_session() -> None:
    external = Recorder()
    with running(external) as manager:
        manager.initialize_all("s2", agent_context="cron")
        manager.sync_all("cron", "a")
        manager.initialize_all("s3")
        manager.sync_all("primary", "a")
        assert manager.flush_pending(60)
    assert [each.args[0] for each in external.of("sync_turn")] == ["primary"]


@pytest.mark.parametrize(
    "turn",
    [
        {"user_content": "u", "assistant_content": "a", "interrupted": True},
        {"user_content": "", "assistant_content": "a"},
        {"user_content": "u", "assistant_content": ""},
        {"user_content": " \n", "assistant_content": "a"},
        {"user_content": "u", "assistant_content": "\t"},
    ],
    ids=["interrupted", "no question", "no answer", "blank question", "blank answer"],
)
def test_an_interrupted_or_half_empty_turn_is_not_synced(turn: dict[str, Any]) -> None:
    builtin, external = Recorder("builtin"), Recorder()
    with running(builtin, external) as manager:
        manager.sync_all(**turn)
        assert manager.flush_pending(60)
    assert builtin.of("sync_turn") == external.of("sync_turn") == []


@pytest.mark.parametrize(("user", "assistant"), [("u", None), (None, "a")])
def test_a_turn_whose_one_side_is_none_is_not_synced(user: Any, assistant: Any) -> None:
    external = Recorder()
    with running(external) as manager:
        manager.sync_all(user, assistant)
        assert manager.flush_pending(60)
    assert external.of("sync_turn") == []


def test_calls_are_of_the_current_session_unless_they_name_another() -> None:
    external = Recorder()
    with running(external) as manager:
        manager.prefetch_all("q1")
        manager.prefetch_all("q2", session_id="other")
        manager.on_session_switch("s2")
        manager.prefetch_all("q3")
        manager.sync_all("u", "a")
        manager.queue_prefetch_all("q4")
        assert manager.flush_pending(60)
    assert [each.kwargs["session_id"] for each in external.of("prefetch")] == ["s1", "other", "s2"]
    assert external.of("sync_turn")[0].kwargs["session_id"] == "s2"
    assert external.of("queue_prefetch")[0].kwargs["session_id"] == "s2"


def test_interleaved_sessions_on_one_manager_stay_apart() -> None:
    external = Recorder(prefetch=lambda query, *, session_id: f"{session_id}:{query}")
    wrong: list[str] = []

    def converse(session: str) -> None:
        for number in range(25):
            query = f"{session} {number}"
            recalled = manager.prefetch_all(query, session_id=session)
            if recalled != f"{session}:{query}":
                wrong.append(recalled)
            manager.sync_all(query, "a", session_id=session)
            manager.queue_prefetch_all(query, session_id=session)

    with running(external) as manager:
        talks = [threading.Thread(target=converse, args=(f"talk{n}",)) for n in range(4)]
        for each in talks:
            each.start()
        for each in talks:
            each.join()
        assert manager.flush_pending(10)
    assert wrong == []
    by_session: dict[str, list[str]] = {}
    for call in external.of("sync_turn"):
        by_session.setdefault(call.kwargs["session_id"], []).append(call.args[0])
    assert by_session == {
        f"talk{n}": [f"talk{n} {number}" for number in range(25)] for n in range(4)
    }


class _Stateful(Recorder):
    """Keeps the session that it was told of last, as many providers do."""

    def __init__(self) -> None:
        super().__init__(
            initialize=self._enter,
            on_session_switch=self._enter,
            sync_turn=self._write,
            on_session_end=self._write,
        )
        self.may_write = threading.Event()
        self.session = ""
        self.landed: list[tuple[str, str]] = []

    def _enter(self, session_id: str, **kwargs: Any) -> None:
        self.session = session_id

    def _write(self, what: Any, *args: Any, **kwargs: Any) -> None:
        self.may_write.wait(60)
        self.landed.append((self.session, what if isinstance(what, str) else "end"))


@pytest.mark.parametrize("when", ["at once", "behind the switch"])
def test_no_write_of_the_old_session_lands_in_the_new_one(when: str) -> None:
    external = _Stateful()
    with running(external) as manager:
        if when == "at once":
            external.may_write.set()
        for number in range(3):
            manager.sync_all(f"old {number}", "a")
        manager.on_session_end([])
        manager.on_session_switch("s2", parent_session_id="s1", reset=True)
        for number in range(2):
            manager.sync_all(f"new {number}", "a")
        external.may_write.set()
        assert manager.flush_pending(60)
    assert external.landed == [
        ("s1", "old 0"),
        ("s1", "old 1"),
        ("s1", "old 2"),
        ("s1", "end"),
        ("s2", "new 0"),
        ("s2", "new 1"),
    ]


def test_a_switch_does_not_wait_for_slow_writes_and_their_order_holds() -> None:
    external = _Stateful()
    with running(external, deadlines=QUICK._replace(write=60.0, shutdown=60.0)) as manager:
        for number in range(4):
            manager.sync_all(f"old {number}", "a")
        manager.on_session_switch("s2")
        manager.sync_all("new", "a")
        assert external.session == "s1"  # not yet, but we did not wait for it
        external.may_write.set()
        assert manager.flush_pending(60)
    assert external.landed[-1] == ("s2", "new")
    assert {session for session, _ in external.landed[:-1]} == {"s1"}


def test_a_switch_to_no_session_is_none() -> None:
    external = Recorder()
    with running(external) as manager:
        manager.on_session_switch("")
        manager.prefetch_all("q")
    assert external.of("on_session_switch") == []
    assert external.of("prefetch")[0].kwargs["session_id"] == "s1"


def test_a_switch_reaches_the_external_provider_of_any_context() -> None:
    external = Recorder()
    with running(external, start=False) as manager:
        manager.initialize_all("s1", agent_context="subagent")
        manager.on_session_switch("s2")
    assert external.of("on_session_switch")[0].args == ("s2",)


def test_notes_go_to_the_external_provider_with_their_metadata() -> None:
    external = Recorder()
    with running(Recorder("builtin"), external) as manager:
        manager.on_memory_write("replace", "user", "likes tea", {"old_text": "likes coffee"})
        assert manager.flush_pending(60)
    (call,) = external.of("on_memory_write")
    assert call.args == ("replace", "user", "likes tea")
    assert call.kwargs == {"metadata": {"old_text": "likes coffee"}}
