"""What people say to an agent: trivial prompts, expanded skill invocations, and plain text.

hermes-agent expands ``/skill do this`` into a message for the model that contains the whole text of
the skill. Memory is about what the person said, so the manager removes that text again.
"""

from __future__ import annotations

import re
from typing import Any, Final

from hermes_core.hookspecs import Messages

_TRIVIAL_WORDS: Final = (
    *("yes", "no", "y", "n", "yep", "nope", "yeah", "nah", "ok", "okay", "k", "sure", "lgtm"),
    *("hi", "hey", "hello", "yo", "sup", "thanks", "thank you", "cool", "nice", "great"),
    *("continue", "proceed", "go ahead", "do it", "got it", "done", "next"),
)
_TRAILING: Final = re.escape("!?.:;,\"'~()[]{}<>*&^%$#@+=`‘’“”—–…\N{NO-BREAK SPACE}")  # noqa: RUF001

#: Matches a prompt that is nothing but a greeting or an acknowledgement ("ok", "Thanks!").
TRIVIAL_PROMPT_RE: Final = re.compile(
    rf"^({'|'.join(_TRIVIAL_WORDS)})[\s{_TRAILING}]*$", re.IGNORECASE
)

# How hermes-agent words an expanded skill, to the letter.
_EXPANDED: Final = "[IMPORTANT: The user has invoked the "
_NAME: Final = re.compile(re.escape(_EXPANDED) + r'"([^"]*)"')
_SKILL: Final = "The full skill content is loaded below.]"
_SKILL_INSTRUCTION: Final = (
    "The user has provided the following instruction alongside the skill invocation: "
)
_AFTER_SKILL: Final = "\n\n[Runtime note:"
_BUNDLE: Final = " skill bundle,"
_BUNDLE_INSTRUCTION: Final = "\nUser instruction: "
_AFTER_BUNDLE: Final = "\n\n[Loaded as part of the "


def is_trivial_prompt(text: str | None) -> bool:
    """Return whether a prompt contains nothing to recall memories for.

    Args:
        text: What the user said.

    Returns:
        True for nothing, a slash command, a greeting or an acknowledgement.
    """
    said = (text or "").strip()
    return not said or said.startswith("/") or TRIVIAL_PROMPT_RE.match(said) is not None


def user_instruction(text: Any) -> str:
    """Return what the user said: of an expanded skill, the instruction that came with it.

    Returns:
        The text itself if it is not an expanded skill; "" for a skill without an instruction, for
        blank text, and for anything that is not text.
    """
    if not isinstance(text, str) or not text.strip():
        return ""
    if not text.startswith(_EXPANDED):
        return text
    if _BUNDLE in text:  # the instruction comes before the skills, which may hold the marker too
        return _between(text.partition(_BUNDLE_INSTRUCTION)[2], _AFTER_BUNDLE)
    if _SKILL in text and _SKILL_INSTRUCTION in text:  # here it comes after the skill
        return _between(text.rpartition(_SKILL_INSTRUCTION)[2], _AFTER_SKILL)
    return ""


def _between(text: str, end: str) -> str:
    return text.partition(end)[0].strip()


def as_typed(text: str) -> str:
    """Return an expanded skill as the user typed it, ``/name instruction``; others unchanged."""
    if not text.startswith(_EXPANDED):
        return text
    found = _NAME.match(text)
    name = found[1].strip() if found is not None else "skill"
    return f"{name if name.startswith('/') else f'/{name}'} {user_instruction(text)}".rstrip()


def typed_messages(messages: Messages | None) -> Messages:
    """Return a copy of a conversation, with expanded skills as the user typed them.

    A copy, so that providers can't change the host's list, nor the host theirs.
    """
    return [_typed(each) if isinstance(each, dict) else each for each in messages or ()]


def _typed(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") == "user" and isinstance(content, str):
        return {**message, "content": as_typed(content)}
    return dict(message)
