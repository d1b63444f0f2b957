"""Imports mem0ai, which does more when it is imported than it should."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

# The environment is the process's: two imports at once would restore each other's values.
_LOCK: Final = threading.Lock()


class Sdk(NamedTuple):
    """What we use of mem0ai."""

    MemoryClient: Any
    Memory: Any
    EmbedderFactory: Any


def load_sdk(folder: Path, *, telemetry: bool) -> Sdk:
    """Import mem0ai: without telemetry, and with its files where the Hermes home is.

    It reads both from the environment, once, while it is imported. The environment, the
    filters of warnings and the level of another package's logger, which it changes, are put
    back. Its own warnings about optional packages go to the log, not to the terminal.
    """
    # mem0ai creates its folder with the default mode, readable by others.
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    variables = {"MEM0_DIR": str(folder), "MEM0_TELEMETRY": str(telemetry)}
    # Only the first import reads the variables: a later call with another folder has no effect,
    # which is why a process has one folder for mem0ai's files.
    with _LOCK, _variables(variables), warnings.catch_warnings(), _level_kept("urllib3"):
        warnings.simplefilter("ignore")
        module = import_module("mem0")
        factories = import_module("mem0.utils.factory")
    for name in ("mem0", "qdrant_client"):
        logger = logging.getLogger(name)
        # Without a handler, Python prints warnings of a library to stderr, in the middle of a
        # conversation.
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    _make_private(folder)
    return Sdk(module.MemoryClient, module.Memory, factories.EmbedderFactory)


@contextmanager
def _variables(wanted: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _level_kept(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    try:
        yield
    finally:
        logger.setLevel(level)


def _make_private(folder: Path) -> None:
    for path in folder.glob("*.json"):
        path.chmod(0o600)
