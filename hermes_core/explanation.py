"""What would be recalled for a question, and why: an agent's turn up to the model, and no further.

The provider is told that a subagent asks: such a one recalls, and writes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hermes_core.activation import deadlines_of
from hermes_core.apart import Apart, Tell, run_apart
from hermes_core.backends import ServiceProvider
from hermes_core.config import Config
from hermes_core.errors import AnswerLate, describe
from hermes_core.manager import MemoryManager
from hermes_core.names import BUILTIN
from hermes_core.provider import MemoryProvider

#: The session in which is asked, unless a person names one.
SCRATCH: Final = "hermes-explain"

_CONTEXT: Final = "subagent"
_SLACK_SECONDS: Final = 5.0


def explain(config: Config, question: str, *, session: str, user: str) -> Apart:
    """Ask in a child process; gives one row, unless a plugin kept it from coming to its end."""
    deadlines = deadlines_of(config)
    seconds = (
        deadlines.initialize + deadlines.hook + deadlines.prefetch + deadlines.shutdown
        + _SLACK_SECONDS
    )  # fmt: skip
    arguments = {
        "home": str(config.home), "question": question, "session": session, "user": user,
    }  # fmt: skip
    return run_apart(config, "hermes_core.explanation:ask", arguments, seconds=seconds)


def ask(tell: Tell, home: str, question: str, session: str, user: str) -> None:
    """The child's side."""
    manager = MemoryManager.from_config(Path(home))
    who = {"user_id": user} if user else {}
    manager.initialize_all(session or SCRATCH, platform="cli", agent_context=_CONTEXT, **who)
    manager.on_turn_start(1, question)
    recalled = manager.recall(question)
    outcomes = recalled.outcomes
    rows = []
    for provider in manager.providers:
        theirs = (each for each in outcomes if manager.get_provider(each.provider) is provider)
        outcome = next(theirs, None)
        text = str(outcome.value or "") if outcome is not None else ""
        error = outcome.error if outcome is not None else None
        rows.append(
            {
                "provider": provider.name if outcome is None else outcome.provider,
                "seconds": 0.0 if outcome is None else outcome.seconds,
                "characters": len(text),
                "error": "" if error is None else describe(error),
                "why_nothing": "" if text.strip() or error else _why_nothing(provider),
                "late": isinstance(error, AnswerLate),
            }
        )
    tell(
        {
            "injected": recalled.text,
            "providers": rows,
            "left_out": list(recalled.left_out),
            "problems": [str(each) for each in manager.problems],
            "warnings": list(manager.warnings),
        }
    )
    manager.shutdown_all()


def _why_nothing(provider: MemoryProvider) -> str:
    """What is known of why a provider recalled nothing."""
    if provider.name == BUILTIN:
        return "its notes are in the system prompt; conversations are found by session_search"
    if not _does(provider, "prefetch"):
        return "it has no recall of its own, only tools or notes"
    asks_at_once = isinstance(provider, ServiceProvider)
    if _does(provider, "queue_prefetch") and not asks_at_once:
        return "it found nothing; it prepares recall after each turn, and here was none before"
    return "it found nothing"


def _does(provider: MemoryProvider, hook: str) -> bool:
    """Whether a provider has a method of its own for a hook."""
    method = getattr(provider, hook, None)
    return method is not None and getattr(method, "__func__", None) is not getattr(
        MemoryProvider, hook
    )
