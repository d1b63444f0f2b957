"""Sessions on a home, ended with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import Machine
from support.notes import Agent
from support.storages import Storage

StartAgent = Callable[..., Agent]


@pytest.fixture
def home(home: Path) -> Path:
    """An empty home, whose notes and conversations are where the running test has them."""
    if Storage.current.config:
        (home / "config.yaml").write_text(f"memory:\n{Storage.current.config}")
    return home


@pytest.fixture(autouse=True)
def _few_distributions(few_distributions: None) -> None:
    """Managers and commands find few distributions."""


@pytest.fixture(autouse=True)
def _forked_children(forked_children: None) -> None:
    """Plugin code of commands runs in a fork."""


@pytest.fixture
def agent(home: Path) -> Iterator[StartAgent]:
    """Starts a session on the home; settings of the notes are keywords."""
    started: list[Agent] = []

    def start(*arguments: Any, **options: Any) -> Agent:
        started.append(Agent(home, *arguments, **options))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """The installed command on a home of its own."""
    made = Machine(tmp_path / "machine", in_process=True)
    if Storage.current.config:
        made.home.mkdir(parents=True, exist_ok=True)
        (made.home / "config.yaml").write_text(f"memory:\n{Storage.current.config}")
    return made
