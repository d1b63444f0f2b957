"""Writes what a set-up decided: secrets, config.yaml, the provider's own file. All or nothing.

There are several files, and the machine may stop between any two of them. So the new secrets
are stored under other names first, then a journal says what is to be done, without a secret in
it. With the journal in place the set-up has happened: whoever comes next finishes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.config import load_config
from hermes_core.config.writing import DELETE, change_config
from hermes_core.errors import HermesError
from hermes_core.home import ensure_folder, replace_file, sync_folder
from hermes_core.names import normalise
from hermes_core.secrets import Secrets

_JOURNAL: Final = "setup.json"
_STAGED: Final = "HERMES_STAGED_"
_DELETED: Final = {"$deleted": True}


class Journal(NamedTuple):
    """What a set-up does. ``saved`` are the values for the provider's ``save_config``."""

    provider: str
    changes: list[tuple[tuple[str, ...], Any]]
    secrets: list[str]
    saved: dict[str, Any]


def commit(home: Path, secrets: Secrets, journal: Journal, values: Mapping[str, str]) -> None:
    """Carry out a set-up, but for ``save_config``, which needs the provider.

    Args:
        home: HERMES_HOME.
        secrets: Where secrets go.
        journal: What is to be done.
        values: The new secrets, by variable.
    """
    ensure_folder(home)
    _clear_staged(secrets)
    for name, value in values.items():
        secrets.set(_STAGED + name, value, journal.provider)
    changes = [
        [list(keys), _DELETED if value is DELETE else value] for keys, value in journal.changes
    ]
    text = json.dumps({"schema": 1, **journal._asdict(), "changes": changes})
    replace_file(home / _JOURNAL, text.encode(), mode=0o600)
    finish(home, secrets)


def finish(home: Path, secrets: Secrets) -> None:
    """Do what an unfinished set-up left to be done: its secrets and config.yaml."""
    journal = pending(home)
    if journal is None:
        return
    for name in journal.secrets:
        staged = secrets.get(_STAGED + name, journal.provider)
        if staged is not None:
            secrets.set(name, staged.value, journal.provider)
            secrets.delete(_STAGED + name)
    change_config(home, dict(journal.changes))


def recover(home: Path) -> None:
    """Finish a set-up that was interrupted, before config.yaml is read.

    Raises:
        HermesError: It can't be finished now.
    """
    if (home / _JOURNAL).exists():
        finish(home, Secrets(home, load_config(home).secrets_backend))


def saved_values(home: Path, provider: str) -> dict[str, Any] | None:
    """What a provider's ``save_config`` is still to be told, or None."""
    journal = pending(home)
    if journal is None or normalise(journal.provider) != normalise(provider):
        return None
    return journal.saved


def done(home: Path) -> None:
    """All of a set-up is done."""
    with suppress(FileNotFoundError):
        (home / _JOURNAL).unlink()
        sync_folder(home)


def pending(home: Path) -> Journal | None:
    """The set-up that was not finished, if there is one."""
    path = home / _JOURNAL
    try:
        told = json.loads(path.read_text("utf-8"))
        changes = [
            (tuple(keys), DELETE if value == _DELETED else value) for keys, value in told["changes"]
        ]
        return Journal(told["provider"], changes, told["secrets"], told["saved"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HermesError(
            f"an unfinished set-up can't be read: {error}",
            where=str(path),
            hint="remove the file and run: hermes-plugins setup",
        ) from error


def _clear_staged(secrets: Secrets) -> None:
    """Remove what a set-up left that was stopped before it counted."""
    for each in secrets.names():
        if each.variable.startswith(_STAGED):
            secrets.delete(each.variable)
