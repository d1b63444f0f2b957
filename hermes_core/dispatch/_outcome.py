"""What came of one call of one provider."""

from __future__ import annotations

from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What came of one hook call at one provider.

    An outcome is never None: pluggy drops None, and results could not be told apart by
    position. After a failure ``error`` says why and ``value`` is the hook's neutral value.
    """

    provider: str
    hook: str
    value: Any
    error: Exception | None = None
    seconds: float = 0.0
