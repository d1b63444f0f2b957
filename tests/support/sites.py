"""Folders that look like site-packages, with distributions in them."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from textwrap import dedent

MEMORY = "hermes_agent.memory_providers"
PLUGINS = "hermes_agent.plugins"
OBSERVERS = "hermes_plugins.observers"

PROVIDER = """
from hermes_core import MemoryProvider

class Provider(MemoryProvider):
    name = "{name}"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        pass

    def get_tool_schemas(self):
        return []

def register(ctx):
    ctx.register_memory_provider(Provider())
"""


def provider_source(name: str) -> str:
    """A module with a minimal provider and ``register(ctx)``."""
    return PROVIDER.format(name=name)


class Site:
    """A folder on the import path into which distributions are put, as pip would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(
        self,
        name: str,
        version: str = "1.0",
        *,
        groups: dict[str, dict[str, str]] | None = None,
        files: dict[str, str] | None = None,
        summary: str = "",
        entry_points: bytes | None = None,
    ) -> Path:
        """Install a distribution; gives its dist-info folder."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        recorded = []
        for path, source in (files or {}).items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(dedent(source), "utf-8")
            digest = hashlib.sha256(target.read_bytes()).digest()
            text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            recorded.append(f"{path},sha256={text},{target.stat().st_size}")
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            f"Summary: {summary}\n\nText.\n",
            "utf-8",
        )
        if groups is not None:
            lines = []
            for group, entries in groups.items():
                lines.append(f"[{group}]")
                lines += [f"{key} = {value}" for key, value in entries.items()]
            entry_points = "\n".join(lines).encode()
        if entry_points is not None:
            (info / "entry_points.txt").write_bytes(entry_points)
        recorded += [f"{info.name}/METADATA,,", f"{info.name}/RECORD,,"]
        (info / "RECORD").write_text("\n".join(recorded) + "\n", "utf-8")
        return info

    def add_provider(self, name: str, distribution: str = "", version: str = "1.0") -> Path:
        """Install a distribution with one minimal provider, whose module is its own."""
        distribution = distribution or f"memory-{name}"
        module = distribution.replace("-", "_")
        return self.add(
            distribution,
            version,
            groups={MEMORY: {name: f"{module}:register"}},
            files={f"{module}/__init__.py": provider_source(name)},
            summary=f"Memory by {distribution}",
        )


def add_directory(home: Path, name: str, source: str = "", manifest: str | None = None) -> Path:
    """Put a directory plugin below a home."""
    folder = home / "plugins" / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(dedent(source) or provider_source(name), "utf-8")
    if manifest is not None:
        (folder / "plugin.yaml").write_text(dedent(manifest), "utf-8")
    return folder
