"""`hermes-plugins sessions ...` in a pipe: what it prints, in JSON too, and how it ends."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.archives import open_archive
from support.commands import Machine
from support.talks import numbered, past

from hermes_builtin.sessions.archive import NewMessage, SessionFacts

pytestmark = pytest.mark.usefixtures("both_storages")

DAY = 86_400.0
FACTS = {
    "id", "source", "user_id", "chat_id", "profile", "title", "parent", "started", "ended",
    "active", "messages", "platform", "name",
}  # fmt: skip


@pytest.fixture
def filled(machine: Machine) -> Machine:
    """A home with conversations of two users, a subagent, and one of long ago."""
    home = machine.home
    archive = open_archive(home)
    facts = SessionFacts("old", "cli", profile="default", started=time.time() - 200 * DAY)
    archive.append(facts, [NewMessage("user", "an old walrus", facts.started)])
    archive.close()
    past(home, "bobs", [("a walrus for bob", "Here.")], user_id="bob", platform="telegram")
    past(home, "adas", numbered(3, "walrus"), user_id="ada", session_title="Seas")
    past(home, "sub", [("a walrus below", "ok")], agent_context="subagent")
    return machine


def names(machine: Machine, *arguments: str) -> list[str]:
    return [each["id"] for each in machine.json("sessions", "list", *arguments)["sessions"]]


# -- looking ---------------------------------------------------------------------------------------


def test_list_shows_the_newest_first_and_machines_only_on_request(filled: Machine) -> None:
    assert names(filled) == ["adas", "bobs", "old"]
    assert names(filled, "--all")[0] == "sub"
    assert names(filled, "--limit", "1") == ["adas"]
    assert names(filled, "--user", "bob") == ["bobs"]
    listed = filled.json("sessions", "list")["sessions"]
    assert all(set(each) == FACTS for each in listed)
    printed = filled.run("sessions", "list").done()
    assert [line.split("\t")[0] for line in printed.lines] == ["adas", "bobs", "old"]
    assert "Seas" in printed.out


def test_search_prints_what_matched_and_where(filled: Machine) -> None:
    result = filled.run("sessions", "search", "walrus", "bob").done()
    assert result.lines[0].startswith("bobs")
    assert "for bob" in result.out
    assert ">>>" not in result.out
    found = filled.json("sessions", "search", "walrus bob")
    assert found["results"][0]["id"] == "bobs"
    assert set(found["results"][0]) == FACTS | {"message_id", "role", "snippet"}
    assert {"approximate", "not_imported"} <= set(found)
    (only,) = filled.json("sessions", "search", "walrus", "--user", "bob")["results"]
    assert only["id"] == "bobs"
    by_time = filled.json("sessions", "search", "walrus", "--sort", "oldest", "--limit", "1")
    assert [each["id"] for each in by_time["results"]] == ["old"]
    (said,) = filled.json("sessions", "search", "Here", "--role", "assistant")["results"]
    assert said["role"] == "assistant"
    assert filled.json("sessions", "search", "Here", "--role", "user")["results"] == []


def test_search_finds_a_title_with_some_of_the_words_if_nothing_else(filled: Machine) -> None:
    (found,) = filled.json("sessions", "search", "seven", "seas")["results"]
    assert (found["id"], found["role"]) == ("adas", "session_title")


def test_search_finds_a_conversation_by_its_title(filled: Machine) -> None:
    (found,) = filled.json("sessions", "search", "seas")["results"]
    assert (found["id"], found["role"]) == ("adas", "session_title")
    assert found["snippet"] == ">>>Seas<<<"


def test_search_that_finds_nothing_says_so_and_is_no_failure(filled: Machine) -> None:
    result = filled.run("sessions", "search", "zorkmid")
    assert (result.code, result.out) == (0, "")
    assert "No conversation" in result.err
    assert filled.json("sessions", "search", "zorkmid")["results"] == []


@pytest.mark.parametrize(
    "query", ["C#", "100%", '"a walrus', "a OR", "???", "(", "'", "\\", "日", ""]
)
def test_any_string_is_a_safe_query_on_the_command_line(query: str, filled: Machine) -> None:
    result = filled.run("sessions", "search", "--", query)
    assert result.code == 0, result
    assert "Traceback" not in result.err


def test_after_two_dashes_a_query_may_begin_with_one(filled: Machine) -> None:
    found = filled.json("sessions", "search", "--limit", "9", "--json", "--", "walrus", "-bob")
    assert "bobs" not in [each["id"] for each in found["results"]]


def test_a_word_can_be_left_out_as_the_help_says(filled: Machine) -> None:
    assert "-without" in filled.run("sessions", "search", "--help").out
    found = filled.json("sessions", "search", "walrus", "-below")["results"]
    assert found
    assert "sub" not in [each["id"] for each in found]


def test_show_prints_a_conversation(filled: Machine) -> None:
    printed = filled.run("sessions", "show", "adas").done().out
    places = [printed.index(text) for turn in numbered(3, "walrus") for text in turn]
    assert places == sorted(places)
    shown = filled.json("sessions", "show", "adas")
    assert set(shown["session"]) == FACTS
    assert shown["session"]["title"] == "Seas"
    assert [each["role"] for each in shown["messages"]] == ["user", "assistant"] * 3
    assert "no such conversation" in filled.run("sessions", "show", "nobody").failed()


def test_a_conversation_is_named_by_the_link_that_an_agent_gives(filled: Machine) -> None:
    assert filled.json("sessions", "show", "@session:default/adas")["session"]["id"] == "adas"
    other = filled.run("sessions", "show", "@session:work/adas").failed()
    assert "no such conversation" in other


def test_what_a_conversation_holds_does_not_command_the_terminal(machine: Machine) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m walrus\r\b"
    past(machine.home, f"id{evil}", [(evil, evil)], session_title=evil, platform=evil)
    for arguments in (
        ("list",), ("search", "walrus"), ("show", f"id{evil}"), ("stats",), ("check",),
    ):  # fmt: skip
        printed = machine.run("sessions", *arguments).done()
        assert not set("\x1b\x07\x9b\r\b") & set(printed.out + printed.err), arguments


@pytest.mark.files_only
def test_stats_count_what_is_there(filled: Machine) -> None:
    stats = filled.json("sessions", "stats")
    assert (stats["sessions"], stats["messages"], stats["not_imported"]) == (4, 11, 0)
    assert stats["path"] == str(filled.home / "state.db")
    assert stats["by_source"] == {"cli": 2, "telegram": 1, "subagent": 1}
    assert stats["oldest"] < stats["newest"]
    assert stats["bytes"] > 0
    assert "4 conversations, 11 messages" in filled.run("sessions", "stats").done().out


def test_check_and_repair_of_a_whole_archive_do_nothing(filled: Machine) -> None:
    assert "no damage" in filled.run("sessions", "check").done().out
    assert filled.json("sessions", "check")["problems"] == []
    assert "nothing was changed" in filled.run("sessions", "repair").done().out
    assert not filled.json("sessions", "repair")["problems"]
    assert [each.name for each in filled.home.glob("state.db.*")] == []


def test_export_writes_a_line_for_each_conversation(filled: Machine) -> None:
    printed = filled.run("sessions", "export").done()
    exported = [json.loads(line) for line in printed.lines]
    assert [each["session_id"] for each in exported] == ["old", "bobs", "adas", "sub"]
    file = filled.user / "all.jsonl"
    filled.run("sessions", "export", str(file)).done()
    assert file.read_text("utf-8") == printed.out
    (one,) = filled.run("sessions", "export", "--user", "bob").done().lines
    assert json.loads(one)["user_id"] == "bob"
    nowhere = filled.user / "no" / "folder" / "x"
    error = filled.run("sessions", "export", str(nowhere)).failed()
    assert f"{nowhere}: can't be written" in error
    assert "check that the folder exists" in error


# -- forgetting ------------------------------------------------------------------------------------

FORGETTING = [("delete", "adas"), ("forget", "--user", "ada"), ("prune", "--older-than", "90d")]


@pytest.mark.parametrize("arguments", FORGETTING, ids=lambda each: each[0])
def test_nothing_is_forgotten_in_a_pipe_without_a_yes(
    arguments: tuple[str, ...], filled: Machine
) -> None:
    assert "--yes" in filled.run("sessions", *arguments).failed()
    filled.run("sessions", *arguments, "--json").failed()
    assert filled.json("sessions", "stats")["messages"] == 11


def test_delete_forgets_one_conversation_and_leaves_no_trace_of_it(filled: Machine) -> None:
    done = filled.json("sessions", "delete", "bobs", "--yes")
    assert (done["sessions"], done["messages"]) == (1, 2)
    assert names(filled) == ["adas", "old"]
    assert "no such" in filled.run("sessions", "delete", "bobs", "--yes").failed()
    assert filled.json("sessions", "search", "bob")["results"] == []
    assert traces(filled, b"for bob") == []
    filled.run("sessions", "check").done()


def traces(machine: Machine, text: bytes) -> list[str]:
    """The files of the home that have this text in them."""
    return [each.name for each in machine.home.rglob("*") if each.is_file()
            and text in each.read_bytes()]  # fmt: skip


def test_forget_forgets_a_user_but_not_the_notes(filled: Machine) -> None:
    notes = filled.home / "memories" / "MEMORY.md"
    notes.parent.mkdir(exist_ok=True)
    notes.write_text("ada likes tea")
    done = filled.json("sessions", "forget", "--user", "ada", "--yes")
    assert (done["sessions"], done["messages"]) == (1, 6)
    assert names(filled) == ["bobs", "old"]
    assert notes.read_text() == "ada likes tea"
    assert traces(filled, b"question1 on") == []
    assert filled.json("sessions", "forget", "--user", "nobody", "--yes")["sessions"] == 0
    assert filled.run("sessions", "forget", "--user", "", "--yes").misused()
    assert filled.run("sessions", "forget", "--user", "%", "--yes").done()
    assert names(filled) == ["bobs", "old"]


@pytest.mark.files_only
@pytest.mark.parametrize(
    "arguments", [("delete", "s"), ("forget", "--user", "eve"), ("prune", "--older-than", "0h")]
)
def test_not_even_a_word_is_left_of_what_was_forgotten(
    arguments: tuple[str, ...], machine: Machine
) -> None:
    past(machine.home, "s", [("the password is hunter2secret", "ok")], user_id="eve")
    assert traces(machine, b"hunter2secret") == ["state.db"]
    machine.run("sessions", *arguments, "--yes").done()
    assert traces(machine, b"hunter2secret") == []


def test_prune_forgets_what_is_older(filled: Machine) -> None:
    assert filled.json("sessions", "prune", "--older-than", "1y", "--yes")["sessions"] == 0
    done = filled.run("sessions", "prune", "--older-than", "90d", "--yes").done()
    assert "Deleted 1 conversation with 1 message." in done.out
    assert names(filled) == ["adas", "bobs"]


# -- edges -----------------------------------------------------------------------------------------


@pytest.mark.files_only
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("search",), "QUERY"),
        (("show",), "ID"),
        (("delete",), "ID"),
        (("forget",), "--user"),
        (("prune",), "--older-than"),
        (("prune", "--older-than", "soon"), "90d"),
        (("prune", "--older-than", "-5d"), "90d"),
        (("prune", "--older-than", "5"), "90d"),
        (("list", "--limit", "0"), "--limit"),
        (("list", "--limit", "many"), "--limit"),
        (("search", "x", "--sort", "best"), "--sort"),
        (("search", "x", "--role", "robot"), "--role"),
        (("stats", "more"), "more"),
        (("nonsense",), "nonsense"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_wrong_usage_ends_with_2_and_says_what_is_wrong(
    arguments: tuple[str, ...], named: str, machine: Machine
) -> None:
    with machine.unchanged():
        assert named in machine.run("sessions", *arguments).misused()


EVERY = [
    ("list",), ("search", "walrus"), ("export",), ("stats",), ("check",), ("repair",),
    ("forget", "--user", "ada", "--yes"), ("prune", "--older-than", "90d", "--yes"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", EVERY, ids=lambda each: each[0])
def test_in_an_empty_home_every_command_ends_well(
    arguments: tuple[str, ...], machine: Machine
) -> None:
    result = machine.run("sessions", *arguments)
    assert result.code == 0, result
    assert "Traceback" not in result.err


@pytest.mark.files_only
@pytest.mark.parametrize("arguments", EVERY, ids=lambda each: each[0])
def test_something_else_in_the_archives_place_is_an_error_and_left_alone(
    arguments: tuple[str, ...], machine: Machine
) -> None:
    (machine.home / "state.db").write_text("shopping: milk\n" * 50)
    with machine.unchanged():
        assert "state.db" in machine.run("sessions", *arguments).failed()


def test_help_names_every_command(machine: Machine) -> None:
    shown = machine.run("sessions", "--help").done().out
    for name in (
        "list", "search", "show", "import", "export", "delete", "forget", "prune", "stats",
        "check", "repair",
    ):  # fmt: skip
        assert f"  {name} " in shown


def test_a_reader_that_goes_away_is_no_error(filled: Machine, tmp_path: Path) -> None:
    past(filled.home, "long", [("x" * 100_000, "y" * 100_000)] * 10)
    process = filled.start("sessions", "export")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    process.wait(60)
    assert "Traceback" not in error
    assert "unexpected" not in error
    assert tmp_path.exists()
