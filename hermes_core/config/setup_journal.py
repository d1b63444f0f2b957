"""The setup journal: secrets, config.yaml and the provider's own file change all or not at all.

Setup writes several files, and the machine may stop between any two of them. So it first
stores the new secrets under temporary names, then writes a journal of the changes, without
secrets. Once the journal is in place the setup counts: the next process completes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from hermes_core.config import load_config
from hermes_core.config.config_file import validate
from hermes_core.config.document import parse_document, read_document
from hermes_core.config.editor import (
    DELETE,
    LOCK_SECONDS,
    apply_changes,
    change_config,
    change_plugins,
)
from hermes_core.config.lock_file import LockEntry, entry_of
from hermes_core.config.names import normalise
from hermes_core.errors import CHECK_FOLDER, HermesError
from hermes_core.secrets import Secrets, check_name, check_value
from hermes_core.storage.files import file_lock, read_regular, replace_file, sync_folder
from hermes_core.storage.home import ensure_folder

_JOURNAL: Final = "setup.json"
_MAX_BYTES: Final = 1_000_000
_LOCK: Final = "setup.json.lock"
# Staged secrets are in the same store as real ones, since the journal, a plain file, must not have
# them. `_clear_staged` finds them by the prefix.
_STAGED: Final = "HERMES_STAGED_"
_DELETED: Final = {"$deleted": True}


class SetupJournal(NamedTuple):
    """What a setup does: to config.yaml, to secrets (by variable); then ``save_config``.

    ``plugin`` is the new entry of the lock file, if the setup enables the plugin. ``id`` tells
    two setups of one provider apart; `commit` sets it.
    """

    provider: str
    changes: Sequence[tuple[tuple[str, ...], Any]]
    secrets: Sequence[str]
    plugin: LockEntry | None = None
    id: str = ""


def commit(
    home: Path, secrets: Secrets, journal: SetupJournal, values: Mapping[str, str]
) -> SetupJournal:
    """Carry out a setup, but for ``save_config``, which needs the provider.

    Args:
        home: HERMES_HOME.
        secrets: Where secrets go.
        journal: What is to be done.
        values: The new secrets, by variable.

    Returns:
        The journal as it is now, for `complete`.

    Raises:
        HermesError: It can't be done; everything is as it was.
    """
    # Everything that can be refused is refused before the first write.
    _check(home, journal, values)
    ensure_folder(home)
    journal = journal._replace(id=uuid4().hex)
    with _locked(home):
        # A process may have died since the caller recovered: what it committed counts, and its
        # temporary secrets are the only copies.
        unfinished = pending(home)
        if unfinished is not None:
            _finish(home, secrets, unfinished)
        # Of a setup that died before its journal was written: nobody will finish that one.
        _clear_staged(secrets)
        try:
            for name, value in values.items():
                secrets.set(_STAGED + name, value, journal.provider)
            _write(home, journal)
        # Also Ctrl-C: up to here nothing counts, so everything is taken back.
        except BaseException:
            with suppress(HermesError, OSError):
                _remove(home)
                _clear_staged(secrets)
            raise
        return _finish(home, secrets, journal)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """One setup at a time; an `OSError` becomes a `HermesError`."""
    try:
        # Taken before the lock of config.yaml, never after: `change_config` takes that one inside.
        with file_lock(home / _LOCK, LOCK_SECONDS):
            yield
    except OSError as error:
        raise HermesError(
            f"a setup can't be written: {error.strerror or error}",
            where=str(home),
            hint=CHECK_FOLDER,
        ) from error


def _check(home: Path, journal: SetupJournal, values: Mapping[str, str]) -> None:
    """Check that config.yaml stays valid and that the stores accept the secrets."""
    document = read_document(home)
    validate(parse_document(document.path, apply_changes(document, dict(journal.changes))))
    for name, value in values.items():
        check_value(check_name(name), value)


def _write(home: Path, journal: SetupJournal) -> None:
    changes = [
        [list(keys), _DELETED if value is DELETE else value] for keys, value in journal.changes
    ]
    plugin = None if journal.plugin is None else [journal.plugin.name, journal.plugin.as_json()]
    # A marker stands for DELETE, which is an object without a JSON form.
    text = json.dumps({"schema": 1, **journal._asdict(), "changes": changes, "plugin": plugin})
    replace_file(home / _JOURNAL, text.encode(), mode=0o600)


def _finish(home: Path, secrets: Secrets, journal: SetupJournal) -> SetupJournal:
    """Apply a journal to secrets and config.yaml; steps that are done are skipped."""
    # Only ``save_config`` is left to do, which the manager does after loading the provider.
    if not journal.secrets and not journal.changes and journal.plugin is None:
        return journal
    for name in journal.secrets:
        staged = secrets.get(_STAGED + name, journal.provider)
        # None: an earlier attempt has already moved it. First set, then delete: a crash between
        # the two repeats the set with the same value.
        if staged is not None:
            secrets.set(name, staged.value, journal.provider)
            secrets.delete(_STAGED + name)
    if journal.plugin is None:
        change_config(home, dict(journal.changes))
    else:
        change_plugins(home, dict(journal.changes), [journal.plugin])
    # Not removed: it still says that ``save_config`` has to be called.
    rest = journal._replace(changes=[], secrets=[], plugin=None)
    _write(home, rest)
    return rest


def recover(home: Path) -> None:
    """Finish a setup that was interrupted, before config.yaml is read.

    Raises:
        HermesError: It can't be finished now.
    """
    # Without the lock, since this is on the start-up path and nearly always the end.
    if not (home / _JOURNAL).exists():
        return
    with _locked(home):
        journal = pending(home)  # somebody else may have finished it
        if journal is None:
            return
        _finish(home, Secrets(home, load_config(home).secrets_backend), journal)
        if normalise(load_config(home).selection.name) != normalise(journal.provider):
            # Another provider was chosen since, so ``save_config`` of this one is not called.
            _remove(home)


def unsaved(home: Path, provider: str) -> SetupJournal | None:
    """Return the journal of a provider whose ``save_config`` was not called with it yet.

    Raises:
        HermesError: The journal can't be read.
    """
    journal = pending(home)
    is_its = journal is not None and normalise(journal.provider) == normalise(provider)
    return journal if is_its else None


def complete(home: Path, journal: SetupJournal) -> None:
    """Remove the journal, since ``save_config`` was called; not one that is newer.

    Raises:
        HermesError: It can't be removed.
    """
    # Without the lock while the plugin's code ran, so another setup may have begun meanwhile.
    with _locked(home):
        if pending(home) == journal:
            _remove(home)


def _remove(home: Path) -> None:
    with suppress(FileNotFoundError):
        (home / _JOURNAL).unlink()
        sync_folder(home)


def pending(home: Path) -> SetupJournal | None:
    """Return the journal of an unfinished setup, or None."""
    path = home / _JOURNAL
    try:
        data = json.loads(read_regular(path, _MAX_BYTES))
        changes = [
            (tuple(keys), DELETE if value == _DELETED else value) for keys, value in data["changes"]
        ]
        plugin = entry_of(*data["plugin"]) if data.get("plugin") else None
        journal_id = str(data.get("id", ""))
        journal = SetupJournal(
            str(data["provider"]), changes, list(data["secrets"]), plugin, journal_id
        )
        return _with_lock_entry(journal)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HermesError(
            f"an unfinished setup can't be read: {error}",
            where=str(path),
            hint="remove the file and run: hermes-plugins setup",
        ) from error


def _with_lock_entry(journal: SetupJournal) -> SetupJournal:
    """The journal; one of an older version has the entry among the changes of config.yaml."""
    pins = [change for change in journal.changes if change[0][:2] == ("memory", "pins")]
    if not pins:
        return journal
    rest = [change for change in journal.changes if change not in pins]
    entries = [entry_of(keys[-1], value) for keys, value in pins if value is not DELETE]
    return journal._replace(changes=rest, plugin=entries[0] if entries else None)


def _clear_staged(secrets: Secrets) -> None:
    """Remove the temporary secrets of a setup that stopped before its journal was written."""
    for each in secrets.names():
        if each.variable.startswith(_STAGED):
            secrets.delete(each.variable)
