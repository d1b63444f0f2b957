"""What a plugin.yaml says that a plugin needs, and is not there, is told to the person."""

from __future__ import annotations

import pytest
from support.sites import add_directory, provider_source

from hermes_core import MemoryManager

MANIFEST = """
pip_dependencies: ["no-such-library>=2", click, "other; python_version < '3'", "not a ! name"]
external_dependencies:
  - {name: brew-tea, install: "apt install brew-tea", check: "no-such-program --version"}
  - {name: no-other-program}
  - a text
requires_env: [NO_SUCH_VARIABLE, {name: NO_OTHER_VARIABLE}, SET_VARIABLE]
"""
UNAVAILABLE = "return False"


@pytest.fixture(autouse=True)
def _chosen(home, monkeypatch) -> None:
    (home / "config.yaml").write_text("memory: {provider: acme}\n", "utf-8")
    monkeypatch.setenv("SET_VARIABLE", "x")


def test_without_a_reason_of_its_own_the_reason_is_what_it_lacks(home):
    source = provider_source("acme").replace("return True", UNAVAILABLE)
    add_directory(home, "acme", source, MANIFEST)
    manager = MemoryManager.from_config(home)
    (problem,) = manager.problems
    assert problem.what == (
        "is not available: the package no-such-library is not installed; "
        "the program no-such-program is not on the PATH; "
        "its plugin.yaml says: apt install brew-tea; "
        "the program no-other-program is not on the PATH; "
        "the variable NO_SUCH_VARIABLE is not set; the variable NO_OTHER_VARIABLE is not set"
    )
    assert problem.hint == "run: pip install 'no-such-library>=2'"
    manager.shutdown_all()


def test_a_reason_of_its_own_counts_more(home):
    source = provider_source("acme").replace("return True", UNAVAILABLE)
    reason = "\n    def unavailable_reason(self):\n        return 'no tea'\n\ndef register("
    add_directory(home, "acme", source.replace("\ndef register(", reason), MANIFEST)
    manager = MemoryManager.from_config(home)
    assert manager.problems[0].what == "is not available: no tea"
    manager.shutdown_all()


def test_one_that_says_it_is_available_is_not_without_its_packages(home):
    add_directory(home, "acme", provider_source("acme"), MANIFEST)
    manager = MemoryManager.from_config(home)
    (problem,) = manager.problems
    assert problem.what == "is not available: the package no-such-library is not installed"
    assert problem.hint == "run: pip install 'no-such-library>=2'"
    assert [each.name for each in manager.providers] == ["builtin"]
    manager.shutdown_all()
