"""Text as words for the index: folded, stemmed, and in pairs where a script has no spaces.

Chinese, Japanese, Korean, Thai and their kind are kept as overlapping pairs of characters,
and the last character alone: a pair is found as a word, and a single character as the
beginning of a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from hermes_builtin.sessions._stemming import stem

LONGEST: Final = 64
_MOST_STEMS: Final = 65_536

_UNSPACED: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3040-\u30ff"
    r"\u3100-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    r"\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
#: Marks that belong to the letter before them, in scripts where \w leaves them out.
_MARKS: Final = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    r"\u06d6-\u06dc\u06df-\u06ed\u0900-\u0963\u0980-\u0dff\u0f18-\u0fbc"
)
_SYMBOLS: Final = r"\u00a2-\u00b6\u20a0-\u20cf\u2100-\u2bff\U0001f000-\U0001fbff"

#: What plain English is made of: letters in lower case, digits, and blanks for all else.
_PLAIN: Final = "".join(chr(at).lower() if chr(at).isalnum() else " " for at in range(128))
_ASCII: Final = re.compile(r"c\+\+|[cfj]#(?![a-z0-9])|[a-z0-9]+")
_ANY: Final = re.compile(
    rf"c\+\+|[cfj]#(?!\w)|[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\W_]|[{_MARKS}])+|[{_SYMBOLS}]",
    re.IGNORECASE,
)
_ACCENTS: Final = re.compile(r"[\u0300-\u036f]")
_IS_UNSPACED: Final = re.compile(rf"[{_UNSPACED}]")


def words(text: str) -> list[str]:
    """The words of a text as the index has them, in order."""
    if text.isascii():
        is_plain = "+" not in text and "#" not in text
        written = text.translate(_PLAIN).split() if is_plain else _ASCII.findall(text.lower())
        return list(map(_INDEX_WORDS.__getitem__, written))
    found: list[str] = []
    for run in runs(text):
        found += words_of(run)
    return found


def runs(text: str) -> list[str]:
    """The words of a text, folded but not stemmed; runs of scripts without spaces."""
    return _ANY.findall(fold(text))


def fold(text: str) -> str:
    """Text without case, accents, and other ways to write the same letter."""
    if text.isascii():
        return text.lower()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return unicodedata.normalize("NFC", bare)


def places(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Where words are in a text as it was written: begin, end, and their index words.

    In scripts without spaces each character has a place of its own.
    """
    if text.isascii():
        for match in _ASCII.finditer(text.lower()):
            yield *match.span(), [_INDEX_WORDS[match.group()]]
        return
    for match in _ANY.finditer(text):
        begin, end = match.span()
        if _IS_UNSPACED.match(text, begin):
            for at in range(begin, end):
                yield at, at + 1, words(text[at : min(at + 2, end)])
        else:
            yield begin, end, words(match.group())


def is_unspaced(word: str) -> bool:
    """Whether a word is of a script without spaces."""
    return _IS_UNSPACED.match(word) is not None


def storable(text: str) -> str:
    """Text without halves of surrogate pairs, which no database takes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def words_of(run: str) -> list[str]:
    """The index words of one run."""
    if is_unspaced(run):
        return [run[at : at + 2] for at in range(len(run))]
    return [_INDEX_WORDS[run]]


class _IndexWords(dict[str, str]):
    """What the index has for a word. Keeps stems: an lru_cache takes twice as long to look up."""

    def __missing__(self, word: str) -> str:
        if not word.isalpha():  # it has no stem, and would only crowd out others that have one
            return word[:LONGEST]
        if len(self) >= _MOST_STEMS:
            self.clear()
        self[word] = found = stem(word)[:LONGEST]
        return found


_INDEX_WORDS: Final = _IndexWords()
