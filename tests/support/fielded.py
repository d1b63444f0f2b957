"""Directory plugins with fields to set up, written as their authors would."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, NoReturn

from support.commands import Machine, Result
from support.forked_commands import run_forked_command

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


class KeyringMachine(Machine):
    """A machine whose commands, in this process, each look for a keyring again."""

    def run(self, *arguments: str, **options: Any) -> Result:
        """Run the command with its output piped."""
        import keyring.core

        if arguments[0] == "setup" and self._ends_its_process():
            env = options.get("env", {})
            return run_process_with(self, options.get("input", ""), *arguments, **env)
        keyring.core._keyring_backend = None  # type: ignore[attr-defined]
        return super().run(*arguments, **options)

    def _ends_its_process(self) -> bool:
        """Whether a plugin would end or hold the process that loads it, as `setup` does."""
        words = ("os._exit", "os.kill", "sleep(", "/proc")
        plugins = (self.home / "plugins").glob("*/__init__.py")
        return any(word in each.read_text("utf-8") for each in plugins for word in words)


def machine_in(folder: Path, *, in_process: bool = False) -> Machine:
    """The command, with no keyring until a test names one."""
    made = KeyringMachine(folder / "machine", in_process=in_process)
    made.environment |= {
        "PYTHONPATH": f"{made.site.folder}{os.pathsep}{TESTS}",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "TEST_KEYRING": str(folder / "keyring.json"),
    }
    return made


def run_with(machine: Machine, stdin: str | bytes, *arguments: str, **env: str) -> Result:
    """Run the command with something on standard input."""
    if machine.in_process and isinstance(stdin, str):
        return machine.run(*arguments, input=stdin, env=env)
    return run_process_with(machine, stdin, *arguments, **env)


def run_process_with(machine: Machine, stdin: str | bytes, *arguments: str, **env: str) -> Result:
    """The same, always in a process: a fork where the machine runs commands in this one."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    if machine.in_process and os.name == "posix":
        code, out, err = run_forked_command(arguments, {**machine.environment, **env}, given)
        return Result(code, out.decode(), err.decode())
    done = subprocess.run(
        machine.command(*arguments),
        input=given,
        env={**machine.environment, **env},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def run_forked(
    call: Callable[[], object],
    environment: Mapping[str, str],
    limit: float,
    *,
    progress: Callable[[], object] | None = None,
) -> int | None:
    """`run_child` in a fork of this process, which has imported everything already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # our threads only wait
        pid = os.fork()
    if not pid:
        _forked(call, environment)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    assert progress is None, "tests with progress need a real child process"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _forked(call: Callable[[], object], environment: Mapping[str, str]) -> NoReturn:
    try:
        faulthandler.disable()  # pytest's: a plugin that crashes is part of the test
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for name in [each for each in sys.modules if each.startswith("_hermes_plugin_")]:
            del sys.modules[name]  # `setup` has loaded it; a child process would do so itself
        os.environ.clear()
        os.environ.update(environment)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(silent, stream)
        call()
    finally:
        os._exit(1)


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
