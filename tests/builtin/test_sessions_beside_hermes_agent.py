"""One home for both: hermes-agent's archive and ours, whoever comes first.

Each release of hermes-agent is in its own environment; see `support.hermes_agent`.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.commands import Machine
from support.hermes_agent import (
    PEERS,
    at_their_archive,
    missing,
    needs_hermes_agent,
    run_at_their_archive,
)
from support.talks import StartTalk, Talk, past, talks

from hermes_builtin.sessions.sqlite import SqliteArchive

pytestmark = [needs_hermes_agent, pytest.mark.files_only("hermes-agent reads and writes the file")]
beside_each_release = pytest.mark.parametrize("release", PEERS, indirect=True)

THEIRS = """
call = [{"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}]
talk("t1", ("the walrus sang", "It did."), ("twice", "Yes."), user_id="ada", chat_id="c1")
db.set_session_title("t1", "Walruses")
db.append_message("t1", "assistant", "", tool_calls=call)
db.append_message("t1", "tool", "a gizmo", tool_name="shell", tool_call_id="c1")
db.end_session("t1", "done")
talk("t2", ("a pelican", "Big."), source="telegram", parent_session_id="t1")
parts = [{"type": "text", "text": "what is this"}, {"type": "image_url", "image_url": {"url": "x"}}]
db.append_message("t2", "user", parts)
"""


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    yield from talks(home)


@pytest.fixture
def release(request: pytest.FixtureRequest) -> str:
    """A release of hermes-agent that can be run."""
    found: str = getattr(request, "param", "0.19")
    if why := missing(found):
        pytest.skip(why)
    return found


@pytest.fixture
def theirs(home: Path, release: str) -> Path:
    """A home where hermes-agent was first; its database."""
    at_their_archive(home, THEIRS, release)
    return home / "state.db"


def dump(path: Path) -> list[str]:
    """All that is in a database, as SQL."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        header = [
            f"{name}={database.execute(f'PRAGMA {name}').fetchone()[0]}"
            for name in ("application_id", "user_version", "journal_mode", "auto_vacuum")
        ]
        schema = database.execute("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2")
        shown = [*header, *map(str, schema.fetchall())]
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            shown.append(str(database.execute(f'SELECT * FROM "{name}"').fetchall()))
    return shown


def command(home: Path, tmp_path: Path) -> Machine:
    """The command on a home."""
    machine = Machine(tmp_path / "commands", in_process=True)
    machine.environment["HERMES_HOME"] = str(home)
    return machine


# -- hermes-agent was first ------------------------------------------------------------------------


def test_its_file_is_not_altered_by_anything_that_we_do(
    theirs: Path, home: Path, tmp_path: Path, talk: StartTalk
) -> None:
    before, content = theirs.read_bytes(), dump(theirs)
    session = talk()
    session.say("our own kumquat")
    session.search("walrus")
    session.call()
    session.manager.on_session_end([{"role": "user", "content": "x"}])
    session.close()
    machine = command(home, tmp_path)
    for arguments in (
        ("list",), ("search", "kumquat"), ("show", "now"), ("import",), ("import",), ("stats",),
        ("check",), ("repair",), ("export",), ("prune", "--older-than", "0h", "--yes"),
        ("import", str(theirs)), ("delete", "t1", "--yes"), ("forget", "--user", "ada", "--yes"),
    ):  # fmt: skip
        result = machine.run("sessions", *arguments)
        assert result.code == 0, (arguments, result)
    assert dump(theirs) == content
    assert theirs.read_bytes() == before


def test_ours_lives_beside_it_and_both_work(theirs: Path, home: Path, talk: StartTalk) -> None:
    session = talk("ours")
    session.say("our own kumquat", "Noted.")
    session.close()
    assert (home / "sessions.db").exists()
    assert (home / "sessions.db").stat().st_mode & 0o777 == 0o600
    assert talk().found("kumquat") == ["ours"]
    found = at_their_archive(
        home,
        "talk('t3', ('an ocelot', 'Where?'))\n"
        "result = [search(word)['count'] for word in ('walrus', 'ocelot', 'kumquat')]",
    )
    assert found == [1, 1, 0]
    assert talk().found("kumquat") == ["ours"]
    assert {"archive_sessions", "archive_messages"}.isdisjoint(tables(theirs))


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {name for (name,) in rows}


def test_that_ours_is_beside_it_is_said_once(
    theirs: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(3):
        past(home, f"s{number}", [("hello", "hello")])
        session = Talk(home)
        session.search("hello")
        session.close()
    said = [each.getMessage() for each in caplog.records if "sessions.db" in each.getMessage()]
    (line,) = said
    assert str(theirs) in line
    assert "hermes-plugins sessions import" in line


def test_an_empty_search_says_that_conversations_are_not_imported(
    theirs: Path, home: Path, tmp_path: Path, talk: StartTalk
) -> None:
    session = talk()
    for answer in (session.search("walrus"), session.call()):
        assert answer["results"] == []
        assert "2 conversations of hermes-agent" in answer["message"]
        assert "hermes-plugins sessions import" in answer["message"]
    machine = command(home, tmp_path)
    for arguments in (("search", "walrus"), ("list",), ("stats",)):
        assert machine.json("sessions", *arguments)["not_imported"] == 2
        assert "2 conversations" in machine.run("sessions", *arguments).err
    machine.run("sessions", "import").done()
    assert "imported" not in session.search("zorkmid")["message"]
    assert machine.json("sessions", "stats")["not_imported"] == 0
    at_their_archive(home, "db.append_message('t2', 'user', 'and an ocelot')")
    assert "1 conversations" in session.search("zorkmid")["message"]
    assert str(theirs)


@beside_each_release
def test_its_conversations_are_taken_over_whole(
    theirs: Path, home: Path, tmp_path: Path, talk: StartTalk
) -> None:
    machine = command(home, tmp_path)
    assert machine.json("sessions", "import") == {
        "schema": 1, "origin": "hermes-agent", "sessions": 2, "messages": 9, "known": 0,
        "skipped": 0, "problem": "",
    }  # fmt: skip
    assert machine.json("sessions", "import", str(theirs))["messages"] == 0
    shown = machine.json("sessions", "show", "t1")
    facts = shown["session"]
    assert (facts["source"], facts["user_id"], facts["chat_id"]) == ("cli", "ada", "c1")
    assert facts["title"] == "Walruses"
    assert facts["ended"]
    said = [(each["role"], each["content"]) for each in shown["messages"]]
    assert said[:2] == [("user", "the walrus sang"), ("assistant", "It did.")]
    assert said[5] == ("tool", "a gizmo")
    assert shown["messages"][5]["tool_name"] == "shell"
    assert shown["messages"][4]["tool_calls"][0]["function"]["name"] == "shell"
    other = machine.json("sessions", "show", "t2")
    assert other["session"]["parent"] == "t1"
    assert "what is this" in other["messages"][2]["content"]
    session = talk(user_id="ada")
    assert session.found("walrus") == ["t1"]
    assert session.found("gizmo", role_filter="tool") == ["t1"]
    assert talk(user_id="ada", chat_id="c1").found("walrus") == ["t1"]
    assert talk(user_id="bob").found("walrus") == []


def test_what_it_says_after_the_import_comes_with_the_next_and_once(
    theirs: Path, home: Path, tmp_path: Path, talk: StartTalk
) -> None:
    machine = command(home, tmp_path)
    machine.run("sessions", "import").done()
    at_their_archive(home, "talk('t2', ('an ocelot', 'Where?'), source='telegram')")
    assert machine.json("sessions", "import", str(theirs))["messages"] == 2
    assert machine.json("sessions", "import")["messages"] == 0
    assert machine.json("sessions", "show", "t2")["session"]["messages"] == 5
    assert talk().found("ocelot") == ["t2"]


@beside_each_release
def test_what_was_undone_there_is_not_taken_over_and_what_was_summed_up_is(
    home: Path, tmp_path: Path, talk: StartTalk, release: str
) -> None:
    at_their_archive(
        home,
        "ids = talk('u', ('keep the walrus', 'ok'), ('drop the ocelot', 'ok'))\n"
        "db.rewind_to_message('u', ids[2])\n"
        "talk('c', ('an old pelican', 'ok'))\n"
        "db.archive_and_compact('c', [{'role': 'user', 'content': 'in short: a bird'}])",
        release,
    )
    command(home, tmp_path).run("sessions", "import").done()
    session = talk()
    assert session.found("walrus") == ["u"]
    assert session.found("ocelot") == []
    assert session.found("pelican") == ["c"]
    assert session.found("short bird") == ["c"]


@pytest.mark.parametrize("release", ["0.20"], indirect=True)
def test_what_is_hidden_there_is_taken_over_only_on_request(
    home: Path, tmp_path: Path, talk: StartTalk, release: str
) -> None:
    source = "talk('open', ('a walrus', 'ok'))\ntalk('shut', ('an ocelot', 'ok'))\n"
    at_their_archive(home, f"{source}db.set_session_hidden('shut', True)", release)
    with closing(sqlite3.connect(home / "state.db")) as database:
        assert database.execute("SELECT version FROM schema_version").fetchone()[0] == 26
    machine = command(home, tmp_path)
    assert machine.json("sessions", "import")["sessions"] == 1
    session = talk()
    assert (session.found("walrus"), session.found("ocelot")) == (["open"], [])
    assert machine.json("sessions", "stats")["not_imported"] == 0
    assert machine.json("sessions", "import", "--hidden")["sessions"] == 1
    assert session.found("ocelot") == ["shut"]


def test_what_was_undone_there_is_not_missed(home: Path, tmp_path: Path, talk: StartTalk) -> None:
    at_their_archive(
        home,
        "ids = talk('u', ('keep the walrus', 'ok'), ('drop the ocelot', 'ok'))\n"
        "db.rewind_to_message('u', ids[2])",
    )
    machine = command(home, tmp_path)
    machine.run("sessions", "import").done()
    assert machine.json("sessions", "stats")["not_imported"] == 0
    assert "imported" not in talk().search("zorkmid")["message"]


def test_a_conversation_that_it_wrote_anew_is_not_stored_twice(home: Path, tmp_path: Path) -> None:
    at_their_archive(home, "talk('u', ('the walrus', 'ok'), ('an ocelot', 'ok'))")
    machine = command(home, tmp_path)
    machine.run("sessions", "import").done()
    at_their_archive(
        home,
        "said = db.get_messages_as_conversation('u')\n"
        "db.replace_messages('u', [*said, {'role': 'user', 'content': 'more'}])",
    )
    machine.run("sessions", "import").done()
    shown = machine.json("sessions", "show", "u")["messages"]
    assert [each["content"] for each in shown] == ["the walrus", "ok", "an ocelot", "ok", "more"]


def test_a_conversation_that_both_kept_is_not_missed(
    home: Path, tmp_path: Path, talk: StartTalk
) -> None:
    at_their_archive(home, "talk('both', ('the walrus', 'ok'))")
    past(home, "both", [("the walrus", "ok")])
    machine = command(home, tmp_path)
    machine.run("sessions", "import").done()
    assert machine.json("sessions", "stats")["not_imported"] == 0
    assert "imported" not in talk().search("zorkmid")["message"]


def test_both_write_at_the_same_time_and_neither_waits_for_the_other_in_vain(
    theirs: Path, home: Path, talk: StartTalk
) -> None:
    session = talk("ours")
    with closing(sqlite3.connect(theirs, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        session.say("our own kumquat")
        database.execute("ROLLBACK")
    assert talk().found("kumquat") == ["ours"]
    assert (home / "sessions.db").exists()


ASKED = """
turns = [(f"question{at} on topic{at}", f"answer{at} to that") for at in range(20)]
ids = talk("long", *turns)
db.set_session_title("long", "Quarterly llamas")
ask = lambda **given: json.loads(session_search(db=db, **given))
result = {
    "hit": ask(query="topic10"),
    "edge": ask(query="topic1"),
    "title": ask(query="Quarterly llamas"),
    "odd": ask(query="topic10", sort="Relevance", limit="many", role_filter=["user"]),
    "scroll": ask(session_id="long", around_message_id=ids[2], window="wide"),
    "read": ask(session_id="long"),
    "browse": ask(),
}
"""


@beside_each_release
def test_its_tool_and_ours_answer_alike(
    home: Path, tmp_path: Path, talk: StartTalk, release: str
) -> None:
    theirs = at_their_archive(home, ASKED, release)
    command(home, tmp_path).run("sessions", "import").done()
    session = talk()
    third = session.call(session_id="long")["messages"][2]["id"]
    ours = {
        "hit": session.search("topic10"),
        "edge": session.search("topic1"),
        "title": session.search("Quarterly llamas"),
        "odd": session.search("topic10", sort="Relevance", limit="many", role_filter=["user"]),
        "scroll": session.call(session_id="long", around_message_id=third, window="wide"),
        "read": session.call(session_id="long"),
        "browse": session.call(),
    }
    for name, answer in theirs.items():
        assert (name, sorted(set(answer) - set(ours[name]) - {"message"})) == (name, [])
        assert (name, ours[name].get("count")) == (name, answer.get("count", ours[name]["count"]))
        for mine, its in zip(ours[name].get("results", ()), answer.get("results", ()), strict=True):
            assert (name, sorted(set(its) - set(mine))) == (name, [])
            same = ("session_id", "matched_role", "messages_before", "messages_after", "title")
            assert [(key, mine.get(key)) for key in same] == [(key, its.get(key)) for key in same]
            said = [each["content"] for each in its.get("messages", ())]
            assert [each["content"] for each in mine.get("messages", ())] == said
    for key in ("messages_before", "messages_after", "window"):
        assert ours["scroll"][key] == theirs["scroll"][key]
    assert ours["read"]["truncated"] is theirs["read"]["truncated"] is True


# -- we were first ---------------------------------------------------------------------------------


def ours_only(home: Path) -> dict[str, Any]:
    """Our tables, as they are."""
    with closing(sqlite3.connect(f"{(home / 'state.db').as_uri()}?mode=ro", uri=True)) as database:
        return {
            name: database.execute(f"SELECT * FROM {name}").fetchall()
            for name in ("archive_sessions", "archive_messages", "archive_imports")
        }


def comes(home: Path, release: str) -> None:
    """Hermes-agent starts in a home of ours.

    Our views have the names of its tables, so it can't use the file the first time. They make
    room as soon as we open the file again.
    """
    first = run_at_their_archive(home, release=release)
    assert "views may not be indexed" in first.stderr
    with closing(SqliteArchive(home / "state.db")) as archive:
        archive.stats()


@beside_each_release
def test_hermes_agent_comes_to_a_home_of_ours_and_both_work(
    home: Path, tmp_path: Path, talk: StartTalk, release: str
) -> None:
    past(home, "ours", [("our own kumquat", "Noted.")])
    before = ours_only(home)
    comes(home, release)
    found = at_their_archive(home, f"{THEIRS}\nresult = search('walrus')['count']", release)
    assert found == 1
    assert ours_only(home) == before
    session = talk()
    assert session.found("kumquat") == ["ours"]
    assert "2 conversations of hermes-agent" in session.search("walrus")["message"]
    session.say("one more quince")
    session.close()
    machine = command(home, tmp_path)
    machine.run("sessions", "check").done()
    machine.run("sessions", "import").done()
    later = talk("later")
    assert talk("adas", user_id="ada").found("walrus") == ["t1"]
    assert later.found("quince") == ["now"]
    result = at_their_archive(
        home,
        "talk('t3', ('an ocelot', 'Where?'))\n"
        "result = [search(word)['count'] for word in ('walrus', 'ocelot', 'quince')]",
        release,
    )
    assert result == [1, 1, 0]
    assert later.found("kumquat") == ["ours"]
    assert machine.json("sessions", "import")["messages"] == 2
    machine.run("sessions", "check").done()


def test_what_we_forget_leaves_hermes_agents_conversations_in_a_home_of_ours(
    home: Path, tmp_path: Path
) -> None:
    past(home, "ours", [("our own kumquat", "Noted.")], user_id="ada")
    comes(home, "0.19")
    at_their_archive(home, THEIRS)
    machine = command(home, tmp_path)
    machine.run("sessions", "forget", "--user", "ada", "--yes").done()
    machine.run("sessions", "repair").done()
    assert machine.json("sessions", "stats")["sessions"] == 0
    counts = "result = [search(word)['count'] for word in ('walrus', 'pelican')]"
    assert at_their_archive(home, counts) == [1, 1]


def test_a_running_session_of_ours_goes_on_while_hermes_agent_comes(
    home: Path, talk: StartTalk
) -> None:
    session = talk("ours")
    session.say("before the walrus")
    comes(home, "0.19")
    at_their_archive(home, THEIRS)
    session.say("after the kumquat")
    later = talk("later")
    assert later.found("kumquat") == ["ours"]
    assert json.loads(later.raw(session_id="ours"))["count"] == 4
