"""Faults at size: what becomes of turns, and how long one takes, while the server misbehaves.

At the end of the run there is a row for each: turns that were said, acknowledged, lost, doubled and
out of order, and how long a turn took. The plugin's timeout is 2 seconds here, so that a fault need
not last a minute.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from support.honcho_agents import manager
from support.honcho_server import HonchoProcess

TURNS = 40
BEGINS, ENDS = 10, 22  # between these turns the server misbehaves
FLUSH_SECONDS = 240.0

Change = Callable[[HonchoProcess], object]


class Fault(NamedTuple):
    """What happens to a server, and how it ends."""

    begin: Change
    end: Change


def _restart(engine: HonchoProcess) -> None:
    engine.start()
    engine.behave(key="key-for-tests")


FAULTS = {
    "none": Fault(lambda _: None, lambda _: None),
    "server killed": Fault(lambda engine: engine.kill(), _restart),
    "server frozen": Fault(
        lambda engine: engine.behave(frozen=True), lambda engine: engine.behave(frozen=False)
    ),
    "answers cut off": Fault(
        lambda engine: engine.behave(drop=4), lambda engine: engine.behave(drop=0)
    ),
    "429 with Retry-After": Fault(
        lambda engine: engine.behave(refuse=429, retry_after="2"),
        lambda engine: engine.behave(refuse=0),
    ),
    "database dead": Fault(
        lambda engine: engine.behave(database=False), lambda engine: engine.behave(database=True)
    ),
    "requests 4 s late": Fault(
        lambda engine: engine.behave(delay=4.0), lambda engine: engine.behave(delay=0.0)
    ),
}


class Figures(NamedTuple):
    """What came of a conversation."""

    stored: list[str]
    seconds: list[float]
    delivered: bool

    def row(self, name: str, said: list[str]) -> str:
        lost = len(set(said) - set(self.stored))
        doubled = len(self.stored) - len(set(self.stored))
        first = sorted(set(self.stored), key=self.stored.index)
        astray = sum(one != other for one, other in zip(first, sorted(first), strict=True))
        p99 = statistics.quantiles(self.seconds, n=100, method="inclusive")[98]
        return (
            f"{name:22} said {len(said)}, acknowledged {len(set(self.stored))}, lost {lost}, "
            f"doubled {doubled}, out of order {astray}; "
            f"p50 {statistics.median(self.seconds) * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms; "
            f"slowest after two turns of it {max(self.seconds[BEGINS + 2 :]) * 1000:.0f} ms"
        )


def _talk(engine: HonchoProcess, home: Path, fault: Fault, said: list[str]) -> Figures:
    agent = manager(home)
    seconds = []
    for number, text in enumerate(said):
        if number == BEGINS:
            fault.begin(engine)
        if number == ENDS:
            fault.end(engine)
        began = time.perf_counter()
        agent.prefetch_all(text, session_id="s1")
        agent.sync_all(text, "Noted.", session_id="s1")
        seconds.append(time.perf_counter() - began)
    delivered = agent.flush_pending(FLUSH_SECONDS)
    agent.shutdown_all()
    stored = [each["content"] for each in engine.messages("hermes", "s1")]
    return Figures([each for each in stored if each != "Noted."], seconds, delivered)


@pytest.mark.parametrize("name", FAULTS)
def test_no_turn_is_lost_doubled_or_astray(engine, home, record_property, name):
    settings = {"sessionStrategy": "per-session", "timeout": 2}
    (home / "honcho.json").write_text(json.dumps(settings), "utf-8")
    said = [f"Turn number {number:03}." for number in range(TURNS)]
    figures = _talk(engine, home, FAULTS[name], said)
    record_property("figures", f"Honcho, {figures.row(name, said)}")
    assert figures.delivered
    assert figures.stored == said
