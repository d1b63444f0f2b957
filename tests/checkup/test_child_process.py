"""The sandboxed child process: what crosses its boundary, and what does not outlive it."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
from support.child_functions import runs, sleeps, yields_then
from support.commands import Holder, posix_only, wait_until

from hermes_core.checkup.child_process import (
    LineWriter,
    read_lines,
    run_child,
    run_plugin_code,
)
from hermes_core.checkup.doctor import Finding
from hermes_core.checkup.status import Inventory
from hermes_core.config import Config
from hermes_core.conformance._runner import LoadSuccess
from hermes_core.discovery import ProviderInfo
from hermes_core.outbox import WriteState
from hermes_core.storage.child import decode, encode, function_name, processes_with

VALUES = (
    Finding("home", "ok", "a detail"),
    Inventory(ProviderInfo("builtin", "builtin", directory=Path("/x"), files=("a", "b"))),
    WriteState.FAILED,
    LoadSuccess(),
    {"a": (1, 2.5), 3: [None, True]},
    (),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda each: type(each).__name__)
def test_a_value_is_the_same_on_the_other_side(value: object) -> None:
    assert decode(json.loads(json.dumps(encode(value)))) == value


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", Finding("a", fix=str)])
def test_what_is_not_data_does_not_cross(value: object) -> None:
    with pytest.raises(TypeError, match="can't cross the process boundary"):
        encode(value)


@pytest.mark.parametrize(
    "name", ["os:stat_result", "hermes_core.errors:HermesError", "hermes_core.checkup.status:Path"]
)
def test_only_our_own_data_types_are_created(name: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        decode({"$type": name})


def test_a_line_that_is_cut_off_or_foreign_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    with file.open("w") as stream:
        LineWriter(stream).write(Finding("a"))
        stream.write('{"$type": "os:stat_result"}\nnot json\n[1, 2')
    assert list(read_lines(file)) == [Finding("a")]
    file.write_text('{"format": 99}\n1\n')
    assert list(read_lines(file)) == []
    assert list(read_lines(tmp_path / "missing")) == []


def test_a_function_is_found_by_its_module_and_name() -> None:
    assert function_name(partial(os.getpid)) == "posix:getpid"
    with pytest.raises(TypeError, match="can't import"):
        function_name(lambda: None)


def test_what_a_function_yielded_is_known_even_if_it_fails_later(home: Path) -> None:
    done = run_plugin_code(Config(home), partial(yields_then, "raises"))
    assert (done.results, done.problem) == ((Finding("first"),), "ValueError: later")


def test_a_function_that_ends_its_process_is_reported_with_its_exit_code(home: Path) -> None:
    done = run_plugin_code(Config(home), partial(yields_then, "exits"), what="plugin acme")
    assert done.results == (Finding("first"),)
    assert done.problem == "plugin acme: ended the process that loaded it (exit code 7)"


def test_a_child_that_does_not_end_is_ended_unless_it_makes_progress() -> None:
    seen = iter([1, 2, 2])
    assert run_child(sleeps, os.environ, 0.3, progress=lambda: next(seen)) is None


@posix_only
@pytest.mark.parametrize("options", ["", "start_new_session=True"], ids=["child", "daemon"])
def test_what_a_child_started_ends_with_it(tmp_path: Path, options: str) -> None:
    holder = Holder(tmp_path / "lock")
    assert run_child(partial(runs, holder.spawn(options)), os.environ, 30) == 0
    try:
        assert wait_until(holder.is_gone)
    finally:
        holder.end()


def test_no_process_has_a_token_that_nobody_was_given() -> None:
    assert processes_with("nobody's") == []
