"""The log stays small, whatever is written to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.calls import call

from hermes_core.call_log import Call, path_of, read_calls
from hermes_core.call_log import _file as call_file
from hermes_core.call_log._file import CallFile


def fill(home: Path, calls: int, like: Call) -> int:
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


def test_a_hundred_thousand_calls_are_kept_in_less_than_20_mb(home):
    largest = fill(home, 130_000, call(session="s" * 36))
    kept = [each.bytes for _, each in read_calls(home, limit=10**9)]
    assert kept == list(range(30_000, 130_000))
    assert largest < 20_000_000


def test_calls_with_long_errors_are_fewer_and_the_file_is_no_larger(home, monkeypatch):
    monkeypatch.setattr(call_file, "MOST_PAGES", 450)  # a tenth
    fill(home, 15_000, call())
    largest = fill(home, 15_000, call(error="é" * 200, session="s" * 100))
    kept = [each.bytes for _, each in read_calls(home, limit=10**9)]
    assert kept == list(range(15_000 - len(kept), 15_000))
    assert 1000 < len(kept) < 15_000
    assert path_of(home).stat().st_size < 2_300_000
    assert largest < 4_000_000  # with the WAL


def test_a_log_that_is_far_too_large_gets_small_again(home, monkeypatch):
    fill(home, 5000, call())
    monkeypatch.setattr(call_file, "MOST_ROWS", 1200)
    fill(home, 500, call(provider="last"))
    found = read_calls(home, limit=10**9)
    assert len(found) == 1200
    assert [each.provider for _, each in found].count("last") == 500


@pytest.mark.parametrize("calls", [1, 500])
def test_the_file_is_sound_after_pruning(home, monkeypatch, calls):
    monkeypatch.setattr(call_file, "MOST_ROWS", 10)
    with closing(CallFile(path_of(home))) as file:
        for _ in range(30):
            file.write([call()] * calls, 0)
    with closing(sqlite3.connect(path_of(home))) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT count(*) FROM calls").fetchone() == (10,)
