"""Looks for text in notes that would command the model instead of informing it.

Notes go into every system prompt, so one poisoned entry outlives the conversation that
planted it. Three things are looked for: orders that override the model's instructions,
orders to carry data away, and characters that a person can't see. Nothing in the text can
switch the scan off.

Disguises that a model sees through are undone first. Some change the whole text (base64,
``s p a c e d`` letters), others single words (``1gn0re``). A word is changed only into one
that the rules know: ordinary text has no other reading.
"""

from __future__ import annotations

import binascii
import codecs
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from string import ascii_letters, digits
from typing import Final

from hermes_builtin.notes._hidden import Finding, hidden_characters
from hermes_builtin.notes._patterns import Match, search
from hermes_builtin.notes._rules import Text, is_known, known_within, plain

_QUOTED: Final = 60


def scan(text: str) -> Finding | None:
    """The first thing wrong with a text, or None."""
    return hidden_characters(text) or _command(text)


def _command(text: str) -> Finding | None:
    first = Text.of(plain(text))
    found = _search(first) or next(filter(None, map(_search, _readings(text, first))), None)
    if found is None:
        return None
    quote = " ".join(found.quote.split())
    return Finding(found.kind, f"“{quote if len(quote) <= _QUOTED else quote[:_QUOTED] + '...'}”")


def _search(text: Text) -> Match | None:
    found = search(text)
    if found is None and (other := _respelt(text)):
        found = search(other)
    return found


# -- disguises of whole texts ----------------------------------------------------------------

_ALONE: Final = r"[^\W_\u3040-\u9fff]"
_SPACED: Final = rf"[\s.,:;_*/'\"()<>-]{_ALONE}([ .,_*/-]){_ALONE}(?:\1{_ALONE})+(?!{_ALONE})"
_INSIDE_A_WORD: Final = (
    r"[<'\"\\*`^~](?<=\w.)(?:(?<=<)[^<>]{0,200}>(?:<[^<>]{0,200}>)*|(?<!<)['\"\\*`^~]*)(?=[a-z])"
)
_CONCATENATED: Final = r"['\"] ?\+ ?['\"]"
_WITH_SIGNS: Final = r"(?<![\w@$])(?=\w{0,20}[@$])[\w@$]{3,30}(?![\w@$])"
_ESCAPED: Final = r"(?:\\u00|\\x|%|&#x)([2-7][0-9a-fA-F]);?|&#(\d{2,3});?"
_HEX: Final = r"(?:[0-9a-fA-F]{2}){8,}"
_STANDARD: Final = str.maketrans("-_", "+/")
_MANY: Final = 16

#: Words of commands backwards and in ROT13; no language has them.
_BACKWARDS: Final = frozenset(("erongi", "dragersid", "tegrof", "snoitcurtsni", "tpmorp"))
_ROT13: Final = frozenset(("vtaber", "qvfertneq", "sbetrg", "vafgehpgvbaf", "cebzcg"))


def _readings(text: str, first: Text) -> Iterator[Text]:
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
    data = text.encode(errors="replace")
    outline = data.translate(_outline(f"{ascii_letters}{digits}+/_-"))
    tokens = []
    end = 0
    while (at := outline.find(_MANY * b"a", end)) >= 0:
        end = outline.find(b" ", at) % (len(outline) + 1)  # to the end if there is none
        tokens.append(data[at:end].decode())
    return "\n\n".join(filter(None, map(_from, tokens))) or text


@cache
def _outline(letters: str, others: str = " ") -> bytes:
    """A table for bytes: ``a`` for these letters, ``others`` for parts of others, else a blank."""
    return bytes(
        ord("a" if char in letters else " " if char.isascii() else others)
        for char in map(chr, range(256))
    )


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
    outline = text.plain.encode().translate(_outline(ascii_letters, "u"))
    if not any(four in outline for four in (b" a a a a ", b" uu uu uu uu ")):
        return text.plain
    return re.sub(_SPACED, _word, f" {text.plain}")[1:]


def _word(match: re.Match[str]) -> str:
    before, letters = match.group()[0], match.group()[1:].replace(match.group(1), "")
    return match.group() if letters.isdigit() else before + letters


def _joined(text: Text) -> str:
    """Without what divides a word, as in ``cu''rl`` or ``"cu" + "rl"``; an apostrophe stays."""
    whole = re.sub(_CONCATENATED, "", text.plain) if "+" in text.plain else text.plain
    return re.sub(_INSIDE_A_WORD, lambda at: "'" if at.group() == "'" else "", whole)


def _lettered(text: Text) -> str:
    """With letters for the signs in words like ``p@ssword`` and ``$ystem``."""
    if not ("@" in text.plain or "$" in text.plain):
        return text.plain
    return re.sub(_WITH_SIGNS, _known_letters, text.plain)


def _known_letters(match: re.Match[str]) -> str:
    letters = match.group().replace("@", "a").replace("$", "s")
    return letters if is_known(letters) or _reading(letters) else match.group()


def _turned_round(text: Text) -> str:
    """Read backwards, or in ROT13, where that makes sense."""
    if not _BACKWARDS.isdisjoint(text.different):
        return text.plain[::-1]
    return text.plain if _ROT13.isdisjoint(text.different) else codecs.encode(text.plain, "rot13")


# -- disguises of single words ---------------------------------------------------------------

_DIGITS: Final = (  # a 1 is an i or an l
    str.maketrans("0123456789", "oizeasgtbg"),
    str.maketrans("0123456789", "olzeasgtbg"),
)
_TO_LATIN: Final = str.maketrans(
    "аеорсхуіјѕһԁԛԝвкмнтгзαεορικνυτχγβωηɡʏ",
    "aeopcxyijshdqwbkmhtrzaeopiknutxybwngy",
)
_TO_CYRILLIC: Final = str.maketrans("aeopcxyikmhtb", "аеорсхуикмнтв")
_REPEATS: Final = tuple(3 * letter for letter in "aeiou")
_SHORTEST: Final = 3
_LONGEST: Final = 200
_SEVERAL: Final = 6  # three known words, with what is before each


def _respelt(text: Text) -> Text | None:
    """A text with known words instead of those that are one in disguise; None without any."""
    odd = {
        word
        for word in text.different
        if len(word) >= _MANY or not (word.isalpha() or word.isdigit())
    }
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


@lru_cache(maxsize=4096)
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


__all__ = ["Finding", "scan"]
