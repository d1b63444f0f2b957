"""`hermes-plugins honcho`: listed where the plugin is installed, and what it does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.commands import Machine
from support.honcho_agents import said
from support.our_plugins import install_plugin

from hermes_core import MemoryManager
from hermes_core.secrets import Secrets
from hermes_memory_honcho import commands
from hermes_memory_honcho.provider import HonchoProvider

Run = Callable[..., Result]


@pytest.fixture
def run(home: Path, server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process, on a home whose provider is honcho."""
    monkeypatch.setenv("HONCHO_BASE_URL", server.url)
    monkeypatch.setenv("HONCHO_PEER_NAME", "al")

    class Managers:
        @staticmethod
        def from_config(folder: Path) -> MemoryManager:
            made = MemoryManager(home=folder)
            made.add_provider(HonchoProvider())
            return made

    monkeypatch.setattr(commands, "MemoryManager", Managers)

    def run(*words: str, answer: str = "") -> Result:
        return CliRunner().invoke(commands.honcho, words, input=answer, obj=str(home))

    return run


@pytest.fixture
def notes(home: Path) -> Path:
    folder = home / "memories"
    folder.mkdir()
    (folder / "USER.md").write_text("Likes tea.", "utf-8")
    return folder


def test_it_is_a_command_where_the_plugin_is_installed(tmp_path, server):
    machine = Machine(tmp_path / "machine", in_process=True)
    assert "honcho" not in machine.run("--help").out
    install_plugin("honcho", machine.site.folder)
    assert "honcho" in machine.run("--help").out
    done = machine.run("honcho", "peers")
    assert done.code == 1
    assert "hermes-plugins setup honcho" in done.err
    assert server.requests == []


def test_peers_sessions_and_identity_are_shown(run, server, notes):
    assert run("migrate", "--yes", "--session", "past").exit_code == 0
    peers = run("peers").output
    assert "al  you, at this terminal" in peers
    assert "hermes  the agent" in peers
    server.store.session("hermes", "bobs", {})
    server.store.join("hermes", "bobs", {"bob": {}})
    assert run("sessions").output.split() == ["past"]
    assert "bobs" in run("sessions", "--all").output
    shown = run("identity").output
    assert "workspace  hermes" in shown
    assert "you        al" in shown
    assert "Likes tea." in shown


def test_notes_and_history_are_shown_then_uploaded_once(run, server, notes):
    (notes / "MEMORY.md").write_text("The repo uses make. <|endoftext|>", "utf-8")
    (notes / "USER.md").write_text("Key: sk-ant-api03-" + "a1B2" * 20, "utf-8")
    messages = [
        {"role": "user", "content": "My dog is called Rex.", "timestamp": 1_700_000_000.0},
        {"role": "tool", "content": "noise", "timestamp": 1_700_000_001.0},
        {"role": "assistant", "content": "Nice.", "timestamp": 1_700_000_002.0},
    ]
    told = [
        {"session_id": "s1", "title": "Dogs", "user_id": "", "messages": messages},
        {"session_id": "s2", "user_id": "bob", "messages": messages},
        {"session_id": "s3", "chat_id": "7", "messages": messages},
    ]
    history = notes / "history.jsonl"
    history.write_text("".join(json.dumps(each) + "\n" for each in told), "utf-8")
    command = ("migrate", "--history", str(history))
    shown = run(*command, answer="n\n").output
    assert "MEMORY.md: 34 characters: The repo uses make." in shown
    assert "conversation Dogs" in shown
    assert "s2" not in shown  # somebody else's
    assert "s3" not in shown
    assert "Nothing was sent." in shown
    assert server.store.workspaces() == []
    assert "3 sent, 0 were there already" in run(*command, "--yes").output
    sent = said(server)
    assert "The repo uses make. <\u2060|endoftext|>" in sent
    assert "They: My dog is called Rex.\n\nThe agent: Nice." in sent
    assert not any("a1B2a1B2" in each for each in sent)
    times = [each["created_at"] for each in server.store.messages("hermes")]
    assert any(each.startswith("2023-11-14T22:13:20") for each in times)
    assert "0 sent, 3 were there already" in run(*command, answer="y\n").output
    assert len(said(server)) == 3


def _history(folder: Path, *told: dict[str, Any]) -> Path:
    """As `sessions export` writes it."""
    file = folder / "history.jsonl"
    lines = (json.dumps(each, ensure_ascii=False) + "\n" for each in told)
    file.write_text("".join(lines), "utf-8")
    return file


HELLO = [{"role": "user", "content": "Hello.", "timestamp": 1_700_000_000.0}]


def test_only_what_was_said_at_the_terminal_in_this_profile_goes(run, server, tmp_path):
    file = _history(
        tmp_path,
        {"session_id": "mine", "source": "cli", "profile": "default", "messages": HELLO},
        {"session_id": "telegram", "source": "telegram", "messages": HELLO},
        {"session_id": "brought", "source": "import", "platform": "telegram", "messages": HELLO},
        {"session_id": "cron", "source": "cron", "messages": HELLO},
        {"session_id": "coder", "source": "cli", "profile": "coder", "messages": HELLO},
    )
    shown = run("migrate", "--history", str(file), "--yes").output
    assert "Skipped conversations of other users or of jobs: 4." in shown
    assert "1 sent" in shown
    (message,) = server.store.messages("hermes")
    assert message["metadata"]["source"] == "conversation mine"


def test_what_is_odd_in_a_history_does_not_stop_it(run, server, tmp_path):
    messages = [
        {"role": "user", "content": "one\u2028two\u0085three", "timestamp": "yesterday"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": [{"type": "text", "text": "A picture."}, {"url": "x"}]},
    ]
    title = "Key sk-ant-api03-" + "a1B2" * 20
    file = _history(tmp_path, {"session_id": "s1", "title": title, "messages": messages})
    odd = r'{"title": "\ud800\u0000", "messages": [{"role": "user", "content": "x"}]}'
    file.write_text(f"{file.read_text('utf-8')}\n{odd}\n", "utf-8")
    shown = run("migrate", "--history", str(file), "--yes")
    assert "2 sent, 0 were there already" in shown.output
    assert "a1B2a1B2" not in shown.output + str(server.store.messages("hermes"))
    assert said(server)[0] == "They: one\u2028two\u0085three\n\nThe agent: A picture."
    assert "0 sent, 2 were there already" in run("migrate", "--history", str(file), "--yes").output


def test_a_stored_secret_is_masked_whatever_it_looks_like(run, server, home, notes):
    Secrets(home).set("MY_PASSWORD", "correct-horse-battery")
    (notes / "USER.md").write_text("It is correct-horse-battery.", "utf-8")
    assert "1 sent" in run("migrate", "--yes").output
    assert "correct-horse" not in str(said(server))


def test_one_that_breaks_off_says_how_far_it_came_and_goes_on(run, server, notes, monkeypatch):
    (notes / "MEMORY.md").write_text("The repo uses make.", "utf-8")
    send = commands._sent

    def break_off(*given: Any) -> bool:
        if given[-1].name == "USER.md":
            server.behaviour.refuse = 503
        return send(*given)

    with monkeypatch.context() as patch:
        patch.setattr(commands, "_sent", break_off)
        done = run("migrate", "--yes")
    assert done.exit_code == 1
    assert "1 of 2 are there. Run the command again for the rest." in done.output
    server.behaviour.refuse = 0
    assert "1 sent, 1 were there already" in run("migrate", "--yes").output


def test_a_conversation_whose_turns_are_there_is_not_sent_again(run, server, agent, tmp_path):
    agent("kept", config={"peerName": "al"}).say("Hello.", "Hi.")
    file = _history(
        tmp_path,
        {"session_id": "kept", "messages": HELLO},
        {"session_id": "before", "messages": HELLO},
    )
    done = run("migrate", "--history", str(file), "--yes")
    assert "1 sent, 1 were there already" in done.output
    assert said(server) == ["Hello.", "Hi.", "They: Hello."]


def test_if_nobody_answers_nothing_is_sent_and_the_server_is_not_blamed(run, server, notes):
    done = run("migrate", answer="")
    assert done.exit_code == 1
    assert str(done.exception) == "nothing was sent (--yes sends without asking)"
    assert server.requests == []


def test_a_folder_is_no_file(run, tmp_path, server):
    for words in (("identity",), ("migrate", "--history")):
        done = run(*words, str(tmp_path))
        assert done.exit_code == 2
        assert "is a directory" in done.output
    assert server.requests == []


def test_the_agent_is_told_who_it_is(run, server, tmp_path):
    soul = tmp_path / "SOUL.md"
    soul.write_text("You are kind.", "utf-8")
    assert run("identity", str(soul), "--yes").exit_code == 0
    (message,) = server.store.messages("hermes")
    assert (message["peer_id"], message["content"]) == ("hermes", "You are kind.")


def test_without_notes_and_history_nothing_is_sent(run, server):
    assert "Nothing to send" in run("migrate", "--yes").output
    assert server.requests == []


def test_a_history_that_is_none_is_named(run, tmp_path):
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("{}\n", "utf-8")
    done = run("migrate", "--history", str(wrong), "--yes")
    assert "wrong.jsonl:1" in str(done.exception)


def test_a_server_that_is_away_is_told_in_one_line(run, server):
    server.stop()
    assert "can't be reached" in str(run("peers").exception)
