"""Writes config.yaml: one change at a time, checked before it is made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hermes_core.config import _editing
from hermes_core.config._comparing import only_changed
from hermes_core.config._editing import DELETE
from hermes_core.config._validation import validate
from hermes_core.config._yaml import Document, parse_document, read_document
from hermes_core.errors import ConfigError
from hermes_core.home import ensure_folder, replace_file
from hermes_core.locking import LockTimeoutError, file_lock
from hermes_core.yamltext import YamlProblem, parse

__all__ = ["DELETE", "change_config"]

LOCK_SECONDS: Final = 10


def change_config(
    home: Path, changes: Mapping[tuple[str, ...], Any], *, valid: bool = False
) -> None:
    """Set the values at the given paths, or remove them (`DELETE`); all or none.

    Every other byte of the file stays as it is. If that can't be done, nothing is written
    and the error says which lines to put in by hand. With ``valid``, what would not be a
    valid file is not written either.
    """
    ensure_folder(home)
    try:
        with file_lock(home / "config.yaml.lock", LOCK_SECONDS):
            document = read_document(home)
            text = edited(document, changes)
            if text != document.text:
                if valid:
                    validate(parse_document(document.path, text))
                replace_file(document.path, (document.mark + text).encode())
    except LockTimeoutError as error:
        raise ConfigError(error.what, where=error.where, hint=error.hint) from error
    except OSError as error:
        raise ConfigError(
            f"can't be written: {error.strerror or error}; nothing was changed",
            where=str(home / "config.yaml"),
        ) from error


def edited(document: Document, changes: Mapping[tuple[str, ...], Any]) -> str:
    """The text after all changes, if it says what was meant and nothing else."""
    text = document.text
    for keys, value in changes.items():
        try:
            changed = _editing.edit(text, keys, value)
            sound = only_changed(text, changed, keys, value)
            if value is DELETE:  # a merge may bring it back
                sound = sound and not _is_there(parse(changed)[1], keys)
        except (_editing.CantEditError, YamlProblem, RecursionError, TypeError, ValueError):
            sound = False
        if not sound:
            raise ConfigError(
                "can't be changed without touching other parts of it; nothing was written",
                where=str(document.path),
                hint=f"put this in by hand: {_by_hand(changes)}",
            )
        text = changed
    return text


def _by_hand(changes: Mapping[tuple[str, ...], Any]) -> str:
    return ", ".join(
        f"{'.'.join(keys)} removed" if value is DELETE else f"{'.'.join(keys)}: {_shown(value)}"
        for keys, value in changes.items()
    )


def _shown(value: Any) -> str:
    try:
        return _editing.render(value)
    except TypeError:
        return repr(value)


def _is_there(data: Any, keys: tuple[str, ...]) -> bool:
    for key in keys:
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True
