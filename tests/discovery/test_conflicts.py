"""One name, several owners: nobody wins by coming first."""

from __future__ import annotations

import pytest
from support.sites import MEMORY, PLUGINS, add_directory, provider_source

from hermes_core import HermesError, ProviderConflictError, discover, load_provider
from hermes_core.discovery import find_provider


def claims(home, name):
    """Everybody who claims a name, by owner."""
    return {each.owner: each for each in discover(home) if each.key == name}


def choose(home, choice):
    (home / "config.yaml").write_text(f"memory: {{provider: '{choice}'}}\n", "utf-8")


@pytest.fixture
def rivals(site):
    """Two distributions that both provide acme."""
    site.add_provider("acme", "acme-memory")
    site.add_provider("Acme", "other-acme")


def test_all_owners_are_listed_in_conflict_and_each_names_all(home, rivals):
    found = claims(home, "acme")
    assert set(found) == {"acme-memory", "other-acme"}
    for info in found.values():
        assert info.state == "conflict"
        assert not info.active
        assert "acme-memory" in info.problem
        assert "other-acme" in info.problem
        assert "@" in info.problem


def test_neither_is_loaded_by_the_name_alone(home, rivals):
    with pytest.raises(ProviderConflictError) as caught:
        load_provider("acme", home)
    assert "acme-memory" in str(caught.value)
    assert "other-acme" in str(caught.value)
    assert "acme@acme-memory" in str(caught.value)


def test_name_at_owner_loads_that_one(home, rivals):
    assert type(load_provider("acme@acme-memory", home)).__module__ == "acme_memory"
    assert type(load_provider("acme@other_acme", home)).__module__ == "other_acme"


def test_the_order_on_the_import_path_changes_nothing(home, rivals, tmp_path, monkeypatch):
    from support.sites import Site

    third = Site(tmp_path / "earlier")
    third.add_provider("acme", "third-acme")
    monkeypatch.syspath_prepend(str(third.folder))
    found = claims(home, "acme")
    assert set(found) == {"acme-memory", "other-acme", "third-acme"}
    assert {each.state for each in found.values()} == {"conflict"}


def test_a_name_in_the_configuration_does_not_choose_between_two_owners(home, rivals):
    choose(home, "acme")
    assert {each.state for each in claims(home, "acme").values()} == {"conflict"}


def test_an_owner_in_the_configuration_does(home, rivals):
    choose(home, "ACME@Other.Acme")
    found = claims(home, "acme")
    assert (found["other-acme"].state, found["other-acme"].active) == ("active", True)
    assert (found["acme-memory"].state, found["acme-memory"].active) == ("conflict", False)
    assert find_provider("acme", discover(home)).distribution == "other-acme"


def test_an_owner_who_does_not_exist_chooses_nobody(home, rivals):
    choose(home, "acme@nobody")
    assert {each.state for each in claims(home, "acme").values()} == {"conflict"}


def test_a_directory_and_a_distribution_conflict_and_either_can_be_chosen(home, site):
    site.add_provider("acme", "acme-memory")
    add_directory(home, "acme", provider_source("mine"))
    found = claims(home, "acme")
    assert set(found) == {"acme-memory", "directory"}
    assert {each.state for each in found.values()} == {"conflict"}
    assert load_provider("acme@directory", home).name == "mine"
    choose(home, "acme@directory")
    assert claims(home, "acme")["directory"].state == "active"
    assert claims(home, "acme")["acme-memory"].state == "conflict"


def test_a_plugin_without_a_provider_is_no_rival(home, site):
    site.add_provider("acme", "acme-memory")
    site.add(
        "acme-tools",
        groups={PLUGINS: {"acme": "acme_tools"}},
        files={"acme_tools/__init__.py": "def register(ctx): pass"},
    )
    found = claims(home, "acme")
    assert found["acme-memory"].state == "installed"
    assert found["acme-tools"].state == "no-provider"
    assert load_provider("acme", home).name == "acme"


def test_a_distribution_that_can_not_be_read_is_no_rival(home, site):
    site.add_provider("acme", "acme-memory")
    site.add("acme", entry_points=b"[hermes_agent.memory_providers]\n\xff = x\n")
    found = claims(home, "acme")
    assert found["acme-memory"].state == "installed"
    assert found["acme"].state == "broken"
    assert load_provider("acme", home).name == "acme"


def test_one_distribution_twice_on_the_import_path_is_one_owner(home, site, tmp_path, monkeypatch):
    from support.sites import Site

    site.add_provider("acme", "acme-memory", "1.0")
    newer = Site(tmp_path / "earlier")
    newer.add_provider("acme", "acme-memory", "2.0")
    monkeypatch.syspath_prepend(str(newer.folder))
    (info,) = claims(home, "acme").values()
    assert (info.state, info.version) == ("installed", "2.0")  # the one that Python imports


@pytest.mark.parametrize(
    "name", ["builtin", "Builtin", "BUILTIN", "\uff42\uff55\uff49\uff4c\uff54\uff49\uff4e"]
)
def test_a_claim_to_the_built_in_is_refused(home, site, name):
    site.add_provider(name, "evil-memory")
    found = claims(home, "builtin")
    assert found["evil-memory"].state == "conflict"
    assert "reserved" in found["evil-memory"].problem
    assert "evil-memory" in found["evil-memory"].problem
    assert found["hermes-plugins"].state == "active"
    assert load_provider(name, home).__class__.__module__.startswith("hermes_builtin")


def test_a_directory_called_builtin_is_refused(home):
    add_directory(home, "builtin")
    found = claims(home, "builtin")
    assert found["directory"].state == "conflict"
    assert found["hermes-plugins"].active
    with pytest.raises(ProviderConflictError, match="reserved"):
        load_provider("builtin@directory", home)


def test_choosing_another_owner_for_the_built_in_changes_nothing(home, site):
    site.add_provider("builtin", "evil-memory")
    choose(home, "builtin@evil-memory")
    found = claims(home, "builtin")
    assert not found["evil-memory"].active
    assert found["hermes-plugins"].state == "active"


def test_another_name_of_our_own_distribution_is_not_the_built_in(home, site):
    site.add(
        "hermes-plugins",
        groups={MEMORY: {"builtin": "hermes_builtin:BuiltinProvider", "extra": "extra:register"}},
    )
    extra = find_provider("extra", discover(home))
    assert (extra.source, extra.state, extra.active) == ("entry-point", "installed", False)


def test_an_owner_who_is_not_the_only_one_there_is_chooses_nobody(home, site):
    site.add_provider("acme", "acme-memory")
    choose(home, "acme@nobody")
    (info,) = claims(home, "acme").values()
    assert (info.state, info.active) == ("installed", False)


def test_the_owner_in_the_configuration_counts_when_a_provider_is_loaded_by_name(home, rivals):
    choose(home, "acme@other-acme")
    assert type(load_provider("acme", home)).__module__ == "other_acme"


def test_what_was_listed_as_refused_is_not_loaded_either(home, site):
    site.add(
        "evil-memory",
        groups={MEMORY: {"builtin": "evil_memory:register"}},
        files={"evil_memory.py": provider_source("innocent")},
    )
    refused = claims(home, "builtin")["evil-memory"]
    with pytest.raises(HermesError, match="reserved"):
        load_provider(refused, home)


def test_what_was_listed_in_conflict_is_not_loaded_until_it_is_chosen(home, rivals):
    first = next(each for each in discover(home) if each.key == "acme")
    with pytest.raises(ProviderConflictError):
        load_provider(first, home)


def test_two_directories_of_one_name_are_told_apart(home):
    add_directory(home, "my-memory")
    add_directory(home, "my_memory")
    listed = [each for each in discover(home) if each.source == "directory"]
    assert [each.state for each in listed] == ["conflict", "conflict"]
    for info in listed:
        assert "my-memory" in info.problem
        assert "my_memory" in info.problem


def test_one_distribution_that_repeats_itself_is_listed_once(home, site):
    site.add(
        "stutter",
        entry_points=b"[hermes_agent.memory_providers]\nacme = stutter\nacme = stutter\n",
        files={"stutter.py": provider_source("acme")},
    )
    listed = [each for each in discover(home) if each.key == "acme"]
    assert [each.state for each in listed] == ["installed"]
