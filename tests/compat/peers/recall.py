"""Providers that are added and started, the system prompt, and recall."""

from __future__ import annotations

import contextvars
import os

from peers.host import MemoryManager, MemoryProvider, memory_provider
from peers.stage import PATIENCE, Recorder, flushed, raised, scenario

BARE_SKILL = (
    '[IMPORTANT: The user has invoked the "notes" skill, indicating they want you to follow its '
    "instructions. The full skill content is loaded below.]\n\n# Notes\nWrite everything down."
)
SKILL = (
    f"{BARE_SKILL}\n\nThe user has provided the following instruction alongside the skill "
    "invocation: plan my week"
)
BUNDLE = (
    '[IMPORTANT: The user has invoked the "/a /b" stacked skill bundle, with 2 skills.]\n'
    "User instruction: plan my month\n\n[Loaded as part of the bundle: a]\nBody of a."
)


# -- providers -----------------------------------------------------------------------------


@scenario("add_provider")
def a_second_external_provider_is_refused(stage):
    manager = stage.manager(Recorder("one"), Recorder("two"))
    return [each.name for each in manager.providers]


@scenario("add_provider")
def a_refused_provider_gets_no_calls(stage):
    second = Recorder("two")
    manager = stage.manager(Recorder("one"), second)
    manager.prefetch_all("hello there")
    return second.calls


@scenario("add_provider")
def the_builtin_comes_first_in_whatever_order_they_are_added(stage):
    manager = stage.manager(Recorder("ext"), Recorder("builtin"))
    return [each.name for each in manager.providers]


@scenario("add_provider")
def the_builtin_and_one_external_provider(stage):
    manager = stage.manager(Recorder("builtin"), Recorder("ext"))
    return [each.name for each in manager.providers]


@scenario("add_provider")
def a_provider_whose_schemas_raise_is_added(stage):
    provider = Recorder(get_tool_schemas=RuntimeError("no"))
    return raised(lambda: stage.manager(provider))


@scenario("add_provider")
def tools_after_a_provider_whose_schemas_raise(stage):
    manager = stage.manager()
    raised(lambda: manager.add_provider(Recorder(get_tool_schemas=RuntimeError("no"))))
    return [manager.get_all_tool_schemas(), sorted(manager.get_all_tool_names())]


@scenario("providers")
def the_list_of_providers_is_a_copy(stage):
    manager = stage.manager(Recorder())
    manager.providers.clear()
    return len(manager.providers)


@scenario("get_provider")
def a_provider_by_its_name(stage):
    provider = Recorder("ext")
    manager = stage.manager(provider)
    return [manager.get_provider("ext") is provider, manager.get_provider("other")]


@scenario("MemoryManager()")
def the_timeout_of_recall_can_be_a_numeric_string(stage):
    return raised(lambda: MemoryManager(external_prefetch_timeout="2.5"))


@scenario("MemoryManager()")
def a_timeout_of_recall_must_be_positive(stage):
    values = (0, -1, "0", None, 3)
    return [raised(lambda v=value: MemoryManager(external_prefetch_timeout=v)) for value in values]


@scenario("MemoryManager()")
def a_timeout_of_recall_that_is_no_number(stage):
    return raised(lambda: MemoryManager(external_prefetch_timeout="soon"))


@scenario("MemoryManager()")
def a_manager_without_providers_does_nothing(stage):
    manager = stage.manager()
    manager.on_turn_start(1, "hello")
    manager.sync_all("a", "b")
    manager.queue_prefetch_all("a")
    manager.on_session_end([])
    manager.on_memory_write("add", "memory", "x")
    manager.on_delegation("t", "r")
    manager.on_session_switch("s2")
    return [
        manager.build_system_prompt(),
        manager.prefetch_all("a"),
        manager.on_pre_compress([]),
        manager.get_all_tool_schemas(),
        manager.flush_pending(1),
    ]


# -- start ---------------------------------------------------------------------------------


@scenario("initialize_all")
def a_host_s_keywords_reach_initialize(stage):
    provider = Recorder()
    manager = stage.manager(provider, start="")
    given = {"platform": "telegram", "user_id": "u", "agent_context": "primary", "new_thing": 1}
    manager.initialize_all(session_id="s9", **given)
    _, (session,), kwargs = provider.of("initialize")[0]
    return [session, {key: kwargs.get(key) for key in given}]


@scenario("initialize_all")
def a_host_s_callbacks_reach_initialize(stage):
    provider = Recorder()
    manager = stage.manager(provider, start="")
    manager.initialize_all("s9", platform="cli", warning_callback=raised, session_title="Tea")
    kwargs = provider.of("initialize")[0][2]
    return [kwargs["warning_callback"] is raised, kwargs["session_title"]]


@scenario("initialize_all")
def initialize_gets_the_home(stage):
    provider = Recorder()
    stage.manager(provider)
    home = provider.of("initialize")[0][2]["hermes_home"]
    return [type(home).__name__, home == os.environ["HERMES_HOME"]]


@scenario("initialize_all")
def a_home_that_the_host_names_wins(stage):
    provider = Recorder()
    manager = stage.manager(provider, start="")
    named = os.environ["HERMES_HOME"] + "-other"
    manager.initialize_all("s", hermes_home=named)
    return provider.of("initialize")[0][2]["hermes_home"] == named


@scenario("initialize_all")
def keywords_that_the_host_did_not_give(stage):
    provider = Recorder()
    manager = stage.manager(provider, start="")
    manager.initialize_all("s")
    return sorted(set(provider.of("initialize")[0][2]) - {"hermes_home"})


@scenario("initialize_all")
def a_start_that_fails_does_not_keep_the_other_provider_from_starting(stage):
    builtin, ext = Recorder("builtin", initialize=RuntimeError("no")), Recorder()
    error = raised(lambda: stage.manager(builtin, ext))
    return [error, len(ext.of("initialize"))]


@scenario("initialize_all")
def turns_after_a_start_that_failed(stage):
    provider = Recorder(initialize=RuntimeError("no"))
    manager = stage.manager(provider)
    manager.sync_all("a question", "an answer")
    manager.flush_pending(2)
    return provider.order()


@scenario("initialize_all")
def initialize_without_keywords_in_its_signature(stage):
    provider = _Old()
    stage.manager(provider)
    return provider.calls[:1]


# -- the system prompt ---------------------------------------------------------------------


@scenario("build_system_prompt")
def blocks_of_the_prompt_are_joined(stage):
    pair = (Recorder("builtin", system_prompt_block="one"), Recorder(system_prompt_block="two"))
    return stage.manager(*pair).build_system_prompt()


@scenario("build_system_prompt")
def blank_blocks_of_the_prompt_are_left_out(stage):
    found = []
    for value in ("", "  \n", None, {"a": 1}, 5):
        pair = (Recorder("builtin", system_prompt_block="one"), Recorder(system_prompt_block=value))
        found.append(stage.manager(*pair).build_system_prompt())
    return found


@scenario("build_system_prompt")
def a_prompt_that_raises_leaves_the_other(stage):
    broken = Recorder(system_prompt_block=RuntimeError("no"))
    return stage.manager(
        Recorder("builtin", system_prompt_block="one"), broken
    ).build_system_prompt()


# -- recall --------------------------------------------------------------------------------


@scenario("prefetch_all")
def recalled_texts_are_joined(stage):
    pair = (Recorder("builtin", prefetch="one"), Recorder(prefetch="two"))
    return stage.manager(*pair).prefetch_all("what is it?")


@scenario("prefetch_all")
def recall_gets_the_question_and_the_session(stage):
    provider = Recorder(prefetch="x")
    stage.manager(provider).prefetch_all("what is it?", session_id="s7")
    return provider.of("prefetch")


@scenario("prefetch_all")
def recall_without_a_session_id(stage):
    provider = Recorder(prefetch="x")
    stage.manager(provider, start="s1").prefetch_all("what is it?")
    return provider.of("prefetch")


def _asked(stage, query):
    provider = Recorder(prefetch="x")
    answer = stage.manager(provider).prefetch_all(query)
    return [answer, provider.of("prefetch")[:1] and provider.of("prefetch")[0][1]]


@scenario("prefetch_all")
def no_recall_for_an_empty_question(stage):
    return _asked(stage, "")


@scenario("prefetch_all")
def no_recall_for_none(stage):
    return _asked(stage, None)


@scenario("prefetch_all")
def no_recall_for_a_blank_question(stage):
    return _asked(stage, " \n\t ")


@scenario("prefetch_all")
def no_recall_for_content_parts(stage):
    return _asked(stage, [{"type": "text", "text": "hello"}])


@scenario("prefetch_all")
def recall_for_a_skill_is_for_the_user_s_instruction(stage):
    return _asked(stage, SKILL)


@scenario("prefetch_all")
def recall_for_a_bundle_is_for_the_user_s_instruction(stage):
    return _asked(stage, BUNDLE)


@scenario("prefetch_all")
def no_recall_for_a_bare_skill(stage):
    return _asked(stage, BARE_SKILL)


@scenario("prefetch_all")
def a_note_of_the_runtime_is_no_part_of_the_instruction(stage):
    return _asked(stage, f"{SKILL}\n\n[Runtime note: it is late]")


@scenario("prefetch_all")
def a_trivial_prompt_is_the_host_s_decision(stage):
    return [_asked(stage, text) for text in ("ok", "/new", "thanks!")]


@scenario("prefetch_all")
def recall_that_raises(stage):
    broken = Recorder(prefetch=RuntimeError("no"))
    return stage.manager(Recorder("builtin", prefetch="one"), broken).prefetch_all("hello there")


@scenario("prefetch_all")
def recall_that_is_no_text(stage):
    values = (None, "", "  ", 5, {"a": 1}, ["x"])
    return [stage.manager(Recorder(prefetch=each)).prefetch_all("hello there") for each in values]


@scenario("prefetch_all")
def recall_of_a_provider_without_session_id(stage):
    provider = _Old()
    return stage.manager(provider).prefetch_all("hello there", session_id="s1")


@scenario("prefetch_all")
def recall_that_is_too_slow_is_left_out(stage):
    gate = stage.gate()
    slow = Recorder(prefetch=lambda *_, **__: gate.wait(PATIENCE) and "late")
    pair = (Recorder("builtin", prefetch="one"), slow)
    manager = stage.manager(*pair, external_prefetch_timeout=0.1)
    return [manager.prefetch_all("hello there"), manager.prefetch_all("and now")]


@scenario("prefetch_all")
def an_answer_that_came_too_late(stage):
    gate, done = stage.gate(), stage.gate()

    def answer(query, **_):
        if query == "the first":
            gate.wait(PATIENCE)
            done.set()
            return "late"
        return "on time"

    manager = stage.manager(Recorder(prefetch=answer), external_prefetch_timeout=0.1)
    first = manager.prefetch_all("the first")
    gate.set()
    done.wait(PATIENCE)
    found = ""
    while "on time" not in found:  # the thread of the first may still be ending
        found = manager.prefetch_all("the second")
    return [first, "late" in found]


_HOST = contextvars.ContextVar("_HOST", default="unset")


@scenario("prefetch_all")
def recall_sees_the_host_s_context_variables(stage):
    provider = Recorder(prefetch=lambda *_, **__: _HOST.get())
    manager = stage.manager(provider)
    token = _HOST.set("profile")
    try:
        return manager.prefetch_all("hello there")
    finally:
        _HOST.reset(token)


# -- what was recalled ---------------------------------------------------------------------


def _described(stage, *statuses):
    names = ("builtin", "ext")
    providers = [
        Recorder(name, prefetch="x", recall_status=each)
        for name, each in zip(names[-len(statuses) :], statuses, strict=True)
    ]
    manager = stage.manager(*providers)
    manager.prefetch_all("hello there")
    return manager.describe_recall()


@scenario("describe_recall")
def nothing_recalled(stage):
    return _described(stage, None)


@scenario("describe_recall")
def memories_recalled(stage):
    status = memory_provider.RecallStatus
    return [_described(stage, status("Ext", count)) for count in (0, 1, 2, 30, -1)]


@scenario("describe_recall")
def a_provider_s_own_glyph(stage):
    return _described(stage, memory_provider.RecallStatus("Ext", 2, "*"))


@scenario("describe_recall")
def two_providers_recalled(stage):
    status = memory_provider.RecallStatus
    return _described(stage, status("Notes", 1), status("Ext", 2))


@scenario("describe_recall")
def a_status_that_raises(stage):
    return _described(stage, memory_provider.RecallStatus("Notes", 1), RuntimeError("no"))


@scenario("describe_recall")
def the_status_of_a_turn_without_recall(stage):
    status = memory_provider.RecallStatus("Ext", 2)
    manager = stage.manager(Recorder(prefetch="x", recall_status=status))
    manager.prefetch_all("hello there")
    manager.prefetch_all("")
    return manager.describe_recall()


@scenario("RecallStatus")
def the_default_of_a_status(stage):
    status = memory_provider.RecallStatus("Ext", 2)
    same = status == memory_provider.RecallStatus("Ext", 2)
    return [status.provider_label, status.count, status.glyph, same]


@scenario("RecallStatus")
def a_status_can_not_be_changed(stage):
    status = memory_provider.RecallStatus("Ext", 2)
    return bool(raised(lambda: setattr(status, "count", 3)))


# -- recall for the next turn --------------------------------------------------------------


def _queued(stage, query):
    provider = Recorder()
    manager = stage.manager(provider)
    manager.queue_prefetch_all(query, session_id="s1")
    flushed(manager)
    return provider.of("queue_prefetch")


@scenario("queue_prefetch_all")
def the_next_recall_is_queued(stage):
    return _queued(stage, "hello there")


@scenario("queue_prefetch_all")
def nothing_is_queued_for_no_question(stage):
    return [_queued(stage, ""), _queued(stage, None)]


@scenario("queue_prefetch_all")
def nothing_is_queued_for_a_blank_question(stage):
    return _queued(stage, " \n ")


@scenario("queue_prefetch_all")
def the_instruction_of_a_skill_is_queued(stage):
    return [_queued(stage, SKILL), _queued(stage, BUNDLE), _queued(stage, BARE_SKILL)]


@scenario("queue_prefetch_all")
def a_queue_that_raises_does_not_stop_the_next(stage):
    pair = (Recorder("builtin", queue_prefetch=RuntimeError("no")), Recorder())
    manager = stage.manager(*pair)
    manager.queue_prefetch_all("hello there")
    flushed(manager)
    return len(pair[1].of("queue_prefetch"))


@scenario("queue_prefetch_all")
def queueing_of_a_provider_without_session_id(stage):
    provider = _Old()
    manager = stage.manager(provider)
    manager.queue_prefetch_all("hello there", session_id="s1")
    flushed(manager)
    return [each for each in provider.calls if each[0] == "queue_prefetch"]


class _Old(MemoryProvider):
    """Signatures of before session ids and keywords."""

    name = "old"

    def __init__(self):
        self.calls = []

    def is_available(self):
        return True

    def initialize(self, session_id):
        self.calls.append(["initialize", session_id])

    def get_tool_schemas(self):
        return []

    def prefetch(self, query):
        return f"recalled for {query}"

    def queue_prefetch(self, query):
        self.calls.append(["queue_prefetch", query])
