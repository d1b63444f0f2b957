"""The notes of a home and their history, as they are at one moment.

An agent changes both under the lock of a notebook. So a few notebooks are locked together. Many
are locked in turns, before and after the snapshot of the history: what is the same both times is
what the history leads to.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from hermes_core.errors import HermesError
from hermes_core.storage.files import LockTimeoutError, file_lock, open_regular
from hermes_core.storage.snapshot import Snapshot, is_database

#: Notebooks that are locked at once: a process may have 256 files open on some systems.
_MOST_LOCKS: Final = 100
_LOCK_SECONDS: Final = 10.0
_LARGEST_NOTES: Final = 10_000_000
#: How often many notebooks are read until none of them changes meanwhile.
_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class NotesCopy:
    """What was read.

    Attributes:
        texts: The text of each notebook; None if it is too large to be one, or can't be read.
        history: Their history, to be closed; None if it can't be copied like this.
        problem: Why they may not belong together; "" if they do.
    """

    texts: dict[Path, bytes | None]
    history: Snapshot | None
    problem: str = ""


def read_notes(notebooks: Sequence[Path], history: Path | None) -> NotesCopy:
    """Read notebooks and their history.

    Raises:
        LockTimeoutError: Somebody holds a lock for longer than 10 seconds.
    """
    if len(notebooks) <= _MOST_LOCKS:
        with ExitStack() as locks:
            return NotesCopy(_locked_texts(locks, notebooks), _snapshot(history))
    texts = _texts(notebooks)
    for _ in range(_ROUNDS):
        snapshot = _snapshot(history)
        now = _texts(notebooks)
        if now == texts:
            return NotesCopy(texts, snapshot)
        if snapshot is not None:
            snapshot.close()
        texts = now
    # After the texts: a note that the history does not know would count as that of a person.
    problem = "notes: they changed all the time, so the history may be newer than the text of some"
    return NotesCopy(texts, _snapshot(history), problem)


def _texts(notebooks: Sequence[Path]) -> dict[Path, bytes | None]:
    found: dict[Path, bytes | None] = {}
    left = iter(notebooks)
    while some := list(islice(left, _MOST_LOCKS)):
        with ExitStack() as locks:
            found |= _locked_texts(locks, some)
    return found


def _locked_texts(locks: ExitStack, notebooks: Sequence[Path]) -> dict[Path, bytes | None]:
    for each in notebooks:
        _lock(locks, each)
    return {each: _text_of(each) for each in notebooks}


def _lock(locks: ExitStack, notebook: Path) -> None:
    try:
        locks.enter_context(file_lock(notebook.with_name(f"{notebook.name}.lock"), _LOCK_SECONDS))
    except LockTimeoutError:
        raise
    except OSError:  # a folder that can't be written: nobody else changes it either
        return


def _text_of(notebook: Path) -> bytes | None:
    try:
        with open_regular(notebook) as file:
            content = file.read(_LARGEST_NOTES + 1)
    except OSError:
        return None
    return content if len(content) <= _LARGEST_NOTES else None


def _snapshot(history: Path | None) -> Snapshot | None:
    try:
        return Snapshot(history) if history is not None and is_database(history) else None
    except HermesError:
        return None  # copying it as a file reports it
