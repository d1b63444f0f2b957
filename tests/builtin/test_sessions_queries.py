"""What people type, and what they expect to find: any string is a query."""

# ruff: noqa: RUF001 - people type such signs

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.talks import StartTalk, stored, talks

pytestmark = pytest.mark.usefixtures("both_storages")

NOW = time.time()
DAY = 86_400.0


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    yield from talks(home)


# -- any string --------------------------------------------------------------------------------

#: What is typed, and what was said.
TYPED = [
    ("where is /etc/nginx/nginx.conf?", "look into /etc/nginx/nginx.conf for it"),
    ("/etc/nginx/nginx.conf", "look into /etc/nginx/nginx.conf for it"),
    (r"C:\Users\ada\notes.txt", r"it is in C:\Users\ada\notes.txt"),
    ("ada.lovelace@example.com", "write to ada.lovelace@example.com today"),
    ("C#", "I write C# at work"),
    ("c++", "I write C++ at work"),
    ("F#?", "F# is a language"),
    ("--force", "never push with --force again"),
    ("git push --force", "never push with --force again"),
    ("rm -rf", "who ran rm -rf here"),
    ("100%", "the disk is 100% full"),
    ("50 % off", "they are 50 % off"),
    ("it's \"quoted", "it's quoted here"),
    ("'; DROP TABLE messages;--", "bobby said DROP TABLE messages"),
    ("NEAR(a b, 5) pelican", "a pelican"),
    ("pelican AND", "a pelican"),
    ("OR pelican OR", "a pelican"),
    ("((pelican", "a pelican"),
    ("pelican))) *", "a pelican"),
    ("words:pelican", "a pelican"),
    ("content : pelican ^ {", "a pelican"),
    ("pelican\0\x01\x1f", "a pelican"),
    ("\u202epelican\u200b", "a pelican"),
    ("PELICAN", "a pelican"),
    ("pélican", "a pelican"),
    ("pelicans", "a pelican"),
    ("café", "we met at the cafe\u0301"),
    ("straße", "in the STRASSE"),
    ("Ａｌｐｈａ", "alpha came first"),
    ("#1234", "see issue 1234"),
    ("v2.3.1-rc1", "we run v2.3.1-rc1 now"),
    ("10.0.0.17:8080", "listen on 10.0.0.17:8080"),
    ("snake_case_name", "rename snake_case_name"),
    ("role:nobody pelican", "a pelican"),
    ("after:tomorrow pelican", "a pelican"),
    ("https://example.com/a?b=c&d=%20#e", "open https://example.com/a?b=c&d=%20#e"),
    ("don’t panic", "don't panic"),
    ("🦄", "a 🦄 came by"),
    ("party 🎉🎉", "🎉 for you"),
    ("👩‍💻", "she is a 👩‍💻 now"),
    ("€", "it costs 5 €"),
    ("привет", "Привет, мир"),
    ("नमस्ते", "नमस्ते दुनिया"),
    ("שלום", "שלום עולם"),
    ("why?!?!", "tell me why"),
    ("???", "what???"),
    ("=>", "x => y"),
    ("-->", "a --> b"),
    ("¯\\_(ツ)_/¯", "I said ¯\\_(ツ)_/¯ to that"),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "said"), TYPED, ids=range(len(TYPED)))
def test_whatever_is_typed_finds_what_was_said(
    typed: str, said: str, home: Path, talk: StartTalk
) -> None:
    stored(home, "other", "nothing of that kind", "hello there")
    stored(home, "it", "hello", said, "bye")
    assert talk().found(typed)[:1] == ["it"]


def test_a_paste_of_two_thousand_words_finds_where_it_comes_from(
    home: Path, talk: StartTalk
) -> None:
    stored(home, "other", *["some common words of every day"] * 5)
    stored(home, "it", "the error was in frobnicate and quuxify at line 7")
    paste = f"{'some common words of every day ' * 350} frobnicate quuxify"
    assert "it" in talk().found(paste)


def test_a_paste_of_words_that_were_never_said_finds_the_one_that_was(
    home: Path, talk: StartTalk
) -> None:
    stored(home, "it", "the error was in frobnicate and quuxify at line 7")
    various = " ".join(f"word{number}" for number in range(2000))
    assert talk().found(f"{various} frobnicate") == ["it"]


def test_a_megabyte_as_a_query_is_answered(home: Path, talk: StartTalk) -> None:
    stored(home, "it", "a pelican")
    for text in ("pelican " * 130_000, "x" * 10**6, '"' * 10**6, "-" * 10**6, "東京" * 300_000):
        answer = talk().raw(query=text)
        assert len(answer) < 10_000


# -- questions -----------------------------------------------------------------------------------


def test_a_question_finds_what_answers_it_though_most_of_its_words_are_elsewhere(
    home: Path, talk: StartTalk
) -> None:
    stored(home, "dog", "my dog is called Biscuit", "what a nice name")
    stored(home, "db", "we decided to use PostgreSQL as our database")
    stored(home, "talk", "what did you say to that when we were there", "when did we do it")
    session = talk()
    assert session.found("What is the name of my dog?")[0] == "dog"
    assert session.found("which databases did we decide on when we talked about it?")[0] == "db"
    assert session.found("What was it that I was deciding about the database?")[0] == "db"


def test_a_conversation_that_says_it_in_several_messages_is_above_one_that_says_a_word_of_it(
    home: Path, talk: StartTalk
) -> None:
    stored(home, "one", "the harbour", *["other things"] * 5)
    stored(home, "several", "the harbour in Lisbon", "a boat in the harbour", "Lisbon by boat")
    stored(home, "again", "the harbour", *["other things"] * 5)
    assert talk().found("boat harbour Lisbon")[0] == "several"


def test_only_stop_words_are_looked_for_too(home: Path, talk: StartTalk) -> None:
    stored(home, "it", "to be or not to be")
    stored(home, "other", "pelican")
    assert talk().found("to be or not to be") == ["it"]


# -- operators ------------------------------------------------------------------------------------


def test_a_phrase_is_words_in_a_row(home: Path, talk: StartTalk) -> None:
    stored(home, "row", "we saw the red green lantern")
    stored(home, "apart", "red is the lantern, and green")
    session = talk()
    assert session.found('"red green"') == ["row"]
    assert session.found("“red green”") == ["row"]
    assert session.found('"RED, green"') == ["row"]
    assert sorted(session.found("red green")) == ["apart", "row"]
    assert session.found('"red green" lantern') == ["row"]


def test_a_phrase_that_is_nowhere_shows_its_words_and_says_so(home: Path, talk: StartTalk) -> None:
    stored(home, "apart", "red is the lantern, and green")
    answer = talk().search('"green red"')
    assert [each["session_id"] for each in answer["results"]] == ["apart"]
    assert "Nothing matches the query as it stands" in answer["message"]


def test_a_word_with_a_minus_leaves_out_what_has_it(home: Path, talk: StartTalk) -> None:
    stored(home, "plain", "a pizza with cheese")
    stored(home, "fish", "a pizza with anchovies")
    session = talk()
    for query in ("pizza -anchovies", "pizza NOT anchovies", "-anchovies pizza"):
        assert session.found(query) == ["plain"]
    assert session.found('pizza -"with cheese"') == ["fish"]
    assert sorted(session.found("pizza - anchovies")) == ["fish", "plain"]


@pytest.mark.parametrize("excluded", ["gluten-free", "ada@example.com", "a/b/c.txt", "北京"])
def test_a_word_of_several_parts_can_be_left_out(
    excluded: str, home: Path, talk: StartTalk
) -> None:
    stored(home, "plain", "a pizza with cheese, free of gluten")
    stored(home, "without", f"a pizza {excluded} please")
    assert talk().found(f"pizza -{excluded}") == ["plain"]


def test_or_and_and_do_what_they_say(home: Path, talk: StartTalk) -> None:
    stored(home, "both", "tea and coffee")
    stored(home, "tea", "only tea")
    stored(home, "coffee", "only coffee")
    session = talk()
    assert sorted(session.found("tea OR coffee", limit=10)) == ["both", "coffee", "tea"]
    assert session.found("tea AND coffee") == ["both"]
    assert sorted(session.found('"only tea" OR "only coffee"')) == ["coffee", "tea"]


def test_a_star_stands_for_the_rest_of_a_word(home: Path, talk: StartTalk) -> None:
    stored(home, "it", "we set up kubernetes")
    stored(home, "other", "a cube")
    session = talk()
    for query in ("kub*", "kubernet*", "KUBE*"):
        assert session.found(query) == ["it"], query


@pytest.mark.parametrize("prefix", ["configurati*", "deploymen*", "running*", "deployment*"])
def test_a_star_finds_words_whose_stem_is_shorter_than_what_was_typed(
    prefix: str, home: Path, talk: StartTalk
) -> None:
    stored(home, "it", "the deployment configuration is running")
    assert talk().found(prefix) == ["it"]


def test_roles_can_be_asked_for_in_the_query_and_beside_it(home: Path, talk: StartTalk) -> None:
    for role in ("user", "assistant", "tool", "system"):
        stored(home, role, "pelican", role=role)
    session = talk()
    assert sorted(session.found("pelican", limit=10)) == ["assistant", "user"]
    for role in ("user", "assistant", "tool"):
        assert session.found(f"role:{role} pelican") == [role]
        assert session.found("pelican", role_filter=role) == [role]
    assert sorted(session.found("pelican role:user,tool")) == ["tool", "user"]
    assert sorted(session.found("pelican", role_filter=" User , TOOL ")) == ["tool", "user"]


def test_roles_count_for_signs_too(home: Path, talk: StartTalk) -> None:
    for role in ("user", "assistant", "tool"):
        stored(home, role, "x => y", role=role)
    assert talk().found("=>", role_filter="user") == ["user"]
    assert sorted(talk().found("=>")) == ["assistant", "user"]


def test_dates_bound_what_is_found(home: Path, talk: StartTalk) -> None:
    for name, age in (("today", 0.01), ("week", 8.0), ("year", 400.0)):
        stored(home, name, ("pelican", age))
    session = talk()

    def on(days: float) -> str:
        return time.strftime("%Y-%m-%d", time.localtime(NOW - days * DAY))

    assert session.found("pelican after:2d") == ["today"]
    assert sorted(session.found("pelican before:2d")) == ["week", "year"]
    assert session.found("pelican after:2w before:2d") == ["week"]
    assert session.found("pelican before:1y") == ["year"]
    assert session.found(f"pelican after:{on(3)}") == ["today"]
    assert session.found(f"pelican AFTER:{on(10)} before:{on(3)}") == ["week"]
    assert sorted(session.found(f"after:{on(100)[:7]} pelican")) == ["today", "week"]
    assert session.found(f"pelican before:{on(300)}T10:00") == ["year"]


def test_a_message_in_time_is_found_though_its_conversation_began_before(
    home: Path, talk: StartTalk
) -> None:
    stored(home, "it", ("pelican one", 30.0), ("hello", 20.0), ("pelican two", 1.0))
    (result,) = talk().search("pelican after:3d")["results"]
    assert "two" in result["snippet"]


@pytest.mark.parametrize(
    "value",
    [
        *("0000", "9999-99-99", "1e9", "10000-01-01", "-7d", "", "2024-02-30", "٢٠٢٤"),
        *(each for each in ("99999y", "0001-01-01", "9999-12-31")),
    ],
)
def test_a_date_that_can_not_be_is_no_error(value: str, home: Path, talk: StartTalk) -> None:
    stored(home, "it", "pelican")
    for query in (f"pelican after:{value}", f"pelican before:{value}", f"pelican on {value}"):
        assert talk().call(query=query)["mode"] == "discover"
