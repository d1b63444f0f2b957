"""The one place that calls a provider: adapted, isolated, on its worker, under its deadline.

The names below are imported when first used: `hermes_core.dispatch.worker` is cheap to import,
pluggy and the adapter are not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hermes_core.dispatch.adapter import Listener, ProviderAdapter
    from hermes_core.dispatch.call import (
        DELIVERY,
        LOAD_SECONDS,
        Deadlines,
        Delivery,
        Invocation,
        Outcome,
        TurnClock,
        method_of,
        new_event,
        overrides,
    )
    from hermes_core.dispatch.health import HookHealth, LossCounter
    from hermes_core.dispatch.hooks import HookCalls, SingleProvider, as_builtin
    from hermes_core.dispatch.observers import ObserverError
    from hermes_core.dispatch.recall import LateAnswer
    from hermes_core.dispatch.worker import Job, Worker

__all__ = [
    "DELIVERY",
    "LOAD_SECONDS",
    "Deadlines",
    "Delivery",
    "HookCalls",
    "HookHealth",
    "Invocation",
    "Job",
    "LateAnswer",
    "Listener",
    "LossCounter",
    "ObserverError",
    "Outcome",
    "ProviderAdapter",
    "SingleProvider",
    "TurnClock",
    "Worker",
    "as_builtin",
    "method_of",
    "new_event",
    "overrides",
]

# The call log, the keyring and the archive need `Worker` alone; a command such as `secrets list`
# would otherwise pay for pluggy's import.
_MODULES: Final = {
    "DELIVERY": "call",
    "Deadlines": "call",
    "Delivery": "call",
    "HookCalls": "hooks",
    "HookHealth": "health",
    "LossCounter": "health",
    "Invocation": "call",
    "Job": "worker",
    "LOAD_SECONDS": "call",
    "LateAnswer": "recall",
    "Listener": "adapter",
    "ObserverError": "observers",
    "Outcome": "call",
    "ProviderAdapter": "adapter",
    "SingleProvider": "hooks",
    "TurnClock": "call",
    "Worker": "worker",
    "as_builtin": "hooks",
    "method_of": "call",
    "new_event": "call",
    "overrides": "call",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
