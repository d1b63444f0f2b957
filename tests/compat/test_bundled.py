"""The providers that hermes-agent brings work here as directory plugins, without hermes-agent."""

from __future__ import annotations

import ast
import gc
import importlib
import json
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from support.commands import wait_until
from support.hermes_agent import PEERS, missing
from support.hindsight_server import HindsightServer
from support.honcho_server import HonchoServer
from support.mem0_servers import Mem0Server
from support.recording_server import recording

from hermes_core import MemoryManager, load_provider
from hermes_core.loading.compat import OFFERED, offer_hermes_agent_modules
from hermes_core.loading.compat._finder import OfferFinder

# Some of them leave connections open when they are shut down.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SAID, ANSWERED = "My favourite tea is gyokuro.", "I will remember that."
PROVIDERS = (
    "byterover",
    "hindsight",
    "holographic",
    "honcho",
    "mem0",
    "openviking",
    "retaindb",
    "supermemory",
)
#: Modules of hermes-agent that are not offered: each import has a fallback of its own.
LEFT_OUT = {
    "gateway.config": "the chat platforms of the gateway, in the set-up of honcho",
    "hermes_cli.auth": "whether a browser can be opened, in the set-up of honcho",
}
THEIRS = {name.partition(".")[0] for name in (*OFFERED, *LEFT_OUT)}


class Place(NamedTuple):
    """Where a provider finds its service, and what has arrived there."""

    variables: dict[str, str]
    arrived: Callable[[], bool]
    files: Mapping[str, Any] = MappingProxyType({})


def bundled(release: str, name: str) -> Path:
    """The folder of a provider in a release of hermes-agent."""
    if reason := missing(release):
        pytest.skip(reason)
    environment = PEERS[release].parents[1]
    below = ("lib/python*/site-packages", "Lib/site-packages")
    found = [each for place in below for each in environment.glob(f"{place}/plugins/memory/{name}")]
    assert found, f"{environment} has no provider {name}"
    return found[0]


@contextmanager
def honcho() -> Iterator[Place]:
    server = HonchoServer().start()
    try:
        yield Place(
            {"HONCHO_API_KEY": "made-up", "HONCHO_BASE_URL": server.url},
            lambda: any(path.endswith("/messages") for _, path in server.requests),
        )
    finally:
        server.stop()


@contextmanager
def hindsight() -> Iterator[Place]:
    with HindsightServer() as server:
        yield Place(
            {"HINDSIGHT_API_KEY": "made-up", "HINDSIGHT_API_URL": server.url},
            lambda: any(SAID in json.dumps(each.body) for each in server.requests),
        )


@contextmanager
def mem0() -> Iterator[Place]:
    with Mem0Server(key="made-up") as server:
        yield Place(
            {"MEM0_API_KEY": "made-up"},
            lambda: any(SAID in json.dumps(each.body) for each in server.asked),
            {"mem0.json": {"host": server.url}},
        )


@contextmanager
def recorded(
    address: str, variables: dict[str, str] | None = None, **answers: Any
) -> Iterator[Place]:
    with recording({f"/{path}": answer for path, answer in answers.items()}) as server:
        yield Place(
            {address: server.url, **(variables or {})},
            lambda: any(SAID in each for each in server.told),
        )


HEALTH = {"status": "ok", "healthy": True, "version": "0.3.0"}
SERVICES: dict[str, Callable[[], Any]] = {
    "hindsight": hindsight,
    "honcho": honcho,
    "mem0": mem0,
    "openviking": partial(recorded, "OPENVIKING_ENDPOINT", health=HEALTH),
    "retaindb": partial(recorded, "RETAINDB_BASE_URL", {"RETAINDB_API_KEY": "made-up"}),
}
if find_spec("supermemory") is not None:  # its SDK is no requirement of ours
    SERVICES["supermemory"] = partial(
        recorded, "SUPERMEMORY_BASE_URL", {"SUPERMEMORY_API_KEY": "made-up"}
    )


@pytest.fixture(autouse=True)
def _nothing_leaves(monkeypatch) -> Iterator[None]:
    """No provider looks for a machine other than this one."""
    look_up, others = socket.getaddrinfo, []

    def only_here(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host in {"127.0.0.1", "localhost", b"127.0.0.1", b"localhost"}:
            return look_up(host, *args, **kwargs)
        others.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "not in a test")

    monkeypatch.setattr(socket, "getaddrinfo", only_here)
    yield
    assert others == []


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """What they leave open is found here, and by no other test."""
    yield
    gc.collect()


@pytest.fixture
def refused(monkeypatch) -> list[str]:
    """The modules of hermes-agent that somebody looked for in vain."""
    names: list[str] = []
    found = OfferFinder.find_spec

    def find(self: OfferFinder, fullname: str, *args: Any) -> Any:
        spec = found(self, fullname, *args)
        if spec is None and fullname.partition(".")[0] in THEIRS:
            names.append(fullname)
        return spec

    monkeypatch.setattr(OfferFinder, "find_spec", find)
    return names


def configured(home: Path, release: str, name: str) -> None:
    shutil.copytree(
        bundled(release, name),
        home / "plugins" / name,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    # Three of them have the name of a plugin of ours.
    (home / "config.yaml").write_text(f"memory:\n  provider: {name}@directory\n", "utf-8")


def manager_of(home: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> MemoryManager:
    for variable, value in place.variables.items():
        monkeypatch.setenv(variable, value)
    for file, content in place.files.items():
        (home / file).write_text(json.dumps(content), "utf-8")
    return MemoryManager.from_config(home)


def take_a_turn(manager: MemoryManager, name: str) -> None:
    """A session with one turn, as an agent has it."""
    manager.initialize_all("session-1", platform="cli")
    assert manager.get_provider(name) is not None
    manager.build_system_prompt()
    manager.on_turn_start(1, SAID)
    manager.prefetch_all(SAID)
    manager.sync_all(SAID, ANSWERED, session_id="session-1")
    manager.queue_prefetch_all(SAID)
    talk = [{"role": "user", "content": SAID}, {"role": "assistant", "content": ANSWERED}]
    manager.on_session_end(talk)
    assert manager.flush_pending(30)


both = pytest.mark.parametrize("release", [*PEERS])
NEWEST = [*PEERS][-1]


@pytest.mark.parametrize(
    "release",
    [each if each == NEWEST else pytest.param(each, marks=pytest.mark.stress) for each in PEERS],
)
@pytest.mark.parametrize("name", [*SERVICES])
def test_a_turn_arrives_at_the_service(release, name, home, monkeypatch, refused):
    configured(home, release, name)
    with SERVICES[name]() as place:
        manager = manager_of(home, place, monkeypatch)
        try:
            assert manager.problems == ()
            take_a_turn(manager, name)
            assert wait_until(place.arrived, 300)
        finally:
            manager.shutdown_all()
    # On a busy machine, a thread of the test before may still import its own plugin.
    others = tuple(f"plugins.memory.{each}" for each in SERVICES if each != name)
    assert [each for each in refused if not each.startswith(others)] == []
    assert [each for each in manager.warnings if "in plain text" not in each] == []


@both
def test_holographic_remembers_in_its_own_database(release, home, monkeypatch, refused):
    configured(home, release, "holographic")
    (home / "config.yaml").write_text(
        "memory:\n  provider: holographic\nplugins:\n  hermes-memory-store: {auto_extract: true}\n",
        "utf-8",
    )
    manager = manager_of(home, Place({}, bool), monkeypatch)
    take_a_turn(manager, "holographic")
    call = partial(manager.handle_tool_call, "fact_store")
    added = json.loads(call({"action": "add", "content": "gyokuro is brewed cool"}))
    assert "error" not in added
    assert "gyokuro" in call({"action": "search", "query": "gyokuro"})
    manager.shutdown_all()
    assert refused == []
    assert manager.warnings == ()


@pytest.mark.skipif(find_spec("supermemory") is not None, reason="its SDK is installed")
@both
def test_supermemory_without_its_sdk_says_what_to_install(release, home, monkeypatch, refused):
    configured(home, release, "supermemory")
    place = Place({"SUPERMEMORY_API_KEY": "made-up"}, bool)
    manager = manager_of(home, place, monkeypatch)
    (problem,) = manager.problems
    assert "the package supermemory is not installed (run: pip install supermemory)" in str(problem)
    assert refused == []
    manager.shutdown_all()


@both
def test_byterover_without_its_program_is_unavailable_with_a_reason(
    release, home, monkeypatch, refused
):
    monkeypatch.setenv("PATH", str(home))
    configured(home, release, "byterover")
    manager = manager_of(home, Place({}, bool), monkeypatch)
    (problem,) = manager.problems
    assert "the program brv is not on the PATH" in str(problem)
    assert "byterover.dev/install.sh" in str(problem)
    assert refused == []
    manager.shutdown_all()


@both
def test_its_own_set_up_keeps_every_other_line_of_the_config(release, home, monkeypatch, refused):
    configured(home, release, "supermemory")
    before = "# mine\nmemory:\n  provider: ''\nsecrets: {backend: dotenv}  # no keyring\n"
    (home / "config.yaml").write_text(before, "utf-8")
    monkeypatch.setenv("SUPERMEMORY_API_KEY", "")  # it sets it, too
    monkeypatch.setenv("SUPERMEMORY_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("getpass.getpass", lambda _: "sm-made-up")
    provider: Any = load_provider("supermemory", home)
    offered = importlib.import_module("hermes_cli.config")
    provider.post_setup(str(home), offered.load_config())
    after = before.replace("provider: ''", "provider: supermemory")
    assert (home / "config.yaml").read_text("utf-8") == after
    assert (home / ".env").read_text("utf-8") == "SUPERMEMORY_API_KEY=sm-made-up\n"
    assert refused == []


def imports_in(source: str) -> Iterator[tuple[str, str]]:
    """What a source imports of hermes-agent: module and name, wherever it does so."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.module or "", alias.name) for alias in node.names)


def is_offered(module: str, name: str, provider: str) -> bool:
    if module in LEFT_OUT or module.startswith(f"plugins.memory.{provider}"):
        return True
    try:
        return not name or hasattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        return False


@both
@pytest.mark.parametrize("provider", PROVIDERS)
def test_all_that_it_imports_is_offered_or_left_out_on_purpose(release, provider):
    offer_hermes_agent_modules()
    lacking = {
        (file.name, module, name)
        for file in bundled(release, provider).glob("**/*.py")
        for module, name in imports_in(file.read_text("utf-8"))
        if module.partition(".")[0] in THEIRS and not is_offered(module, name, provider)
    }
    assert lacking == set()
