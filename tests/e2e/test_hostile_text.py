"""No command prints a character that steers a terminal, wherever it comes from."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from support.commands import Machine, posix_only, run_on_terminal

from hermes_core import MemoryManager
from hermes_core.cli.app import cli

#: A link (OSC 8), a C1 code, an override, an isolate, line separators, a cursor movement, and a
#: line that pretends to be ours.
HOSTILE = (
    "\x1b]8;;http://evil.example\x07link\x1b]8;;\x1b\\ \x9b31m\u202eabc\u2066\u2068\u2028\u2029"
    "\x85\x0b\x0c\x7f\u200b\u200f\ufeff\U000e0041\x1b[2J\r\nFORGED: line\n"
)
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
PLUGIN = f"""
from hermes_core import MemoryProvider, ProbeResult, RecallStatus
H = {HOSTILE!r}

class Odd(Exception):
    pass

class Provider(MemoryProvider):
    name = "alpha"
    def is_available(self):
        return True
    def unavailable_reason(self):
        return H
    def initialize(self, session_id, **kwargs):
        pass
    def get_tool_schemas(self):
        return [{{"name": H, "description": H}}, {{"name": "odd", "description": H, H: H}}]
    def get_config_schema(self):
        return [
            {{"key": "place", "description": H, "default": H, "url": H}},
            {{"key": "size", "description": H, "choices": [H, "b"]}},
        ]
    def get_status_config(self, provider_config):
        return {{H: H, "a": H}}
    def system_prompt_block(self):
        return H
    def prefetch(self, query, *, session_id=""):
        return f"- recalled {{H}}"
    def recall_status(self):
        return RecallStatus(H, 1, H)
    def probe(self, write):
        return ProbeResult(False, H)
    def sync_turn(self, user_content, assistant_content, **kwargs):
        raise Odd(H)
    def on_memory_write(self, action, target, content, metadata=None):
        raise Odd(H)
    def backup_paths(self):
        return [H]

def register(ctx):
    ctx.register_memory_provider(Provider())
"""
BROKEN = f"# MemoryProvider\nH = {HOSTILE!r}\ndef register(ctx):\n    raise RuntimeError(H)\n"
MANIFEST = yaml.safe_dump(
    {"name": "alpha", "description": HOSTILE, "version": f"1{HOSTILE}", "author": HOSTILE}
)

#: How to run every command. `demo` has no text but ours, and `memory edit` needs an editor.
RUNS: dict[str, list[list[str]]] = {
    "backup": [["backup", HOSTILE.replace("/", "")]],
    "bridge": [["bridge", "alpha"], ["bridge", HOSTILE]],
    "chat": [],  # a dialogue
    "check": [["check", "--list"], ["check", HOSTILE]],
    "config set": [["config", "set", "alpha.place", HOSTILE], ["config", "set", HOSTILE, "x"]],
    "config show": [["config", "show"], ["config", "show", "alpha"]],
    "demo": [],
    "disable": [["disable", "--help"]],
    "doctor": [["doctor"], ["--debug", "doctor"]],
    "enable": [["enable", "broken"], ["--debug", "enable", "broken"], ["enable", HOSTILE]],
    "explain": [["explain", f"what {HOSTILE}"]],
    "export": [["export", HOSTILE.replace("/", "")]],
    "forget": [["forget", HOSTILE, "--dry-run"], ["forget", "--session", HOSTILE, "--dry-run"]],
    "import": [["import", HOSTILE.replace("/", "")]],
    "index status": [["index", "status"]],
    "index update": [["index", "update", HOSTILE]],
    "info": [["info", "alpha"], ["info", "broken"], ["info", HOSTILE]],
    "install": [["install", HOSTILE, "--yes"]],
    "list": [["list"], ["list", "--all"]],
    "log": [["log"], ["log", "--provider", HOSTILE]],
    "mcp install": [["mcp", "install", HOSTILE]],
    "memory add": [["memory", "add", f"note {HOSTILE}"]],
    "memory allow": [["memory", "allow", HOSTILE]],
    "memory approve": [["memory", "approve", HOSTILE]],
    "memory edit": [],
    "memory export": [["memory", "export"]],
    "memory history": [["memory", "history"]],
    "memory import": [["memory", "import", HOSTILE.replace("/", "")]],
    "memory pending": [["memory", "pending"]],
    "memory reject": [["memory", "reject", HOSTILE]],
    "memory remove": [["memory", "remove", HOSTILE]],
    "memory replace": [["memory", "replace", HOSTILE, "x"]],
    "memory show": [["memory", "show"]],
    "memory undo": [["memory", "undo"]],
    "new": [["new", HOSTILE]],
    "outbox backfill": [["outbox", "backfill"]],
    "outbox drop": [["outbox", "drop", "999"]],
    "outbox list": [["outbox", "list"]],
    "outbox retry": [["outbox", "retry"]],
    "outbox show": [["outbox", "show", "1"], ["outbox", "show", HOSTILE]],
    "outbox status": [["outbox", "status"]],
    "restore": [["restore", HOSTILE.replace("/", "")]],
    "search": [["search"], ["search", HOSTILE]],
    "secrets delete": [["secrets", "delete", HOSTILE]],
    "secrets list": [["secrets", "list"]],
    "secrets move": [["secrets", "move", "--to", HOSTILE]],
    "secrets set": [["secrets", "set", HOSTILE]],
    "sessions check": [["sessions", "check"]],
    "sessions delete": [["sessions", "delete", HOSTILE, "--yes"]],
    "sessions export": [["sessions", "export"]],
    "sessions forget": [["sessions", "forget", HOSTILE]],
    "sessions import": [["sessions", "import", HOSTILE.replace("/", "")]],
    "sessions list": [["sessions", "list"]],
    "sessions prune": [["sessions", "prune", "--older", HOSTILE]],
    "sessions repair": [["sessions", "repair"]],
    "sessions search": [["sessions", "search", "likes"], ["sessions", "search", HOSTILE]],
    "sessions show": [["sessions", "show", f"s1{HOSTILE}"], ["sessions", "show", HOSTILE]],
    "sessions stats": [["sessions", "stats"]],
    "setup": [["setup", "alpha", "--set", HOSTILE], ["setup", HOSTILE]],
    "status": [["status"], ["--debug", "status"]],
    "storage check": [["storage", "check"]],
    "storage migrate": [["storage", "migrate", "--to", HOSTILE]],
    "storage status": [["storage", "status"]],
    "switch": [["switch", "broken"], ["switch", "alpha", "--dry-run"], ["switch", HOSTILE]],
    "sync": [["sync", HOSTILE.replace("/", "")]],
    "ui": [],  # a server
    "uninstall": [["uninstall", HOSTILE, "--yes"]],
    "upgrade": [["upgrade", HOSTILE, "--yes"]],
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A home whose every value is hostile; copied for each test."""
    machine = Machine(tmp_path_factory.mktemp("hostile") / "machine", in_process=True)
    machine.add_directory("alpha", PLUGIN, MANIFEST)
    machine.add_directory("broken", BROKEN, MANIFEST.replace("alpha", "broken"))
    place = {"place": HOSTILE, HOSTILE: HOSTILE}
    machine.write_config(yaml.safe_dump({"memory": {"provider": "alpha", "alpha": place}}))
    manager = MemoryManager.from_config(machine.home)
    session = f"s1{HOSTILE}"
    manager.initialize_all(
        session, session_title=HOSTILE, user_name=HOSTILE, platform=HOSTILE, chat_name=HOSTILE
    )
    note = {"action": "add", "target": "memory", "content": f"drinks tea {'x' * 9}"}
    manager.handle_tool_call("memory", note)
    manager.sync_all(f"likes {HOSTILE}", f"answer {HOSTILE}", session_id=session)
    manager.on_memory_write("add", "memory", HOSTILE, {"session_id": HOSTILE})
    manager.recall_block("tea")
    manager.flush_pending(0.3)
    manager.shutdown_all()
    notes = machine.home / "memories" / "MEMORY.md"
    with notes.open("a", encoding="utf-8", newline="") as file:
        file.write(f"\n§\nlikes {HOSTILE} milk")
    return machine


@pytest.fixture
def machine(
    hostile: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    few_distributions: None,
    forked_children: None,
) -> Machine:
    """The command on a copy of it."""
    monkeypatch.chdir(tmp_path)  # `backup` and `export` write files
    machine = Machine(tmp_path / "machine", in_process=True)
    shutil.copytree(hostile.home, machine.home, dirs_exist_ok=True)
    return machine


def commands(group: click.Group, ctx: click.Context, path: str = "") -> Iterator[str]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from commands(command, ctx, f"{path}{name} ")
        else:
            yield f"{path}{name}"


def test_every_command_is_here() -> None:
    # With the settings of the command: click remembers the help option of the first context.
    context = click.Context(cli, **cli.context_settings)
    found = {*commands(cli, context)}  # type: ignore[arg-type]
    assert {name for name in found if not name.startswith(("honcho", "mem0", "hind"))} == {*RUNS}


@pytest.mark.parametrize("name", [name for name, runs in RUNS.items() if runs])
def test_no_character_that_steers_a_terminal_is_printed(machine: Machine, name: str) -> None:
    for given in (each for run in RUNS[name] for each in (run, [*run, "--json"])):
        result = machine.run(*given)
        for text in (result.out, result.err):
            assert STEERING.findall(text) == [], (given, text)
            lines = text.splitlines()
            if "--debug" not in given and name not in MULTI_LINE:
                assert not [line for line in lines if line.startswith("FORGED")], text
        if "--json" in given and result.code != 2 and result.out:
            for line in [result.out] if name != "sessions export" else result.out.splitlines():
                json.loads(line)


#: Where line breaks in a text are shown as such.
MULTI_LINE = ("explain",)


@posix_only
@pytest.mark.parametrize("name", ["status", "list", "memory show", "sessions list", "log"])
def test_nor_is_one_on_a_terminal(machine: Machine, name: str) -> None:
    machine.environment["NO_COLOR"] = "1"  # or there is a progress bar, which moves the cursor
    _, shown = run_on_terminal(machine, *name.split())
    assert STEERING.findall(shown) == []
    assert "\\x1b" in shown or name == "log"  # which stores errors without them


@posix_only
def test_colours_are_ours_alone(machine: Machine) -> None:
    _, shown = run_on_terminal(machine, "list")
    codes = re.findall(r"\x1b\[([0-9;]*)m", shown)
    assert codes
    assert shown.count("\x1b") == len(codes)


def test_what_has_several_lines_stays_readable(machine: Machine) -> None:
    shown = machine.run("sessions", "show", f"s1{HOSTILE}").out
    assert "  FORGED: line" in shown.splitlines()
    assert "\\x1b[2J" in shown
    notes = machine.run("memory", "show").out
    assert f"{' ' * 12}FORGED: line" in notes.splitlines()
