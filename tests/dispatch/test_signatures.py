"""A provider gets what its signature accepts, however old the contract it was written for."""

from __future__ import annotations

from typing import Any

import pytest
from support.providers import Minimal, Recorder, running


def _failures(manager: Any, hook: str) -> int:
    return manager.health()["ext"][hook].failures


def test_keyword_only_arguments_arrive() -> None:
    provider = Recorder()
    with running(provider) as manager:
        manager.prefetch_all("q", session_id="s7")
        manager.queue_prefetch_all("q2", session_id="s8")
        manager.sync_all("u", "a", session_id="s9", messages=[{"role": "user"}])
        manager.on_delegation("t", "r", child_session_id="c1", depth=2)
        manager.on_session_switch("s10", parent_session_id="s1", reset=True, reason="new")
        manager.flush_pending()
    assert provider.of("prefetch")[0][1:3] == (("q",), {"session_id": "s7"})
    assert provider.of("queue_prefetch")[0][1:3] == (("q2",), {"session_id": "s8"})
    assert provider.of("sync_turn")[0][1:3] == (
        ("u", "a"),
        {"session_id": "s9", "messages": [{"role": "user"}]},
    )
    assert provider.of("on_delegation")[0][1:3] == (
        ("t", "r"),
        {"child_session_id": "c1", "depth": 2},
    )
    switch = provider.of("on_session_switch")[0]
    assert switch.args == ("s10",)
    assert switch.kwargs == {
        "parent_session_id": "s1",
        "reset": True,
        "reason": "new",
    }


def test_rewound_is_passed_only_when_the_host_passed_it() -> None:
    class Strict(Minimal):
        def on_session_switch(self, new_session_id, *, parent_session_id, reset, rewound):
            strict.append(rewound)

    class Open(Minimal):
        def on_session_switch(self, new_session_id, **kwargs):
            seen.append(kwargs)

    seen: list[dict[str, Any]] = []
    strict: list[bool] = []
    for provider in (Open(), Strict()):
        with running(provider) as manager:
            manager.on_session_switch("s2")
            manager.on_session_switch("s2", rewound=True)
            assert manager.flush_pending(60)
    usual = {"parent_session_id": "", "reset": False}
    assert seen == [usual, {**usual, "rewound": True}]
    assert strict == [False, True]  # who can't be called without it gets it


def test_open_keywords_arrive() -> None:
    provider = Recorder(tools=[{"name": "ext_tool"}])
    with running(provider, start=False) as manager:
        manager.initialize_all("s1", platform="telegram", user_id="u1")
        manager.on_turn_start(3, "hello", model="m", remaining_tokens=10)
        manager.handle_tool_call("ext_tool", {"a": 1}, session_id="s1")
        manager.build_system_prompt()
    assert provider.of("initialize")[0].kwargs["user_id"] == "u1"
    start = provider.of("on_turn_start")[0]
    assert start.args == (3, "hello")
    assert start.kwargs == {"model": "m", "remaining_tokens": 10}
    tool = provider.of("handle_tool_call")[0]
    assert (tool.args, tool.kwargs) == (("ext_tool", {"a": 1}), {"session_id": "s1"})


def test_a_sync_turn_from_before_messages_is_called_without_them() -> None:
    seen = []

    class Old(Minimal):
        def sync_turn(self, user_content, assistant_content, *, session_id=""):
            seen.append((user_content, assistant_content, session_id))

    with running(Old()) as manager:
        manager.sync_all("u", "a", session_id="s", messages=[{}])
        manager.flush_pending()
    assert seen == [("u", "a", "s")]


def test_a_sync_turn_and_a_prefetch_without_a_session_are_called_without_one() -> None:
    seen = []

    class Old(Minimal):
        def sync_turn(self, user, assistant):
            seen.append((user, assistant))

        def prefetch(self, query):
            seen.append(query)
            return "found"

        def queue_prefetch(self, query):
            seen.append(query)

    with running(Old()) as manager:
        manager.sync_all("u", "a", session_id="s", messages=[{}])
        manager.queue_prefetch_all("q1", session_id="s")
        manager.flush_pending()
        assert manager.prefetch_all("q2", session_id="s") == "found"
    assert sorted(map(str, seen)) == ["('u', 'a')", "q1", "q2"]


@pytest.mark.parametrize("style", ["none", "named", "renamed", "positional", "keyword", "any"])
def test_metadata_reaches_whoever_has_a_place_for_it(style: str) -> None:
    seen: list[Any] = []
    shapes = {
        "none": lambda action, target, content: seen.append(None),
        "named": lambda action, target, content, metadata=None: seen.append(metadata),
        "renamed": lambda action, target, content, meta: seen.append(meta),
        "positional": lambda action, target, content, extra, /: seen.append(extra),
        "keyword": lambda action, target, content, *, metadata: seen.append(metadata),
        "any": lambda *args, **kwargs: seen.append(kwargs.get("metadata", args[3:])),
    }
    provider = Minimal()
    provider.on_memory_write = shapes[style]  # type: ignore[method-assign]
    with running(provider) as manager:
        manager.on_memory_write("add", "user", "likes tea", {"source": "tool"})
        manager.flush_pending()
        assert _failures(manager, "on_memory_write") == 0
    assert seen == [None if style == "none" else {"source": "tool"}]


def test_a_tool_handler_without_keywords_is_called_without_them() -> None:
    class Old(Minimal):
        def get_tool_schemas(self):
            return [{"name": "ext_tool"}]

        def handle_tool_call(self, tool_name, args):
            return f'{{"did": "{tool_name}"}}'

    with running(Old()) as manager:
        assert manager.handle_tool_call("ext_tool", {}, session_id="s") == '{"did": "ext_tool"}'


def test_methods_with_fewer_parameters_than_the_contract_are_called_with_fewer() -> None:
    seen = []

    class Old(Minimal):
        def initialize(self):
            seen.append("initialize")

        def on_turn_start(self, turn_number):
            seen.append(turn_number)

        def on_session_switch(self, new_session_id):
            seen.append(new_session_id)

        def on_session_end(self):
            seen.append("end")

        def on_delegation(self, task):
            seen.append(task)

        def system_prompt_block(self):
            return f"{len(seen)}"

    with running(Old()) as manager:
        manager.on_turn_start(4, "hello")
        assert manager.build_system_prompt() == "2"
        manager.on_session_end([])
        manager.on_session_switch("s2", reset=True)
        manager.on_delegation("task", "result")
        manager.flush_pending()
    assert seen == ["initialize", 4, "end", "s2", "task"]


@pytest.mark.parametrize("style", ["keyword", "any"])
def test_an_initialize_that_takes_its_session_by_keyword_gets_it(style: str) -> None:
    # hermes-agent calls initialize(session_id=...), so there are plugins that look like this.
    seen = []
    shapes = {
        "keyword": lambda *, session_id, **kwargs: seen.append(session_id),
        "any": lambda **kwargs: seen.append(kwargs.get("session_id")),
    }
    provider = Minimal()
    provider.initialize = shapes[style]  # type: ignore[method-assign]
    with running(provider):
        pass
    assert seen == ["s1"]


def test_initialize_may_name_single_keywords() -> None:
    seen = []

    class Picky(Minimal):
        def initialize(self, session_id, hermes_home, platform="?"):
            seen.append((session_id, hermes_home, platform))

    with running(Picky(), start=False, home="some-home") as manager:
        manager.initialize_all("s1", platform="discord", chat_id="c")
    assert seen[0][0::2] == ("s1", "discord")
    assert seen[0][1].endswith("some-home")


def test_a_write_gets_its_identity_and_attempt_if_it_names_them() -> None:
    seen = []

    class Provider(Minimal):
        def sync_turn(self, user_content, assistant_content, *, turn_id, attempt):
            seen.append(("turn", turn_id, attempt))

        def on_memory_write(self, action, target, content, *, event_id, attempt):
            seen.append(("note", event_id, attempt))

        def on_delegation(self, task, result, *, event_id, attempt):
            seen.append(("task", event_id, attempt))

        def on_session_end(self, messages, *, event_id, attempt):
            seen.append(("end", event_id, attempt))

    with running(Provider()) as manager:
        manager.sync_all("u", "a")
        manager.on_memory_write("add", "memory", "x")
        manager.on_delegation("t", "r")
        manager.on_session_end([])
        manager.flush_pending()
    assert [each[0] for each in seen] == ["turn", "note", "task", "end"]
    assert all(isinstance(each[1], str) and each[1] for each in seen)
    assert len({each[1] for each in seen}) == 4
    assert {each[2] for each in seen} == {1}


def test_a_write_that_takes_any_keyword_is_not_given_its_identity() -> None:
    seen = []

    class Provider(Minimal):
        def sync_turn(self, user_content, assistant_content, **kwargs):
            seen.append(sorted(kwargs))

    with running(Provider()) as manager:
        manager.sync_all("u", "a", messages=[])
        manager.flush_pending()
    assert seen == [["messages", "session_id"]]
