"""git: one commit of a repository, and nothing of what is in it is run."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Final

from hermes_core.installing._errors import InstallError
from hermes_core.installing._running import Ended, run
from hermes_core.installing._sources import Repository

_REASON: Final = re.compile(r"^(?:fatal|error|ERROR): (.+)$", re.MULTILINE)
_MISSING: Final = re.compile(r"couldn't find remote ref|not our ref|no such remote ref")
_ABSENT: Final = re.compile(r"does not appear to be a git repository|not found|does not exist")


def check_out(repository: Repository, folder: Path) -> str:
    """Put a commit's files into a folder that does not exist yet; gives the commit."""
    folder.mkdir(mode=0o700)
    wanted = repository.revision or "HEAD"
    _git(folder, "init", "--quiet")
    ended = _git(folder, "fetch", "--quiet", "--depth=1", "--no-tags", "--", repository.url, wanted)
    if ended.code:
        raise _failure(repository, ended)
    for command in (("checkout", "--quiet", "--detach", "FETCH_HEAD"), ("rev-parse", "HEAD")):
        ended = _git(folder, *command)
        if ended.code:
            raise _failure(repository, ended)
    return ended.out.strip()


def commit_of(folder: Path) -> str:
    """The commit that a folder has checked out, with ``+changes`` if it has been edited."""
    if shutil.which("git") is None:
        return ""
    ended = _git(folder, "rev-parse", "HEAD")
    if ended.code:
        return ""
    edited = _git(folder, "status", "--porcelain", "--", ".").out.strip()
    return ended.out.strip() + ("+changes" if edited else "")


def _git(folder: Path, *arguments: str) -> Ended:
    program = shutil.which("git")
    if program is None:
        raise InstallError("git is not installed", hint="install it, or give a folder instead")
    # Asked for a password it would wait for ever, where nobody sits.
    prompt = "1" if sys.stdin.isatty() else "0"
    return run(
        [program, "-C", str(folder), "-c", f"core.hooksPath={os.devnull}", *arguments],
        prompts=True,
        GIT_TERMINAL_PROMPT=prompt,
    )


def _failure(repository: Repository, ended: Ended) -> InstallError:
    reasons = _REASON.findall(ended.err) or ended.err.strip().splitlines()[-1:]
    if _MISSING.search(ended.err):
        what = f"has no revision {repository.revision or 'HEAD'}"
        hint = "a branch, a tag or a whole commit id"
    elif _ABSENT.search(ended.err):
        what, hint = "there is no git repository", "is it spelt right, and may you read it?"
    else:
        what, hint = reasons[0] if reasons else "git failed, without a word", ""
    what = what.replace(repository.url, repository.shown)
    return InstallError(what, where=repository.shown, hint=hint)
