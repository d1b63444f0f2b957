"""What takes time says so on a terminal, and says nothing when its output is piped."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
from support.commands import Machine, posix_only, run_on_terminal

from hermes_core.cli import output

pytestmark = pytest.mark.usefixtures("few_distributions")

TEXT = "Remembers."


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A home with an enabled provider, an archive, and things to import and install."""
    machine = Machine(tmp_path_factory.mktemp("stocked") / "machine", in_process=True)
    machine.add_directory("alpha", manifest=f"description: {TEXT}\n")
    machine.run("enable", "alpha").done()
    rows = [{"session_id": "s1", "role": "user", "content": "the blue heron", "timestamp": 1.0}]
    (machine.user / "talk.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    machine.run("sessions", "import", str(machine.user / "talk.jsonl")).done()
    (machine.user / "shared").mkdir()
    folder = machine.add_directory("beta", manifest=f"description: {TEXT}\n")
    folder.rename(machine.user / "beta")
    return machine


COMMANDS = [
    (("enable", "alpha"), "Testing alpha"),
    (("setup", "alpha", "--no-input"), "Loading alpha"),
    (("status",), "Checking the memory providers"),
    (("doctor",), "Testing the memory providers"),
    (("explain", "heron"), "Asking the memory providers"),
    (("config", "show"), "Loading alpha"),
    (("check", "alpha", "-k", "HP101"), "Checking alpha"),
    (("outbox", "retry"), "Delivering pending writes"),
    (("outbox", "backfill"), "Restoring writes from the archive"),
    (("sessions", "import", "{user}/talk.jsonl"), "Importing conversations"),
    (("sessions", "export", "{user}/out.jsonl"), "Reading conversations"),
    (("sessions", "check"), "Checking the archive"),
    (("sessions", "repair"), "Indexing conversations"),
    (("sync", "{user}/shared"), "Syncing"),
    (("switch", "alpha", "--replay", "--dry-run"), "Reading the archive"),
    (("install", "{user}/beta", "--yes"), "Fetching"),
]


@posix_only
@pytest.mark.parametrize(("words", "text"), COMMANDS, ids=lambda each: " ".join(each[:2]))
def test_what_takes_time_shows_progress_on_a_terminal_only(stocked, words, text, request):
    if words[0] != "check":  # whose child process shows how far it is
        request.getfixturevalue("forked_children")
    arguments = [word.format(user=stocked.user) for word in words]
    code, shown = run_on_terminal(stocked, *arguments, columns=80)
    assert code == 0, shown
    assert text in shown
    if words[0] == "install":
        arguments.append("--replace")
    piped = stocked.run(*arguments).done()
    assert text not in piped.out + piped.err
    assert "\033" not in piped.out + piped.err


@posix_only
@pytest.mark.usefixtures("forked_children")
def test_a_terminal_without_control_codes_gets_no_progress(stocked):
    _, shown = run_on_terminal(stocked, "status", env={"TERM": "dumb"})
    assert "Checking the memory providers" not in shown
    assert "\033" not in shown


@pytest.mark.parametrize(("seconds", "shown"), [(0.9, []), (1.1, ["Indexing"])])
def test_what_is_fast_most_of_the_time_shows_progress_only_if_it_is_slow(
    monkeypatch, seconds, shown
):
    begun = []

    def progress(text):
        begun.append(text)
        return nullcontext()

    monkeypatch.setattr(output, "progress", progress)
    times = iter([0.0, 0.0, seconds, seconds + 1])
    with output.progress_if_slow("Indexing", clock=lambda: next(times)) as step:
        step()
        step()
    assert begun == shown


@posix_only
def test_a_search_says_that_it_indexes_many_messages(stocked, monkeypatch):
    monkeypatch.setattr(output, "_SLOW_SECONDS", 0.0)
    monkeypatch.setattr("hermes_builtin.sessions.sqlite.maintenance._CLOSING_SECONDS", 0.0)
    row = {"session_id": "s2", "role": "user", "content": "the grey heron", "timestamp": 2.0}
    (stocked.user / "more.jsonl").write_text(json.dumps(row) + "\n")
    stocked.run("sessions", "import", str(stocked.user / "more.jsonl")).done()
    for text in (["Indexing conversations"], []):  # the second time there is nothing to index
        code, shown = run_on_terminal(stocked, "sessions", "search", "grey", columns=80)
        assert code == 0, shown
        assert "s2" in shown
        assert [each for each in ["Indexing conversations"] if each in shown] == text
