"""`SessionContext`: what a session is, from `initialize` to the outbox."""

from __future__ import annotations

import inspect
import json
from dataclasses import FrozenInstanceError, fields
from uuid import UUID

import pytest

from hermes_core import MemoryProvider, SessionContext
from hermes_core.session import CHANGEABLE, FREE_TEXT, OPTIONAL


def test_the_contract_documents_every_field() -> None:
    documentation = inspect.getdoc(MemoryProvider.initialize) or ""
    names = {each.name for each in fields(SessionContext)} - {"more", "gateway_session_key"}
    assert {name for name in names if name not in documentation} == set()


def test_a_provider_gets_what_is_known_and_nothing_else() -> None:
    context = SessionContext("s1", "/home", user_id="ada", more={"tool_count": 3})
    assert context.keywords() == {
        "hermes_home": "/home",
        "platform": "cli",
        "agent_context": "primary",
        "agent_identity": "default",
        "agent_workspace": "hermes",
        "user_id": "ada",
        "tool_count": 3,
    }
    assert SessionContext.from_keywords("s1", context.keywords()) == context


def test_a_keyword_without_a_value_counts_as_unknown() -> None:
    context = SessionContext.from_keywords("s1", {"user_id": None, "agent_context": None})
    assert context == SessionContext("s1")
    assert context.is_primary


@pytest.mark.parametrize("agent_context", ["subagent", "cron", "flush"])
def test_only_the_agent_itself_is_primary(agent_context: str) -> None:
    assert not SessionContext(agent_context=agent_context).is_primary


def test_the_stored_form_is_the_one_of_existing_outboxes() -> None:
    context = SessionContext("s1", "/home", user_id="ada", more={"model": object(), "depth": 1})
    assert context.to_json() == (
        '{"agent_context": "primary", "agent_identity": "default", "agent_workspace": "hermes", '
        '"depth": 1, "platform": "cli", "user_id": "ada"}'
    )
    assert SessionContext.from_json("s1", context.to_json()).user_id == "ada"


@pytest.mark.parametrize("text", ["", "[]", "null", "{"])
def test_a_stored_form_that_is_damaged_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        SessionContext.from_json("s1", text)


def test_a_switch_keeps_the_place_and_changes_the_person() -> None:
    first = SessionContext("s1", platform="telegram", user_id="ada", parent_session_id="s0")
    changes = {"user_id": "bob", "reason": "resume", "platform": "cli", "chat_id": None}
    assert first.switched("s2", "", changes) == SessionContext(
        "s2", platform="telegram", user_id="bob"
    )
    assert first.switched("s2", "s1", {}).parent_session_id == "s1"


def test_who_takes_part_is_the_same_in_every_session_of_a_chat() -> None:
    first = SessionContext("s1", user_id="ada", session_title="Mondays")
    second = first.switched("s2", "s1", {"session_title": "Tuesdays"})
    assert first.participants() == second.participants()
    assert "session_title" not in json.dumps(first.participants())


def test_the_lists_of_names_are_lists_of_fields() -> None:
    names = {each.name for each in fields(SessionContext)}
    assert {*OPTIONAL, *CHANGEABLE} <= names
    assert {*FREE_TEXT} - names == {"name"}  # of a turn's author


def test_a_context_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        SessionContext().user_id = "ada"  # type: ignore[misc]


def test_another_user_or_chat_leaves_nothing_of_the_one_before() -> None:
    known = {
        "user_id": "ada", "user_id_alt": "+1", "user_name": "Ada", "chat_id": "c1",
        "chat_name": "Hers", "thread_id": "t", "gateway_session_key": "dm:ada",
    }  # fmt: skip
    before = SessionContext.from_keywords("s1", known)
    same = before.switched("s2", "s1", {"user_id": "ada"})
    assert same.participants() == before.participants()
    other = before.switched("s1", "", {"user_id": "bob", "user_name": "Bob"})
    assert (other.user_id, other.user_name, other.user_id_alt) == ("bob", "Bob", None)
    assert other.gateway_session_key is None
    assert other.chat_name == "Hers"
    moved = before.switched("s1", "", {"chat_id": "c2"})
    assert (moved.chat_id, moved.chat_name, moved.thread_id) == ("c2", None, None)
    assert moved.gateway_session_key is None
    assert moved.user_name == "Ada"


def test_an_id_that_is_an_object_is_part_of_the_stored_form() -> None:
    one, other = (SessionContext("s", user_id=UUID(int=each)) for each in (1, 2))  # type: ignore[arg-type]
    assert one.to_json() != other.to_json()
    assert one.identity != other.identity
