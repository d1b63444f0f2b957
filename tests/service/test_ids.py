"""Ids in a service's alphabet: two of ours never share one."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes_core import ConfigError
from hermes_core.service import Alphabet, expand_id, make_id

SMALL = Alphabet("a-zA-Z0-9_-", 60)
ANY = st.text(max_size=60)
#: Texts that are easily mistaken for one another.
NEAR = st.text(alphabet="ab-_ ./é", max_size=5)


@pytest.mark.parametrize("text", ["ann", "user_7", "a-b-c", "x" * 60])
def test_a_text_that_fits_is_its_own_id(text):
    assert make_id(text, SMALL) == text


def test_another_text_is_still_recognised_and_has_a_hash():
    made = make_id("ann@example.org", SMALL)
    assert made.startswith("ann-example-org-")
    assert SMALL.takes(made)


def test_an_id_that_looks_like_one_of_ours_is_hashed_too():
    made = make_id("ann@example.org", SMALL)
    assert make_id(made, SMALL) != made


def test_an_id_that_looks_like_one_of_the_first_version_is_hashed_too():
    assert make_id("ann-example-org-0123456789ab", SMALL) != "ann-example-org-0123456789ab"


def test_a_hash_is_too_long_to_be_searched_for():
    assert len(make_id("ann@example.org", SMALL).rpartition("-")[2]) == 32


@given(ANY | NEAR, ANY | NEAR)
def test_two_texts_never_share_an_id(one, other):
    assume(one != other)
    assert make_id(one, SMALL) != make_id(other, SMALL)


@given(ANY)
def test_every_id_is_in_the_alphabet(text):
    assert SMALL.takes(make_id(text, SMALL))


@pytest.mark.parametrize(
    ("template", "values", "expected"),
    [
        ("hermes-{user}", {"user": "ann"}, "hermes-ann"),
        ("hermes-{user}", {"user": ""}, "hermes"),
        ("{profile}-{user}", {"profile": "work", "user": "7"}, "work-7"),
        ("{profile}-{session}", {"profile": "work", "session": "2026-11"}, "work-2026-11"),
        ("bank", {"user": "ann"}, "bank"),
    ],
)
def test_ordinary_values_give_the_plain_text(template, values, expected):
    assert expand_id(template, values, SMALL) == expected


@pytest.mark.parametrize(
    "template", ["{a}-{b}", "{a}{b}", "x_{a}_{b}-y", "{b}--{a}", "hermes-{a}-{b}-{a}"]
)
@given(NEAR, NEAR, NEAR, NEAR)
def test_other_values_never_give_the_same_id(template, a, b, c, d):
    assume((a, b) != (c, d))
    one = expand_id(template, {"a": a, "b": b}, SMALL)
    other = expand_id(template, {"a": c, "b": d}, SMALL)
    assert one != other
    assert SMALL.takes(one)


def test_a_template_with_an_unknown_field_names_those_that_are_known():
    with pytest.raises(ConfigError, match=r"'usr'.*\{user\}"):
        expand_id("{usr}", {"user": "ann"}, SMALL)


def test_a_broken_template_is_an_error():
    with pytest.raises(ConfigError, match="invalid"):
        expand_id("{user", {"user": "ann"}, SMALL)
