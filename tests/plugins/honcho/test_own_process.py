"""The plugin in its own process (`isolation: process`), against a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import posix_only
from support.honcho_agents import said
from support.honcho_server import HonchoServer
from support.our_plugins import install_plugin
from support.sites import Site

from hermes_core import MemoryManager
from hermes_core.dispatch.isolation import IsolatedProvider


@posix_only
@pytest.mark.usefixtures("few_distributions")
def test_turns_reach_the_server_and_come_back(
    server: HonchoServer, site: Site, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin("honcho", site.folder)
    monkeypatch.setenv("HONCHO_BASE_URL", server.url)
    (home / "config.yaml").write_text(
        "memory:\n  provider: honcho\n  prefetch_budget: 60\n"
        "  deadlines: {load: 120, available: 60, tool: 60}\n  honcho:\n    isolation: process\n"
    )
    manager = MemoryManager.from_config(home)
    assert manager.problems == ()
    manager.initialize_all("s1", platform="cli", user_id="ada")
    provider = manager.get_provider("honcho")
    assert isinstance(provider, IsolatedProvider)
    assert provider.confirms_delivery is True  # set by its initialize
    manager.sync_all("I deploy on Mondays with make release.", "Noted.")
    assert manager.flush_pending(60)
    assert "I deploy on Mondays with make release." in said(server)
    assert "honcho_search" in manager.get_all_tool_names()
    found = manager.handle_tool_call("honcho_search", {"query": "deploy"})
    assert "make release" in found
    manager.shutdown_all()
