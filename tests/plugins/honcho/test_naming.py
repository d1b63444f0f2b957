"""Who is who in Honcho."""

import os
import string
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.service import SessionStart
from hermes_memory_honcho.names import ALPHABET, Names, repository
from hermes_memory_honcho.settings import HonchoSettings

HERE = Path("/work/app")


def names(folder: Path = HERE, start: dict | None = None, /, **values) -> Names:
    known = HonchoSettings(
        **({"workspace": "hermes", "ai_peer": "hermes", "address": "x"} | values)
    )
    with TemporaryDirectory() as home:
        made = Names(known, SessionStart("s1", Path(home), **(start or {})), folder)
        made.place("s1")  # it asks the home once
        return made


@pytest.mark.parametrize(
    ("strategy", "session"),
    [("per-directory", "app"), ("per-session", "s1"), ("global", "hermes"), ("per-repo", "app")],
)
def test_a_session_is_called_by_the_strategy(strategy: str, session: str):
    assert names(session_strategy=strategy).place("s1").session == session


def test_a_repository_is_found_above_the_folder(tmp_path: Path):
    (tmp_path / "code" / ".git").mkdir(parents=True)
    below = tmp_path / "code" / "src" / "deep"
    below.mkdir(parents=True)
    assert repository(below) == tmp_path / "code"
    assert names(below, session_strategy="per-repo").place("s1").session == "code"
    assert names(below, session_strategy="per-directory").place("s1").session == "deep"


def test_a_chat_of_a_gateway_counts_more_than_strategy_title_and_map():
    start = {"gateway_session_key": "telegram-7", "session_title": "Title"}
    made = names(HERE, start, sessions={str(HERE): "mine"}, session_strategy="global")
    assert made.place("s1").session == "telegram-7"


def test_a_mapped_folder_counts_more_than_a_title_and_a_title_more_than_the_folder():
    titled = {"session_title": "refactor"}
    assert names(HERE, titled, sessions={str(HERE): "mine"}).place("s1").session == "mine"
    assert names(HERE, titled).place("s1").session == "refactor"


def test_a_person_at_a_terminal_has_the_name_of_the_settings():
    assert names(peer_name="alice").user == "alice"
    assert names().user == "user-default-app"
    assert names(session_strategy="per-session").user == "user-default"


@pytest.mark.parametrize("platform", ["tui", "desktop", "acp"])
def test_the_other_interfaces_of_the_machine_are_the_same_person(platform: str):
    made = names(HERE, {"platform": platform}, peer_name="alice")
    assert made.place("s1") == names(peer_name="alice").place("s1")
    assert not made.is_shared
    assert names(HERE, {"platform": platform, "user_id": "7"}, peer_name="alice").user == "7"


def test_people_of_a_gateway_have_their_own_id_an_alias_or_a_prefix():
    known = {"user_id": "7654321", "user_id_alt": "@al"}
    assert names(HERE, known, peer_name="alice").user == "7654321"
    assert names(HERE, known, user_peer_aliases={"@al": "alice"}).user == "alice"
    assert names(HERE, known, runtime_peer_prefix="tg_").user == "tg_7654321"
    assert names(HERE, known, peer_name="alice", pin_user_peer=True).user == "alice"


def test_with_a_prefix_nobody_is_taken_for_a_person_with_a_name():
    made = names(HERE, {"user_id": "1"}, runtime_peer_prefix="alice", peer_name="alice1")
    assert made.user != "alice1"


def test_a_person_is_never_the_agent():
    made = names(HERE, {"user_id": "hermes"})
    assert made.user != made.ai


def test_two_people_in_one_folder_have_two_sessions():
    one, other = (names(HERE, {"user_id": each}).place("s1").session for each in ("a", "b"))
    assert one != other


def test_who_has_only_another_id_does_not_share_the_terminals_session():
    made = names(HERE, {"platform": "signal", "user_id_alt": "+49 1"}, peer_name="alice")
    assert made.is_shared
    assert made.place("s1").session != names(peer_name="alice").place("s1").session


def test_a_folder_called_like_somebody_elses_session_is_another_session():
    of_bob = names(HERE, {"platform": "slack", "user_id": "bob"}).place("s1").session
    assert names(Path("/work/bob-app"), peer_name="alice").place("s1").session != of_bob
    assert of_bob.startswith("bob-app-")


def test_names_that_are_no_unicode_are_names_too(tmp_path: Path):
    odd = tmp_path / "caf\udce9"
    assert ALPHABET.takes(names(odd).place("s1").session)
    assert ALPHABET.takes(names(HERE, {"user_id": "bob\ud800"}).user)


@pytest.mark.scaled
@settings(deadline=None, max_examples=100 if os.environ.get("HERMES_STRESS") else 25)
@given(
    st.lists(st.text(string.printable + "äß世", min_size=1), min_size=2, max_size=8, unique=True),
    st.sampled_from(["user_id", "gateway_session_key", "session_title"]),
)
def test_two_ids_never_become_one_and_all_fit(ids: list[str], what: str):
    made = [names(HERE, {what: each}) for each in ids]
    places = {each.user if what == "user_id" else each.place("s1").session for each in made}
    assert len(places) == len(ids)
    assert all(ALPHABET.takes(each) for each in places)
    assert all(ALPHABET.takes(each.place("s1").session) for each in made)


def test_a_prefixed_session_can_not_be_another_ones():
    def session(peer: str, title: str) -> str:
        start = {"session_title": title}
        made = names(HERE, start, peer_name=peer, session_peer_prefix=True)
        return made.place("s1").session

    assert session("alice", "app") == "alice-app"
    assert session("a-b", "c") != session("a", "b-c")


def test_two_folders_of_one_name_have_two_sessions_and_keep_them(home: Path):
    def session(folder: str) -> str:
        known = HonchoSettings("hermes", "hermes", "x")
        return Names(known, SessionStart("s1", home), Path(folder)).place("s1").session

    first, second = session("/work/app"), session("/play/app")
    assert first == "app"
    assert second != "app"
    assert ALPHABET.takes(second)
    assert (session("/work/app"), session("/play/app")) == (first, second)


def of_home(home: Path, start: dict, **values) -> Names:
    known = HonchoSettings(
        **({"workspace": "hermes", "ai_peer": "hermes", "address": "x"} | values)
    )
    return Names(known, SessionStart("s1", home, **start), HERE)


def test_an_alias_is_for_one_person(tmp_path: Path):
    aliases = {"7": "eri", "slack:9": "kim"}
    telegram, discord = (
        of_home(tmp_path, {"platform": name, "user_id": "7"}, user_peer_aliases=aliases).user
        for name in ("telegram", "discord")
    )
    assert telegram == "eri"
    assert discord not in ("eri", "7-eri")
    nine = [
        of_home(tmp_path, {"platform": name, "user_id": "9"}, user_peer_aliases=aliases).user
        for name in ("slack", "discord")
    ]
    assert nine[0] == "kim"
    assert nine[1] != "kim"


def test_an_id_that_reads_like_a_user_of_another_platform_has_not_their_alias(tmp_path: Path):
    def user(platform: str, user_id: str) -> str:
        start = {"platform": platform, "user_id": user_id}
        return of_home(tmp_path, start, user_peer_aliases=aliases).user

    aliases = {"telegram:1001": "eri", "7": "kim", "@bob:example.org": "bob"}
    assert user("webhook", "telegram:1001") != "eri"
    assert user("telegram", "1001") == "eri"
    assert user("webhook", "alias/7") != "kim"  # nor does it keep somebody from theirs
    assert user("telegram", "7") == "kim"
    assert user("matrix", "@bob:example.org") == "bob"


def test_an_id_with_a_platform_in_it_is_nobody_of_that_platform(tmp_path: Path):
    people = [("discord", "telegram\x007"), ("discord", "7"), ("telegram", "7")]
    made = {of_home(tmp_path, {"platform": on, "user_id": each}).user for on, each in people}
    assert len(made) == len(people)
    chats = [{"chat_id": "a\0b"}, {"chat_id": "a", "thread_id": "b"}]
    places = {of_home(tmp_path, {"platform": "irc", **each}).place("s").session for each in chats}
    assert len(places) == len(chats)


@pytest.mark.parametrize("key", ["app", "hermes", "My title", "agent:main:telegram:dm:8"])
def test_a_key_that_a_client_chose_opens_no_session_of_anybody_else(key: str, tmp_path: Path):
    def session(**start: str) -> str:
        return of_home(tmp_path, start, peer_name="ann").place("s1").session

    others = {
        session(),
        session(session_title="My title"),
        session(platform="telegram", user_id="8", gateway_session_key="agent:main:telegram:dm:8"),
        session(platform="discord", user_id="1", gateway_session_key=key),
        of_home(tmp_path, {}, session_strategy="global").place("s1").session,
    }
    mine = session(platform="api_server", user_id="1", gateway_session_key=key)
    assert mine not in others
    assert mine == session(platform="api_server", user_id="2", gateway_session_key=key)


@pytest.mark.parametrize("strategy", ["per-directory", "per-session", "global", "per-repo"])
def test_no_two_people_share_a_session_without_a_chat(strategy: str, tmp_path: Path):
    people = [
        {"platform": "telegram", "user_id": "1", "session_title": "Plans"},
        {"platform": "telegram", "user_id": "2", "session_title": "Plans"},
        {"platform": "discord", "user_id": "1", "session_title": "Plans"},
        {"platform": "telegram", "session_title": "Plans"},
        {"platform": "discord", "session_title": "Plans"},
        {"session_title": "Plans"},
    ]
    made = [of_home(tmp_path, each, session_strategy=strategy, peer_name="ann") for each in people]
    assert len({each.place("same").session for each in made}) == len(people)
    assert len({each.user for each in made}) == len(people)
    assert made[-1].user == "ann"
    assert [each.is_shared for each in made] == [True] * 5 + [False]


PLATFORMS = st.sampled_from(["cli", "telegram", "Telegram", "a\0b"])
IDS = st.text(st.sampled_from("aA1 @/*\0\n'-_é\u0301e\ud800\ud801\ufffd"), max_size=4)
PEOPLE = st.tuples(PLATFORMS, IDS)


@settings(deadline=None)
@given(PEOPLE, PEOPLE, st.sampled_from(["", "ann"]))
def test_two_people_are_never_one_peer(one, other, peer_name):
    with TemporaryDirectory() as home:
        made = [
            of_home(Path(home), {"platform": platform, "user_id": user}, peer_name=peer_name)
            for platform, user in (one, other)
        ]
        assert (made[0].user == made[1].user) == (one == other)
        assert (made[0].place("s").session == made[1].place("s").session) == (one == other)


def test_folders_of_one_name_that_start_together_share_no_session(home: Path):
    known = HonchoSettings("hermes", "hermes", "x")
    start = threading.Barrier(8)

    def session(number: int) -> str:
        folder = Path(f"/work/{number}/app")
        start.wait()
        return Names(known, SessionStart("s1", home), folder).place("s1").session

    with ThreadPoolExecutor(8) as pool:
        sessions = list(pool.map(session, range(8)))
    assert len(set(sessions)) == 8
    assert "app" in sessions
