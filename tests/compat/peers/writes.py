"""Turns, notes and delegations on their way to a provider."""

from __future__ import annotations

import contextvars
import json

from peers.recall import BARE_SKILL, BUNDLE, SKILL
from peers.stage import PATIENCE, Recorder, flushed, raised, scenario

MESSAGES = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": "yes"}]


def _synced(stage, *args, provider=None, **kwargs):
    provider = provider or Recorder()
    manager = stage.manager(provider)
    manager.sync_all(*args, **kwargs)
    flushed(manager)
    return provider.of("sync_turn")


# -- turns ---------------------------------------------------------------------------------


@scenario("sync_all")
def a_turn_arrives(stage):
    return _synced(stage, "a question", "an answer", session_id="s1")


@scenario("sync_all")
def a_turn_with_messages_arrives(stage):
    return _synced(stage, "a question", "an answer", session_id="s1", messages=MESSAGES)


@scenario("sync_all")
def a_turn_without_a_session_id(stage):
    return _synced(stage, "a question", "an answer")


@scenario("sync_all")
def turns_arrive_in_order(stage):
    provider = Recorder()
    manager = stage.manager(provider)
    for number in range(8):
        manager.sync_all(f"question {number}", "an answer")
    flushed(manager)
    return [each[1][0] for each in provider.of("sync_turn")]


@scenario("sync_all")
def both_providers_get_a_turn(stage):
    pair = (Recorder("builtin"), Recorder())
    manager = stage.manager(*pair)
    manager.sync_all("a question", "an answer")
    flushed(manager)
    return [len(each.of("sync_turn")) for each in pair]


@scenario("sync_all")
def turns_without_words_of_the_user(stage):
    return [_synced(stage, user, "an answer") for user in ("", None)]


@scenario("sync_all")
def a_turn_with_blank_words_of_the_user(stage):
    return len(_synced(stage, " \n ", "an answer"))


@scenario("sync_all")
def a_turn_without_an_answer(stage):
    return len(_synced(stage, "a question", ""))


@scenario("sync_all")
def a_turn_of_content_parts(stage):
    return len(_synced(stage, [{"type": "text", "text": "hello"}], "an answer"))


@scenario("sync_all")
def of_a_skill_the_user_s_instruction_is_synced(stage):
    return [each[1] for text in (SKILL, BUNDLE) for each in _synced(stage, text, "an answer")]


@scenario("sync_all")
def a_bare_skill_is_not_synced(stage):
    return _synced(stage, BARE_SKILL, "an answer")


@scenario("sync_all")
def of_a_skill_the_note_of_the_runtime_is_left_out(stage):
    text = f"{SKILL}\n\n[Runtime note: it is late]"
    return [each[1] for each in _synced(stage, text, "an answer")]


@scenario("sync_all")
def a_message_that_only_quotes_a_skill(stage):
    text = f"What does this mean? {BARE_SKILL}"
    return [each[1][0] == text for each in _synced(stage, text, "an answer")]


@scenario("sync_all")
def a_skill_in_the_messages_of_a_turn(stage):
    messages = [{"role": "user", "content": SKILL}, {"role": "assistant", "content": "yes"}]
    (call,) = _synced(stage, SKILL, "an answer", messages=messages)
    return call[2]["messages"][0]["content"] == SKILL


class _NoMessages(Recorder):
    def sync_turn(self, user_content, assistant_content, *, session_id=""):
        self._note("sync_turn", user_content, assistant_content, session_id=session_id)


class _NoSession(Recorder):
    def sync_turn(self, user_content, assistant_content):
        self._note("sync_turn", user_content, assistant_content)


class _WithAuthor(Recorder):
    def sync_turn(self, user_content, assistant_content, *, session_id="", turn_author=None):
        self._note("sync_turn", user_content, assistant_content, turn_author=turn_author)


@scenario("sync_all")
def a_provider_without_messages_gets_the_turn(stage):
    return _synced(
        stage, "a question", "an answer", provider=_NoMessages(), session_id="s1", messages=MESSAGES
    )


@scenario("sync_all")
def a_provider_without_session_id_gets_the_turn(stage):
    return _synced(stage, "a question", "an answer", provider=_NoSession(), session_id="s1")


AUTHOR = {"id": "u1", "name": "Ann", "is_bot": False}


@scenario("sync_all")
def the_author_of_a_turn(stage):
    return _synced(stage, "a question", "an answer", provider=_WithAuthor(), turn_author=AUTHOR)


@scenario("sync_all")
def the_author_of_a_turn_for_a_provider_that_takes_none(stage):
    found = _synced(stage, "a question", "an answer", provider=_NoMessages(), turn_author=AUTHOR)
    return [each[1] for each in found]


@scenario("sync_all")
def a_turn_that_fails_once(stage):
    stored, failed = [], []

    def store(user, *_, **__):
        if not failed:
            failed.append(user)
            raise RuntimeError("no")
        stored.append(user)

    manager = stage.manager(Recorder(sync_turn=store))
    manager.sync_all("turn 1", "an answer")
    manager.sync_all("turn 2", "an answer")
    flushed(manager)
    return sorted(stored)


@scenario("sync_all")
def a_slow_provider_does_not_hold_up_the_host(stage):
    gate = stage.gate()
    provider = Recorder(sync_turn=lambda *_, **__: gate.wait(PATIENCE))
    manager = stage.manager(provider)
    manager.sync_all("a question", "an answer")
    manager.sync_all("another", "an answer")
    before = gate.is_set()
    gate.set()
    flushed(manager)
    return [before, [each[1][0] for each in provider.of("sync_turn")]]


@scenario("sync_all")
def messages_that_the_host_changes_afterwards(stage):
    gate = stage.gate()
    seen = []

    def store(*_, messages=None, **__):
        gate.wait(PATIENCE)
        seen.append([dict(each) for each in messages])

    manager, messages = stage.manager(Recorder(sync_turn=store)), [dict(MESSAGES[0])]
    manager.sync_all("a question", "an answer", messages=messages)
    messages[0]["content"] = "changed"
    messages.append({"role": "user", "content": "more"})
    gate.set()
    flushed(manager)
    return seen


@scenario("sync_all")
def a_turn_before_initialize(stage):
    provider = Recorder()
    manager = stage.manager(provider, start="")
    manager.sync_all("a question", "an answer", session_id="s1")
    manager.flush_pending(PATIENCE)
    return [each[1] for each in provider.of("sync_turn")]


@scenario("sync_all")
def a_turn_after_shutdown(stage):
    provider = Recorder()
    manager = stage.manager(provider)
    manager.shutdown_all()
    manager.sync_all("a question", "an answer")
    manager.flush_pending(0.2)
    return provider.of("sync_turn")


_HOST = contextvars.ContextVar("_HOST", default="unset")


@scenario("sync_all")
def a_turn_sees_the_host_s_context_variables(stage):
    seen = []
    manager = stage.manager(Recorder(sync_turn=lambda *_, **__: seen.append(_HOST.get())))
    token = _HOST.set("profile")
    try:
        manager.sync_all("a question", "an answer")
        flushed(manager)
    finally:
        _HOST.reset(token)
    return seen


@scenario("sync_all")
def a_secret_in_a_turn(stage):
    key = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    return key in json.dumps(_synced(stage, f"my key is {key}", "an answer"))


@scenario("flush_pending")
def flushing_with_nothing_to_do(stage):
    return [stage.manager(Recorder()).flush_pending(1), stage.manager().flush_pending()]


@scenario("flush_pending")
def flushing_gives_up_in_time(stage):
    gate = stage.gate()
    provider = Recorder(sync_turn=lambda *_, **__: gate.wait(PATIENCE))
    manager = stage.manager(provider)
    manager.sync_all("a question", "an answer")
    before = manager.flush_pending(0.1)
    gate.set()
    return [before, manager.flush_pending(timeout=PATIENCE)]


# -- notes ---------------------------------------------------------------------------------


def _mirrored(stage, *args, provider=None, **kwargs):
    provider = provider or Recorder()
    manager = stage.manager(provider)
    manager.on_memory_write(*args, **kwargs)
    flushed(manager)
    return provider.of("on_memory_write")


class _ThreeArguments(Recorder):
    def on_memory_write(self, action, target, content):
        self._note("on_memory_write", action, target, content)


class _FourArguments(Recorder):
    def on_memory_write(self, action, target, content, provenance):
        self._note("on_memory_write", action, target, content, provenance)


class _Keywords(Recorder):
    def on_memory_write(self, action, target, content, **kwargs):
        self._note("on_memory_write", action, target, content, **kwargs)


@scenario("on_memory_write")
def a_note_without_metadata(stage):
    return _mirrored(stage, "add", "memory", "likes tea")


@scenario("on_memory_write")
def a_note_with_metadata(stage):
    facts = {"session_id": "s1", "write_origin": "assistant_tool", "task_id": "t", "odd": [1]}
    return _mirrored(stage, "replace", "user", "likes tea", metadata=facts)


@scenario("on_memory_write")
def a_note_for_three_arguments(stage):
    return _mirrored(stage, "add", "memory", "x", {"a": 1}, provider=_ThreeArguments())


@scenario("on_memory_write")
def a_note_for_four_arguments_of_other_names(stage):
    return _mirrored(stage, "add", "memory", "x", {"a": 1}, provider=_FourArguments())


@scenario("on_memory_write")
def a_note_for_keywords(stage):
    return _mirrored(stage, "add", "memory", "x", {"a": 1}, provider=_Keywords())


@scenario("on_memory_write")
def the_builtin_is_not_told_of_notes(stage):
    pair = (Recorder("builtin"), Recorder())
    manager = stage.manager(*pair)
    manager.on_memory_write("add", "memory", "x")
    flushed(manager)
    return [len(each.of("on_memory_write")) for each in pair]


@scenario("on_memory_write")
def a_note_that_raises_does_not_stop_the_turns(stage):
    provider = Recorder(on_memory_write=KeyError("no"))
    manager = stage.manager(provider)
    manager.on_memory_write("add", "memory", "x")
    for number in range(3):
        manager.sync_all(f"question {number}", "an answer")
    wanted = 3
    for _ in range(60):
        manager.flush_pending(0.5)
        if len(provider.of("sync_turn")) >= wanted:
            break
    return [each[1][0] for each in provider.of("sync_turn")]


DONE = {"success": True, "message": "Entry added."}


def _notified(stage, result, args, **kwargs):
    provider = Recorder()
    manager = stage.manager(provider)
    manager.notify_memory_tool_write(result, args, **kwargs)
    flushed(manager)
    return [each[1] for each in provider.of("on_memory_write")]


@scenario("notify_memory_tool_write")
def a_tool_s_note_is_mirrored(stage):
    args = {"action": "add", "target": "user", "content": "likes tea"}
    return _notified(stage, json.dumps(DONE), args)


@scenario("notify_memory_tool_write")
def a_tool_s_result_may_be_a_dict(stage):
    return _notified(stage, DONE, {"action": "add", "target": "memory", "content": "x"})


@scenario("notify_memory_tool_write")
def a_note_without_a_target_is_memory(stage):
    args = [{"action": "add", "content": "x"}, {"action": "add", "content": "x", "target": None}]
    return [_notified(stage, DONE, each) for each in args]


@scenario("notify_memory_tool_write")
def a_replaced_note_names_its_old_text(stage):
    args = {"action": "replace", "target": "memory", "content": "new", "old_text": "old"}
    return _notified(stage, DONE, args)


@scenario("notify_memory_tool_write")
def a_removed_note_has_no_content(stage):
    return _notified(stage, DONE, {"action": "remove", "target": "memory", "old_text": "old"})


BATCH = {
    "target": "memory",
    "operations": [
        {"action": "remove", "old_text": "stale"},
        {"action": "add", "content": "new"},
        "not an operation",
        {"action": "read"},
        {"action": "replace", "old_text": "tea", "content": "likes coffee"},
    ],
}


@scenario("notify_memory_tool_write")
def a_batch_is_mirrored_one_by_one(stage):
    return _notified(stage, DONE, BATCH)


@scenario("notify_memory_tool_write")
def an_empty_batch_is_a_single_note(stage):
    args = {"action": "add", "content": "x", "operations": []}
    return _notified(stage, DONE, args)


@scenario("notify_memory_tool_write")
def what_was_not_written_is_not_mirrored(stage):
    args = {"action": "add", "target": "memory", "content": "x"}
    results = (
        {"success": False, "error": "full"},
        {"success": True, "staged": True, "pending_id": "p1"},
        {"message": "no success"},
        {"success": "yes"},
        "no JSON",
        "[]",
        None,
        5,
    )
    return [_notified(stage, each, args) for each in results]


@scenario("notify_memory_tool_write")
def other_actions_are_not_mirrored(stage):
    return [_notified(stage, DONE, {"action": each}) for each in ("read", "list", "", None)]


@scenario("notify_memory_tool_write")
def metadata_is_built_for_every_note(stage):
    built = []

    def build():
        built.append(1)
        return {"session_id": "s1", "number": len(built)}

    return [_notified(stage, DONE, BATCH, build_metadata=build), len(built)]


@scenario("notify_memory_tool_write")
def metadata_that_can_not_be_built(stage):
    def build():
        raise RuntimeError("no")

    args = {"action": "add", "target": "memory", "content": "x"}
    return _notified(stage, DONE, args, build_metadata=build)


@scenario("notify_memory_tool_write")
def the_entry_that_was_replaced(stage):
    args = {"action": "replace", "target": "memory", "content": "new", "old_text": "ol"}
    return _notified(stage, {**DONE, "replaced_entry": "the old entry"}, args)


@scenario("notify_memory_tool_write")
def the_entry_that_was_removed(stage):
    args = {"action": "remove", "target": "memory", "old_text": "ol"}
    return _notified(stage, {**DONE, "removed_entry": "the old entry"}, args)


@scenario("notify_memory_tool_write")
def the_entries_behind_a_batch(stage):
    batch = {
        "target": "memory",
        "operations": [
            {"action": "remove", "old_text": "stale"},
            {"action": "add", "content": "new"},
            {"action": "replace", "old_text": "tea", "content": "likes coffee"},
        ],
    }
    result = {**DONE, "removed_entries": {"1": "a stale one"}, "replaced_entries": {3: "likes tea"}}
    return _notified(stage, result, batch)


@scenario("notify_memory_tool_write")
def the_new_text_of_a_replaced_note(stage):
    args = {"action": "replace", "target": "memory", "new_text": "new", "old_text": "old"}
    return _notified(stage, DONE, args)


# -- delegations ---------------------------------------------------------------------------


class _TwoArguments(Recorder):
    def on_delegation(self, task, result):
        self._note("on_delegation", task, result)


def _delegated(stage, provider, **kwargs):
    manager = stage.manager(provider)
    manager.on_delegation("count sheep", "forty", **kwargs)
    flushed(manager)
    return provider.of("on_delegation")


@scenario("on_delegation")
def a_delegation_arrives(stage):
    return _delegated(stage, Recorder(), child_session_id="c1", model="m")


@scenario("on_delegation")
def a_delegation_without_a_child(stage):
    return _delegated(stage, Recorder())


@scenario("on_delegation")
def a_delegation_for_two_arguments(stage):
    return _delegated(stage, _TwoArguments(), child_session_id="c1")


@scenario("on_delegation")
def a_delegation_that_raises(stage):
    provider = Recorder(on_delegation=RuntimeError("no"))
    manager = stage.manager(provider)
    error = raised(lambda: manager.on_delegation("count sheep", "forty"))
    manager.flush_pending(0.2)
    return error
