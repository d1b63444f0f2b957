"""Loaded by pytest in every test run: an option, and a few lines at the end.

Imports pytest and the standard library only; the kit itself is imported by those who use it.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

#: The key under which pytest-xdist passes a worker's lines to the process that prints.
_KEY: Final = "hermes_conformance"


class Reports:
    """The lines of all suites of a run, for the summary."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, lines: list[str]) -> None:
        """Store a suite's lines until the end."""
        self._lines += lines

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Pass the lines on, in a worker of pytest-xdist."""
        # Only a worker has it. xdist sends it to the main process, which prints the summary.
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_KEY] = self._lines

    # Optional: without xdist pytest does not know this hook, and would reject the plugin.
    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Collect the lines of a worker: each worker runs the kit separately."""
        lines = getattr(node, "workeroutput", {}).get(_KEY, ())
        self._lines += [f"{node.gateway.id}: {line}" for line in lines]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what was checked, and the versions."""
        if not self._lines:
            return
        terminalreporter.section("hermes conformance")
        for line in self._lines:
            terminalreporter.line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--hermes-live``."""
    parser.getgroup("hermes").addoption(
        "--hermes-live",
        action="store_true",
        help="conformance suites may connect to a backend on this machine",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the collector of reports."""
    config.pluginmanager.register(Reports(), "hermes_reports")
