"""`explain`: what an agent would recall for a question, from which provider, and why.

A turn up to the model's call, in a sandboxed child process. Providers are started as for a
subagent: such a session recalls, and stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from json import dumps
from pathlib import Path
from typing import Final

from hermes_core.checkup.child_process import ChildResults, run_plugin_code
from hermes_core.checkup.deliveries import Problem
from hermes_core.config import Config
from hermes_core.dispatch import overrides
from hermes_core.dispatch.isolation import is_isolated
from hermes_core.errors import AnswerLate, describe
from hermes_core.loading.activation import deadlines_of
from hermes_core.manager import MemoryManager
from hermes_core.manager.tools import RESERVED
from hermes_core.privacy.origin import of_provider
from hermes_core.provider import BUILTIN, MemoryProvider
from hermes_core.service import ServiceProvider

#: The session that is used unless a person names one.
SCRATCH: Final = "hermes-explain"

# `initialize_for_inspection` must not use the network, so nothing would be recalled, and some
# plugins do nothing at all for cron and flush.
_CONTEXT: Final = "subagent"
# For what the deadlines do not cover: scanning, opening databases, and writing the result.
_SLACK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ProviderRecall:
    """What one provider recalled.

    Attributes:
        provider: Its name.
        seconds: How long it took.
        characters: The length of what it returned.
        error: Why it failed; "" if it did not.
        why_nothing: Why it returned nothing, as far as that is known.
        late: Whether it answered after its deadline.
        origin: Where the text comes from.
        isolated: Whether it runs in its own process.
        text: What it returned.
    """

    provider: str
    seconds: float = 0.0
    characters: int = 0
    error: str = ""
    why_nothing: str = ""
    late: bool = False
    origin: str = ""
    isolated: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class NoteInPrompt:
    """A note that the system prompt has, and where it comes from."""

    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would be injected into a prompt, and where it comes from.

    Attributes:
        injected: The block that the next user message would get.
        providers: What each provider recalled.
        left_out: What did not fit, and why.
        problems: What does not work.
        warnings: What a person should look at.
        notes: The notes that the system prompt has.
        system_prompt: What the providers add to the system prompt.
    """

    injected: str
    providers: tuple[ProviderRecall, ...]
    left_out: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[NoteInPrompt, ...] = ()
    system_prompt: str = ""


def explain(config: Config, question: str, *, session: str, user: str) -> ChildResults[Explanation]:
    """Ask the providers; one result, unless a plugin ends the child process."""
    deadlines = deadlines_of(config)
    seconds = (
        deadlines.initialize + deadlines.hook + deadlines.prefetch + deadlines.shutdown
        + _SLACK_SECONDS
    )  # fmt: skip
    call = partial(ask_providers, config.home, question, session=session, user=user)
    return run_plugin_code(config, call, seconds=seconds)


def ask_providers(home: Path, question: str, *, session: str, user: str) -> Iterator[Explanation]:
    """In the child process: a turn of an agent, up to the model's call."""
    manager = _started(home, session, user)
    manager.on_turn_start(1, question)
    recalled = manager.recall(question)
    rows = []
    for provider in manager.providers:
        # By identity: a provider may be listed under another name than it calls itself.
        outcome = next(
            (each for each in recalled.outcomes if manager.get_provider(each.provider) is provider),
            None,
        )
        if outcome is None:
            nothing = ProviderRecall(provider.name, why_nothing=_why_nothing(provider))
            rows.append(replace(nothing, isolated=is_isolated(provider)))
            continue
        text, error = str(outcome.value or ""), outcome.error
        rows.append(
            ProviderRecall(
                outcome.provider,
                outcome.seconds,
                len(text),
                "" if error is None else describe(error),
                "" if text.strip() or error else _why_nothing(provider),
                isinstance(error, AnswerLate),
                of_provider(outcome.provider) if text.strip() else "",
                is_isolated(provider),
                text,
            )
        )
    yield Explanation(
        recalled.text,
        tuple(rows),
        tuple(recalled.left_out),
        tuple(map(Problem.of, manager.problems)),
        tuple(manager.warnings),
        tuple(NoteInPrompt(*each) for each in manager.note_origins()),
        manager.build_system_prompt(),
    )
    # After the result was yielded and written: a hanging shutdown can't lose it.
    manager.shutdown_all()


def _started(home: Path, session: str = "", user: str = "") -> MemoryManager:
    manager = MemoryManager.from_config(home)
    who = {"user_id": user} if user else {}
    manager.initialize_all(session or SCRATCH, platform="cli", agent_context=_CONTEXT, **who)
    return manager


def _why_nothing(provider: MemoryProvider) -> str:
    """Why a provider recalled nothing, as far as that is known."""
    if provider.name == BUILTIN:
        return "its notes are in the system prompt; session_search finds conversations"
    if not overrides(provider, "prefetch"):
        return "it does not implement recall, only tools or notes"
    # A service is asked at once; others may prepare recall after a turn, for the next one.
    prepares = overrides(provider, "queue_prefetch") and not isinstance(provider, ServiceProvider)
    if prepares:
        return "it found nothing; it prepares recall after each turn, and here was none before"
    return "it found nothing"


# -- the tools that a model gets ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A tool that the model gets.

    Attributes:
        provider: Whose tool it is.
        name: Its name.
        description: What the model reads about it.
        schema: Its parameters, as JSON.
    """

    provider: str
    name: str
    description: str
    schema: str


def provider_tools(config: Config) -> ChildResults[ToolInfo]:
    """Start the providers, and return their tools."""
    deadlines = deadlines_of(config)
    seconds = deadlines.initialize + 2 * deadlines.hook + deadlines.shutdown + _SLACK_SECONDS
    return run_plugin_code(config, partial(list_tools, config.home), seconds=seconds)


def list_tools(home: Path) -> Iterator[ToolInfo]:
    """In the child process: the tools of every provider."""
    manager = _started(home)
    external = next((each.name for each in manager.providers if each.name != BUILTIN), "")
    for schema in manager.get_all_tool_schemas():
        name = str(schema["name"])
        parameters = dumps(schema.get("parameters") or {}, indent=2, default=str)
        text = str(schema.get("description", ""))
        yield ToolInfo(BUILTIN if name in RESERVED else external, name, text, parameters)
    manager.shutdown_all()
