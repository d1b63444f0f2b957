"""Applies the rules of guard-rules.txt to a text.

Distances are counted in words, so a rule takes time in proportion to the text, whatever the
text is. What words can't say (tags, fences, addresses to be filled in) is a shape.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import compress
from typing import Final, NamedTuple

from hermes_builtin.notes._rules import (
    NEXT,
    SIGNS,
    Entry,
    Phrase,
    Rule,
    Text,
    entry,
    openings,
    rules,
    stands_at,
)

_OVERRIDE: Final = "instruction override"
_EXFILTRATION: Final = "exfiltration"

#: Kind, a piece of text without which there is no match, and a pattern.
_SHAPES: Final = (
    # The tokens of chat templates: ChatML, Llama, Gemma, Alpaca.
    (_OVERRIDE, "<", r"<\|[\w ]{2,40}\|>|<</?sys>>|<(?:start|end)_of_turn>"),
    (_OVERRIDE, "[", r"\[/?inst\]"),
    (_OVERRIDE, "##", r"## ?(?:system|instruction|response) ?:"),
    # Tags of a voice that a note hasn't, and the end of the block that notes are in.
    (_OVERRIDE, "<", r"</?(?:system|operator|admin|developer)(?:[-_ ]\w{1,20})?>"),
    (_OVERRIDE, "</", r"</(?:memory[-_ ]?context|memory|notes?|context|user-profile)>"),
    (_OVERRIDE, "══", r"══════"),
    (_OVERRIDE, "--", r"-- ?(?:begin|end)(?: \w{2,3}){0,3} (?:system|memory|notes|prompt)"),
    # Turns of a conversation that never was.
    (_OVERRIDE, "role", r"role[\"'] ?: ?[\"'](?:system|developer)[\"']"),
    (_OVERRIDE, "\nassistant", r"(?:human|user) ?:[^\n]{0,500}+\n\s*assistant ?:"),
    # A shell that somebody else types into.
    (_OVERRIDE, "/dev/tcp/", r"/dev/tcp/\S{1,60}"),
    # An address that the model is to fill with data.
    (
        _EXFILTRATION,
        "=",
        (
            r"=[<{\[][^\n]{0,40}?"
            r"(?:summary|conversation|message|base64|history|secret|password|prompt|memory|notes)"
        ),
    ),
)

_ACROSS: Final = 8  # a match that reaches into another entry has no more words
_EXCUSE: Final = 3  # nor has a phrase that excuses what follows
_LONGEST: Final = 9  # words of the longest phrase: システムプロンプト, a word for each sign
_TRIES: Final = 4  # places at which a match may end
_RARE: Final = 4  # if the second class is so many times rarer than the first, look from there

_Span = tuple[int, int]


class Match(NamedTuple):
    """What a rule or a shape has found."""

    kind: str
    quote: str


def search(text: Text) -> Match | None:
    """The first thing wrong with a text, or None."""
    known = {word: what for word in text.different if (what := entry(word))}
    if possible := _possible(known.values()):
        spans = _spans(text.words, known)
        for rule in possible:
            for begin, end in _matches(rule, spans):
                if not _is_harmless(rule, text.words, begin, end):
                    return Match(rule.kind, _quote(text.words[begin:end]))
    for kind, piece, pattern in _SHAPES:
        if piece in text.plain and (found := re.search(pattern, text.plain)):
            return Match(kind, found.group())
    return None


def _possible(known: Iterable[Entry]) -> list[Rule]:
    """The rules that may match where these words are: for most texts there are none."""
    names = set[str]().union(*(each.possible for each in known))
    places = sorted(place for name in names for place in _beginning().get(name, ()))
    return [rule for place in places if (rule := rules()[place]).names <= names]


@cache
def _beginning() -> dict[str, list[int]]:
    """Where the rules are that begin with a class."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, rule in enumerate(rules()):
        found[rule.steps[0][1]].append(place)
    return dict(found)


def _spans(words: Sequence[str], known: Mapping[str, Entry]) -> dict[str, list[_Span]]:
    """Where the words of each class are, in order."""
    spans: dict[str, list[_Span]] = defaultdict(list)
    for at, word in compress(enumerate(words), map(known.__contains__, words)):
        names, begun, joined, _ = known[word]
        for name in names:
            spans[name].append((at, at + 1))
        if begun and (phrases := begun.get(words[at + 1][:NEXT])):
            _add(phrases, words, at, spans)
        if joined and (phrases := joined.get(words[at - 1][:NEXT])):
            _add(phrases, words, at, spans)
    for places in spans.values():
        places.sort()
    return spans


def _add(
    phrases: list[Phrase], words: Sequence[str], at: int, spans: dict[str, list[_Span]]
) -> None:
    for parts, names, place in phrases:
        begin = at - place
        if begin >= 0 and stands_at(parts, words, begin):
            for name in names:
                spans[name].append((begin, begin + len(parts)))


def _matches(rule: Rule, spans: dict[str, list[_Span]]) -> Iterator[_Span]:
    (_, first), (gap, second), *_ = rule.steps
    starts, nexts = spans[first], spans[second]
    if len(nexts) * _RARE < len(starts):
        starts = _near(starts, nexts, gap)
    for begin, end in starts:
        place = bisect_left(nexts, (end,))
        if place < len(nexts) and nexts[place][0] <= end + gap:  # rare: most stop here
            for last in _ends(end, rule.steps[1:], spans):
                yield begin, last


def _near(starts: list[_Span], nexts: list[_Span], gap: int) -> list[_Span]:
    """Those of many places that are before one of a few others."""
    found: set[_Span] = set()
    for begin, _ in nexts:
        low = bisect_left(starts, (begin - gap - _LONGEST,))
        found.update(starts[low : bisect_left(starts, (begin,))])
    return sorted(found)


def _ends(end: int, steps: list[tuple[int, str]], spans: dict[str, list[_Span]]) -> Iterator[int]:
    """Where a match may end that goes on with these steps.

    Every step goes to the first place there is. The last one also tries the next few, because
    the first may be harmless: "disable confirmation mails and approval prompts".
    """
    for step, (gap, name) in enumerate(steps, 1):
        place = bisect_left(spans[name], (end,))
        places = spans[name][place : place + (_TRIES if step == len(steps) else 1)]
        ends = [stop for start, stop in places if start <= end + gap]
        if not ends:
            return
        end = ends[0]
    yield from ends


def _is_harmless(rule: Rule, words: Sequence[str], begin: int, end: int) -> bool:
    """Whether a match runs from one entry into the next, or has around it what excuses it."""
    if end - begin > _ACROSS and "BREAK" in words[begin:end]:
        return True
    return any(_is_there(name, where, words, begin, end) for where, name in rule.unless)


def _is_there(name: str, where: str, words: Sequence[str], begin: int, end: int) -> bool:
    """Whether a match is right after or right before a word of a class, or around one."""
    places = {
        "after": range(max(begin - _EXCUSE, 0), begin),
        "around": range(begin, end),
        "before": range(end, min(end + 1, len(words))),
    }[where]
    phrases = openings(name)
    return any(
        (where != "after" or place + len(parts) == begin) and stands_at(parts, words, place)
        for place in places
        for parts in phrases.get(words[place], ())
    )


def _quote(words: Sequence[str]) -> str:
    """Words as a person would write them."""
    text = " ".join(words)
    for sign, word in reversed(SIGNS):
        text = text.replace(word, sign).replace(word.strip(), "")
    return unicodedata.normalize("NFC", text)
