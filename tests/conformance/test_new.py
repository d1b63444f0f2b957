"""`hermes-plugins new`: a project, or an error and nothing."""

from __future__ import annotations

import ast
import os
import tomllib
from pathlib import Path

import pytest
from support.commands import Machine

from hermes_core import HermesError
from hermes_core.conformance.scaffold import PROJECT, create_project

STRESS = bool(os.environ.get("HERMES_STRESS"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine", in_process=True)


def test_the_project_has_all_that_a_plugin_needs(machine, tmp_path):
    said = machine.run("new", "blue-parrot", cwd=tmp_path).done().out
    project = tmp_path / "blue-parrot"
    files = {str(each.relative_to(project)) for each in project.rglob("*") if each.is_file()}
    package = "src/hermes_memory_blue_parrot"
    assert files == {
        ".github/workflows/test.yml", ".gitignore", "LICENSE", "README.md", "pyproject.toml",
        f"{package}/__init__.py", f"{package}/provider.py", f"{package}/py.typed",
        f"{package}/store.py", "tests/test_conformance.py", "tests/test_provider.py",
    }  # fmt: skip
    data = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert data["name"] == "hermes-memory-blue-parrot"
    assert data["entry-points"] == {
        "hermes_agent.memory_providers": {
            "blue-parrot": "hermes_memory_blue_parrot:BlueParrotProvider"
        }
    }
    assert "hermes-plugins check blue-parrot --level should" in said


def test_nothing_of_the_example_s_name_is_left(tmp_path):
    for file in create_project("blue-parrot", tmp_path / "new"):
        assert "acme" not in str(file).lower()
        assert "acme" not in file.read_text("utf-8").lower()
        if file.suffix == ".py":
            ast.parse(file.read_text("utf-8"))


@pytest.mark.scaled
@pytest.mark.parametrize("name", ["x", "blue_parrot", "class", "core"])
def test_unusual_names_give_a_project_whose_plugin_passes(machine, tmp_path, name):
    project = tmp_path / "new"
    machine.run("new", name, "--folder", str(project)).done()
    (package,) = (project / "src").iterdir()
    few = () if STRESS or name == "class" else ("-k", "HP10")
    result = machine.run("check", str(package), *few)
    assert " 0 failed, " in result.lines[-1], result.out


@pytest.mark.parametrize(
    "name",
    [
        "builtin", "Provider", "provider", "pins", "nudge_interval", "", " ", "Parrot", "1st",
        "a b", "a/b", "../up", "a--b", "-a", "a-", "päpagei", "x" * 41, "a@b", "a.b", "a\n",
        "session",  # session_search is the built-in's
    ],
)  # fmt: skip
def test_a_bad_or_reserved_name_is_told_and_nothing_is_written(machine, tmp_path, name):
    folder = tmp_path / "empty"
    folder.mkdir()
    said = machine.run("new", "--", name, cwd=folder).misused()
    assert "NAME" in said
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_what_is_there_already_is_left_alone(machine, tmp_path, kind):
    place = tmp_path / "parrot"
    if kind == "folder":
        place.mkdir()
        (place / "precious").write_text("mine")
    elif kind == "file":
        place.write_text("mine")
    else:
        place.symlink_to(tmp_path / "nowhere")
    assert "already exists" in machine.run("new", "parrot", cwd=tmp_path).failed()
    if kind == "folder":
        assert [each.name for each in place.iterdir()] == ["precious"]
    assert not (tmp_path / "nowhere").exists()


def test_a_place_that_can_not_be_written_is_an_error_and_nothing_stays(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(HermesError, match="can't be written"):
        create_project("parrot", blocked / "new")


def test_the_example_itself_is_a_project_that_can_be_read():
    assert (PROJECT / "pyproject.toml").is_file()
    assert not list(PROJECT.rglob("*.orig"))
