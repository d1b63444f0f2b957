"""Upgrades of plugins: what is installed, what is new, and whether it starts."""

from __future__ import annotations

import json
import shlex
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import distribution as find_metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from hermes_core.checkup.selection import TestedProvider, enable, find_choice, try_provider
from hermes_core.checkup.start import start
from hermes_core.config import Config, load_config
from hermes_core.config.names import nearest, normalise, split_choice
from hermes_core.discovery import (
    ProviderInfo,
    Record,
    content_hash,
    describe_directory,
    find_distribution,
    read_record,
    same_owner,
)
from hermes_core.errors import HermesError
from hermes_core.install._comparison import (
    Difference,
    compare,
    read_download,
    read_folder,
    read_installed,
)
from hermes_core.install._directories import (
    remote_commit,
)
from hermes_core.install._installers import OURSELVES, Download
from hermes_core.install._sources import Folder, InstallError, Repository
from hermes_core.provider import BUILTIN

__all__ = [
    "Difference",
    "Target",
    "check_source",
    "difference_of",
    "folder_difference",
    "newest",
    "prove",
    "source_of",
    "targets",
]

#: The digits of a commit that people read.
_SHORT: Final = 7


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
            f"{name} is part of this program, not a plugin",
            hint=f"run: pip install --upgrade {OURSELVES}",
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
        # A folder or an archive of sources runs its build.
        build = "" if place.endswith(".whl") else " --build"
        raise InstallError(
            f"was installed from {place}",
            where=target.name,
            hint=f"to upgrade it, run: hermes-plugins install {place}{build}",
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
    """Whether the active provider is one of the target, and starts with the previous version."""
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
        started: Whether the previous version started: then this one has to start as well.

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
            hint=f"{target.version or 'the previous version'} is installed again",
        )
    problems = [str(problem) for each in loaded for problem in each.check.problems]
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
        hint=f"{target.version or 'the previous version'} is installed again",
    )


def _tested(home: Path, name: str) -> TestedProvider | str:
    """The provider as it loaded, or why it does not load."""
    config = load_config(home)
    try:
        tested = try_provider(config, name, find_choice(config, name))
    except HermesError as error:
        return str(error)
    return tested if tested.check.own_name else tested.check.what
