"""The guard: finds text in notes that would command the model, hides something, or holds a secret.

`scan` looks at one text. What it objects to is refused on the way in and left out of the prompt;
only a person can allow it (`hermes-plugins memory allow`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

from hermes_builtin.notes.guard_disguises import readings, respelt
from hermes_builtin.notes.guard_hidden import HiddenText, hidden_characters, hidden_text
from hermes_builtin.notes.guard_rules import (
    Match,
    Text,
    file_text,
    known_spans,
    plain,
    quoted,
    search,
)
from hermes_builtin.notes.guard_weights import family, suspicious

if TYPE_CHECKING:
    from hermes_core.privacy import Redactor

# -- Looks for text in notes that would command the model instead of informing it ---------------
#
# Notes go into every system prompt, so one poisoned entry outlives the conversation that
# planted it. Three things are looked for: orders that override the model's instructions,
# orders to carry data away, and characters that a person can't see. Nothing in the text can
# switch the scan off.
#
# Disguises that a model sees through are undone first. Some change the whole text (base64,
# ``s p a c e d`` letters), others single words (``1gn0re``). A word is changed only into one
# that the rules know: ordinary text has no other reading.

_QUOTED: Final = 60


def read_files() -> None:
    """Read the rules, so that a later scan needs no file. They are parsed with the first scan."""
    for name in ("rules", "words", "weights"):
        file_text(f"guard-{name}.txt")


def scan(text: str) -> HiddenText | None:
    """The first thing wrong with a text, or None."""
    return hidden_characters(text) or _command(text) or hidden_text(text)


def _command(text: str) -> HiddenText | None:
    first = Text.of(plain(text))
    found = _search(first) or next(filter(None, map(_search, readings(text, first))), None)
    if found is None:
        return None
    quote = " ".join(found.quote.split())
    return HiddenText(
        found.kind, f"“{quote if len(quote) <= _QUOTED else quote[:_QUOTED] + '...'}”"
    )


def _search(text: Text) -> Match | None:
    spans = known_spans(text)
    found = search(text, spans)
    if found is None and (other := respelt(text)):
        found = search(other, known_spans(other))
    if found is None and (sentence := suspicious(text.words, spans)):
        found = Match(family(sentence), quoted(sentence.words))
    return found


__all__ = ["HiddenText", "read_files", "scan"]

# -- Secrets in notes, found by the rules that mask what an external provider gets --------------
#
# Notes are part of every system prompt, so a secret in one is sent to the model's provider in
# every conversation.

SECRET: Final = "secret"  # noqa: S105 - a kind of finding

_Value = TypeVar("_Value")


def find_secret(value: str | list[str]) -> HiddenText | None:
    """The kinds of secrets in a text, or in any of several; None without one."""
    kinds = _redactor().redact(value).kinds
    return HiddenText(SECRET, ", ".join(kinds)) if kinds else None


def without_secrets(value: _Value) -> _Value:
    """A text, or a tuple or list of texts, with a mask in place of each secret."""
    masked: _Value = _redactor().redact(value).value
    return masked


@cache
def _redactor() -> Redactor:
    from hermes_core.privacy import Redactor  # noqa: PLC0415 - not needed to start an agent

    return Redactor()
