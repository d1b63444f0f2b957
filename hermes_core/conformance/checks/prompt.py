"""Prompt: the plugin's part of the system prompt."""

from __future__ import annotations

from hermes_core.conformance._context import CheckContext
from hermes_core.conformance.model import MUST, SHOULD, CheckFailure, check


@check(
    "HP831",
    MUST,
    "`system_prompt_block` returns the same str throughout a session",
    fix="Build the text in `initialize` and return it. Changing text belongs in `prefetch`.",
)
def prompt_is_static(context: CheckContext) -> None:
    """Model APIs cache the prompt up to the first byte that differs. With a time or a count in it,
    every turn pays for the whole prompt again.
    """
    driver = context.started()
    first = driver.call("system_prompt_block")
    where = driver.where("system_prompt_block")
    if not isinstance(first, str):
        raise CheckFailure(f"it returned {first!r:.80}", expected="a str", where=where)
    # Turns with tools and a note: what a plugin might count or quote in the block.
    context.take_turns(driver)
    if driver.call("system_prompt_block") != first:
        raise CheckFailure("it changed after two turns", where=where)


@check(
    "HP832",
    SHOULD,
    "`system_prompt_block` has a limit",
    fix="Describe how to use the memory, not what it contains.",
)
def prompt_is_bounded(context: CheckContext) -> None:
    """It is sent with every request of the session."""
    driver = context.started()
    limit = context.options.limits.prompt
    text = driver.call("system_prompt_block")
    if isinstance(text, str) and len(text) > limit:
        raise CheckFailure(
            f"{len(text):,} characters",
            expected=f"at most {limit:,}",
            where=driver.where("system_prompt_block"),
        )
