"""Which program installs packages for the interpreter that runs us."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import sysconfig
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hermes_core.installing._errors import InstallError
from hermes_core.installing._pip import Pip
from hermes_core.installing._plan import OURSELVES, Installer
from hermes_core.installing._uv import Uv
from hermes_core.names import normalise


def installer(verb: str, spec: str) -> Installer:
    """pip, or uv where there is none.

    Args:
        verb: What is to be done: install or uninstall.
        spec: With what.

    Raises:
        InstallError: The environment is another program's to change; says the right
            command.
    """
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        raise _theirs("pipx", _pipx_command(prefix, verb, spec))
    if (prefix / "uv-receipt.toml").is_file():
        raise _theirs("uv", _uv_command(prefix, verb, spec))
    _refuse_system_python(spec)
    _refuse_read_only(spec)
    if find_spec("pip") is not None:
        return Pip()
    if program := shutil.which("uv"):
        return Uv(program)
    raise InstallError(
        f"this Python has no pip, and uv is not installed: {sys.executable}",
        where=spec,
        hint=f"run: {shlex.quote(sys.executable)} -m ensurepip",
    )


def _theirs(program: str, command: str) -> InstallError:
    return InstallError(
        f"hermes-plugins runs in an environment that {program} made and looks after",
        hint=f"nothing was changed; run: {command}",
    )


def _pipx_command(prefix: Path, verb: str, spec: str) -> str:
    try:
        data: Any = json.loads((prefix / "pipx_metadata.json").read_bytes())
        app = str(data["main_package"]["package"])
    except (OSError, ValueError, KeyError, TypeError):
        app = OURSELVES
    return shlex.join(["pipx", "inject" if verb == "install" else "uninject", app, spec])


def _uv_command(prefix: Path, verb: str, spec: str) -> str:
    """Uv knows no "one more": what is to be there is said anew each time."""
    (_, tool), *others = _receipt(prefix) or [(OURSELVES, OURSELVES)]
    if verb == "install":
        others.append(("", spec))
    else:
        others = [each for each in others if each[0] != normalise(spec)]
    added = [word for _, text in others for word in ("--with", text)]
    return shlex.join(["uv", "tool", "install", tool, *added])


def _receipt(prefix: Path) -> list[tuple[str, str]]:
    """The requirements of a uv tool environment by name, the tool first."""
    try:
        data: Any = tomllib.loads((prefix / "uv-receipt.toml").read_text("utf-8"))
        return [(normalise(each["name"]), _written(each)) for each in data["tool"]["requirements"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _written(entry: dict[str, Any]) -> str:
    """A requirement of a receipt as a person writes it."""
    if place := entry.get("path") or entry.get("directory") or entry.get("editable"):
        return str(place)
    if address := entry.get("url") or ("git" in entry and f"git+{entry['git']}"):
        return f"{entry['name']} @ {address}"
    extras = f"[{','.join(entry['extras'])}]" if entry.get("extras") else ""
    return f"{entry['name']}{extras}{entry.get('specifier', '')}"


def _refuse_system_python(spec: str) -> None:
    """PEP 668. pip says so too, but only when it has been told to go on."""
    marker = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    allowed = os.environ.get("PIP_BREAK_SYSTEM_PACKAGES", "").lower() in ("1", "true", "yes", "on")
    if sys.prefix == sys.base_prefix and marker.is_file() and not allowed:
        raise InstallError(
            "this Python belongs to the operating system, which does not want pip to change it",
            where=spec,
            hint="use a virtual environment, or: pipx install hermes-plugins && "
            + shlex.join(["pipx", "inject", "hermes-plugins", spec]),
        )


def _refuse_read_only(spec: str) -> None:
    """Outside a virtual environment pip has the user's own site to fall back on."""
    folder = sysconfig.get_path("purelib")
    if sys.prefix != sys.base_prefix and not os.access(folder, os.W_OK):
        raise InstallError(
            f"no permission to write to {folder}",
            where=spec,
            hint="use a virtual environment of your own",
        )
