"""What pytest loads in everybody's test runs: an option and a line at the end.

Imports pytest and the standard library only; the kit itself is imported by those who use it.
"""

from __future__ import annotations

from typing import Any

import pytest


class Reports:
    """The reports of a run, for the summary."""

    def __init__(self) -> None:
        self._reports: list[tuple[Any, str]] = []

    def add(self, report: Any, level: str) -> None:
        """Keep a report until the end."""
        self._reports.append((report, level))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was checked, in which version."""
        if not self._reports:
            return
        from hermes_core.conformance._reports import subject, verdict  # noqa: PLC0415

        terminalreporter.section("hermes conformance")
        for report, level in self._reports:
            terminalreporter.line(subject(report))
            terminalreporter.line(verdict(report, level))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--hermes-live``."""
    parser.getgroup("hermes").addoption(
        "--hermes-live",
        action="store_true",
        help="conformance suites may connect to a backend on this machine",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the reports."""
    config.pluginmanager.register(Reports(), "hermes_reports")
