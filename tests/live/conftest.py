"""Prints what live tests measured, at the end: ``record_property("figures", "one line")``."""

from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [each for some in terminalreporter.stats.values() for each in some]
    told = [each for report in reports for each in getattr(report, "user_properties", ())]
    figures = list(dict.fromkeys(str(value) for name, value in told if name == "figures"))
    if figures:
        terminalreporter.section("figures")
    for line in figures:
        terminalreporter.line(line)
