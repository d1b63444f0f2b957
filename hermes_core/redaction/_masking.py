"""Takes what was found out of a text, and says what stood there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from hermes_core.redaction._formats import FORMATS, OTHER_KINDS

_KNOWN: Final = "known-secret"
#: What is shorter than this may be part of a word by chance, and is masked where it stands alone.
_UNMISTAKABLE: Final = 12


class _Span(NamedTuple):
    start: int
    end: int
    kind: str


class Mask:
    """Every secret of one hand-off with its kind. Used on each text of it, one after another."""

    def __init__(self, found: dict[str, str]) -> None:
        self._found = found
        self._used: set[str] = set()

    def kinds(self) -> tuple[str, ...]:
        """What was masked so far."""
        return tuple(sorted(self._used))

    def applied(self, text: str) -> str:
        """The text without secrets; the very same object if there is none in it."""
        spans = sorted(self._spans(text))
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
    """What an earlier masking left; a secret that is called like a part of it changes no mask."""
    kinds = {_shown(kind) for kind in OTHER_KINDS} | {each.kind for each in FORMATS}
    return re.compile(rf"\[redacted: (?:{'|'.join(sorted(kinds))})\]")


def _shown(kind: str) -> str:
    return "secret" if kind == _KNOWN else kind


def _in_word(text: str, start: int, end: int) -> bool:
    """Whether letters or digits go on before or after."""
    return text[max(0, start - 1) : start].isalnum() or text[end : end + 1].isalnum()


def _within(span: _Span, masks: list[tuple[int, int]]) -> bool:
    return any(start <= span.start and span.end <= end for start, end in masks)


def _merged(spans: list[_Span]) -> Iterator[_Span]:
    """Spans that overlap as one, of the kind of the longest; a known secret before the others."""
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
