"""How names of providers compare."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.utils import canonicalize_name

from hermes_core.config.names import nearest, normalise, split_choice


@pytest.mark.parametrize(
    "names",
    [
        ("mem0", "Mem0", "MEM0", "\uff4d\uff45\uff4d\uff10"),
        ("my-memory", "my_memory", "my.memory", "My__Memory", "my-._memory", "MY-MEMORY"),
        ("straße", "STRASSE", "strasse", "Straße"),
        ("café", "cafe\u0301", "CAFÉ"),
        ("ﬁle", "file", "FILE"),
        ("a…b", "a...b", "a-b"),
    ],
)
def test_these_are_one_name(names):
    assert len({normalise(name) for name in names}) == 1


@pytest.mark.parametrize(
    ("one", "other"), [("mem0", "memo"), ("a-b", "ab"), ("café", "cafe"), ("a b", "a-b"), ("", "-")]
)
def test_these_are_two_names(one, other):
    assert normalise(one) != normalise(other)


@settings(deadline=None, database=None, derandomize=True)
@given(st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", fullmatch=True))
def test_names_of_distributions_compare_as_pip_compares_them(name):
    assert normalise(name) == canonicalize_name(name)


@settings(deadline=None, database=None, derandomize=True, max_examples=100)
@given(st.text(max_size=12))
def test_a_normalised_name_is_its_own_normal_form(name):
    assert normalise(normalise(name)) == normalise(name)


@settings(deadline=None, database=None, derandomize=True)
@given(st.text(max_size=12))
def test_how_a_name_is_composed_does_not_matter(name):
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert normalise(unicodedata.normalize(form, name)) == normalise(name)


@pytest.mark.parametrize("name", ["\u0390", "\u03b0"])
def test_letters_that_change_their_shape_with_the_case_compare_too(name):
    assert normalise(name.upper()) == normalise(name)


@pytest.mark.parametrize(
    ("choice", "parts"),
    [
        ("mem0", ("mem0", "")),
        ("mem0@dist", ("mem0", "dist")),
        (" mem0 @ dist ", ("mem0", "dist")),
        ("mem0@", ("mem0", "")),
        ("a@b@c", ("a", "b@c")),
        ("", ("", "")),
    ],
)
def test_a_choice_is_a_name_and_perhaps_an_owner(choice, parts):
    assert split_choice(choice) == parts


def test_the_nearest_names_come_best_first_as_they_are_spelt():
    known = ["Honcho", "mem_zero", "Mem0", "hindsight"]
    assert nearest("mem0x", known)[0] == "Mem0"
    assert nearest("HONCO", known) == ["Honcho"]
    assert nearest("mem-zero", known)[0] == "mem_zero"
    assert nearest("something else", known) == []
    assert nearest("mem0", []) == []
