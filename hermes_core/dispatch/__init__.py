"""The one place that calls a provider: adapted, isolated, in its lane, under its deadline."""

from __future__ import annotations

from hermes_core.dispatch._adapter import ProviderAdapter
from hermes_core.dispatch._calls import Listener
from hermes_core.dispatch._deadlines import Deadlines
from hermes_core.dispatch._delivery import DELIVERY, Delivery, new_event
from hermes_core.dispatch._health import HookHealth
from hermes_core.dispatch._hooks import HookCalls
from hermes_core.dispatch._lane import Job
from hermes_core.dispatch._outcome import Outcome
from hermes_core.dispatch._recall import LateAnswer

__all__ = [
    "DELIVERY",
    "Deadlines",
    "Delivery",
    "HookCalls",
    "HookHealth",
    "Job",
    "LateAnswer",
    "Listener",
    "Outcome",
    "ProviderAdapter",
    "new_event",
]
