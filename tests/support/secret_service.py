"""A real Secret Service: gnome-keyring on a D-Bus session of its own, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from support.commands import Machine

_PROGRAMS = ("dbus-run-session", "gnome-keyring-daemon")
_MISSING = [each for each in _PROGRAMS if not shutil.which(each)]

needs_secret_service = pytest.mark.skipif(
    bool(_MISSING), reason=f"no real Secret Service: {', '.join(_MISSING)} not installed"
)

_UNLOCK = "printf 'pw\\n' | gnome-keyring-daemon --unlock --components=secrets >/dev/null\n"
_LOCKED = "gnome-keyring-daemon --start --components=secrets >/dev/null 2>&1\n"
#: For every process of the session: on a busy machine an answer may take longer than 3 seconds.
_PATIENT = """
from hermes_core.secrets import Secrets
Secrets.__init__.__defaults__ = ("auto", 60.0)
"""


class Session:
    """Commands of a shell in a desktop session; what the keyring holds outlives it."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self._runtime = folder / "run"
        self._runtime.mkdir(mode=0o700)
        (machine.site.folder / "sitecustomize.py").write_text(_PATIENT)
        self.keyrings = machine.user / ".local" / "share" / "keyrings"

    def run(
        self, script: str, *, unlocked: bool = True, **options: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script for `sh`; ``$CLI`` is the installed command. stderr is the bus's too."""
        environment = {
            **self.machine.environment,
            "XDG_RUNTIME_DIR": str(self._runtime),
            "XDG_DATA_HOME": str(self.machine.user / ".local" / "share"),
            "CLI": str(self.machine.script),
            **options,
        }
        for name in ("PYTHON_KEYRING_BACKEND", "DISPLAY", "WAYLAND_DISPLAY"):
            environment.pop(name, None)
        start = _UNLOCK if unlocked else _LOCKED
        return subprocess.run(
            ["dbus-run-session", "--", "sh", "-c", start + dedent(script)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=os.fspath(self.machine.user),
        )
