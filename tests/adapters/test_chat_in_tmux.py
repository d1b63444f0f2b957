"""`hermes-plugins chat` as a person has it: in tmux, over several sessions, with a crash."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Machine, wait_until
from support.fake_model import Answer, FakeModel, Prompt
from support.sites import add_directory

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")

PROVIDER = """
from hermes_core import MemoryProvider

class Provider(MemoryProvider):
    name = "diary"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): pass
    def get_tool_schemas(self): return []
    def prefetch(self, query, *, session_id=""): return "- The dentist is on Monday."

def register(ctx):
    ctx.register_memory_provider(Provider())
"""


def talkative(prompt: Prompt) -> Answer:
    """Takes notes, and answers from its notes or from what was recalled."""
    if prompt.body["messages"][-1]["role"] == "tool":
        return Answer("agent", "I saved that.")
    text = prompt.user.split("<memory-context>")[0]
    if "remember" in text:
        note = {"action": "add", "target": "user", "content": "Drinks green tea."}
        return Answer("agent", calls=[("memory", note)])
    if "dentist" in text:
        known = "Monday" in prompt.user
        return Answer("agent", "It is on Monday." if known else "I don't know.")
    if "tea" in text:
        known = "Drinks green tea." in prompt.system
        return Answer("agent", "Green tea, I know." if known else "I don't know.")
    return Answer("agent", f"That is message {len(prompt.body['messages'])} of this talk.")


class Tmux:
    """A tmux server of its own, with one window."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._socket = str(folder / "tmux")
        self._environment = {**environment, "TERM": "xterm", "LANG": "C.UTF-8"}
        self._call("new-session", "-d", "-x", "120", "-y", "50", "sh")

    def _call(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", os.devnull, *arguments]
        ended = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=True
        )
        return ended.stdout

    def type(self, text: str) -> None:
        """Type a line."""
        self._call("send-keys", "-l", text)
        self.press("Enter")

    def press(self, key: str) -> None:
        self._call("send-keys", key)

    def screen(self) -> str:
        return self._call("capture-pane", "-p", "-J", "-S", "-")

    def clear(self) -> None:
        self._call("send-keys", "-R")
        self._call("clear-history")

    def see(self, text: str) -> None:
        assert wait_until(lambda: text in self.screen(), 60), self.screen()

    def close(self) -> None:
        self._call("kill-server")


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel(answerers=[talkative], key="sk-from-the-store") as served:
        yield served


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "machine", in_process=True)
    made.environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    made.environment.pop("OPENAI_API_KEY", None)
    return made


@pytest.fixture
def tmux(tmp_path: Path, machine: Machine) -> Iterator[Tmux]:
    opened = Tmux(tmp_path, machine.environment)
    yield opened
    opened.close()


def test_a_memory_over_several_sessions(tmux, machine, model, tmp_path: Path) -> None:
    add_directory(machine.home, "diary", PROVIDER)
    (machine.home / "config.yaml").write_text("memory:\n  provider: diary\n", "utf-8")
    stored = machine.run("secrets", "set", "OPENAI_API_KEY", input="sk-from-the-store\n")
    assert stored.code == 0, stored.err
    command = shlex.join(machine.command("chat", "--model", "m", "--base-url", model.url))
    pids = tmp_path / "pid"

    # The first session: a note, an answer that is stopped, and what was recalled.
    started = shlex.quote(f"echo $$ > {pids}; exec {command} --resume first")
    tmux.type(f"sh -c {started}")
    tmux.see("Type /help for commands.")
    tmux.type("I drink green tea, please remember that.")
    tmux.see("I saved that.")
    model.flowing.clear()
    model.reached.clear()
    tmux.type("Tell me more.")
    assert model.reached.wait(60)
    tmux.press("C-c")
    tmux.see("interrupted; this turn is not stored")
    model.flowing.set()
    tmux.type("When is the dentist?")
    tmux.see("It is on Monday.")
    tmux.type("/why")
    tmux.see("diary (")
    tmux.see("- The dentist is on Monday.")

    # It crashes, and goes on where it was: two turns, without the one that was stopped.
    os.kill(int(pids.read_text()), signal.SIGKILL)
    tmux.see("Killed")
    tmux.clear()
    tmux.type(f"{command} --resume first")
    tmux.see("resumed first: 4 messages")
    tmux.type("What now?")
    tmux.see("That is message 6 of this talk.")

    # Another conversation knows the notes, and nothing else.
    tmux.type("/new")
    tmux.type("Which tea?")
    tmux.see("Green tea, I know.")
    tmux.type("/memory")
    tmux.see("- Drinks green tea.")
    tmux.type("/resume first")
    tmux.see("resumed first: 6 messages")
    tmux.type("/quit")
    tmux.type("echo left with $?")
    tmux.see("left with 0")
