"""`backup`: everything of a home in one ZIP file, made while agents run.

The order of the copies makes each of them complete without stopping anybody: a store is copied
before the one that its content moves to. Pending writes become notes, turns of the spool go to the
archive, turns of the archive go to the outbox. What moves meanwhile is in both copies, and both
stores recognise it.

Notes are read under their locks, together with a snapshot of their history (`notes.py`). Databases
are copied with SQLite's backup API. Every other file is either replaced as a whole or only appended
to, so what it has when it is opened is complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import IO, Final

from hermes_core import __version__
from hermes_core.backup.format import (
    CHECKSUM,
    HOME,
    MANIFEST,
    OUTSIDE,
    SECRETS,
    VERSION,
    Manifest,
    OutsidePath,
    SecretFiles,
    StoredFile,
    is_work_folder,
    largest_manifest,
    publish,
    work_folder,
)
from hermes_core.backup.notes import read_notes
from hermes_core.backup.secret_search import HOME_PREFIX, LARGEST, SecretSearch
from hermes_core.checkup.child_process import run_plugin_code
from hermes_core.config import Config, load_config
from hermes_core.dispatch import SingleProvider
from hermes_core.errors import CHECK_FOLDER, HermesError, SecretsError, describe
from hermes_core.loading.activation import activate, deadlines_of
from hermes_core.secrets import Secrets
from hermes_core.secrets.encryption import encrypt
from hermes_core.storage.address import shown_address
from hermes_core.storage.files import open_regular
from hermes_core.storage.snapshot import Snapshot, is_database

CHUNK: Final = 1 << 20
#: After so many bytes the file is synced: one sync at the end would hold up those of agents.
_SYNCED_EVERY: Final = 8 * CHUNK
#: Secrets are encrypted in memory, as JSON, in which files have a third more bytes.
_LARGEST_CREDENTIALS: Final = 50_000_000
_MOST_SECRETS: Final = 95_000_000

#: What belongs to a running process, or to one that was killed, or can be made again.
_SKIPPED: Final = re.compile(
    r"(.*/)?(__pycache__(/.*)?|\.[^/]*\.[0-9a-f]{8}\.tmp(-wal|-shm|-journal)?)"
)
_BESIDE_DATABASES: Final = ("-wal", "-shm", "-journal")
#: Copied first, in this order; see the module's docstring.
_FIRST: Final = (
    *("sync/", "pending/", "spool/", "memories/"),
    # What `switch` has handed over is in the outbox: its list must not be ahead of the copy.
    *("state.db", "sessions.db", "switch.json", "switch.db", "outbox.db"),
)
#: An upgrade that has not ended: its rollback would change the environment of another home.
_UPGRADE: Final = re.compile(rf"{HOME_PREFIX}(upgrade\.json|upgrade-backup(/.*)?)")
_UNREADABLE: Final = "can't be read"
_NOTES: Final = "memories/"
_HISTORY: Final = "memories/history.db"
#: Links to folders that are followed: people keep these elsewhere.
_LINKED: Final = re.compile(r"memories|plugins/[^/]+")

Step = Callable[[str], None]
Progress = Callable[[int, int], None]


# -- making one -------------------------------------------------------------------------------


def create_backup(
    home: Path,
    file: Path,
    *,
    passphrase: str = "",
    step: Step | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Write a home to a new file, while agents use it.

    Args:
        home: The Hermes home.
        file: The new file.
        passphrase: Encrypts the secrets. Without one they are left out.
        step: Called with a few words after each step.
        progress: Called with the bytes that were copied, and about how many there are.

    Returns:
        What the file contains.

    Raises:
        HermesError: There is nothing to back up, the file exists already, or can't be written.
    """
    if not home.is_dir():
        raise HermesError("no home here", where=str(home), hint="name the home: --home FOLDER")
    if os.path.lexists(file):
        raise HermesError("exists already", where=str(file), hint="choose another name")
    try:
        with work_folder(file, "backup") as folder:
            partial_file = folder / "backup.zip"
            manifest = _Backup(home, folder, passphrase, step, progress).write(partial_file)
            publish(partial_file, file)
    except OSError as error:
        raise HermesError(
            f"the backup can't be written: {error.strerror or error}",
            where=str(file),
            hint=CHECK_FOLDER,
        ) from error
    return manifest


class _Backup:
    """One backup that is being made."""

    def __init__(
        self,
        home: Path,
        folder: Path,
        passphrase: str,
        step: Step | None,
        progress: Progress | None,
    ) -> None:
        self._home = home
        self._folder = folder
        self._passphrase = passphrase
        self._step = step or (lambda _: None)
        self._progress = progress or (lambda _done, _total: None)
        self._done = self._total = self._unsynced = 0
        self._files: list[StoredFile] = []
        self._left_out: list[str] = []
        self._problems: list[str] = []
        self._secrets = SecretFiles()
        self._secrets_size = 0
        self._search = SecretSearch()

    def write(self, target: Path) -> Manifest:
        """Write everything, and the manifest last."""
        config = self._config()
        self._search = SecretSearch(self._known_secrets())
        tree = _without_upgrade(home_tree(self._home, self._folder))
        self._left_out += tree.left_out
        outside = self._outside(config)
        self._total = tree.size + sum(each.tree.size for each in outside)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        handle = os.open(target, flags, 0o600)
        with os.fdopen(handle, "wb") as raw:
            self._raw = raw
            # Level 1: five times as fast as the default, and nearly as small for texts.
            with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                self._zip = archive
                self._add_home(tree)
                for each in outside:
                    self._add_tree(each.tree, each.place)
                manifest = self._manifest(config, tree, outside, self._add_secrets())
                text = manifest.to_json()
                self._refuse_too_long(text)
                archive.writestr(MANIFEST, text)
                archive.writestr(CHECKSUM, f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n")
            raw.flush()
            os.fsync(raw.fileno())
        self._step("file")
        return manifest

    def _refuse_too_long(self, manifest: bytes) -> None:
        """Raise if `restore` would not read a manifest."""
        most = largest_manifest(len(self._zip.infolist()))
        if len(manifest) > most:
            raise HermesError(
                f"has too many empty folders, or files that can't be backed up: their list has"
                f" {len(manifest):,} bytes, and may have {most:,}",
                where=str(self._home),
                hint="remove them, or move them out of the home",
            )

    def _config(self) -> Config:
        try:
            return load_config(self._home)
        except HermesError as error:
            # Whatever config.yaml says, the files can be copied.
            self._problems.append(f"{describe(error)}; the provider was not asked for its files")
            return Config(self._home)

    def _manifest(
        self, config: Config, tree: Tree, outside: Sequence[_OutsideFiles], secrets_sha256: str
    ) -> Manifest:
        folders = [f"{HOME}/{each}" for each in tree.folders]
        folders += [f"{each.place}/{path}" for each in outside for path in each.tree.folders]
        return Manifest(
            VERSION,
            datetime.now(UTC).isoformat(timespec="seconds"),
            __version__,
            str(self._home),
            shown_address(config.storage) if config.storage else "files",
            config.selection.name,
            tuple(folders),
            tuple(self._files),
            tuple(OutsidePath(each.original, each.place) for each in outside),
            len(self._secrets) if self._passphrase else None,
            secrets_sha256,
            tuple(self._left_out),
            tuple(self._problems),
        )

    # -- the home -------------------------------------------------------------------------

    def _add_home(self, tree: Tree) -> None:
        notes = [each for each in tree.files if _in_home(each).startswith(_NOTES)]
        others = [each for each in tree.files if not _in_home(each).startswith(_NOTES)]
        for each in others:
            if _order(each.name) < _FIRST.index(_NOTES):
                self._add(each, HOME)
        self._step("pending")
        for _, of_home in groupby(sorted(notes, key=_home_of), key=_home_of):
            self._add_notes([*of_home])
        self._step("notes")
        for each in others:
            if _order(each.name) > _FIRST.index(_NOTES):
                self._add(each, HOME)
                self._step(each.name)

    def _add_notes(self, files: Sequence[SourceFile]) -> None:
        """Copy the notes and their history as they are at one moment."""
        notebooks = [each for each in files if each.path.suffix == ".md"]
        history = next((each.path for each in files if _in_home(each) == _HISTORY), None)
        read = read_notes([each.path for each in notebooks], history)
        self._problems += [read.problem] if read.problem else []
        with closing(read.history) if read.history is not None else nullcontext() as snapshot:
            # The locks are free again; what was read belongs together.
            for each in notebooks:
                if (text := read.texts[each.path]) is not None:
                    self._store(each, HOME, BytesIO(text))
            for each in files:
                if read.texts.get(each.path) is None:
                    self._add(each, HOME, snapshot if _in_home(each) == _HISTORY else None)

    # -- one file -------------------------------------------------------------------------

    def _add_tree(self, tree: Tree, place: str) -> None:
        for each in tree.files:
            self._add(each, place)
        self._step(place)

    def _add(self, each: SourceFile, place: str, snapshot: Snapshot | None = None) -> None:
        """Copy one file, in the way that its kind needs."""
        try:
            if self._search.is_credential(each.name):
                self._keep_credential(each, place)
            elif snapshot is not None:
                self._copy_database(each, place, snapshot)
            elif self._is_database(each):
                with closing(Snapshot(each.path)) as own:
                    self._copy_database(each, place, own)
            elif place == HOME and self._search.is_content(each.name):
                self._copy_file(each, place)
            else:
                self._copy_searched(each, place)
        except HermesError as error:
            self._copy_unlocked(each, place, str(error))

    def _is_database(self, each: SourceFile) -> bool:
        # SQLite takes a file without a page for an empty database.
        return (
            each.size > 0 and not each.name.endswith(_BESIDE_DATABASES) and is_database(each.path)
        )

    def _copy_database(self, each: SourceFile, place: str, snapshot: Snapshot) -> None:
        copy = self._folder / "copy.db"
        copy.unlink(missing_ok=True)
        damage = snapshot.copy(copy)
        if damage:
            self._problems.append(f"{each.name}: is damaged, and copied as it is: {damage}")
        with copy.open("rb") as source:
            self._store(each, place, source, "database")
        copy.unlink()

    def _copy_unlocked(self, each: SourceFile, place: str, why: str) -> None:
        """Copy a database that SQLite can't copy, byte by byte with its log."""
        before = len(self._problems)
        for suffix in ("", *_BESIDE_DATABASES[::2]):
            beside = Path(f"{each.path}{suffix}")
            if beside.exists():
                self._copy_file(replace(each, path=beside, name=f"{each.name}{suffix}"), place)
        if f"{each.name}: {_UNREADABLE}" not in "\n".join(self._problems[before:]):
            self._problems.insert(before, f"{each.name}: copied byte by byte, since it {why}")

    def _copy_file(self, each: SourceFile, place: str) -> None:
        with self._opened(each) as source:
            if source is not None:
                self._store(each, place, source)

    @contextmanager
    def _opened(self, each: SourceFile) -> Iterator[IO[bytes] | None]:
        """A file to read; None if it is gone, or can't be read, which is reported."""
        try:
            file = open_regular(each.path)
        except FileNotFoundError:  # an agent has just removed it
            yield None
        except OSError as error:
            self._problems.append(f"{each.name}: {_UNREADABLE}: {error.strerror or error}")
            yield None
        else:
            with file:
                yield file

    def _chunks(self, each: SourceFile, source: IO[bytes]) -> Iterator[bytes]:
        """What a file has at this moment: it may be growing."""
        source.seek(0, os.SEEK_END)
        left = source.tell()
        source.seek(0)
        try:
            while left and (chunk := source.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk
        except OSError as error:
            # A disk that fails is a good reason for a backup of everything else.
            reason = error.strerror or error
            self._problems.append(f"{each.name}: the last {left:,} bytes can't be read: {reason}")

    def _store(self, each: SourceFile, place: str, source: IO[bytes], kind: str = "file") -> None:
        self._store_chunks(each, place, self._chunks(each, source), lambda: kind)

    def _store_chunks(
        self, each: SourceFile, place: str, chunks: Iterable[bytes], kind: Callable[[], str]
    ) -> None:
        info = zipfile.ZipInfo(f"{place}/{each.name}".removesuffix("/."), _date(each.modified))
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (stat.S_IFREG | each.mode) << 16
        hashed, size = hashlib.sha256(), 0
        with self._zip.open(info, "w", force_zip64=True) as target:
            for chunk in chunks:
                target.write(chunk)
                hashed.update(chunk)
                size += len(chunk)
                self._copied(len(chunk))
        self._files.append(
            StoredFile(info.filename, size, hashed.hexdigest(), each.mode, each.modified, kind())
        )

    def _copied(self, count: int) -> None:
        self._done += count
        self._unsynced += count
        if self._unsynced >= _SYNCED_EVERY:
            self._unsynced = 0
            self._raw.flush()
            os.fsync(self._raw.fileno())
        self._progress(self._done, max(self._done, self._total))

    # -- secrets --------------------------------------------------------------------------

    def _known_secrets(self) -> frozenset[str]:
        found: set[str] = set()
        for home in (self._home, *_profiles(self._home)):
            try:
                found |= Secrets(home).values()
            except SecretsError as error:
                self._problems.append(describe(error))
        return frozenset(found)

    def _keep_credential(self, each: SourceFile, place: str) -> None:
        with self._opened(each) as file:
            if file is not None:
                content = file.read(_LARGEST_CREDENTIALS + 1) if self._passphrase else b""
                self._keep_secret(each, place, content)

    def _copy_searched(self, each: SourceFile, place: str) -> None:
        """Copy a file without the secrets in it, or leave it out if it is not of use then."""
        with self._opened(each) as file:
            if file is None:
                return
            content = file.read(LARGEST + 1)
            if len(content) > LARGEST:
                self._copy_large(each, place, file)
                return
        is_config = place == HOME and self._search.is_config(each.name)
        found = self._search.examine(each.name, content, keeps=is_config)
        if not found.has_secrets:
            self._store(each, place, BytesIO(content))
            return
        self._keep_secret(each, place, content, is_masked=found.copy is not None)
        if found.copy is not None:
            self._store(each, place, BytesIO(found.copy), "redacted")

    def _copy_large(self, each: SourceFile, place: str, file: IO[bytes]) -> None:
        search = self._search
        self._store_chunks(
            each,
            place,
            search.masked(self._chunks(each, file)),
            lambda: "redacted" if search.masked_some else "file",
        )
        if search.masked_some:
            self._left_out.append(f"{self._shown(each, place)}: has secrets, masked in the copy")

    @staticmethod
    def _shown(each: SourceFile, place: str) -> str:
        return each.name if place == HOME else str(each.path)

    def _keep_secret(
        self, each: SourceFile, place: str, content: bytes, *, is_masked: bool = False
    ) -> None:
        """Encrypt a file, or say that it is left out."""
        if not self._passphrase:
            what = "has secrets, masked in the copy" if is_masked else "has secrets"
            self._left_out.append(f"{self._shown(each, place)}: {what}")
        elif len(content) > _LARGEST_CREDENTIALS:
            self._left_out.append(f"{self._shown(each, place)}: too large to encrypt")
        elif (size := self._secrets_size + _encoded_size(each, content)) > _MOST_SECRETS:
            reason = f"has secrets; all of them may have about {_MOST_SECRETS * 3 // 4 // 10**6} MB"
            self._left_out.append(f"{self._shown(each, place)}: {reason}")
        else:
            self._secrets_size = size
            if place == HOME:
                self._secrets.files[each.name] = (each.mode, content)
            else:
                self._secrets.outside[f"{place}/{each.name}"] = (each.mode, content)

    def _add_secrets(self) -> str:
        """Write the secrets; returns the hash of what is encrypted."""
        if not self._passphrase:
            return ""
        encrypted = encrypt(self._secrets.to_json(), self._passphrase)
        self._zip.writestr(SECRETS, encrypted)
        self._step("secrets")
        return hashlib.sha256(encrypted).hexdigest()

    def _collect_keyring(self) -> None:
        """Read the secrets that are in the keyring."""
        secrets = Secrets(self._home)
        for name in secrets.names():
            if name.store != "keyring":
                continue
            try:
                found = secrets.get(name.variable)
            except SecretsError as error:
                self._problems.append(describe(error))
                continue
            if found is not None:
                self._secrets.keyring[name.variable] = (name.provider, found.value)
        for profile in _profiles(self._home):
            with suppress(SecretsError):  # reported with the known secrets
                if any(each.store == "keyring" for each in Secrets(profile).names()):
                    why = "its secrets in the keyring; back up this home, too"
                    self._left_out.append(f"profiles/{plain_name(profile.name)}: {why}")

    # -- what the provider has elsewhere --------------------------------------------------

    def _outside(self, config: Config) -> list[_OutsideFiles]:
        if self._passphrase:
            self._collect_keyring()
        if not config.selection.name:
            return []
        done = run_plugin_code(config, partial(provider_paths, self._home))
        self._problems += [done.problem] if done.problem else []
        self._problems += [each.problem for each in done.results if each.problem]
        self._step("provider")
        return list(self._outside_trees([each.path for each in done.results if each.path]))

    def _outside_trees(self, paths: Iterable[str]) -> Iterator[_OutsideFiles]:
        home = self._home.resolve()
        for number, name in enumerate(dict.fromkeys(paths), 1):
            path = Path(name).expanduser()
            if path.resolve().is_relative_to(home):
                continue
            if not path.exists():
                self._left_out.append(f"{name}: the provider names it, but it does not exist")
                continue
            if home.is_relative_to(path.resolve()):
                self._left_out.append(f"{name}: the provider names it, but it contains the home")
                continue
            tree = home_tree(path, self._folder) if path.is_dir() else _single(path)
            self._left_out += tree.left_out
            yield _OutsideFiles(str(path), f"{OUTSIDE}/{number}", tree)


def _profiles(home: Path) -> list[Path]:
    """The homes of profiles, which hermes-agent keeps in the home."""
    try:
        return sorted(each for each in (home / "profiles").iterdir() if each.is_dir())
    except OSError:  # mostly there are none; one that can't be read is not copied either
        return []


def _home_of(each: SourceFile) -> str:
    """Where in the folder the home of a file begins; "" if that is the folder."""
    found = re.match(HOME_PREFIX, each.name)
    return found[0] if found else ""


def _in_home(each: SourceFile) -> str:
    return each.name.removeprefix(_home_of(each))


def _order(name: str) -> int:
    name = re.sub(rf"^{HOME_PREFIX}", "", name)
    found = (number for number, each in enumerate(_FIRST) if name.startswith(each))
    return next(found, len(_FIRST))


def _encoded_size(each: SourceFile, content: bytes) -> int:
    """At most so many bytes a file has in the JSON that is encrypted."""
    return len(content) * 4 // 3 + 6 * len(each.name) + 100


def _date(modified: float) -> tuple[int, int, int, int, int, int]:
    # ZIP knows the years 1980 to 2107; the manifest has the real time.
    at = time.gmtime(min(max(modified, 315_619_200.0), 4_354_819_198.0))
    return at.tm_year, at.tm_mon, at.tm_mday, at.tm_hour, at.tm_min, at.tm_sec


# -- files of a folder ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to copy. ``name`` is its path in the folder, with slashes."""

    path: Path
    name: str
    size: int
    mode: int
    modified: float


@dataclass(frozen=True, slots=True)
class Tree:
    """What is below a folder, in the order in which it is copied."""

    files: tuple[SourceFile, ...] = ()
    folders: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return sum(each.size for each in self.files)


@dataclass(frozen=True, slots=True)
class _OutsideFiles:
    original: str
    place: str
    tree: Tree


def home_tree(folder: Path, ignored: Path) -> Tree:
    """Every file below a folder that belongs into a backup.

    Args:
        folder: The folder.
        ignored: What is not part of it: the backup itself may be in the home.
    """
    files: list[SourceFile] = []
    folders: list[str] = []
    left_out: list[str] = []
    waiting = [(folder, "")]
    while waiting:
        place, prefix = waiting.pop()
        for entry in sorted(_entries(place, prefix, left_out), key=lambda each: each.name):
            name = f"{prefix}{entry.name}"
            path = Path(entry.path)
            if path == ignored or _SKIPPED.fullmatch(name) or is_work_folder(path):
                continue
            if reason := _reason_to_skip(entry, name):
                left_out.append(f"{plain_name(name)}: {reason}")
            elif entry.is_dir():
                folders.append(name)
                waiting.append((path, f"{name}/"))
            else:
                files += _found(path, name)
    paths = {each.name: each.path for each in files}
    kept = [each for each in files if not _is_beside(each.name, paths) and not _is_lock(each)]
    kept.sort(key=lambda each: (_order(each.name), each.name))
    return Tree(tuple(kept), tuple(sorted(folders)), tuple(left_out))


def _without_upgrade(tree: Tree) -> Tree:
    kept = tuple(each for each in tree.files if not _UPGRADE.fullmatch(each.name))
    if len(kept) == len(tree.files):
        return tree
    folders = tuple(each for each in tree.folders if not _UPGRADE.fullmatch(each))
    why = "upgrade.json: an unfinished upgrade, which belongs to this environment"
    return Tree(kept, folders, (*tree.left_out, why))


def _is_lock(each: SourceFile) -> bool:
    # Ours are empty; a plugin may have its uv.lock.
    return each.name.endswith(".lock") and not each.size


def _is_beside(name: str, paths: Mapping[str, Path]) -> bool:
    """Whether a file is the log of a database, whose copy has what is in it."""
    bases = (name.removesuffix(each) for each in _BESIDE_DATABASES if name.endswith(each))
    return any(base in paths and _may_be_database(paths[base]) for base in bases)


def _may_be_database(path: Path) -> bool:
    # A person may have the files "trip" and "trip-journal".
    try:
        return is_database(path)
    except HermesError:  # damaged: it is copied together with its log
        return True


def _entries(place: Path, prefix: str, left_out: list[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as found:
            return list(found)
    except OSError as error:
        left_out.append(f"{prefix or '.'}: can't be read: {error.strerror or error}")
        return []


def _reason_to_skip(entry: os.DirEntry[str], name: str) -> str:
    try:
        name.encode()
        is_folder = entry.is_dir()
        if is_folder and entry.is_symlink() and not _LINKED.fullmatch(name):
            return "a link to a folder, which is not followed"
        # A link to a file is stored as the file: people keep notes in another folder.
        is_kept = is_folder or stat.S_ISREG(entry.stat().st_mode)
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    except OSError as error:
        return "a link to nothing" if entry.is_symlink() else f"{error.strerror or error}"
    return "" if is_kept else "not a regular file"


def plain_name(name: str) -> str:
    """A name that can be stored as UTF-8."""
    return name.encode("utf-8", "replace").decode()


def _found(path: Path, name: str) -> Iterator[SourceFile]:
    with suppress(OSError):  # an agent has just removed it
        at = path.stat()
        yield SourceFile(path, name, at.st_size, stat.S_IMODE(at.st_mode) & 0o777, at.st_mtime)


def _single(path: Path) -> Tree:
    return Tree(tuple(_found(path, PurePosixPath(path.name).as_posix())))


# -- the provider, in a child process ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProviderPath:
    """A path that the provider named, or why it could not be asked."""

    path: str = ""
    problem: str = ""


def provider_paths(home: Path) -> Iterator[ProviderPath]:
    """In the child process: what the provider has outside of the home."""
    config = load_config(home)
    name = config.selection.name
    activation = activate(config)
    try:
        if activation.provider is None:
            why = describe(activation.error) if activation.error else "it is not available"
            yield ProviderPath(problem=f"{name} was not asked for its files: {why}")
            return
        with SingleProvider(activation.provider, name, deadlines=deadlines_of(config)) as single:
            outcome = single.call("backup_paths")
        if outcome.error is not None:
            yield ProviderPath(problem=f"{name}: backup_paths failed: {describe(outcome.error)}")
        for each in outcome.value or ():
            yield ProviderPath(str(each))
    finally:
        activation.lease.release()
