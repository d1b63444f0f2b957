"""Draws the terminal of the README: `python docs/screenshots.py` writes docs/images/terminal.svg.

It runs the real commands in a temporary home, on a pseudo-terminal of 80 columns, and has rich
export what they print.
"""

from __future__ import annotations

import fcntl
import html
import io
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
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(picture(), "utf-8")


def picture() -> str:
    """Return the picture of what the commands print today."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        shutil.copytree(
            SAMPLE, home / "plugins" / "sample", ignore=shutil.ignore_patterns("__pycache__")
        )
        for arguments in BEFORE:
            run_on_terminal(home, *arguments)
        console = Console(record=True, width=COLUMNS, file=io.StringIO())
        for number, arguments in enumerate(COMMANDS):
            shown = run_on_terminal(home, *arguments).replace(str(home), "~/.hermes")
            prompt = f"$ hermes-plugins {' '.join(arguments)}"
            console.print(Text("\n" * bool(number) + prompt, "bold"))
            console.print(Text.from_ansi(shown.rstrip("\n")))
    svg = console.export_svg(title="hermes-plugins", unique_id="terminal")
    # rich links a font from the web; a monospaced font of the reader does as well.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def text_of(svg: str) -> list[str]:
    """Return the lines of a picture, with a dash for each duration, which differs every time."""
    part = re.compile(r'<text [^>]*?x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', re.DOTALL)
    lines: dict[float, str] = {}
    for _, y, text in sorted(part.findall(svg), key=lambda each: float(each[0])):
        lines[float(y)] = lines.get(float(y), "") + html.unescape(text).replace("\xa0", " ")
    shown = [lines[y].rstrip() for y in sorted(lines)]
    return [re.sub(r"\b[\d.]+ (ms|s|min)\b", "-", line) for line in shown]


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
