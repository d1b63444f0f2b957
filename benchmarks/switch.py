"""How fast a replay hands a past to a provider, beside calling the provider directly.

Both send the same turns of the same sessions to a Honcho server of the tests, which runs in a
process of its own and takes 20 ms for an answer. Directly: one instance per session, and a call per
turn. The replay reads the archive, masks secrets, stores in the outbox and delivers.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from _report import Report
from _venvs import ROOT

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "plugins" / "honcho" / "src")]

from support.archives import open_archive  # noqa: E402 - the path comes first
from support.honcho_server import HonchoProcess  # noqa: E402
from support.our_plugins import install_plugin  # noqa: E402

from hermes_builtin.sessions.archive import NewMessage, SessionFacts  # noqa: E402

SESSIONS, TURNS, ROUNDS = 10, 50, 3
#: What a service on another machine takes at least; on loopback the server answers at once.
DELAY = 0.02
SAID = "I deploy the billing service with make release, and two people have to approve it. " * 3
ANSWER = "With make release, every second Monday; two people of the platform team approve. " * 3
START = 1_700_000_000.0
SETTINGS = {"sessionStrategy": "per-session"}


def fill(home: Path) -> None:
    archive = open_archive(home)
    for session in range(SESSIONS):
        facts = SessionFacts(f"s{session}", "cli", profile="default", started=START + session)
        for turn in range(TURNS):
            at = START + session + turn / 100
            archive.append(
                facts,
                [NewMessage("user", f"{SAID}{turn}", at), NewMessage("assistant", ANSWER, at)],
            )
    archive.close()


def directly(home: Path) -> float:
    """Seconds to hand over everything without a host."""
    from hermes_memory_honcho.provider import HonchoProvider

    began = time.perf_counter()
    for session in range(SESSIONS):
        provider = HonchoProvider()
        provider.initialize(
            f"s{session}", hermes_home=str(home), platform="cli", provider_config=SETTINGS
        )
        for turn in range(TURNS):
            at = START + session + turn / 100
            provider.sync_turn(
                f"{SAID}{turn}", ANSWER, session_id=f"s{session}", turn_id=f"{session}-{turn}",
                said_at=at,
            )  # fmt: skip
        provider.shutdown()
    return time.perf_counter() - began


def replayed(home: Path) -> float:
    """Seconds to hand over everything with a replay, from its start to its last turn."""
    from hermes_core.checkup import replayed_turns, switch

    began = time.time()
    (result,) = switch.replay_in_child(home, switch.ReplayRequest("honcho", parent=0))
    assert (result.turns, result.undelivered) == (SESSIONS * TURNS, 0), result
    (done,) = replayed_turns.replays(home).values()
    return done.finished - began


def seconds_of(call: Callable[[Path], float], folder: Path) -> float:
    """What a call takes on a new home, with a new server."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps({"memory": {"honcho": SETTINGS}}))
    server = HonchoProcess(folder / "honcho.db", "k").start()
    os.environ.update(
        HERMES_HOME=str(folder), HOME=str(folder), HONCHO_BASE_URL=server.url,
        HONCHO_SERVER_KEY="k", HONCHO_PEER_NAME="ann",
    )  # fmt: skip
    server.behave(delay=DELAY)
    fill(folder)
    try:
        return call(folder)
    finally:
        server.kill()


def main() -> None:
    import logging

    logging.disable()
    report = Report(f"A replay of {SESSIONS * TURNS} turns to a Honcho server, {ROUNDS} rounds")
    rows: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="switch-bench-") as folder:
        site = Path(folder) / "site"
        site.mkdir()
        install_plugin("honcho", site)
        sys.path.insert(0, str(site))
        for number in range(ROUNDS):
            calls = (directly, replayed)
            first, second = (
                seconds_of(call, Path(folder) / f"{number}-{call.__name__}") for call in calls
            )
            rows.append((first, second))
    report.samples({"directly": [a for a, _ in rows], "with a replay": [b for _, b in rows]})
    ratio = median(a for a, _ in rows) / median(b for _, b in rows)
    report.at_least("throughput of a replay / of direct calls", ratio, 0.9)
    report.close()


if __name__ == "__main__":
    main()
