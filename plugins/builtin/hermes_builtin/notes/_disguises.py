"""Undoes the disguises that a model sees through: the readings of a text, as plain text.

A disguise is undone only where a word that the rules know comes out. Ordinary text has
no other reading than its own.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import Final
from urllib.parse import unquote

from hermes_builtin.notes._patterns import is_known, known_beginning, plain

# -- whole texts -----------------------------------------------------------------------------

_TAG: Final = re.compile(r"<[^<>]{0,200}>")
_LETTER: Final = r"[ .,_*/-][^\W_]"
_SPACED: Final = re.compile(rf"(?:{_LETTER}){{3,}}(?![^\W_])")
_SEPARATOR: Final = re.compile(r"[ .,_*/-]")
_INSIDE_A_WORD: Final = re.compile(r"['\"\\*`^~]['\"\\*`^~]*(?=[a-z])")
_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_PERCENT: Final = re.compile(r"%[0-9a-fA-F]{2}")
_LONG: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}){8,}")

#: Words of commands. Their mirror image or ROT13 is no word of any language.
_TELLTALE: Final = ("ignore", "disregard", "forget", "instruction", "prompt", "password", "reveal")


def readings(text: str, first: str) -> Iterator[str]:
    """What a text says when it is decoded.

    Args:
        text: As it was written.
        first: The same as plain text.
    """
    for decoded in _decoded(text):
        yield plain(decoded)
    if _SPACED.search(first):
        yield _SPACED.sub(_closed_up, first)
    if "<" in first:
        yield _TAG.sub("", first)
    if _INSIDE_A_WORD.search(first):
        yield _INSIDE_A_WORD.sub(_joined, first)
    if any(word[::-1] in first for word in _TELLTALE):
        yield first[::-1]
    if any(codecs.encode(word, "rot13") in first for word in _TELLTALE):
        yield codecs.encode(first, "rot13")


def _closed_up(match: re.Match[str]) -> str:
    """Letters without the spaces between them, and a space before, as in ``s p a c e d``."""
    first, rest = match.group()[0], _SEPARATOR.sub("", match.group())
    alone = re.search(r"(?:^|[\W_])[^\W_]$", match.string[: match.start()])
    return rest if alone else first + rest


def _joined(match: re.Match[str]) -> str:
    """Nothing for signs inside a word, as in ``cu''rl``; an apostrophe stays."""
    signs = match.group()
    inside = match.start() > 0 and match.string[match.start() - 1].isalnum()
    return "" if inside and signs != "'" else signs


def _decoded(text: str) -> Iterator[str]:
    if "&" in text:
        yield html.unescape(text)
    if _PERCENT.search(text):
        yield unquote(text)
    if _ESCAPE.search(text):
        yield _ESCAPE.sub(lambda match: chr(int(match.group(1) or match.group(2), 16)), text)
    for match in _LONG.finditer(text):
        yield from filter(None, (_from_base64(match.group()), _from_hex(match.group())))


def _from_base64(token: str) -> str:
    standard = token.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(standard + "=" * (-len(token) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""


def _from_hex(token: str) -> str:
    return bytes.fromhex(token).decode(errors="ignore") if _HEX.fullmatch(token) else ""


# -- single words ----------------------------------------------------------------------------

_DIGITS: Final = "0123456789"
_LETTERS: Final = ("oizeasgtbg", "olzeasgtbg")  # a 1 is an i or an l
_TO_LATIN: Final = str.maketrans(
    "аеорсхуіјѕһԁԛԝвкмнтгзαεορικνυτχγβωηɡʏ",  # noqa: RUF001 - that is what they are for
    "aeopcxyijshdqwbkmhtrzaeopiknutxybwngy",
)
_TO_CYRILLIC: Final = str.maketrans("aeopcxyikmhtb", "аеорсхуикмнтв")  # noqa: RUF001 - as above
_REPEATED: Final = re.compile(r"([a-z])\1{2,}")
_GLUED: Final = 12
_LONGEST: Final = 24


def respelt(text: str, words: Sequence[str]) -> list[str] | None:
    """The words, with known words instead of those that are one in disguise; or None."""
    repeats = any(3 * letter in text for letter in ascii_lowercase)
    swaps = {
        word: reading
        for word in set(words)
        if (repeats or len(word) >= _GLUED or not (word.isascii() and word.isalpha()))
        and (reading := _reading(word))
    }
    return [part for word in words for part in swaps.get(word, (word,))] if swaps else None


def _reading(word: str) -> Sequence[str]:
    """The known word or words that a word stands for; () if it is no disguise."""
    if word.isdigit() or is_known(word):
        return ()
    for spelling in _spellings(word):
        if is_known(spelling):
            return (spelling,)
    return _unglued(word) if len(word) >= _GLUED else ()


def _spellings(word: str) -> Iterator[str]:
    latin = word.translate(_TO_LATIN)
    for letters in _LETTERS:
        spelling = latin.translate(str.maketrans(_DIGITS, letters))
        yield spelling
        yield _REPEATED.sub(r"\1", spelling)
    yield word.translate(_TO_CYRILLIC)


def _unglued(word: str) -> list[str]:
    """The known words in a word without spaces, with what is between them."""
    parts = [""]
    place = 0
    while place < len(word):
        if known := known_beginning(word[place : place + _LONGEST]):
            parts += [known, ""]
        else:
            parts[-1] += word[place]
        place += len(known) or 1
    return [part for part in parts if part] if len(parts) > 3 else []  # noqa: PLR2004 - two words
