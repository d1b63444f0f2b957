"""Where providers come from, and what is known about each without importing it."""

from __future__ import annotations

import pytest
from support.sites import MEMORY, add_directory, provider_source

import hermes_core
from hermes_core import ConfigError, HermesError, discover


def test_an_empty_home_still_has_the_built_in_and_it_is_active(home):
    assert [each.name for each in discover(home)] == ["builtin"]
    (builtin,) = discover(home)
    assert builtin.source == "builtin"
    assert builtin.state == "active"
    assert builtin.active
    assert builtin.distribution == "hermes-plugins"
    assert builtin.version == hermes_core.__version__
    assert builtin.entry_point == "hermes_builtin:BuiltinProvider"
    assert builtin.description
    assert builtin.problem == ""


def test_a_home_that_does_not_exist_has_the_built_in_and_is_not_created(tmp_path):
    missing = tmp_path / "nowhere"
    assert [each.name for each in discover(missing)] == ["builtin"]
    assert not missing.exists()


def test_without_an_argument_the_home_is_that_of_the_environment(home, tmp_path):
    add_directory(home, "mine")
    other = tmp_path / "other"
    add_directory(other, "theirs")
    assert {each.name for each in discover()} == {"builtin", "mine"}
    assert {each.name for each in discover(other)} == {"builtin", "theirs"}
    assert {each.name for each in discover(str(other))} == {"builtin", "theirs"}


def test_a_home_that_is_a_file_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "home.txt"
    path.write_text("no folder", "utf-8")
    with pytest.raises(HermesError, match=r"home\.txt"):
        discover(path)


def test_a_distribution_that_declares_a_provider_is_listed_with_all_that_is_known(found, site):
    site.add(
        "acme-memory",
        "2.5.1",
        groups={MEMORY: {"acme": "acme_memory.hermes:register"}},
        files={"acme_memory/hermes.py": provider_source("acme")},
        summary="Remembers what Acme does",
    )
    acme = found()["acme"]
    assert acme.source == "entry-point"
    assert acme.distribution == "acme-memory"
    assert acme.version == "2.5.1"
    assert acme.entry_point == "acme_memory.hermes:register"
    assert acme.description == "Remembers what Acme does"
    assert acme.state == "installed"
    assert not acme.active
    assert acme.problem == ""


def test_a_directory_below_the_home_is_listed_with_what_its_manifest_says(found, home):
    add_directory(
        home,
        "local",
        manifest="""
            name: local
            version: 0.3.0
            description: Keeps things
              on this machine.
            unheard_of: {of: this}
        """,
    )
    local = found()["local"]
    assert local.source == "directory"
    assert local.distribution == ""
    assert local.version == "0.3.0"
    assert local.description == "Keeps things on this machine."
    assert local.state == "installed"
    assert local.problem == ""
    assert local.entry_point == ""


def test_a_directory_needs_no_manifest(found, home):
    add_directory(home, "bare")
    bare = found()["bare"]
    assert (bare.state, bare.version, bare.description, bare.problem) == ("installed", "", "", "")


def test_the_name_is_the_folders_whatever_the_manifest_says(found, home):
    add_directory(home, "folder-name", manifest="name: another")
    assert set(found()) == {"folder-name"}


@pytest.mark.parametrize("name", ["_drafts", ".git", "__pycache__"])
def test_private_folders_are_not_plugins(found, home, name):
    add_directory(home, name)
    assert found() == {}


def test_a_file_among_the_directories_is_not_a_plugin(found, home):
    add_directory(home, "real")
    (home / "plugins" / "README.md").write_text("register_memory_provider", "utf-8")
    (home / "plugins" / "gone").symlink_to(home / "nowhere")
    assert set(found()) == {"real"}


def test_a_link_to_a_folder_elsewhere_is_a_plugin(found, home, tmp_path):
    elsewhere = add_directory(tmp_path / "checkout", "dev")
    (home / "plugins").mkdir()
    (home / "plugins" / "dev").symlink_to(elsewhere, target_is_directory=True)
    assert found()["dev"].state == "installed"


def test_plugins_may_be_a_file_without_harm(found, home):
    (home / "plugins").write_text("not a folder", "utf-8")
    assert found() == {}


def test_the_built_in_comes_first_and_the_rest_by_name(home, site):
    for name in ("zebra", "Alpha", "mid"):
        site.add_provider(name)
    add_directory(home, "beta")
    names = [each.name for each in discover(home)]
    assert names == ["builtin", "Alpha", "beta", "mid", "zebra"]


def test_several_providers_of_one_distribution_are_listed_each(found, site):
    site.add("twins", groups={MEMORY: {"castor": "twins:castor", "pollux": "twins:pollux"}})
    assert {name: each.entry_point for name, each in found().items()} == {
        "castor": "twins:castor",
        "pollux": "twins:pollux",
    }


def test_what_was_installed_a_moment_ago_is_listed_and_what_was_removed_is_not(found, site):
    assert found() == {}
    info = site.add_provider("late")
    assert set(found()) == {"late"}
    for path in info.iterdir():
        path.unlink()
    info.rmdir()
    assert found() == {}


def test_the_chosen_provider_is_active_and_the_others_are_installed(found, home, site):
    site.add_provider("chosen")
    site.add_provider("other")
    (home / "config.yaml").write_text("memory: {provider: Chosen}\n", "utf-8")
    assert (found()["chosen"].state, found()["chosen"].active) == ("active", True)
    assert (found()["other"].state, found()["other"].active) == ("installed", False)


def test_distributions_that_have_nothing_to_do_with_us_are_not_listed(found, site):
    site.add("console", groups={"console_scripts": {"x": "console:main"}})
    site.add("quiet")
    assert found(everything=True) == {}


def test_a_configuration_that_can_not_be_understood_is_an_error_and_not_an_empty_one(home):
    (home / "config.yaml").write_text("memory: {provider: [a, b]}\n", "utf-8")
    with pytest.raises(ConfigError, match="expected a string, got a list"):
        discover(home)


@pytest.mark.parametrize("home_name", ["with spaces", "häuschen-家", "a'b\"c"])
def test_a_home_may_have_any_name(tmp_path, home_name):
    home = tmp_path / home_name
    add_directory(home, "erinnerung-記憶")
    (listed,) = [each for each in discover(home) if each.source == "directory"]
    assert (listed.name, listed.state) == ("erinnerung-記憶", "installed")


@pytest.mark.parametrize("name", ["provider", "pins", "observers", "nudge_interval"])
def test_a_provider_named_like_one_of_our_own_keys_is_refused(found, site, name):
    site.add_provider(name)
    assert found()[name].state in ("broken", "conflict")
    assert "reserved" in found()[name].problem
