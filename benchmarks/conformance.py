"""How long `check` takes for a scaffolded plugin, and what the kit costs other test runs."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from _report import Report
from _venvs import ROOT, Venv

CHECKS = 7
ROUNDS = 40
SECONDS = 15


def with_plugin(folder: Path) -> Venv:
    """A venv with this tree and a plugin that `new` has written."""
    venv = Venv("kit").make()
    venv.install(f"{ROOT}[testing]")
    venv.install("--force-reinstall", "--no-deps", str(ROOT))
    project = folder / "parrot"
    subprocess.run(
        [venv.bin / "hermes-plugins", "new", "parrot", "--folder", project],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    venv.install(str(project))
    return venv


def without_us() -> Venv:
    """The same dependencies, and nothing of ours."""
    venv = Venv("no-kit").make()
    venv.install(f"{ROOT}[testing]")
    subprocess.run(
        [venv.python, "-m", "pip", "--quiet", "uninstall", "--yes", "hermes-plugins"], check=True
    )
    return venv


def times(commands: dict[str, list[str]], rounds: int, cwd: Path) -> dict[str, list[float]]:
    """Wall times, the commands in turn, so that a busy moment hits all of them."""
    environment = {**os.environ, "HOME": str(cwd), "HERMES_HOME": str(cwd)}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            begin = perf_counter()
            # pytest's exit code for "no tests" is 5.
            subprocess.run(
                command, check=False, stdout=subprocess.DEVNULL, cwd=cwd, env=environment
            )
            if turn:  # the first round warms up
                seconds[name].append(perf_counter() - begin)
    return seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kit, bare = with_plugin(folder), without_us()
        empty = folder / "empty"
        empty.mkdir()
        command = [str(kit.bin / "hermes-plugins"), "check", "parrot", "--level", "should"]
        checks = times({"check of the scaffolded plugin": command}, CHECKS, empty)
        collect = ["-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q"]
        runs = times(
            {
                "pytest --collect-only, without the kit": [bare.python, *collect],
                "pytest --collect-only, with the kit": [kit.python, *collect],
            },
            ROUNDS,
            empty,
        )
    report = Report("The conformance kit")
    report.samples(checks)
    report.samples(runs)
    report.at_most("check, seconds", median(*checks.values()), SECONDS)
    without, with_kit = (median(values) for values in runs.values())
    report.at_most("collect-only: with / without", with_kit / without, 1.05)
    report.close()


if __name__ == "__main__":
    main()
