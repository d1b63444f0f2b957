"""What the tests of deliveries share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Machine
from support.deliveries import Alpha
from support.fielded import run_forked
from support.providers import eventually, memory_threads

from hermes_core.checkup import child_process


@pytest.fixture(autouse=True)
def _few_distributions(few_distributions: None) -> None:
    """The commands find few distributions."""


@pytest.fixture(autouse=True)
def _forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugin code runs in a fork: tests/checkup has what the real child process is about."""
    if os.name == "posix":
        monkeypatch.setattr(child_process, "run_child", run_forked)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """The command with an empty home, in this process."""
    return Machine(tmp_path / "machine", in_process=True)


@pytest.fixture
def alpha(machine: Machine) -> Iterator[Alpha]:
    """A home whose provider can be switched off; what hangs in it ends with the test."""
    alpha, threads = Alpha(machine), memory_threads()
    yield alpha
    for state in ("starting", "slow", "hanging"):
        (alpha.home / state).unlink(missing_ok=True)
    assert eventually(lambda: memory_threads() <= threads)


@pytest.fixture
def down(alpha: Alpha) -> Alpha:
    """The same, with its backend down."""
    alpha.set("down")
    return alpha
