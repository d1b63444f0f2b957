"""Fixtures for all tests: a home and a site of their own, and no trace of either left."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support import postgres
from support.fielded import run_forked
from support.sites import Site
from support.storages import Storage, wait_longer

from hermes_core.checkup import child_process, survey
from hermes_core.dispatch import caller
from hermes_core.dispatch.observers import Observer

# In the background of a shell Ctrl-C is ignored, and so it is by all that we start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What we write is synced to the disk, thousands of times in these tests. In memory that costs
# nothing. A container may have too little of it.
_MEMORY = Path("/dev/shm")
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 * 1024**3:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# By default an example that takes 200 ms fails, and so does a test whose examples take long to
# make. On a busy machine any of them may.
settings.register_profile(
    "patient",
    deadline=None,
    max_examples=100 if os.environ.get("HERMES_STRESS") else 15,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")


#: These begin first in `make stress`, so that none of them runs alone at the end.
LONGEST = frozenset(
    f"test_{each}"
    for each in (
        "authority", "coding_agents", "faults", "kills", "many_processes", "sessions_concurrency",
        "sessions_damage", "sessions_faults", "state_machine", "storage", "switch",
        "sync_property",
    )
)  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow by nature, unless `make stress` asks for it."""
    if os.environ.get("HERMES_STRESS"):
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker("scaled")
        items.sort(key=lambda item: item.path.stem not in LONGEST)
        return
    slow = [item for item in items if item.get_closest_marker("stress")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if not item.get_closest_marker("stress")]


def pytest_collection_finish() -> None:
    """Leave thousands of collected tests out of every garbage collection."""
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of modules that use ``both_storages`` over files and PostgreSQL.

    Over PostgreSQL only in `make stress`, unless the module is marked as ``FAST``.
    """
    if "both_storages" in metafunc.fixturenames:
        marks = () if getattr(metafunc.module, "FAST", False) else pytest.mark.stress
        both = ["files", pytest.param("postgres", marks=marks)]
        only_files = metafunc.definition.get_closest_marker("files_only")
        metafunc.parametrize("both_storages", both[:1] if only_files else both, indirect=True)


@pytest.fixture
def both_storages(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Storage]:
    """Where the homes of this test store what they remember."""
    url = request.getfixturevalue("shared_url") if request.param == "postgres" else ""
    made = Storage(url)
    monkeypatch.setattr(Storage, "current", made)
    if url:
        wait_longer(monkeypatch)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _no_real_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("HERMES_HOME", raising=False)
    for variable in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(autouse=True)
def _no_other_homes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager that another test left open does not count."""
    monkeypatch.setattr(caller, "_HOMES", caller._Homes())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty HERMES_HOME."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HERMES_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def _packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is installed here, importable as ever, with the metadata of our own packages alone."""
    folder = tmp_path_factory.mktemp("packages")
    for each in Path(pytest.__file__).parents[1].iterdir():
        if each.suffix != ".dist-info" or each.name.startswith("hermes"):
            (folder / each.name).symlink_to(each)
    return folder


@pytest.fixture
def few_distributions(_packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but our own packages is installed: a scan of all others takes most of a test."""
    monkeypatch.syspath_prepend(str(_packages))  # which also restores the path at the end
    installed = str(Path(pytest.__file__).parents[1])
    sys.path[:] = [each for each in sys.path[1:] if each != installed] + [str(_packages)]


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugin code of commands in this process runs in a fork: tests/checkup has the real child."""
    if os.name == "posix":
        for module in (child_process, survey):
            monkeypatch.setattr(module, "run_child", run_forked)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site on the import path; what was imported from it is forgotten afterwards."""
    before = set(sys.modules)
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(made.folder))
    yield made
    for name in set(sys.modules) - before:
        origin = getattr(sys.modules[name], "__file__", None) or ""
        if origin.startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _patient_observers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Observers get more time than 50 ms, where that is not what a test is about."""
    about_time = ("slow", "hang", "longer")
    if not any(word in f"{request.path.name} {request.node.name}" for word in about_time):
        monkeypatch.setattr(Observer, "SECONDS", 2.0)


@pytest.fixture(scope="session")
def postgres_server() -> postgres.Server:
    """A real PostgreSQL, or a skip that says why there is none."""
    return postgres.start()


@pytest.fixture(scope="session")
def shared_url(postgres_server: postgres.Server) -> Iterator[str]:
    """The address of a database for many tests, each with its own namespace."""
    with postgres_server.database() as name:
        yield postgres_server.url(name)


@pytest.fixture
def database_url(postgres_server: postgres.Server) -> Iterator[str]:
    """The address of a new database with all our tables in it."""
    with postgres_server.database() as name:
        yield postgres_server.url(name)
