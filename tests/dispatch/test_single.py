"""One provider that no manager runs: what loading, set-up and doctor call it through."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from support.providers import Minimal, Recorder

from hermes_core import Deadlines
from hermes_core.dispatch import SingleProvider, as_builtin, overrides
from hermes_core.errors import DeadlineExceeded, WrongReturnType
from hermes_core.provider import ProbeResult


def test_a_call_takes_the_parameters_of_the_hookspec_and_returns_an_outcome() -> None:
    provider = Recorder(own_settings=[("file", {"key": 1})])
    with SingleProvider(provider, "ext") as single:
        outcome = single.call("own_settings", hermes_home="home")
    assert (outcome.provider, outcome.hook, outcome.error) == ("ext", "own_settings", None)
    assert outcome.value == [("file", {"key": 1})]
    assert provider.of("own_settings")[0].args == ("home",)


def test_a_capability_that_is_missing_returns_its_neutral_value() -> None:
    with SingleProvider(Minimal(), "ext") as single:
        assert not single.overrides("probe")
        assert single.call("probe", write=False).value is None
        assert single.call("own_settings", hermes_home="home").value == ()
        assert single.call("get_status_config", provider_config={}).value is None


@pytest.mark.parametrize(
    "result", [ProbeResult(True, "fine"), SimpleNamespace(ok=1, detail="fine")]
)
def test_a_probe_may_return_anything_with_the_two_attributes(result: Any) -> None:
    with SingleProvider(Recorder(probe=result), "ext") as single:
        assert single.call("probe", write=True).value == ProbeResult(True, "fine")


def test_a_probe_that_returns_something_else_is_an_error() -> None:
    with SingleProvider(Recorder(probe="fine"), "ext") as single:
        assert isinstance(single.call("probe", write=True).error, WrongReturnType)


def test_deadlines_may_change_between_two_calls() -> None:
    gate = threading.Event()
    provider = Recorder(probe=lambda write: gate.wait(30))
    with SingleProvider(provider, "ext") as single:
        single.deadlines = Deadlines(tool=0.01)
        assert isinstance(single.call("probe", write=False).error, DeadlineExceeded)
        gate.set()


def test_an_interactive_method_runs_on_the_caller_s_thread_and_may_be_interrupted() -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    provider = Recorder()
    with SingleProvider(provider, "ext") as single:
        single.call("post_setup", hermes_home="home", config={})
        assert provider.threads("post_setup") == {threading.current_thread()}
        provider.answers["post_setup"] = interrupted
        with pytest.raises(KeyboardInterrupt):
            single.call("post_setup", hermes_home="home", config={})


def test_what_a_provider_inherits_it_does_not_override() -> None:
    assert overrides(Minimal(), "initialize")
    assert not overrides(Minimal(), "prefetch")
    assert overrides(Recorder(), "post_setup")
    assert not overrides(object(), "prefetch")


@pytest.mark.parametrize("promise", [True, False])
def test_a_promise_of_delivery_is_read_safely(promise: bool) -> None:
    provider = Recorder()
    provider.confirms_delivery = promise
    assert SingleProvider(provider, "ext").confirms_delivery is promise
    assert not SingleProvider(object(), "ext").confirms_delivery  # type: ignore[arg-type]


def test_only_our_own_built_in_has_its_methods() -> None:
    from hermes_builtin.provider import BuiltinProvider

    assert as_builtin(Recorder("builtin")) is None
    assert as_builtin(BuiltinProvider()) is not None
