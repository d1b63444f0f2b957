"""No secret reaches the external provider, nor lies in what is kept for it or told of it."""

from __future__ import annotations

import base64
import json
import logging
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.canaries import CANARIES
from support.outboxes import open_store
from support.providers import TOOL, Recorder, raising
from support.storages import Storage

from hermes_core import MemoryManager
from hermes_core.outbox import Outbox
from hermes_core.privacy import Redactor
from hermes_core.secrets import Secrets

pytestmark = pytest.mark.usefixtures("both_storages")

STORED = "correct-horse-battery-staple-77"
WRITES = ("sync_turn", "on_memory_write", "on_delegation", "on_session_end")


class Thing:
    """An object of the host's, with a secret in its words."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def a_life(manager: MemoryManager, text: str, patience: float = 10) -> None:
    """Hand a text over in every way that there is."""
    messages = [
        {"role": "user", "content": text},
        {"role": "tool", "content": json.dumps({"output": text}), "extra": [{"deep": (text,)}]},
        {"role": "assistant", "content": [{"type": "text", "text": text}], "thing": Thing(text)},
    ]
    manager.on_turn_start(1, text, note=text)
    manager.prefetch_all(text)
    manager.recall_block(text)
    manager.sync_all(text, f"You said: {text}", messages=messages)
    manager.queue_prefetch_all(text)
    manager.on_memory_write("add", "memory", text, {"source": text})
    manager.on_delegation(text, text, note=text)
    manager.on_pre_compress(messages)
    manager.on_session_end(messages)
    manager.flush_pending(patience)


def arrived(provider: Recorder) -> str:
    seen = [(call.hook, call.args, call.kwargs) for call in provider.calls]
    return repr([each for each in seen if each[0] != "initialize"])


def on_disk(home: Path) -> bytes:
    files = [*home.glob("outbox.db*"), *home.glob("logs/*")]
    rows = repr(_rows(home)).encode() if Storage.current.url else b""
    assert files or rows
    return b"\n".join([rows, *(path.read_bytes() for path in files if path.is_file())])


def _rows(home: Path) -> list[Any]:
    database = open_store(home).database
    return [
        database.read(
            lambda connection, table=table: connection.execute(
                f"SELECT * FROM {table} WHERE {database.of_home(table)}"
            ).fetchall()
        )
        for table in ("streams", "writes")
    ]


@pytest.fixture
def equipped(home: Path) -> Iterator[Callable[..., MemoryManager]]:
    """Starts a session with a provider; the last outbox stays open, so that its -wal stays."""
    managers: list[MemoryManager] = []
    outboxes: list[Outbox] = []

    def begin(provider: Recorder, **options: Any) -> MemoryManager:
        manager = MemoryManager(home=home, log_calls=True, **options)
        assert manager.add_provider(provider)
        manager.initialize_all("s1")
        managers.append(manager)
        outboxes.append(manager._writes._outbox)  # type: ignore[union-attr,arg-type]
        return manager

    yield begin
    for manager in managers:
        manager.shutdown_all()


def test_there_are_forty_kinds() -> None:
    assert len({canary.kind for canary in CANARIES}) >= 40


@pytest.mark.parametrize("down", [False, True], ids=["delivered", "waiting"])
def test_no_kind_of_secret_arrives_or_lies_in_the_outbox_or_in_a_log(
    home: Path,
    down: bool,
    equipped: Callable[..., MemoryManager],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    provider = Recorder(tools=[TOOL])
    manager = equipped(provider)
    for canary in CANARIES:
        text = canary.within.replace("{}", canary.secret)
        error = raising(ConnectionError(f"refused for {text}"))
        provider.answers.update(dict.fromkeys((*WRITES, "prefetch"), error if down else None))
        a_life(manager, text, 0.01 if down else 10)
    assert manager.flush_pending(0) is not down
    kept, told = on_disk(home), arrived(provider)
    warned = "\n".join(manager.warnings) + json.dumps(manager.health())
    for canary in CANARIES:
        first_line = canary.secret.strip().split("\n")[-2 if "\n" in canary.secret else 0]
        assert first_line not in told, canary.kind
        assert first_line.encode() not in kept, canary.kind
        assert first_line not in caplog.text, canary.kind
        assert first_line not in warned, canary.kind
    assert len(provider.of("sync_turn")) >= 1


WAYS: dict[str, Callable[[str], str]] = {
    "plain": lambda secret: secret,
    "quoted": lambda secret: urllib.parse.quote(secret + "/?"),
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "in base64": lambda secret: base64.b64encode(f"user:{secret}".encode()).decode(),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_what_the_store_keeps_is_masked_in_every_way_of_writing(
    home: Path, way: Callable[[str], str], equipped: Callable[..., MemoryManager]
) -> None:
    Secrets(home, "dotenv").set("JOURNAL_KEY", STORED)
    provider = Recorder(tools=[TOOL], sync_turn=raising(ConnectionError("down")))
    redactor = Redactor(Secrets(home, "dotenv").values())
    manager = equipped(provider, redactor=redactor)
    written = way(STORED)
    a_life(manager, f"my password is {written} ok", 0.05)
    manager.handle_tool_call("ext_tool", {"text": f"it is {written}"})
    part = written.rstrip("=")
    assert part not in arrived(provider)
    assert part.encode() not in on_disk(home)


def test_the_model_s_words_to_a_tool_lose_only_what_the_store_keeps(
    equipped: Callable[..., MemoryManager],
) -> None:
    provider = Recorder(tools=[TOOL])
    manager = equipped(provider, redactor=Redactor([STORED]))
    canary = CANARIES[0]
    manager.handle_tool_call("ext_tool", {"a": STORED, "b": canary.secret})
    (call,) = provider.of("handle_tool_call")
    assert STORED not in call.args[1]["a"]
    assert call.args[1]["b"] == canary.secret


def test_names_of_sessions_arrive_as_they_are(equipped: Callable[..., MemoryManager]) -> None:
    name = CANARIES[0].secret
    provider = Recorder(tools=[TOOL])
    manager = equipped(provider)
    manager.sync_all(f"my key {name}", "answer", session_id=name)
    manager.prefetch_all(f"my key {name}", session_id=name)
    manager.on_delegation(f"my key {name}", "result", child_session_id=name)
    manager.on_session_switch(name, parent_session_id=name)
    assert manager.flush_pending(10)
    assert provider.of("sync_turn")[0].kwargs["session_id"] == name
    assert name not in provider.of("sync_turn")[0].args[0]
    assert provider.of("prefetch")[0].kwargs["session_id"] == name
    assert provider.of("on_delegation")[0].kwargs["child_session_id"] == name
    assert provider.of("on_session_switch")[0].args[0] == name


def test_a_person_may_switch_it_off_and_is_told_so(plugged: Path) -> None:
    config = plugged / "config.yaml"
    config.write_text(config.read_text() + "  redact: off\n")
    manager = MemoryManager.from_config(plugged)
    manager.initialize_all("s1")
    secret = CANARIES[0].secret
    manager.sync_all(f"my key {secret}", "answer")
    assert manager.flush_pending(10)
    assert any("redact is off" in warning for warning in manager.warnings)
    manager.shutdown_all()
    assert secret in (plugged / "journal.jsonl").read_text()


def test_what_people_word_of_a_session_is_masked_and_who_they_are_is_not(home: Path) -> None:
    token = next(each.secret for each in CANARIES if each.kind == "github-token")
    provider = Recorder(sync_turn=raising(ConnectionError("down")))
    manager = MemoryManager(home=home)
    assert manager.add_provider(provider)
    worded = dict.fromkeys(("session_title", "user_name", "chat_name"), f"about {token}")
    manager.initialize_all("s1", user_id="u1", **worded)
    manager.on_session_switch("s2", **worded)
    manager.sync_all("question", "answer")
    assert not manager.flush_pending(0.2)
    assert token not in repr([(call.hook, call.args, call.kwargs) for call in provider.calls])
    assert provider.of("initialize")[0].kwargs["user_id"] == "u1"
    assert token.encode() not in on_disk(home)
    manager.shutdown_all()
