"""Draws the terminal of the README: `python docs/screenshots.py` writes docs/images/terminal.svg.

It runs the real commands in a temporary home, on a pseudo-terminal of 80 columns, and has rich
export what they print.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

import hermes_core.cli

TARGET: Final = Path(__file__).parent / "images" / "terminal.svg"
SAMPLE: Final = Path(hermes_core.cli.__file__).parent / "sample"
COLUMNS: Final = 80
COMMANDS: Final = (("list",), ("status",), ("memory", "show"))
BEFORE: Final = (
    ("enable", "sample"),
    ("memory", "add", "--target", "user", "Prefers short answers, in German."),
    ("memory", "add", "--target", "memory", "Billing is deployed with make release."),
    ("memory", "add", "--target", "memory", "The staging server is stage-1."),
)


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        shutil.copytree(
            SAMPLE, home / "plugins" / "sample", ignore=shutil.ignore_patterns("__pycache__")
        )
        for arguments in BEFORE:
            run_on_terminal(home, *arguments)
        console = Console(record=True, width=COLUMNS, file=Path(os.devnull).open("w"))  # noqa: SIM115
        for number, arguments in enumerate(COMMANDS):
            shown = run_on_terminal(home, *arguments).replace(str(home), "~/.hermes")
            prompt = f"$ hermes-plugins {' '.join(arguments)}"
            console.print(Text("\n" * bool(number) + prompt, "bold"))
            console.print(Text.from_ansi(shown.rstrip("\n")))
    TARGET.parent.mkdir(exist_ok=True)
    svg = console.export_svg(title="hermes-plugins", unique_id="terminal")
    # rich links a font from the web; a monospaced font of the reader does as well.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    TARGET.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", "utf-8")


def run_on_terminal(home: Path, *arguments: str) -> str:
    """Run a command whose standard output is a terminal, and return what it printed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    environment = {**os.environ, "HERMES_HOME": str(home), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-P", "-m", "hermes_core", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,  # no progress in the picture
    )
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    process.wait()
    return shown.decode("utf-8").replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side has closed: Linux reports it as an error
        return b""


if __name__ == "__main__":
    main()
