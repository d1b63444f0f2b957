"""There is no room for a write: the turn goes on, the archive has it, and everybody is told."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.archives import stored
from support.journals import texts
from support.outboxes import open_store
from support.outboxes import stored as rows_of
from support.scripts import run_script

from hermes_core import MemoryManager

pytestmark = pytest.mark.usefixtures("both_storages")


def archived(home: Path) -> set[str]:
    return {text for texts in stored(home / "state.db").values() for text in texts}


def states(home: Path) -> list[tuple[str, str]]:
    return rows_of(home)


def test_a_full_outbox_is_loud_keeps_notes_and_leaves_turns_to_the_archive(
    plugged: Path, begun: Callable[..., MemoryManager], caplog: pytest.LogCaptureFixture
) -> None:
    config = plugged / "config.yaml"
    config.write_text(config.read_text() + "  outbox:\n    max_mb: 1\n")
    (plugged / "down").touch()
    manager = begun("s1")
    for number in range(150):
        manager.sync_all(f"turn {number}", "word " * 2000)
        if number % 10 == 0:
            manager.on_memory_write("add", "memory", f"note {number}")
    assert any("outbox is full" in warning for warning in manager.warnings)
    assert "outbox is full" in caplog.text
    assert manager.health()["journal"]["sync_turn"].failures > 10
    found = states(plugged)
    assert found.count(("sync_turn", "missed")) + found.count(("sync_turn", "waiting")) == 150
    assert found.count(("sync_turn", "missed")) > 10
    assert found.count(("on_memory_write", "waiting")) == 15
    assert {f"turn {number}" for number in range(150)} <= archived(plugged)
    store = open_store(plugged)
    assert store.database.read(store.database.used_bytes) < 1_200_000
    (plugged / "down").unlink()
    assert manager.flush_pending(30)
    manager.sync_all("turn after", "answer")
    assert manager.flush_pending(30)
    assert texts(plugged)[-1] == "turn after"


def test_what_had_no_room_never_fills_the_outbox_itself(
    plugged: Path, begun: Callable[..., MemoryManager]
) -> None:
    config = plugged / "config.yaml"
    config.write_text(config.read_text() + "  outbox:\n    max_mb: 0.06\n")
    (plugged / "down").touch()
    manager = begun("s1")
    for number in range(1000):
        manager.sync_all(f"turn {number}", "answer")
    assert states(plugged).count(("sync_turn", "missed")) > 700
    (plugged / "down").unlink()
    assert manager.flush_pending(30)
    manager.sync_all("turn after", "answer")
    assert manager.flush_pending(30)
    assert texts(plugged)[-1] == "turn after"
    assert any("is full (0.06 MB)" in warning for warning in manager.warnings)


def run(home: Path, source: str, **options: Any) -> None:
    done = run_script(source, **options)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits are POSIX")
def test_a_disk_that_is_full_stops_no_turn_and_later_turns_are_kept_again(home: Path) -> None:
    run(
        home,
        f"""
        import logging, resource, signal
        from pathlib import Path
        from support.journals import Journal, texts
        logging.disable(logging.CRITICAL)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        home = Path({str(home)!r})
        manager = MemoryManager(home=home)
        manager.add_provider(Journal())
        manager.initialize_all("s1")
        (home / "down").touch()
        manager.sync_all("turn 0", "answer")
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, unlimited[1]))
        for number in range(1, 20):
            manager.sync_all(f"turn {{number}}", "word " * 4000)
        assert any("not stored" in each for each in manager.warnings), manager.warnings
        failed = manager.health()["journal"]["sync_turn"].failures
        assert failed >= 10, failed
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        manager.sync_all("turn after", "answer")
        (home / "down").unlink()
        assert manager.flush_pending(20)
        manager.shutdown_all()
        assert texts(home)[0] == "turn 0" and texts(home)[-1] == "turn after", texts(home)
        """,
        timeout=90,
    )


@pytest.mark.files_only
def test_a_database_that_may_not_grow_is_told_of_and_the_turn_is_in_the_archive(
    plugged: Path, begun: Callable[..., MemoryManager], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    (plugged / "down").touch()
    manager = begun("s1")
    manager.sync_all("turn 0", "answer")
    store = manager._writes._outbox.store  # type: ignore[union-attr]

    def limit(pages: int) -> None:
        store.database.read(lambda database: database.execute(f"PRAGMA max_page_count = {pages}"))

    limit(1)
    manager.sync_all("turn 1", "word " * 10_000)
    assert "full" in caplog.text
    assert any("not stored" in warning for warning in manager.warnings)
    limit(10**6)
    manager.sync_all("turn 2", "answer")
    (plugged / "down").unlink()
    assert manager.flush_pending(20)
    assert texts(plugged) == ["turn 0", "turn 2"]
    assert "turn 1" in archived(plugged)
