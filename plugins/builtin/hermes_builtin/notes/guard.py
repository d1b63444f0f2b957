"""The guard: finds text in notes that would command the model, hides something, or holds a secret.

`scan` looks at one text. What it objects to is refused on the way in and left out of the prompt;
only a person can allow it (`hermes-plugins memory allow`).
"""

from __future__ import annotations

import binascii
import codecs
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from hermes_builtin.notes.guard_rules import Match, Text, is_known, known_within, plain, search

if TYPE_CHECKING:
    from hermes_core.privacy import Redactor

# -- Characters in notes that a person can't see, where they hide something ---------------------
#
# Joiners are part of emoji and of many scripts, direction marks of right-to-left text, and a
# soft hyphen of a long word: these pass where they belong. A model reads them all, and some
# can spell any text, one character or one bit each.


class Finding(NamedTuple):
    """What was found: a kind, and words for a person."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


_PLAIN: Final = bytes(range(32, 127)) + b"\n\t"
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs"))
_BLANK: Final = (
    r"[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)

_LETTER: Final = r"[^\W\d_]"
_PICTURE: Final = (
    r"[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\ufe0f"
    r"\U0001f000-\U0001fbff]"
)
_IDEOGRAPH: Final = r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003fffd]"
_JOINING: Final = r"[\u0600-\u07ff\u0860-\u0dff\u0f00-\u109f\u1780-\u18af]"
_NO_SPACES: Final = r"[\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff]"
_RIGHT_TO_LEFT: Final = r"[\u05d0-\u05ff\u0620-\u08ff\ufb1d-\ufdfb\ufe70-\ufefc]"
_VARIANT: Final = r"[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
_REGIONS: Final = "|".join(
    "".join(chr(0xE0000 + ord(letter)) for letter in region)
    for region in ("gbeng", "gbsct", "gbwls")
)

#: Characters that are not seen, in the places where people use them.
_IN_PLACE: Final = (
    rf"(?<={_PICTURE})\u200d(?={_PICTURE})",  # joins emoji
    rf"(?<={_JOINING})[\u200c\u200d]",  # joins letters, or keeps them apart
    rf"(?:(?<={_PICTURE})|(?<=[#*0-9]))(?<!\ufe0f)[\ufe0e\ufe0f]",  # colourful or plain
    rf"(?<={_IDEOGRAPH}){_VARIANT}",  # a variant of an ideograph
    rf"\U0001f3f4(?:{_REGIONS})\U000e007f",  # the flags of England, Scotland and Wales
    rf"(?<={_LETTER})\u00ad(?={_LETTER})",  # a soft hyphen
    rf"(?<=[/.,:?&=@#_+|-])\u200b|(?<={_NO_SPACES})\u200b|\u200b(?={_NO_SPACES})",  # may break here
    r"(?<=[\u2801-\u28ff])\u2800|\u2800(?=[\u2801-\u28ff])",  # a space in Braille
    r"[\u0600-\u0605\u06dd\u070f\u08e2]",  # Arabic signs around numbers
    r"\r$",  # the line end of Windows
    # These blocks still grow, and the tables of this Python may be older than the text.
    r"[\U0001f000-\U0001fbff]|[\U00020000-\U0003fffd]",
)
_DIRECTION_MARKS: Final = r"[\u061c\u200e\u200f\u2066-\u2069]"
_OPENING: Final = "\u2066\u2067\u2068"
_CLOSING: Final = "\u2069"
_FEW_MARKS: Final = 12

#: Names have a variant or two; a text in which one follows upon the other is spelt with them.
_FEW_VARIANTS: Final = 8
_SPELT: Final = rf"(?:{_IDEOGRAPH}{_VARIANT}){{6}}"


def hidden_characters(text: str) -> Finding | None:
    """The first character that hides something, or None."""
    foreign = text.encode(errors="surrogatepass").translate(None, _PLAIN)
    if not foreign:
        return None
    suspects = set(filter(_is_suspect, set(foreign.decode(errors="surrogatepass"))))
    if not suspects:
        return None
    spelt = _spelt_with(text)
    if spelt:
        return _finding(spelt)
    for line in text.split("\n"):
        if suspects.isdisjoint(line):
            continue
        for char in _out_of_place(line):
            if char in suspects:
                return _finding(char)
    return None


def _finding(char: str) -> Finding:
    name = unicodedata.name(char, "character without a name").lower()
    return Finding("hidden characters", f"U+{ord(char):04X} {name}")


def _is_suspect(char: str) -> bool:
    return unicodedata.category(char) in _UNSEEN or re.match(_BLANK, char) is not None


def _out_of_place(line: str) -> str:
    """What is left of a line without the characters that may hide something but don't."""
    left = _in_place().sub("", line)
    return re.sub(_DIRECTION_MARKS, "", left) if _directs(line) else left


def _spelt_with(text: str) -> str:
    """A variant of an ideograph, if there are too many to be meant as such; else ""."""
    variants = re.findall(rf"(?<={_IDEOGRAPH}){_VARIANT}", text)
    too_many = len(set(variants)) > _FEW_VARIANTS or re.search(_SPELT, text)
    return variants[0] if too_many else ""


def _directs(line: str) -> bool:
    """Whether the direction marks of a line are such as people use in right-to-left text."""
    marks = re.findall(_DIRECTION_MARKS, line)
    return (
        re.search(_RIGHT_TO_LEFT, line) is not None
        and len(marks) <= _FEW_MARKS
        and re.search(f"{_DIRECTION_MARKS}{{2}}", line) is None
        and _is_balanced(marks)
    )


def _is_balanced(marks: list[str]) -> bool:
    """Whether each isolate that is opened is closed."""
    depth = 0
    for mark in marks:
        depth += (mark in _OPENING) - (mark == _CLOSING)
        if depth < 0:
            return False
    return depth == 0


@cache
def _in_place() -> re.Pattern[str]:
    return re.compile("|".join(_IN_PLACE))


# -- Looks for text in notes that would command the model instead of informing it ---------------
#
# Notes go into every system prompt, so one poisoned entry outlives the conversation that
# planted it. Three things are looked for: orders that override the model's instructions,
# orders to carry data away, and characters that a person can't see. Nothing in the text can
# switch the scan off.
#
# Disguises that a model sees through are undone first. Some change the whole text (base64,
# ``s p a c e d`` letters), others single words (``1gn0re``). A word is changed only into one
# that the rules know: ordinary text has no other reading.

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
    """The known word or words that a word stands for; () if it is not a disguise."""
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

# -- Secrets in notes, found by the rules that mask what an external provider gets --------------
#
# Notes are part of every system prompt, so a secret in one is sent to the model's provider in
# every conversation.

SECRET: Final = "secret"  # noqa: S105 - a kind of finding

_Value = TypeVar("_Value")


def find_secret(value: str | list[str]) -> Finding | None:
    """The kinds of secrets in a text, or in any of several; None without one."""
    kinds = _redactor().redact(value).kinds
    return Finding(SECRET, ", ".join(kinds)) if kinds else None


def without_secrets(value: _Value) -> _Value:
    """A text, or a tuple or list of texts, with a mask in place of each secret."""
    masked: _Value = _redactor().redact(value).value
    return masked


@cache
def _redactor() -> Redactor:
    from hermes_core.privacy import Redactor  # noqa: PLC0415 - not needed to start an agent

    return Redactor()
