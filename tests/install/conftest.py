"""What the tests of installing share: a venv, packages for it, and a repository."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.sites import provider_source
from support.terminals import Dialogue
from support.wheels import Venv


@pytest.fixture(autouse=True)
def _few_distributions(request: pytest.FixtureRequest) -> None:
    """The commands find few distributions, unless a venv is made of those."""
    if not {"venv", "shop"} & {*request.fixturenames}:
        request.getfixturevalue("few_distributions")


@pytest.fixture(autouse=True)
def _forked_children(forked_children: None) -> None:
    """Plugin code runs in a fork."""


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    """A venv into which nothing has been installed, and an index that is a folder."""
    return Venv(tmp_path / "machine", forked=True)


@pytest.fixture
def dialogue(venv: Venv) -> Iterator[Callable[..., Dialogue]]:
    """Commands on a terminal; none outlives the test."""
    opened: list[Dialogue] = []

    def start(*arguments: str) -> Dialogue:
        opened.append(Dialogue(venv, *arguments))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


class Repo:
    """A git repository with a directory plugin in it."""

    def __init__(self, folder: Path, name: str = "gitty") -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet")
        self.write("__init__.py", provider_source(name))
        self.write("plugin.yaml", f"name: {name}\nversion: '0.3'\ndescription: From afar\n")
        self.first = self.commit()

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
        done = subprocess.run(
            ["git", "-C", self.folder, *who, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=more")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")
