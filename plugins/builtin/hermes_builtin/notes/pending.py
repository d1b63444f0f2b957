"""Writes that wait for a person: all of them, or those whose words strangers may have written."""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf, nextafter
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from hermes_builtin.notes.entries import NotesError, Operation, RefusalError, operation, previews
from hermes_builtin.notes.notebook import Author
from hermes_core.errors import CHECK_FOLDER
from hermes_core.privacy.origin import lowest
from hermes_core.storage.files import replace_file
from hermes_core.storage.home import ensure_folder
from hermes_core.storage.logger import SafeLogger

logger = SafeLogger(logging.getLogger("hermes_builtin"), {})

# An id comes from the command line and becomes part of a path, so nothing else is accepted.
_NAME: Final = re.compile(r"[0-9a-f]{8}")


class PendingWrite(NamedTuple):
    """A write that waits."""

    id: str
    created_at: float
    who: str
    session: str
    summary: str
    target: str
    operations: list[Operation]
    reason: str = ""

    @property
    def origin(self) -> str:
        """Where the words come from; "" if that was not judged."""
        return lowest((each.origin for each in self.operations if each.origin), "")


class Records(Protocol):
    """Where the records are, each under its id, as JSON.

    Every method raises `NotesError` if that is not possible.
    """

    def store(self, name: str, record: str) -> None:
        """Store a record."""

    def all(self) -> list[tuple[str, str]]:
        """The ids and where each record is, for messages."""

    def texts(self) -> dict[str, str]:
        """Every record by its id, also one that can't be used."""

    def read(self, name: str) -> str:
        """A record."""

    def exists(self, name: str) -> bool:
        """Whether there is such a record."""

    def remove(self, name: str) -> None:
        """Remove a record, if there is one."""


#: A file that says why nothing more may be staged here: the notes have moved.
_FROZEN: Final = "moved.txt"


class RecordFiles:
    """``pending/memory`` below the home: one file per write.

    So two agents can stage at the same time without a lock.
    """

    def __init__(self, home: Path) -> None:
        self.folder = home / "pending" / "memory"
        #: Whether this is a migration, which may store what others may not.
        self.is_copying = False

    def freeze(self, why: str) -> None:
        """Refuse new records from now on."""
        ensure_folder(self.folder)
        replace_file(self.folder / _FROZEN, why.encode(), mode=0o600)

    def thaw(self) -> None:
        """Accept records again."""
        (self.folder / _FROZEN).unlink(missing_ok=True)

    def store(self, name: str, record: str) -> None:
        """Store a record."""
        if not self.is_copying and (self.folder / _FROZEN).exists():
            why = (self.folder / _FROZEN).read_text("utf-8", "replace")
            raise NotesError(f"the write could not be staged: {why}", where=str(self.folder))
        try:
            ensure_folder(self.folder)
            replace_file(self._path(name), record.encode(), mode=0o600)
        except OSError as error:
            raise NotesError(
                f"the write could not be staged: {error.strerror or error}",
                where=str(self.folder),
                hint=CHECK_FOLDER,
            ) from error

    def all(self) -> list[tuple[str, str]]:
        """The ids and where each record is, for messages."""
        return [(path.stem, str(path)) for path in self.folder.glob("*.json")]

    def texts(self) -> dict[str, str]:
        """Every record by its id, also one that can't be used."""
        found = {}
        for path in sorted(self.folder.glob("*.json")):
            with suppress(OSError):
                if not _NAME.fullmatch(path.stem) or path.is_symlink():
                    continue  # not ours
                found[path.stem] = path.read_text("utf-8", "replace")
        return found

    def read(self, name: str) -> str:
        """A record."""
        return self._path(name).read_text("utf-8")

    def exists(self, name: str) -> bool:
        """Whether there is such a record."""
        return self._path(name).exists()

    def remove(self, name: str) -> None:
        """Remove a record, if there is one."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


class PendingWrites:
    """The writes that wait."""

    def __init__(self, records: Records, clock: Callable[[], float] = time.time) -> None:
        self._records = records
        self._clock = clock

    def stage(
        self, target: str, operations: Sequence[Operation], author: Author, reason: str = ""
    ) -> str:
        """Store a write until a person decides; returns its id.

        Args:
            target: The notebook's key.
            operations: What is wanted.
            author: Who wants it.
            reason: Why it waits, if not all writes do. A model that tries again gets the same id.
        """
        for each in self.all() if reason else ():
            if each.target == target and each.operations == list(operations):
                return each.id
        name = secrets.token_hex(4)
        batch = len(operations) > 1
        first = operations[0]
        payload: dict[str, Any] = {"target": target}
        if batch:
            payload |= {"action": "batch", "operations": [each._asdict() for each in operations]}
        else:
            # hermes-agent's record format, so that its own command can list and approve these
            # writes.
            payload |= first._asdict()
        record = {
            "id": name,
            "subsystem": "memory",
            "action": "batch" if batch else first.action,
            "summary": "; ".join(_summary(each) for each in operations),
            "origin": author.who,
            "session": author.session,
            "created_at": self._later(),
            "reason": reason,
            "payload": payload,
        }
        self._records.store(name, json.dumps(record, ensure_ascii=False, indent=2))
        return name

    @staticmethod
    def is_id(name: str) -> bool:
        """Whether a write can have that id."""
        return _NAME.fullmatch(name) is not None

    def restore(self, name: str, record: Mapping[str, Any]) -> bool:
        """Store a write that waits in another home; returns whether it was not here yet.

        Args:
            name: Its id; see `is_id`.
            record: What another home has.
        """
        if self._records.exists(name):
            return False
        self._records.store(name, json.dumps(record, ensure_ascii=False, indent=2))
        return True

    def _later(self) -> float:
        """The time; later than that of what waits already, whatever the clock says."""
        newest = max((each.created_at for each in self.all()), default=0.0)
        return max(self._clock(), nextafter(newest, inf))

    def all(self) -> list[PendingWrite]:
        """What waits, oldest first. A broken record hides no other."""
        found = []
        for name, where in self._records.all():
            try:
                found.append(self._read(name, where))
            except NotesError as error:
                # Logged and skipped: the person can still decide about the others.
                logger.warning("notes: %s", error)
        return sorted(found, key=lambda each: each.created_at)

    def operations(self, target: str) -> list[list[Operation]]:
        """What waits for a notebook, oldest first."""
        return [each.operations for each in self.all() if each.target == target]

    def get(self, name: str) -> PendingWrite:
        """One of them."""
        if not self.exists(name):
            todo = "to see the ids: hermes-plugins memory pending"
            raise NotesError(f"nothing with the id {name} is pending", hint=todo)
        return self._read(name, dict(self._records.all()).get(name, name))

    def exists(self, name: str) -> bool:
        """Whether there is such a record, whatever is in it."""
        return bool(_NAME.fullmatch(name)) and self._records.exists(name)

    def texts(self) -> dict[str, str]:
        """Every record as it stands, by its id, also one that can't be used."""
        return self._records.texts()

    def erase(self, name: str) -> None:
        """Remove one of `texts`."""
        self._records.remove(name)

    def discard(self, name: str) -> None:
        """It has been decided."""
        if _NAME.fullmatch(name):
            self._records.remove(name)

    def _read(self, name: str, where: str) -> PendingWrite:
        try:
            record = json.loads(self._records.read(name))
            payload = record["payload"]
            wanted = payload.get("operations") or [payload]
            return PendingWrite(
                name,
                float(record.get("created_at") or 0),
                str(record.get("origin") or ""),
                str(record.get("session") or ""),
                str(record.get("summary") or ""),
                str(payload["target"]),
                [_operation(each) for each in wanted],
                str(record.get("reason") or ""),
            )
        # Another program may have written the record, in any form.
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RefusalError) as error:
            raise NotesError(
                f"is not a staged write: {error}", where=where, hint="move it away"
            ) from error


def _operation(record: dict[str, Any]) -> Operation:
    """One that was staged; hermes-agent stores no entry id."""
    wanted = operation(record.get("action"), record.get("content"), record.get("old_text"))
    return wanted._replace(
        entry=str(record.get("entry") or ""), origin=str(record.get("origin") or "")
    )


def _summary(wanted: Operation) -> str:
    text = previews([wanted.content or wanted.old_text])[0]
    return f"{wanted.action}: {text}"
