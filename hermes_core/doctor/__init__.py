"""Proves instead of believing: is everything here as it should be?"""

from __future__ import annotations

from hermes_core.doctor._files import examine_config, examine_home, examine_secrets
from hermes_core.doctor._finding import OK, PROBLEM, WARNING, Finding

__all__ = [
    "OK",
    "PROBLEM",
    "WARNING",
    "Finding",
    "examine_config",
    "examine_home",
    "examine_secrets",
]
