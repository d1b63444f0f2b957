"""The real hermes-agent reads what we write to its .env, and leaves it as it is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from support.hermes_agent import PEER, needs_hermes_agent

from hermes_core.secrets import Secrets

VALUES = {
    "PLAIN_VALUE": "sk-live_0123456789",
    "QUOTE_VALUE": "it's",
    "DOUBLE_VALUE": 'say "yes" #1',
    "DOLLAR_VALUE": "$HOME `id` $(id)",
    "BACKSLASH_VALUE": "\\d\\\\e\\'f",
    "BLANKS_VALUE": "  a  b ",
    "UNICODE_VALUE": "пароль-密码",
}
LOAD = """
import json, os, sys
from hermes_cli.env_loader import load_hermes_dotenv
load_hermes_dotenv(hermes_home=os.environ["HERMES_HOME"])
print(json.dumps({name: os.environ.get(name) for name in sys.argv[1:]}))
"""


@needs_hermes_agent
def test_every_value_arrives_and_the_file_stays(home: Path) -> None:
    path = home / ".env"
    path.write_text("# mine\nOTHER='x' # y\n")
    for name, value in VALUES.items():
        Secrets(home, "dotenv").set(name, value)
    before = path.read_bytes()
    done = subprocess.run(
        [PEER, "-c", LOAD, *VALUES],
        env={**os.environ, "HERMES_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == VALUES
    assert path.read_bytes() == before
