"""Plugins for the conformance kit to look at."""

from __future__ import annotations

from typing import Any

from hermes_core.conformance import Limits, Options, Report
from hermes_core.discovery import ProviderInfo

#: For plugins that hang: they are not waited for.
QUICK = Limits(load=3.0, call=2.0, wait=1.0, check=10.0)


def acme(entry_point: str = "hermes_memory_acme:AcmeProvider", **more: Any) -> ProviderInfo:
    """A provider called acme, wherever its class is; by default the scaffold's."""
    known = {"version": "1.0", "description": "A memory plugin.", "entry_point": entry_point}
    return ProviderInfo("acme", "entry-point", **{**known, **more})


def states(report: Report) -> dict[str, str]:
    """What became of each check."""
    return {each.id: each.state for each in report.results}


def happened(report: Report, number: str) -> str:
    """What one check saw."""
    (result,) = [each for each in report.results if each.id == number]
    return result.happened


def only(*numbers: str, **more: Any) -> Options:
    """Run these checks, and wait for nothing."""
    return Options(only=numbers, limits=QUICK, **more)
