"""`hermes-plugins demo`."""

from __future__ import annotations

import pytest
from support.commands import Machine, posix_only, run_on_terminal, snapshot
from support.sites import provider_source


@pytest.fixture
def temporary(machine: Machine, tmp_path):
    """Where the demo makes its home."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    machine.environment.update(TMPDIR=str(folder), TEMP=str(folder), TMP=str(folder))
    return folder


def test_the_demo_walks_through_a_plugins_life_and_says_each_step(machine, temporary):
    result = machine.run("demo").done()
    steps = [
        "A home with a plugin in it.",
        "$ hermes-plugins list",
        "builtin\tactive",
        "sample\tinstalled",
        "$ hermes-plugins enable sample",
        "sample is enabled.",
        "A first session.",
        "user:",
        "A second session",
        "recalled:",
        "The backend dies in the middle of a session.",
        "waiting in outbox.db:  2 turns",
        "The agent is started again.",
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


def test_the_demo_recalls_in_the_second_session_what_the_first_one_said(machine, temporary):
    lines = machine.run("demo").done().lines
    said = next(line for line in lines if line.strip().startswith("user:"))
    recalled = next(line for line in lines if line.strip().startswith("recalled:"))
    assert said.partition(":")[2].strip() in recalled
    assert any('{"turns": 8}' in line for line in lines)


def test_the_demo_searches_the_first_session_in_the_second(machine, temporary):
    lines = machine.run("demo").done().lines
    at = next(at for at, line in enumerate(lines) if "tool session_search:" in line)
    assert "monday: We >>>deploy<<< the >>>billing<<< service" in lines[at]
    assert "it began:  Good morning." in lines[at + 1]
    assert "it ended:" in lines[at + 2]
    assert "Good luck with the release!" in lines[at + 2]


def test_the_demo_loses_no_turn_to_a_backend_that_dies_in_the_middle(machine, temporary):
    out = machine.run("demo").done().out
    _, _, outage = out.partition("The backend dies in the middle of a session.")
    outage, _, recovery = outage.partition("The agent is started again.")
    before, gone, after = outage.partition("and now it is gone")
    assert gone
    assert [each.count("user:") for each in (before, after)] == [1, 2]
    assert "sync_turn failed:  FileNotFoundError" in after
    assert "delivered:  all" in recovery
    assert '{"turns": 11}' in recovery
    assert "recalled:  - It moves tonight, to stage-2. -> Then I use stage-2" in recovery


@posix_only
def test_the_demo_marks_on_a_terminal_what_waits_and_what_was_delivered(machine, temporary):
    code, shown = run_on_terminal(machine, "demo")
    assert code == 0
    assert "waiting in outbox.db:  \033[33m2 turns\033[0m" in shown
    assert "delivered:  \033[32mall\033[0m" in shown


def test_the_demo_leaves_nothing_behind_and_touches_nothing(machine, temporary):
    machine.install("alpha")
    machine.write_config("memory: {provider: alpha}  # mine\n")
    before = snapshot(machine.user)
    with machine.unchanged():
        machine.run("demo").done()
    assert list(temporary.iterdir()) == []
    assert snapshot(machine.user) == before


def test_the_demo_takes_no_notice_of_a_broken_home(machine, temporary):
    machine.config_file.write_bytes(b"\xff")
    with machine.unchanged():
        machine.run("demo").done()


def test_the_demo_works_beside_another_plugin_of_its_samples_name(machine, temporary):
    machine.install("sample", provider_source("sample"), distribution="somebody")
    result = machine.run("demo")
    assert list(temporary.iterdir()) == []
    result.done()
