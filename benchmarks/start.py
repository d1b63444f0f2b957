"""How long `list`, `search` and our imports take, beside `python -c pass` and the peer."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from _report import Report
from _venvs import Venv, ours, peer

ROUNDS = 25
DISTRIBUTIONS = 300


def fill(site: Path) -> None:
    """Bring a site to 300 distributions, a third of them with entry points."""
    for number in range(DISTRIBUTIONS - len(list(site.glob("*.dist-info")))):
        info = site / f"filler_{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: filler-{number}\nVersion: 1.0\nSummary: Fills.\n\n"
        )
        (info / "RECORD").write_text("".join(f"filler_{number}/m{i}.py,,\n" for i in range(40)))
        if number % 3 == 0:
            (info / "entry_points.txt").write_text(f"[console_scripts]\nf{number} = f:main\n")


def measure(commands: dict[str, list[str]], cwd: Path, home: str) -> dict[str, list[float]]:
    """Wall times, the commands in turn, so that a busy moment hits all of them."""
    environment = {**os.environ, "HERMES_HOME": home, "HOME": home}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(ROUNDS + 1):
        for name, command in commands.items():
            begin = perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=cwd, env=environment)
            if turn:  # the first round warms up
                seconds[name].append(perf_counter() - begin)
    return seconds


def main() -> None:
    mine: Venv = ours()
    theirs: Venv = peer()
    fill(mine.site())
    with tempfile.TemporaryDirectory() as home:
        Path(home, "config.yaml").write_text("memory:\n  provider: ''\n  nudge_interval: 10\n")
        seconds = measure(
            {
                "python -c pass": [mine.python, "-c", "pass"],
                "hermes-plugins list": [str(mine.bin / "hermes-plugins"), "list"],
                "hermes-plugins search": [str(mine.bin / "hermes-plugins"), "search", "local"],
                "import MemoryProvider": [
                    mine.python,
                    "-c",
                    "from hermes_core import MemoryProvider",
                ],
                "import MemoryManager": [
                    mine.python,
                    "-c",
                    "from hermes_core import MemoryManager",
                ],
                "hermes plugins list": [str(theirs.bin / "hermes"), "plugins", "list"],
            },
            mine.folder,
            home,
        )
    report = Report(f"Start-up, {DISTRIBUTIONS} distributions installed")
    report.samples(seconds)
    middle = {name: median(values) for name, values in seconds.items()}
    bare = middle["python -c pass"]
    report.at_most("list / python -c pass", middle["hermes-plugins list"] / bare, 6)
    report.at_most(
        "search / list", middle["hermes-plugins search"] / middle["hermes-plugins list"], 1.2
    )
    report.at_least(
        "hermes plugins list / hermes-plugins list",
        middle["hermes plugins list"] / middle["hermes-plugins list"],
        5,
    )
    report.at_most("import MemoryProvider / pass", middle["import MemoryProvider"] / bare, 3)
    report.at_most("import MemoryManager / pass", middle["import MemoryManager"] / bare, 5)
    report.close()


if __name__ == "__main__":
    main()
