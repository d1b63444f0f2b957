"""Directory plugins: put below ``$HERMES_HOME/plugins`` as a whole, or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from hermes_core.discovery import (
    RECORD,
    ProviderInfo,
    Record,
    content_hash,
    describe_directory,
    manifest_of,
    write_record,
)
from hermes_core.home import ensure_folder, sync_folder
from hermes_core.installing._errors import InstallError
from hermes_core.installing._git import check_out, commit_of
from hermes_core.installing._sources import Folder, Repository
from hermes_core.locking import LockTimeoutError, file_lock
from hermes_core.names import name_problem

_LOCK_SECONDS: Final = 10
_STAGED: Final = ".installing-"
_ASIDE: Final = ".replaced-"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NOT_COPIED: Final = (".git", "__pycache__", ".venv", "node_modules", RECORD)


class Staged(NamedTuple):
    """A directory plugin that lies ready, and what is known of it."""

    folder: Path
    name: str
    info: ProviderInfo
    record: Record


@contextmanager
def plugins_folder(home: Path) -> Iterator[Path]:
    """``plugins`` below a home, for one at a time; what a killed process left is cleared."""
    folder = ensure_folder(home / "plugins")
    try:
        with file_lock(folder / ".lock", _LOCK_SECONDS):
            _clear(folder)
            try:
                yield folder
            finally:
                _clear(folder)
    except LockTimeoutError as error:
        raise InstallError(error.what, where=error.where, hint=error.hint) from error


def _clear(folder: Path) -> None:
    for each in folder.glob(f"{_ASIDE}*"):
        # Its replacement never came: it is the plugin still.
        original = folder / each.name.removeprefix(_ASIDE)
        if not original.exists():
            each.rename(original)
    for pattern in (f"{_ASIDE}*", f"{_STAGED}*"):
        for each in folder.glob(pattern):
            remove_tree(each)


def remove_tree(folder: Path) -> None:
    """Remove a folder, also what git made read-only."""
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(OSError):
                if not os.path.islink(path := os.path.join(parent, name)):  # noqa: PTH114, PTH118
                    os.chmod(path, 0o700)  # noqa: PTH101
    shutil.rmtree(folder, ignore_errors=True)


def stage(source: Folder | Repository, plugins: Path) -> Staged:
    """Get a plugin into a folder beside where it will be, and look at it."""
    work = plugins / f"{_STAGED}{os.urandom(4).hex()}"
    if isinstance(source, Folder):
        shutil.copytree(
            source.path, work, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED)
        )
        found, origin, commit = work, str(source.path), commit_of(source.path)
        called = source.path.name
    else:
        commit = check_out(source, work)
        remove_tree(work / ".git")
        found, origin, called = work / source.subdirectory, source.shown, source.name
    _refuse_strange(found, work, origin)
    info = describe_directory(found)
    name = str(manifest_of(info).get("name") or called)
    problem = name_problem(name)
    if problem or not _NAME.fullmatch(name):
        raise InstallError(problem or f"{name!r} can't be a folder's name", where=origin)
    record = Record(source=origin, commit=commit, hash=content_hash(info))
    return Staged(found, name, info._replace(name=name, commit=commit), record)


def _refuse_strange(found: Path, work: Path, origin: str) -> None:
    if not (found / "plugin.yaml").is_file():
        package = (found / "pyproject.toml").is_file()
        raise InstallError(
            "has no plugin.yaml" + (", but a pyproject.toml: it is a package" if package else ""),
            where=origin,
            hint=f'run: hermes-plugins install "NAME @ git+{origin}"' if package else "",
        )
    root = work.resolve()
    for parent, folders, names in os.walk(found):
        for name in (*folders, *names):
            path = Path(parent, name)
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                inner = path.relative_to(found).as_posix()
                raise InstallError(f"{inner} is a link that leads out of it", where=origin)


def put(folder: Path, target: Path, record: Record) -> None:
    """Move a folder that lies ready to its place. What is there goes only then."""
    write_record(folder, record)
    aside = target.with_name(f"{_ASIDE}{target.name}")
    replacing = target.exists()
    if replacing:
        target.rename(aside)
    folder.rename(target)
    with suppress(OSError):
        sync_folder(target.parent)
    if replacing:
        remove_tree(aside)


def remove_folder(folder: Path) -> None:
    """Take a directory plugin away, all of it at once."""
    aside = folder.with_name(f"{_STAGED}{os.urandom(4).hex()}")
    folder.rename(aside)
    remove_tree(aside)
