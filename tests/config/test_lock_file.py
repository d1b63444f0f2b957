"""plugins.lock.json: read, written, and filled once from what older versions left."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.configs import PROVIDER, ConfigFile, snapshot
from support.other_user import as_other_user, shared_folder
from support.sites import add_directory

from hermes_core import MemoryManager
from hermes_core.config import LockEntry, Pin, PluginFacts, load_config, read_selection
from hermes_core.config.editor import change_config, change_plugins
from hermes_core.config.lock_file import read_lock_file, write_lock_file
from hermes_core.config.setup_journal import recover
from hermes_core.errors import ConfigError

posix_only = pytest.mark.skipif(os.name == "nt", reason="needs fork")

MEM0 = LockEntry("mem0", Pin("hermes-memory-mem0", "1.0", "sha256:0"))
ACME = LockEntry("Acme", Pin("acme-memory", "2.0"), PluginFacts("acme2", "2 tools", ("KEY",)))
#: What older versions wrote, between things that people wrote.
SECTION = '  pins:\n    mem0: {owner: hermes-memory-mem0, version: "1.0", hash: "sha256:0"}\n'
BEFORE = "# mine\nmodel: x  # c\nmemory:\n  provider: mem0  # chosen\n"
AFTER = "  # about redaction\n  redact: yes\n\n# about the agent\nagent: [a,\n  b]\n"
OLD_HOME = BEFORE + SECTION + AFTER


def lock_file(home: Path) -> Path:
    return home / "plugins.lock.json"


def test_entries_are_sorted_readable_and_for_the_owner_alone(home):
    change_plugins(home, {PROVIDER: "mem0"}, [MEM0, ACME])
    assert json.loads(lock_file(home).read_text()) == {
        "version": 1,
        "plugins": {
            "Acme": {"owner": "acme-memory", "version": "2.0", "provider": "acme2",
                     "registers": "2 tools", "env": ["KEY"]},
            "mem0": {"owner": "hermes-memory-mem0", "version": "1.0", "hash": "sha256:0"},
        },
    }  # fmt: skip
    text = lock_file(home).read_text()
    assert text.index('"Acme"') < text.index('"mem0"')
    assert lock_file(home).stat().st_mode & 0o777 == 0o600
    assert read_lock_file(home) == {"mem0": MEM0, "acme": ACME}
    selection = load_config(home).selection
    assert (selection.pins["acme"], selection.facts["acme"]) == (ACME.pin, ACME.facts)


def test_only_the_named_plugins_stay_recorded(home):
    change_plugins(home, {PROVIDER: "mem0"}, [MEM0])
    change_plugins(home, {PROVIDER: "Acme"}, [ACME])
    assert read_lock_file(home) == {"acme": ACME}
    change_plugins(home, {PROVIDER: ""}, [])
    assert read_lock_file(home) == {}


def test_a_home_that_enabled_nothing_has_no_lock_file(home):
    change_plugins(home, {PROVIDER: ""}, [])
    assert not lock_file(home).exists()


def test_the_own_name_of_a_provider_selects_it(home):
    change_plugins(home, {PROVIDER: "acme2"}, [ACME])
    assert read_selection(home).name == "Acme"


# -- homes of older versions -------------------------------------------------------------------


def test_reading_an_old_home_changes_nothing(config):
    config.write(OLD_HOME)
    before = snapshot(config.home)
    assert load_config(config.home).selection.pin == MEM0.pin
    assert read_selection(config.home).pin == MEM0.pin
    assert snapshot(config.home) == before


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_first_change_moves_the_pins_and_no_other_byte(config, newline, mark):
    config.write((mark + OLD_HOME).replace("\n", newline))
    change_plugins(config.home, {}, [MEM0])
    assert config.text == (mark + BEFORE + AFTER).replace("\n", newline)
    assert read_lock_file(config.home) == {"mem0": MEM0}
    assert load_config(config.home).selection.pin == MEM0.pin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory: {provider: mem0, pins: {mem0: {owner: a}}, redact: yes}\n",
         "memory: {provider: Acme, redact: yes}\n"),
        ("memory:\n  pins:\n    mem0:\n      owner: a\n  provider: mem0\n",
         "memory:\n  provider: Acme\n"),
        ("memory:\n  provider: mem0\n  pins: {}\n", "memory:\n  provider: Acme\n"),
    ],
)  # fmt: skip
def test_other_ways_of_writing_the_section(config, text, expected):
    config.write(text)
    change_plugins(config.home, {PROVIDER: "Acme"}, [ACME])
    assert config.text == expected
    assert read_lock_file(config.home) == {"acme": ACME}


def test_a_section_that_can_not_be_removed_alone_stays_and_does_not_count(config):
    text = "base: &b {mem0: {owner: old}}\nmemory:\n  provider: mem0\n  <<: {pins: *b}\n"
    config.write(text)
    assert read_selection(config.home).pin == Pin("old")
    change_plugins(config.home, {}, [MEM0])
    assert config.text == text
    assert load_config(config.home).selection.pin == MEM0.pin


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_change_of_another_value_moves_the_pins_too(config, newline, mark):
    config.write((mark + OLD_HOME).replace("\n", newline))
    change_config(config.home, {("memory", "redact"): False})
    after = AFTER.replace("redact: yes", "redact: false")
    assert config.text == (mark + BEFORE + after).replace("\n", newline)
    assert read_lock_file(config.home) == {"mem0": MEM0}
    assert load_config(config.home).selection.pin == MEM0.pin
    moved = lock_file(config.home).stat().st_ino
    change_config(config.home, {("memory", "redact"): True})
    assert lock_file(config.home).stat().st_ino == moved  # once


def test_a_change_of_another_value_keeps_what_the_lock_file_has(config):
    config.write(OLD_HOME)
    other = MEM0._replace(pin=Pin("other"))
    write_lock_file(config.home, {"mem0": other, "acme": ACME})
    change_config(config.home, {("memory", "redact"): False})
    assert read_lock_file(config.home) == {"mem0": other, "acme": ACME}
    assert SECTION not in config.text


def test_a_change_that_is_refused_moves_nothing(config):
    config.write(OLD_HOME)
    before = snapshot(config.home)
    with pytest.raises(ConfigError):
        change_config(config.home, {("memory", "nudge_interval"): "soon"}, valid=True)
    assert snapshot(config.home) == before


def test_an_empty_section_is_removed_without_a_lock_file(config):
    config.write("memory:\n  pins: {}\n  redact: yes\n")
    change_config(config.home, {("memory", "redact"): False})
    assert config.text == "memory:\n  redact: false\n"
    assert not lock_file(config.home).exists()


def test_a_damaged_lock_file_stops_the_move_but_no_other_change(config):
    lock_file(config.home).write_text("{")
    config.write(OLD_HOME)
    with pytest.raises(ConfigError, match="is not valid JSON"):
        change_config(config.home, {("memory", "redact"): False})
    assert config.text == OLD_HOME
    config.write(BEFORE + AFTER)
    change_config(config.home, {("memory", "redact"): False})
    assert "redact: false" in config.text


def test_the_lock_file_wins_over_the_section(config):
    config.write(OLD_HOME)
    write_lock_file(config.home, {"mem0": MEM0._replace(pin=Pin("other"))})
    assert load_config(config.home).selection.pin == Pin("other")


def test_a_pin_that_only_the_section_has_counts(config):
    config.write(OLD_HOME)
    write_lock_file(config.home, {"acme": ACME})
    assert load_config(config.home).selection.pin == MEM0.pin


def test_an_interrupted_set_up_of_an_older_version_is_finished(config):
    config.write("memory:\n  provider: mem0\n  pins: {mem0: {owner: a}}\n")
    changes = [
        [["memory", "acme", "url"], "x"],
        [["memory", "pins", "mem0"], {"$deleted": True}],
        [["memory", "pins", "Acme"], {"owner": "acme-memory", "version": "2.0"}],
        [["memory", "provider"], "Acme"],
    ]
    journal = {"schema": 1, "provider": "Acme", "changes": changes, "secrets": []}
    (config.home / "setup.json").write_text(json.dumps(journal))
    recover(config.home)
    assert config.text == "memory:\n  provider: Acme\n  acme:\n    url: x\n"
    assert read_lock_file(config.home) == {"acme": LockEntry("Acme", Pin("acme-memory", "2.0"))}


# -- damage ------------------------------------------------------------------------------------

DAMAGE = {
    "empty": (b"", "is not valid JSON"),
    "cut off": (b'{"version": 1, "plu', "is not valid JSON"),
    "noise": (bytes(range(256)), "is not valid JSON"),
    "deep": (b"[" * 100_000, "is not valid JSON"),
    "list": (b"[]", "is not a lock file of plugins"),
    "other": (b'{"version": 1, "plugins": []}', "is not a lock file of plugins"),
    "newer": (b'{"version": 2, "plugins": {}}', "has version 2; this version of"),
    "ownerless": (b'{"version": 1, "plugins": {"a": {}}}', "names no owner of 'a'"),
    "hash": (b'{"version": 1, "plugins": {"a": {"owner": "b", "hash": 1}}}', "'a': hash is not"),
    "large": (b" " * 1_000_001, "is not a lock file of plugins"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_lock_file_is_an_error_in_one_line(config, kind):
    config.write("memory:\n  provider: mem0\n")
    content, problem = DAMAGE[kind]
    lock_file(config.home).write_bytes(content)
    before = snapshot(config.home)
    uses: list[Callable[[], object]] = [
        lambda: load_config(config.home),
        lambda: read_selection(config.home),
        lambda: change_plugins(config.home, {PROVIDER: "Acme"}, [ACME]),
    ]
    for use in uses:
        with pytest.raises(ConfigError) as caught:
            use()
        assert str(lock_file(config.home)) in caught.value.where
        assert caught.value.what.startswith(problem)
        assert "\n" not in str(caught.value)
        path = lock_file(config.home)
        assert caught.value.hint == f"remove {path}, then run: hermes-plugins enable NAME"
    assert snapshot(config.home) == before


@pytest.mark.parametrize("mode", ["warn", "strict"])
def test_an_agent_never_loads_a_plugin_whose_pin_can_not_be_read(config, mode):
    add_directory(config.home, "acme")
    config.write(f"memory:\n  provider: acme\n  pin: {mode}\n")
    lock_file(config.home).write_text("{")
    manager = MemoryManager.from_config(config.home)
    try:
        assert [each.name for each in manager.providers] == ["builtin"]
        assert "plugins.lock.json:1: is not valid JSON" in str(manager.problems[0])
    finally:
        manager.shutdown_all()


def test_something_that_is_not_a_file_is_an_error(config):
    lock_file(config.home).mkdir()
    with pytest.raises(ConfigError, match="is not a lock file of plugins"):
        load_config(config.home)


@posix_only
def test_a_home_that_may_only_be_read_is_read_and_not_changed():
    with shared_folder() as home:
        ConfigFile(home).write(OLD_HOME)
        home.chmod(0o555)
        before = snapshot(home)
        owner = as_other_user(lambda: load_config(home).selection.pins["mem0"].owner)
        assert owner == "hermes-memory-mem0"
        told = as_other_user(lambda: change_plugins(home, {PROVIDER: "Acme"}, [ACME]))
        assert told.startswith("ConfigError: ")
        assert "can't be written: Permission denied" in told
        assert snapshot(home) == before


@posix_only
def test_a_lock_file_that_may_not_be_read_is_an_error():
    with shared_folder() as home:
        ConfigFile(home).write("memory:\n  provider: mem0\n")
        write_lock_file(home, {"mem0": MEM0})
        lock_file(home).chmod(0)
        told = as_other_user(lambda: load_config(home))
        expected = f"ConfigError: {lock_file(home)}: can't be read: Permission denied"
        assert told == f"{expected} (check its permissions)"


# -- several processes, and processes that die -------------------------------------------------


def _fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


@posix_only
def test_processes_that_move_the_pins_at_once_leave_one_of_their_results(config):
    for _ in range(5):
        lock_file(config.home).unlink(missing_ok=True)
        config.write(OLD_HOME)
        children = [
            _fork(lambda each=each: change_plugins(config.home, {PROVIDER: each.name}, [each]))
            for each in (MEM0, ACME)
        ]
        while children:  # a reader never sees a selected plugin without its pin
            selection = load_config(config.home).selection
            assert selection.pin in (MEM0.pin, ACME.pin), selection
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended:
                assert status == 0
                children.remove(ended)
        (entry,) = read_lock_file(config.home).values()
        assert config.text == (BEFORE + AFTER).replace("provider: mem0", f"provider: {entry.name}")


def _die_at(number: int, work: Callable[[], object]) -> bool:
    """Whether the work was killed, in a child, at its nth operation on files."""

    def run() -> None:
        left = [number]

        def count(event: str, _: object) -> None:
            if event in ("open", "os.rename", "os.chmod", "os.remove"):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        work()

    _, status = os.waitpid(_fork(run), 0)
    return os.WIFSIGNALED(status)


@posix_only
@pytest.mark.parametrize(
    ("choice", "entries", "expected"),
    [("mem0", [MEM0], {"mem0": MEM0}), ("Acme", [ACME], {"acme": ACME}), ("", [], {})],
    ids=["enable again", "enable another", "disable"],
)
def test_a_process_that_is_killed_at_any_step_leaves_a_pinned_plugin(
    config, choice, entries, expected
):
    def change() -> None:
        change_plugins(config.home, {PROVIDER: choice}, entries)

    _kill_at_every_step(config, change, choice, expected)


@posix_only
def test_a_process_that_is_killed_while_it_sets_another_value_leaves_a_pinned_plugin(config):
    def change() -> None:
        change_config(config.home, {PROVIDER: "mem0"})

    _kill_at_every_step(config, change, "mem0", {"mem0": MEM0})


def _kill_at_every_step(
    config: ConfigFile, change: Callable[[], None], choice: str, expected: dict[str, LockEntry]
) -> None:
    number, killed = 0, True
    while killed:
        number += 1
        lock_file(config.home).unlink(missing_ok=True)
        config.write(OLD_HOME)
        killed = _die_at(number, change)
        selection = load_config(config.home).selection
        assert selection.name in ("mem0", choice)
        pins = {"mem0": MEM0.pin, "Acme": ACME.pin, "": None}
        assert selection.pin == pins[selection.name], number
        change()
        now = (BEFORE + AFTER).replace("provider: mem0", f"provider: {choice or NONE}")
        assert config.text == now, number
        assert read_lock_file(config.home) == expected
    assert number > 4


NONE = '""'


def test_a_plugin_that_is_disabled_between_the_two_reads_is_not_selected_without_its_pin(
    config, monkeypatch
):
    config.write("memory:\n  provider: mem0\n  pin: strict\n")
    write_lock_file(config.home, {"mem0": MEM0})
    reads = []

    def read(home: Path) -> dict[str, LockEntry]:
        if not reads:  # another process, just in front of the first read
            change_plugins(home, {PROVIDER: ""}, [])
        reads.append(home)
        return read_lock_file(home)

    monkeypatch.setattr("hermes_core.config.config_file.read_lock_file", read)
    selection = load_config(config.home).selection
    assert (selection.name, selection.pin) == ("", None)
