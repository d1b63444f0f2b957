"""Other words for a word, as a search uses them."""

from __future__ import annotations

import pytest

from hermes_builtin.sessions.words import _FILE, STOP_WORDS, _read, related, stem

pytestmark = pytest.mark.files_only("nothing is stored")


def test_words_for_the_same_thing_find_each_other():
    assert stem("film") in related(stem("movie"))
    assert stem("movie") in related(stem("film"))


def test_a_kind_finds_its_members_and_not_the_other_way_round():
    assert stem("hamster") in related(stem("pets"))
    assert stem("pet") not in related(stem("hamster"))


def test_an_unknown_word_has_no_others():
    assert related("xyzzy") == frozenset()


def test_no_word_stands_for_itself():
    assert not [term for term, others in _read(_FILE).items() if term in others]


def test_no_stop_word_is_in_the_file():
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    words = {word for line in lines if not line.startswith("#") for word in line.split()}
    assert not words & STOP_WORDS
