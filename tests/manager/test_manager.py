"""MemoryManager as a host uses it: built-in first, one external, a turn that goes on."""

from __future__ import annotations

import inspect
import logging
from threading import Event
from typing import Any

import pytest
from support.providers import DRIVE, TOOL, Minimal, Recorder, eventually, raising, running

from hermes_core import MemoryManager, RecallStatus

# What a host that was written for hermes-agent calls.
NAMES = {
    "add_provider": ["provider"],
    "build_system_prompt": [],
    "commit_session_boundary_async": ["messages", "new_session_id", "parent_session_id", "reason"],
    "describe_recall": [],
    "flush_pending": ["timeout"],
    "get_all_tool_names": [],
    "get_all_tool_schemas": [],
    "get_provider": ["name"],
    "handle_tool_call": ["tool_name", "args", "kwargs"],
    "has_tool": ["tool_name"],
    "initialize_all": ["session_id", "kwargs"],
    "initialize_all_for_inspection": ["session_id", "kwargs"],
    "notify_memory_tool_write": ["tool_result", "tool_args", "build_metadata"],
    "on_delegation": ["task", "result", "child_session_id", "kwargs"],
    "on_memory_write": ["action", "target", "content", "metadata"],
    "on_pre_compress": [
        *("messages", "evidence_messages", "require_checkpoint", "checkpoint_api_version"),
    ],
    "on_session_end": ["messages"],
    "on_session_switch": ["new_session_id", "parent_session_id", "reset", "rewound", "kwargs"],
    "on_turn_start": ["turn_number", "message", "kwargs"],
    "prefetch_all": ["query", "session_id"],
    "queue_prefetch_all": ["query", "session_id"],
    "shutdown_all": [],
    "supports_pre_compress_checkpoint": ["api_version"],
    "sync_all": ["user_content", "assistant_content", "session_id", "messages", "turn_author"],
}

BUILTIN_TEXT = {"system_prompt_block": "b1", "prefetch": "b2", "on_pre_compress": "b3"}
EXTERNAL_TEXT = {"system_prompt_block": "e1", "prefetch": "e2", "on_pre_compress": "e3"}


@pytest.mark.parametrize("method", NAMES)
def test_the_methods_are_those_that_hosts_know(method: str) -> None:
    found = list(inspect.signature(getattr(MemoryManager, method)).parameters)[1:]
    assert [each for each in found if each in NAMES[method]] == NAMES[method]
    assert "providers" in dir(MemoryManager)


def test_a_manager_starts_empty_and_gives_neutral_answers() -> None:
    with running() as manager:
        assert manager.providers == []
        assert manager.get_provider("builtin") is None
        assert manager.build_system_prompt() == ""
        assert manager.prefetch_all("q") == ""
        for drive in DRIVE.values():
            drive(manager)
        assert manager.flush_pending(1)
        assert (manager.problems, manager.warnings) == ((), ())


@pytest.mark.parametrize("order", ["builtin first", "external first"])
def test_the_built_in_is_first_in_every_answer_whoever_was_added_first(order: str) -> None:
    builtin, external = Recorder("builtin", **BUILTIN_TEXT), Recorder("ext", **EXTERNAL_TEXT)
    builtin.answers["recall_status"] = RecallStatus("b", 1)
    external.answers["recall_status"] = RecallStatus("e", 2)
    providers = (builtin, external) if order == "builtin first" else (external, builtin)
    with running(*providers) as manager:
        assert manager.providers == [builtin, external]
        assert manager.build_system_prompt() == "b1\n\ne1"
        assert manager.prefetch_all("q") == "b2\n\ne2"
        assert manager.on_pre_compress([]) == "b3\n\ne3"
        assert [each.provider_label for each in manager.recall_status_all()] == ["b", "e"]
        if order == "builtin first":
            assert list(manager.health()) == ["builtin", "ext"]


def test_nothing_is_joined_where_only_one_has_something_to_say() -> None:
    with running(Recorder("builtin"), Recorder(prefetch="e2")) as manager:
        assert manager.prefetch_all("q") == "e2"
        assert manager.build_system_prompt() == ""


def test_an_answer_of_nothing_but_spaces_is_none() -> None:
    with running(Recorder("builtin", prefetch=" \n"), Recorder(prefetch="e2")) as manager:
        assert manager.prefetch_all("q") == "e2"


def test_providers_are_found_by_name_however_it_is_spelt() -> None:
    external = Recorder("My_Memory")
    with running(external) as manager:
        assert manager.get_provider("my-memory") is external
        assert manager.get_provider("MY.MEMORY") is external
        assert manager.get_provider("other") is None


def test_the_list_of_providers_is_the_caller_s_own() -> None:
    with running(Recorder()) as manager:
        manager.providers.clear()
        assert len(manager.providers) == 1


def test_a_second_external_provider_is_refused_with_both_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = Recorder("honcho"), Recorder("mem0")
    with running(first) as manager:
        with caplog.at_level(logging.WARNING):
            assert manager.add_provider(second) is False
        assert manager.providers == [first]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "honcho" in record.getMessage()
    assert "mem0" in record.getMessage()
    assert second.calls == []


def test_a_second_built_in_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Recorder("builtin"), Recorder("Builtin")
    with running(first) as manager:
        assert manager.add_provider(second) is False
        assert manager.providers == [first]
    assert "builtin" in caplog.text
    assert second.calls == []


def test_the_same_provider_twice_is_refused() -> None:
    external = Recorder()
    with running(external) as manager:
        assert manager.add_provider(external) is False
        assert manager.providers == [external]


class _Raises(Minimal):
    @property
    def name(self) -> str:
        raise RuntimeError("no name today")


NAMELESS = {
    "raises": (_Raises(), "no name today"),
    "none": (Minimal(None), "None"),  # type: ignore[arg-type]
    "number": (Minimal(5), "5"),  # type: ignore[arg-type]
    "bytes": (Minimal(b"x"), "b'x'"),  # type: ignore[arg-type]
    "empty": (Minimal(""), "''"),
    "spaces": (Minimal("  "), "'  '"),
    "no attribute": (object(), "object"),
    "nothing": (None, "NoneType"),
    "a class": (Minimal, "not a string"),
}


@pytest.mark.parametrize(("provider", "told"), NAMELESS.values(), ids=NAMELESS.keys())
def test_a_provider_without_a_name_is_refused_with_the_reason(
    provider: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running(Recorder("builtin")) as manager:
        assert manager.add_provider(provider) is False
        assert len(manager.providers) == 1
        assert manager.add_provider(Recorder("good"))
    assert told in caplog.text


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_a_name_that_exits_is_a_reason_like_any_other(error: BaseException) -> None:
    class Exits(Minimal):
        @property
        def name(self) -> str:
            raise error

    manager = MemoryManager()
    try:
        refused = manager.add_provider(Exits()) is False
    except (SystemExit, KeyboardInterrupt):
        refused = False
    assert refused


def test_a_name_that_can_not_be_printed_is_refused() -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError("no text")

        __repr__ = __str__

    with running(Recorder("builtin")) as manager:
        assert manager.add_provider(Minimal(Unprintable())) is False  # type: ignore[arg-type]


def test_a_name_is_read_once() -> None:
    reads = []

    class Counting(Recorder):
        @property
        def name(self) -> str:
            reads.append(1)
            return f"ext{len(reads)}"

    with running(Counting()) as manager:
        manager.prefetch_all("q")
        manager.health()
        assert manager.get_provider("ext1") is not None
    assert len(reads) == 1


def test_a_provider_whose_tools_fail_is_there_all_the_same() -> None:
    external = Recorder(get_tool_schemas=raising(RuntimeError("boom")), prefetch="e2")
    with running(external) as manager:
        assert manager.prefetch_all("q") == "e2"
        assert manager.get_all_tool_schemas() == []
        assert manager.health()["ext"]["get_tool_schemas"].failures >= 1


@pytest.mark.parametrize("budget", [-1, float("nan")])
def test_a_recall_budget_that_is_no_time_at_all_is_refused(budget: float) -> None:
    with pytest.raises(ValueError, match="external_prefetch_timeout"):
        MemoryManager(external_prefetch_timeout=budget)


def test_the_recall_budget_is_the_one_that_was_given() -> None:
    answered = Event()
    external = Recorder(prefetch=lambda *args, **kwargs: answered.wait(30) and "late")
    with running(external, external_prefetch_timeout=0.05) as manager:
        assert manager.prefetch_all("q") == ""
        answered.set()


def test_what_was_recalled_is_told_by_whoever_says_so() -> None:
    external = Recorder(recall_status=RecallStatus("Notes", 3, "*"))
    with running(Recorder("builtin"), external) as manager:
        assert manager.recall_status_all() == [RecallStatus("Notes", 3, "*")]


def test_the_life_of_a_session_arrives_in_the_order_of_the_contract() -> None:
    external = Recorder(tools=[TOOL])
    with running(external) as manager:
        manager.build_system_prompt()
        for number in (1, 2):
            manager.on_turn_start(number, "hello")
            manager.prefetch_all("hello")
            manager.handle_tool_call("ext_tool", {})
            manager.sync_all("hello", "hi")
            assert manager.flush_pending(60)
            manager.queue_prefetch_all("hello")
            assert manager.flush_pending(60)
        manager.on_session_end([])
    turn = ["on_turn_start", "prefetch", "handle_tool_call", "sync_turn", "queue_prefetch"]
    assert [each for each in external.hooks() if each != "get_tool_schemas"] == [
        "initialize",
        "system_prompt_block",
        *turn,
        *turn,
        "on_session_end",
        "shutdown",
    ]


def test_the_start_of_a_turn_comes_before_its_recall_though_nobody_waits_for_it() -> None:
    # It takes until recall has been asked for, or almost.
    external = Recorder(on_turn_start=lambda *args, **kwargs: Event().wait(0.05))
    with running(external) as manager:
        for number in range(3):
            manager.on_turn_start(number, "m")
            manager.prefetch_all("q")
        assert eventually(lambda: len(external.of("on_turn_start")) == 3)
    assert external.hooks()[-7:-1] == ["on_turn_start", "prefetch"] * 3


def test_the_built_in_has_one_name_however_it_spells_its_own() -> None:
    with running(Recorder("Builtin", prefetch="b"), Recorder(prefetch="e")) as manager:
        assert list(manager.health()) == ["builtin", "ext"]
