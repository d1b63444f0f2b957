"""Several processes and threads that change one config.yaml, and some that die doing so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from textwrap import dedent

import pytest
import yaml
from support.configs import PROVIDER, run_python, snapshot
from support.providers import eventually

from hermes_core.config import editor, load_config, read_selection
from hermes_core.config.editor import change_config
from hermes_core.errors import ConfigError

posix_only = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")

WRITER = """
import sys
from pathlib import Path
from hermes_core.config.editor import change_config

home, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for number in range(count):
    change_config(home, {("memory", name, f"key{number}"): number})
"""

#: Dies by SIGKILL as it calls a function of os, after all before it was done.
DIES = """
import os, signal, sys
from pathlib import Path
from hermes_core.config.editor import change_config

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(os, sys.argv[2], die)
change_config(Path(sys.argv[1]), {("memory", "provider"): "new"})
"""

#: Locks as hermes-agent does.
HOLDER = """
import fcntl, sys

with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def start(source: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", dedent(source), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_that_write_at_once_lose_nothing(config):
    home = config.write("# mine\nmemory:\n  provider: mem0  # c\n")
    names = [f"writer{number}" for number in range(5)]
    running = [start(WRITER, home, name, 8) for name in names]
    for process in running:
        process.communicate(timeout=60)
    assert [process.returncode for process in running] == [0] * 5
    memory = yaml.safe_load(config.text)["memory"]
    assert memory.pop("provider") == "mem0"
    assert memory == {name: {f"key{number}": number for number in range(8)} for name in names}
    assert config.text.startswith("# mine\nmemory:\n  provider: mem0  # c\n")


def test_threads_that_write_at_once_lose_nothing(config):
    home = config.write("memory:\n  provider: mem0\n")
    names = [f"thread{number}" for number in range(8)]
    threads = [
        threading.Thread(target=change_config, args=(home, {("memory", name): 1})) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert load_config(home).memory == {"provider": "mem0", **dict.fromkeys(names, 1)}


def test_a_reader_sees_the_old_file_or_the_new_one(config):
    """Both are long, so that half of one would be noticed."""
    tail = "# padding\n" * 5_000 + "last: 1\n"
    home = config.write("memory:\n  provider: name0\n" + tail)
    seen: set[str] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            text = config.text
            assert text.endswith("\nlast: 1\n")
            seen.add(yaml.safe_load(text.split("#")[0])["memory"]["provider"])

    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            read()
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=guarded) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 15):
        change_config(home, {PROVIDER: f"name{number}"})
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert seen <= {f"name{number}" for number in range(15)}


@posix_only
@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
def test_a_process_killed_before_the_last_step_leaves_the_old_file(config, step):
    text = "# mine\nmemory:\n  provider: old\n"
    home = config.write(text)
    config.path.chmod(0o644)
    assert run_python(DIES, home, step).returncode == -signal.SIGKILL
    assert config.text == text
    # Its lock died with it, or this would fail.
    assert "provider: next" in config.change({PROVIDER: "next"})


@posix_only
def test_processes_killed_at_any_time_leave_a_whole_file(config):
    tail = "# padding\n" * 2_000 + "last: 1\n"
    home = config.write("memory:\n  provider: x\n" + tail)
    for attempt in range(6):
        process = start(WRITER, home, f"writer{attempt}", 10_000)
        mark, last = f"writer{attempt}:", f"key{attempt}: "  # each time after another change
        assert eventually(lambda mark=mark, last=last: last in config.text.partition(mark)[2], 60)
        process.kill()
        process.communicate()
        assert config.text.endswith(tail)
        memory = yaml.safe_load(config.text)["memory"]
        assert sorted(memory) == ["provider", *(f"writer{number}" for number in range(attempt + 1))]
        for section in list(memory.values())[1:]:
            assert list(section.values()) == list(range(len(section)))


@posix_only
def test_a_lock_that_another_process_holds_is_an_error_that_says_so(config, monkeypatch):
    home = config.write("memory: {provider: old}\n")
    lock = home / "config.yaml.lock"
    holder = start(HOLDER, lock)
    try:
        assert holder.stdout.readline() == "held\n"
        before = snapshot(home)
        monkeypatch.setattr(editor, "LOCK_SECONDS", 0.2)
        with pytest.raises(ConfigError) as caught:
            change_config(home, {PROVIDER: "new"})
        text = str(caught.value)
        assert text.startswith(f"{lock}: ")
        assert "process" in text
        assert " 0.2 s" in text
        assert "try again" in text
        assert snapshot(home) == before
        # Who only reads need not wait.
        assert read_selection(home).name == load_config(home).selection.name == "old"
    finally:
        holder.communicate(timeout=20)
    assert config.change({PROVIDER: "new"}) == "memory: {provider: new}\n"


@posix_only
def test_a_lock_that_is_released_in_time_is_waited_for(config):
    import fcntl

    home = config.write("memory: {provider: old}\n")
    waiting = threading.Thread(target=change_config, args=(home, {PROVIDER: "new"}))
    with (home / "config.yaml.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        assert config.text == "memory: {provider: old}\n"
    waiting.join(60)
    assert config.text == "memory: {provider: new}\n"


def test_a_lock_file_left_behind_is_no_obstacle(config):
    home = config.write("memory: {provider: old}\n")
    (home / "config.yaml.lock").write_bytes(b"left behind")
    assert config.change({PROVIDER: "new"}) == "memory: {provider: new}\n"
