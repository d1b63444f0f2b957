"""Directory plugins: a folder with an ``__init__.py`` and, usually, a plugin.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hermes_core.discovery._info import ProviderInfo

_MENTIONS: Final = (b"register_memory_provider", b"MemoryProvider")
_MAX_BYTES: Final = 1_000_000


def home_directories(home: Path) -> Iterator[ProviderInfo]:
    """The plugins that a person put below ``$HERMES_HOME/plugins``."""
    folder = home / "plugins"
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(("_", ".")) or not entry.is_dir():
            continue
        yield describe_directory(entry)


def describe_directory(folder: Path) -> ProviderInfo:
    """What is known about a directory plugin without importing it."""
    manifest, problem = read_manifest(folder)
    state = "broken" if problem else "installed"
    loadable = True
    if not (folder / "__init__.py").is_file():
        state, problem, loadable = "broken", "has no __init__.py", False
    elif not any(mentions_provider(path) for path in folder.glob("*.py")):
        state, problem, loadable = "no-provider", "registers no memory provider", False
    return ProviderInfo(
        name=folder.name,
        source="directory",
        version=_text(manifest.get("version")),
        description=_text(manifest.get("description")),
        state=state,
        problem=problem,
        directory=folder,
        loadable=loadable,
    )


def mentions_provider(path: Path) -> bool:
    """Whether a source file speaks of memory providers; read as text, never run."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES)
    except OSError:
        return False
    return any(word in content for word in _MENTIONS)


def read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """plugin.yaml, of which every field is optional, and what is wrong with it."""
    path = folder / "plugin.yaml"
    try:
        if path.stat().st_size > _MAX_BYTES:
            return {}, "plugin.yaml is too large to be one"
        content = path.read_bytes()
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"plugin.yaml can't be read: {error.strerror or error}"
    import yaml  # noqa: PLC0415 - no plugin.yaml, no cost

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data = yaml.load(content.decode("utf-8-sig"), Loader=loader)  # noqa: S506 - a safe one
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        return {}, f"plugin.yaml is not valid YAML: {' '.join(str(error).split())}"
    return (data, "") if isinstance(data, dict) else ({}, "plugin.yaml has no keys")


def _text(value: Any) -> str:
    return "" if value is None else " ".join(str(value).split())
