"""What is in a backup file, and how a file gets its name only when it is complete.

`backup` writes it, `restore` reads it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, Final

from hermes_core.errors import HermesError
from hermes_core.storage.files import LockTimeoutError, file_lock, read_regular, sync_folder

FORMAT: Final = "hermes-plugins backup"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
CHECKSUM: Final = "manifest.sha256"
SECRETS: Final = "secrets.enc"
HOME: Final = "home"
OUTSIDE: Final = "outside"
_MANIFEST_BYTES: Final = 16_000_000
_MEMBER_BYTES: Final = 2_000


# -- the manifest -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a backup.

    Attributes:
        path: Its name in the ZIP file.
        size: Its length in bytes.
        sha256: Its hash.
        mode: Its permissions.
        modified: When it was changed, in seconds since 1970.
        kind: "file", "database" (a consistent copy) or "redacted" (secrets are masked in it).
    """

    path: str
    size: int
    sha256: str
    mode: int
    modified: float
    kind: str = "file"


@dataclass(frozen=True, slots=True)
class OutsidePath:
    """A file or folder outside of the home, which the provider needs as well."""

    original: str
    path: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup contains.

    Attributes:
        version: Of the format.
        created: When it was made.
        program: The version of hermes-plugins.
        home: Where the home was.
        storage: Where its memory is: "files", or a database that is not part of the backup.
        provider: The external provider.
        folders: All folders, since some are empty.
        files: All files, without the encrypted ones.
        outside: What the provider has outside of the home.
        secrets: How many secrets are included; None if they were left out.
        secrets_sha256: The hash of what is encrypted.
        left_out: What is not included, and why.
        problems: What could not be copied as it should.
    """

    version: int
    created: str
    program: str
    home: str
    storage: str = "files"
    provider: str = ""
    folders: tuple[str, ...] = ()
    files: tuple[StoredFile, ...] = ()
    outside: tuple[OutsidePath, ...] = ()
    secrets: int | None = None
    secrets_sha256: str = ""
    left_out: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """The manifest as it is stored."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode() + b"\n"

    @property
    def size(self) -> int:
        """How many bytes all files have."""
        return sum(each.size for each in self.files)


@dataclass(frozen=True, slots=True)
class SecretFiles:
    """What is encrypted: files by their names in the home, and secrets of the keyring.

    Attributes:
        files: The content of each, and its mode.
        keyring: By variable: the provider and the value.
        outside: Files of the provider outside of the home, by their names in the backup.
    """

    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    keyring: dict[str, tuple[str, str]] = field(default_factory=dict)
    outside: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """As it is encrypted."""
        files, outside = (
            {name: [mode, b64encode(text).decode()] for name, (mode, text) in each.items()}
            for each in (self.files, self.outside)
        )
        return json.dumps({"files": files, "keyring": self.keyring, "outside": outside}).encode()

    @classmethod
    def from_json(cls, content: bytes) -> SecretFiles:
        """What was encrypted. Raises ValueError, KeyError or TypeError if it is not that."""
        data = json.loads(content)
        files, outside = (
            {str(n): (int(mode), b64decode(text)) for n, (mode, text) in each.items()}
            for each in (data["files"], data.get("outside", {}))
        )
        keyring = {str(n): (str(who), str(value)) for n, (who, value) in data["keyring"].items()}
        return cls(files, keyring, outside)

    def __len__(self) -> int:
        return len(self.files) + len(self.keyring) + len(self.outside)


#: What JSON has for a field, by its annotation. True and False are not integers here.
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "int | None": (int, NoneType),
    "float": (int, float),
}


def manifest_of(data: dict[str, Any]) -> Manifest:
    """A manifest as it was stored, with the types that its fields have.

    Raises KeyError, TypeError or ValueError if it is not one.
    """
    values = {key: value for key, value in data.items() if key in Manifest.__dataclass_fields__}
    lists = {key: tuple(_list(data, key)) for key in ("folders", "left_out", "problems")}
    for key, texts in lists.items():
        if not all(isinstance(each, str) for each in texts):
            raise TypeError(f"{key} has something that is not a text")
    values |= lists
    values["files"] = tuple(StoredFile(**each) for each in _list(data, "files"))
    values["outside"] = tuple(OutsidePath(**each) for each in _list(data, "outside"))
    made = Manifest(**values)
    _check_types(made)
    for part in (*made.files, *made.outside):
        _check_types(part)
    return made


def _list(data: dict[str, Any], key: str) -> list[Any]:
    found = data[key]
    if not isinstance(found, list):
        raise TypeError(f"{key} is not a list")
    return found


def _check_types(part: Any) -> None:
    for each in fields(part):
        wanted = _TYPES.get(str(each.type))
        if wanted and type(getattr(part, each.name)) not in wanted:
            raise TypeError(f"{each.name} has another type")


def largest_manifest(members: int) -> int:
    """At most so many bytes has the manifest of a ZIP file with so many members.

    An entry of a file has 250 bytes and its path. Empty folders and what was left out are no
    members. Whoever reads a manifest needs ten times as much memory.
    """
    return _MANIFEST_BYTES + _MEMBER_BYTES * members


# -- folders to work in -----------------------------------------------------------------------


_WORK_FOLDER: Final = re.compile(
    r"\..*\.hermes-(backup|restore|export|upgrade)-[0-9a-f]{16}", re.DOTALL
)
#: A name alone does not decide whether a folder is removed: a person may have chosen it.
_MARKER: Final = "hermes-plugins-work-folder"
_MARKER_START: Final = b"Made by hermes-plugins; the next "
_MARKER_TEXT: Final = _MARKER_START + b"command of its kind in this folder removes it.\n"
_LARGEST_MARKER: Final = 200
#: Characters of the name beside it; a name may have 255 bytes.
_MOST_NAME: Final = 40


@contextmanager
def work_folder(beside: Path, kind: str) -> Iterator[Path]:
    """A private folder beside a path, which is removed afterwards.

    Those that killed processes left there, beside whatever name, are removed by the next one.
    """
    parent = beside.parent
    for each in list(parent.glob(".*.hermes-*")):
        with suppress(OSError, LockTimeoutError):
            _remove_abandoned(each)
    folder = parent / f".{beside.name[:_MOST_NAME]}.hermes-{kind}-{os.urandom(8).hex()}"
    folder.mkdir(mode=0o700)
    try:
        with file_lock(folder / "lock", 0):
            (folder / _MARKER).write_bytes(_MARKER_TEXT)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_work_folder(folder: Path) -> bool:
    """Whether `work_folder` made a folder; a name that looks like it is not enough."""
    if not _WORK_FOLDER.fullmatch(folder.name) or folder.is_symlink():
        return False
    try:
        return read_regular(folder / _MARKER, _LARGEST_MARKER).startswith(_MARKER_START)
    except OSError:  # also a new one, which gets its marker when it is locked
        return False


def _remove_abandoned(folder: Path) -> None:
    if not is_work_folder(folder) or not _is_ours(folder):
        return
    with file_lock(folder / "lock", 0):
        pass
    shutil.rmtree(folder)


def _is_ours(folder: Path) -> bool:
    # In a folder such as /tmp, another user could have laid links.
    return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()


def publish(made: Path, file: Path) -> None:
    """Give the complete file its name, unless something has it by now."""
    try:
        os.link(made, file)  # a rename would replace what is there
    except FileExistsError:
        hint = "choose another name"
        raise HermesError("exists already", where=str(file), hint=hint) from None
    except OSError:  # a file system without links
        if os.path.lexists(file):
            todo = "choose another name"
            raise HermesError("exists already", where=str(file), hint=todo) from None
        made.rename(file)
    with suppress(OSError):
        sync_folder(file.parent)
