"""Upgrades of plugins: what is installed, and a way back if the new version does not start.

Before anything changes, the files that an upgrade may replace are copied to the home, and a journal
says what they are. A rollback only copies files, so it needs neither pip nor a package index, and
may be repeated. As long as there is a journal, an upgrade has not ended.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import distribution as find_metadata
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from hermes_core.checkup.selection import TestedProvider, enable, find_choice, try_provider
from hermes_core.checkup.start import start
from hermes_core.config import Config, load_config
from hermes_core.config.editor import change_plugins
from hermes_core.config.lock_file import entry_of, read_lock_file
from hermes_core.config.names import nearest, normalise, split_choice
from hermes_core.discovery import (
    ProviderInfo,
    Record,
    content_hash,
    describe_directory,
    find_distribution,
    installed_distributions,
    read_record,
    same_owner,
)
from hermes_core.errors import ConfigError, HermesError
from hermes_core.install._comparison import (
    Difference,
    compare,
    downloaded_files,
    read_download,
    read_folder,
    read_installed,
)
from hermes_core.install._directories import (
    plugins_folder,
    put,
    remote_commit,
    remove_tree,
    staging_folder,
)
from hermes_core.install._installers import OURSELVES, Download, Plan
from hermes_core.install._sources import Folder, InstallError, Repository
from hermes_core.install._wheels import SCRIPTS, declared_scripts
from hermes_core.provider import BUILTIN
from hermes_core.storage.files import LockTimeoutError, file_lock, read_regular, replace_file
from hermes_core.storage.home import ensure_folder

__all__ = [
    "Difference",
    "Journal",
    "Target",
    "check_source",
    "difference_of",
    "finish",
    "folder_difference",
    "interrupted",
    "newest",
    "prepare_folder",
    "prepare_packages",
    "prove",
    "roll_back",
    "source_of",
    "targets",
    "undo_interrupted",
    "undone_on_failure",
    "upgrading",
]

_JOURNAL: Final = "upgrade.json"
_BACKUP: Final = "upgrade-backup"
_LOCK: Final = "upgrade.lock"
_LOCK_SECONDS: Final = 1.0
#: The digits of a commit that people read.
_SHORT: Final = 7
_MAX_JOURNAL: Final = 50_000_000
_ROLLBACK: Final = "hermes-plugins upgrade --rollback"


# -- what is installed -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """An installed plugin that may be upgraded: a distribution or a directory.

    Attributes:
        name: The distribution, or the directory's name.
        version: Of what is installed.
        providers: What it contains.
        directory: Where a directory plugin lies.
    """

    name: str
    version: str
    providers: tuple[ProviderInfo, ...]
    directory: Path | None = None


def targets(listed: Iterable[ProviderInfo], name: str = "") -> list[Target]:
    """The installed external plugins, or the one that a person named.

    Args:
        listed: The result of a scan.
        name: A provider or its package.

    Raises:
        InstallError: No plugin has that name, or two have it.
    """
    groups: dict[tuple[str, Path | None], list[ProviderInfo]] = {}
    for each in listed:
        ours = each.source in (BUILTIN, "project") or normalise(each.distribution) == OURSELVES
        if not ours and not each.bridge:
            directory = None if each.distribution else each.directory
            groups.setdefault((normalise(each.distribution), directory), []).append(each)
    found = [_target(same) for same in groups.values()]
    return [_named(found, name)] if name else found


def _target(same: list[ProviderInfo]) -> Target:
    first = same[0]
    directory = None if first.distribution else first.directory
    return Target(first.distribution or first.name, first.version, tuple(same), directory)


def _named(found: list[Target], name: str) -> Target:
    wanted, owner = split_choice(name)
    key = normalise(wanted)
    same = [
        target
        for target in found
        if any(each.key == key and (not owner or each.owned_by(owner)) for each in target.providers)
    ]
    same = same or [target for target in found if normalise(target.name) == key]
    if len(same) == 1:
        return same[0]
    if same:
        choices = " or ".join(f"{wanted}@{each.providers[0].owner}" for each in same)
        raise InstallError(f"{name} is the name of two plugins", hint=f"choose one: {choices}")
    if key in (BUILTIN, OURSELVES):
        raise InstallError(
            "that is hermes-plugins itself", hint=f"run: pip install --upgrade {OURSELVES}"
        )
    close = nearest(wanted, (each.name for target in found for each in target.providers))
    raise InstallError(
        f"no memory plugin {name!r} is installed",
        hint=f"did you mean {' or '.join(close)}?"
        if close
        else "run `hermes-plugins list --all` to see what is installed",
    )


def check_source(target: Target) -> None:
    """Raise if a package can't be upgraded from the package index.

    Raises:
        InstallError: It came from elsewhere, or belongs to another environment.
    """
    installed = find_distribution(target.name)
    sites = {Path(sysconfig.get_path(each)).resolve() for each in ("purelib", "platlib")}
    if installed is None or installed.location.resolve() not in sites:
        raise InstallError(
            "belongs to another environment",
            where=target.name,
            hint=f"this environment is {sys.prefix}",
        )
    # The index may have a stranger's package of that name.
    url, editable = _direct_url(target.name)
    if editable:
        raise InstallError(
            "is an editable install, which changes with its sources", where=target.name, hint=url
        )
    if url:
        place = _as_argument(url, target.name)
        raise InstallError(
            f"was installed from {place}",
            where=target.name,
            hint=f"to upgrade it, run: hermes-plugins install {place}",
        )


def _direct_url(name: str) -> tuple[str, bool]:
    """Where pip says that a package came from, and whether it is an editable install (PEP 610)."""
    try:
        text = find_metadata(name).read_text("direct_url.json")
        data: Any = json.loads(text or "{}")
        url = str(data.get("url", ""))
        if "vcs_info" in data:
            url = f"git+{url}"
        return url, bool(data.get("dir_info", {}).get("editable"))
    except (PackageNotFoundError, ValueError, AttributeError):
        return "", False


def _as_argument(url: str, name: str) -> str:
    """What to give to `install` for it, quoted for a shell."""
    if url.startswith("git+"):  # without the name it would be a directory plugin
        return shlex.quote(f"{name} @ {url}")
    return shlex.quote(url2pathname(urlsplit(url).path)) if url.startswith("file:") else url


def source_of(target: Target) -> Folder | Repository:
    """Where a directory plugin came from.

    Raises:
        InstallError: That is not known, or a person has changed the plugin; the hint says what
            to do.
    """
    assert target.directory is not None  # noqa: S101 - by whom we are called
    record = read_record(target.directory)
    where = str(target.directory)
    if record is None or not record.source:
        raise InstallError(
            "was not installed by hermes-plugins, so its source is not known",
            where=where,
            hint="run: hermes-plugins install SOURCE --replace",
        )
    if content_hash(describe_directory(target.directory)) != record.hash:
        raise InstallError(
            "has been edited since it was installed",
            where=where,
            hint=f"to replace your edits, run: hermes-plugins install {_again(record)} --replace",
        )
    if "://" not in record.source and "@" not in record.source:
        folder = Path(record.source)
        if not (folder / "plugin.yaml").is_file():
            raise InstallError(f"its source {folder} no longer exists", where=where)
        return Folder(folder)
    if record.revision and record.commit.startswith(record.revision):
        raise InstallError(
            f"was installed at commit {record.revision}, as you asked",
            where=where,
            hint=f"to take another, run: hermes-plugins install git+{record.source}@REVISION "
            "--replace",
        )
    return Repository(record.source, record.revision, record.subdirectory)


def _again(record: Record) -> str:
    inner = f"#subdirectory={record.subdirectory}" if record.subdirectory else ""
    at = f"@{record.revision}" if record.revision else ""
    return f"git+{record.source}{at}{inner}" if "://" in record.source else record.source


def difference_of(target: Target, fetched: Download) -> Difference:
    """What the downloaded version of a package has that the installed one has not."""
    installed = find_distribution(target.name)
    assert installed is not None  # noqa: S101 - see check_source
    return compare(read_installed(installed), read_download(fetched, target.name))


def folder_difference(target: Target, staged: Path) -> Difference:
    """The same for a directory plugin."""
    assert target.directory is not None  # noqa: S101 - by whom we are called
    return compare(read_folder(target.directory), read_folder(staged))


def newest(target: Target, source: Folder | Repository) -> str:
    """What a directory plugin's source has now, if it differs from what is installed; else ""."""
    assert target.directory is not None  # noqa: S101 - by whom we are called
    record = read_record(target.directory) or Record()
    if isinstance(source, Repository):
        commit = remote_commit(source)
        return "" if commit == record.commit else commit[:_SHORT]
    now = describe_directory(source.path)
    return "" if content_hash(now) == record.hash else now.version or "changed files"


# -- whether the new version loads -------------------------------------------------------------


def starts(config: Config, target: Target) -> bool:
    """Whether the active provider is one of the target, and starts with the version before."""
    begun = start(config, config.selection.choice) if _active(config, target) else None
    return begun is not None and not begun.error


def _active(config: Config, target: Target) -> list[ProviderInfo]:
    selection = config.selection
    return [
        each
        for each in target.providers
        if each.key == normalise(selection.name)
        and (not selection.owner or each.owned_by(selection.owner))
        and same_owner(each, selection.pin)
    ]


def prove(config: Config, target: Target, new: str, *, started: bool) -> tuple[str, ...]:
    """Load the new version in a child process, and keep the pin of an active one in step.

    Args:
        config: What config.yaml says.
        target: What was upgraded.
        new: Its new version.
        started: Whether the version before started: then this one has to start as well.

    Returns:
        Why it does not work yet, if it loads: a missing key, or a service that does not answer.

    Raises:
        InstallError: It does not load, or does not start.
    """
    selection, active = config.selection, _active(config, target)
    # The active one decides; otherwise one of its providers has to load.
    names = [f"{each.name}@{each.owner}" for each in active or target.providers if each.loadable]
    tests = [_tested(config.home, name) for name in names]
    failed = [each for each in tests if isinstance(each, str)]
    loaded = [each for each in tests if isinstance(each, TestedProvider)]
    if failed and not loaded:
        raise InstallError(
            f"{target.name} {new} does not load: {failed[0]}",
            hint=f"{target.version or 'the version before'} is installed again",
        )
    problems = [problem for each in loaded for problem in each.check.problems]
    if active and loaded:
        choice = replace(loaded[0], choice=selection.choice)
        enable(load_config(config.home), choice)
        if started and not problems:
            problems += _start_problems(config, target, new)
    return tuple(problems)


def _start_problems(config: Config, target: Target, new: str) -> list[str]:
    """Why the service of the new version does not answer; raises if the version does not start."""
    begun = start(load_config(config.home), config.selection.choice)
    if begun is None or not begun.error:
        return []
    if begun.is_service:
        return [begun.error]
    raise InstallError(
        f"{target.name} {new} does not start: {begun.error}",
        hint=f"{target.version or 'the version before'} is installed again",
    )


def _tested(home: Path, name: str) -> TestedProvider | str:
    """The provider as it loaded, or why it does not load."""
    config = load_config(home)
    try:
        tested = try_provider(config, name, find_choice(config, name))
    except HermesError as error:
        return str(error)
    return tested if tested.check.own_name else tested.check.what


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
class Journal:
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
def upgrading(home: Path) -> Iterator[None]:
    """Hold the lock of upgrades.

    Raises:
        InstallError: Another process upgrades, or was interrupted before it had ended.
    """
    with _locked(home):
        journal = read_journal(home)
        if journal is not None and not _is_untouched(home, journal):
            raise journal.error
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


def read_journal(home: Path) -> Journal | None:
    """The journal of an upgrade; None without one.

    Raises:
        InstallError: It can't be read.
    """
    path = home / _JOURNAL
    try:
        data: Any = json.loads(read_regular(path, _MAX_JOURNAL))
        packages = tuple(_Files(**each) for each in data.pop("packages"))
        return Journal(**{**data, "packages": packages})
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
    journal = Journal(target.name, target.version, to, sys.prefix, tuple(packages), pins=pins)
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
    old = f"{target.version} {commit}".strip() or "the version before"
    backup = _new_backup(home)
    shutil.copytree(target.directory, backup / "folder", symlinks=True)
    place, pins = str(target.directory), _pins(home, target)
    journal = Journal(target.name, old, new, sys.prefix, directory=place, pins=pins)
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


def _write_journal(home: Path, journal: Journal) -> None:
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


def _is_untouched(home: Path, journal: Journal) -> bool:
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


def roll_back(home: Path) -> Journal | None:
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


def undo_interrupted(home: Path) -> Journal | None:
    """Roll back what a killed process left; returns what was restored, if anything."""
    with _locked(home):
        return roll_back(home)


def _restore_pins(home: Path, journal: Journal) -> None:
    """Pin the version before, if the new one was pinned already."""
    old = {normalise(name): entry_of(name, values) for name, values in journal.pins.items()}
    with suppress(ConfigError):  # a damaged lock file is reported by every other command
        recorded = read_lock_file(home)
        entries = {key: old.get(key, each) for key, each in recorded.items()}
        if entries != recorded:
            change_plugins(home, {}, list(entries.values()))


def _restore_folder(home: Path, journal: Journal) -> None:
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
