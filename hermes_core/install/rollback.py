"""What an upgrade has replaced, and the way back if the new version does not start.

Before anything changes, the files that an upgrade may replace are copied to the home, and a journal
says what they are. A rollback only copies files, so it needs neither pip nor a package index, and
may be repeated. As long as there is a journal, an upgrade has not ended.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_core.config.editor import change_plugins
from hermes_core.config.lock_file import entry_of, read_lock_file
from hermes_core.config.names import normalise
from hermes_core.discovery import (
    Record,
    find_distribution,
    installed_distributions,
    read_record,
)
from hermes_core.errors import CHECK_FOLDER, ConfigError
from hermes_core.install._comparison import (
    Difference,
    compare,
    downloaded_files,
    read_folder,
)
from hermes_core.install._directories import (
    plugins_folder,
    put,
    remove_tree,
    staging_folder,
)
from hermes_core.install._installers import Download, Plan
from hermes_core.install._sources import InstallError
from hermes_core.install._wheels import SCRIPTS, declared_scripts
from hermes_core.storage.files import LockTimeoutError, file_lock, read_regular, replace_file
from hermes_core.storage.home import ensure_folder

if TYPE_CHECKING:
    from hermes_core.install.upgrade import Target


_JOURNAL: Final = "upgrade.json"
_BACKUP: Final = "upgrade-backup"
_LOCK: Final = "upgrade.lock"
_LOCK_SECONDS: Final = 1.0
#: The digits of a commit that people read.
_SHORT: Final = 7
_MAX_JOURNAL: Final = 50_000_000
_ROLLBACK: Final = "hermes-plugins upgrade --rollback"


# -- the journal -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of one distribution, before and after.

    Attributes:
        project: Its name.
        site: The folder that the names are relative to.
        saved: The number of the copy of each file that was there.
        new: The files that the new version has.
    """

    project: str
    site: str
    saved: dict[str, int] = field(default_factory=dict)
    new: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class UpgradeJournal:
    """An upgrade that has begun and not ended.

    Attributes:
        name: The plugin: its distribution or its directory's name.
        old: The version that was installed, or its commit.
        new: The version that was to be installed.
        prefix: The environment in which it is installed.
        packages: The files of each distribution that changes.
        directory: Where a directory plugin lies; "" for a package.
        pins: What the lock file says of its providers.
    """

    name: str
    old: str
    new: str
    prefix: str
    packages: tuple[_Files, ...] = ()
    directory: str = ""
    pins: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def error(self) -> InstallError:
        """What to tell a person about it."""
        return InstallError(
            f"an upgrade of {self.name} from {self.old} to {self.new} was interrupted, and may be "
            "installed in part",
            hint=f"to get {self.old} back, run: {_ROLLBACK}",
        )


@contextmanager
def upgrading(home: Path, *, dry_run: bool = False) -> Iterator[None]:
    """Hold the lock of upgrades; a dry run changes nothing, so it needs none.

    Raises:
        InstallError: Another process upgrades, or was interrupted before it had ended.
    """
    with nullcontext() if dry_run else _locked(home):
        journal = read_journal(home)
        if journal is not None and not _is_untouched(home, journal):
            raise journal.error
        if not dry_run:
            finish(home)
        yield


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    try:
        with file_lock(ensure_folder(home) / _LOCK, _LOCK_SECONDS):
            yield
    except LockTimeoutError as error:
        raise InstallError(
            f"another upgrade is running ({error.holder})", hint="try again later"
        ) from error
    except OSError as error:
        what = f"can't be written: {error.strerror or error}"
        raise InstallError(what, where=str(home), hint=CHECK_FOLDER) from error


def interrupted(home: Path) -> InstallError | None:
    """What a killed process left, as an error for a person; None if nothing, or it still runs."""
    if not (home / _JOURNAL).exists():
        return None
    try:
        with file_lock(home / _LOCK, 0):
            journal = read_journal(home)
    except (LockTimeoutError, OSError):
        return None
    except InstallError as error:
        return error
    return None if journal is None or _is_untouched(home, journal) else journal.error


@contextmanager
def undone_on_failure(home: Path) -> Iterator[None]:
    """Roll back if the block raises, whatever that is; otherwise the upgrade has ended."""
    try:
        yield
    except BaseException:
        roll_back(home)
        raise
    finish(home)


def read_journal(home: Path) -> UpgradeJournal | None:
    """The journal of an upgrade; None without one.

    Raises:
        InstallError: It can't be read.
    """
    path = home / _JOURNAL
    try:
        data: Any = json.loads(read_regular(path, _MAX_JOURNAL))
        packages = tuple(_Files(**each) for each in data.pop("packages"))
        return UpgradeJournal(**{**data, "packages": packages})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise InstallError(
            "the journal of an upgrade can't be read",
            where=str(path),
            hint="install the plugin again, then delete this file",
        ) from None


def prepare_packages(home: Path, target: Target, plan: Plan, fetched: Download) -> None:
    """Copy what an upgrade of a package may replace, then write the journal."""
    backup = _new_backup(home)
    numbers = count()
    packages = []
    for change in plan.changes:
        installed = find_distribution(change.name)
        site = Path(sysconfig.get_path("purelib")) if installed is None else installed.location
        new = _new_names(fetched, change.name, site)
        # Also what is there and belongs to somebody else, if the new version replaces it.
        before = () if installed is None else installed.files
        saved = {name: next(numbers) for name in _existing(site, {*before, *new})}
        for name, number in saved.items():
            shutil.copy2(site / name, backup / str(number))
        packages.append(_Files(change.name, str(site), saved, new))
    to = next(each.version for each in plan.changes if _is(each.name, target.name))
    pins = _pins(home, target)
    journal = UpgradeJournal(
        target.name, target.version, to, sys.prefix, tuple(packages), pins=pins
    )
    _write_journal(home, journal)


def _existing(site: Path, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        path = site / name
        if _is_inside(path, sys.prefix) and path.is_file() and path.suffix != ".pyc":
            yield name


def prepare_folder(home: Path, target: Target, new: str) -> None:
    """Copy a directory plugin that is to be replaced, then write the journal."""
    assert target.directory is not None  # noqa: S101 - by whom we are called
    commit = (read_record(target.directory) or Record()).commit[:_SHORT]
    old = f"{target.version} {commit}".strip() or "the previous version"
    backup = _new_backup(home)
    shutil.copytree(target.directory, backup / "folder", symlinks=True)
    place, pins = str(target.directory), _pins(home, target)
    journal = UpgradeJournal(target.name, old, new, sys.prefix, directory=place, pins=pins)
    _write_journal(home, journal)


def _pins(home: Path, target: Target) -> dict[str, dict[str, Any]]:
    keys = {each.key for each in target.providers}
    recorded = read_lock_file(home)
    return {each.name: each.as_json() for key, each in recorded.items() if key in keys}


def _new_backup(home: Path) -> Path:
    backup = home / _BACKUP
    remove_tree(backup)
    backup.mkdir(mode=0o700, parents=True)
    return backup


def _write_journal(home: Path, journal: UpgradeJournal) -> None:
    data = asdict(journal)
    replace_file(home / _JOURNAL, json.dumps(data, indent=1).encode("ascii"))


def _new_names(fetched: Download, project: str, site: Path) -> list[str]:
    """What the new version puts into the site, and its programs beside it."""
    programs = os.path.relpath(sysconfig.get_path("scripts"), site)
    found = []
    for name, read in downloaded_files(fetched, project):
        if name.startswith(SCRIPTS):
            found.append(f"{programs}/{name.removeprefix(SCRIPTS)}")
            continue
        found.append(name)
        if name.endswith(".dist-info/entry_points.txt"):
            scripts = declared_scripts(read().decode("utf-8", "replace"))
            suffix = ".exe" if os.name == "nt" else ""
            found += [f"{programs}/{each}{suffix}" for each in scripts]
    return found


def _is(name: str, other: str) -> bool:
    return normalise(name) == normalise(other)


def _is_inside(path: Path, prefix: str) -> bool:
    """Whether a file lies in an environment: a RECORD may name any path."""
    return Path(os.path.abspath(path)).is_relative_to(prefix)  # noqa: PTH100 - not through links


def finish(home: Path) -> None:
    """Forget an upgrade that has ended, or that has changed nothing."""
    (home / _JOURNAL).unlink(missing_ok=True)
    remove_tree(home / _BACKUP)


def _is_untouched(home: Path, journal: UpgradeJournal) -> bool:
    """Whether nothing has changed yet, so that there is nothing to restore."""
    if journal.directory:
        target = Path(journal.directory)
        saved = home / _BACKUP / "folder"
        return target.is_dir() and not any(asdict(_difference(saved, target)).values())
    return all(
        _same(Path(each.site, name), home / _BACKUP / str(number))
        for each in journal.packages
        for name, number in each.saved.items()
    ) and not any(
        Path(each.site, name).exists()
        for each in journal.packages
        for name in each.new
        if name not in each.saved
    )


def _difference(old: Path, new: Path) -> Difference:
    return compare(read_folder(old), read_folder(new))


def _same(path: Path, copy: Path) -> bool:
    try:
        return path.read_bytes() == copy.read_bytes()
    except OSError:
        return False


# -- the way back ------------------------------------------------------------------------------


def roll_back(home: Path) -> UpgradeJournal | None:
    """Restore what an upgrade has replaced; returns what was restored, if anything.

    May be repeated: a copy is removed only after everything is back in its place.
    """
    journal = read_journal(home)
    if journal is None:
        return None
    if journal.directory:
        _restore_folder(home, journal)
    elif Path(journal.prefix).is_dir():  # an environment that was deleted needs nothing
        for each in journal.packages:
            _restore_package(home / _BACKUP, each, journal.prefix)
    _restore_pins(home, journal)
    finish(home)
    return journal


def undo_interrupted(home: Path) -> UpgradeJournal | None:
    """Roll back what a killed process left; returns what was restored, if anything."""
    with _locked(home):
        return roll_back(home)


def _restore_pins(home: Path, journal: UpgradeJournal) -> None:
    """Pin the previous version, if the new one was pinned already."""
    old = {normalise(name): entry_of(name, values) for name, values in journal.pins.items()}
    with suppress(ConfigError):  # a damaged lock file is reported by every other command
        recorded = read_lock_file(home)
        entries = {key: old.get(key, each) for key, each in recorded.items()}
        if entries != recorded:
            change_plugins(home, {}, list(entries.values()))


def _restore_folder(home: Path, journal: UpgradeJournal) -> None:
    target = Path(journal.directory)
    saved = home / _BACKUP / "folder"
    with plugins_folder(home) as plugins:
        work = staging_folder(plugins)
        shutil.copytree(saved, work, symlinks=True)
        put(work, target, read_record(work) or Record())


def _restore_package(backup: Path, files: _Files, prefix: str) -> None:
    site = Path(files.site)
    now = {
        name
        for each in installed_distributions([files.site])
        if _is(each.name, files.project)
        for name in each.files
    }
    for name in {*now, *files.new} - files.saved.keys():
        if _is_inside(site / name, prefix):
            _remove(site / name)
    _remove_remains(site, files)
    for name, number in files.saved.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.restored")
        shutil.copy2(backup / str(number), temporary)
        temporary.replace(path)
        _remove_bytecode(path)


def _remove(path: Path) -> None:
    """Remove a file of the new version, its bytecode, and folders that become empty."""
    if path.suffix == ".pyc":
        return
    with suppress(OSError):
        path.unlink()
    _remove_bytecode(path)
    with suppress(OSError):  # the first folder that is not empty ends it
        (path.parent / "__pycache__").rmdir()
    with suppress(OSError):
        path.parent.rmdir()


def _remove_bytecode(path: Path) -> None:
    # It is compared with its source by second and size only, which may be those of the other
    # version.
    for each in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        with suppress(OSError):
            each.unlink()


def _remove_remains(site: Path, files: _Files) -> None:
    """Remove what pip leaves if it is killed: its records, and folders that it had set aside."""
    tops = {name.split("/", 1)[0] for name in files.saved}
    with os.scandir(site) as entries:
        names = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
    for name in names:
        stem = name.rpartition(".")[0].partition("-")[0]
        record = name.endswith(".dist-info") and _is(stem, files.project) and name not in tops
        # pip renames what it is going to remove: the first characters become "~".
        hidden = name.lstrip("~")
        aside = hidden != name and any(
            top.endswith(hidden) and len(top) == len(name) for top in tops
        )
        if record or aside:
            remove_tree(site / name)
