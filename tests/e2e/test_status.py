"""`hermes-plugins status`: what runs, and whether it does."""

from __future__ import annotations

import pytest
from support.sites import OBSERVERS, provider_source

pytestmark = pytest.mark.usefixtures("forked_children")


def test_an_empty_home_is_fine(machine):
    with machine.unchanged():
        result = machine.run("status").done()
        report = machine.json("status")
    assert str(machine.home) in result.out
    assert "external:  none" in result.lines
    assert (report["ok"], report["provider"], report["problems"]) == (True, None, [])
    assert (report["builtin"]["name"], report["builtin"]["active"]) == ("builtin", True)


def test_a_working_provider_is_named_with_its_owner_and_version(machine):
    machine.install("alpha", version="2.1")
    machine.write_config("memory: {provider: alpha}\n")
    with machine.unchanged():
        result = machine.run("status").done()
        report = machine.json("status")
    assert "external:  alpha (memory-alpha 2.1), works" in result.lines
    assert report["ok"] is True
    assert report["home"] == str(machine.home)
    assert report["config"] == str(machine.config_file)
    provider = report["provider"]
    assert (provider["name"], provider["state"], provider["active"], provider["works"]) == (
        "alpha",
        "active",
        True,
        True,
    )
    assert (provider["distribution"], provider["version"]) == ("memory-alpha", "2.1")


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise RuntimeError('boom')  # MemoryProvider\n", "boom"),
        ("import os; os._exit(4)  # MemoryProvider\n", "exit code 4"),
        (provider_source("alpha").replace("return True", "return False"), "is not available"),
    ],
)
def test_a_provider_that_does_not_work_is_a_problem_and_the_builtin_stays(machine, source, cause):
    machine.install("alpha", source)
    machine.write_config("memory: {provider: alpha}\n")
    with machine.unchanged():
        result = machine.run("status")
        report = machine.json("status", code=1)
    assert (result.code, result.err) == (1, "")
    assert "built-in:  active (always)" in result.lines
    assert any(line.startswith("external:  alpha") for line in result.lines)
    assert "does not work" in result.out
    (problem,) = [line for line in result.lines if line.startswith("problem:")]
    assert "plugin alpha" in problem
    assert cause in problem
    assert (report["ok"], report["builtin"]["active"]) == (False, True)
    assert (report["provider"]["active"], report["provider"]["works"]) == (False, False)
    assert cause in report["problems"][0]


def test_a_provider_that_is_not_installed_is_missing(machine):
    machine.install("alphabet")
    machine.write_config("memory: {provider: alpha}\n")
    with machine.unchanged():
        report = machine.json("status", code=1)
    assert (report["provider"]["name"], report["provider"]["state"]) == ("alpha", "missing")
    (problem,) = report["problems"]
    assert "'alpha'" in problem
    assert "did you mean alphabet?" in problem


def test_a_provider_that_was_enabled_and_is_gone_says_how_to_get_it_back(machine):
    machine.install("alphabet")
    machine.install("alpha", distribution="memory-of-alpha")
    machine.run("enable", "alpha").done()
    machine.uninstall("memory-of-alpha")
    (problem,) = machine.json("status", code=1)["problems"]
    assert problem == (
        "no memory provider 'alpha' is installed (run: hermes-plugins install memory-of-alpha)"
    )
    folder = machine.add_directory("beta")
    machine.run("enable", "beta").done()
    folder.rename(machine.home / "away")
    (problem,) = machine.json("status", code=1)["problems"]
    assert problem.endswith("(put its folder back, or run: hermes-plugins disable)")


def test_what_to_do_about_a_problem_is_a_hint_on_the_next_line(machine):
    machine.install("alphabet")
    machine.write_config("memory: {provider: alpha}\n")
    lines = machine.run("status").lines
    problem = lines.index("problem:   no memory provider 'alpha' is installed")
    hint = "did you mean alphabet?"
    assert lines[problem + 1] == f"{'':11}hint: {hint}"
    report = machine.json("status", code=1)
    assert report["problems"] == [f"no memory provider 'alpha' is installed ({hint})"]
    assert report["problem_hints"] == [hint]
    assert len(report["warning_hints"]) == len(report["warnings"])


def test_ours_that_was_enabled_and_is_gone_says_how_to_get_it_back(machine):
    machine.install("honcho", distribution="hermes-memory-honcho")
    machine.run("enable", "honcho").done()
    machine.uninstall("hermes-memory-honcho")
    (problem,) = machine.json("status", code=1)["problems"]
    assert problem.endswith("(to see how to install it, run: hermes-plugins info honcho)")
    known = machine.run("info", "honcho").done().out
    assert "in a checkout of hermes-plugins, run: hermes-plugins install ./plugins/honcho" in known


def test_a_conflict_has_the_same_state_in_status_and_list(machine):
    machine.install("twice", distribution="first-owner")
    machine.install("twice", distribution="second-owner")
    machine.write_config("memory: {provider: twice}\n")
    report = machine.json("status", code=1)
    assert "first-owner, second-owner" in report["problems"][0]
    assert report["provider"]["state"] == "conflict"


@pytest.mark.parametrize(
    "tools",
    [
        pytest.param(
            "[{'name': f'tool_{n}', 'description': 'x', 'parameters': {}} for n in range(200)]",
            marks=pytest.mark.stress,
        ),
        "[{'name': 'tool', 'description': object(), 'parameters': {'default': {1, 2}}}]",
        pytest.param("[None, 3, {'name': 'memory'}]", marks=pytest.mark.stress),
    ],
)
def test_tools_that_nobody_can_use_do_not_disturb_the_status(machine, tools):
    machine.install("alpha", provider_source("alpha").replace("return []", f"return {tools}"))
    machine.write_config("memory: {provider: alpha}\n")
    assert machine.json("status")["provider"]["works"] is True


def test_an_observer_that_is_not_there_is_a_problem(machine):
    machine.write_config("memory: {observers: [trace]}\n")
    report = machine.json("status", code=1)
    assert report["observers"] == ["trace"]
    assert "no observer 'trace' is installed" in report["problems"][0]


def test_an_observer_that_is_there_is_shown(machine):
    machine.site.add(
        "tracing",
        groups={OBSERVERS: {"trace": "tracing_module"}},
        files={
            "tracing_module.py": "from hermes_core import hookimpl\n"
            "@hookimpl\ndef prefetch(query, session_id):\n    pass\n"
        },
    )
    machine.write_config("memory: {observers: [trace]}\n")
    assert "observer:  trace" in machine.run("status").done().lines


@pytest.mark.parametrize("provider", [pytest.param("", marks=pytest.mark.stress), "alpha"])
def test_an_observer_that_ends_the_process_is_not_taken_for_a_plugin(machine, provider):
    machine.install("alpha")
    machine.site.add(
        "tracing",
        groups={OBSERVERS: {"trace": "tracing_module"}},
        files={"tracing_module.py": "import os; os._exit(5)\n"},
    )
    machine.write_config(f"memory: {{provider: {provider!r}, observers: [trace]}}\n")
    (problem,) = machine.json("status", code=1)["problems"]
    assert "exit code 5" in problem
    assert f"plugin {provider}:" not in problem


def test_a_foreign_key_is_a_warning_and_no_problem(machine):
    machine.write_config("model: x\nmemory:\n  shoe_size: 46\n")
    result = machine.run("status").done()
    assert "warning:   config.yaml:3: memory.shoe_size: unknown key, left alone" in result.lines
