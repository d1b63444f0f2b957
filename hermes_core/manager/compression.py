"""What providers contribute before messages are discarded: texts for the summary, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_core.dispatch import HookCalls, Outcome, ProviderAdapter
from hermes_core.errors import CheckpointError, describe
from hermes_core.hookspecs import Messages
from hermes_core.manager.prompts import as_typed, typed_messages


def supports_checkpoints(adapters: Sequence[ProviderAdapter], api_version: int) -> bool:
    """Return whether a provider promises durable checkpoints of this version."""
    return any(each.checkpoint_version >= api_version for each in adapters)


def pre_compress(
    hooks: HookCalls,
    adapters: Sequence[ProviderAdapter],
    messages: Messages,
    evidence: Messages | None,
    *,
    required: bool,
    api_version: int,
) -> list[Outcome]:
    """Call ``on_pre_compress`` of every provider; the arguments are those of the manager.

    Raises:
        CheckpointError: A checkpoint is required and was not made.
    """
    # Without a provider that makes checkpoints, hermes-agent's plain form of the hook: all
    # messages, no keyword, and an error costs only that provider's text.
    if not supports_checkpoints(adapters, api_version):
        if required:
            raise CheckpointError(f"no provider makes pre-compress checkpoints, API v{api_version}")
        return hooks.call("on_pre_compress", messages=typed_messages(messages), extra={})
    evidence = without_tools(messages) if evidence is None else evidence
    outcomes = []
    for adapter in adapters:
        call = hooks.only(adapter, "on_pre_compress")
        if adapter.checkpoint_version < api_version:
            # An older provider does not know the keyword, so it is not asked for one.
            outcomes.append(call(messages=typed_messages(messages), extra={}))
            continue
        extra = {"require_checkpoint": required}
        outcomes.append(call(messages=typed_messages(evidence), extra=extra))
        if required:
            # At once, not after the loop: the host still has the messages, so nothing more has to
            # be stored.
            _require_success(outcomes[-1])
    return outcomes


def _require_success(outcome: Outcome) -> None:
    if outcome.error is not None:
        where = f"provider {outcome.provider}"
        raise CheckpointError(describe(outcome.error), where=where) from outcome.error


def without_tools(messages: Messages | None) -> Messages:
    """Return what the user and the assistant said in a conversation, as text.

    Without system prompts, tool calls and their results, and without a summary that replaces
    earlier messages: nobody said it.
    """
    return [
        {"role": each["role"], "content": text}
        for each in messages or ()
        if isinstance(each, dict)
        and each.get("role") in ("user", "assistant")
        and not each.get("_compressed_summary")
        and (text := _text(each.get("content"))).strip()
    ]


def _text(content: Any) -> str:
    """Return the text of a message, which may consist of parts, some of them images."""
    if isinstance(content, list):
        parts = [each.get("text") for each in content if isinstance(each, dict)]
        content = "\n".join(each for each in parts if isinstance(each, str))
    return as_typed(content) if isinstance(content, str) else ""
