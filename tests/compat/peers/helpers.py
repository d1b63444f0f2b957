"""What stands beside the manager: the provider's class, and rules for prompts."""

from __future__ import annotations

from peers.host import MemoryProvider, memory_provider
from peers.stage import raised, scenario

PROMPTS = (
    *("", "  ", None, "/new", " /help me", "yes", "No.", "OK!!", "thanks :)", "thank you", "k"),
    *("hi", "hey.", "HELLO", "yo", "sup?", "continue", "go ahead", "do it", "got it", "lgtm"),
    *("done???", "next", "cool\u2026", "nice \u2014", "great!)", "nah", "y", "n", "yep~", "sure,"),
    *(
        "k8s",
        "yolo",
        "note",
        "hindsight",
        "yes please",
        "no way",
        "okapi",
        "hi there",
        "thanks a lot",
    ),
    *(
        "what is it?",
        "yes, but why?",
        "1",
        "ok 2",
        "next week",
        "doing it",
        "\u00fcber",
        "ok \U0001f44d",
    ),
)


@scenario("is_trivial_prompt")
def prompts_that_say_nothing(stage):
    return [memory_provider.is_trivial_prompt(each) for each in PROMPTS]


@scenario("TRIVIAL_PROMPT_RE")
def prompts_by_the_expression(stage):
    expression = memory_provider.TRIVIAL_PROMPT_RE
    return [bool(expression.match(each)) for each in PROMPTS if isinstance(each, str)]


@scenario("INDICATOR_GLYPH")
def the_glyph(stage):
    return memory_provider.INDICATOR_GLYPH


class _Least(MemoryProvider):
    name = "least"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        pass

    def get_tool_schemas(self):
        return []


@scenario("MemoryProvider")
def what_a_provider_must_have(stage):
    return sorted(MemoryProvider.__abstractmethods__)


@scenario("MemoryProvider")
def a_provider_without_it_can_not_be_made(stage):
    return raised(type("Bad", (MemoryProvider,), {}))


@scenario("MemoryProvider")
def what_the_least_provider_answers(stage):
    provider = _Least()
    return [
        provider.system_prompt_block(),
        provider.prefetch("q", session_id="s"),
        provider.queue_prefetch("q", session_id="s"),
        provider.sync_turn("u", "a", session_id="s", messages=[]),
        provider.on_turn_start(1, "m", model="x"),
        provider.on_session_end([]),
        provider.on_session_switch("s2", parent_session_id="s", reset=True, rewound=True, odd=1),
        provider.on_pre_compress([]),
        provider.on_memory_write("add", "memory", "x"),
        provider.on_memory_write("add", "memory", "x", metadata={}),
        provider.on_delegation("t", "r", child_session_id="c", odd=1),
        provider.get_config_schema(),
        provider.save_config({}, "/nowhere"),
        provider.backup_paths(),
        provider.shutdown(),
    ]


@scenario("MemoryProvider")
def what_the_least_provider_answers_since_0_20(stage):
    provider = _Least()
    return [provider.recall_status(), provider.unavailable_reason()]


@scenario("MemoryProvider.handle_tool_call")
def the_tools_of_the_least_provider(stage):
    return raised(lambda: _Least().handle_tool_call("x", {}))


@scenario("MemoryProvider")
def a_whole_turn_of_the_least_provider(stage):
    manager = stage.manager(_Least())
    manager.on_turn_start(1, "hello")
    found = [manager.build_system_prompt(), manager.prefetch_all("hello there")]
    manager.sync_all("a question", "an answer")
    manager.queue_prefetch_all("a question")
    manager.on_session_end([])
    return [*found, manager.flush_pending(20)]
