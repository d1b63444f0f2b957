"""The end and the change of a session: between the writes before and those after, and once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.journals import noted, texts
from support.providers import TOOL, Gate, Recorder, eventually, raising

from hermes_core import Deadlines, MemoryManager
from hermes_core.dispatch.worker import Job

pytestmark = pytest.mark.usefixtures("both_storages")


@contextmanager
def talking(home: Path, provider: Recorder, **deadlines: float) -> Iterator[MemoryManager]:
    manager = MemoryManager(home=home, deadlines=Deadlines(**{"shutdown": 0.4, **deadlines}))
    assert manager.add_provider(provider)
    manager.initialize_all("s1")
    try:
        yield manager
    finally:
        manager.shutdown_all()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The changes of session that somebody waits for, as each wait begins."""
    begun: list[str] = []
    wait = Job.wait

    def noted(self: Job, timeout: float) -> bool:
        if timeout > 0 and not self.awaited:  # not a caller that waits for its own call
            begun.append(self.label)
        return wait(self, timeout)

    monkeypatch.setattr(Job, "wait", noted)
    return begun


def order(provider: Recorder) -> list[str]:
    """What the provider was told, in order."""
    names = {"sync_turn": 0, "on_session_switch": 0, "on_session_end": 0}
    return [
        "end" if call.hook == "on_session_end" else call.args[0]
        for call in provider.calls
        if call.hook in names
    ]


def test_writes_switch_and_end_arrive_in_the_order_in_which_they_were_made(home: Path) -> None:
    with Gate() as gate, talking(home, provider := Recorder(sync_turn=gate)) as manager:
        for number in range(5):
            manager.sync_all(f"s1 {number}", "answer")
        manager.on_session_end([])
        manager.on_session_switch("s2", parent_session_id="s1")
        for number in range(5):
            manager.sync_all(f"s2 {number}", "answer")
        gate.open()  # until now, all of them wait behind the first
        assert manager.flush_pending(10)
    assert order(provider) == [
        *[f"s1 {number}" for number in range(5)],
        "end",
        "s2",
        *[f"s2 {number}" for number in range(5)],
    ]


def test_an_old_session_s_write_that_failed_never_lands_in_the_new_one(home: Path) -> None:
    down = [True]

    def answer(*_: Any, **__: Any) -> None:
        if down[0]:
            raise ConnectionError("down")

    provider = Recorder(sync_turn=answer, on_session_end=answer)
    with talking(home, provider) as manager:
        manager.sync_all("s1 0", "answer")
        manager.on_session_end([{"role": "user", "content": "old"}])
        manager.on_session_switch("s2", parent_session_id="s1")
        assert eventually(lambda: provider.of("on_session_switch"))
        down[0] = False
        provider.calls.clear()
        manager.sync_all("s2 0", "answer")
        # The end names no session, so only an instance of its session may get it. Nobody makes
        # one here, and the flush does not wait for that.
        assert not manager.flush_pending(3600)
        assert provider.of("on_session_end") == []
        assert [call.kwargs["session_id"] for call in provider.of("sync_turn")] == [
            call.args[0].split()[0] for call in provider.of("sync_turn")
        ]
        assert provider.of("on_session_switch") == []


def test_what_an_old_session_left_goes_through_an_instance_of_its_own(
    plugged: Path, begun: Callable[..., MemoryManager]
) -> None:
    (plugged / "down").touch()
    manager = begun("s1", user_id="anna")
    manager.sync_all("s1 0", "answer")
    manager.on_session_end([])
    manager.on_session_switch("s2", parent_session_id="s1", user_id="anna")
    assert eventually(lambda: noted(plugged, "switch"))
    (plugged / "down").unlink()
    manager.sync_all("s2 0", "answer")
    assert manager.flush_pending(20)
    rows = {(row["hook"], row["initialised"], row["text"]) for row in noted(plugged, "end")}
    assert rows == {
        ("sync_turn", "s1", "s1 0"),
        ("on_session_end", "s1", "0"),
        ("sync_turn", "s2", "s2 0"),
    }
    assert len(noted(plugged, "switch")) == 1
    assert len({row["instance"] for row in noted(plugged, "end")}) == 2


def test_a_replay_never_sends_a_switch(plugged: Path, begun: Callable[..., MemoryManager]) -> None:
    (plugged / "down").touch()
    first = begun("s1")
    first.sync_all("s1 0", "answer")
    first.on_session_switch("s2")
    first.sync_all("s2 0", "answer")
    first.shutdown_all()
    switches = len(noted(plugged, "switch"))
    (plugged / "down").unlink()
    begun("s3")
    assert eventually(lambda: sorted(texts(plugged)) == ["s1 0", "s2 0"], 20)
    assert len(noted(plugged, "switch")) == switches
    assert {row["initialised"] for row in noted(plugged, "end")} == {"s1", "s2"}


@pytest.mark.parametrize("asked", ["prefetch", "handle_tool_call"])
@pytest.mark.parametrize("boundary", ["on_session_switch", "on_session_end"])
def test_recall_and_tools_wait_for_a_boundary_within_their_budget(
    home: Path, boundary: str, asked: str, waits: list[str]
) -> None:
    crossed: list[str] = []
    provider = Recorder(
        tools=[TOOL],
        # Who does not wait calls the provider meanwhile.
        sync_turn=lambda *_, **__: eventually(lambda: waits),
        prefetch=lambda *_, **__: f"after {crossed}",
        handle_tool_call=lambda *_, **__: f"after {crossed}",
    )
    provider.answers[boundary] = lambda *_, **__: crossed.append(boundary)
    with talking(home, provider, prefetch=60, tool=60) as manager:
        manager.sync_all("before", "answer")
        cross(manager, boundary)
        answer = (
            manager.prefetch_all("q")
            if asked == "prefetch"
            else manager.handle_tool_call("ext_tool", {})
        )
    assert f"after ['{boundary}']" in answer


def test_recall_waits_for_an_end_that_is_behind_other_writes(home: Path, waits: list[str]) -> None:
    provider = Recorder(sync_turn=lambda *_, **__: eventually(lambda: waits), prefetch="recalled")
    with talking(home, provider, prefetch=60) as manager:
        for number in range(5):
            manager.sync_all(f"before {number}", "answer")
        manager.on_session_end([])
        assert manager.prefetch_all("q") == "recalled"
    hooks = [
        each for each in provider.hooks() if each in ("sync_turn", "on_session_end", "prefetch")
    ]
    assert hooks == ["sync_turn"] * 5 + ["on_session_end", "prefetch"]


@pytest.mark.parametrize("boundary", ["on_session_switch", "on_session_end"])
def test_recall_and_tools_don_t_wait_for_ever_for_a_boundary_that_hangs(
    home: Path, boundary: str
) -> None:
    with Gate() as gate:
        provider = Recorder(tools=[TOOL], prefetch="recalled", handle_tool_call='{"a": 1}')
        provider.answers[boundary] = gate
        with talking(home, provider, prefetch=0.6, tool=3, write=1.2, hook=0.4) as manager:
            cross(manager, boundary)
            assert manager.prefetch_all("q") == ""  # it would be for the session before
            # Not "the first time": on a busy machine an answer may come after its deadline.
            assert eventually(lambda: manager.handle_tool_call("ext_tool", {}) == '{"a": 1}')
            assert eventually(lambda: manager.prefetch_all("q") == "recalled")


def test_a_tool_still_waits_for_a_switch_that_recall_has_given_up(
    home: Path, waits: list[str]
) -> None:
    switched: list[str] = []
    given_up = threading.Event()

    def store(*_: Any, **__: Any) -> None:
        assert given_up.wait(60)
        eventually(lambda: waits)  # a tool that does not wait is called meanwhile

    provider = Recorder(
        tools=[TOOL],
        prefetch="recalled",
        sync_turn=store,
        on_session_switch=lambda session, **_: switched.append(session),
        handle_tool_call=lambda *_, **__: json.dumps({"in": switched}),
    )
    with talking(home, provider, prefetch=0.2, tool=60) as manager:
        manager.sync_all("before", "answer")
        manager.on_session_switch("s2")
        assert manager.prefetch_all("q") == ""
        waits.clear()
        given_up.set()
        assert json.loads(manager.handle_tool_call("ext_tool", {})) == {"in": ["s2"]}


def test_a_switch_that_fails_costs_the_new_session_no_turn(home: Path) -> None:
    provider = Recorder(on_session_switch=raising(ConnectionError("down")))
    with talking(home, provider) as manager:
        manager.sync_all("s1 0", "answer")
        manager.on_session_switch("s2")
        manager.sync_all("s2 0", "answer")
        assert manager.flush_pending(10)
    assert order(provider) == ["s1 0", "s2", "s2 0"]


def cross(manager: MemoryManager, boundary: str) -> None:
    if boundary == "on_session_end":
        manager.on_session_end([])
    else:
        manager.on_session_switch("s2")
