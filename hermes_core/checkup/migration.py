"""The journal of `storage migrate`: what is moved where, and how far that is."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from hermes_core.checkup.journal import Journal
from hermes_core.config.config_file import FILES
from hermes_core.errors import HermesError
from hermes_core.storage.address import shown_address

JOURNAL: Final = "storage.json"
_JOURNAL: Final = Journal(
    JOURNAL,
    "an interrupted migration",
    "restore or remove the file; what was stored before is untouched",
)
#: What to do about a migration that was interrupted.
CONTINUE: Final = "run `hermes-plugins storage migrate` again, or with --cancel"


class Phase(Enum):
    """How far a migration is."""

    #: The target may have what others have stored there.
    BEGUN = "begun"
    #: All that the target has is a copy. The source takes changes.
    COPYING = "copying"
    #: The source takes no changes.
    FROZEN = "frozen"
    #: The copy is complete and verified. All that remains is to use it.
    SWITCHED = "switched"


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration that has begun.

    Attributes:
        source: The address that it copies from; "" for files.
        target: The address that it copies to; "files" for files.
        namespace: The home's name in the database, at the source or at the target.
        phase: How far it is.
        id: Marks the target as its copy.
        is_cancelled: Whether it was ended. The copy is still there, and can be continued.
    """

    source: str
    target: str
    namespace: str
    phase: Phase = Phase.BEGUN
    id: str = field(default_factory=lambda: os.urandom(16).hex())
    is_cancelled: bool = False

    @property
    def shown_target(self) -> str:
        """Where to, for people: without anything secret."""
        return self.target if self.target == FILES else shown_address(self.target)


def unfinished_migration(home: Path) -> Migration | None:
    """The migration that was interrupted, if any.

    Raises:
        HermesError: Its journal can't be read.
    """
    last = last_migration(home)
    return None if last is None or last.is_cancelled else last


def last_migration(home: Path) -> Migration | None:
    """The same, also if it was cancelled."""
    return _JOURNAL.read(home, _parsed)


def was_interrupted(home: Path) -> bool:
    """Whether there is one; also if its journal can't be read."""
    try:
        return unfinished_migration(home) is not None
    except HermesError:
        return True


def _parsed(data: dict[str, Any]) -> Migration:
    source, target, namespace = (str(data[key]) for key in ("source", "target", "namespace"))
    # Version 0.2.0 has no id: a copy that it began is of nobody.
    name, is_cancelled = str(data.get("id", "")), bool(data.get("is_cancelled"))
    return Migration(source, target, namespace, Phase(data["phase"]), name, is_cancelled)


def save_migration(home: Path, migration: Migration) -> None:
    """Store how far it is.

    Raises:
        HermesError: The journal can't be written.
    """
    _JOURNAL.write(home, {**asdict(migration), "phase": migration.phase.value})


def remove_migration(home: Path) -> None:
    """Remove the journal: the migration is done, or was cancelled."""
    _JOURNAL.remove(home)


def exclusive_migration(home: Path) -> AbstractContextManager[None]:
    """Hold the lock that lets one migration of a home run at a time."""
    return _JOURNAL.exclusive(home)
