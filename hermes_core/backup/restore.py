"""`restore`: checks a backup, and makes a home of it that is complete or not there.

Everything is written to a folder beside the home while it is checked, and the last step is a
rename. What is in the file decides nothing but contents: names, sizes and hashes have to be those
of the manifest, and the manifest's own hash has to be right.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from itertools import count as counting
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, Final

from hermes_core.backup.backup import CHUNK, Progress, Step
from hermes_core.backup.format import (
    CHECKSUM,
    FORMAT,
    HOME,
    MANIFEST,
    OUTSIDE,
    SECRETS,
    VERSION,
    Manifest,
    SecretFiles,
    StoredFile,
    largest_manifest,
    manifest_of,
    work_folder,
)
from hermes_core.errors import CHECK_FOLDER, HermesError, SecretsError
from hermes_core.secrets import Secrets
from hermes_core.secrets.encryption import decrypt
from hermes_core.storage.files import open_regular, replace_file, sync_folder
from hermes_core.storage.home import ensure_folder

#: Streams of other files, devices, and names that Windows changes without a word.
_NOT_ON_WINDOWS: Final = re.compile(
    r'[<>:"|?*\\\x01-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE
)
_ANOTHER: Final = "use another backup, or copy this one again"
#: `backup` writes at most 100 MB; earlier versions had no limit.
_LARGEST_SECRETS: Final = 500_000_000
_BAD_ZIP: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class BackupError(HermesError):
    """A file is not a backup, or is damaged."""


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What was restored.

    Attributes:
        manifest: What the backup contains.
        home: Where it is now.
        secrets: How many secrets were restored.
        outside: What belongs outside of the home: where it is now, and where it was.
    """

    manifest: Manifest
    home: Path
    secrets: int = 0
    outside: tuple[tuple[Path, str], ...] = ()


def read_manifest(file: Path) -> Manifest:
    """What a backup contains, without looking at the contents.

    Raises:
        BackupError: It is not a backup, is damaged, or of a newer version.
    """
    with _opened(file) as archive:
        return _manifest(archive, file)


def restore(
    file: Path,
    home: Path,
    passphrase: str = "",
    *,
    step: Step | None = None,
    progress: Progress | None = None,
) -> RestoreResult:
    """Check a backup, and restore it to a home that does not exist or is empty.

    Args:
        file: The backup.
        home: Where it goes.
        passphrase: Decrypts the secrets; without it they are not restored.
        step: Called with a few words after each step.
        progress: Called with the bytes that were restored, and how many there are.

    Raises:
        BackupError: The file is damaged; nothing was restored.
        SecretsError: The passphrase is wrong; nothing was restored.
        HermesError: The home has content, or can't be written.
    """
    _refuse_content(home)
    target = Path(os.path.realpath(home))  # a link to another disk stays a link
    note = step or (lambda _: None)
    try:
        ensure_folder(target.parent)
        with _opened(file) as archive, work_folder(target, "restore") as folder:
            manifest = _manifest(archive, file)
            _check_members(archive, manifest, file)
            _check_space(manifest, folder, file)
            note("manifest")
            content = folder / "content"
            _write_files(archive, file, manifest, content, progress)
            note("files")
            secrets = _write_secrets(archive, file, manifest, content, passphrase)
            note("secrets")
            _sync(content)
            note("synced")
            outside = _move_outside(manifest, content, target)
            _put_in_place(content / HOME, target, home)
            note("renamed")
    except OSError as error:
        raise HermesError(
            f"can't be restored: {error.strerror or error}", where=str(home), hint=CHECK_FOLDER
        ) from error
    return RestoreResult(manifest, home, secrets, outside)


def _refuse_content(home: Path) -> None:
    try:
        has_content = any(home.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        what = f"can't be read: {error.strerror or error}"
        raise HermesError(what, where=str(home), hint="check its permissions") from error
    if has_content:
        raise HermesError(
            "is not empty, and nothing in it is overwritten",
            where=str(home),
            hint="restore into another folder: --into FOLDER",
        )


# -- checking ---------------------------------------------------------------------------------


@contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        source = open_regular(file)
    except FileNotFoundError:
        raise BackupError("no such file", where=str(file), hint="check the path") from None
    except OSError as error:
        if error.errno is None:  # a FIFO or a device might never end
            todo = "name a file that `hermes-plugins backup` made"
            raise BackupError(f"{error.strerror}", where=str(file), hint=todo) from None
        what = f"can't be read: {error.strerror or error}"
        raise BackupError(what, where=str(file), hint="check its permissions") from error
    with source, _zip_file(source, file) as archive:
        yield archive


def _zip_file(source: BinaryIO, file: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(source)
    except OSError as error:
        what = f"can't be read: {error.strerror or error}"
        raise BackupError(what, where=str(file), hint="check its permissions") from error
    except (*_BAD_ZIP, ValueError) as error:
        raise BackupError(
            f"is not a backup, or is cut off: {error}",
            where=str(file),
            hint=f"{_ANOTHER}; for an export: hermes-plugins import FILE",
        ) from error


def _damaged(file: Path, what: str) -> BackupError:
    return BackupError(f"is damaged: {what}", where=str(file), hint=_ANOTHER)


def _manifest(archive: zipfile.ZipFile, file: Path) -> Manifest:
    text = _small(archive, file, MANIFEST, largest_manifest(len(archive.infolist())))
    expected = _small(archive, file, CHECKSUM, 1000).split()[:1]
    if expected != [hashlib.sha256(text).hexdigest().encode()]:
        raise _damaged(file, "its manifest was changed")
    try:
        data = json.loads(text)
        is_ours = data["format"] == FORMAT
        version = data["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(file, "its manifest can't be read") from error
    if not is_ours:
        todo = "name a file that `hermes-plugins backup` made"
        raise BackupError("is not a backup of hermes-plugins", where=str(file), hint=todo)
    if type(version) is not int:
        raise _damaged(file, "its manifest can't be read: version has another type")
    if version > VERSION:
        raise BackupError(
            f"was made by a newer version of hermes-plugins (format {version}, this one knows"
            f" {VERSION})",
            where=str(file),
            hint="upgrade hermes-plugins",
        )
    try:
        return manifest_of(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(file, f"its manifest can't be read: {error}") from error


def _small(archive: zipfile.ZipFile, file: Path, name: str, largest: int) -> bytes:
    """A member that fits into memory."""
    try:
        with archive.open(name) as member:
            content = member.read(largest + 1)
    except KeyError as error:
        todo = "name a file that `hermes-plugins backup` made"
        what = f"is not a backup: it has no {name}"
        raise BackupError(what, where=str(file), hint=todo) from error
    except _BAD_ZIP as error:
        raise _damaged(file, f"{name}: {error}") from error
    if len(content) > largest:
        raise _damaged(file, f"{name} is too large")
    return content


def _check_members(archive: zipfile.ZipFile, manifest: Manifest, file: Path) -> None:
    """Raise unless the file has exactly the members of the manifest, with proper names."""
    found = [each.filename for each in archive.infolist()]
    listed = [each.path for each in manifest.files]
    extra = [MANIFEST, CHECKSUM, *([] if manifest.secrets is None else [SECRETS])]
    for name in (*listed, *manifest.folders, *(each.path for each in manifest.outside)):
        if not is_proper(name):
            raise _damaged(file, f"{name!r} is not a name below the home")
    for each in archive.infolist():
        kind = stat.S_IFMT(each.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise _damaged(file, f"{each.filename} is not a regular file")
    if len({*found}) != len(found) or len({*listed}) != len(listed):
        raise _damaged(file, "it has a name twice")
    if sorted(found) != sorted([*listed, *extra]):
        raise _damaged(file, "its content is not what the manifest says")
    sizes = {each.filename: each.file_size for each in archive.infolist()}
    for stored in manifest.files:
        if sizes[stored.path] != stored.size:
            raise _damaged(file, f"{stored.path} has another size than the manifest says")


def is_proper(name: str, system: str = os.name) -> bool:
    """Whether a name leads to a place below the folder, on this system."""
    parts = name.split("/")
    return (
        parts[0] in (HOME, OUTSIDE)
        and len(parts) > 1
        and not any(part in ("", ".", "..") for part in parts)
        and "\0" not in name
        and not PurePosixPath(name).is_absolute()
        and not any("\ud800" <= each <= "\udfff" for each in name)  # no file can have that name
        and not (system == "nt" and any(map(_NOT_ON_WINDOWS.search, parts)))
    )


def _check_space(manifest: Manifest, folder: Path, file: Path) -> None:
    free = shutil.disk_usage(folder).free
    if manifest.size > free:
        raise HermesError(
            f"{file} needs {manifest.size:,} bytes, and there are {free:,} free",
            where=str(folder.parent),
            hint="free some space there, or use --into FOLDER on another disk",
        )


# -- writing ----------------------------------------------------------------------------------


def _write_files(
    archive: zipfile.ZipFile,
    file: Path,
    manifest: Manifest,
    content: Path,
    progress: Progress | None,
) -> None:
    (content / HOME).mkdir(parents=True, mode=0o700)
    for name in manifest.folders:
        (content / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    done = 0
    for each in manifest.files:
        path = content / each.path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for count in _write_file(archive, file, each, path):
            done += count
            if progress is not None:
                progress(done, manifest.size)


def _write_file(
    archive: zipfile.ZipFile, file: Path, each: StoredFile, path: Path
) -> Iterator[int]:
    """Write one file; raise if its content is not what the manifest says."""
    hashed, left = hashlib.sha256(), each.size
    # O_EXCL: two names that are one to this file system (letters in another case) are noticed.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags, 0o600)
    except FileExistsError as error:
        raise HermesError(
            f"{each.path} has the name of another file on this file system",
            where=str(file),
            hint=_ANOTHER,
        ) from error
    with os.fdopen(handle, "wb") as target:
        for chunk in _chunks(archive, file, each.path):
            left -= len(chunk)
            if left < 0:
                break
            target.write(chunk)
            hashed.update(chunk)
            yield len(chunk)
        if left or hashed.hexdigest() != each.sha256:
            raise _damaged(file, f"{each.path} is not what was backed up")
        target.flush()
        os.fsync(target.fileno())
    # For its owner at least: a backup must not make a home that nobody can use.
    path.chmod((each.mode & 0o777) | 0o600)
    with suppress(OSError, OverflowError, ValueError):
        os.utime(path, (each.modified, each.modified))


def _chunks(archive: zipfile.ZipFile, file: Path, name: str) -> Iterator[bytes]:
    try:
        member: IO[bytes]
        with archive.open(name) as member:
            while chunk := member.read(CHUNK):
                yield chunk
    except _BAD_ZIP as error:
        raise _damaged(file, f"{name}: {error}") from error


def _write_secrets(
    archive: zipfile.ZipFile, file: Path, manifest: Manifest, content: Path, passphrase: str
) -> int:
    if manifest.secrets is None:
        return 0
    hashed = hashlib.sha256()
    for chunk in _chunks(archive, file, SECRETS):
        hashed.update(chunk)
    if hashed.hexdigest() != manifest.secrets_sha256:
        raise _damaged(file, "its secrets are not what was backed up")
    if not passphrase:
        return 0
    encrypted = _small(archive, file, SECRETS, _LARGEST_SECRETS)
    try:
        found = SecretFiles.from_json(decrypt(encrypted, passphrase))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise _damaged(file, "its secrets can't be read") from error
    except SecretsError as error:
        error.where = error.where or str(file)
        error.hint = error.hint or _ANOTHER
        raise
    inside = {f"{HOME}/{name}": each for name, each in found.files.items()}
    for name, (mode, text) in {**inside, **found.outside}.items():
        if not is_proper(name):
            raise _damaged(file, f"{name!r} is not a name below the home")
        path = content / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, text, mode=(mode & 0o777) | 0o600)
    # The keyring of this machine is not part of the rename, so they go to .env.
    stored = Secrets(content / HOME, "dotenv")
    for variable, (provider, value) in found.keyring.items():
        stored.set(variable, value, provider)
    return len(found)


def _sync(folder: Path) -> None:
    """Make the names durable before the folder gets its own; the contents are synced already."""
    for place, _, _ in os.walk(folder):
        with suppress(OSError):
            sync_folder(place)


def _move_outside(manifest: Manifest, content: Path, home: Path) -> tuple[tuple[Path, str], ...]:
    """Put what was outside of the home into a folder of it; where each is, and where it was."""
    if not (content / OUTSIDE).exists():
        return ()
    # Where it was, there may be something newer. A home that was restored before has its own.
    names = chain((OUTSIDE,), (f"{OUTSIDE}-{number}" for number in counting(2)))
    place = next(each for each in names if not os.path.lexists(content / HOME / each))
    (content / OUTSIDE).rename(content / HOME / place)
    found = ((place + each.path.removeprefix(OUTSIDE), each.original) for each in manifest.outside)
    return tuple((home / path, original) for path, original in found
                 if (content / HOME / path).exists())  # fmt: skip


def _put_in_place(made: Path, target: Path, home: Path) -> None:
    """Give the complete folder its name."""
    try:
        target.rmdir()  # only an empty one can be removed; Windows does not replace it
    except FileNotFoundError:
        pass
    except OSError as error:
        _refuse_content(home)
        raise HermesError(
            f"can't be replaced: {error.strerror or error}",
            where=str(home),
            hint="restore into a new folder below it: --into FOLDER",
        ) from error
    made.rename(target)
    with suppress(OSError):
        sync_folder(target.parent)
