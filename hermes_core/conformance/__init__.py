"""The conformance kit: what is wrong with a memory plugin, before its users find out.

`conformance_suite` gives a test class for pytest, `check_plugin` a `Report`. Imported
lazily: pytest's plugin is imported by everybody's test runs and must cost them nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_core.conformance._model import Limits, Options, Report, Result
    from hermes_core.conformance._runner import check_plugin
    from hermes_core.conformance._suite import conformance_suite
    from hermes_core.conformance.checks import all_checks

__all__ = [
    "Limits",
    "Options",
    "Report",
    "Result",
    "all_checks",
    "check_plugin",
    "conformance_suite",
]

_HOMES: Final = {
    "Limits": "_model",
    "Options": "_model",
    "Report": "_model",
    "Result": "_model",
    "all_checks": "checks",
    "check_plugin": "_runner",
    "conformance_suite": "_suite",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
