"""How names compare, and what a person gets who mistypes one."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sites import MEMORY, add_directory, provider_source

from hermes_core import HermesError, UnknownProviderError, discover, load_provider
from hermes_core.config.names import normalise
from hermes_core.discovery import find_provider


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("my-memory", "My_Memory"),
        ("my.memory", "my-memory"),
        ("my--_.memory", "my-memory"),
        ("MEMORY", "memory"),
        ("straße", "STRASSE"),
        ("\uff4d\uff45\uff4d\uff10", "mem0"),
        ("cafe\u0301", "café"),
        ("\ufb01le", "file"),
        ("mem\uff3fory", "mem-ory"),
    ],
)
def test_names_compare_after_normalisation(left, right):
    assert normalise(left) == normalise(right)


@pytest.mark.parametrize(("left", "right"), [("memory", "memory2"), ("my-memory", "mymemory")])
def test_names_that_differ_stay_apart(left, right):
    assert normalise(left) != normalise(right)


@settings(derandomize=True)
@given(st.text(alphabet="abcXYZ019-_.", min_size=1))
def test_for_plain_names_it_is_pep_503(name):
    assert normalise(name) == re.sub(r"[-_.]+", "-", name).lower()


@settings(derandomize=True)
@given(st.text())
def test_a_normal_form_is_its_own_normal_form(name):
    assert normalise(normalise(name)) == normalise(name)


@settings(derandomize=True)
@given(st.text())
def test_unicode_forms_of_one_name_are_the_same_name(name):
    forms = {normalise(unicodedata.normalize(form, name)) for form in ("NFC", "NFD", "NFKC")}
    assert forms == {normalise(name)}


@pytest.mark.parametrize(
    "choice", ["acme-mem", "ACME_MEM", "acme.mem", " acme-mem ", "\uff41cme-mem"]
)
def test_a_provider_is_found_however_its_name_is_spelt(home, site, choice):
    site.add_provider("Acme.Mem", "acme-dist")
    assert find_provider(choice, discover(home)).name == "Acme.Mem"
    assert load_provider(choice, home).name == "Acme.Mem"


def test_an_owner_is_found_however_it_is_spelt(home, site):
    site.add_provider("acme", "Acme-Dist")
    assert find_provider("acme@acme_dist", discover(home)).distribution == "Acme-Dist"


def test_an_unknown_name_gets_the_nearest(home, site):
    site.add_provider("honcho")
    add_directory(home, "mem0")
    with pytest.raises(UnknownProviderError) as caught:
        load_provider("hocnho", home)
    assert "hocnho" in str(caught.value)
    assert "did you mean honcho" in str(caught.value)
    assert "mem0" not in str(caught.value)


def test_an_unknown_name_near_to_nothing_gets_no_guess(home):
    with pytest.raises(UnknownProviderError) as caught:
        load_provider("xyzzy", home)
    assert "did you mean" not in str(caught.value)


def test_a_name_that_can_not_be_used_is_not_offered(home, site):
    site.add("toolbox", groups={"hermes_agent.plugins": {"honcho": "toolbox"}})
    with pytest.raises(UnknownProviderError) as caught:
        load_provider("honchi", home)
    assert "did you mean" not in str(caught.value)


def test_an_unknown_owner_gets_the_real_one(home, site):
    site.add_provider("acme", "acme-dist")
    with pytest.raises(UnknownProviderError) as caught:
        load_provider("acme@other", home)
    assert "acme-dist" in str(caught.value)
    assert "other" in str(caught.value)


@pytest.mark.parametrize("choice", ["", "@", "@owner", "a@b@c", "\0", "../..", "\N{PILE OF POO}"])
def test_nonsense_for_a_name_is_one_of_our_errors(home, site, choice):
    site.add_provider("acme")
    with pytest.raises(HermesError):
        load_provider(choice, home)


@pytest.mark.parametrize("name", ["a@b", "tab\there", "zero\u200bwidth", "\x1b[31mred"])
def test_a_name_that_nobody_could_type_is_listed_as_broken(home, site, name):
    site.add("odd", groups={MEMORY: {name: "odd:register"}})
    (info,) = [each for each in discover(home) if each.distribution == "odd"]
    assert info.state == "broken"
    assert "can't be a provider's name" in info.problem
    assert "\x1b" not in info.problem
    assert not info.loadable


def test_a_directory_whose_name_is_no_text_is_listed_as_broken_and_the_rest_as_it_is(home):
    add_directory(home, "good")
    try:
        add_directory(home, "bad\udcff", provider_source("bad"))
    except (OSError, UnicodeError):
        pytest.skip("this file system has no such names")
    states = {each.name: each.state for each in discover(home) if each.source == "directory"}
    assert states["good"] == "installed"
    assert sorted(states.values()) == ["broken", "installed"]
