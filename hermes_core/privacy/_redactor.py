"""`Redactor`: masks secrets in whatever an external provider receives.

It collects the strings of a value, searches them as one text for secrets (`formats`, `_contexts`,
and the known secrets in every way of writing them), and rewrites the value if it finds one.
Nothing is compiled before the first text is searched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple

from hermes_core.errors import HermesError
from hermes_core.privacy._contexts import in_context, named_secret, private_keys, secret_word
from hermes_core.privacy._known import BORDER, KnownSecrets
from hermes_core.privacy.formats import FORMATS, OTHER_KINDS, tokens

_KNOWN: Final = "known-secret"
#: Values nested more deeply are refused. Python's own recursion limit is 1,000, and `_Rewriter`
#: needs several frames per level.
_DEEPEST: Final = 200
#: Here, since `dict | list | tuple` would be built again for each part of a value.
_CONTAINERS: Final = (dict, list, tuple)
#: A shorter finding may be part of a word by chance: it is masked only where it is a whole word.
#: Secrets from the store are masked in any place.
_UNMISTAKABLE: Final = 12


class RedactionResult(NamedTuple):
    """A value of the same shape without secrets, and the kinds of secrets that were masked."""

    value: Any
    kinds: tuple[str, ...]


class Redactor:
    """Masks secrets: known values always, well-known formats unless a person switched that off.

    Args:
        known: Secrets that are masked in every way in which they can be written.
        formats: Also mask what looks like a secret.
    """

    def __init__(self, known: Iterable[str] = (), *, formats: bool = True) -> None:
        self._known = KnownSecrets(known)
        self._formats = formats

    def redact(self, value: Any, *, known_only: bool = False) -> RedactionResult:
        """Return a value that may leave the machine.

        What is a secret anywhere in the value is masked everywhere in it.

        Args:
            value: A string, or mappings, lists and tuples with strings in them.
            known_only: Mask only the known secrets. For what the model says to a provider's own
                tool, which may have to contain a token.

        Raises:
            HermesError: The value contains itself, or is nested too deeply to be searched.
        """
        formats = self._formats and not known_only
        if not (formats or self._known):
            return RedactionResult(value, ())
        strings = _Strings(value)
        # One text instead of many: the searches start with a substring search, whose cost per call
        # would dominate for the dozens of short strings in a message.
        text = BORDER.join(strings.found)
        found: dict[str, str] = {}
        if formats:
            found.update(tokens(text))
            found.update(in_context(text))
            found.update(
                secret
                for name, part in strings.named
                if (word := secret_word(name)) and (secret := named_secret(name, word, part))
            )
        # Last: a known secret wins over the kind that its format suggests.
        if self._known:
            found.update(dict.fromkeys(self._known.found_in(text), _KNOWN))
        if not found:
            return RedactionResult(value, ())
        mask = _Mask(found)
        return RedactionResult(_Rewriter(mask.applied).of(value), mask.kinds())

    def unmistakable(self, text: str) -> set[str]:
        """The known secrets and the private keys in a text, as they are written there."""
        return {*self._known.found_in(text), *(key for key, _ in private_keys(text))}


class _Strings:
    """Every string of a value, keys of mappings included, and the pairs of a name and a string."""

    def __init__(self, value: Any) -> None:
        self.found = found = [value] if isinstance(value, str) else []
        self.named: list[tuple[str, str]] = []
        seen: set[int] = set()
        # A stack and no recursion: this runs on every write and every recall.
        waiting: list[tuple[Any, frozenset[int]]] = []
        if isinstance(value, _CONTAINERS):
            waiting.append((value, frozenset((id(value),))))
        while waiting:
            container, above = waiting.pop()
            for part in self._parts_of(container) if isinstance(container, dict) else container:
                if isinstance(part, str):
                    found.append(part)
                elif isinstance(part, _CONTAINERS):
                    number = id(part)
                    if number in above:
                        raise _unusable("it contains itself")
                    if len(above) >= _DEEPEST:
                        raise _unusable(f"it is more than {_DEEPEST} levels deep")
                    # A part that occurs twice is searched once; `above` alone detects a value that
                    # contains itself.
                    if number not in seen:
                        seen.add(number)
                        waiting.append((part, above | {number}))

    def _parts_of(self, mapping: dict[Any, Any]) -> Iterable[Any]:
        self.named += [
            pair
            for pair in mapping.items()
            if isinstance(pair[0], str) and isinstance(pair[1], str)
        ]
        return chain.from_iterable(mapping.items())


def _unusable(why: str) -> HermesError:
    return HermesError(
        f"a value can't be searched for secrets: {why}",
        hint="pass plain JSON; anything else is not sent",
    )


class _Rewriter:
    """Copies a value with other strings; parts in which no string changed stay the same object."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self._change = change
        self._made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Return the copy. The value must stay alive meanwhile: parts are known by their ids."""
        if isinstance(value, str):
            return self._change(value)
        if not isinstance(value, _CONTAINERS):
            return value
        if id(value) not in self._made:
            self._made[id(value)] = self._rewritten(value)
        return self._made[id(value)]

    def _rewritten(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._mapping(value)
        parts = [self.of(part) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        if isinstance(value, list):
            return parts
        # A named tuple stays one: its receiver reads it by field names.
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)

    def _mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        changed = False
        for key, part in value.items():
            new_key, new_part = self.of(key), self.of(part)
            changed |= new_key is not key or new_part is not part
            made[_free(new_key, made, value) if new_key is not key else key] = new_part
        return made if changed else value


def _free(key: Any, made: dict[Any, Any], original: dict[Any, Any]) -> Any:
    """Return a key that is not used yet: two keys may look the same once they are masked."""
    number, free = 1, key
    while free in made or free in original:
        number += 1
        free = f"{key} ({number})" if isinstance(key, str) else (*key, number)
    return free


class _Span(NamedTuple):
    start: int
    end: int
    kind: str


class _Mask:
    """Masks the secrets that were found in one value, in each of its texts."""

    def __init__(self, found: dict[str, str]) -> None:
        self._found = found
        self._used: set[str] = set()

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds that were masked so far."""
        return tuple(sorted(self._used))

    def applied(self, text: str) -> str:
        """Return the text without secrets; the same object if there is none in it."""
        spans = sorted(self._spans(text))
        # A text may be redacted twice (when stored and when sent). A short finding such as "token"
        # must not match inside an earlier mask.
        if spans and "[redacted: " in text:
            masks = [match.span() for match in _masks().finditer(text)]
            spans = [span for span in spans if not _within(span, masks)]
        if not spans:
            return text
        parts, end = [], 0
        for span in _merged(spans):
            parts += [text[end : span.start], f"[redacted: {_shown(span.kind)}]"]
            end = span.end
            self._used.add(span.kind)
        return "".join([*parts, text[end:]])

    def _spans(self, text: str) -> Iterator[_Span]:
        for secret, kind in self._found.items():
            alone = kind != _KNOWN and len(secret) < _UNMISTAKABLE
            at = text.find(secret)
            while at >= 0:
                end = at + len(secret)
                if not (alone and _in_word(text, at, end)):
                    yield _Span(at, end, kind)
                at = text.find(secret, at + 1)


@cache
def _masks() -> re.Pattern[str]:
    """Matches earlier masks: a secret that is a part of one must not change it."""
    kinds = {_shown(kind) for kind in OTHER_KINDS} | {each.kind for each in FORMATS}
    return re.compile(rf"\[redacted: (?:{'|'.join(sorted(kinds))})\]")


def _shown(kind: str) -> str:
    return "secret" if kind == _KNOWN else kind


def _in_word(text: str, start: int, end: int) -> bool:
    """Return whether a letter or digit precedes or follows."""
    return text[max(0, start - 1) : start].isalnum() or text[end : end + 1].isalnum()


def _within(span: _Span, masks: list[tuple[int, int]]) -> bool:
    return any(start <= span.start and span.end <= end for start, end in masks)


def _merged(spans: list[_Span]) -> Iterator[_Span]:
    """Merge spans that overlap; the kind is that of the longest, a known secret first."""
    current, *others = spans
    longest = current
    for span in others:
        if span.start >= current.end:
            yield current
            current = longest = span
            continue
        longest = max(longest, span, key=lambda each: (each.end - each.start, each.kind == _KNOWN))
        current = _Span(current.start, max(current.end, span.end), longest.kind)
    yield current
