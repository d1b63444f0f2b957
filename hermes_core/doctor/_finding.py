"""One line of a diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"


class Finding(NamedTuple):
    """What was looked at, how it is, and what to do about it.

    ``fix`` mends it where that is safe; it gives a sentence about what was done.
    """

    what: str
    state: str = OK
    detail: str = ""
    todo: str = ""
    fix: Callable[[], str] | None = None

    def told(self) -> dict[str, Any]:
        """For JSON, and for the way out of a child process."""
        return {
            "check": self.what,
            "state": self.state,
            "detail": self.detail,
            "todo": self.todo,
            "fixable": self.fix is not None,
        }
