"""A plugin that puts its secret into all that it returns, raises and logs: no command shows it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.commands import Machine
from support.secret_formats import FORMATS, SECRET, betrays

from hermes_core import MemoryManager
from hermes_core.secrets import Secrets

PLUGIN = f"""
import base64, json, logging, os, sys
from hermes_core import MemoryProvider, ProbeResult, RecallStatus
WRITTEN = {[way(SECRET) for way in FORMATS.values()]!r}
TEXT = " | ".join(WRITTEN)

class Odd(Exception):
    def __str__(self):
        return TEXT

def failure(text="failed"):
    print(TEXT)
    print(TEXT, file=sys.stderr)
    logging.getLogger("acme").error("key %s", TEXT)
    error = Odd(TEXT)
    error.add_note(TEXT)
    error.__cause__ = ValueError(*WRITTEN)
    return error

class Provider(MemoryProvider):
    name = "acme"
    def is_available(self):
        if os.environ.get("ACME_BROKEN"):
            raise failure()
        return True
    def initialize(self, session_id, **kwargs):
        logging.getLogger("acme").warning(TEXT)
    def get_config_schema(self):
        return [
            {{"key": "api_key", "secret": True, "env_var": "ACME_API_KEY"}},
            {{"key": "place", "default": TEXT}},
        ]
    def get_status_config(self, provider_config):
        return {{"key": TEXT, TEXT: "x"}}
    def get_tool_schemas(self):
        return [{{"name": TEXT}}, {{"name": "acme_tool", "description": TEXT}}]
    def handle_tool_call(self, tool_name, args, **kwargs):
        return json.dumps({{"key": TEXT}})
    def prefetch(self, query, *, session_id=""):
        return "\\n\\n".join(WRITTEN)
    def recall_status(self):
        return RecallStatus(TEXT, 1)
    def probe(self, write):
        return ProbeResult(False, TEXT)
    def sync_turn(self, user_content, assistant_content, **kwargs):
        raise failure()
    def on_session_end(self, messages):
        raise failure()
    def backup_paths(self):
        return WRITTEN

def register(ctx):
    if os.environ.get("ACME_REGISTER"):
        raise failure()
    ctx.register_memory_provider(Provider())
"""
#: At full size every command also runs without an option.
STRESS = bool(os.environ.get("HERMES_STRESS"))
#: These load the plugin in a child process.
IN_A_CHILD = (["status"], ["doctor"], ["explain", "tea"], ["enable", "acme"])
COMMANDS = (
    *IN_A_CHILD,
    *(["config", "show"], ["info", "acme"], ["list"], ["log"], ["outbox", "list"]),
    *(["outbox", "show", "1"], ["outbox", "status"], ["outbox", "retry"]),
    *(["setup", "acme", "--no-input"], ["secrets", "list"], ["config", "show", "acme"]),
)


@pytest.fixture
def machine(tmp_path: Path, few_distributions: None) -> Machine:
    """A home with that plugin, and what an agent left there."""
    machine = Machine(tmp_path / "machine", in_process=True)
    machine.add_directory("acme", PLUGIN)
    machine.write_config("memory: {provider: acme}\n")
    Secrets(machine.home, "dotenv").set("ACME_API_KEY", SECRET)
    manager = MemoryManager.from_config(machine.home)
    manager.initialize_all("s1")
    manager.sync_all("question", "answer")
    manager.recall_block("tea")
    manager.handle_tool_call("acme_tool", {})
    manager.flush_pending(0.3)
    manager.shutdown_all()
    return machine


def shown_by(machine: Machine, *commands: list[str]) -> str:
    """All that the commands say, after asserting that the secret is not in it."""
    shown = ""
    for command in commands:
        result = machine.run(*command)
        text = result.out + result.err
        assert [form for form in FORMATS if betrays(text, form)] == [], command
        shown += text
    return shown


@pytest.mark.stress
@pytest.mark.parametrize("state", ["", "ACME_BROKEN", "ACME_REGISTER"])
def test_no_command_shows_it(
    machine: Machine,
    state: str,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    assert "ACME_API_KEY" in (machine.home / ".env").read_text()
    if state:
        machine.environment[state] = "1"
    else:  # the real child process once
        shown_by(machine, *(COMMANDS if STRESS else IN_A_CHILD))
    request.getfixturevalue("forked_children")
    forms = [each for given in COMMANDS for each in ([*given, "--json"], ["--debug", *given])]
    assert "***" in shown_by(machine, *forms, *(COMMANDS if STRESS else ()))


def test_it_is_not_in_what_an_agent_left_on_the_disk(machine: Machine) -> None:
    files = [*machine.home.glob("outbox.db*"), *machine.home.glob("logs/*")]
    text = "".join(path.read_bytes().decode("utf-8", "replace") for path in files)
    assert [form for form in FORMATS if betrays(text, form)] == []
