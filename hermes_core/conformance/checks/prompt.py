"""Prompt: the plugin's part of the system prompt."""

from __future__ import annotations

from hermes_core.conformance._bench import Bench
from hermes_core.conformance._model import MUST, SHOULD, Failed, check


@check(
    "HP831",
    MUST,
    "`system_prompt_block` is a str that stays the same for a session",
    fix="Make the text in `initialize` and return it; what changes belongs to `prefetch`.",
)
def prompt_is_static(bench: Bench) -> None:
    """Model providers cache the prompt up to the first byte that differs. A time or a count in it
    makes every turn pay for the whole prompt again.
    """
    driver = bench.started()
    first = driver.call("system_prompt_block")
    where = driver.where("system_prompt_block")
    if not isinstance(first, str):
        raise Failed(f"it returned {first!r:.80}", expected="a str", where=where)
    bench.take_turns(driver)
    if driver.call("system_prompt_block") != first:
        raise Failed("it changed after two turns", where=where)


@check(
    "HP832",
    SHOULD,
    "`system_prompt_block` is bounded",
    fix="Say how to use the memory, not what is in it.",
)
def prompt_is_bounded(bench: Bench) -> None:
    """It is sent with every request of the session."""
    driver = bench.started()
    limit = bench.options.limits.prompt
    text = driver.call("system_prompt_block")
    if isinstance(text, str) and len(text) > limit:
        raise Failed(
            f"{len(text):,} characters",
            expected=f"at most {limit:,}",
            where=driver.where("system_prompt_block"),
        )
