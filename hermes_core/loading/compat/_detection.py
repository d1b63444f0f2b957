"""Which plugins were written for hermes-agent, and what stands in their way here."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hermes_core.discovery import ProviderInfo, source_files
from hermes_core.dispatch.caller import ProviderInstance, set_caller
from hermes_core.loading.compat._finder import OFFERED, is_offering, real_spec
from hermes_core.provider import MemoryProvider

# A dotted name anywhere, also in a string for importlib; the short names only in an import
# statement, since "tools" and "utils" are common words.
_THEIRS: Final = re.compile(
    rb"\b(?:agent\.(?:memory_|secret_)|hermes_constants|hermes_cli|tools\.registry|plugins\.memory)"
    rb"|^\s*(?:from|import) (?:agent|hermes_state|plugins|tools|utils)\b",
    re.MULTILINE,
)
_OURS: Final = b"hermes_core"


def is_written_for_hermes_agent(info: ProviderInfo) -> bool:
    """Return whether a plugin's sources, read as text, speak of hermes-agent's modules.

    One that mentions neither host counts too: its helper package may import what it needs. A
    process that loads only plugins for hermes_core never gets the import finder.
    """
    ours = False
    for path in source_files(info):
        content = _content(path)
        if _THEIRS.search(content):
            return True
        ours = ours or _OURS in content
    return not ours


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def begin_with_theirs(instance: ProviderInstance) -> None:
    """Begin to load a plugin; also set the home of the real hermes-agent, if it is installed.

    Its module is imported first: `set_caller` sets the home only in modules that are imported.
    """
    # Only if the finder is there, that is, a plugin for hermes-agent is being loaded.
    if is_offering() and real_spec("hermes_constants") is not None:
        importlib.import_module("hermes_constants")
    set_caller(instance)


def base_classes() -> tuple[type, ...]:
    """Return the classes that providers are subclasses of: ours, and hermes-agent's where it is."""
    # From sys.modules, since importing it here would load hermes-agent for every plugin.
    real = getattr(sys.modules.get("agent.memory_provider"), "MemoryProvider", None)
    return tuple({MemoryProvider, real} if inspect.isclass(real) else {MemoryProvider})


def clash_of(error: BaseException) -> str:
    """Why a module that a plugin could not import can't be offered here; "" if that is not it."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if name not in OFFERED:
        return ""
    for parent in _parents(name):
        module = sys.modules.get(parent)
        # A user's own utils.py or agent.py is found first, and Python then reports a missing
        # submodule, which explains nothing.
        if module is not None and not hasattr(module, "__path__"):
            place = getattr(module, "__file__", None) or "built in"
            return f"it needs {name}, but the module {parent} here ({place}) is not a package"
    return ""


def _parents(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name
