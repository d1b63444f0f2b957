"""What pytest loads in everybody's test runs: an option and a few lines at the end.

Imports pytest and the standard library only; the kit itself is imported by those who use it.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

#: Under which pytest-xdist brings the lines of a worker to the process that prints.
_KEY: Final = "hermes_conformance"


class Reports:
    """What the suites of a run have to say, for the summary."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, lines: list[str]) -> None:
        """Keep a suite's lines until the end."""
        self._lines += lines

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand them over, in a worker of pytest-xdist."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_KEY] = self._lines

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take them over: each worker has run the kit for itself."""
        lines = getattr(node, "workeroutput", {}).get(_KEY, ())
        self._lines += [f"{node.gateway.id}: {line}" for line in lines]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was checked, in which version."""
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
    """Make room for the reports."""
    config.pluginmanager.register(Reports(), "hermes_reports")
