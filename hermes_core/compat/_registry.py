"""``tools.registry``: how a tool says what came of it."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["tool_error", "tool_result"]


def tool_error(message: Any, **extra: Any) -> str:
    """A tool's failure."""
    return json.dumps({"error": str(message), **extra}, ensure_ascii=False)


def tool_result(data: Any = None, **kwargs: Any) -> str:
    """A tool's result: an object, or keywords that make one."""
    return json.dumps(kwargs if data is None else data, ensure_ascii=False)
