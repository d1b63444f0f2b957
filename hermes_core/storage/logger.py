"""The log of this package, which no plugin can turn into an error of the agent."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, Final


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs like the logger that it wraps, but never raises.

    A record asks `time.time` when it is, and a handler asks its filters. Both can be a plugin's,
    and what is logged on a turn's way must not end the turn.
    """

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message, if that is possible."""
        # One level more, so that the record names the caller and not this line.
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        with suppress(Exception):
            super().log(level, msg, *args, **kwargs)


logger: Final = SafeLogger(logging.getLogger("hermes_core"), {})
