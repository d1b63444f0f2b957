"""The host's conversation stays the host's, however late a provider gets to see it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.providers import Recorder, running


def test_what_a_host_does_to_its_list_afterwards_does_not_change_what_was_written() -> None:
    seen: list[Any] = []
    blocker = threading.Event()
    external = Recorder(
        sync_turn=lambda *args, messages, **kwargs: seen.append(list(messages)),
        on_session_end=lambda messages: seen.append(list(messages)),
        on_delegation=lambda *args, **kwargs: blocker.wait(60),
    )
    with running(external) as manager:
        manager.on_delegation("t", "r")  # keeps the lane busy
        messages = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
        manager.sync_all("u", "a", messages=messages)
        manager.on_session_end(messages)
        messages.clear()
        blocker.set()
        assert manager.flush_pending(60)
    assert [len(each) for each in seen] == [2, 2]


def test_a_provider_that_changes_its_list_does_not_change_the_host_s() -> None:
    messages = [{"role": "user", "content": "u"}]
    external = Recorder(
        on_pre_compress=lambda each: each.clear(),
        on_session_end=lambda each: each.clear(),
        sync_turn=lambda *args, messages, **kwargs: messages.clear(),
    )
    with running(external) as manager:
        manager.on_pre_compress(messages)
        manager.sync_all("u", "a", messages=messages)
        manager.on_session_end(messages)
        manager.flush_pending(5)
    assert messages == [{"role": "user", "content": "u"}]


@pytest.mark.parametrize(
    "messages", [None, [object()], ["hello"], [None]], ids=["none", "objects", "texts", "nones"]
)
def test_messages_of_another_kind_break_no_turn(messages: Any) -> None:
    external = Recorder()
    with running(external) as manager:
        manager.sync_all("u", "a", messages=messages)
        manager.on_pre_compress(messages)
        manager.on_session_end(messages)
        assert manager.flush_pending(60)
    assert len(external.of("sync_turn")) == len(external.of("on_session_end")) == 1
