"""`install` of directory plugins: a git repository or a folder, below the home, as a whole."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.commands import Machine, posix_only, snapshot, wait_until

from hermes_core.install import (
    Folder,
    InstallError,
    Repository,
    plugins_folder,
    put,
    stage,
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine", in_process=True)


def folders(home: Path) -> set[str]:
    """What lies in ``plugins``, without the lock."""
    return {each.name for each in (home / "plugins").iterdir()} - {".lock"}


def test_a_repository_is_installed_at_a_commit_which_list_info_and_status_show(
    machine: Machine, repo
):
    shown = machine.run("install", repo.url)
    assert "--yes" in shown.failed()
    assert f"  gitty 0.3, commit {repo.first}" in shown.lines
    assert folders(machine.home) == set()

    machine.run("install", repo.url, "--yes").done()
    assert folders(machine.home) == {"gitty"}
    assert not (machine.home / "plugins" / "gitty" / ".git").exists()
    assert machine.run("list").done().rows["gitty"][2] == f"0.3 {repo.first[:7]}"
    info = machine.run("info", "gitty").done().lines
    assert {f"commit: {repo.first}", f"installed from: {repo.url}"} <= {*info}
    machine.run("enable", "gitty").done()
    assert f"commit:    {repo.first}" in machine.run("status").done().lines
    assert machine.json("status")["provider"]["commit"] == repo.first


def test_what_is_there_already_is_replaced_only_by_a_word_of_its_own(machine: Machine, repo):
    machine.run("install", repo.url, "--yes").done()
    repo.write("more.py", "")
    second = repo.commit()
    with machine.unchanged():
        line = machine.run("install", repo.url, "--yes").failed()
    assert f"is already installed, at commit {repo.first}" in line
    assert "--replace" in line
    machine.run("install", repo.url, "--yes", "--replace").done()
    assert machine.json("info", "gitty")["provider"]["commit"] == second
    machine.run("install", f"git+{repo.url}@{repo.first}", "--yes", "--replace").done()
    assert machine.json("info", "gitty")["provider"]["commit"] == repo.first
    assert folders(machine.home) == {"gitty"}


def test_what_a_person_put_there_or_edited_is_told_as_such(machine: Machine, repo):
    machine.add_directory("gitty")
    assert "was not installed by hermes-plugins" in machine.run("install", repo.url, "-y").failed()
    machine.run("install", repo.url, "--yes", "--replace").done()
    (machine.home / "plugins" / "gitty" / "__init__.py").write_text("MemoryProvider\n")
    assert "has been edited since" in machine.run("install", repo.url, "--yes").failed()


def test_a_folder_is_copied_with_its_commit_and_whether_it_was_edited(home: Path, repo):
    with plugins_folder(home) as plugins:
        assert stage(Folder(repo.folder), plugins).record.commit == repo.first
        repo.write("plugin.yaml", "name: renamed\n")
        staged = stage(Folder(repo.folder), plugins)
        assert (staged.name, staged.record.commit) == ("renamed", f"{repo.first}+changes")
        put(staged.folder, plugins / staged.name, staged.record)
    assert folders(home) == {"renamed"}
    assert not (home / "plugins" / "renamed" / ".git").exists()


def test_a_plugin_in_a_subdirectory_is_taken_alone(home: Path, repo):
    repo.write("deep/inner/__init__.py", "from hermes_core import MemoryProvider\n")
    repo.write("deep/inner/plugin.yaml", "version: 1\n")
    commit = repo.commit()
    with plugins_folder(home) as plugins:
        staged = stage(Repository(repo.url, "", "deep/inner"), plugins)
        assert (staged.name, staged.record.commit) == ("inner", commit)
        put(staged.folder, plugins / staged.name, staged.record)
    assert folders(home) == {"inner"}
    assert not (home / "plugins" / "inner" / "deep").exists()


@pytest.mark.parametrize(
    ("manifest", "cause"),
    [
        ("name: ../outside", "can't be the name of a folder"),
        ("name: .hidden", "can't be the name of a folder"),
        ("name: builtin", "reserved"),
        ("name: provider", "reserved"),
        ("name: a/b", "can't be the name of a folder"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(home: Path, repo, manifest, cause):
    repo.write("plugin.yaml", manifest)
    with pytest.raises(InstallError, match=cause), plugins_folder(home) as plugins:
        stage(Folder(repo.folder), plugins)
    assert folders(home) == set()


@posix_only
def test_a_link_that_leads_out_is_refused(home: Path, repo):
    (repo.folder / "inside.py").symlink_to("__init__.py")
    (repo.folder / "outside").symlink_to("/etc")
    repo.commit()
    for source in (Folder(repo.folder), Repository(repo.url)):
        with pytest.raises(InstallError, match="outside is a link"), plugins_folder(home) as folder:
            stage(source, folder)
    assert folders(home) == set()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("git+{repo}@nowhere", "has no revision nowhere"),
        ("{repo}-that-is-not-there", "no git repository found"),
        ("http://me:pa55word@127.0.0.1:9/owner/plugin", "http://127.0.0.1:9/owner/plugin: "),
    ],
)
def test_a_repository_that_can_not_be_had_leaves_nothing_behind(machine, repo, url, said):
    result = machine.run("install", url.format(repo=repo.url), "--yes")
    assert said in result.failed()
    assert "pa55word" not in result.out + result.err
    assert folders(machine.home) == set()


def test_a_repository_without_a_plugin_says_what_it_is(machine: Machine, repo):
    (repo.folder / "plugin.yaml").unlink()
    repo.write("pyproject.toml", "")
    repo.commit()
    line = machine.run("install", repo.url, "--yes").failed()
    assert "it is a package" in line
    assert f'install "NAME @ git+{repo.url}"' in line
    repo.write("plugin.yaml", "name: gitty")
    repo.write("__init__.py", "")
    assert "registers no memory provider" in machine.run("install", str(repo.folder)).failed()
    assert folders(machine.home) == set()


def test_no_hook_and_no_code_of_a_repository_is_run(machine: Machine, repo, tmp_path):
    trace = tmp_path / "ran"
    repo.write("__init__.py", f"open({str(trace)!r}, 'w')\nregister_memory_provider = 1\n")
    hook = repo.folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {trace}\n")
    hook.chmod(0o755)
    repo.commit()
    trace.unlink(missing_ok=True)
    machine.run("install", repo.url, "--yes").done()
    assert not trace.exists()


def test_what_a_killed_install_left_is_cleared_and_what_it_replaced_comes_back(home: Path, repo):
    with plugins_folder(home) as plugins:
        staged = stage(Folder(repo.folder), plugins)
        put(staged.folder, plugins / "gitty", staged.record)
    whole = snapshot(home / "plugins" / "gitty")
    # Killed between the two renames.
    (home / "plugins" / "gitty").rename(home / "plugins" / ".replaced-gitty")
    (home / "plugins" / ".installing-0123").mkdir()
    (home / "plugins" / ".installing-0123" / "half.py").touch()
    with plugins_folder(home):
        assert snapshot(home / "plugins" / "gitty") == whole
    assert folders(home) == {"gitty"}


@posix_only
def test_a_clone_that_is_killed_is_no_plugin_and_the_next_install_clears_it(
    machine: Machine, repo, tmp_path
):
    # A git that never ends, once it has begun.
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/git.pid\nexec sleep 60\n")
    program.chmod(0o755)
    slow = {**machine.environment, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    usual, machine.environment = machine.environment, slow
    process = machine.start("install", repo.url, "--yes")
    assert wait_until((tmp_path / "git.pid").exists)
    process.kill()
    process.communicate(timeout=30)
    os.kill(int((tmp_path / "git.pid").read_text()), signal.SIGKILL)
    machine.environment = usual
    assert set(machine.providers()) == {"builtin"}
    machine.run("install", repo.url, "--yes").done()
    assert folders(machine.home) == {"gitty"}
