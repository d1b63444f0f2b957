"""What a person wrote behind `install`."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_core.install import Folder, InstallError, Package, Repository, read_source


@pytest.mark.parametrize("spec", ["name", "name==1.2", "name[extra]>=1,<2", " name ", "a.b-c_d"])
def test_a_requirement_is_for_pip_and_needs_no_build_as_far_as_we_know(spec):
    assert read_source(spec) == Package(spec.strip())


@pytest.mark.parametrize(
    ("spec", "builds"),
    [
        ("https://host/x-1-py3-none-any.whl", False),
        ("name @ https://host/x-1-py3-none-any.whl", False),
        ("name@https://host/x-1.tar.gz", True),
        ("https://host/x-1.tar.gz", True),
        ("name @ git+https://host/repository", True),
    ],
)
def test_what_is_named_by_its_address_is_built_unless_it_is_a_wheel(spec, builds):
    assert read_source(spec) == Package(spec, direct=True, builds=builds)


@pytest.mark.parametrize(
    ("spec", "repository"),
    [
        ("https://host/owner/plugin", Repository("https://host/owner/plugin")),
        ("https://host/owner/plugin.git", Repository("https://host/owner/plugin.git")),
        ("git+https://host/plugin@v1", Repository("https://host/plugin", "v1")),
        ("ssh://git@host/plugin", Repository("ssh://git@host/plugin")),
        ("git@host:owner/plugin.git", Repository("git@host:owner/plugin.git")),
        ("git+file:///a/b@main#subdirectory=x/y", Repository("file:///a/b", "main", "x/y")),
        ("git+https://u:p@host/a.zip", Repository("https://u:p@host/a.zip")),
    ],
)
def test_any_other_address_is_a_git_repository(spec, repository):
    assert read_source(spec) == repository


@pytest.mark.parametrize(
    ("repository", "name"),
    [
        (Repository("https://host/owner/plugin.git/"), "plugin"),
        (Repository("git@host:plugin.git"), "plugin"),
        (Repository("https://host/many", subdirectory="some/one"), "one"),
    ],
)
def test_a_repository_is_called_what_its_address_ends_with(repository, name):
    assert repository.name == name


def test_a_folder_is_a_plugin_by_its_manifest_or_a_project(tmp_path: Path):
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "plugin.yaml").touch()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pyproject.toml").touch()
    assert read_source(str(tmp_path / "plugin")) == Folder(tmp_path / "plugin")
    project = str(tmp_path / "project")
    assert read_source(project) == Package(project, direct=True, builds=True)


def test_a_file_is_a_wheel_or_an_archive(tmp_path: Path):
    for name, builds in (("x-1-py3-none-any.whl", False), ("x-1.tar.gz", True)):
        (tmp_path / name).touch()
        path = str(tmp_path / name)
        assert read_source(path) == Package(path, direct=True, builds=builds)


@pytest.mark.parametrize(
    "spec",
    [
        "",
        " ",
        "-r requirements.txt",
        "--index-url=http://evil",
        "name\nother",
        "./not-there",
        "~/not-there",
        "git+https://host/plugin@-x",
        "git+https://host/plugin#subdirectory=../x",
        "git+https://host/plugin#subdirectory=/x",
        "git+https://host/plugin#egg=x",
        "git@host:plugin.git#subdirectory=a/../../x",
    ],
)
def test_what_names_nothing_is_told_in_one_line(spec):
    with pytest.raises(InstallError) as caught:
        read_source(spec)
    assert "\n" not in str(caught.value)


def test_a_folder_and_a_file_of_another_kind_are_refused_by_name(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    for path, cause in ((tmp_path, "neither a plugin.yaml"), (tmp_path / "notes.txt", "neither a")):
        with pytest.raises(InstallError, match=cause):
            read_source(str(path))


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://token@example.com/acme.git", "https://example.com/acme.git"),
        ("https://me:pass@word@example.com/acme.git", "https://example.com/acme.git"),
        ("git+https://me:token@example.com/acme.git", "https://example.com/acme.git"),
        ("ssh://git:token@example.com/acme.git", "ssh://git@example.com/acme.git"),
        ("ssh://git@example.com/acme.git", "ssh://git@example.com/acme.git"),
        ("git@example.com:acme.git", "git@example.com:acme.git"),
        (
            "acme @ git+https://token@example.com/acme.git@v1",
            "acme @ git+https://example.com/acme.git@v1",
        ),
        ("acme @ git+ssh://git:token@example.com/a.git", "acme @ git+ssh://git@example.com/a.git"),
        ("https://me:token@example.com/acme-1.0.tar.gz", "https://example.com/acme-1.0.tar.gz"),
    ],
)
def test_credentials_in_a_url_are_not_shown(given, shown):
    source = read_source(given)
    assert source.shown == shown


def test_credentials_in_a_url_are_not_in_an_error():
    with pytest.raises(InstallError) as error:
        read_source("git+https://me:token@example.com/acme.git#egg=acme")
    assert "token" not in str(error.value)


def test_a_wheel_that_is_not_there_is_not_left_to_pip(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InstallError, match="no such file or folder"):
        read_source("missing-1-py3-none-any.whl")
