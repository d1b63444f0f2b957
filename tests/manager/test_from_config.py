"""A manager as config.yaml describes it: it always has the built-in, and says what is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.providers import DRIVE
from support.sites import Site, add_directory, provider_source
from support.trees import tree

from hermes_core import (
    ConfigError,
    HomeError,
    MemoryManager,
    ProviderConflictError,
    UnknownProviderError,
)


def _names(manager: MemoryManager) -> list[str]:
    return [each.name for each in manager.providers]


def _works(manager: MemoryManager) -> bool:
    """Whether a whole life goes by, and the built-in had its part in it."""
    manager.initialize_all("s1")
    for drive in DRIVE.values():
        drive(manager)
    return manager.health()["builtin"]["initialize"].failures == 0


def test_without_a_config_there_is_the_built_in_and_no_problem(configured: Any) -> None:
    manager = configured()
    assert _names(manager) == ["builtin"]
    assert (manager.problems, manager.warnings) == ((), ())
    assert _works(manager)


def test_a_home_that_does_not_exist_is_fine_and_stays_away(configured: Any, tmp_path: Path) -> None:
    manager = configured(tmp_path / "none" / "yet")
    assert _names(manager) == ["builtin"]
    assert manager.problems == ()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("choice", ["", "builtin", "Builtin", "null", "~"])
def test_no_choice_and_the_built_in_s_own_name_mean_the_built_in_alone(
    choice: str, configured: Any, write_config: Any
) -> None:
    write_config(f"memory:\n  provider: {choice}\n")
    manager = configured()
    assert _names(manager) == ["builtin"]
    assert manager.problems == ()


def test_an_installed_provider_is_behind_the_built_in(
    configured: Any, write_config: Any, site: Site
) -> None:
    site.add_provider("acme")
    write_config("memory:\n  provider: acme\n")
    manager = configured()
    assert _names(manager) == ["builtin", "acme"]
    assert manager.problems == ()
    assert _works(manager)


def test_a_directory_plugin_is_behind_the_built_in(
    configured: Any, write_config: Any, home: Path
) -> None:
    add_directory(home, "local")
    write_config("memory:\n  provider: LOCAL\n")
    manager = configured()
    assert _names(manager) == ["builtin", "local"]
    assert manager.problems == ()


@pytest.mark.parametrize("name", ["with space", "ünïcödé 家", "a'b\"c"])
def test_a_home_may_have_any_name(name: str, configured: Any, tmp_path: Path) -> None:
    if os.name == "nt" and '"' in name:
        pytest.skip("no such name on Windows")
    folder = tmp_path / name
    add_directory(folder, "local")
    (folder / "config.yaml").write_text("memory: {provider: local}\n", "utf-8")
    manager = configured(folder)
    assert _names(manager) == ["builtin", "local"]
    assert _works(manager)


def test_the_home_is_taken_from_the_environment(
    home: Path, write_config: Any, tmp_path: Path
) -> None:
    add_directory(home, "local")
    write_config("memory: {provider: local}\n")
    manager = MemoryManager.from_config()
    assert _names(manager) == ["builtin", "local"]
    manager.shutdown_all()


CONFIGS: dict[str, tuple[bytes, str]] = {
    "two providers": (
        b"memory:\n  provider: [a, b]\n",
        "memory.provider: expected a string, got a list; only one external provider can be active",
    ),
    "a number": (b"memory:\n  provider: 5\n", "config.yaml:2: memory.provider"),
    "no mapping": (b"- memory\n", "config.yaml:1"),
    "memory a list": (b"x: 1\nmemory: [provider]\n", "config.yaml:2: memory"),
    "no yaml": (b"memory: {provider: [\n", "config.yaml:"),
    "binary": (b"\x00\xff\xfe\x01", "config.yaml"),
    "not utf-8": ("memory: {provider: \u00e4}".encode("latin-1"), "UTF-8"),
    "ten megabytes": (b"# comment\n" * 1_000_000, "config.yaml"),
    "misspelt": (b"memory:\n  provder: x\n", "did you mean provider"),
    "bad deadline": (b"memory:\n  deadlines: {hook: -1}\n", "memory.deadlines.hook"),
    "bad observers": (b"memory:\n  observers: trace\n", "memory.observers"),
}


@pytest.mark.parametrize(("content", "told"), CONFIGS.values(), ids=CONFIGS.keys())
def test_a_broken_config_is_a_problem_and_the_built_in_works(
    content: bytes, told: str, configured: Any, home: Path
) -> None:
    (home / "config.yaml").write_bytes(content)
    before = tree(home)
    manager = configured()
    assert _names(manager) == ["builtin"]
    assert isinstance(manager.problems[0], ConfigError)
    assert told in str(manager.problems[0])
    assert "\n" not in str(manager.problems[0])
    assert tree(home) == before
    assert _works(manager)


def test_a_config_that_is_a_folder_is_a_problem(configured: Any, home: Path) -> None:
    (home / "config.yaml").mkdir()
    manager = configured()
    assert _names(manager) == ["builtin"]
    assert "folder" in str(manager.problems[0])
    assert _works(manager)


def test_a_home_that_is_a_file_is_a_problem_and_the_built_in_is_there(
    configured: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    manager = configured(tmp_path / "file")
    assert _names(manager) == ["builtin"]
    assert isinstance(manager.problems[0], HomeError)
    assert str(tmp_path / "file") in str(manager.problems[0])


def test_a_home_below_a_file_is_like_one_that_is_missing(configured: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    manager = configured(tmp_path / "file" / "home")
    assert _names(manager) == ["builtin"]


def test_an_unknown_provider_is_a_problem_with_near_names(
    configured: Any, write_config: Any, site: Site, home: Path
) -> None:
    site.add_provider("hindsight")
    write_config("memory:\n  provider: hindsigt\n")
    before = tree(home)
    manager = configured()
    (problem,) = manager.problems
    assert isinstance(problem, UnknownProviderError)
    assert "hindsigt" in str(problem)
    assert "did you mean hindsight?" in str(problem)
    assert tree(home) == before
    assert _works(manager)


def test_a_name_with_two_owners_is_a_problem_that_names_both(
    configured: Any, write_config: Any, site: Site, home: Path
) -> None:
    site.add_provider("acme", "acme-one")
    site.add_provider("acme", "acme-two")
    write_config("memory:\n  provider: acme\n")
    before = tree(home)
    manager = configured()
    assert _names(manager) == ["builtin"]
    (problem,) = manager.problems
    assert isinstance(problem, ProviderConflictError)
    assert "acme-one" in str(problem)
    assert "acme-two" in str(problem)
    assert tree(home) == before
    assert _works(manager)


@pytest.mark.parametrize("owner", ["acme-one", "acme-two", "directory"])
def test_a_choice_with_its_owner_settles_a_conflict(
    owner: str, configured: Any, write_config: Any, site: Site, home: Path
) -> None:
    for distribution in ("acme-one", "acme-two"):
        source = provider_source("acme") + f"\nProvider.owner = {distribution!r}\n"
        site.add(
            distribution,
            groups={"hermes_agent.memory_providers": {"acme": f"{distribution[5:]}_mod:register"}},
            files={f"{distribution[5:]}_mod.py": source},
        )
    add_directory(home, "acme", provider_source("acme") + "\nProvider.owner = 'directory'\n")
    write_config(f"memory:\n  provider: acme@{owner}\n")
    manager = configured()
    assert manager.problems == ()
    assert manager.get_provider("acme").owner == owner


def test_deadlines_of_the_config_are_used(configured: Any, write_config: Any, home: Path) -> None:
    slow = provider_source("slow") + (
        "\nimport threading\n"
        "let_go = threading.Event()\n"
        "Provider.prefetch = lambda self, query: let_go.wait(60) and 'late'\n"
        "Provider.system_prompt_block = lambda self: let_go.wait(60) and 'late'\n"
        "Provider.shutdown = lambda self: let_go.set()\n"
    )
    add_directory(home, "slow", slow)
    write_config("memory:\n  provider: slow\n  prefetch_budget: 0.1\n  deadlines: {hook: 0.1}\n")
    manager = configured()
    assert manager.prefetch_all("q") == ""
    assert manager.build_system_prompt() == ""
    assert manager.health()["slow"]["system_prompt_block"].last_error == "no answer within 0.1 s"


def test_an_unknown_key_is_a_warning_and_no_problem(configured: Any, write_config: Any) -> None:
    write_config("model: gpt\nmemory:\n  flavour: sweet\n")
    manager = configured()
    assert manager.problems == ()
    (warning,) = manager.warnings
    assert "memory.flavour" in warning


def test_problems_are_logged_as_errors_and_warnings_as_warnings(
    configured: Any, write_config: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write_config("memory:\n  flavour: sweet\n  provider: nonsense\n")
    configured()
    levels = {each.levelname for each in caplog.records if "nonsense" in each.getMessage()}
    assert levels == {"ERROR"}
    assert any(
        each.levelname == "WARNING" and "flavour" in each.getMessage() for each in caplog.records
    )


def test_a_subclass_of_the_manager_is_what_comes_out(home: Path) -> None:
    class Mine(MemoryManager):
        pass

    manager = Mine.from_config(home)
    assert type(manager) is Mine
    manager.shutdown_all()
