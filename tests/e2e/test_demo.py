"""`hermes-plugins demo`."""

from __future__ import annotations

import tempfile

import pytest
from support.commands import Machine, Result, posix_only, run_on_terminal, snapshot
from support.sites import provider_source


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Result:
    """What the demo prints, in a broken home, beside another plugin with the sample's name."""
    folder = tmp_path_factory.mktemp("demo")
    machine = Machine(folder / "machine", in_process=True)
    machine.install("sample", provider_source("sample"), distribution="somebody")
    machine.config_file.write_bytes(b"\xff")
    temporary = folder / "temporary"
    temporary.mkdir()
    machine.environment.update(TMPDIR=str(temporary), TEMP=str(temporary), TMP=str(temporary))
    before = snapshot(machine.user)
    with machine.unchanged(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", None)  # the command reads TMPDIR
        result = machine.run("demo").done()
    assert snapshot(machine.user) == before
    assert list(temporary.iterdir()) == []
    return result


def test_the_demo_walks_through_a_plugins_life_and_says_each_step(shown):
    result = shown
    steps = [
        "A home with a plugin in it.",
        "$ hermes-plugins list",
        "builtin\tactive",
        "sample\tconflict",
        "$ hermes-plugins enable sample",
        "sample is enabled.",
        "A first session.",
        "user:",
        "A second session",
        "recalled:",
        "The backend fails during a session.",
        "waiting in outbox.db:  2 turns",
        "The backend is back",
        "waiting in outbox.db:  0 turns",
        "$ hermes-plugins status",
        "external:  sample, works",
        "$ hermes-plugins disable",
        "sample is disabled.",
    ]
    position = 0
    for step in steps:
        assert step in result.out[position:], step
        position = result.out.index(step, position) + len(step)


def test_the_demo_recalls_in_the_second_session_what_the_first_one_said(shown):
    lines = shown.lines
    said = next(line for line in lines if line.strip().startswith("user:"))
    recalled = next(line for line in lines if line.strip().startswith("recalled:"))
    assert said.partition(":")[2].strip() in recalled
    assert any('{"turns": 8}' in line for line in lines)


def test_the_demo_searches_the_first_session_in_the_second(shown):
    lines = shown.lines
    at = next(at for at, line in enumerate(lines) if "tool session_search:" in line)
    assert "monday: We >>>deploy<<< the >>>billing<<< service" in lines[at]
    assert "it began:  Good morning." in lines[at + 1]
    assert "it ended:" in lines[at + 2]
    assert "Good luck with the release!" in lines[at + 2]


def test_the_demo_loses_no_turn_to_a_backend_that_dies_in_the_middle(shown):
    out = shown.out
    _, _, outage = out.partition("The backend fails during a session.")
    outage, _, recovery = outage.partition("The backend is back")
    before, gone, after = outage.partition("the backend fails now")
    assert gone
    assert [each.count("user:") for each in (before, after)] == [1, 2]
    assert "sync_turn failed:  FileNotFoundError" in after
    assert "delivered:  all" in recovery
    assert '{"turns": 11}' in recovery
    assert "recalled:  - It moves tonight, to stage-2. -> Then I use stage-2" in recovery


@posix_only
@pytest.mark.stress
def test_the_demo_marks_on_a_terminal_what_waits_and_what_was_delivered(machine):
    code, shown = run_on_terminal(machine, "demo")
    assert code == 0
    assert "waiting in outbox.db:  \033[33m2 turns\033[0m" in shown
    assert "delivered:  \033[32mall\033[0m" in shown
