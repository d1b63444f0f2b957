"""Agents whose memory is a Hindsight server: the provider alone, and a whole host."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hermes_memory_hindsight.provider import HindsightProvider
from support.our_plugins import install_plugin
from support.sites import Site


def own_server(url: str, **settings: Any) -> dict[str, Any]:
    """The settings for a server of one's own."""
    return {"mode": "local_external", "api_url": url, **settings}


def new_bank() -> str:
    """A bank that nobody has yet."""
    return f"bank-{uuid.uuid4().hex[:10]}"


@contextmanager
def provider_on(
    home: Path,
    url: str,
    *,
    session: str = "s1",
    facts: dict[str, Any] | None = None,
    **settings: Any,
) -> Iterator[HindsightProvider]:
    """A provider that has been started, without a host."""
    made = HindsightProvider()
    config = own_server(url, **settings)
    made.initialize("s1", hermes_home=str(home), provider_config=config, **(facts or {}))
    try:
        yield made
    finally:
        made.shutdown()


def set_up(home: Path, site: Site, url: str, **settings: Any) -> None:
    """A home whose external provider is this plugin, as installed."""
    install_plugin("hindsight", site.folder)
    memory = {"provider": "hindsight", "hindsight": own_server(url, **settings)}
    (home / "config.yaml").write_text(json.dumps({"memory": memory}), "utf-8")
