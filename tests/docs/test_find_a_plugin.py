"""The examples of docs/find-a-plugin.md are what the commands print, with the index of the tree."""

from __future__ import annotations

import json
import re
import shlex
from datetime import date, timedelta
from pathlib import Path

import pytest
from support.commands import Machine, posix_only, run_on_terminal

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "hermes_core" / "install" / "plugins.json"
PAGE = ROOT / "docs" / "find-a-plugin.md"
PROMPT = "$ hermes-plugins "
#: Needs a network: tests/install.
NOT_RUN = "install "
#: Of a table. Other lines may have the path of the home, which is longer here.
COLUMNS, MORE_COLUMNS = 100, 1000


def blocks() -> list[str]:
    found = re.findall(r"^```console\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [each for each in found if PROMPT in each]


def printed(machine: Machine, command: str) -> str:
    columns = COLUMNS if command.startswith("search") else MORE_COLUMNS
    environment = {"NO_COLOR": "1"}
    _, shown = run_on_terminal(machine, *shlex.split(command), columns=columns, env=environment)
    return shown.replace(str(machine.home), "~/.hermes")


@posix_only
@pytest.mark.usefixtures("few_distributions", "forked_children")
@pytest.mark.parametrize("block", blocks(), ids=lambda each: each.splitlines()[0])
def test_an_example_is_what_the_commands_print(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, in_process=True)
    monkeypatch.chdir(machine.user)
    index = json.loads(INDEX.read_text("utf-8"))
    newer = date.fromisoformat(index["made"]) + timedelta(days=1)
    added = {**index["plugins"][0], "name": "acme", "distribution": "memory-acme"}
    changes = {"made": newer.isoformat(), "plugins": [*index["plugins"], added]}
    Path("plugins.json").write_text(json.dumps({**index, **changes}))
    _, *examples = block.split(PROMPT)
    commands = [each.partition("\n")[0] for each in examples]
    shown = [
        f"{PROMPT}{each}\n" + ("" if each.startswith(NOT_RUN) else printed(machine, each))
        for each in commands
    ]
    assert "".join(shown) == block
