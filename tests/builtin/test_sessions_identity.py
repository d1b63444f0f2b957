"""Who is who in the archive: the full identity decides, never a name, a title or a checksum."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from support.archives import assert_sound, open_archive
from support.talks import StartTalk, Talk, past, talks, texts

from hermes_builtin.sessions.archive import NewMessage, Scope, SessionFacts
from hermes_builtin.sessions.conversations import archived_turns, sessions_since
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_builtin.sessions.sqlite.database import ARCHIVE
from hermes_core.session import identity_from, identity_text
from hermes_core.storage.sqlite_connection import open_database

pytestmark = pytest.mark.usefixtures("both_storages")


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    yield from talks(home)


def said(home: Path, session: str, **facts: Any) -> list[str]:
    """What somebody reads of a session."""
    talk = Talk(home, "asking", **facts)
    answer = talk.ask(session_id=session)
    talk.close()
    return texts(answer["messages"]) if answer["success"] else []


# -- sessions of the same name ---------------------------------------------------------------------


def old_checksum(user: str) -> int:
    return crc32(f"{user}\0\0default".encode())


#: Two users whose 32-bit checksums are equal, as among 80,000 users they are.
COLLIDING = ("1fdc0ee9", "5fb19e8e")


def test_two_users_with_the_same_checksum_have_each_their_own_conversation(home: Path) -> None:
    one, other = COLLIDING
    assert old_checksum(one) == old_checksum(other)
    past(home, "chat", [("the first has the name", "ok")], user_id="somebody")
    past(home, "chat", [("a kumquat", "ok")], user_id=one)
    past(home, "chat", [("an apple", "ok")], user_id=other)
    assert said(home, "chat", user_id=one) == ["a kumquat", "ok"]
    assert said(home, "chat", user_id=other) == ["an apple", "ok"]
    assert said(home, "chat", user_id="somebody") == ["the first has the name", "ok"]


def test_a_name_that_looks_like_the_id_of_somebody_elses_session_routes_no_turn(
    home: Path, talk: StartTalk
) -> None:
    """An attacker names a session as the archive would name the victim's."""
    past(home, "chat", [("first", "ok")], user_id="somebody")
    past(home, "probe", [("first", "ok")], user_id="somebody")
    past(home, "probe", [("what is mine called?", "ok")], user_id="victim")
    (mine,) = talk(user_id="victim").call()["results"]
    for name in (mine["session_id"].replace("probe", "chat"), f"chat@{old_checksum('victim'):08x}"):
        past(home, name, [("a trap", "ok")], user_id="attacker")
        past(home, f"{name}-1", [("a trap", "ok")], user_id="attacker")
    past(home, "chat", [("the password is apple", "ok")], user_id="victim")
    past(home, "chat", [("and the pin is plum", "ok")], user_id="victim")
    theirs = ["the password is apple", "ok", "and the pin is plum", "ok"]
    assert said(home, "chat", user_id="victim") == theirs
    assert talk(user_id="attacker").found("apple") == []
    (result,) = talk(user_id="victim").search("apple")["results"]
    assert said(home, result["session_id"], user_id="victim") == theirs
    assert said(home, result["link"], user_id="victim") == theirs
    assert said(home, result["link"], user_id="attacker") == []


def test_the_same_name_on_two_platforms_and_in_two_chats(home: Path) -> None:
    people: list[dict[str, Any]] = [
        {"platform": platform, "user_id": "1001", "chat_id": chat}
        for platform in ("telegram", "discord")
        for chat in ("c1", "c2")
    ]
    for number, facts in enumerate(people):
        past(home, "chat", [(f"word{number}", "ok")], **facts)
    for number, facts in enumerate(people):
        past(home, "chat", [(f"again{number}", "ok")], **facts)
        assert said(home, "chat", **facts) == [f"word{number}", "ok", f"again{number}", "ok"]


def test_the_session_that_asks_is_left_out_though_its_name_was_taken(
    home: Path, talk: StartTalk
) -> None:
    past(home, "chat", [("a kumquat", "ok")], user_id="bob")
    past(home, "old", [("a kumquat long ago", "ok")], user_id="alice")
    session = talk("chat", user_id="alice")
    session.say("a kumquat now")
    assert session.found("kumquat") == ["old"]
    assert [each["session_id"] for each in session.call()["results"]] == ["old"]


def test_a_title_of_somebody_else_finds_and_names_nothing(home: Path, talk: StartTalk) -> None:
    past(home, "s1", [("a kumquat", "ok")], user_id="bob", session_title="Plans")
    past(home, "s2", [("an apple", "ok")], user_id="alice", session_title="Plans")
    assert talk(user_id="alice").found("plans") == ["s2"]
    talk(user_id="alice").refused(session_id="Plans")
    past(home, "Plans", [("a plum", "ok")], user_id="alice")
    assert said(home, "s1", user_id="bob") == ["a kumquat", "ok"]


def test_a_parent_of_somebody_else_tells_nothing_of_its_lineage(
    home: Path, talk: StartTalk
) -> None:
    past(home, "bobs-secret-root", [("a kumquat", "ok")], user_id="bob")
    past(home, "bobs", [("a plum", "ok")], user_id="bob", parent_session_id="bobs-secret-root")
    past(home, "hers", [("an apple", "ok")], user_id="alice", parent_session_id="bobs")
    assert "bobs-secret-root" not in talk(user_id="alice").raw(query="apple")
    (plum,) = talk(user_id="bob").search("plum")["results"]
    assert plum["parent_session_id"] == "bobs-secret-root"


def test_a_lineage_goes_on_though_its_names_were_taken(home: Path, talk: StartTalk) -> None:
    for user in ("bob", "alice"):
        past(home, "one", [(f"a kumquat of {user}", "ok")], user_id=user)
        past(home, "two", [(f"a kumquat of {user}", "ok")], user_id=user, parent_session_id="one")
    (result,) = talk(user_id="alice").search("kumquat")["results"]
    assert result["parent_session_id"].startswith("one@")
    assert said(home, result["parent_session_id"], user_id="alice")[0] == "a kumquat of alice"


def test_the_host_names_the_person_of_a_call(home: Path, talk: StartTalk) -> None:
    past(home, "hers", [("a kumquat", "ok")], user_id="1", platform="telegram")
    session = talk(user_id="1", platform="discord")

    def ask(**context: Any) -> int:
        answer = session.manager.handle_tool_call("session_search", {"query": "kumquat"}, **context)
        found: int = json.loads(answer)["count"]
        return found

    assert ask() == 0
    assert ask(platform="telegram") == 1
    assert ask(platform="telegram", user_id="") == 0
    assert ask(user_id="") == 0


def test_turns_for_the_outbox_are_those_of_the_person(home: Path) -> None:
    people: list[dict[str, Any]] = [
        {"platform": "telegram", "user_id": "1"},
        {"platform": "discord", "user_id": "1"},
        {"platform": "discord", "user_id": "\ud800"},
        {"platform": "discord", "user_id": "\ufffd"},
    ]
    for number, facts in enumerate(people):
        past(home, "chat", [(f"word{number}", "ok")], **facts)
    for number, facts in enumerate(people):
        keywords = {**facts, "agent_identity": "default"}
        (turn,) = archived_turns(home, "chat", keywords)
        assert turn["user_content"] == f"word{number}"
    found = {next(each.turns())["user_content"]: each for each in sessions_since(home, 0)}
    for number, facts in enumerate(people):
        session = found[f"word{number}"]
        assert session.session == "chat"
        assert session.keywords == {**facts, "agent_identity": "default"}


# -- archives from before --------------------------------------------------------------------------

#: What a process of version 0.1.0 executes for a new session, with its 13 columns.
OLD_INSERT = (
    "INSERT INTO archive_sessions (id, source, user_id, chat_id, profile, title, parent, started,"
    " ended, active, messages, next, checksum)"
    " VALUES (?, ?, ?, ?, 'default', '', '', 1.0, NULL, 1.0, 1, 1, ?)"
)
OLD = [
    ("terminal", "cli", "", ""), ("nowhere", "", "", ""), ("chatgpt-1", "chatgpt", "", ""),
    ("night", "cron", "", ""), ("t", "telegram", "1001", ""), ("d", "discord", "1001", ""),
    ("bobs-cron", "cron", "bob", ""), ("bobs", "telegram", "bob", ""),
    ("bobs-import", "claude", "bob", ""), ("whose", "cron", "1001", ""),
    ("group", "telegram", "", "c1"), (f"t@{old_checksum('eve'):08x}", "slack", "eve", ""),
]  # fmt: skip


def old_archive(home: Path) -> sqlite3.Connection:
    """An archive of version 0.1.0, still open in the process that made it."""
    path = home / "state.db"
    database = open_database(path, replace(ARCHIVE, additions={}))
    for row in OLD:
        old_session(database, *row)
    return database


def old_session(database: sqlite3.Connection, name: str, source: str, user: str, chat: str) -> None:
    facts = "\0".join(map(str, (name, source, user, chat, "default", "", "", 1.0)))
    number = database.execute(
        OLD_INSERT, (name, source, user, chat, crc32(facts.encode()))
    ).lastrowid
    identifier = (number or 0) << 22
    content = f"a kumquat in {name}"
    check = crc32(f"{identifier}\0{1.0!r}\0{content}\0".encode())
    database.execute(
        "INSERT INTO archive_messages VALUES (?, 1.0, ?, ?, ?, NULL)",
        (identifier, len(content), check, content),
    )
    database.execute("INSERT INTO archive_unindexed VALUES (?, ?)", (number, identifier))


def found_by(home: Path, **facts: Any) -> set[str]:
    talk = Talk(home, "asking", **facts)
    found = set(talk.found("kumquat", limit=10))
    talk.close()
    return found


@pytest.mark.files_only
def test_an_old_archive_is_found_by_those_whose_it_is(home: Path) -> None:
    old_archive(home).close()
    assert found_by(home) == {"terminal", "nowhere", "chatgpt-1", "night", "group"}
    assert found_by(home, platform="telegram", user_id="1001") == {"t"}
    assert found_by(home, platform="discord", user_id="1001") == {"d"}
    bobs = {"bobs", "bobs-cron", "bobs-import"}
    assert found_by(home, platform="telegram", user_id="bob") == bobs
    assert found_by(home, platform="discord", user_id="bob") == set()
    assert found_by(home, platform="telegram", chat_id="c1") == {"group"}
    assert_sound(home / "state.db")
    past(home, "t", [("more", "ok")], platform="telegram", user_id="1001")
    past(home, "t", [("more", "ok")], platform="slack", user_id="eve")
    telegram, slack = ({"platform": name} for name in ("telegram", "slack"))
    assert len(said(home, "t", user_id="1001", **telegram)) == 3
    assert said(home, "t", user_id="eve", **slack)[0].startswith("a kumquat in t@")


@pytest.mark.files_only
def test_an_old_process_goes_on_and_may_open_the_archive_again(home: Path) -> None:
    with closing(old_archive(home)) as before:
        past(home, "new", [("a kumquat", "ok")], platform="telegram", user_id="1001")
        old_session(before, "later", "telegram", "1001", "")
        with closing(open_database(home / "state.db", replace(ARCHIVE, additions={}))) as again:
            old_session(again, "again", "telegram", "1001", "")
            old_session(again, "terminal-again", "cli", "", "")
    assert found_by(home, platform="telegram", user_id="1001") == {"t", "new", "later", "again"}
    assert "terminal-again" in found_by(home)
    assert_sound(home / "state.db")


@pytest.mark.files_only
def test_a_repaired_archive_has_the_same_owners(home: Path) -> None:
    path = home / "state.db"
    for platform in ("telegram", "discord"):
        past(home, "chat", [("a kumquat", "ok")], platform=platform, user_id="1", chat_id="c")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE archive_messages SET content = content || '!' WHERE id & 3 = 1")
        database.commit()
    with closing(SqliteArchive(path)) as archive:
        assert archive.check()
        archive.repair()
    for platform in ("telegram", "discord"):
        facts = {"platform": platform, "user_id": "1", "chat_id": "c"}
        past(home, "chat", [("a plum", "ok")], **facts)
        assert said(home, "chat", **facts) == ["a kumquat", "ok!", "a plum", "ok"]


# -- for any two people ----------------------------------------------------------------------------

IDS = st.text(st.sampled_from("aA1 @/:-\0\n\u00e9\u0301e\ud800\udc00\ufffdfd8"), max_size=4)
PLATFORMS = st.sampled_from(["cli", "telegram", "Telegram", "discord", "cron", ""])
PEOPLE = st.tuples(PLATFORMS, IDS, st.one_of(st.just(""), IDS))


@given(one=IDS, other=IDS)
def test_ids_are_stored_so_that_different_ones_stay_different(one: str, other: str) -> None:
    assert identity_from(identity_text(one)) == one
    assert (identity_text(one) == identity_text(other)) == (one == other)
    identity_text(one).encode()


def is_terminal(person: tuple[str, str, str]) -> bool:
    return person[0] in ("", "cli") and not person[1]


def may_see(one: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    """The rule in one place: the same user, or for the terminal, nobody in particular."""
    if is_terminal(one) and not other[1]:
        return one[2] in ("", other[2])
    same_user = (one[0] or "cli", one[1]) == (other[0] or "cli", other[1])
    return same_user and (one[2] == other[2] or bool(one[1] and not one[2]))


@settings(suppress_health_check=list(HealthCheck))
@example(one=("cli", "", ""), other=("telegram", "", ""), name="same")
@given(one=PEOPLE, other=PEOPLE, name=st.sampled_from(["same", "s@1", "@session:default/x"]))
def test_nothing_that_one_said_reaches_another(
    one: tuple[str, str, str],
    other: tuple[str, str, str],
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    assume(not may_see(other, one))
    home = tmp_path_factory.mktemp("home")
    keys = ("platform", "user_id", "chat_id")
    mine, theirs = dict(zip(keys, one, strict=True)), dict(zip(keys, other, strict=True))
    past(home, name, [("my secret kumquat", "ok")], session_title="Kumquats", **mine)
    past(home, name, [("an apple", "ok")], **theirs)
    owner, stranger = Talk(home, "a", **mine), Talk(home, "b", **theirs)
    try:
        (result,) = owner.search("kumquat")["results"]
        number = result["match_message_id"]
        shown = [
            stranger.raw(query="kumquat"), stranger.raw(query="kumquats"), stranger.raw(),
            stranger.raw(query='"secret kumquat"', sort="newest"), stranger.raw(session_id=name),
            stranger.raw(session_id=result["session_id"]),
            stranger.raw(session_id=result["link"]),
            stranger.raw(session_id=name, around_message_id=number),
            stranger.raw(session_id=result["session_id"], around_message_id=number),
        ]  # fmt: skip
        for answer in shown:
            assert "secret" not in answer.replace('"query": "\\"secret kumquat\\""', "")
        # Resumed: under its name, and under the id that the archive shows.
        for resumed in (name, result["session_id"]):
            stranger.manager.on_session_switch(resumed, reason="resume")
            stranger.say("a stranger's plum")
        # The terminal sees what nobody in particular said, wherever that was.
        assert may_see(one, other) or owner.found("plum") == []
        assert texts(owner.call(session_id=name)["messages"]) == ["my secret kumquat", "ok"]
    finally:
        owner.close()
        stranger.close()


def test_a_scope_of_nobody_is_not_the_scope_of_everybody(home: Path) -> None:
    with closing(open_archive(home)) as archive:
        archive.append(SessionFacts("s", "telegram", "bob"), [NewMessage("user", "hello", 1.0)])
        assert archive.session("s", Scope.of("telegram", "", "", "")) is None
        assert archive.session("s", Scope.of("cli", "", "", "")) is None
        assert archive.session("s", Scope.of("telegram", "bob", "", "")) is not None
        assert archive.people() == [("telegram", "bob")]
