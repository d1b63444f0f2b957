"""`install FOLDER` runs nothing that the folder's own git configuration names."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import Machine, posix_only

pytestmark = posix_only  # the traces are left by a shell


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine", in_process=True)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that leaves a trace beside itself."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(tmp_path / 'trace'))}\nexit 1\n")
    path.chmod(0o700)
    return path


def configured(*keys: str) -> Callable[..., None]:
    def plant(repo, program: Path) -> None:
        for key in keys:
            repo.git("config", key, str(program))

    return plant


def monitor(repo, program: Path) -> None:
    repo.git("config", "core.fsmonitor", str(program))


def hooks(repo, program: Path) -> None:
    folder = repo.folder / ".git" / "hooks"
    folder.mkdir(exist_ok=True)
    for name in ("post-index-change", "post-checkout", "reference-transaction", "pre-auto-gc"):
        (folder / name).symlink_to(program)
    repo.git("config", "core.hooksPath", str(folder))


def filters(repo, program: Path) -> None:
    (repo.folder / ".gitattributes").write_text("* filter=planted diff=planted\n")
    (repo.folder / ".git" / "info").mkdir(exist_ok=True)
    (repo.folder / ".git" / "info" / "attributes").write_text("* filter=planted\n")
    for each in ("filter.planted.clean", "filter.planted.smudge", "filter.planted.process"):
        repo.git("config", each, str(program))
    repo.git("config", "diff.planted.textconv", str(program))


def aliases(repo, program: Path) -> None:
    for each in ("status", "rev-parse", "read-tree", "update-ref", "init"):
        repo.git("config", f"alias.{each}", f"!{program}")


def included(repo, program: Path) -> None:
    (repo.folder / "more.config").write_text(f"[core]\n\tfsmonitor = {program}\n")
    repo.git("config", "include.path", "../more.config")


def submodule(repo, program: Path) -> None:
    """A repository in the repository, whose configuration counts for what git runs in it."""
    inner = repo.folder / "inner"
    inner.mkdir()
    repo.git("init", "--quiet", "inner")
    (inner / "file.txt").write_text("text")
    repo.git("-C", "inner", "add", ".")
    repo.git("-C", "inner", "commit", "--quiet", "--message=inner")
    repo.git("add", "inner")
    repo.git("commit", "--quiet", "--message=with a submodule")
    repo.git("-C", "inner", "config", "core.fsmonitor", str(program))
    repo.git("config", "status.submoduleSummary", "true")


def lazy_objects(repo, program: Path) -> None:
    """Objects that git would fetch when it needs them."""
    tree = repo.git("rev-parse", "HEAD^{tree}")
    repo.git("config", "core.sshCommand", str(program))
    repo.git("config", "remote.origin.url", "nobody@localhost:repo")
    repo.git("config", "remote.origin.promisor", "true")
    repo.git("config", "extensions.partialClone", "origin")
    repo.git("config", "core.repositoryFormatVersion", "1")
    (repo.folder / ".git" / "objects" / tree[:2] / tree[2:]).unlink()


@pytest.mark.parametrize(
    "plant",
    [
        monitor,
        hooks,
        filters,
        aliases,
        included,
        submodule,
        lazy_objects,
        configured("core.sshCommand", "core.pager", "core.editor", "diff.external"),
        configured("core.gitProxy", "core.askPass", "credential.helper", "gpg.program"),
    ],
)
def test_a_folder_is_shown_and_installed_without_running_what_its_git_names(
    machine: Machine, repo, program: Path, plant
):
    plant(repo, program)
    trace = program.with_name("trace")
    trace.unlink(missing_ok=True)  # planting runs git as well
    for path in repo.folder.glob("*.py"):
        path.touch()  # what git has to look at again
    assert "--yes" in machine.run("install", str(repo.folder)).failed()
    assert not trace.exists()
    machine.run("install", str(repo.folder), "--yes").done()
    assert not trace.exists()
    assert (machine.home / "plugins" / "gitty" / "__init__.py").is_file()


def test_a_checkout_that_is_a_worktree_or_packed_has_its_commit(machine: Machine, repo, tmp_path):
    repo.git("worktree", "add", "--quiet", "-b", "other", str(tmp_path / "tree"))
    repo.git("pack-refs", "--all")
    for folder in (repo.folder, tmp_path / "tree"):
        machine.run("install", str(folder), "--yes", "--replace").done()
        assert machine.json("info", "gitty")["provider"]["commit"] == repo.first


def test_a_pip_in_the_working_folder_is_not_run(venv, tmp_path):
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "pip.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')\n")
    venv.run("install", "memory-acme", cwd=hostile).failed()
    assert not (tmp_path / "trace").exists()
