"""Releases of the real hermes-agent, each in its own venv (`make peer` installs them).

``PEERS`` names every release that the tests run beside. To compare a later one, add a line here
and a requirement in benchmarks/_venvs.py. ``PEER`` is 0.19.0, which some tests use alone.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

_VENVS = Path(__file__).parents[2] / ".bench"


def _python(variable: str, folder: str) -> Path:
    place = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    return Path(os.environ.get(variable) or _VENVS / folder / place)


#: The interpreter of each release.
PEERS = {
    "0.19": _python("HERMES_PEER_PYTHON", "peer"),
    "0.20": _python("HERMES_PEER20_PYTHON", "peer20"),
}
PEER = PEERS["0.19"]


def missing(release: str) -> str:
    """Why the tests beside a release can't run; "" if they can."""
    python = PEERS[release]
    there = os.access(python, os.X_OK)
    return "" if there else f"no hermes-agent {release}: {python} can't be run (try `make peer`)"


needs_hermes_agent = pytest.mark.skipif(bool(missing("0.19")), reason=missing("0.19"))

_BEGIN = """
import json, os
from pathlib import Path
from hermes_state import SessionDB
from tools.session_search_tool import session_search
home = Path(os.environ["HERMES_HOME"])
db = SessionDB(home / "state.db")
result = None

def search(query, **options):
    return json.loads(session_search(query=query, db=db, **options))

def talk(name, *turns, source="cli", **facts):
    db.create_session(name, source, **facts)
    return [
        db.append_message(name, role, text)
        for turn in turns for role, text in zip(("user", "assistant"), turn)
    ]
"""


def at_their_archive(home: Path, source: str, release: str = "0.19") -> Any:
    """Run statements beside hermes-agent's ``db`` of a home; gives their ``result``."""
    done = run_at_their_archive(home, source, release)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def run_at_their_archive(
    home: Path, source: str = "", release: str = "0.19"
) -> subprocess.CompletedProcess[str]:
    """The same, whether it succeeds or not."""
    user = home.parent / "peer-user"
    user.mkdir(exist_ok=True)
    return subprocess.run(
        [PEERS[release], "-P", "-c", f"{_BEGIN}\n{source}\ndb.close()\nprint(json.dumps(result))"],
        env={**os.environ, "HERMES_HOME": str(home), "HOME": str(user)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
