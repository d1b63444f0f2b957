"""Undoes the disguises that a model sees through: the readings of a text, as plain text.

A disguise is undone only where a word that the rules know comes out. Ordinary text has
no other reading than its own.
"""

from __future__ import annotations

import base64
import codecs
import html
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

from hermes_builtin.notes._patterns import Text, is_known, known_within, plain

# -- whole texts -----------------------------------------------------------------------------

_LETTER: Final = r"[^\W_\u3040-\u9fff]"
_SPACED: Final = re.compile(
    rf"[\s.,:;_*/'\"()<>-]{_LETTER}([ .,_*/-]){_LETTER}(?:\1{_LETTER})+(?!{_LETTER})"
)
_INSIDE_A_WORD: Final = re.compile(
    r"[<'\"\\*`^~](?<=\w.)(?:(?<=<)[^<>]{0,200}>|(?<!<)['\"\\*`^~]*)(?=[a-z])"
)
_PERCENT: Final = re.compile(r"%(?:20|[46][1-9a-fA-F]|[57][0-9aA])")
_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_TOKEN: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}){8,}")
_STANDARD: Final = str.maketrans("-_", "+/")
_MANY: Final = 16

#: Words of commands backwards and in ROT13; no language has them.
_BACKWARDS: Final = frozenset(("erongi", "dragersid", "tegrof", "snoitcurtsni", "tpmorp"))
_ROT13: Final = frozenset(("vtaber", "qvfertneq", "sbetrg", "vafgehpgvbaf", "cebzcg"))


def readings(text: str, first: Text) -> Iterator[str]:
    """What else a text says when it is decoded, as plain texts.

    Args:
        text: As it was written.
        first: What it says at first sight.
    """
    yield from (plain(decoded) for decoded in _decoded(text) if decoded not in (text, ""))
    for undo in (_closed_up, _joined, _lettered):
        if (reading := undo(first)) != first.plain:
            yield reading
    if not _BACKWARDS.isdisjoint(first.different):
        yield first.plain[::-1]
    if not _ROT13.isdisjoint(first.different):
        yield codecs.encode(first.plain, "rot13")


def _decoded(text: str) -> Iterator[str]:
    if "&" in text:
        yield html.unescape(text)
    if _PERCENT.search(text):
        yield unquote(text)
    if "\\" in text:
        yield _ESCAPE.sub(lambda match: chr(int(match.group(1) or match.group(2), 16)), text)
    tokens = [token for word in text.split() if len(word) >= _MANY for token in _TOKEN.findall(word)]
    yield "\n\n".join(filter(None, map(_from, tokens)))


def _from(token: str) -> str:
    """What a long word of letters and digits says in hexadecimal or base64; "" if nothing."""
    if _HEX.fullmatch(token):
        return bytes.fromhex(token).decode(errors="ignore")
    if token.islower():
        return ""
    with suppress(ValueError):
        whole = token.translate(_STANDARD) + "=" * (-len(token) % 4)
        return base64.b64decode(whole, validate=True).decode()
    return ""


def _closed_up(text: Text) -> str:
    """Without what is between single letters, as in ``s p a c e d``."""
    if sum(len(word) == 1 for word in text.different) < _SHORTEST:
        return text.plain
    return _SPACED.sub(_word, f" {text.plain}")[1:]


def _word(match: re.Match[str]) -> str:
    before, letters = match.group()[0], match.group()[1:].replace(match.group(1), "")
    return match.group() if letters.isdigit() else before + letters


def _joined(text: Text) -> str:
    """Without signs or tags inside a word, as in ``cu''rl``; an apostrophe stays."""
    return _INSIDE_A_WORD.sub(lambda match: "'" if match.group() == "'" else "", text.plain)


def _lettered(text: Text) -> str:
    """With letters for the signs in words like ``p@ssword`` and ``$ystem``."""
    if "@" not in text.plain and "$" not in text.plain:
        return text.plain
    words = text.plain.split(" ")
    swaps = {}
    for word in {word for word in words if "@" in word or "$" in word}:
        letters = word.replace("@", "a").replace("$", "s")
        if is_known(letters) or _reading(letters):
            swaps[word] = letters
    return " ".join(swaps.get(word, word) for word in words) if swaps else text.plain


# -- single words ----------------------------------------------------------------------------

_DIGITS: Final = (  # a 1 is an i or an l
    str.maketrans("0123456789", "oizeasgtbg"),
    str.maketrans("0123456789", "olzeasgtbg"),
)
_TO_LATIN: Final = str.maketrans(
    "аеорсхуіјѕһԁԛԝвкмнтгзαεορικνυτχγβωηɡʏ",  # noqa: RUF001 - that is what they are for
    "aeopcxyijshdqwbkmhtrzaeopiknutxybwngy",
)
_TO_CYRILLIC: Final = str.maketrans("aeopcxyikmhtb", "аеорсхуикмнтв")  # noqa: RUF001 - as above
_REPEATS: Final = tuple(3 * letter for letter in "aeiouylnrst")
_REPEATED: Final = re.compile(r"([a-z])\1{2,}")
_SHORTEST: Final = 3
_LONGEST: Final = 200
_SEVERAL: Final = 6  # three known words, with what is before each


def respelt(text: Text) -> Text | None:
    """A text with known words instead of those that are one in disguise; None without any."""
    odd = {word for word in text.different if not word.isalpha() or len(word) >= _MANY}
    if not text.plain.isascii():
        odd.update(word for word in text.different if not word.isascii())
    for letters in _REPEATS:
        if letters in text.plain:
            odd.update(word for word in text.different if letters in word)
    swaps = {word: reading for word in odd if (reading := _reading(word))}
    if not swaps:
        return None
    words = [part for word in text.words for part in swaps.get(word, (word,))]
    return Text(text.plain, words, set(words))


def _reading(word: str) -> Sequence[str]:
    """The known word or words that a word stands for; () if it is no disguise."""
    if len(word) >= _MANY and (parts := _unglued(word[:_LONGEST])):
        return parts
    if len(word) < _SHORTEST or word.isdigit() or is_known(word):
        return ()
    known = (one for one in _spellings(word) if len(one) >= _SHORTEST and is_known(one))
    return [spelling] if (spelling := next(known, "")) else ()


def _spellings(word: str) -> Iterator[str]:
    """A word without repetitions, with letters instead of digits, and of one script."""
    word = _REPEATED.sub(r"\1", word)
    latin = word if word.isascii() else word.translate(_TO_LATIN)
    yield from (latin.translate(letters) for letters in _DIGITS)
    if not word.isascii():
        yield word.translate(_TO_CYRILLIC)


def _unglued(word: str) -> list[str]:
    """The known words in a word without spaces, with what is between them; or nothing."""
    parts, end = [], 0
    for place, known in known_within(word):
        if place >= end:
            parts += [word[end:place], known]
            end = place + len(known)
    return [part for part in (*parts, word[end:]) if part] if len(parts) >= _SEVERAL else []
