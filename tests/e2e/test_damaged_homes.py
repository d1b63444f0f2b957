"""Every file of a home, damaged in every way: named in one line, and nothing else is lost."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands import Machine, Result, posix_only
from support.notes import start_python
from support.other_user import bound_by_modes

STRESS = bool(os.environ.get("HERMES_STRESS"))

pytestmark = [
    pytest.mark.scaled,
    posix_only,
    pytest.mark.usefixtures("forked_children"),
]

SOURCE = """
from hermes_core import MemoryProvider

class Provider(MemoryProvider):
    name = "nut"
    def is_available(self):
        return True
    def initialize(self, session_id, **kwargs):
        pass
    def get_tool_schemas(self):
        return []
    def get_config_schema(self):
        return [{"key": "api_key", "secret": True, "env_var": "NUT_API_KEY", "description": "It"}]
    def sync_turn(self, user_content, assistant_content, *, session_id=""):
        raise ConnectionError("down")

def register(ctx):
    ctx.register_memory_provider(Provider())
"""

AGENT = """
import sys
from hermes_core import MemoryManager
manager = MemoryManager.from_config(sys.argv[1])
manager.initialize_all("s1")
for number in range(30):
    manager.sync_all(f"zanzibar{number} okapi", "It is in the barn.")
for target in ("memory", "user"):
    arguments = {"action": "add", "target": target, "content": f"Likes boats ({target})."}
    manager.handle_tool_call("memory", arguments)
manager.shutdown_all()
"""

#: The commands that need a file, and what is left of the others if it is damaged.
FILES: dict[str, list[tuple[str, ...]]] = {
    "state.db": [("sessions", "list"), ("sessions", "search", "okapi"), ("sessions", "check")],
    "outbox.db": [("outbox", "status"), ("outbox", "list")],
    "memories/history.db": [("memory", "history")],
    "logs/memory-calls.db": [("log",)],
    "memories/MEMORY.md": [("memory", "show")],
    "memories/USER.md": [("memory", "show")],
    "config.yaml": [("list",)],
    "plugins.lock.json": [("list",)],
    ".env": [("secrets", "list")],
    "secrets.json": [("secrets", "list")],
}
SWAPPED = {
    "state.db": "outbox.db",
    "outbox.db": "state.db",
    "memories/history.db": "outbox.db",
    "logs/memory-calls.db": "state.db",
    "memories/MEMORY.md": "memories/history.db",
    "memories/USER.md": "state.db",
    "plugins.lock.json": "config.yaml",
    "secrets.json": ".env",
}


def random_bytes(path: Path) -> None:
    path.write_bytes(random.Random(5).randbytes(5000))


def nothing(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 3])


def no_mode(path: Path) -> None:
    path.chmod(0)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def swapped(path: Path) -> None:
    name = next(each for each in SWAPPED if path.as_posix().endswith(f"/{each}"))
    home = Path(str(path)[: -len(name)])
    shutil.copyfile(home / SWAPPED[name], path)


def foreign_wal(path: Path) -> None:
    path.with_name(f"{path.name}-wal").write_bytes(random.Random(6).randbytes(20_000))


def missing(path: Path) -> None:
    path.unlink()


DAMAGES: list[Callable[[Path], None]] = [
    random_bytes, nothing, half, no_mode, a_folder, swapped, foreign_wal, missing,
]  # fmt: skip
#: What leaves a file that is valid, or none: people empty, shorten and remove texts.
HARMLESS = {
    *((name, missing) for name in FILES),
    *((name, foreign_wal) for name in FILES),
    *(
        (name, nothing)
        for name in ("memories/MEMORY.md", "memories/USER.md", "config.yaml", ".env")
    ),
    *((name, half) for name in ("memories/MEMORY.md", "memories/USER.md", "config.yaml", ".env")),
}
CASES = [
    pytest.param(name, damage, id=f"{name}-{damage.__name__}")
    for name in FILES
    for damage in DAMAGES
    if (damage is not swapped or name in SWAPPED)
    and (damage is not foreign_wal or name.endswith(".db"))
]
#: A few in `make test`: each file, and each damage.
SAMPLE = [CASES[at] for at in range(0, len(CASES), 5)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A home in which everything was used."""
    machine = Machine(tmp_path_factory.mktemp("whole") / "machine", in_process=True)
    machine.install("nut", SOURCE)
    machine.write_config("memory:\n  provider: nut\n  memory_char_limit: 3000\n")
    machine.run("secrets", "set", "NUT_API_KEY", input="a-secret-value\n").done()
    machine.run("enable", "nut").done()
    agent = start_python(AGENT, machine.home, env=machine.environment)
    _, errors = agent.communicate(timeout=60)
    assert agent.returncode == 0, errors
    return machine


@pytest.fixture
def damaged(whole: Machine, tmp_path: Path, few_distributions: None) -> Iterator[Machine]:
    """A copy of it to damage."""
    home = tmp_path / "home"
    shutil.copytree(whole.home, home)
    machine = object.__new__(Machine)
    machine.__dict__.update(whole.__dict__)
    machine.home = home
    machine.environment = {**whole.environment, "HERMES_HOME": str(home)}
    with bound_by_modes():
        yield machine


def calm(result: Result) -> str:
    """What a command said, after asserting that it did not break."""
    said = result.out + result.err
    assert result.code in (0, 1), result
    assert "Traceback" not in said, said
    assert "report it" not in said, said
    assert "unexpected" not in result.err, said
    assert len([line for line in result.err.splitlines() if "hint: " not in line]) <= 1, said
    return said


@pytest.mark.parametrize(("name", "damage"), CASES if STRESS else SAMPLE)
def test_it_is_named_and_everything_else_still_reads(
    name: str, damage: Callable[[Path], None], damaged: Machine
) -> None:
    path = damaged.home / name
    if not path.exists():
        pytest.skip(f"there is no {name}")
    damage(path)
    checks = [calm(damaged.run("doctor"))]
    needs = [damaged.run(*command) for command in FILES[name]]
    said = [calm(each) for each in needs]
    checks.append(calm(damaged.run("status")))
    if (name, damage) not in HARMLESS:
        named = {path.name, path.name.removesuffix(".db"), "conversations", "note history"}
        named |= {"call log", "secrets"} if name.startswith(("logs", ".env", "secrets")) else set()
        assert any(each in checks[0] for each in named), checks[0]
        assert any(path.name in each for each in [*said, checks[1]]), [*said, checks[1]]
        assert any(each.code == 1 for each in needs), needs
    for other, commands in FILES.items():
        if other != name and name not in ("config.yaml", "plugins.lock.json"):
            for command in commands if STRESS else commands[:1]:
                if command not in FILES[name]:
                    assert damaged.run(*command).code == 0, (other, command)
