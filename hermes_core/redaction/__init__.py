"""What must not leave the machine: secrets are masked in whatever an external provider is given.

    _runs, _formats    tokens that are known by how they look
    _contexts, _looks  secrets that are known by what stands before them
    _written           the ways in which a known secret may be written
    _masking           takes what was found out of a text
    _values            walks through nested values

Nothing is compiled before the first text is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from hermes_core.redaction._contexts import in_context, named_secret
from hermes_core.redaction._masking import Mask
from hermes_core.redaction._runs import tokens
from hermes_core.redaction._values import Rewriting, Strings
from hermes_core.redaction._written import ways_of_writing

__all__ = ["Redacted", "Redactor", "ways_of_writing"]

_KNOWN: Final = "known-secret"
#: Between the strings of one value while they are searched as one: nothing reaches across it.
_BORDER: Final = "\n\x00\n"


class Redacted(NamedTuple):
    """A value without secrets, of the same shape, and the kinds of what was masked in it."""

    value: Any
    kinds: tuple[str, ...]


class Redactor:
    """Masks secrets: known values always, well-known formats unless a person switched it off."""

    def __init__(self, known: Iterable[str] = (), *, formats: bool = True) -> None:
        self._known = {way: _KNOWN for secret in known for way in ways_of_writing(secret)}
        self._formats = formats

    def hand_off(self, value: Any) -> Redacted:
        """A value as it may leave: what is a secret anywhere in it is masked everywhere in it."""
        return self._redacted(value, formats=self._formats)

    def known_only(self, value: Any) -> Redacted:
        """A value without known secrets: for what the model says to a provider's own tool."""
        return self._redacted(value, formats=False)

    def _redacted(self, value: Any, *, formats: bool) -> Redacted:
        if not (formats or self._known):
            return Redacted(value, ())
        strings = Strings(value)
        text = _BORDER.join(strings.found)
        found: dict[str, str] = {}
        if formats:
            found.update(tokens(text))
            found.update(in_context(text))
            found.update(filter(None, (named_secret(*pair) for pair in strings.named)))
        found.update((way, kind) for way, kind in self._known.items() if way in text)
        if not found:
            return Redacted(value, ())
        mask = Mask(found)
        return Redacted(Rewriting(mask.applied).of(value), mask.kinds())
