"""What the tests of set-up share: the command with a plugin that has fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands import Machine
from support.fielded import add_plugin, machine_in
from support.terminals import Dialogue

from hermes_core import MemoryManager


@pytest.fixture(autouse=True)
def _few_distributions(request: pytest.FixtureRequest) -> None:
    """The commands find few distributions, unless the test is about those."""
    if request.path.name != "test_needs.py":
        request.getfixturevalue("few_distributions")


@pytest.fixture(autouse=True)
def _no_real_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.setattr("keyring.core._keyring_backend", None)


@pytest.fixture(autouse=True)
def _forked_children(forked_children: None) -> None:
    """Plugin code runs in a fork."""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """The command, without a keyring, and with the plugin acme in its home."""
    made = machine_in(tmp_path, in_process=True)
    add_plugin(made.home)
    return made


@pytest.fixture
def dialogue(machine: Machine) -> Iterator[Callable[..., Dialogue]]:
    """Commands on a terminal; none outlives the test."""
    opened: list[Dialogue] = []

    def start(*arguments: str, **options: str) -> Dialogue:
        opened.append(Dialogue(machine, *arguments, env=options))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.fixture
def configured(home: Path) -> Iterator[Callable[..., MemoryManager]]:
    """Gives managers of a home, by default the test's own, and shuts them down at the end."""
    managers = []

    def make(folder: Path = home) -> MemoryManager:
        managers.append(MemoryManager.from_config(folder))
        return managers[-1]

    yield make
    for each in managers:
        each.shutdown_all()
