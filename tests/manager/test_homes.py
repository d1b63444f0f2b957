"""Which folder providers are told to keep their files in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.providers import Recorder, running
from support.trees import tree

from hermes_core import HomeError, MemoryManager


@pytest.fixture
def broken_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HERMES_HOME is a file, and we are in another folder."""
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "file"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def _told(provider: Recorder) -> str:
    return provider.of("initialize")[0].kwargs["hermes_home"]


def test_a_home_that_is_a_file_is_a_problem_that_names_it(broken_home: Path) -> None:
    manager = MemoryManager.from_config()
    assert isinstance(manager.problems[0], HomeError)
    assert str(broken_home / "file") in str(manager.problems[0])
    assert [each.name for each in manager.providers] == ["builtin"]
    manager.shutdown_all()


def test_a_home_that_is_a_file_does_not_make_the_current_folder_one(broken_home: Path) -> None:
    before = tree(broken_home)
    external = Recorder()
    manager = MemoryManager.from_config()
    manager.add_provider(external)
    manager.initialize_all("s1")
    manager.build_system_prompt()
    note = {"target": "memory", "action": "add", "content": "likes tea"}
    manager.handle_tool_call("memory", note)
    manager.shutdown_all()
    assert _told(external) != str(broken_home / "here")
    assert tree(broken_home) == before


@pytest.mark.parametrize("given", ["", "~/.hermes"], ids=["default", "tilde"])
def test_a_home_of_the_user_that_is_a_file_makes_no_folder_here(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / ".hermes").write_text("not a folder")
    (tmp_path / "hermes").write_text("not a folder")
    for variable in ("HOME", "USERPROFILE", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("HERMES_HOME", given)
    monkeypatch.chdir(tmp_path / "here")
    manager = MemoryManager.from_config()
    manager.initialize_all("s1")
    note = {"target": "memory", "action": "add", "content": "likes tea"}
    manager.handle_tool_call("memory", note)
    manager.shutdown_all()
    assert isinstance(manager.problems[0], HomeError)
    assert list((tmp_path / "here").iterdir()) == []


def test_a_home_may_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    external = Recorder()
    with running(external, home="~/agent"):
        pass
    assert _told(external) == str(tmp_path / "agent")


@pytest.mark.parametrize("kind", [str, Path])
def test_a_relative_home_is_made_absolute(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    external = Recorder()
    with running(external, home=kind("agent")):
        pass
    assert _told(external) == str(tmp_path / "agent")
    assert not (tmp_path / "agent").exists()
