"""What plugins written for hermes-agent import, where hermes-agent itself is not installed.

`offer_hermes_agent_modules` puts an import finder behind all others. It serves the modules of
`OFFERED`, each with the names and signatures that hermes-agent has; their config, secrets and
home are ours. The loader calls it for a plugin that was written for hermes-agent; the tests of
such a plugin call it themselves.
"""

from __future__ import annotations

from hermes_core.loading.compat._detection import (
    base_classes,
    begin_with_theirs,
    clash_of,
    is_written_for_hermes_agent,
)
from hermes_core.loading.compat._finder import OFFERED, offer_hermes_agent_modules

__all__ = [
    "OFFERED",
    "base_classes",
    "begin_with_theirs",
    "clash_of",
    "is_written_for_hermes_agent",
    "offer_hermes_agent_modules",
]
