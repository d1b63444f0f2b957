"""Whether a provider starts as an agent would start it, whatever its service does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hermes_core.checkup.child_process import run_plugin_code
from hermes_core.checkup.doctor import SCRATCH, scratch_session
from hermes_core.checkup.switch import candidate
from hermes_core.config import Config, load_config
from hermes_core.dispatch import SingleProvider
from hermes_core.errors import DeadlineExceeded, describe
from hermes_core.loading.activation import activate, deadlines_of
from hermes_core.outbox.failures import Fault, fault_of


@dataclass(frozen=True, slots=True)
class StartResult:
    """What came of starting a provider.

    Attributes:
        error: Why it did not start; "" if it did.
        is_service: Whether that is its service, or the way to it.
    """

    error: str = ""
    is_service: bool = False


def start(config: Config, choice: str) -> StartResult | None:
    """Start a provider in a child process; None if it is not set up, so that it can't start.

    Args:
        config: What config.yaml says.
        choice: The provider: name, or name@owner.
    """
    deadlines = deadlines_of(config)
    done = run_plugin_code(
        config,
        partial(start_in_child, config.home, choice),
        what=f"plugin {choice}",
        seconds=deadlines.load + deadlines.initialize + deadlines.shutdown,
    )
    if done.results:
        return done.results[0]
    return StartResult(done.problem) if done.problem else None


def start_in_child(home: Path, choice: str) -> Iterator[StartResult]:
    """Activate a provider, initialise it, and shut it down."""
    config = candidate(load_config(home), choice, ())
    activation = activate(config)
    try:
        if activation.error is not None or activation.provider is None:
            return
        values = activation.settings.values if activation.settings else None
        name, deadlines = config.selection.name, deadlines_of(config)
        single = SingleProvider(activation.provider, name, deadlines=deadlines, config=values)
        try:
            session = scratch_session(home, SCRATCH)
            error = single.call("initialize", session_id=SCRATCH, extra=session).error
            yield (
                StartResult() if error is None else StartResult(describe(error), _is_service(error))
            )
            single.call("shutdown")
        finally:
            single.close(deadlines.shutdown)
    finally:
        activation.lease.release()


def _is_service(error: Exception) -> bool:
    # Not a version that hangs where another one has just started.
    return not isinstance(error, DeadlineExceeded) and fault_of(error) is Fault.BACKEND
