"""The log stays small, whatever is written to it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.calls import call

from hermes_core.call_log import LoggedCall, path_of, read_calls
from hermes_core.call_log import log as call_file
from hermes_core.call_log.log import CallFile

STRESS = bool(os.environ.get("HERMES_STRESS"))


def fill(home: Path, calls: int, like: LoggedCall) -> int:
    """Write so many, a batch at a time as the thread does; gives the largest size on disk."""
    largest = 0
    with closing(CallFile(path_of(home))) as file:
        for first in range(0, calls, 500):
            file.write([like._replace(bytes=first + n) for n in range(500)], 0)
            if first % 10_000 == 0:
                largest = max(largest, on_disk(home))
    return max(largest, on_disk(home))


def on_disk(home: Path) -> int:
    return sum(each.stat().st_size for each in path_of(home).parent.iterdir())


@pytest.mark.scaled
def test_a_hundred_thousand_calls_are_kept_in_less_than_20_mb(home, monkeypatch):
    rows = call_file.MAX_ROWS if STRESS else call_file.MAX_ROWS // 10
    monkeypatch.setattr(call_file, "MAX_ROWS", rows)
    largest = fill(home, rows * 13 // 10, call(session="s" * 36))
    kept = [each.bytes for _, each in read_calls(home, limit=10**9)]
    assert kept == list(range(rows * 3 // 10, rows * 13 // 10))
    assert largest < rows * 200 + (0 if STRESS else 2_000_000)  # a small log is mostly WAL


def test_calls_with_long_errors_are_fewer_and_the_file_is_no_larger(home, monkeypatch):
    monkeypatch.setattr(call_file, "MAX_PAGES", 450)  # a tenth
    fill(home, 12_000, call())
    largest = fill(home, 12_000, call(error="é" * 200, session="s" * 100))
    kept = [each.bytes for _, each in read_calls(home, limit=10**9)]
    assert kept == list(range(12_000 - len(kept), 12_000))
    assert 1000 < len(kept) < 12_000
    assert path_of(home).stat().st_size < 2_300_000
    assert largest < 4_000_000  # with the WAL


def test_a_log_that_is_far_too_large_gets_small_again(home, monkeypatch):
    fill(home, 5000, call())
    monkeypatch.setattr(call_file, "MAX_ROWS", 1200)
    fill(home, 500, call(provider="last"))
    found = read_calls(home, limit=10**9)
    assert len(found) == 1200
    assert [each.provider for _, each in found].count("last") == 500


@pytest.mark.parametrize("calls", [1, 500])
def test_the_file_is_sound_after_pruning(home, monkeypatch, calls):
    monkeypatch.setattr(call_file, "MAX_ROWS", 10)
    with closing(CallFile(path_of(home))) as file:
        for _ in range(30):
            file.write([call()] * calls, 0)
    with closing(sqlite3.connect(path_of(home))) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT count(*) FROM calls").fetchone() == (10,)
