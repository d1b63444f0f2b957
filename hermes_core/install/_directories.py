"""Directory plugins: copied or cloned below ``$HERMES_HOME/plugins``, completely or not at all."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from hermes_core.config.names import name_problem
from hermes_core.discovery import (
    RECORD,
    ProviderInfo,
    Record,
    content_hash,
    content_of,
    describe_directory,
    manifest_of,
    write_record,
)
from hermes_core.install._commands import CommandResult, run
from hermes_core.install._sources import Folder, InstallError, Repository
from hermes_core.storage.files import LockTimeoutError, file_lock, sync_folder
from hermes_core.storage.home import ensure_folder

_LOCK_SECONDS: Final = 10
# Both begin with a dot, so that no scan lists them. Only the second may be the only copy of a
# plugin: see `_clear`.
_STAGED: Final = ".installing-"
_ASIDE: Final = ".replaced-"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# Large or local to the machine. The record of another home does not describe this copy.
_NOT_COPIED: Final = (".git", "__pycache__", ".venv", "node_modules", RECORD)


class StagedPlugin(NamedTuple):
    """A directory plugin that is ready to be moved to its place, and what is known about it."""

    folder: Path
    name: str
    info: ProviderInfo
    record: Record


@contextmanager
def plugins_folder(home: Path) -> Iterator[Path]:
    """The ``plugins`` folder of a home, locked; removes what a killed process left there."""
    folder = ensure_folder(home / "plugins")
    try:
        with file_lock(folder / ".lock", _LOCK_SECONDS):
            # Under the lock nobody else is installing, so what is there is of a process that died.
            _clear(folder)
            try:
                yield folder
            finally:
                _clear(folder)
    except LockTimeoutError as error:
        raise InstallError(error.what, where=error.where, hint=error.hint) from error


def _clear(folder: Path) -> None:
    for each in folder.glob(f"{_ASIDE}*"):
        # The process was killed before the replacement was in place: this is the plugin.
        original = folder / each.name.removeprefix(_ASIDE)
        if not original.exists():
            each.rename(original)
    for pattern in (f"{_ASIDE}*", f"{_STAGED}*"):
        for each in folder.glob(pattern):
            remove_tree(each)


def remove_tree(folder: Path) -> None:
    """Remove a folder, also what git made read-only."""
    # shutil's onerror differs between versions of Python (onexc since 3.12), so modes are changed
    # first. Links are left out: chmod would change the file behind them.
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(OSError):
                if not os.path.islink(path := os.path.join(parent, name)):  # noqa: PTH114, PTH118
                    os.chmod(path, 0o700)  # noqa: PTH101
    shutil.rmtree(folder, ignore_errors=True)


def staging_folder(plugins: Path) -> Path:
    """The path of a new folder beside the plugins, which a killed process leaves to `_clear`."""
    # On the file system of its place, so that the final rename is atomic.
    return plugins / f"{_STAGED}{os.urandom(4).hex()}"


def stage(source: Folder | Repository, plugins: Path) -> StagedPlugin:
    """Copy or clone a plugin into a folder beside its place, and check it."""
    work = staging_folder(plugins)
    if isinstance(source, Folder):
        # symlinks=True: links are copied as links, and then checked by `_refuse_strange`.
        shutil.copytree(
            source.path, work, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED)
        )
        found, origin, commit = work, str(source.path), commit_of(source.path)
        called = source.path.name
    else:
        commit = check_out(source, work)
        # One commit is installed. A `git pull` there would change what runs without asking.
        remove_tree(work / ".git")
        found, origin, called = work / source.subdirectory, source.shown, source.name
    _refuse_strange(found, work, origin)
    info = describe_directory(found)
    name = str(manifest_of(info).get("name") or called)
    problem = name_problem(name)
    if problem or not _NAME.fullmatch(name):
        what = problem or f"{name!r} can't be the name of a folder"
        raise InstallError(what, where=origin, hint="change the name in its plugin.yaml")
    record = Record(source=origin, commit=commit, hash=content_hash(info))
    if isinstance(source, Repository):
        # For `upgrade`: the branch or tag, and the folder in the repository.
        record = record._replace(revision=source.revision, subdirectory=source.subdirectory)
    return StagedPlugin(found, name, info._replace(name=name, commit=commit), record)


def _refuse_strange(found: Path, work: Path, origin: str) -> None:
    if not (found / "plugin.yaml").is_file():
        package = (found / "pyproject.toml").is_file()
        raise InstallError(
            "has no plugin.yaml" + (", but a pyproject.toml: it is a package" if package else ""),
            where=origin,
            hint=f'run: hermes-plugins install "NAME @ git+{origin}"'
            if package
            else "name the folder that has it; in a git URL: #subdirectory=FOLDER",
        )
    # A link out of the folder could pull a private file into the plugin, or change under it.
    root = work.resolve()
    for parent, folders, names in os.walk(found):
        for name in (*folders, *names):
            path = Path(parent, name)
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                inner = path.relative_to(found).as_posix()
                what = f"{inner} is a link to a file outside of it"
                raise InstallError(what, where=origin, hint="replace the link by the file")


def put(folder: Path, target: Path, record: Record) -> None:
    """Move a staged folder to its place; only then remove what was there."""
    write_record(folder, record)
    aside = target.with_name(f"{_ASIDE}{target.name}")
    # Two renames, since a folder that is not empty can't be replaced by one. A crash between them
    # leaves the old plugin aside, and the next `plugins_folder` moves it back.
    replacing = target.exists()
    if replacing:
        target.rename(aside)
    folder.rename(target)
    with suppress(OSError):
        sync_folder(target.parent)
    if replacing:
        remove_tree(aside)


def remove_folder(folder: Path) -> None:
    """Remove a directory plugin, completely or not at all."""
    # Renamed first: after a crash during the removal, no half of a plugin is listed.
    aside = folder.with_name(f"{_STAGED}{os.urandom(4).hex()}")
    folder.rename(aside)
    remove_tree(aside)


_REASON: Final = re.compile(r"^(?:fatal|error|ERROR): (.+)$", re.MULTILINE)
_MISSING: Final = re.compile(r"couldn't find remote ref|not our ref|no such remote ref")
_ABSENT: Final = re.compile(r"does not appear to be a git repository|not found|does not exist")


def check_out(repository: Repository, folder: Path) -> str:
    """Check a revision out into a new folder, and return the commit.

    Only fetches and checks out: no hook and nothing else of the repository is run.
    """
    folder.mkdir(mode=0o700)
    ours = folder / ".git"
    wanted = repository.revision or "HEAD"
    _git(ours, folder, "init", "--quiet")
    # fetch and not clone: one commit of any branch, tag or id. "--": a URL can't become an option.
    fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--", repository.url, wanted)
    for command in (fetch, ("checkout", "--quiet", "--detach", "FETCH_HEAD"), _HEAD):
        done = _git(ours, folder, *command)
        if done.code:
            raise _failure(repository, done)
    return done.out.strip()


def remote_commit(repository: Repository) -> str:
    """The commit that a revision of a repository names now, without fetching it."""
    wanted = repository.revision or "HEAD"
    with tempfile.TemporaryDirectory(prefix="hermes-git-") as name:
        ours = Path(name, ".git")
        _git(ours, Path(name), "init", "--quiet")
        done = _git(ours, Path(name), "ls-remote", "--", repository.url, wanted, f"{wanted}^{{}}")
    if done.code:
        raise _failure(repository, done)
    # "COMMIT<tab>REF"; of an annotated tag the second line, which is the commit behind it.
    lines = [each.split("\t") for each in done.out.splitlines()]
    commits = {each[1]: each[0] for each in lines if len(each) == 2}  # noqa: PLR2004
    behind = [commit for ref, commit in commits.items() if ref.endswith("^{}")]
    found = behind or list(commits.values())
    if not found:
        raise InstallError(f"has no revision {wanted}", where=repository.shown)
    return found[0]


def commit_of(folder: Path) -> str:
    """The commit that a folder has checked out, with ``+changes`` if it has been edited.

    Whoever made the folder wrote its ``.git/config`` too, which names programs that git runs
    (``core.fsmonitor``, filters, aliases). So git never sees that file: the commit is read as
    text, and git compares in a repository of ours, which only borrows the objects.
    """
    top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    if top is None or shutil.which("git") is None:
        return ""
    theirs = _git_folder(top)
    commit = "" if theirs is None else _head_of(theirs)
    if theirs is None or not commit:
        return ""
    with tempfile.TemporaryDirectory(prefix="hermes-git-") as name:
        ours = Path(name, ".git")
        kind = "sha256" if len(commit) == _SHA256_LENGTH else "sha1"
        _git(ours, top, "init", "--quiet", f"--object-format={kind}")
        alternates = ours / "objects" / "info" / "alternates"
        alternates.parent.mkdir(parents=True, exist_ok=True)
        alternates.write_text(f"{_common(theirs) / 'objects'}\n", "utf-8", newline="\n")
        # A submodule has a configuration too, and git would run `status` in there.
        status = ("status", "--porcelain", "--ignore-submodules=all", "--", str(folder))
        if _git(ours, top, "update-ref", "--no-deref", "HEAD", commit).code:
            return commit
        _git(ours, top, "read-tree", "HEAD")
        edited = _git(ours, top, *status)
    return commit + ("+changes" if edited.code or edited.out.strip() else "")


_HEAD: Final = ("rev-parse", "HEAD")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHA256_LENGTH: Final = 64


def _git_folder(top: Path) -> Path | None:
    """The git folder of a checkout: its ``.git``, or where that file leads in a worktree."""
    place = top / ".git"
    if place.is_dir():
        return place
    key, _, path = _line(place).partition(": ")
    found = top / path
    return found if key == "gitdir" and found.is_dir() else None


def _head_of(theirs: Path) -> str:
    """The commit that HEAD leads to, read as text; "" if it can't be found out."""
    head = _line(theirs / "HEAD")
    for _ in range(_MAX_REFERENCES):
        if _COMMIT.fullmatch(head):
            return head
        key, _, name = head.partition(": ")
        if key != "ref" or ".." in name or not name.startswith("refs/"):
            return ""
        common = _common(theirs)
        head = _line(theirs / name) or _line(common / name) or _packed(common, name)
    return ""


_MAX_REFERENCES: Final = 5


def _common(theirs: Path) -> Path:
    """What a worktree shares with the others."""
    shared = _line(theirs / "commondir")
    return (theirs / shared).resolve() if shared else theirs.resolve()


def _packed(common: Path, name: str) -> str:
    lines = content_of(common / "packed-refs").decode("utf-8", "replace").splitlines()
    return next((each.split()[0] for each in lines if each.endswith(f" {name}")), "")


def _line(path: Path) -> str:
    return content_of(path).decode("utf-8", "replace").partition("\n")[0].strip()


#: The configuration of the person who runs us counts, but for what works in the checkout.
_NEUTRAL: Final = (
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",
    "submodule.recurse=false",
    "status.submoduleSummary=false",
)


def _git(ours: Path, checkout: Path, *arguments: str) -> CommandResult:
    """Run git with a repository that we made: it looks for no other one."""
    program = shutil.which("git")
    if program is None:
        raise InstallError("git is not installed", hint="install git, or use a folder instead")
    # Without a terminal, git has to fail instead of waiting for a password.
    prompt = "1" if sys.stdin.isatty() else "0"
    options = [word for each in _NEUTRAL for word in ("-c", each)]
    return run(
        # core.hooksPath: the hooks of a person's git template must not run either.
        [program, "-C", str(checkout), *options, *arguments],
        prompts=True,
        GIT_TERMINAL_PROMPT=prompt,
        GIT_DIR=str(ours),
        GIT_WORK_TREE=str(checkout),
        GIT_INDEX_FILE=str(ours / "index"),
    )


def _failure(repository: Repository, done: CommandResult) -> InstallError:
    reasons = _REASON.findall(done.err) or done.err.strip().splitlines()[-1:]
    if _MISSING.search(done.err):
        what = f"has no revision {repository.revision or 'HEAD'}"
        hint = "use a branch, a tag or a full commit id"
    elif _ABSENT.search(done.err):
        what, hint = "no git repository found", "check the URL, and your access to it"
    else:
        what = reasons[0] if reasons else "git failed without an error message"
        hint = "check the URL, your network and your access to it"
    # git quotes the URL in its messages, with a token that may be in it.
    what = what.replace(repository.url, repository.shown)
    return InstallError(what, where=repository.shown, hint=hint)
