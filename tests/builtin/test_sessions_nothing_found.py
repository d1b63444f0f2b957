"""Nothing is said to be absent that is there; what is there once is found; errors are errors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.archives import open_archive
from support.talks import StartTalk, Talk, past, talks

from hermes_builtin.sessions.archive import NewMessage, SessionFacts

STRESS = bool(os.environ.get("HERMES_STRESS"))
ABSENT = "No conversation that was searched has these words."


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    yield from talks(home)


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    """A session on a home with a few conversations."""
    home = tmp_path_factory.mktemp("archived")
    past(home, "a", [("the walrus\x00 OR NOT", "“quoted” 'text' 100%"), ("c#", "東京 Docker部署")])
    past(home, "b", [("\U0001f984 🎉", "-- /* */ ;"), ("role:user after:7d", "x*")])
    session = Talk(home)
    yield session
    session.close()


# -- why ----------------------------------------------------------------------------------------


def why(answer: dict) -> str:
    assert (answer["results"], answer["count"]) == ([], 0)
    message: str = answer["message"]
    return message


def test_what_is_nowhere_is_said_to_be_nowhere(home: Path, talk: StartTalk) -> None:
    past(home, "it", [("a pelican", "ok")])
    assert why(talk().search("walrus")) == ABSENT


def test_what_only_tools_said_is_said_to_be_there(home: Path, talk: StartTalk) -> None:
    session = talk("it")
    said = [{"role": "user", "content": "go"}, {"role": "tool", "content": "a walrus"}]
    session.say("go", "done", messages=said)
    message = why(talk().search("walrus"))
    assert "role_filter" in message
    assert ABSENT not in message
    assert "role_filter" in why(talk().search("walrus", role_filter="user"))
    assert talk().found("walrus", role_filter="user,assistant,tool") == ["it"]


def test_what_the_wrong_role_said_is_said_to_be_there(home: Path, talk: StartTalk) -> None:
    past(home, "it", [("a pelican", "a walrus")])
    assert "role_filter" in why(talk().search("walrus", role_filter="user"))
    assert "role" in why(talk().search("role:user walrus"))


def test_what_only_subagents_said_is_said_to_be_there(home: Path, talk: StartTalk) -> None:
    past(home, "it", [("a walrus", "ok")], agent_context="subagent")
    assert "subagents" in why(talk().search("walrus"))


def test_what_was_said_in_this_conversation_is_said_to_be_here(talk: StartTalk) -> None:
    session = talk()
    session.say("a walrus")
    assert "this conversation" in why(session.search("walrus"))


def test_what_was_said_at_another_time_is_said_to_be_there(home: Path, talk: StartTalk) -> None:
    past(home, "it", [("a walrus", "ok")])
    assert "none in that time" in why(talk().search("walrus before:2020"))


@pytest.mark.files_only
def test_an_archive_that_can_not_be_read_is_an_error_and_not_an_empty_answer(
    home: Path, talk: StartTalk
) -> None:
    path = home / "state.db"
    path.write_text("this is no database, but a note of somebody\n" * 100)
    before = path.read_bytes()
    for arguments in ({"query": "walrus"}, {}, {"session_id": "it"}):
        assert "state.db" in talk().refused(**arguments)
    assert path.read_bytes() == before


# -- words that are everywhere ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    """A home where a word is in every message, and another in the very first only."""
    home = tmp_path_factory.mktemp("crowded")
    archive = open_archive(home)
    said = [NewMessage("user", "common", 2e9 - 10**6)] * 52
    first = [NewMessage("user", "the unrepeatable common <*))))><", 1e9)]
    archive.append(SessionFacts("first", "cli", profile="default", started=1e9), first)
    for number in range(450):
        facts = SessionFacts(f"s{number}", "cli", profile="default", started=2e9 - 10**6)
        archive.append(facts, [each._replace(at=each.at + number) for each in said])
    archive.close()
    session = Talk(home)
    yield session
    session.close()


def test_a_word_that_is_in_one_message_is_found_among_many(crowded: Talk) -> None:
    assert crowded.found("unrepeatable") == ["first"]
    assert crowded.found("unrepe*") == ["first"]
    assert crowded.found("unrepeatable", sort="newest") == ["first"]


def test_beside_a_word_that_is_everywhere_it_is_still_found(crowded: Talk) -> None:
    for query in ("unrepeatable common", "common unrepeatable", "what was common, unrepeatable?"):
        assert crowded.found(query)[:1] == ["first"], query
    assert "first" in crowded.found("common unrepeatable", limit=10)


def test_a_word_that_is_everywhere_gives_the_newest_and_says_that_there_are_more(
    crowded: Talk,
) -> None:
    answer = crowded.search("common", limit=10)
    assert answer["approximate"] is True
    assert answer["count"] == 10
    newest = {f"s{number}" for number in range(400, 450)}
    assert {each["session_id"] for each in answer["results"]} <= newest
    assert answer["message"]
    assert crowded.found("common", sort="newest", limit=2) == ["s449", "s448"]


def test_signs_that_were_not_looked_for_everywhere_are_not_said_to_be_absent(
    crowded: Talk,
) -> None:
    answer = crowded.search("<*))))><")
    found = [each["session_id"] for each in answer["results"]]
    assert found == ["first"] or answer.get("approximate")


# -- any string, any token -------------------------------------------------------------------

ANYTHING = st.text(max_size=60)
PIECES = st.lists(
    st.sampled_from(
        ['"', "“", "-", "OR", "AND", "NOT", "*", "role:", "user", "after:", "before:", "7d", "2024",
         "-12-31", "walrus", "C#", "東", "京", " ", "\0", "(", ")", ":", "^", "NEAR", "\u0301", "ß",
         "İ", "ﷺ", "\u0e33", "𠮷", "'", "%", "_", ","]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@settings(max_examples=1000 if STRESS else 40, deadline=None)
@given(st.one_of(ANYTHING, PIECES), st.sampled_from([None, "user", "user,assistant,tool"]))
@example('"', None)
@example("-", None)
@example('-"', "user")
@example("*", None)
@example("OR", None)
@example("\u0301", None)
@example("walrus after:99999y", None)
def test_no_query_ever_raises(archived: Talk, query: str, roles: str | None) -> None:
    try:
        query.encode()
    except UnicodeEncodeError:  # has a test of its own
        return
    answer = archived.call(query=query, role_filter=roles)
    assert answer["mode"] == ("discover" if query.strip() else "browse")
    assert isinstance(answer["results"], list)
    if answer["mode"] == "discover" and not answer["results"]:
        assert answer["message"]


@pytest.mark.parametrize("text", ["\ud800", "walrus \udfff", "\ud83e walrus \udd84"])
def test_halves_of_surrogate_pairs_are_a_query_like_any(archived: Talk, text: str) -> None:
    assert archived.call(query=text)["mode"] == "discover"
    assert archived.refused(session_id=text)


@pytest.mark.parametrize("word", ["NOT", "OR", "AND"])
def test_an_operator_alone_is_a_word(word: str, home: Path, talk: StartTalk) -> None:
    past(home, "it", [(f"you can say {word.lower()} too", "ok")])
    assert talk().found(word) == ["it"]


LETTERS = st.characters(categories=("L", "N"))
TOKEN = st.text(LETTERS, min_size=1, max_size=20).filter(lambda t: t not in ("OR", "AND", "NOT"))
NOISE = st.lists(st.text(max_size=30), min_size=1, max_size=3)


@settings(
    max_examples=500 if STRESS else 12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(TOKEN, NOISE, st.sampled_from(["{} {token} {}", "{token}", "({token})", "{}\n{token}, {}"]))
@example("茶", ["東京"], "{} {token} {}")
@example("ª", ["x"], "{token}")
@example("the", ["x"], "{token}")
@example("x" * 20, ["x" * 19], "{token}")
def test_a_token_that_is_in_one_message_is_found(token: str, noise: list[str], form: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        archive = open_archive(home)
        said = [form.format(noise[0], noise[-1], token=token), *noise]
        for number, text in enumerate(said):
            facts = SessionFacts(f"s{number}", "cli", profile="default", started=1e9)
            archive.append(facts, [NewMessage("user", text, 1e9)])
        archive.close()
        session = Talk(home)
        try:
            assert "s0" in session.found(token, limit=10)
        finally:
            session.close()
