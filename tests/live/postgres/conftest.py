"""Servers to break, and homes that store what they remember there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Machine
from support.postgres_faults import FleetHome, OwnServer
from support.tcp_proxy import Proxy

from hermes_core.storage.postgres import database as postgres


@pytest.fixture(scope="module")
def folder() -> Path:
    """Where servers of this module have their folders: the test's own is closed to others."""
    made = Path(tempfile.mkdtemp(prefix="hermes-pg-faults-"))
    made.chmod(0o755)
    return made


@pytest.fixture(scope="module")
def own_server(folder: Path) -> Iterator[OwnServer]:
    made = OwnServer(folder / "own")
    try:
        made.create()
        yield made
    finally:
        made.remove()


@pytest.fixture
def server(own_server: OwnServer) -> Iterator[OwnServer]:
    """A server that runs when a test begins; the test may do what it likes to it."""
    own_server.ensure_runs()
    yield own_server
    own_server.ensure_runs()


@pytest.fixture
def proxy(server: OwnServer) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _own_connections() -> Iterator[None]:
    """No connection of one test is used by the next."""
    yield
    for database in postgres._DATABASES._all.values():
        database.close()
    postgres._DATABASES._all.clear()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


@pytest.fixture
def fleet_home(machine: Machine, server: OwnServer) -> FleetHome:
    """A home whose storage is the server."""
    return FleetHome(machine, server.url)
