"""The one place that calls a provider: adapted, isolated, in its lane, under its deadline."""

from __future__ import annotations

from hermes_core.dispatch._adapter import ProviderAdapter
from hermes_core.dispatch._deadlines import Deadlines
from hermes_core.dispatch._health import HookHealth
from hermes_core.dispatch._hooks import HookCalls
from hermes_core.dispatch._lane import Job
from hermes_core.dispatch._outcome import Outcome

__all__ = ["Deadlines", "HookCalls", "HookHealth", "Job", "Outcome", "ProviderAdapter"]
