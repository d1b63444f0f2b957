"""`hermes-plugins check`, as an author runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.commands import Machine, posix_only, run_on_terminal, snapshot
from support.sites import provider_source

import hermes_core
from hermes_core.conformance import all_checks
from hermes_core.conformance.scaffold import create_project

SAMPLE = Path(hermes_core.__file__).parent / "cli" / "sample"
OLD = provider_source("old").replace(
    "def register",
    "    def sync_turn(self, user_content, assistant_content, *, session_id=''):\n"
    "        pass\n\ndef register",
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """The installed command with a plugin of the old contract."""
    made = Machine(tmp_path / "machine", in_process=True)
    made.install("old", OLD)
    return made


def test_a_plugin_that_passes_exits_with_0_and_only_its_grade_is_stored(machine):
    before = snapshot(machine.home)
    result = machine.run("check", "builtin", "--level", "should").done()
    assert list(machine.user.iterdir()) == []
    assert snapshot(machine.home).keys() - before.keys() == {"logs", "logs/checks.json"}
    # The kit sees recall by `prefetch`, not by a tool, which is how the built-in recalls.
    assert result.lines[-3] == "grade: bronze (for silver: run HP701, HP702, HP703)"
    assert result.lines[-2].startswith("builtin (hermes-plugins ")
    assert " 0 failed, " in result.lines[-1]
    assert len([line for line in result.lines if line[8:10] == "HP"]) == len(all_checks())


def test_a_fault_exits_with_1_and_says_what_where_and_how(machine):
    result = machine.run("check", "old", "-k", "HP602")
    assert result.code == 1
    assert result.lines[0] == "FAILED  HP602  `sync_turn` accepts `messages`"
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in result.lines[1:5]}
    assert "session_id=''" in told["happened"]
    assert told["where"] == "memory_old/__init__.py:16 (sync_turn)"
    assert "messages=None" in told["to"]
    assert told["more"] == "docs/checks/turns.md#hp602"
    assert "old (memory-old 1.0), contract 1.0, kit " in result.out


def test_what_only_should_be_done_fails_at_level_should(machine):
    machine.add_directory("bare")
    assert machine.run("check", "bare", "-k", "HP110").code == 0
    assert machine.run("check", "bare", "-k", "HP110", "--level", "should").code == 1


def test_a_directory_plugin_is_checked_by_its_path(machine, tmp_path):
    shutil.copytree(SAMPLE, tmp_path / "sample", ignore=shutil.ignore_patterns("__pycache__"))
    for given, cwd in (("sample", tmp_path), ("./sample", tmp_path), (".", tmp_path / "sample")):
        assert (
            machine.run("check", given, "-k", "HP10", cwd=cwd).done().lines[-2].startswith("sample")
        )


def test_the_sample_that_we_show_passes(machine):
    machine.run("check", str(SAMPLE), "--level", "should").done()


@pytest.mark.parametrize("given", ["nosuch", "./nosuch", "broken", "."])
def test_what_can_not_be_loaded_exits_with_3_and_an_error(machine, given, tmp_path):
    machine.install("broken", "raise ValueError('no')\n# register_memory_provider")
    create_project("acme", tmp_path / "project")
    result = machine.run("check", given, cwd=tmp_path / "project")
    assert (result.code, result.out) == (3, "")
    line, *hints = result.err.splitlines()
    assert line.startswith("hermes-plugins: ")
    assert all(each.startswith("hint: ") for each in hints)
    assert len(hints) <= 1
    if given == ".":
        assert "pip install --editable" in hints[0]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["old", "--level", "perhaps"],
        ["old", "-k", "no such check"],
        ["old", "--env", "NOVALUE"],
        ["old", "--skip", "HP602"],
        ["old", "--skip", "HP999=why"],
        ["old", "--config", "/no/such/file"],
        ["old", "--nonsense"],
    ],
)
def test_wrong_usage_exits_with_2(machine, arguments):
    assert machine.run("check", *arguments).misused()


def test_json_has_everything_that_a_program_needs(machine):
    data = machine.json("check", "old", "-k", "HP60", "--skip", "HP609=not ours", code=1)
    assert data["plugin"] == {
        "name": "old", "distribution": "memory-old", "version": "1.0", "source": "entry-point",
    }  # fmt: skip
    assert data["ok"] is False
    assert (data["contract"], data["level"], data["live"]) == ("1.0", "must", False)
    by_id = {each["id"]: each for each in data["checks"]}
    assert by_id["HP602"]["state"] == "failed"
    assert by_id["HP609"] | {"seconds": 0} == {**by_id["HP609"], "seconds": 0, "reason": "not ours"}
    assert data["passed"] + data["failed"] + data["skipped"] + data["warnings"] == len(by_id)


def test_a_report_is_written_to_a_file(machine, tmp_path):
    report = tmp_path / "report.md"
    assert machine.run("check", "old", "-k", "HP602", "--markdown", str(report)).code == 1
    assert "| HP602 | must | failed |" in report.read_text()


def test_the_list_has_every_check_and_runs_none(machine):
    lines = machine.run("check", "--list").done().lines
    assert [line.split()[0] for line in lines] == [each.id for each in all_checks()]
    listed = machine.json("check", "--list", "-k", "prompt")["checks"]
    assert [each["id"] for each in listed] == ["HP831", "HP832"]
    assert listed[0]["why"]
    assert [each["grade"] for each in listed] == ["silver", "gold"]


def test_settings_and_variables_are_given_on_the_command_line(machine, tmp_path):
    source = OLD.replace(
        "    def is_available(self):\n        return True",
        "    def is_available(self):\n        import os\n        return 'OLD_KEY' in os.environ",
    ).replace(
        "        pass\n\n    def get_tool",
        "        assert kwargs['provider_config'] == {'a': 1}\n\n    def get_tool",
    )
    machine.install("old", source)
    config = tmp_path / "config.yaml"
    config.write_text("a: 1\n")
    given = ["check", "old", "-k", "HP206", "--config", str(config)]
    assert "not available" in machine.run(*given).done().out
    assert machine.run(*given, "--env", "OLD_KEY=x").done().out.startswith("ok")


@posix_only
def test_on_a_terminal_it_says_at_once_what_it_does_and_shows_faults_in_red(machine):
    machine.in_process = False  # a fork has no server for further forks
    code, shown = run_on_terminal(machine, "check", "old", "-k", "HP60")
    assert code == 1
    assert "Checking old" in shown.partition("HP602")[0]
    assert "\033[31mFAILED \033[0m HP602" in shown


def test_a_broken_configuration_of_ours_does_not_stop_it(machine):
    machine.write_config("memory: [")
    assert machine.run("check", "old", "-k", "HP101").code == 0


def test_checks_name_pages_that_exist():
    docs = Path(__file__).parents[2] / "docs"
    for each in all_checks():
        page, _, anchor = each.docs.partition("#")
        text = (docs.parent / page).read_text("utf-8")
        assert f"{{#{anchor}}}" in text
        assert json.dumps(each.id)[1:-1] in text


def test_a_part_of_the_checks_leaves_no_grade_and_the_badge_is_one_line(machine):
    result = machine.run("check", "old", "-k", "HP602", "--badge")
    assert result.code == 1
    address = "https://img.shields.io/badge/hermes--plugins-not%20graded-lightgrey"
    assert result.lines == [f"![hermes-plugins: not graded]({address})"]
    assert not (machine.home / "logs" / "checks.json").exists()
