"""hermes-agent's own tool names are reserved in the manager under its name."""

from __future__ import annotations

import pytest
from support.providers import Recorder

import hermes_core
from hermes_core.loading.compat import offer_hermes_agent_modules


@pytest.fixture(autouse=True)
def _offered(home) -> None:
    offer_hermes_agent_modules()


def test_a_provider_can_not_have_a_tool_of_the_host_s():
    from agent.memory_manager import MemoryManager

    names = ("clarify", "delegate_task", "todo", "terminal", "web_search", "mine")
    manager = MemoryManager()
    manager.add_provider(Recorder(tools=[{"name": name} for name in names]))
    assert manager.get_all_tool_names() == {"mine"}
    assert not manager.has_tool("clarify")
    assert len(manager.warnings) == 5
    manager.shutdown_all()


def test_a_host_may_reserve_other_names():
    from agent.memory_manager import MemoryManager

    manager = MemoryManager(reserved_tools=["mine"], external_prefetch_timeout="2")
    manager.add_provider(Recorder(tools=[{"name": "todo"}, {"name": "mine"}]))
    assert manager.get_all_tool_names() == {"todo"}
    manager.shutdown_all()


def test_the_built_in_s_own_tools_are_there(home):
    from agent.memory_manager import MemoryManager

    manager = MemoryManager.from_config(home)
    assert isinstance(manager, MemoryManager)
    assert manager.get_all_tool_names() == {"memory", "session_search"}
    manager.shutdown_all()


def test_our_own_manager_reserves_nothing_by_itself():
    manager = hermes_core.MemoryManager()
    manager.add_provider(Recorder(tools=[{"name": "todo"}]))
    assert manager.has_tool("todo")
    manager.shutdown_all()
