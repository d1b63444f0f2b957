"""The real server, for all tests here: one without a model, one with, one with a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Machine
from support.fake_model import FakeModel
from support.hindsight_answers import HINDSIGHT
from support.hindsight_engine import Database, Engine, running_database, running_engine

KEY = "the-key-of-the-tests"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process for all that use the server, since each would start servers of its own."""
    for item in items:
        ours = Path(__file__).parent in item.path.parents
        if ours and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("hindsight"))


@pytest.fixture(scope="session")
def model() -> Iterator[FakeModel]:
    with FakeModel(answerers=HINDSIGHT) as made:
        yield made


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
    with running_database() as made:
        yield made


@pytest.fixture(scope="session")
def engine(
    tmp_path_factory: pytest.TempPathFactory, database: Database, model: FakeModel
) -> Iterator[Engine]:
    """It keeps what it is told word for word."""
    with running_engine(tmp_path_factory.mktemp("engine"), database, model.url) as made:
        yield made


@pytest.fixture(scope="session")
def thinking_engine(
    tmp_path_factory: pytest.TempPathFactory, database: Database, model: FakeModel
) -> Iterator[Engine]:
    """It extracts facts and reflects."""
    settings = {
        "LLM_PROVIDER": "openai", "LLM_BASE_URL": model.url, "LLM_MODEL": "stand-in",
        "LLM_API_KEY": "none", "LLM_MAX_RETRIES": "1",
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("thinking")
    with running_engine(folder, database, model.url, **settings) as made:
        yield made


@pytest.fixture(scope="session")
def locked_engine(
    tmp_path_factory: pytest.TempPathFactory, database: Database, model: FakeModel
) -> Iterator[Engine]:
    """It wants a key."""
    extension = "hindsight_api.extensions.builtin.tenant:ApiKeyTenantExtension"
    settings = {"TENANT_EXTENSION": extension, "TENANT_API_KEY": KEY}
    folder = tmp_path_factory.mktemp("locked")
    with running_engine(folder, database, model.url, **settings) as made:
        yield made


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """The installed command with an empty home and an empty site."""
    return Machine(tmp_path / "machine")
