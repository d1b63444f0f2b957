"""Writes config.yaml: one change at a time, checked before it is made."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from hermes_core.config import _editing
from hermes_core.config._editing import DELETE
from hermes_core.config._yaml import Document, parse_document, read_document
from hermes_core.errors import ConfigError
from hermes_core.home import ensure_folder, replace_file

__all__ = ["DELETE", "change_config"]

LOCK_SECONDS: Final = 10


def change_config(home: Path, changes: Mapping[tuple[str, ...], Any]) -> None:
    """Set the values at the given paths, or remove them (`DELETE`); all or none.

    Every other byte of the file stays as it is. If that can't be done, nothing is written
    and the error says which lines to put in by hand.
    """
    ensure_folder(home)
    lock = FileLock(home / "config.yaml.lock", timeout=LOCK_SECONDS)
    try:
        with lock:
            document = read_document(home)
            text = edited(document, changes)
            if text != document.text:
                replace_file(document.path, text.encode())
    except Timeout as error:
        raise ConfigError(
            f"another process has held its lock for {LOCK_SECONDS} s",
            where=str(home / "config.yaml.lock"),
            hint="try again when it is done",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"can't be written: {error.strerror or error}; nothing was changed",
            where=str(home / "config.yaml"),
        ) from error


def edited(document: Document, changes: Mapping[tuple[str, ...], Any]) -> str:
    """The text after all changes, if it says what was meant and nothing else."""
    text = document.text
    wanted: dict[str, Any] = copy.deepcopy(document.data)
    for keys, value in changes.items():
        _set(wanted, keys, value)
        text = _editing.edit(text, keys, value)
    try:
        got = parse_document(document.path, text).data
    except ConfigError:
        got = None
    # As text, since 1 == True == 1.0, the order of keys counts, and nan is not nan.
    if repr(got) != repr(wanted):
        raise ConfigError(
            "can't be changed without touching other parts of it; nothing was written",
            where=str(document.path),
            hint=f"put this in by hand: {_by_hand(changes)}",
        )
    return text


def _set(data: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    *parents, last = keys
    for key in parents:
        below = data.get(key)
        if not isinstance(below, dict):
            if value is DELETE:
                return
            below = data[key] = {}
        data = below
    if value is DELETE:
        data.pop(last, None)
    else:
        data[last] = value


def _by_hand(changes: Mapping[tuple[str, ...], Any]) -> str:
    return ", ".join(
        f"{'.'.join(keys)} removed"
        if value is DELETE
        else f"{'.'.join(keys)}: {_editing.render(value)}"
        for keys, value in changes.items()
    )
