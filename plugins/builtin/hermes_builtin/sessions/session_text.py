"""What was said and read in a session, and whether a note is made of it.

The measure is cheap and knows no meaning. It compares the stems of words, so it finds what was
copied, cut into pieces, put into another order, or said in mostly the same words. It does not
find what was said in entirely different ones.
"""

from __future__ import annotations

import html
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from math import log
from typing import Final, NamedTuple

from hermes_builtin.sessions.words import STOP_WORDS, TO_LATIN, related, stem, words
from hermes_core.privacy.origin import (
    ASSISTANT,
    USER,
    Authority,
    authority,
    is_external,
    lowest,
)

#: Characters of external text, and as many of the user's, that are compared. The oldest go first.
MOST_CHARACTERS: Final = 400_000

# Invisible characters that would split a word in two.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
# JSON's escapes, also in JSON within JSON. All texts are read the same way, so a note with a path
# such as C:\new still agrees with its source.
_ESCAPE: Final = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|[bfnrt])")
_ENTITIES: Final = 3
_MIXED: Final = re.compile(r"[a-zA-Z][\u0370-\u052f]|[\u0370-\u052f][a-zA-Z]")
_FOREIGN: Final = re.compile(r"[^\W\d_]*[\u0370-\u052f][^\W\d_]*")
#: What a reader does not see: a hyphen at the end of a line, and tags.
_LAYOUT: Final = re.compile(
    r"(?<=[^\W\d_])[-\u2010\u2011][ \t]*\r?\n[ \t]*(?=[^\W\d_])|<[^<>]{1,200}>"
)
#: Words in a row that count as copied.
_RUN: Final = 3
#: A window of external text is so many blocks of so many words, about two sentences.
_BLOCK: Final = 12
_BLOCKS: Final = 3
#: A word in so many blocks says nothing about where a note comes from.
_FREQUENT: Final = 200
#: External text counts as so many blocks at least, when the rarity of a word in it is measured.
_FEW_BLOCKS: Final = 64
#: A note is made of so many messages of the user at most.
_MESSAGES: Final = 3
#: Where sentences end, roughly.
_SENTENCES: Final = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+|\n+")
#: Of a synonym, what a word counts.
_SYNONYM: Final = 0.6
#: What words count: a number or code says more about where a note comes from than other words. A
#: word that stands in most notes says little, and so do names of files and functions, which notes
#: about a project are full of.
_NUMBER: Final = 2.0
_COMMON: Final = 0.35
_IDENTIFIER: Final = 0.5
_IDENTIFIERS: Final = re.compile(r"(?<!\S)(?![^\s]*(?:://|@))[^\s]*[\w.][_/\\][\w.][^\s]*")
_COMMON_WORDS: Final = """
    user prefer like want use always never should must need remember note project work when make
    new time day please thing way keep know good
"""

#: From these shares of a note's weight on: it is the user's, although nearly all of it was copied;
#: it is the user's; it was copied; it was paraphrased.
_SAID_ALL: Final = 0.85
_NEARLY_ALL: Final = 0.8
_SAID: Final = 0.6
_COPIED: Final = 0.45
_REWORDED: Final = 0.38
#: Words in one row that the user did not say: they are external, whatever surrounds them.
_PASSAGE: Final = 4.0
#: Words that must agree, for notes so short that a share says little.
_LEAST_COPIED: Final = 2.0
_LEAST_REWORDED: Final = 2.3
#: The same for a note after another one that was made of the same place.
_CONTINUED: Final = 0.2
_LEAST_CONTINUED: Final = 1.0


class OriginVerdict(NamedTuple):
    """Where a note comes from; ``share`` is how much of it stands there."""

    origin: str
    share: float = 0.0

    @property
    def reason(self) -> str:
        """Why a note is external, for a person and a model; "" if it is not."""
        if not is_external(self.origin):
            return ""
        return f"its words come from {self.origin}, and the user did not say them"


class _Text(NamedTuple):
    """External text: its words, and those of sentences that it says for the first time."""

    origin: str
    words: list[str]
    new: list[str]


#: A text and its origin.
Sourced = tuple[str, str]


class SessionText:
    """The words of a session by their origin. Texts are read when a note has to be judged.

    Args:
        load: Returns what was said and read before; called when it is first needed.
        most: How many characters are compared.
    """

    def __init__(
        self, load: Callable[[], Iterable[Sourced]] = tuple, most: int = MOST_CHARACTERS
    ) -> None:
        self._most = most
        # Not read yet: a turn must not wait for it, and most sessions write no note.
        self._new: deque[Sourced] = deque()
        self._new_size = 0
        self._load: Callable[[], Iterable[Sourced]] | None = load
        self._external = _Index(most)
        self._said = _UserText(most)

    def add(self, text: str, origin: str) -> None:
        """Record something that was said or read. What the assistant wrote is not a source."""
        if origin == ASSISTANT or not text.strip():
            return
        text = _shortened(text, self._most)
        self._new.append((text, origin))
        self._new_size += len(text)
        while self._new_size > 2 * self._most:
            self._new_size -= len(self._new.popleft()[0])

    def judge(
        self, note: str, *, notes: Sequence[Sourced] = (), replaced: Sequence[Sourced] = ()
    ) -> OriginVerdict:
        """Return where a note comes from.

        Args:
            note: Its text.
            notes: Other notes, which it may be made of.
            replaced: Those in whose place it comes.
        """
        self._read_new()
        whole = self._judge(note, notes, replaced)
        sentences = [each for each in _SENTENCES.split(note) if each.strip()]
        # One bad sentence among good ones is enough.
        for each in sentences if len(sentences) > 1 and not is_external(whole.origin) else ():
            if is_external((part := self._judge(each, notes, replaced)).origin):
                return part
        return whole

    def _judge(
        self, note: str, notes: Sequence[Sourced], replaced: Sequence[Sourced]
    ) -> OriginVerdict:
        wanted = _Note(note)
        external = [self._external]
        if theirs := [each for each in (*notes, *replaced) if is_external(each[1])]:
            external.append(_Index(self._most, theirs))
        own = [each for each in replaced if not is_external(each[1])]
        said = self._said.share(wanted, own, external)
        found = max((index.find(wanted, said) for index in external), key=_is_external_share)
        if is_external(found.origin):
            return found
        return OriginVerdict(ASSISTANT if said.share < _SAID else said.origin, said.share)

    def copied(self, text: str) -> list[Sourced]:
        """Return the sentences of a longer text that were made of external text."""
        self._read_new()
        sentences = (each for each in _SENTENCES.split(text) if each.strip())
        judged = ((each, self._judge(each, (), ())) for each in sentences)
        return [(each, found.origin) for each, found in judged if is_external(found.origin)]

    def _read_new(self) -> None:
        if self._load is not None:
            load, self._load = self._load, None
            # Older than all that was added since.
            for text, origin in load():
                self._enter(_shortened(text, self._most), origin)
        while self._new:
            self._enter(*self._new.popleft())
        self._new_size = 0

    def _enter(self, text: str, origin: str) -> None:
        if is_external(origin):
            self._external.add(text, origin)
        elif authority(origin) >= Authority.USER:
            self._said.add(text)


def _is_external_share(verdict: OriginVerdict) -> tuple[bool, float]:
    return is_external(verdict.origin), verdict.share


def _shortened(text: str, most: int) -> str:
    """The begin and the end of a text that is too long to be compared."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\n{text[-half:]}"


def _units(text: str) -> list[str]:
    return words(_plain(text))


def _plain(text: str) -> str:
    """What a text says to a reader: escapes, entities and look-alikes as the letters they mean."""
    if "\\" in text:
        text = _ESCAPE.sub(lambda at: chr(int(at[1], 16)) if at[1] else " ", text)
        # Two escapes make one character beyond U+FFFF.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for _ in range(_ENTITIES if "&" in text else 0):
        text = html.unescape(text)
    if text.isascii():
        return text
    text = _INVISIBLE.sub("", text)
    if not _MIXED.search(text):
        return text
    return _FOREIGN.sub(_with_latin_letters, text)


def _with_latin_letters(found: re.Match[str]) -> str:
    """A word in Latin letters, if it has some, or if others look like them all."""
    latin = found[0].lower().translate(TO_LATIN)
    return latin if latin.isascii() or re.search("[a-zA-Z]", found[0]) else found[0]


@cache
def _common() -> frozenset[str]:
    return frozenset(map(stem, _COMMON_WORDS.split()))


class _Note:
    """A note as words, and how much each of them counts."""

    def __init__(self, text: str) -> None:
        self.words = _units(text)
        identifiers = set(_units(" ".join(_IDENTIFIERS.findall(text))))
        self.weights = {
            word: _weight(word, identifiers)
            for word in self.words
            if word not in STOP_WORDS and (len(word) > 1 or not word.isascii())
        }
        self.total = sum(self.weights.values())

    def weight(self, found: Iterable[str]) -> float:
        """What words count together, each of them once."""
        return sum(self.weights.get(word, 0.0) for word in set(found))


def _weight(word: str, identifiers: AbstractSet[str]) -> float:
    if word in identifiers:
        return _IDENTIFIER
    if word in _common():
        return _COMMON
    return _NUMBER if any(map(str.isdigit, word)) else 1.0


class _Words(NamedTuple):
    """What of a note somebody with authority said: which words, their share, and who."""

    words: frozenset[str]
    share: float
    origin: str


class _UserText:
    """What the user said, by message."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._texts: dict[int, tuple[int, frozenset[str]]] = {}
        self._size = 0

    def add(self, text: str) -> None:
        key = hash(text)
        if key in self._texts:  # hosts report it when a turn begins and when it ends
            return
        self._texts[key] = (len(text), frozenset(_units(text)))
        self._size += len(text)
        while self._size > self._most:
            self._size -= self._texts.pop(next(iter(self._texts)))[0]

    def share(self, note: _Note, replaced: Sequence[Sourced], external: Sequence[_Index]) -> _Words:
        """How much of a note the user said, or stands in the notes that it replaces.

        Few messages count: all words of a long session would cover any note. A word of a replaced
        note that external text has, too, may have come from there in an earlier step.
        """
        sources = [(USER, said) for _, said in self._texts.values()]
        for text, origin in replaced:
            own = {each for each in _units(text) if not any(each in index for index in external)}
            sources.append((origin, frozenset(own)))
        found: frozenset[str] = frozenset()
        origins = []
        for _ in range(_MESSAGES):
            origin, said = max(
                sources, key=lambda each: note.weight(each[1] - found), default=("", frozenset())
            )
            more = (note.weights.keys() & said) - found
            if not more:
                break
            found |= more
            origins.append(origin)
        share = note.weight(found) / note.total if note.total else 0.0
        if share < _SAID:
            share = self._with_synonyms(note, found)
        return _Words(found, share, lowest(origins))

    def _with_synonyms(self, note: _Note, found: frozenset[str]) -> float:
        if not note.total:
            return 0.0
        every = frozenset().union(*(said for _, said in self._texts.values()))
        others = (
            _SYNONYM * weight
            for word, weight in note.weights.items()
            if word not in found and not every.isdisjoint(related(word))
        )
        return (note.weight(found) + sum(others)) / note.total


class _Index:
    """External text: which words stand in a row, and which near each other."""

    def __init__(self, most: int, texts: Iterable[Sourced] = ()) -> None:
        self._most = most
        self._size = 0
        self._texts: deque[tuple[int, _Text]] = deque()
        self._known: set[int] = set()
        self._clear()
        for text, origin in texts:
            self.add(text, origin)

    def _clear(self) -> None:
        self._runs: dict[int, int] = {}
        self._blocks: defaultdict[str, list[int]] = defaultdict(list)
        self._origins: list[str] = []  # of each block
        self._entered: set[int] = set()  # the contents of the blocks
        self._used: set[int] = set()  # windows that notes were made of

    def add(self, text: str, origin: str) -> None:
        key = hash((text, origin))
        if key in self._known:  # hosts pass a conversation again and again
            return
        self._known.add(key)
        self._size += len(text)
        for reading in dict.fromkeys((text, _LAYOUT.sub(_seen, text))):
            each = _text(reading, origin)
            self._texts.append((len(text) if reading == text else 0, each))
            self._enter(each)
        if self._size > self._most:
            self._shrink()

    def _shrink(self) -> None:
        """Drop the oldest texts, more than needed, so that it happens rarely."""
        while len(self._texts) > 1 and self._size > self._most * 3 // 4:
            self._size -= self._texts.popleft()[0]
        self._clear()
        self._known = set()
        for _, each in self._texts:
            self._enter(each)

    def _enter(self, text: _Text) -> None:
        found = text.words
        # No window reaches from one text into the next.
        self._origins += [text.origin] * (_BLOCKS - 1)
        self._runs |= dict.fromkeys(_runs(found), len(self._origins) - 1)
        for begin in range(0, len(text.new), _BLOCK):
            content = text.new[begin : begin + _BLOCK]
            # Words that are repeated again and again would count as frequent, and say nothing.
            if (key := hash((text.origin, *content))) in self._entered:
                continue
            self._entered.add(key)
            block = len(self._origins)
            self._origins.append(text.origin)
            for word in {*content} - STOP_WORDS:
                self._blocks[word].append(block)

    def __contains__(self, word: str) -> bool:
        return word in self._blocks

    def find(self, note: _Note, said: _Words) -> OriginVerdict:
        """Return the external text that a note was made of, if there is one."""
        found = self._find(note, said)
        if is_external(found.origin) and (scores := self._scores(note, frozenset())):
            best = max(scores, key=scores.__getitem__)
            self._used.update(range(best - _BLOCKS + 1, best + _BLOCKS))
        return found

    def _find(self, note: _Note, said: _Words) -> OriginVerdict:
        if not self._origins or not note.total:
            return OriginVerdict(ASSISTANT)
        copied, origin = self._copied(note, frozenset())
        if copied / note.total >= _NEARLY_ALL and said.share < _SAID_ALL:
            return OriginVerdict(origin, copied / note.total)
        left = note.total - note.weight(said.words)
        passage = max((note.weight(row - said.words) for row in self._rows(note)), default=0.0)
        if passage >= _PASSAGE:
            return OriginVerdict(origin, passage / note.total)
        if said.share >= _SAID or left <= 0:
            return OriginVerdict(ASSISTANT)
        copied, origin = self._copied(note, said.words)
        if copied / left >= _COPIED and copied >= _LEAST_COPIED:
            return OriginVerdict(origin, copied / left)
        return self._near_by(self._scores(note, said.words), left)

    def _near_by(self, scores: Mapping[int, float], left: float) -> OriginVerdict:
        """Judge by the words that stand near each other."""
        best = max(scores, key=scores.__getitem__, default=None)
        if best is not None and _is_enough(scores[best], left, _REWORDED, _LEAST_REWORDED):
            return OriginVerdict(self._origins[best], scores[best] / left)
        # Another part of a text from which the session took a note already.
        near = max(self._used & scores.keys(), key=scores.__getitem__, default=None)
        if near is not None and _is_enough(scores[near], left, _CONTINUED, _LEAST_CONTINUED):
            return OriginVerdict(self._origins[near], scores[near] / left)
        return OriginVerdict(ASSISTANT)

    def _copied(self, note: _Note, said: frozenset[str]) -> tuple[float, str]:
        """What words in a row count that stand in external text in the same row."""
        found = set().union(*self._rows(note))
        blocks = [self._runs[key] for key in _runs(note.words) if key in self._runs]
        if len(note.weights) < _RUN and (together := self._together(note)):
            found.update(note.weights)
            blocks.append(min(together))
        origins = Counter(self._origins[block] for block in blocks)
        origin = origins.most_common(1)[0][0] if origins else ASSISTANT
        return note.weight(found - said), origin

    def _rows(self, note: _Note) -> Iterable[set[str]]:
        """The words of a note that stand in external text in the same row, row by row."""
        row: set[str] = set()
        for at, key in enumerate(_runs(note.words)):
            if key in self._runs:
                row.update(note.words[at : at + _RUN])
            elif row:
                yield row
                row = set()
        if row:
            yield row

    def _together(self, note: _Note) -> set[int]:
        """The blocks at which all words of a note stand that has too few for a row."""
        near = (
            {at for block in self._blocks.get(word, ()) for at in (block, block - 1)}
            for word in note.weights
        )
        return set.intersection(*near) if note.weights else set()

    def _scores(self, note: _Note, said: frozenset[str]) -> Mapping[int, float]:
        """What the words count that stand near each other, by the first block of each window."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word, weight in note.weights.items():
            if word in said:
                continue
            for block, value in self._near(word).items():
                scores[block] += weight * value
        return scores

    def _near(self, word: str) -> Mapping[int, float]:
        """The windows, by their first blocks, that have a word or one of its synonyms."""
        found: dict[int, float] = {}
        for other, value in ((word, 1.0), *((each, _SYNONYM) for each in related(word))):
            blocks = self._blocks.get(other, ())
            if len(blocks) > _FREQUENT:
                continue
            value *= self._rarity(len(blocks))  # noqa: PLW2901
            for block in blocks:
                for first in range(max(block - _BLOCKS + 1, 0), block + 1):
                    if value > found.get(first, 0.0):
                        found[first] = value
        return found

    def _rarity(self, blocks: int) -> float:
        """What a word in so many blocks counts: 1 if it is in one only."""
        every = max(len(self._origins), _FEW_BLOCKS)
        return log(every / max(blocks, 1)) / log(every)


def _seen(layout: re.Match[str]) -> str:
    return " " if layout[0].startswith("<") else ""


def _text(text: str, origin: str) -> _Text:
    sentences = _SENTENCES.split(text)
    once = dict.fromkeys(sentences)
    found = _units(text)
    return _Text(origin, found, found if len(once) == len(sentences) else _units("\n".join(once)))


def _is_enough(weight: float, whole: float, share: float, least: float) -> bool:
    return weight / whole >= share and weight >= least


def _runs(found: Sequence[str]) -> Iterable[int]:
    return map(hash, zip(*(found[at:] for at in range(_RUN)), strict=False))
