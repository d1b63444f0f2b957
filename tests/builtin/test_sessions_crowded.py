"""Where there is much that may not be shown, what may be shown is still found."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.archives import open_archive
from support.talks import StartTalk, talks

from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_builtin.sessions.sqlite.search import SqliteSource

pytestmark = pytest.mark.usefixtures("both_storages")

MANY = 6000  # more than a search looks at one by one


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    yield from talks(home)


def crowd(home: Path, sessions: int, text: str, at: float = 2e9, **facts: str) -> None:
    """Many messages that say the same, in some sessions."""
    with closing(open_archive(home)) as archive:
        for number in range(sessions):
            parent = f"crowd-{number - 1}" if facts.get("parent") and number else ""
            given = {"profile": "default", "source": "cli", **facts, "parent": parent}
            messages = [NewMessage("user", text, at + number)] * (MANY // sessions)
            archive.append(SessionFacts(f"crowd-{number}", started=at, **given), messages)


def one(home: Path, name: str, text: str, at: float = 1e9, **facts: str) -> None:
    with closing(open_archive(home)) as archive:
        given = {"profile": "default", "source": "cli", **facts}
        archive.append(SessionFacts(name, started=at, **given), [NewMessage("user", text, at)])


@pytest.mark.parametrize(
    "query", ["banana before:2010", "banana cherry before:2010", "bana* before:2010"]
)
def test_a_frequent_word_is_found_in_a_time_long_ago(
    query: str, home: Path, talk: StartTalk
) -> None:
    crowd(home, 100, "banana")
    one(home, "old", "the banana of old")
    assert talk().found(query) == ["old"]


def test_ones_own_long_lineage_hides_nobody_else(home: Path, talk: StartTalk) -> None:
    crowd(home, 30, "banana", parent="yes")
    one(home, "other", "our banana plan")
    here = talk("now", parent_session_id="crowd-29")
    assert here.found("banana") == ["other"]


def test_a_lineage_of_hundreds_of_sessions_is_one(home: Path, talk: StartTalk) -> None:
    crowd(home, 300, "walrus", parent="yes")
    assert len(talk().found("walrus", limit=10)) == 1
    assert talk("next", parent_session_id="crowd-299").found("walrus") == []


def test_cron_jobs_do_not_crowd_out_what_people_said(home: Path, talk: StartTalk) -> None:
    crowd(home, 350, "the banana report, banana by banana", source="cron")
    one(home, "people", "our banana plan")
    assert talk().found("banana")[0] == "people"


def test_a_phrase_is_found_behind_many_of_others(home: Path, talk: StartTalk) -> None:
    crowd(home, 60, "morning is good", user_id="alice")
    one(home, "bobs", "good morning dear", user_id="bob")
    answer = talk(user_id="bob").search('"good morning"')
    assert [each["session_id"] for each in answer["results"]] == ["bobs"]
    assert "Nothing" not in answer.get("message", "")


def test_a_new_session_does_not_continue_the_one_before_it(talk: StartTalk) -> None:
    running = talk("monday")
    running.say("The password of the printer is hunter2.")
    running.manager.on_session_switch("tuesday", parent_session_id="monday", reset=True)
    assert running.found("printer password") == ["monday"]


def test_a_resumed_session_does_not_continue_the_one_that_was_left(talk: StartTalk) -> None:
    running = talk("monday")
    running.say("We talked of lemurs.")
    running.manager.on_session_switch("friday", parent_session_id="monday", reset=True)
    running.say("And of axolotls.")
    running.manager.on_session_switch("monday", parent_session_id="friday", reason="resume")
    assert running.found("axolotls") == ["friday"]


def test_a_compressed_session_does_continue_the_one_before_it(talk: StartTalk) -> None:
    running = talk("long")
    running.say("We talked of lemurs.")
    running.manager.on_session_switch("longer", parent_session_id="long", reason="compression")
    assert running.found("lemurs") == []


def test_tool_calls_before_a_message_of_the_host_are_kept(talk: StartTalk) -> None:
    messages = [
        {"role": "user", "content": "Find the thing."},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look"}}]},
        {"role": "tool", "content": "gizmo output"},
        {"role": "user", "content": "[continue where you left off]"},
        {"role": "assistant", "content": "Here it is.\n"},
    ]
    talk("one").say("Find the thing.", "Here it is.", messages=messages)
    read = talk("two").call(session_id="one")["messages"]
    assert [each["role"] for each in read] == ["user", "assistant", "tool", "user", "assistant"]


def test_who_has_a_name_that_is_taken_ends_and_reads_his_own(home: Path, talk: StartTalk) -> None:
    alice, bob = talk("s1", user_id="alice"), talk("s1", user_id="bob")
    alice.say("zebra")
    bob.say("giraffe")
    bob.manager.on_session_end([{"role": "user", "content": "giraffe"}])
    with closing(open_archive(home)) as archive:
        ended = {each.user_id: each.ended is not None for each in archive.sessions()}
    assert ended == {"alice": False, "bob": True}
    assert bob.call(session_id="s1")["messages"][0]["content"] == "giraffe"


def test_who_a_later_call_is_for_is_heeded(talk: StartTalk) -> None:
    running = talk("s1", user_id="alice")
    running.say("zebra")
    running.manager.on_session_switch("s2", reset=True)
    answer = running.manager.handle_tool_call("session_search", {"query": "zebra"}, user_id="bob")
    assert '"count": 0' in answer


@pytest.mark.files_only
@pytest.mark.parametrize("many", [2, 300])
@pytest.mark.parametrize("limit", [None, 5])
def test_sessions_read_together_have_the_result_of_each(tmp_path, many, limit):
    """Also if they have more matches than are read at once."""
    with closing(SqliteArchive(tmp_path / "state.db")) as archive:
        for session in range(30):
            at = session * 1000.0
            said = [NewMessage("user", "zebra", at + n) for n in range(session % 3 * many)]
            said.append(NewMessage("user", "nothing", at + 999))
            archive.append(SessionFacts(f"s{session}", "cli", started=at), said)
        archive.index_pending()
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        source = SqliteSource(database)
        sessions = [*range(30, 10, -1), *range(5, 0, -1)]
        (together,) = source.within([("zebra",)], sessions, limit)
        alone = [source.within([("zebra",)], [each], limit)[0] for each in sessions]
    assert together == [number for each in alone for number in each]
    assert together
