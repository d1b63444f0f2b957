"""Two venvs to compare: this tree as a wheel, and hermes-agent from the package index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

PEER: Final = "hermes-agent==0.19.0"
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


def peer() -> Venv:
    """hermes-agent."""
    venv = Venv("peer")
    if not Path(venv.python).exists():
        venv.make().install(PEER)
    return venv
