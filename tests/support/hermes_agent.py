"""The real hermes-agent 0.19.0, in an environment of its own, at its archive of conversations."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PEER = Path(
    os.environ.get("HERMES_PEER_PYTHON")
    or Path(__file__).parents[2] / ".bench" / "peer" / "bin" / "python"
)

needs_hermes_agent = pytest.mark.skipif(
    not os.access(PEER, os.X_OK),
    reason=f"no hermes-agent: {PEER} can't be run (HERMES_PEER_PYTHON names another)",
)

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


def at_their_archive(home: Path, source: str) -> Any:
    """Run statements beside hermes-agent's ``db`` of a home; gives their ``result``."""
    user = home.parent / "peer-user"
    user.mkdir(exist_ok=True)
    done = subprocess.run(
        [PEER, "-P", "-c", f"{_BEGIN}\n{source}\ndb.close()\nprint(json.dumps(result))"],
        env={**os.environ, "HERMES_HOME": str(home), "HOME": str(user)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
