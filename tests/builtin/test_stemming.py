"""Words that must meet in the index, and words that must not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_builtin.sessions.words import LONGEST_WORD, STOP_WORDS, stem

pytestmark = pytest.mark.files_only("nothing is stored")

calm = settings(deadline=None, database=None, derandomize=True)

ONE_WORD = [
    "go goes going gone went",
    "child children",
    "person people",
    "party parties partying",
    "hop hops hopped hopping",
    "hope hopes hoped hoping",
    "use used using uses",
    "add adds added adding",
    "try tries tried trying",
    "die dies died dying",
    "agree agrees agreed",
    "write wrote written writing",
    "travel travels traveled travelling traveller",
    "bus buses",
    "class classes",
    "leave left leaving",
    "happy happiness",
    "quick quickly",
    "educate educated education educational",
    "adopt adopted adoption",
    "allergy allergies allergic",
    "photograph photographer photography",
    "history historic historical",
    "possible possibly",
    "organise organised organisation organize organizer",
    "colour colours color",
    "favourite favorites",
]
DIFFERENT_WORDS = [
    "hop hope",
    "sky ski",
    "new news",
    "use us",
    "police policy",
    "part party",
    "count county country",
    "university universe",
    "general generate generous",
    "arm army",
    "wand wander",
    "sing bring thing",
    "car care",
]


@pytest.mark.parametrize("forms", ONE_WORD)
def test_the_forms_of_a_word_have_one_stem(forms):
    assert len({stem(form) for form in forms.split()}) == 1


@pytest.mark.parametrize("words", DIFFERENT_WORDS)
def test_different_words_keep_different_stems(words):
    assert len({stem(word) for word in words.split()}) == len(words.split())


@pytest.mark.parametrize("word", ["", "a", "is", "x86", "2024", "straße", "дела", "会議", "c++"])
def test_what_is_not_an_english_word_stays_as_it_is(word):
    assert stem(word) == word


def test_a_very_long_word_stays_as_it_is():
    word = "running" * 10
    assert len(word) > LONGEST_WORD
    assert stem(word) == word


@calm
@given(st.text())
def test_any_text_has_a_stem(text):
    assert isinstance(stem(text), str)


@calm
@given(st.text("abcdeghilnorstuyz", min_size=7, max_size=30))
def test_a_stem_is_never_longer_than_its_word(word):
    assert 0 < len(stem(word)) <= len(word)


def test_stop_words_are_folded_and_name_nothing():
    assert all(word == word.lower() and word.isalpha() for word in STOP_WORDS)
    assert {"the", "what", "wie", "pourquoi", "cuando", "quem", "perche", "waarom"} <= STOP_WORDS
    assert not STOP_WORDS & {"hat", "war", "son", "die", "may", "door", "sin", "mia", "won", "ai"}
