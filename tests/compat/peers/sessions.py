"""Turns that begin, sessions that end and change, compression, and the end."""

from __future__ import annotations

from peers.host import quick_shutdown
from peers.recall import SKILL
from peers.stage import PATIENCE, Recorder, flushed, raised, scenario

MESSAGES = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": "yes"}]


class _PlainTurnStart(Recorder):
    def on_turn_start(self, turn_number, message):
        self._note("on_turn_start", turn_number, message)


def _begun(stage, provider, *args, **kwargs):
    manager = stage.manager(provider)
    manager.on_turn_start(*args, **kwargs)
    flushed(manager)
    return provider.of("on_turn_start")


@scenario("on_turn_start")
def a_turn_begins(stage):
    facts = {"remaining_tokens": 10, "model": "m", "platform": "cli", "tool_count": 3}
    return _begun(stage, Recorder(), 4, "hello", **facts)


@scenario("on_turn_start")
def a_turn_begins_with_its_author(stage):
    facts = {"author_id": "u1", "author_name": "Ann", "author_is_bot": False}
    return _begun(stage, Recorder(), 1, "hello", **facts)


@scenario("on_turn_start")
def a_turn_begins_with_a_skill(stage):
    return _begun(stage, Recorder(), 1, SKILL)[0][1][1] == SKILL


@scenario("on_turn_start")
def a_turn_begins_for_two_arguments(stage):
    return _begun(stage, _PlainTurnStart(), 1, "hello", model="m")


@scenario("on_turn_start")
def the_start_of_a_turn_raises(stage):
    provider = Recorder(on_turn_start=RuntimeError("no"), prefetch="x")
    manager = stage.manager(provider)
    manager.on_turn_start(1, "hello")
    return manager.prefetch_all("hello there")


@scenario("on_turn_start")
def a_turn_starts_before_its_recall(stage):
    provider = Recorder(prefetch="x")
    manager = stage.manager(provider)
    for number in range(3):
        manager.on_turn_start(number, "hello")
        manager.prefetch_all("hello there")
    return provider.order()


# -- sessions ------------------------------------------------------------------------------


def _ended(stage, provider, messages):
    manager = stage.manager(provider)
    manager.on_session_end(messages)
    flushed(manager)
    return provider.of("on_session_end")


@scenario("on_session_end")
def a_session_ends(stage):
    return _ended(stage, Recorder(), MESSAGES)


@scenario("on_session_end")
def a_session_ends_without_messages(stage):
    return _ended(stage, Recorder(), [])


@scenario("on_session_end")
def an_end_that_raises(stage):
    provider = Recorder(on_session_end=RuntimeError("no"))
    manager = stage.manager(provider)
    error = raised(lambda: manager.on_session_end(MESSAGES))
    manager.flush_pending(0.2)
    return error


@scenario("on_session_end")
def the_end_of_a_session_comes_after_its_turns(stage):
    gate, done = stage.gate(), []

    def store(*_, **__):
        gate.wait(PATIENCE)
        done.append("sync_turn")

    provider = Recorder(sync_turn=store, on_session_end=lambda *_: done.append("on_session_end"))
    manager = stage.manager(provider)
    manager.sync_all("a question", "an answer")
    manager.on_session_end(MESSAGES)
    gate.set()
    flushed(manager)
    return done


class _PlainSwitch(Recorder):
    def on_session_switch(self, new_session_id):
        self._note("on_session_switch", new_session_id)


def _switched(stage, *args, provider=None, **kwargs):
    provider = provider or Recorder()
    manager = stage.manager(provider)
    manager.on_session_switch(*args, **kwargs)
    flushed(manager)
    return provider.of("on_session_switch")


@scenario("on_session_switch")
def a_session_changes(stage):
    return _switched(stage, "s2")


@scenario("on_session_switch")
def a_session_changes_with_all_that_is_known(stage):
    return _switched(stage, "s2", parent_session_id="s1", reset=True, reason="compression", odd=1)


@scenario("on_session_switch")
def a_session_is_rewound(stage):
    return _switched(stage, "s1", parent_session_id="s1", rewound=True)


@scenario("on_session_switch")
def a_session_is_expressly_not_rewound(stage):
    return _switched(stage, "s1", rewound=False)


@scenario("on_session_switch")
def a_change_to_no_session(stage):
    return [_switched(stage, ""), _switched(stage, None)]


@scenario("on_session_switch")
def a_change_for_one_argument(stage):
    return _switched(stage, "s2", reset=True, provider=_PlainSwitch())


@scenario("on_session_switch")
def a_change_that_raises(stage):
    pair = (Recorder("builtin", on_session_switch=RuntimeError("no")), Recorder())
    manager = stage.manager(*pair)
    error = raised(lambda: manager.on_session_switch("s2"))
    flushed(manager)
    return [error, len(pair[1].of("on_session_switch"))]


@scenario("on_session_switch")
def turns_around_a_change_of_session(stage):
    provider = Recorder()
    manager = stage.manager(provider)
    manager.sync_all("before", "an answer", session_id="s1")
    flushed(manager)
    manager.on_session_switch("s2", parent_session_id="s1")
    manager.sync_all("after", "an answer", session_id="s2")
    flushed(manager)
    return [
        [hook, args[0], kwargs.get("session_id")]
        for hook, args, kwargs in provider.of("sync_turn", "on_session_switch")
    ]


def _committed(stage, provider, messages=MESSAGES, **kwargs):
    manager = stage.manager(provider)
    manager.commit_session_boundary_async(messages, new_session_id="s2", **kwargs)
    flushed(manager)
    return provider.of("on_session_end", "on_session_switch")


@scenario("commit_session_boundary_async")
def the_end_then_the_change(stage):
    return _committed(stage, Recorder())


@scenario("commit_session_boundary_async")
def the_end_then_the_change_with_all_that_is_known(stage):
    return _committed(stage, Recorder(), parent_session_id="s1", reason="new")


@scenario("commit_session_boundary_async")
def a_boundary_without_messages(stage):
    return [_committed(stage, Recorder(), []), _committed(stage, Recorder(), None)]


@scenario("commit_session_boundary_async")
def the_change_comes_after_an_end_that_raises(stage):
    provider = Recorder(on_session_end=RuntimeError("no"))
    manager = stage.manager(provider)
    manager.commit_session_boundary_async(MESSAGES, new_session_id="s2")
    for _ in range(60):
        manager.flush_pending(0.5)
        if provider.of("on_session_switch"):
            break
    return [each[1] for each in provider.of("on_session_switch")]


@scenario("commit_session_boundary_async")
def a_boundary_does_not_hold_up_the_host(stage):
    gate = stage.gate()
    provider = Recorder(on_session_end=lambda *_: gate.wait(PATIENCE))
    manager = stage.manager(provider)
    manager.commit_session_boundary_async(MESSAGES, new_session_id="s2", parent_session_id="s1")
    before = gate.is_set()
    gate.set()
    flushed(manager)
    return [before, provider.order()]


@scenario("commit_session_boundary_async")
def a_boundary_keeps_its_place_among_the_turns(stage):
    provider = Recorder()
    manager = stage.manager(provider)
    manager.sync_all("before", "an answer", session_id="s1")
    manager.commit_session_boundary_async(MESSAGES, new_session_id="s2", parent_session_id="s1")
    manager.sync_all("after", "an answer", session_id="s2")
    flushed(manager)
    return [
        [hook, args[0], kwargs.get("session_id")]
        for hook, args, kwargs in provider.calls
        if hook in ("sync_turn", "on_session_switch", "on_session_end")
    ]


@scenario("commit_session_boundary_async")
def a_boundary_without_providers(stage):
    return raised(lambda: stage.manager().commit_session_boundary_async([], new_session_id="s2"))


# -- compression ---------------------------------------------------------------------------


class _PlainCompress(Recorder):
    def on_pre_compress(self, messages):
        return self._note("on_pre_compress", messages)


class _Checkpoint(Recorder):
    pre_compress_checkpoint_api_version = 2

    def on_pre_compress(self, messages, **kwargs):
        return self._note("on_pre_compress", messages, **kwargs)


def _compressed(stage, *providers, **kwargs):
    answer = stage.manager(*providers).on_pre_compress(MESSAGES, **kwargs)
    return [answer, [each.of("on_pre_compress") for each in providers]]


@scenario("on_pre_compress")
def texts_for_the_summary_are_joined(stage):
    pair = (_PlainCompress("builtin", on_pre_compress="one"), _PlainCompress(on_pre_compress="two"))
    return _compressed(stage, *pair)


@scenario("on_pre_compress")
def no_text_for_the_summary(stage):
    values = (None, "", "  ", 5)
    return [_compressed(stage, _PlainCompress(on_pre_compress=each))[0] for each in values]


@scenario("on_pre_compress")
def compression_of_a_provider_that_raises(stage):
    pair = (
        Recorder("builtin", on_pre_compress="one"),
        Recorder(on_pre_compress=RuntimeError("no")),
    )
    return _compressed(stage, *pair)[0]


@scenario("on_pre_compress")
def a_checkpoint_that_is_required(stage):
    return _compressed(stage, _Checkpoint(on_pre_compress="done"), require_checkpoint=True)[0]


@scenario("on_pre_compress")
def a_checkpoint_that_is_required_and_fails(stage):
    broken = _Checkpoint(on_pre_compress=RuntimeError("no"))
    return bool(raised(lambda: _compressed(stage, broken, require_checkpoint=True)))


@scenario("on_pre_compress")
def evidence_for_a_checkpoint(stage):
    evidence = [{"role": "tool", "content": "raw"}, *MESSAGES]
    seen = _compressed(stage, _Checkpoint(on_pre_compress="done"), evidence_messages=evidence)
    return [call[1] for call in seen[1][0]]


@scenario("on_pre_compress")
def a_checkpoint_of_what_was_said(stage):
    provider = _Checkpoint(on_pre_compress="done")
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1"}]}
    tool = {"role": "tool", "content": "raw", "tool_call_id": "c1"}
    stage.manager(provider).on_pre_compress([*MESSAGES, call, tool])
    return [each["role"] for each in provider.of("on_pre_compress")[0][1][0]]


@scenario("supports_pre_compress_checkpoint")
def who_makes_checkpoints(stage):
    managers = [stage.manager(_Checkpoint()), stage.manager(Recorder()), stage.manager()]
    return [each.supports_pre_compress_checkpoint() for each in managers]


# -- the end -------------------------------------------------------------------------------


@scenario("shutdown_all")
def providers_are_shut_down_in_reverse(stage):
    ended = []
    names = ("builtin", "ext")
    providers = [Recorder(name, shutdown=lambda n=name: ended.append(n)) for name in names]
    stage.manager(*providers).shutdown_all()
    return list(ended)


@scenario("shutdown_all")
def a_shutdown_that_raises_does_not_keep_the_other_from_it(stage):
    pair = (Recorder("builtin"), Recorder(shutdown=RuntimeError("no")))
    manager = stage.manager(*pair)
    return [raised(manager.shutdown_all), len(pair[0].of("shutdown"))]


@scenario("shutdown_all")
def a_second_shutdown(stage):
    provider = Recorder()
    manager = stage.manager(provider)
    manager.shutdown_all()
    manager.shutdown_all()
    return len(provider.of("shutdown"))


@scenario("shutdown_all")
def what_waits_is_delivered_before_the_shutdown(stage):
    provider = Recorder()
    manager = stage.manager(provider)
    for number in range(5):
        manager.sync_all(f"question {number}", "an answer")
    manager.shutdown_all()
    return [each[0] for each in provider.calls if each[0] in ("sync_turn", "shutdown")]


@scenario("shutdown_drain_state")
def the_state_before_a_shutdown(stage):
    return stage.manager(Recorder()).shutdown_drain_state


@scenario("shutdown_drain_state")
def the_state_after_a_shutdown(stage):
    manager = stage.manager(Recorder())
    manager.sync_all("a question", "an answer")
    manager.shutdown_all()
    return manager.shutdown_drain_state


@scenario("shutdown_drain_state")
def the_state_after_a_shutdown_without_work(stage):
    manager = stage.manager(Recorder())
    manager.shutdown_all()
    return manager.shutdown_drain_state


@scenario("shutdown_drain_state")
def the_state_after_a_shutdown_that_ran_out_of_time(stage):
    gate, began = stage.gate(), stage.gate()
    stuck = Recorder(sync_turn=lambda *_, **__: began.set() or gate.wait(PATIENCE))
    manager = stage.with_providers(quick_shutdown(0.4), stuck)
    manager.sync_all("a question", "an answer")
    began.wait(PATIENCE)
    manager.sync_all("another", "an answer")
    manager.shutdown_all()
    return manager.shutdown_drain_state
