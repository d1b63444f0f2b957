"""How a benchmark tells what it saw: a ratio, and whether it is the one we promise."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from statistics import median


def machine() -> str:
    """What it ran on, in one line."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"{system}, Python {platform.python_version()}{load}"


class Report:
    """Prints rows and remembers whether all targets were met."""

    def __init__(self, title: str) -> None:
        self.met = True
        print(f"\n{title}\n{machine()}")

    def samples(self, seconds: Mapping[str, Sequence[float]]) -> None:
        """The measured times, median and range."""
        for name, values in seconds.items():
            low, middle, high = min(values), median(values), max(values)
            print(f"  {name:44} {_time(middle)}  [{_time(low)} - {_time(high)}]")

    def at_most(self, what: str, ratio: float, target: float) -> None:
        """A ratio that must not be larger."""
        self._row(what, ratio, f"at most {target:g}", ratio <= target)

    def at_least(self, what: str, ratio: float, target: float) -> None:
        """A ratio that must not be smaller."""
        self._row(what, ratio, f"at least {target:g}", ratio >= target)

    def close(self) -> None:
        """End with exit code 1 if a target was missed."""
        sys.exit(0 if self.met else 1)

    def _row(self, what: str, ratio: float, target: str, met: bool) -> None:
        self.met &= met
        print(f"  {what:44} {ratio:6.2f}  ({target}: {'met' if met else 'MISSED'})")


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:8.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:8.1f} us"
