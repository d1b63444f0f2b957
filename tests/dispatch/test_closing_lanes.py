"""A lane is closed while somebody else just gives it its first job."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hermes_core.dispatch._lane import Lane


def test_a_lane_whose_thread_is_just_starting_can_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_start, go_on = threading.Event(), threading.Event()
    start = threading.Thread.start

    def slowly(thread: threading.Thread) -> None:
        if thread.name == "memory-slow":
            at_start.set()
            go_on.wait(10)
        start(thread)

    lane = Lane("memory-slow")
    monkeypatch.setattr(threading.Thread, "start", slowly)
    other = threading.Thread(target=lambda: lane.submit(lambda: None, 1))
    other.start()
    assert at_start.wait(10)
    problems: list[Any] = []

    def close() -> None:
        try:
            lane.close()
            lane.join(5)
        except RuntimeError as error:
            problems.append(error)

    closer = threading.Thread(target=close)
    closer.start()
    closer.join(0.1)
    go_on.set()
    closer.join(10)
    other.join(10)
    assert problems == []
