"""The clock jumps: notes, pending writes and conversations keep their order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.archives import search
from support.providers import Clock
from support.storages import Storage

from hermes_builtin.notes.entries import Operation
from hermes_builtin.notes.guard_decisions import GuardDecisions
from hermes_builtin.notes.history import Change, History
from hermes_builtin.notes.notebook import Author
from hermes_builtin.notes.pending import PendingWrites
from hermes_builtin.notes.storage import NotesStorage, open_storage
from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, SessionFacts
from hermes_builtin.sessions.location import locate
from hermes_core.call_log import LoggedCall, path_of
from hermes_core.call_log.log import CallFile
from hermes_core.checkup.deliveries import ActiveProvider, writes_fail
from hermes_core.config import Config

pytestmark = pytest.mark.usefixtures("both_storages")

NOW = 1_795_000_000.0
YEAR = 365 * 86_400.0
#: One after the other.
JUMPS = [NOW, NOW + YEAR, NOW + 60, NOW - 10 * YEAR, 1.0, NOW + 120]


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[NotesStorage]:
    """Where the notes are."""
    with closing(open_storage(tmp_path, Storage.current.database)) as made:
        yield made


def test_staged_writes_stay_in_order(notes: NotesStorage) -> None:
    clock = Clock()
    pending = PendingWrites(notes.records, clock)
    for at in JUMPS:
        clock.now = at
        pending.stage("memory", [Operation("add", f"note {at}")], Author())
    waiting = [each for (each,) in pending.operations("memory")]
    assert [each.content for each in waiting] == [f"note {at}" for at in JUMPS]


def test_the_newest_refused_texts_are_kept(notes: NotesStorage) -> None:
    clock = Clock(NOW)
    decisions = GuardDecisions(notes.database, clock)
    for number in range(120):
        clock.now = NOW if number < 100 else 1.0
        decisions.block("memory", f"text {number}", "an order")
    kept = [each.text for each in decisions.blocked()]
    assert kept == [f"text {number}" for number in range(119, 19, -1)]


def test_the_last_change_is_the_one_that_undo_takes_back(notes: NotesStorage) -> None:
    clock = Clock()
    history = History(notes.database, clock)
    text = ""
    for at in JUMPS:
        clock.now = at
        change = Change("memory", "tool", "add", "s1", text, f"{text}{at}")
        history.finish("memory", history.begin(change, [change.after]))
        text = change.after
    newest = history.newest(["memory"])
    assert newest is not None
    assert newest.after == text
    assert [each.at for each in history.changes(limit=10)] == JUMPS[::-1]


def test_a_conversation_keeps_its_order_and_is_found(home: Path) -> None:
    if Storage.current.url:
        (home / "config.yaml").write_text(f"memory:\n{Storage.current.config}")
    with closing(locate(home).open()) as archive:
        for number, at in enumerate(JUMPS):
            archive.append(SessionFacts("s1", started=NOW), [NewMessage("user", f"n{number}q", at)])
            archive.append(
                SessionFacts(f"other{number}", started=at), [NewMessage("user", f"o{number}q", at)]
            )
        for number in range(len(JUMPS)):
            assert search(archive, f"n{number}q") == ["s1"]
            assert search(archive, f"o{number}q") == [f"other{number}"]
        assert archive.check() == []
        session = archive.session("s1", EVERYBODY)
        assert session is not None
        said = [each.content for each in archive.messages(session)]
    assert said == [f"n{number}q" for number in range(len(JUMPS))]


@pytest.mark.files_only  # the call log is always a file
@pytest.mark.parametrize("then", [NOW - 60, NOW - 10 * YEAR, 1.0])
def test_failures_from_before_the_clock_went_back_do_not_outlive_a_success(
    home: Path, then: float
) -> None:
    def call(at: float, outcome: str) -> LoggedCall:
        error = "" if outcome == "ok" else "ConnectionError: down"
        return LoggedCall(at, "ext", "sync_turn", "s1", outcome, 0.1, 10, error)

    with closing(CallFile(path_of(home))) as log:
        log.write([call(NOW, "error")] * 5, 0)
        active, config = ActiveProvider("ext", "owner"), Config(home)
        assert "fail" in writes_fail(config, active, then)
        log.write([call(then, "ok")], 0)
        assert writes_fail(config, active, then) == ""
