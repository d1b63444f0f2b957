"""``utils``: files that are whole or as before, and values that may be anything."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from hermes_core.home import replace_file

__all__ = [
    "atomic_json_write",
    "env_bool",
    "env_float",
    "env_int",
    "env_var_enabled",
    "is_truthy_value",
    "read_json_or_empty",
    "safe_json_loads",
]

_TRUE: Final = frozenset({"1", "true", "yes", "on"})


def atomic_json_write(
    path: str | Path, data: Any, *, indent: int = 2, mode: int | None = None, **dump_kwargs: Any
) -> None:
    """Write a JSON file that is never half written."""
    options = {"ensure_ascii": False, **dump_kwargs}
    text = json.dumps(data, indent=indent, **options)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, text.encode(), mode=mode)


def read_json_or_empty(path: str | Path) -> dict[str, Any]:
    """The object in a JSON file; {} if there is none."""
    try:
        data = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def safe_json_loads(text: str, default: Any = None) -> Any:
    """What a JSON text says, or the default."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return default


def is_truthy_value(value: Any, default: bool = False) -> bool:
    """Whether a value means yes."""
    if value is None:
        return default
    return value.strip().lower() in _TRUE if isinstance(value, str) else bool(value)


def env_var_enabled(name: str, default: str = "") -> bool:
    """Whether a variable means yes."""
    return is_truthy_value(os.environ.get(name, default))


def env_bool(key: str, default: bool = False) -> bool:
    """A variable as yes or no."""
    return is_truthy_value(os.environ.get(key, ""), default)


def env_int(key: str, default: int = 0) -> int:
    """A variable as a whole number."""
    try:
        return int(os.environ.get(key, ""))
    except ValueError:
        return default


def env_float(key: str, default: float = 0.0) -> float:
    """A variable as a number."""
    try:
        return float(os.environ.get(key, ""))
    except ValueError:
        return default
