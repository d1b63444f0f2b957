"""The conformance kit: what is wrong with a memory plugin, before its users find out.

`conformance_suite` returns a test class for pytest, `check_plugin` a `Report`. Both are imported
lazily: every pytest run imports our pytest plugin, and must not pay for the kit.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_core.conformance._runner import check_plugin
    from hermes_core.conformance._suite import conformance_suite
    from hermes_core.conformance.checks import all_checks
    from hermes_core.conformance.grades import Grade, grade_of
    from hermes_core.conformance.model import (
        MUST,
        SHOULD,
        Check,
        CheckFailure,
        Limits,
        Options,
        Report,
        Result,
        markdown,
        plain,
    )

__all__ = [
    "MUST",
    "SHOULD",
    "Check",
    "CheckFailure",
    "Grade",
    "Limits",
    "Options",
    "Report",
    "Result",
    "all_checks",
    "check_plugin",
    "conformance_suite",
    "grade_of",
    "markdown",
    "plain",
]

# By name: the module to import it from. What is not here is in `model`.
_MODULES: Final = {
    "all_checks": "checks",
    "check_plugin": "_runner",
    "conformance_suite": "_suite",
    "Grade": "grades",
    "grade_of": "grades",
}


def __getattr__(name: str) -> Any:
    # PEP 562: called only for names that are not there yet.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'model')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
