"""`hermes-plugins chat` on a terminal, against a model that streams and calls tools."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands import Machine
from support.fake_model import Answer, FakeModel, Prompt
from support.terminals import Dialogue


def agent_model(prompt: Prompt) -> Answer | None:
    """Saves what it is asked to remember, and answers from its prompt."""
    last = prompt.body["messages"][-1]
    if last["role"] == "tool":
        return Answer(
            "agent", "Noted." if json.loads(last["content"]).get("success") else "Failed."
        )
    text = prompt.user.split("<memory-context>")[0]
    if text.startswith("Remember: "):
        note = {
            "action": "add",
            "target": "user",
            "content": text.removeprefix("Remember: ").strip(),
        }
        return Answer("agent", calls=[("memory", note)])
    if "tea" in text:
        known = "green tea" in prompt.system
        return Answer("agent", "You drink green tea." if known else "I don't know.")
    return Answer("agent", f"You said {len(prompt.body['messages'])} things.")


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel(answerers=[agent_model]) as served:
        yield served


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "machine", in_process=True)
    made.environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    return made


@pytest.fixture
def chat(machine: Machine, model: FakeModel) -> Iterator[Callable[..., Dialogue]]:
    importlib.import_module("openai")  # once, and not in each process that is forked from this
    opened: list[Dialogue] = []

    def start(*arguments: str) -> Dialogue:
        command = ("chat", "--model", "m", "--base-url", model.url, *arguments)
        opened.append(Dialogue(machine, *command))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_what_you_tell_it_is_known_when_you_start_it_again(chat) -> None:
    first = chat()
    first.answer(("> ", "Remember: I drink green tea."), ("Noted.\n> ", "/memory"))
    first.wait_for("I drink green tea")
    first.answer(("> ", "/why"))
    first.wait_for("Nothing was recalled")
    first.answer(("> ", "/quit"))
    assert first.end() == 0
    second = chat()
    second.answer(("> ", "What tea?"), ("You drink green tea.\n> ", "/nothing"))
    second.wait_for("no such command: /nothing")
    second.wait_for("/resume")
    second.answer(("> ", "/quit"))
    assert second.end() == 0


def test_an_interrupted_answer_is_not_stored_and_the_chat_goes_on(chat, model) -> None:
    talk = chat("--resume", "one")
    talk.answer(("> ", "First."))
    talk.wait_for(r"You said 2 things.\n> ")
    model.flowing.clear()
    model.reached.clear()
    talk.type("Second.\n")
    assert model.reached.wait(30)
    talk.type("\x03")  # Ctrl-C
    talk.wait_for("interrupted; this turn is not stored")
    model.flowing.set()
    talk.answer(("> ", "Third."))
    talk.wait_for(r"You said 4 things.\n> ")  # system, two of the first turn, and this one
    talk.process.kill()  # no farewell: what was said is kept
    again = chat("--resume", "one")
    again.wait_for("resumed one: 4 messages")
    again.answer(("> ", "Fourth."))
    again.wait_for(r"You said 6 things.\n> ")
    again.answer(("", "/new"), ("> ", "Alone?"))
    again.wait_for(r"You said 2 things.\n> ")
    again.answer(("", "/resume nobody"))
    again.wait_for("no such conversation: nobody")
    again.wait_for("one")
    again.answer(("> ", "/resume one"))
    again.wait_for("resumed one: 6 messages")


def test_a_model_that_fails_costs_one_line(chat, model) -> None:
    talk = chat()
    model.status = 400
    talk.answer(("> ", "Hello?"))
    talk.wait_for(r"the model at http://127.0.0.1:\d+/v1/ did not answer: [^>]*told\s+to\s+fail")
    model.status = 0
    talk.answer(("> ", "Hello?"), ("You said 2 things.\n> ", "/quit"))
    assert talk.end() == 0


def test_without_a_key_and_without_a_server_of_your_own_it_says_what_to_do(machine) -> None:
    result = machine.run("chat", "--model", "m", env={"OPENAI_API_KEY": None})
    assert result.code == 1
    assert "hermes-plugins secrets set OPENAI_API_KEY" in result.err


def test_without_its_extra_it_names_the_command_that_installs_it(machine, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    result = machine.run("chat", "--model", "m", "--base-url", "http://127.0.0.1:1/v1")
    assert result.code == 1
    assert "pip install 'hermes-plugins[chat]'" in result.err
