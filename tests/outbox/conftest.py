"""What tests of the outbox share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.journals import PLUGIN, Journal
from support.outboxes import open_store
from support.providers import eventually, memory_threads
from support.sites import add_directory
from support.storages import Storage

from hermes_core import MemoryManager
from hermes_core.outbox import worker


@pytest.fixture
def both_storages(both_storages: Storage, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """Where the outboxes of this test are, also those of managers without a config.yaml."""
    monkeypatch.setattr(worker, "open_store", open_store)
    return both_storages


@pytest.fixture
def plugged(home: Path) -> Path:
    """A home whose active provider is a journal, as a directory plugin."""
    add_directory(home, "journal", PLUGIN)
    (home / "config.yaml").write_text(
        f"memory:\n  provider: journal\n{Storage.current.config}", "utf-8"
    )
    return home


@pytest.fixture
def begun(home: Path) -> Iterator[Callable[..., MemoryManager]]:
    """Starts sessions in the home, with a hand-added journal unless a plugin is configured."""
    with ExitStack() as stack:

        def begin(session: str = "s1", provider: Any = None, **keywords: Any) -> MemoryManager:
            if (home / "config.yaml").exists():
                manager = MemoryManager.from_config(home)
            else:
                manager = MemoryManager(home=home)
                assert manager.add_provider(provider or Journal())
            stack.callback(manager.shutdown_all)
            manager.initialize_all(session, **keywords)
            return manager

        yield begin
    ours = {"memory-outbox", "memory-inherited"}
    assert eventually(lambda: not ours & {each.name for each in memory_threads()})
