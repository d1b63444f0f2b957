"""A plugin's own settings file, as hermes-agent's plugins keep theirs: JSON below the home."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_core.errors import ConfigError
from hermes_core.home import ensure_folder, replace_file


def read_own_file(path: Path) -> dict[str, Any]:
    """What a settings file says; nothing if there is none.

    Raises:
        ConfigError: There is one, and it can't be read: it is not taken for an empty one.
    """
    try:
        found = json.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"can't be read: {reason}", where=str(path), hint="mend it, or move it away"
        ) from error
    if not isinstance(found, dict):
        raise ConfigError(
            "is not an object of settings", where=str(path), hint="mend it, or move it away"
        )
    return found


def save_own_file(path: Path, values: Mapping[str, Any]) -> None:
    """Change some settings of a file and keep the others. None takes a setting away.

    It has the old content or the new, never a mix, and is for its owner alone.

    Raises:
        ConfigError: The file is there and can't be read; it is left as it is.
    """
    merged = {**read_own_file(path), **values}
    kept = {key: value for key, value in merged.items() if value is not None}
    ensure_folder(path.parent)
    text = json.dumps(kept, indent=2, ensure_ascii=False) + "\n"
    replace_file(path, text.encode(), mode=0o600)
