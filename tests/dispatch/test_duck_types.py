"""Whatever can be called like a provider is one."""

from __future__ import annotations

import functools
from typing import Any
from unittest.mock import MagicMock

from support.providers import Minimal, Recorder, raising, running


def _failures(manager: Any, hook: str) -> int:
    return manager.health()["ext"][hook].failures


def test_a_duck_type_with_only_the_four_members_goes_through_a_whole_life() -> None:
    class Duck:
        name = "ext"

        def is_available(self):
            return True

        def initialize(self, session_id, **kwargs):
            pass

        def get_tool_schemas(self):
            return []

    with running(Duck()) as manager:
        manager.on_turn_start(1, "m")
        assert manager.build_system_prompt() == ""
        assert manager.prefetch_all("q") == ""
        manager.sync_all("u", "a")
        manager.queue_prefetch_all("q")
        assert manager.on_pre_compress([]) == ""
        assert manager.recall_status_all() == []
        manager.on_memory_write("add", "memory", "x")
        manager.on_delegation("t", "r")
        manager.on_session_end([])
        manager.on_session_switch("s2")
        assert manager.flush_pending(60)
        manager.shutdown_all()
        assert all(each.failures == 0 for each in manager.health()["ext"].values())


def test_a_duck_type_without_inspection_is_initialised() -> None:
    seen = []

    class Duck:
        name = "ext"

        def initialize(self, session_id, **kwargs):
            seen.append(session_id)

    with running(Duck(), start=False) as manager:
        manager.initialize_all_for_inspection("look")
    assert seen == ["look"]


def test_a_provider_with_its_own_inspection_is_only_inspected() -> None:
    provider = Recorder()
    with running(provider, start=False) as manager:
        manager.initialize_all_for_inspection("look", platform="cli")
    assert provider.of("initialize") == []
    assert provider.of("initialize_for_inspection")[0].args == ("look",)
    assert provider.of("initialize_for_inspection")[0].kwargs["platform"] == "cli"


def test_methods_written_in_c_are_called_with_everything() -> None:
    provider = Minimal()
    # str.format has no signature that could be read.
    provider.prefetch = "{0} in {session_id}".format  # type: ignore[method-assign]
    with running(provider) as manager:
        assert manager.prefetch_all("q", session_id="s") == "q in s"


def test_methods_in_c_with_a_signature_get_what_fits() -> None:
    queued: list[str] = []
    provider = Minimal()
    provider.queue_prefetch = queued.append  # type: ignore[method-assign]
    with running(provider) as manager:
        manager.queue_prefetch_all("q", session_id="s")
        manager.flush_pending()
    assert queued == ["q"]


def test_partials_and_callable_objects_are_methods_too() -> None:
    def recall(prefix, query, *, session_id):
        return f"{prefix}{query}@{session_id}"

    class Prompt:
        def __call__(self):
            return "prompt"

    provider = Minimal()
    provider.prefetch = functools.partial(recall, "p:")  # type: ignore[method-assign]
    provider.system_prompt_block = Prompt()  # type: ignore[method-assign]
    with running(provider) as manager:
        assert manager.prefetch_all("q", session_id="s") == "p:q@s"
        assert manager.build_system_prompt() == "prompt"


def test_static_and_class_methods_work() -> None:
    class Provider(Minimal):
        @staticmethod
        def prefetch(query, session_id=""):
            return f"static {query} {session_id}"

        @classmethod
        def system_prompt_block(cls):
            return cls.__name__

    with running(Provider()) as manager:
        assert manager.prefetch_all("q", session_id="s") == "static q s"
        assert manager.build_system_prompt() == "Provider"


def test_decorated_methods_keep_their_signature() -> None:
    def traced(method):
        @functools.wraps(method)
        def inner(*args, **kwargs):
            return method(*args, **kwargs)

        return inner

    class Provider(Minimal):
        @traced
        def prefetch(self, query):
            return f"found {query}"

    with running(Provider()) as manager:
        assert manager.prefetch_all("q", session_id="s") == "found q"


def test_a_mock_can_stand_in_for_a_provider() -> None:
    mock = MagicMock()
    mock.name = "ext"
    mock.get_tool_schemas.return_value = []
    mock.prefetch.return_value = "mocked"
    with running(mock) as manager:
        assert manager.prefetch_all("q", session_id="s") == "mocked"
    mock.prefetch.assert_called_once_with("q", session_id="s")
    mock.shutdown.assert_called_once_with()


def test_a_member_that_is_no_method_fails_alone() -> None:
    provider = Minimal()
    provider.prefetch = 5  # type: ignore[method-assign, assignment]
    provider.system_prompt_block = None  # type: ignore[method-assign, assignment]
    with running(provider) as manager:
        assert manager.prefetch_all("q") == ""
        assert manager.build_system_prompt() == ""
        assert _failures(manager, "prefetch") == 1


def test_a_method_that_is_a_raising_property_fails_alone() -> None:
    class Provider(Minimal):
        @property
        def prefetch(self):
            raise RuntimeError("not yet")

        @property
        def sync_turn(self):
            raise RuntimeError("never")

    with running(Provider()) as manager:
        assert manager.prefetch_all("q") == ""
        manager.sync_all("u", "a")
        manager.flush_pending()
        assert "not yet" in manager.health()["ext"]["prefetch"].last_error
        assert "never" in manager.health()["ext"]["sync_turn"].last_error


def test_a_type_error_inside_a_method_is_not_taken_for_a_wrong_signature() -> None:
    provider = Recorder(prefetch=raising(TypeError("inside")))
    with running(provider) as manager:
        assert manager.prefetch_all("q") == ""
        assert len(provider.of("prefetch")) == 1
        assert manager.health()["ext"]["prefetch"].last_error == "TypeError: inside"
