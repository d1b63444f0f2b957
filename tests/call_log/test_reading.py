"""What the log answers: the calls themselves, and how each hook fares."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.calls import A_CALL, call, write

from hermes_core.call_log import HookReport, LostCalls, hook_health, lost_calls, path_of, read_calls


def sizes(home: Path, **filters) -> list[int]:
    """The calls of an answer, told apart by their sizes."""
    return [each.bytes for _, each in read_calls(home, **filters)]


def test_a_home_without_a_log_has_no_calls_and_gets_no_log(home):
    assert read_calls(home) == []
    assert hook_health(home, since=0) == []
    assert lost_calls(home) == LostCalls(0, 0.0)
    assert list(home.iterdir()) == []


def test_the_newest_are_given_in_order_of_time(home):
    times = [5.0, 1.0, 4.0, 2.0, 3.0]
    write(home, *[call(at=at, bytes=number) for number, at in enumerate(times)])
    assert sizes(home) == [1, 3, 4, 2, 0]
    assert sizes(home, limit=3) == [3, 4, 2]  # the last three that were written
    assert sizes(home, limit=10**30) == [1, 3, 4, 2, 0]
    assert sizes(home, limit=0) == []


def test_who_goes_on_after_a_number_misses_nothing(home):
    write(home, *[call(bytes=number, at=1000.0 - number % 7) for number in range(25)])
    seen, number = [], -1
    while found := read_calls(home, after=number, limit=10):
        seen += [each.bytes for _, each in found]
        number = max(each for each, _ in found)
    assert sorted(seen) == list(range(25))
    assert len(read_calls(home)) == 25
    write(home, call(bytes=99))
    assert sizes(home, after=number) == [99]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"provider": "mem0"}, [2, 4]),
        ({"hook": "sync_turn"}, [3, 4]),
        ({"provider": "mem0", "hook": "sync_turn"}, [4]),
        ({"failed": True}, [2, 3, 5]),
        ({"failed": True, "provider": "mem0"}, [2]),
        ({"provider": "mem"}, []),
        ({"provider": "' OR 1 --"}, []),
        ({"provider": "\udc80"}, []),
    ],
)
def test_filters_leave_what_was_asked_for(home, filters, expected):
    write(
        home,
        call(bytes=1),
        call(bytes=2, provider="mem0", outcome="error"),
        call(bytes=3, hook="sync_turn", outcome="late"),
        call(bytes=4, provider="mem0", hook="sync_turn"),
        call(bytes=5, outcome="paused"),
    )
    assert sizes(home, **filters) == expected


def test_health_tells_of_each_hook_since_a_time(home):
    write(
        home,
        call(at=10.0, outcome="error", error="too old to count"),
        call(at=103.0, outcome="error", seconds=0.2, bytes=10, error="first"),
        call(at=102.0, seconds=0.1, bytes=10),
        call(at=105.0, outcome="late", seconds=4.0, bytes=10, error="no answer within 4 s"),
        call(at=106.0, outcome="paused", seconds=0.0, bytes=0, error="paused"),
        call(at=107.0, seconds=0.3, bytes=10),
        call(at=101.0, hook="sync_turn", seconds=1.0, bytes=5),
        call(at=100.0, provider="builtin", seconds=0.001, bytes=0),
    )
    assert hook_health(home, since=100.0) == [
        HookReport("builtin", "prefetch", 1, 0, 0, "", 100.0, 0.001, 0.001, 0.001, 0, 0),
        HookReport("honcho", "prefetch", 5, 1, 1, "paused", 107.0, 0.3, 0.2, 4.0, 40, 1),
        HookReport("honcho", "sync_turn", 1, 0, 0, "", 101.0, 1.0, 1.0, 1.0, 5, 0),
    ]


def test_percentiles_are_values_that_occurred(home):
    write(home, *[call(seconds=float(number)) for number in range(100, 0, -1)])
    (report,) = hook_health(home, since=0)
    assert (report.p50_seconds, report.p95_seconds) == (50.0, 95.0)


def test_a_look_changes_nothing(home):
    write(home, A_CALL)
    before = path_of(home).read_bytes()
    read_calls(home)
    hook_health(home, since=0)
    assert path_of(home).read_bytes() == before
    assert [each.name for each in path_of(home).parent.iterdir()] == ["memory-calls.db"]
