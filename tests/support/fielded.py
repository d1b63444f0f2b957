"""Directory plugins with fields to set up, written as their authors would."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from support.commands import Machine, Result

TESTS = Path(__file__).parents[1]

MODE = {"key": "mode", "choices": ["cloud", "local"], "default": "cloud"}
API_KEY = {
    "key": "api_key",
    "secret": True,
    "required": True,
    "env_var": "ACME_API_KEY",
    "url": "https://acme.example/keys",
    "when": {"mode": "cloud"},
    "description": "The key to your memories.",
}
TIMEOUT = {"key": "timeout", "type": "integer", "minimum": 1, "maximum": 60, "default": 30}
PATH = {"key": "path", "required": True, "when": {"mode": "local"}}
FIELDS = (MODE, TIMEOUT, API_KEY, PATH)

_SOURCE = """
import json, os, pathlib
from hermes_core import MemoryProvider

AT_IMPORT = dict(os.environ)

class Provider(MemoryProvider):
    name = {name!r}

    def is_available(self):
        return True

    def get_config_schema(self):
        return {fields!r}

    def save_config(self, values, hermes_home):
        pathlib.Path(hermes_home, "{name}.json").write_text(json.dumps(values))

    def initialize(self, session_id, **kwargs):
        self.session, self.kwargs, self.turns = session_id, kwargs, []

    def get_tool_schemas(self):
        return []

    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        self.turns.append(user_content)

    def prefetch(self, query, *, session_id=""):
        words = query.split()
        return "\\n".join(turn for turn in self.turns if any(word in turn for word in words))

{methods}

{module}
"""


def source(fields: Any = FIELDS, methods: str = "", module: str = "", *, name: str = "acme") -> str:
    """A module with a provider that remembers its turns and has these fields."""
    return _SOURCE.format(
        name=name,
        fields=[*fields] if isinstance(fields, tuple) else fields,
        methods=indent(dedent(methods), "    "),
        module=dedent(module),
    )


def add_plugin(
    home: Path,
    fields: Any = FIELDS,
    methods: str = "",
    module: str = "",
    *,
    name: str = "acme",
    manifest: str = "version: 1.0\ndescription: Memory by Acme.\n",
) -> Path:
    """Put such a plugin into a home, over the one that may be there."""
    folder = home / "plugins" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(source(fields, methods, module, name=name), "utf-8")
    (folder / "plugin.yaml").write_text(f"name: {name}\n{manifest}", "utf-8")
    return folder


def machine_in(folder: Path) -> Machine:
    """The installed command, with no keyring until a test names one."""
    made = Machine(folder / "machine")
    made.environment |= {
        "PYTHONPATH": f"{made.site.folder}{os.pathsep}{TESTS}",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "TEST_KEYRING": str(folder / "keyring.json"),
    }
    return made


def run_with(machine: Machine, stdin: str | bytes, *arguments: str, **env: str) -> Result:
    """Run the command with something on standard input."""
    done = subprocess.run(
        machine.command(*arguments),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        env={**machine.environment, **env},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def env_of(machine: Machine) -> str:
    """What stands in .env."""
    path = machine.home / ".env"
    return path.read_bytes().decode() if path.exists() else ""


def saved_of(machine: Machine, name: str = "acme") -> dict[str, Any]:
    """What the provider was told to keep."""
    told: dict[str, Any] = json.loads((machine.home / f"{name}.json").read_text())
    return told


def rows_of(machine: Machine, *arguments: str, code: int = 0, **options: Any) -> dict[str, Any]:
    """What `doctor --json` found, by what was checked."""
    report = machine.json("doctor", *arguments, code=code, **options)
    assert report["ok"] is (code == 0)
    return {row["check"]: row for row in report["checks"]}
