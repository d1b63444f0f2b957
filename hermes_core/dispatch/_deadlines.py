"""How long a provider may take."""

from __future__ import annotations

from typing import Final, NamedTuple

LOAD_SECONDS: Final = 10.0


class Deadlines(NamedTuple):
    """Seconds that each kind of call may take; ``memory.deadlines`` in config.yaml."""

    load: float = LOAD_SECONDS
    available: float = 5.0
    initialize: float = 30.0
    prefetch: float = 4.0
    tool: float = 60.0
    hook: float = 5.0
    write: float = 120.0
    shutdown: float = 5.0
