"""Small files that are large, deep or endless once they are parsed."""

from __future__ import annotations

import os

import pytest
from support.configs import PROVIDER, run_python

from hermes_core.config import load_config
from hermes_core.errors import ConfigError

#: Uses a home and prints how that ended; a crash of the interpreter prints nothing.
USE = """
import sys, threading
from pathlib import Path
from hermes_core.config import load_config, read_selection
from hermes_core.config.editor import change_config
from hermes_core.errors import ConfigError

def use():
    try:
        if sys.argv[2] == "read":
            load_config(Path(sys.argv[1]))
            read_selection(Path(sys.argv[1]))
        else:
            change_config(Path(sys.argv[1]), {("memory", "provider"): "new"})
    except ConfigError as error:
        print("refused:", error)
    else:
        print("done")
"""
IN_A_THREAD = """
threading.stack_size(512 * 1024)  # what macOS gives a thread
thread = threading.Thread(target=use)
thread.start()
thread.join()
"""
WITH_LITTLE_MEMORY = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))
use()
"""

DEEP = {
    "flow": lambda depth: "a: " + "[" * depth + "]" * depth + "\n",
    "unclosed": lambda depth: "[" * depth,
    "block": lambda depth: "- " * depth + "x\n",
    "keys": lambda depth: "? " * depth + "x\n",
    "mappings": lambda depth: "a: " + "{a: " * depth + "}" * depth + "\n",
}


def outcome(source: str, home: object, use: str, timeout: float = 30.0) -> str:
    done = run_python(USE + source, home, use, timeout=timeout)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    assert done.returncode == 0, (done.returncode, last)
    assert not done.stderr, last
    return done.stdout


@pytest.mark.parametrize("shape", ["flow", "mappings"])
def test_nesting_as_deep_as_people_write_it_is_read_and_changed(config, shape):
    config.write(DEEP[shape](30) + "memory: {provider: old}\n")
    assert "{provider: new}" in config.change({PROVIDER: "new"})
    assert load_config(config.home).selection.name == "new"


@pytest.mark.parametrize(
    ("shape", "use"),
    [
        ("flow", "read"),
        ("unclosed", "write"),
        ("block", "read"),
        ("keys", "read"),
    ],
)
def test_nesting_without_end_does_not_take_the_process_down(config, shape, use):
    content = DEEP[shape](60_000)
    config.write(content)
    assert outcome("use()", config.home, use).startswith("refused: ")
    assert config.text == content


def test_nesting_does_not_take_the_process_down_on_a_small_stack_either(config):
    config.write(DEEP["flow"](5_000))
    assert outcome(IN_A_THREAD, config.home, "read").startswith(("refused: ", "done"))


def test_a_change_beside_deep_nesting_works_or_is_refused(config):
    content = DEEP["flow"](500)
    config.write(content)
    try:
        config.change({PROVIDER: "new"})
    except ConfigError:
        assert config.text == content


def test_a_change_of_a_section_that_contains_itself_works_or_is_refused(config):
    text = "memory: &m\n  self: *m\n"
    config.write(text)
    try:
        config.change({PROVIDER: "new"})
    except ConfigError:
        assert config.text == text


def bomb(levels: int) -> str:
    """A list of ten lists of ten lists ...: small as text and in memory, endless if copied."""
    lines = ["a0: &a0 x"]
    lines += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]"
        for level in range(1, levels + 1)
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.skipif(os.name == "nt", reason="needs a limit on memory")
def test_aliases_of_aliases_are_read_or_refused_in_little_memory(config):
    config.write(bomb(3))
    assert outcome(WITH_LITTLE_MEMORY, config.home, "read") == "done\n"
    config.write(bomb(12))
    assert "aliases expand to too much" in outcome(WITH_LITTLE_MEMORY, config.home, "read")


@pytest.mark.skipif(os.name == "nt", reason="needs a limit on memory")
def test_a_change_beside_aliases_of_aliases_works_in_little_memory(config):
    config.write(bomb(7))
    assert outcome(WITH_LITTLE_MEMORY, config.home, "write").startswith(("done", "refused: "))


def test_a_file_with_thousands_of_keys_is_read(config):
    config.write("".join(f"key{number}: {number}\n" for number in range(2_000)))
    assert outcome("use()", config.home, "read") == "done\n"


def test_merges_of_merges_are_read_or_refused(config):
    lines = ["a0: &a0 {k: x}"]
    lines += [
        f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}"
        for level in range(1, 10)
    ]
    config.write("\n".join(lines) + "\n")
    done = outcome(WITH_LITTLE_MEMORY, config.home, "read")
    assert done.startswith(("done", "refused: "))
