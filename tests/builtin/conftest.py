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


@pytest.fixture(autouse=True)
def _few_distributions(few_distributions: None) -> None:
    """Managers and commands find few distributions."""


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
    lines = Storage.current.config
    if lines:
        made.home.mkdir(parents=True, exist_ok=True)
        (made.home / "config.yaml").write_text(f"memory:\n{lines}")
    return made
