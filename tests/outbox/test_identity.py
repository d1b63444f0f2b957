"""A stream is of one person: whatever ids look like, no write is delivered for somebody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from support.journals import noted
from support.outboxes import open_store

from hermes_core import MemoryManager, SessionContext
from hermes_core.outbox import StreamKey
from hermes_core.outbox.admin import add_archived, entries
from hermes_core.outbox.records import ProviderKey
from hermes_core.provider import PastSession

pytestmark = pytest.mark.usefixtures("both_storages")

Begin = Callable[..., MemoryManager]

#: Two people each, who have sessions of one name.
PAIRS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"user_id": "1001", "platform": "telegram"}, {"user_id": "1001", "platform": "discord"}),
    ({"user_id": UUID(int=1)}, {"user_id": UUID(int=2)}),
    ({"user_id": b"one"}, {"user_id": b"two"}),
    ({"user_id": "\ud800"}, {"user_id": "\ud801"}),
    ({"user_id": "\ufffd"}, {"user_id": "\ud801"}),
    ({"user_id": "a"}, {"user_id": "A"}),
    ({"user_id": "a"}, {"user_id": "a "}),
    ({"user_id": "a\0b"}, {"user_id": "a\0c"}),
    ({"user_id": "caf\u00e9"}, {"user_id": "cafe\u0301"}),
    ({"user_id": ""}, {"user_id": "a"}),
    ({"user_id": "a", "chat_id": "b"}, {"user_id": "a", "chat_id": "c"}),
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
def test_two_people_have_two_streams(one: dict[str, Any], other: dict[str, Any]) -> None:
    keys = [
        StreamKey.of("journal", "", SessionContext.from_keywords("s\ud800", facts))
        for facts in (one, other)
    ]
    assert keys[0] != keys[1]
    for key, facts in zip(keys, (one, other), strict=True):
        assert key.context.session_id == "s\ud800"
        assert key.context.user_id == str(facts["user_id"])


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
def test_what_an_ended_process_left_is_delivered_for_the_person_who_said_it(
    one: dict[str, Any], other: dict[str, Any], plugged: Path, begun: Begin
) -> None:
    (plugged / "down").touch()
    for number, facts in enumerate((one, other)):
        manager = begun("same\ud800", **facts)
        manager.sync_all(f"word {number}", "answer")
        assert not manager.warnings
        manager.shutdown_all()
    (plugged / "down").unlink()
    assert begun("later", user_id="somebody").flush_pending(20)
    got = {each["text"]: each for each in noted(plugged) if each["what"] == "end"}
    for number, facts in enumerate((one, other)):
        turn = got[f"word {number}"]
        assert turn["user"] == str(facts["user_id"])
        assert turn["platform"] == facts.get("platform", "cli")


def test_a_turn_of_one_is_not_taken_for_the_same_turn_of_another(home: Path) -> None:
    """Both said it at the same moment in sessions of one name; one of them waits already."""
    store = open_store(home)
    turn = {"at": 1.0, "user_content": "hi", "assistant_content": "ho", "messages": None}
    sessions = [
        PastSession(
            "same",
            {"platform": platform, "user_id": user, "agent_identity": "default"},
            lambda: [turn],
        )
        for platform in ("telegram", "discord")
        for user in ("1", "2")
    ]
    for _ in range(2):
        result = add_archived(
            store, ProviderKey("journal", ""), sessions, lambda arguments: arguments
        )
    assert result.known == 4
    found = entries(store)
    people = {each.key.context.identity[:2] for each in found}
    assert people == {("telegram", "1"), ("telegram", "2"), ("discord", "1"), ("discord", "2")}
    assert len({each.event_id for each in found}) == 4
    store.close()
