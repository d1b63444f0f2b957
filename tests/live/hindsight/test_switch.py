"""A thousand turns from the archive to each of the three, killed on the way: all arrive once.

One home switches to Honcho's server and from there to Mem0's engine, another one from Honcho's
server to Hindsight's. Each switch is killed once with all its processes, and run again.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.archives import open_archive
from support.commands import Machine
from support.hindsight_agents import new_bank, own_server
from support.hindsight_engine import Engine
from support.honcho_server import HonchoProcess
from support.mem0_places import Place, without_settings
from support.mem0_processes import Served
from support.our_plugins import install_plugin

from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_core.checkup.replayed_turns import replays

SESSIONS, TURNS = 20, 50
START = 1_700_000_000.0
KEY = "key-for-tests"


def fill(home: Path) -> list[str]:
    """Conversations that no provider got; returns what was said, in order."""
    archive = open_archive(home)
    said = []
    for session in range(SESSIONS):
        facts = SessionFacts(
            f"s{session}", "cli", profile="default", started=START + session * 10_000
        )
        for turn in range(TURNS):
            number = session * TURNS + turn
            said.append(f"Fact{number:04} says that box{number:04} is open.")
            at = START + session * 10_000 + turn * 60
            answer = NewMessage("assistant", "Noted.", at + 1)
            archive.append(facts, [NewMessage("user", said[-1], at), answer])
    archive.close()
    return said


@pytest.fixture
def honcho(tmp_path: Path) -> Iterator[HonchoProcess]:
    made = HonchoProcess(tmp_path / "honcho.db", KEY).start()
    yield made
    faults = made.behave(delay=0) if made.runs else []
    made.kill()
    assert faults == []


@pytest.fixture
def mem0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    without_settings(monkeypatch)
    made = Served("oss", tmp_path)
    made.start()
    yield made
    made.kill()


def switch(machine: Machine, name: str) -> float:
    """Switch with the past; killed once on the way. Returns the seconds of the second run."""
    process = machine.start("switch", name, "--replay", start_new_session=True)
    while process.poll() is None:
        found = [each for each in replays(machine.home).values() if each.provider == name]
        if any(each.turns > SESSIONS * TURNS / 3 for each in found):
            kill(machine.home, process.pid)
        time.sleep(0.05)
    process.communicate()
    began = time.monotonic()
    result = machine.run_process("switch", name, "--replay", timeout=1500)
    assert (result.code, result.err) == (0, ""), result
    return time.monotonic() - began


def kill(home: Path, parent: int) -> None:
    """End a command and its child as a power cut would."""
    wanted = f"HERMES_HOME={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = int(folder.name) != os.getpid() and wanted in (folder / "environ").read_bytes()
        except OSError:
            continue
        if ours or int(folder.name) == parent:
            os.kill(int(folder.name), signal.SIGKILL)


@pytest.fixture
def machine(tmp_path: Path, honcho: HonchoProcess) -> Machine:
    made = Machine(tmp_path / "machine")
    install_plugin("honcho", made.site.folder)
    known = {"BASE_URL": honcho.url, "SERVER_KEY": KEY, "PEER_NAME": "alice"}
    made.environment |= {f"HONCHO_{name}": value for name, value in known.items()}
    return made


def configure(machine: Machine, name: str, settings: Mapping[str, object], **memory: str) -> None:
    """Install one more plugin, with its settings."""
    install_plugin(name, machine.site.folder)
    honcho = {"sessionStrategy": "per-session"}
    known = {"prefetch_budget": 60, "honcho": honcho, name: settings, **memory}
    machine.write_config(json.dumps({"memory": known, "secrets": {"backend": "dotenv"}}))


# In the other process than those of Hindsight, which take as long.
@pytest.mark.xdist_group("switch")
def test_a_thousand_turns_arrive_once_at_honcho_and_mem0(
    machine: Machine, honcho: HonchoProcess, mem0: Served, record_property
) -> None:
    configure(machine, "mem0", {**mem0.settings, "recall_timeout": 60})
    said = fill(machine.home)
    seconds = {name: switch(machine, name) for name in ("honcho", "mem0")}

    messages = [each for n in range(SESSIONS) for each in honcho.messages("hermes", f"s{n}")]
    users = [each for each in messages if each["peer_id"] == "alice"]
    assert [each["content"] for each in users] == said
    assert users[0]["created_at"].startswith("2023-11-14T22:13:20")

    rows = Place(machine.home, mem0.settings, None).rows()
    assert Counter(each["memory"] for each in rows) == Counter(said)
    assert min(each["created_at"] for each in rows).startswith("2023-11-14T22:13:20")
    record_property("figures", figures(seconds))


def test_a_thousand_turns_arrive_once_at_hindsight(
    machine: Machine, engine: Engine, record_property
) -> None:
    bank = new_bank()
    configure(machine, "hindsight", own_server(engine.url, bank_id=bank), provider="honcho")
    said = fill(machine.home)
    seconds = switch(machine, "hindsight")

    listed = engine.get(f"/v1/default/banks/{bank}/documents?limit=2000")["items"]
    assert len({each["id"] for each in listed}) == len(said)
    assert machine.providers()["hindsight"]["active"]
    record_property("figures", figures({"hindsight": seconds}))


def figures(seconds: Mapping[str, float]) -> str:
    line = ", ".join(f"{name} {each:.0f} s" for name, each in seconds.items())
    return f"switch with 1,000 turns, after a kill: {line}"
