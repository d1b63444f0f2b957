"""The receipt of a `forget`: what was found, deleted and not reached, without what it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_core.errors import HermesError
from hermes_core.storage.files import replace_file
from hermes_core.storage.home import ensure_folder

_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class ProviderReceipt:
    """What the external provider found, deleted and could not delete, counted by place."""

    name: str
    found: Mapping[str, int]
    deleted: Mapping[str, int]
    remaining: Mapping[str, int]
    unreachable: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left there."""
        return not (self.remaining or self.problems)


@dataclass(frozen=True, slots=True)
class SearchedFiles:
    """The search through the bytes of all files, after everything was deleted.

    Attributes:
        files: How many files were searched.
        bytes: How many bytes they have.
        encodings: In which encodings the text was looked for.
        files_before: How many files contained it before.
        files_after: The files that still contain it.
        also_elsewhere: The files that contain the same words for another reason, and may.
    """

    files: int
    bytes: int
    encodings: tuple[str, ...]
    files_before: int
    files_after: tuple[str, ...]
    also_elsewhere: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of one `forget`. The subject is a salted hash; counts are by place."""

    id: str
    kind: str
    subject: str
    salt: str
    started: str
    finished: str
    resumed: int
    found: Mapping[str, int]
    deleted: Mapping[str, int]
    remaining: Mapping[str, int]
    searched: SearchedFiles
    provider: ProviderReceipt | None
    unreachable: tuple[str, ...]
    problems: tuple[str, ...]
    complete: bool

    def as_json(self) -> dict[str, Any]:
        """Its fields as JSON values, without the schema."""
        return asdict(self)


def salted_hash(salt: str, text: str) -> str:
    """A hash that only a person who knows the text can reproduce."""
    return hashlib.sha256((salt + text).encode("utf-8", "surrogatepass")).hexdigest()


def moment(at: float) -> str:
    """A time for the receipt."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def write_receipt(path: Path, receipt: Receipt) -> None:
    """Write a receipt that only its owner can read.

    Raises:
        HermesError: It can't be written.
    """
    values = {"schema": _SCHEMA, **receipt.as_json()}
    try:
        ensure_folder(path.parent)
        replace_file(path, f"{json.dumps(values, indent=2)}\n".encode(), mode=0o600)
    except OSError as error:
        raise HermesError(
            f"the receipt can't be written: {error.strerror or error}",
            where=str(path),
            hint="run `hermes-plugins forget` to finish",
        ) from error
