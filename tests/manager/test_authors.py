"""Who wrote a turn: passed to providers that accept it, also when it is delivered later."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from support.providers import Minimal, running

from hermes_core import MemoryManager
from hermes_core.testing import FakeProvider

BOT = {"id": "bot:reviewer", "name": "Reviewer", "is_bot": True}


def begun(home: Path, provider: Any) -> MemoryManager:
    manager = MemoryManager(home=home)
    assert manager.add_provider(provider)
    manager.initialize_all("s1")
    return manager


def test_who_wrote_a_turn_reaches_a_provider_that_accepts_it() -> None:
    named, anything = FakeProvider(), []

    class Open(Minimal):
        def sync_turn(self, user_content, assistant_content, **kwargs):
            anything.append(kwargs)

    for provider in (named, Open()):
        with running(provider) as manager:
            manager.sync_all("u", "a", turn_author=BOT)
            manager.sync_all("u2", "a2")
            assert manager.flush_pending(10)
    assert [each.turn_author for each in named.turns] == [BOT, None]
    assert [each.get("turn_author") for each in anything] == [BOT, None]
    assert "turn_author" not in anything[1]


def test_who_wrote_a_turn_is_not_passed_to_an_older_provider() -> None:
    seen = []

    class Older(Minimal):
        def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
            seen.append(user_content)

    with running(Older()) as manager:
        manager.sync_all("u", "a", turn_author=BOT)
        assert manager.flush_pending(10)
    assert seen == ["u"]


def test_who_wrote_a_turn_is_kept_with_it_until_it_can_be_delivered(tmp_path: Path) -> None:
    down = FakeProvider()
    down.go_down()
    manager = begun(tmp_path, down)
    manager.sync_all("u", "a", turn_author=BOT)
    manager.shutdown_all()
    assert down.turns == []
    up = FakeProvider()
    manager = begun(tmp_path, up)
    assert up.wait_for("sync_turn", 1, 30)
    assert manager.flush_pending(10)
    manager.shutdown_all()
    assert [(each.user, each.turn_author) for each in up.turns] == [("u", BOT)]


def test_a_turn_that_an_earlier_version_stored_is_delivered(tmp_path: Path) -> None:
    down = FakeProvider()
    down.go_down()
    manager = begun(tmp_path, down)
    manager.sync_all("u", "a")
    manager.shutdown_all()
    database = sqlite3.connect(tmp_path / "outbox.db")
    (payload,) = database.execute("SELECT payload FROM writes").fetchone()
    database.close()
    # Without it, a version that does not know it can deliver the turn, too.
    assert json.loads(payload).keys() == {
        *("user_content", "assistant_content", "session_id", "messages"),
    }
    up = FakeProvider()
    manager = begun(tmp_path, up)
    assert up.wait_for("sync_turn", 1, 30)
    manager.shutdown_all()
    assert [each.user for each in up.turns] == ["u"]


def test_an_id_is_passed_as_it_is_and_a_name_without_secrets() -> None:
    provider = FakeProvider()
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    with running(provider) as manager:
        manager.sync_all("u", "a", turn_author={"id": secret, "name": f"Ann {secret}"})
        manager.on_turn_start(1, "u", author_id=secret, author_name=f"Ann {secret}")
        assert manager.flush_pending(10)
    (turn,) = provider.turns
    assert turn.turn_author is not None
    assert turn.turn_author["id"] == secret
    assert secret not in turn.turn_author["name"]
    start = provider.of("on_turn_start")[0].arguments
    assert start["author_id"] == secret
    assert secret not in start["author_name"]


def test_the_author_s_keywords_reach_on_turn_start() -> None:
    provider, seen = FakeProvider(), []

    class Older(Minimal):
        def on_turn_start(self, turn_number, message):
            seen.append(message)

    for each in (provider, Older()):
        with running(each) as manager:
            manager.on_turn_start(1, "u", author_id="7", author_name="Ann", author_is_bot=False)
            assert manager.flush_pending(10)
    arguments = provider.of("on_turn_start")[0].arguments
    assert {k: v for k, v in arguments.items() if k.startswith("author")} == {
        "author_id": "7",
        "author_name": "Ann",
        "author_is_bot": False,
    }
    assert seen == ["u"]
