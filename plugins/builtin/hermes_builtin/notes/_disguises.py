"""Undoes the disguises that a model sees through.

Some change the whole text (base64, ``s p a c e d`` letters), others single words (``1gn0re``).
A word is changed only into a word that the rules know: ordinary text has no other reading.
"""

from __future__ import annotations

import binascii
import codecs
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from hermes_builtin.notes._patterns import Text, is_known, known_within, plain

# -- whole texts -----------------------------------------------------------------------------

_LETTER: Final = r"[^\W_\u3040-\u9fff]"
_SPACED: Final = rf"[\s.,:;_*/'\"()<>-]{_LETTER}([ .,_*/-]){_LETTER}(?:\1{_LETTER})+(?!{_LETTER})"
_INSIDE_A_WORD: Final = (
    r"[<'\"\\*`^~](?<=\w.)(?:(?<=<)[^<>]{0,200}>(?:<[^<>]{0,200}>)*|(?<!<)['\"\\*`^~]*)(?=[a-z])"
)
_ESCAPED: Final = r"(?:\\u00|\\x|%|&#x)([2-7][0-9a-fA-F]);?|&#(\d{2,3});?"
_TOKEN: Final = r"[A-Za-z0-9+/_-]{16,}"  # noqa: S105 - not that kind of token
_HEX: Final = r"(?:[0-9a-fA-F]{2}){8,}"
_STANDARD: Final = str.maketrans("-_", "+/")
_MANY: Final = 16

#: Words of commands backwards and in ROT13; no language has them.
_BACKWARDS: Final = frozenset(("erongi", "dragersid", "tegrof", "snoitcurtsni", "tpmorp"))
_ROT13: Final = frozenset(("vtaber", "qvfertneq", "sbetrg", "vafgehpgvbaf", "cebzcg"))


def readings(text: str, first: Text) -> Iterator[Text]:
    """What else a text says.

    Args:
        text: As it was written.
        first: What it says at first sight.
    """
    for decode in (_unescaped, _decoded):
        if (decoded := decode(text)) != text:
            yield Text.of(plain(decoded))
    for undo in (_closed_up, _joined, _lettered, _turned_round):
        if (reading := undo(first)) != first.plain:
            yield Text.of(reading)


def _unescaped(text: str) -> str:
    r"""With letters for ``\u0069``, ``\x69``, ``%69``, ``&#105;`` and ``&#x69;``."""
    if not ("\\" in text or "%" in text or "&#" in text):
        return text
    return re.sub(_ESCAPED, _character, text)


def _character(match: re.Match[str]) -> str:
    sixteen, ten = match.groups()
    char = chr(int(sixteen, 16) if sixteen else int(ten))
    return char if char.isalnum() or char == " " else match.group()


def _decoded(text: str) -> str:
    """What the words in base64 and hexadecimal say; the text itself without any."""
    long = (word for word in text.split() if len(word) >= _MANY)
    tokens = (token for word in long for token in re.findall(_TOKEN, word))
    return "\n\n".join(filter(None, map(_from, tokens))) or text


def _from(token: str) -> str:
    if re.fullmatch(_HEX, token):
        return bytes.fromhex(token).decode(errors="ignore")
    with suppress(ValueError):
        if not token.islower():
            padded = token.translate(_STANDARD) + "=" * (-len(token) % 4)
            return binascii.a2b_base64(padded).decode()
    return ""


def _closed_up(text: Text) -> str:
    """Without what is between single letters, as in ``s p a c e d``."""
    if sum(len(word) == 1 for word in text.different) < _SHORTEST:
        return text.plain
    return re.sub(_SPACED, _word, f" {text.plain}")[1:]


def _word(match: re.Match[str]) -> str:
    before, letters = match.group()[0], match.group()[1:].replace(match.group(1), "")
    return match.group() if letters.isdigit() else before + letters


def _joined(text: Text) -> str:
    """Without signs or tags inside a word, as in ``cu''rl``; an apostrophe stays."""
    return re.sub(_INSIDE_A_WORD, lambda at: "'" if at.group() == "'" else "", text.plain)


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


def _turned_round(text: Text) -> str:
    """Read backwards, or in ROT13, where that makes sense."""
    if not _BACKWARDS.isdisjoint(text.different):
        return text.plain[::-1]
    return text.plain if _ROT13.isdisjoint(text.different) else codecs.encode(text.plain, "rot13")


# -- single words ----------------------------------------------------------------------------

_DIGITS: Final = (  # a 1 is an i or an l
    str.maketrans("0123456789", "oizeasgtbg"),
    str.maketrans("0123456789", "olzeasgtbg"),
)
_TO_LATIN: Final = str.maketrans(
    "аеорсхуіјѕһԁԛԝвкмнтгзαεορικνυτχγβωηɡʏ",
    "aeopcxyijshdqwbkmhtrzaeopiknutxybwngy",
)
_TO_CYRILLIC: Final = str.maketrans("aeopcxyikmhtb", "аеорсхуикмнтв")
_REPEATS: Final = tuple(3 * letter for letter in "aeiouylnrst")
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
    word = re.sub(r"([a-z])\1{2,}", r"\1", word)
    latin = word if word.isascii() else word.translate(_TO_LATIN)
    yield from (latin.translate(letters) for letters in _DIGITS)
    if not word.isascii():
        yield word.translate(_TO_CYRILLIC)


def _unglued(word: str) -> list[str]:
    """The known words in a word without spaces, with what is between them; or nothing."""
    parts: list[str] = []
    end = 0
    for place, known in known_within(word):
        if place >= end:
            parts += [word[end:place], known]
            end = place + len(known)
    return [part for part in (*parts, word[end:]) if part] if len(parts) >= _SEVERAL else []
