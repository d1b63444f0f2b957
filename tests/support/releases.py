"""The scenarios of tests/compat/peers in child processes: hermes-agent's releases, and ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from support.hermes_agent import PEERS

OURS = "ours"
PROGRAMS = Path(__file__).parents[1] / "compat" / "peers"


def start(side: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a child in the environment of a side: a release, or `OURS`."""
    user = folder / f"user-{side}"
    user.mkdir(parents=True)
    environment = {"HERMES_HOME": str(user / "home"), "HOME": str(user), "HERMES_PEERS_SIDE": side}
    return subprocess.Popen(
        [PEERS.get(side, sys.executable), "-P", *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(child: subprocess.Popen[str]) -> Any:
    """What a child printed on its last line."""
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0, err[-4000:]
    return json.loads(out.splitlines()[-1])


def scenarios(folder: Path, *sides: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run the scenarios on several sides at once."""
    script = str(PROGRAMS / "run.py")
    with ExitStack() as stack:
        started = {
            side: stack.enter_context(start(side, folder, script, str(folder / side), *options))
            for side in sides
        }
        return {side: answer(child) for side, child in started.items()}
