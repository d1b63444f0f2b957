"""What an agent's end leaves as the cause of a write that was under way: not our own closing."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.outboxes import open_store, outbox_of, rows
from support.providers import Recorder, eventually, raising
from support.scripts import run_script

from hermes_core import Deadlines, MemoryManager
from hermes_core.outbox import OutboxStore, admin

pytestmark = pytest.mark.usefixtures("both_storages")


class Cut(Recorder):
    """Its first write fails after a while; the next hangs until `shutdown` cuts its connection."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)
        self.under_way = threading.Event()
        self.cut = threading.Event()

    def sync_turn(self, user_content: str, assistant_content: str, **_: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.under_way.set()
        self.cut.wait(60)
        raise OSError(errno.EBADF, "Bad file descriptor")

    def shutdown(self) -> None:
        self.cut.set()


def ended(home: Path, provider: Cut) -> None:
    """A session that ends while a write is under way."""
    manager = MemoryManager(home=home, deadlines=Deadlines(shutdown=1.0))
    assert manager.add_provider(provider)
    manager.initialize_all("s1")
    manager.sync_all("u", "a")
    if provider.errors:
        assert eventually(lambda: not provider.errors)
    manager.flush_pending(0.01)  # what waits for its next attempt is tried at once
    assert eventually(provider.under_way.is_set, 30)
    manager.shutdown_all()


@contextmanager
def outbox(home: Path) -> Iterator[OutboxStore]:
    store = open_store(home, set_aside=False)
    try:
        yield store
    finally:
        store.close()


def cause(home: Path) -> tuple[str, int]:
    with outbox(home) as store:
        (row,) = store.database.read(
            lambda database: database.execute("SELECT error, attempts FROM writes").fetchall()
        )
    return row


def test_a_write_that_our_closing_cut_is_one_without_an_answer_and_was_attempted(
    home: Path,
) -> None:
    ended(home, Cut())
    assert eventually(lambda: cause(home) == ("no answer before the agent ended", 1), 30)


def test_the_failure_before_the_end_stays_the_cause(home: Path) -> None:
    ended(home, Cut(ConnectionError("no route to host")))
    assert eventually(lambda: cause(home)[1] == 2, 30)
    assert cause(home)[0] == "ConnectionError: no route to host"


FORGETFUL = """
import atexit
from pathlib import Path
from support.providers import eventually
from outbox.test_endings import Cut, cause

home = Path({home!r})
provider = Cut({errors})

@atexit.register  # as a plugin does that closes what it uses
def close():
    provider.cut.set()
    assert eventually(lambda: cause(home)[1] == {attempts}, 30)

manager = MemoryManager(home=home)
assert manager.add_provider(provider)
manager.initialize_all("s1")
manager.sync_all("u", "a")
if provider.errors:
    assert eventually(lambda: not provider.errors, 30)
manager.flush_pending(0.01)
assert eventually(provider.under_way.is_set, 30)
"""


@pytest.mark.files_only
@pytest.mark.parametrize(
    ("errors", "attempts", "told"),
    [
        ("", 1, "no answer before the agent ended"),
        ("ConnectionError('no route to host')", 2, "ConnectionError: no route to host"),
    ],
)
def test_an_agent_that_does_not_shut_down_leaves_the_real_cause_too(
    home: Path, errors: str, attempts: int, told: str
) -> None:
    script = FORGETFUL.format(home=str(home), errors=errors, attempts=attempts)
    done = run_script(script)
    assert done.returncode == 0, done.stderr
    assert cause(home) == (told, attempts)


@pytest.mark.files_only
def test_a_failure_beside_a_main_thread_that_ended_is_told_as_it_is(home: Path) -> None:
    done = run_script(
        f"""
        from pathlib import Path
        from support.providers import eventually
        from outbox.test_endings import Cut, cause

        home = Path({str(home)!r})

        def agent():
            threading.main_thread().join()
            manager = MemoryManager(home=home)
            manager.add_provider(Cut(ConnectionError("no route to host")))
            manager.initialize_all("s1")
            manager.sync_all("u", "a")
            assert eventually(lambda: cause(home)[1] == 1, 30)
            os._exit(0)

        threading.Thread(target=agent).start()
        """
    )
    assert done.returncode == 0, done.stderr
    assert cause(home)[0] == "ConnectionError: no route to host"


def test_a_provider_that_was_shut_down_gets_no_further_write(home: Path) -> None:
    held, go_on = threading.Event(), threading.Event()

    def shut_down() -> None:
        go_on.set()
        assert not eventually(lambda: provider.of("sync_turn"), 0.3)

    provider = Recorder(shutdown=shut_down)
    manager = MemoryManager(home=home, deadlines=Deadlines(shutdown=4.0))
    assert manager.add_provider(provider)
    manager.initialize_all("s1")
    store = outbox_of(manager).store
    find = store.next_waiting

    def find_slowly(*args: Any, **keywords: Any) -> Any:
        """The worker has looked whether the session is open, and now looks for a write."""
        if keywords.get("turns") and not held.is_set():
            held.set()
            assert go_on.wait(60)
        return find(*args, **keywords)

    store.next_waiting = find_slowly  # type: ignore[method-assign]
    manager.sync_all("turn", "answer")
    assert held.wait(60)
    manager.shutdown_all()
    assert manager.health()["ext"]["shutdown"].failures == 0
    assert provider.of("sync_turn") == []
    with outbox(home) as store:
        assert eventually(lambda: [each.holder for each in store.waiting_streams()] == [""])


def test_each_write_that_waits_names_its_own_cause(home: Path) -> None:
    provider = Cut()
    provider.answers["on_memory_write"] = raising(ConnectionError("no route to host"))
    manager = MemoryManager(home=home, deadlines=Deadlines(shutdown=1.0))
    assert manager.add_provider(provider)
    manager.initialize_all("s1")
    manager.on_memory_write("add", "memory", "a note")
    assert eventually(lambda: rows(manager, "error")[0][0])
    manager.sync_all("u", "a")
    assert eventually(provider.under_way.is_set, 30)
    manager.shutdown_all()
    with outbox(home) as store:
        errors = [each.error for each in admin.entries(store)]
    assert errors == ["ConnectionError: no route to host", "no answer before the agent ended"]
