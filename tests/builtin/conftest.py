"""Sessions on a home, ended with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import Machine
from support.notes import Agent
from support.storages import Storage

from hermes_core.storage.postgres import shared_database

#: These run over both storages.
BOTH = frozenset(
    f"test_sessions_{each}"
    for each in (
        "archive", "as_models_know_it", "broken_imports", "commands", "concurrency", "crowded",
        "identity", "import", "languages", "nothing_found", "queries", "scope", "tool",
        "tool_bounds", "unspaced",
    )
)  # fmt: skip
#: Of these, `make test` runs both; of the others, `make stress` does.
FAST = frozenset(("test_sessions_archive", "test_sessions_scope", "test_sessions_unspaced"))

StartAgent = Callable[..., Agent]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of a home with conversations once for each storage."""
    name = Path(metafunc.module.__file__ or "").stem
    only_files = any(each.name == "files_only" for each in metafunc.definition.iter_markers())
    if name in BOTH and "storage" in metafunc.fixturenames and not only_files:
        marks = () if name in FAST else (pytest.mark.stress,)
        postgres = pytest.param("postgres", marks=marks)
        metafunc.parametrize("storage", ["files", postgres], indirect=True)


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a new database for ``memory.storage``, or "files"."""
    if getattr(request, "param", "files") == "files":
        yield "files"
        return
    url = request.getfixturevalue("database_url")
    yield url
    shared_database(url, "default").close()


@pytest.fixture
def home(home: Path, storage: str) -> Path:
    """An empty home, whose conversations are in files or in a database."""
    if storage != "files":
        (home / "config.yaml").write_text(f"memory:\n  storage: {storage}\n")
    return home


@pytest.fixture(autouse=True)
def _few_distributions(few_distributions: None) -> None:
    """Managers and commands find few distributions."""


@pytest.fixture(autouse=True)
def _forked_children(forked_children: None) -> None:
    """Plugin code of commands runs in a fork."""


@pytest.fixture
def agent(home: Path) -> Iterator[StartAgent]:
    """Starts a session on the home; settings of the notes are keywords."""
    started: list[Agent] = []

    def start(*arguments: Any, **options: Any) -> Agent:
        started.append(Agent(home, *arguments, **options))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def machine(tmp_path: Path, storage: str) -> Machine:
    """The installed command on a home of its own."""
    made = Machine(tmp_path / "machine", in_process=True)
    lines = Storage.current.config if storage == "files" else f"  storage: {storage}\n"
    if lines:
        made.home.mkdir(parents=True, exist_ok=True)
        (made.home / "config.yaml").write_text(f"memory:\n{lines}")
    return made
