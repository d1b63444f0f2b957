"""``agent.memory_provider``: the base class, and what its newer revisions have beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any, Final

from hermes_core.provider import MemoryProvider
from hermes_core.recall import RecallStatus

__all__ = [
    "INDICATOR_GLYPH",
    "PRE_COMPRESS_CHECKPOINT_API_VERSION",
    "MemoryProvider",
    "RecallStatus",
    "ctx_bound",
    "is_trivial_prompt",
    "spawn_context_thread",
]

INDICATOR_GLYPH: Final = "\N{BRAIN}"
PRE_COMPRESS_CHECKPOINT_API_VERSION: Final = 2

_TRIVIAL: Final = frozenset(
    (
        *("yes", "no", "y", "n", "yep", "nope", "yeah", "nah", "ok", "okay", "k", "sure", "lgtm"),
        *("hi", "hey", "hello", "yo", "sup", "thanks", "thank you", "cool", "nice", "great"),
        *("continue", "proceed", "go ahead", "do it", "got it", "done", "next"),
    )
)


def is_trivial_prompt(text: str | None) -> bool:
    """Whether a message says nothing to recall something for: a greeting, a yes, a command."""
    said = (text or "").strip()
    if not said or said.startswith("/"):
        return True
    while said and not said[-1].isalnum():
        said = said[:-1]
    return said.casefold() in _TRIVIAL


def ctx_bound(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs with the context variables of here, wherever it is called."""
    context = copy_context()
    return lambda *args, **kwargs: context.run(fn, *args, **kwargs)


def spawn_context_thread(
    target: Callable[..., Any],
    *,
    name: str,
    daemon: bool = True,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> threading.Thread:
    """A thread, not yet started, with the context variables of here."""
    return threading.Thread(
        target=ctx_bound(target), args=args, kwargs=dict(kwargs or {}), name=name, daemon=daemon
    )
