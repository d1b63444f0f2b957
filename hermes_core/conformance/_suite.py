"""The kit as a class of tests: one line in an author's repository.

The plugin never runs in pytest's process, which has captured streams, the author's environment
and other plugins. The tests only report what a child process found, so `check` and pytest always
agree. The price: a debugger does not stop in the plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hermes_core.config import Selection
from hermes_core.conformance._runner import check_plugin
from hermes_core.conformance.checks import all_checks
from hermes_core.conformance.model import (
    FAILED,
    MUST,
    SHOULD,
    SKIPPED,
    Check,
    Options,
    Report,
    details,
    summary,
)
from hermes_core.discovery import ProviderInfo, find_provider, scan
from hermes_core.errors import HermesError
from hermes_core.storage.home import resolve_home


def conformance_suite(
    plugin: str | ProviderInfo,
    *,
    config: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    live: bool | None = None,
    level: str = SHOULD,
    skip: Mapping[str, str] | None = None,
) -> type:
    """Return a class for pytest with one test per check.

    Assign it to a name that begins with ``Test``. The checks that pytest selects run in
    child processes, with nothing of your environment.

    Args:
        plugin: The name of an installed provider.
        config: Values for its fields.
        env: Variables that it finds in its environment.
        live: Whether connections to this machine are allowed; by default only with
            ``--hermes-live``.
        level: ``should``, or ``must``: then a failed check of level should is an expected
            failure.
        skip: Checks that don't apply, each with its reason, which the report shows.
    """
    if level not in (MUST, SHOULD):
        raise HermesError(f"unknown level {level!r}", hint="use must or should")
    options = Options(config or {}, env or {}, bool(live), dict(skip or {}))
    # Nothing runs yet: pytest imports the module also to collect, list or deselect tests.
    suite = _Suite(plugin, options, level, follow=live is None)
    tests = {_name(each): _test(each, suite) for each in all_checks()}
    name = re.sub(r"\W", "_", plugin if isinstance(plugin, str) else plugin.name)
    # A class made at run time, since the tests are the installed kit's: a new check needs no
    # change in the author's repository.
    return type(f"TestConformance_{name}", (), {"__doc__": "The conformance kit.", **tests})


def _name(check: Check) -> str:
    """Return the name of a test: the check's id and function, so that -k finds both."""
    return f"test_{check.id}_{check.run.__name__}"


class _Suite:
    """The checks of one plugin, run once for the first test."""

    def __init__(
        self, plugin: str | ProviderInfo, options: Options, level: str, *, follow: bool
    ) -> None:
        self._plugin = plugin
        self._options = options
        self._follow = follow
        self._report: Report | None = None
        self._error: HermesError | None = None
        self.level = level

    def report(self, request: pytest.FixtureRequest) -> Report:
        """Return the results of the checks that pytest selected."""
        if self._error is not None:  # don't load the plugin again for every test
            raise self._error
        if self._report is None:
            try:
                self._report = self._run(request)
            except HermesError as error:
                self._error = error
                raise
        return self._report

    def _run(self, request: pytest.FixtureRequest) -> Report:
        # `-k`, `-m` and node ids have been applied by now: only what is selected runs.
        names = {item.originalname for item in _items(request)}  # type: ignore[attr-defined]
        only = tuple(each.id for each in all_checks() if _name(each) in names)
        live = self._options.live
        if self._follow:
            live = bool(request.config.getoption("hermes_live", False))
        plugin = self._plugin
        if isinstance(plugin, str):
            # An empty selection: what the author has enabled on this machine must not matter.
            plugin = find_provider(plugin, scan(resolve_home(), Selection(), everything=True))
        given = self._options
        options = Options(given.config, given.env, live, given.skip, only)
        report = check_plugin(plugin, options)
        # Absent if the author disabled our pytest plugin with -p no:...
        tell = request.config.pluginmanager.get_plugin("hermes_reports")
        if tell is not None:
            tell.add(summary(report, self.level))
        return report


def _items(request: pytest.FixtureRequest) -> list[pytest.Item]:
    return [item for item in request.session.items if getattr(item, "cls", None) is request.cls]


def _test(check: Check, suite: _Suite) -> Callable[..., None]:
    def test(self: Any, request: pytest.FixtureRequest) -> None:  # noqa: ARG001
        report = suite.report(request)
        result = next(each for each in report.results if each.id == check.id)
        if result.state == SKIPPED:
            pytest.skip(result.reason)
        if result.state != FAILED:
            return
        shown = "\n".join(f"  {label:9} {text}" for label, text in details(result))
        if result.level != MUST and suite.level == MUST:
            # Shown in the report without failing the run: the author chose the level "must".
            pytest.xfail(f"{check.id} should hold: {result.happened}")
        # pytrace=False: a traceback through the kit says nothing about the plugin.
        pytest.fail(f"{check.id} {check.title}\n{shown}", pytrace=False)

    test.__doc__ = check.title
    return test
