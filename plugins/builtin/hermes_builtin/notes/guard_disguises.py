"""What else a text says: disguises that a model sees through, undone.

Some change the whole text (base64, ``s p a c e d`` letters), others single words (``1gn0re``).
A word is changed only into one that the rules know: ordinary text has no other reading.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from string import ascii_letters, ascii_lowercase, digits
from typing import Final

from hermes_builtin.notes.guard_rules import Text, is_known, jumbled, known_within, plain
from hermes_builtin.sessions.words import TO_LATIN

# -- disguises of whole texts ----------------------------------------------------------------

_ALONE: Final = r"[^\W_\u3040-\u9fff]"
_SPACED: Final = rf"[\s.,:;_*/'\"()<>-]{_ALONE}([ .,_*/-]){_ALONE}(?:\1{_ALONE})+(?!{_ALONE})"
_INSIDE_A_WORD: Final = (
    r"[<'\"\\*`^~](?<=\w.)(?:(?<=<)[^<>]{0,200}>(?:<[^<>]{0,200}>)*|(?<!<)['\"\\*`^~]*)(?=[a-z])"
)
_CONCATENATED: Final = r"['\"] ?\+ ?['\"]"
_WITH_SIGNS: Final = r"(?<![\w@$])(?=\w{0,20}[@$])[\w@$]{3,30}(?![\w@$])"
_ESCAPED: Final = (
    r"(?:\\u00|\\x|%|&#x|U\+00)([2-7][0-9a-fA-F]);?(?:(?<=U\+00..) )?"
    r"|&#(\d{2,3});?|\\([01][0-7]{2})"
)
_HEX: Final = r"(?:[0-9a-fA-F]{2}){8,}"
_BASE32: Final = r"[A-Z2-7]{16,}"
#: Codes of characters, one after the other: hexadecimal, decimal or binary.
_CODES: Final = (
    r"(?<!\w)(?:(?:0[xX])?[0-9a-fA-F]{2,3}(?!\w)[ ,;:]{0,2}+){8,}+"
    r"|(?<!\w)(?:[01]{8}(?!\w)[ ,;:]{0,2}+){8,}+"
)
_MORSE: Final = r"(?:[.-]{1,5}[ /]{0,3}+){8,}+"
_DENSE: Final = r"(?<!\S)[!-~]{20,2000}(?!\S)"
_BROKEN: Final = r"(?<=[A-Za-z0-9+/]{16})\r?\n(?=[A-Za-z0-9+/]{2,200}={0,2}(?:\s|$))"
_STANDARD: Final = str.maketrans("-_", "+/")
_MANY: Final = 16

#: Words that commands have. Two of them, turned round or shifted, are no accident.
_TELLTALES: Final = [
    "ignore",
    "disregard",
    "forget",
    "reveal",
    "pretend",
    "disable",
    "forward",
    "every",
    "previous",
    "instructions",
    "prompt",
    "system",
    "password",
    "rules",
    "restrictions",
    "guidelines",
    "user",
    "about",
    "your",
    "without",
    "upload",
    "approval",
    "note",
    "authorized",
    "send",
    "remember",
    "secret",
    "tell",
    "never",
    "all",
    "key",
    "from",
    "now",
    "are",
]
_ROT47: Final = str.maketrans(
    "".join(map(chr, range(33, 127))), "".join(chr(33 + (n + 47) % 94) for n in range(94))
)
_UPSIDE_DOWN: Final = str.maketrans(
    "ɐqɔpǝɟƃɥᴉıɾʞlɯuodbɹsʇnʌʍxʎz",  # noqa: RUF001 - look-alikes are what this is about
    "abcdefghiijklmnopqrstuvwxyz",
)
_TURNED: Final = "ɐɔǝɟƃɥᴉɾʞɯɹʇʌʍʎ"
_MORSE_CODE: Final = dict(
    zip(
        [
            ".-",
            "-...",
            "-.-.",
            "-..",
            ".",
            "..-.",
            "--.",
            "....",
            "..",
            ".---",
            "-.-",
            ".-..",
            "--",
            "-.",
            "---",
            ".--.",
            "--.-",
            ".-.",
            "...",
            "-",
            "..-",
            "...-",
            ".--",
            "-..-",
            "-.--",
            "--..",
            "-----",
            ".----",
            "..---",
            "...--",
            "....-",
            ".....",
            "-....",
            "--...",
            "---..",
            "----.",
        ],
        f"{ascii_lowercase}0123456789",
        strict=True,
    )
)


def readings(text: str, first: Text) -> Iterator[Text]:
    """What else a text says.

    Args:
        text: As it was written.
        first: What it says at first sight.
    """
    for decode in (_unescaped, _decoded, _from_codes, _from_morse, _upright):
        if (decoded := decode(text)) != text:
            yield Text.of(plain(decoded))
            if (again := _decoded(decoded)) != decoded:  # base64 of base64
                yield Text.of(plain(again))
    for undo in (_closed_up, _joined, _lettered):
        if (reading := undo(first)) != first.plain:
            yield Text.of(reading)
    yield from map(Text.of, _turned_round(text, first))


def _unescaped(text: str) -> str:
    r"""With letters for ``\u0069``, ``\x69``, ``%69``, ``&#105;`` and ``&#x69;``."""
    if not any(sign in text for sign in ("\\", "%", "&#", "U+")):
        return text
    return re.sub(_ESCAPED, _character, text)


def _character(match: re.Match[str]) -> str:
    sixteen, ten, eight = match.groups()
    code = int(sixteen, 16) if sixteen else int(ten) if ten else int(eight, 8)
    return chr(code) if chr(code).isprintable() else match.group()


def _decoded(text: str) -> str:
    """What the words in base64, base32, base85 and hexadecimal say; the text itself without any."""
    if "\n" in text:
        text = re.sub(_BROKEN, "", text)
    data = text.encode(errors="replace")
    outline = data.translate(_outline(f"{ascii_letters}{digits}+/_-"))
    tokens = []
    end = 0
    while (at := outline.find(_MANY * b"a", end)) >= 0:
        end = outline.find(b" ", at) % (len(outline) + 1)  # to the end if there is none
        tokens.append(data[at:end].decode())
    found = [*map(_from, tokens), *map(_from_base85, re.findall(_DENSE, text))]
    return "\n\n".join(filter(None, found)) or text


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
        if re.fullmatch(_BASE32, token):
            return base64.b32decode(token + "=" * (-len(token) % 8)).decode()
    with suppress(ValueError):
        if not token.islower():
            padded = token.translate(_STANDARD) + "=" * (-len(token) % 4)
            return binascii.a2b_base64(padded).replace(b"\0", b"").decode()  # or UTF-16
    return ""


def _from_base85(token: str) -> str:
    """What a word says in one of the two base85 alphabets, if that is text."""
    if token.isalnum() or "://" in token:
        return ""
    decoders: tuple[Callable[[str], bytes], ...] = (base64.b85decode, base64.a85decode)
    for decode in decoders:
        with suppress(ValueError):
            said = decode(token.removeprefix("<~").removesuffix("~>")).decode()
            if said.isprintable():
                return said
    return ""


def _from_codes(text: str) -> str:
    """What is spelt with the numbers of characters, as in ``105 103 110`` or ``0x69 0x67``."""
    if len(text.encode(errors="replace").translate(None, b"0123456789")) > len(text) - _MANY:
        return text  # too few digits
    said = (spelt for run in re.findall(_CODES, text) for spelt in _spelt(run))
    return "\n\n".join(said) or text


def _spelt(run: str) -> Iterator[str]:
    numbers = re.findall(r"[0-9a-f]+", run.lower().replace("0x", ""))
    for base in (2,) if len(numbers[0]) == 8 else (10, 16):  # noqa: PLR2004 - bits of a byte
        with suppress(ValueError):
            if (said := "".join(chr(int(number, base)) for number in numbers)).isprintable():
                yield said


def _from_morse(text: str) -> str:
    if "- " not in text:
        return text
    said = (
        " ".join(
            "".join(_MORSE_CODE.get(letter, "") for letter in word.split())
            for word in run.split("/")
        )
        for run in re.findall(_MORSE, text)
    )
    return "\n\n".join(said) or text


def _upright(text: str) -> str:
    """With the letters of a text that is upside down the right way up."""
    if text.isascii() or sum(map(text.count, _TURNED)) < _SEVERAL:
        return text
    return text.lower().translate(_UPSIDE_DOWN)[::-1]


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


def _turned_round(text: str, first: Text) -> Iterator[str]:
    """Read backwards, with each word backwards, or with other letters, where that makes sense."""
    table = _turned_telltales()
    ways = Counter(way for word in first.different & table.keys() for way in table[word])
    for way, count in ways.items():
        if count < _TWO:
            continue
        if way:
            yield first.plain.translate(_alphabets()[way])
        else:
            yield first.plain[::-1]
            yield " ".join(word[::-1] for word in first.plain.split())
    if sum(word in text for word in _rot47_telltales()) >= _TWO:
        yield text.translate(_ROT47).lower()


@cache
def _alphabets() -> list[dict[int, int]]:
    """Tables that undo each shift of the alphabet, and its reversal; the first changes nothing."""
    shifted = [ascii_lowercase[by:] + ascii_lowercase[:by] for by in range(26)]
    return [str.maketrans(ascii_lowercase, each) for each in (*shifted, ascii_lowercase[::-1])]


@cache
def _turned_telltales() -> dict[str, list[int]]:
    """The telltale words as each way writes them: 0 is backwards, the rest are alphabets."""
    found: dict[str, list[int]] = {}
    for word in _TELLTALES:
        found.setdefault(word[::-1], []).append(0)
        for way, table in enumerate(_alphabets()[1:], 1):
            back = {to: letter for letter, to in table.items()}
            found.setdefault(word.translate(back), []).append(way)
    return {word: ways for word, ways in found.items() if not is_known(word)}


@cache
def _rot47_telltales() -> list[str]:
    return [word.translate(_ROT47) for word in _TELLTALES if len(word) > _SHORTEST]


# -- disguises of single words ---------------------------------------------------------------

_DIGITS: Final = (  # a 1 is an i or an l
    str.maketrans("0123456789", "oizeasgtbg"),
    str.maketrans("0123456789", "olzeasgtbg"),
)
_TO_CYRILLIC: Final = str.maketrans("aeopcxyikmhtb", "аеорсхуикмнтв")
_REPEATS: Final = tuple(3 * letter for letter in "aeiou")
_SHORTEST: Final = 3
_LONGEST: Final = 200
_SEVERAL: Final = 6  # three known words, with what is before each
_TWO: Final = 2


def respelt(text: Text) -> Text | None:
    """A text with known words instead of those that are one in disguise; None without any."""
    odd = {
        word
        for word in text.different
        if len(word) >= _MANY or not (word.isalpha() or word.isdigit()) or jumbled(word)
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
    if whole := jumbled(word):
        return [whole]
    known = (one for one in _spellings(word) if len(one) >= _SHORTEST and is_known(one))
    return [spelling] if (spelling := next(known, "")) else ()


def _spellings(word: str) -> Iterator[str]:
    """A word without repetitions, with letters instead of digits, and of one script."""
    word = re.sub(r"([a-z])\1{2,}", r"\1", word)
    latin = word if word.isascii() else word.translate(TO_LATIN)
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
