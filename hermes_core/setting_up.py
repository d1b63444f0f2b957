"""Writes what a set-up decided: secrets, config.yaml, the provider's own file. All or nothing.

There are several files, and the machine may stop between any two of them. So the new secrets
are stored under other names first, then a journal says what is to be done, without a secret in
it. With the journal in place the set-up has happened: whoever comes next finishes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.config import load_config
from hermes_core.config._validation import validate
from hermes_core.config._yaml import parse_document, read_document
from hermes_core.config.writing import DELETE, LOCK_SECONDS, change_config, edited
from hermes_core.errors import HermesError
from hermes_core.home import ensure_folder, replace_file, sync_folder
from hermes_core.locking import file_lock
from hermes_core.names import normalise
from hermes_core.secrets import Secrets
from hermes_core.secrets._checks import check_name, check_value

_JOURNAL: Final = "setup.json"
_LOCK: Final = "setup.json.lock"
_STAGED: Final = "HERMES_STAGED_"
_DELETED: Final = {"$deleted": True}


class Journal(NamedTuple):
    """What a set-up does: to config.yaml, to secrets (by variable); then ``save_config``."""

    provider: str
    changes: Sequence[tuple[tuple[str, ...], Any]]
    secrets: Sequence[str]


def commit(home: Path, secrets: Secrets, journal: Journal, values: Mapping[str, str]) -> None:
    """Carry out a set-up, but for ``save_config``, which needs the provider.

    Args:
        home: HERMES_HOME.
        secrets: Where secrets go.
        journal: What is to be done.
        values: The new secrets, by variable.

    Raises:
        HermesError: It can't be done; everything is as it was.
    """
    _check(home, journal, values)
    ensure_folder(home)
    with _locked(home):
        _clear_staged(secrets)
        try:
            for name, value in values.items():
                secrets.set(_STAGED + name, value, journal.provider)
            _write(home, journal)
        except BaseException:
            with suppress(HermesError, OSError):
                done(home)
                _clear_staged(secrets)
            raise
        _finish(home, secrets, journal)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """One set-up at a time; what the system refuses is an error for a person."""
    try:
        with file_lock(home / _LOCK, LOCK_SECONDS):
            yield
    except OSError as error:
        raise HermesError(
            f"a set-up can't be written: {error.strerror or error}", where=str(home)
        ) from error


def _check(home: Path, journal: Journal, values: Mapping[str, str]) -> None:
    """See that config.yaml and the stores will take what there is for them."""
    document = read_document(home)
    validate(parse_document(document.path, edited(document, dict(journal.changes))))
    for name, value in values.items():
        check_value(check_name(name), value)


def _write(home: Path, journal: Journal) -> None:
    changes = [
        [list(keys), _DELETED if value is DELETE else value] for keys, value in journal.changes
    ]
    text = json.dumps({"schema": 1, **journal._asdict(), "changes": changes})
    replace_file(home / _JOURNAL, text.encode(), mode=0o600)


def _finish(home: Path, secrets: Secrets, journal: Journal) -> None:
    """Do what a set-up wants of secrets and config.yaml; what is done is not done again."""
    if not journal.secrets and not journal.changes:
        return
    for name in journal.secrets:
        staged = secrets.get(_STAGED + name, journal.provider)
        if staged is not None:
            secrets.set(name, staged.value, journal.provider)
            secrets.delete(_STAGED + name)
    change_config(home, dict(journal.changes))
    _write(home, journal._replace(changes=[], secrets=[]))


def recover(home: Path) -> None:
    """Finish a set-up that was interrupted, before config.yaml is read.

    Raises:
        HermesError: It can't be finished now.
    """
    if not (home / _JOURNAL).exists():
        return
    with _locked(home):
        journal = pending(home)  # somebody else may have finished it
        if journal is None:
            return
        _finish(home, Secrets(home, load_config(home).secrets_backend), journal)
        if normalise(load_config(home).selection.name) != normalise(journal.provider):
            done(home)  # another was chosen since: this one is not told anything any more


def is_to_be_told(home: Path, provider: str) -> bool:
    """Whether a provider's ``save_config`` has not been told of the last change yet."""
    journal = pending(home)
    return journal is not None and normalise(journal.provider) == normalise(provider)


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
        return Journal(str(told["provider"]), changes, list(told["secrets"]))
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
