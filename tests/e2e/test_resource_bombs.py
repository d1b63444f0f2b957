"""Files that are endless, enormous or no files at all: `list` ends, in little memory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands import Machine, posix_only
from support.sites import add_directory, provider_source

pytestmark = posix_only  # pipes, sparse files, limits on memory

#: Runs a command in a process with little memory, and prints how much it took.
RUN = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
code = subprocess.run(sys.argv[1:]).returncode
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(f"peak: {peak // (1024 if sys.platform != 'darwin' else 1 << 20)}", file=sys.stderr)
sys.exit(code)
"""
#: The command, with few distributions: a scan of all others takes most of a test.
COMMAND = """
import site, sys
site.addsitedir(sys.argv.pop(1))
from hermes_core.cli import main
main()
"""
SECONDS = 60  # generous: what hangs, hangs for ever
MEGABYTES = 300
HUGE = 20_000_000_000


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a sound plugin, which has to be listed in every case."""
    made = Machine(tmp_path / "machine")
    made.home.mkdir(parents=True, exist_ok=True)
    add_directory(made.home, "good", manifest="version: 1.0.0")
    made.install("alpha")
    return made


@pytest.fixture
def run(machine: Machine, _packages: Path) -> Callable[..., dict[str, dict[str, str]]]:
    """Runs `list --json` and gives what it lists, by name."""

    def call(*arguments: str, told: str = "") -> dict[str, dict[str, str]]:
        command = [sys.executable, "-P", "-S", "-c", COMMAND, _packages, "list", "--json"]
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", RUN, *command, *arguments],
            env=machine.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == (1 if told else 0), done.stderr
        assert told in done.stderr
        peak = int(done.stderr.rpartition("peak: ")[2])
        assert peak < MEGABYTES, peak
        listed = {each["name"]: each for each in json.loads(done.stdout)["providers"]}
        assert {"good", "alpha"} <= listed.keys()
        return listed

    return call


def laughs(levels: int = 12) -> str:
    lines = ["a0: &a0 [lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines) + f"\nname: *a{levels - 1}\npip_dependencies: *a{levels - 1}\n"


def merges(levels: int = 10) -> str:
    lines = ["a0: &a0 {k: x}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


BOMBS = {
    "aliases": laughs(),
    "deep aliases": "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 900)),
    "flow": "a: " + "[" * 40_000,
    "block": "- " * 40_000 + "x",
    "many": "a: [" + "[]," * 300_000 + "]",
    "NUL": "name: \0\n",
    "tags": "!!python/object/apply:os.system ['true']\n",
    "anchors": "a: *nowhere\n",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_manifest_that_is_a_bomb_is_named_and_the_others_are_listed(machine, run, bomb):
    add_directory(machine.home, "bad", manifest=BOMBS[bomb])
    assert_broken(run()["bad"])


def test_a_manifest_of_100_megabytes_is_named_and_the_others_are_listed(machine, run):
    folder = add_directory(machine.home, "bad", manifest="")
    (folder / "plugin.yaml").write_bytes(b"a: b\n" * 20_000_000)
    assert_broken(run()["bad"])


def assert_broken(bad: dict[str, str]) -> None:
    assert bad["state"] == "broken"
    assert "plugin.yaml" in bad["problem"]


def test_merges_in_a_manifest_are_only_text(machine, run):
    add_directory(machine.home, "bad", manifest=merges())
    assert run()["bad"]["state"] in {"broken", "installed"}


def test_a_bomb_that_a_package_carries_is_no_obstacle(machine, run):
    files = {
        "carrier/plugin/__init__.py": provider_source("carried"),
        "carrier/plugin/plugin.yaml": laughs(),
    }
    machine.site.add("carrier", files=files)
    assert any("aliases expand" in each["problem"] for each in run("--all").values())


@pytest.mark.parametrize(
    "bomb",
    [*BOMBS, "merges", "base 60"],
)
def test_a_configuration_that_is_a_bomb_is_told_and_all_plugins_are_listed(machine, run, bomb):
    texts = {**BOMBS, "merges": merges(), "base 60": "a: 1" + ":1" * 400_000 + "\n"}
    machine.config_file.write_text(texts[bomb], "utf-8")
    run(told="config.yaml")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def hole(path: Path) -> None:
    path.touch()
    os.truncate(path, HUGE)


@pytest.fixture
def bound() -> Iterator[Callable[[Path], None]]:
    """Puts a socket at a path."""
    sockets: list[socket.socket] = []

    def bind(path: Path) -> None:
        made = socket.socket(socket.AF_UNIX)
        sockets.append(made)
        before = Path.cwd()
        os.chdir(path.parent)  # the path of a socket must be short
        try:
            made.bind(path.name)
        finally:
            os.chdir(before)

    yield bind
    for each in sockets:
        each.close()


PLACES = [
    "home/plugins/bad/plugin.yaml",
    "home/plugins/bad/__init__.py",
    "home/plugins/bad/.hermes-plugins.json",
    "home/plugins/bad/part.py",
    "site/METADATA",
    "site/entry_points.txt",
    "site/RECORD",
    "site/PKG-INFO",
    "home/.env",
    "home/config.yaml",
    "home/plugins.lock.json",
    "home/setup.json",
]


#: Without these, nobody knows what is active.
TOLD = {"config.yaml", "plugins.lock.json"}


#: In `make test` each place once, and every kind.
CASES = [
    pytest.param(place, kind, marks=() if (at + nth) % 4 == 0 else pytest.mark.stress)
    for at, place in enumerate(PLACES)
    for nth, kind in enumerate(("fifo", "hole", "endless", "socket"))
]


@pytest.mark.parametrize(("place", "kind"), CASES)
def test_what_is_no_file_where_one_is_expected_does_not_stop_list(machine, run, bound, place, kind):
    where, _, name = place.partition("/")
    add_directory(machine.home, "bad")
    machine.install("beta")
    (info,) = machine.site.folder.glob("memory_beta-*.dist-info")
    path = machine.home / name if where == "home" else info / name
    path.unlink(missing_ok=True)
    {"fifo": fifo, "endless": endless, "hole": hole, "socket": bound}[kind](path)
    listed = run("--all", told=name if name in TOLD else "")
    if "plugin.yaml" in place or "__init__" in place:
        assert listed["bad"]["state"] in {"broken", "no-provider"}
        assert listed["bad"]["problem"]


@pytest.mark.stress
@pytest.mark.parametrize("kind", [fifo, hole])
def test_a_pinned_plugin_with_such_a_file_is_listed(machine, run, kind):
    folder = add_directory(machine.home, "bad")
    machine.run("enable", "bad").done()
    kind(folder / "more.py")
    kind(folder / "more.bin")
    assert run()["bad"]["state"] == "changed"
