"""`hermes-plugins explain`: what an agent would be given, and why."""

from __future__ import annotations

import pytest

from hermes_core import MemoryManager

pytestmark = pytest.mark.usefixtures("both_storages")


def test_what_is_printed_is_what_an_agent_is_given(alpha):
    alpha.set("recalled", "- the deploy is make release\n- tea at five")
    manager = MemoryManager.from_config(alpha.home)
    manager.initialize_all("s1")
    given = manager.recall_block("how do we deploy?")
    manager.shutdown_all()
    data = alpha.machine.json("explain", "how do we deploy?")
    assert data["injected"] == given
    assert given in alpha.machine.run("explain", "how do we deploy?").done().out


def test_each_provider_says_how_much_it_gave_and_why_nothing(alpha):
    data = alpha.machine.json("explain", "anything")
    builtin, external = data["providers"]
    assert (data["injected"], builtin["provider"], external["provider"]) == ("", "builtin", "alpha")
    assert "system prompt" in builtin["why_nothing"]
    assert external["why_nothing"] == "it found nothing"
    alpha.set("recalled", "- tea at five")
    _, external = alpha.machine.json("explain", "anything")["providers"]
    assert (external["characters"], external["why_nothing"]) == (13, "")
    lines = alpha.machine.run("explain", "anything").done().lines
    assert any(line.startswith("  alpha: 13 characters in") for line in lines)


def test_what_was_left_out_is_told_with_the_reason(alpha):
    alpha.configure(context_max_chars=600)
    alpha.set("recalled", "\n".join(f"- entry {number} {'x' * 60}" for number in range(50)))
    (line,) = alpha.machine.json("explain", "anything")["left_out"]
    assert "over 600 characters" in line
    assert f"left out:  {line}" in alpha.machine.run("explain", "anything").done().lines


def test_a_provider_that_fails_is_told_with_its_error(down):
    result = down.machine.run("explain", "anything")
    assert result.code == 1
    assert "Nothing would be injected." in result.lines
    assert "ConnectionError: backend is down" in result.out


def test_a_slow_provider_does_not_hold_it_up(alpha):
    alpha.configure(prefetch_budget=0.2)
    alpha.set("slow")
    data = alpha.machine.json("explain", "anything", code=1)
    assert data["providers"][1]["late"] is True
    assert "no answer within 0.2 s" in data["providers"][1]["error"]


def test_a_provider_that_does_not_load_is_a_problem_and_the_builtin_answers(alpha):
    plugin = alpha.home / "plugins" / "alpha" / "__init__.py"
    plugin.write_text("raise RuntimeError('boom')  # MemoryProvider")
    data = alpha.machine.json("explain", "anything", code=1)
    assert "boom" in data["problems"][0]
    assert [each["provider"] for each in data["providers"]] == ["builtin"]
    plugin.write_text("import os; os._exit(5)  # MemoryProvider")
    assert "exit code 5" in alpha.machine.run("explain", "anything").failed()


def test_nothing_is_written_anywhere_but_to_the_log_of_calls(alpha):
    alpha.set("recalled", "- tea at five")
    before = {path.name for path in alpha.home.iterdir()}
    alpha.machine.run("explain", "anything").done()
    assert {path.name for path in alpha.home.iterdir()} - before == {"logs"}
    assert alpha.got() == []
    assert alpha.machine.json("sessions", "list")["sessions"] == []


def test_user_and_session_reach_the_provider(alpha):
    plugin = alpha.home / "plugins" / "alpha" / "__init__.py"
    answer = 'recalled = self.home / "recalled"\n'
    told = 'return f"{self.user} {session_id} {self.context}"\n'
    plugin.write_text(plugin.read_text().replace(answer, told))
    data = alpha.machine.json("explain", "anything", "--user", "ada", "--session", "s9")
    assert "ada s9 subagent" in data["injected"]


def test_an_empty_question_is_wrong_usage(alpha):
    assert "empty" in alpha.machine.run("explain", " ").misused()
    alpha.machine.run("explain").misused()
