"""Known secrets, in every way in which they may be written.

A plugin, a library or a service may quote a secret in a URL, in JSON, in base64 or in hexadecimal,
on several lines or with signs between its letters. Two things are looked for: the secret in the
usual ways of escaping it, to the letter; and the letters and digits of each way of writing it,
whatever is between them and in whatever case they are.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from string import ascii_letters, digits
from typing import Final
from urllib.parse import quote, quote_plus

#: Separates the strings of one value while they are searched as one.
BORDER: Final = "\n\x00\n"
#: A shorter text is not a secret: it occurs in many texts by chance.
_SHORTEST: Final = 6
#: So many letters and digits in a row are not there by chance, whatever is between them.
_FEWEST: Final = 10
_FEWEST_ENCODED: Final = 12
#: A shorter part of a secret, which is split over two strings, is not masked.
_SHORTEST_PART: Final = 4

_ALNUM: Final = frozenset(f"{ascii_letters}{digits}")
_SIGNS: Final = bytes(code for code in range(256) if chr(code) not in _ALNUM)
#: Signs that most ways of escaping leave as they are.
_UNRESERVED: Final = "-_.~"
#: How one byte is written, as far as letters and digits go: %2f and =2F, \x2f and &#x2f;, 0x2f,
#: \u002f and U+002F, &#47;, 47 in a list, and \057.
_STYLES: Final = ("{:02x}", "x{:02x}", "0x{:02x}", "u{:04x}", "{:d}", "{:03d}", "{:03o}")

_ESCAPE: Final = (
    r"(?:[%=]|%25|\\+x|\\+u00)([0-9a-f]{2})|\\+([0-3][0-7]{2})"
    r"|(&(?:#\d{1,7}|#x[0-9a-f]{1,6}|\w{2,8});)"
)


class KnownSecrets:
    """Finds secrets in texts.

    Args:
        secrets: The secrets; those of fewer than 6 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        usable = [each for each in secrets if len(each) >= _SHORTEST]
        self._exact = {way for each in usable for way in _escaped(each)}
        self._spelled = {way for each in usable for way in _spelled(each)}

    def __bool__(self) -> bool:
        return bool(self._exact)

    def found_in(self, text: str) -> set[str]:
        """Return the parts of a text that are a secret, as they are written there."""
        found = {way for way in self._exact if way in text}
        for reading in _readings(text):
            letters = _letters(reading)
            hits = [way for way in self._spelled if way in letters]
            if hits:
                found.update(_places(text, reading, letters, hits))
        return found


def _places(text: str, reading: str, letters: bytes, hits: list[bytes]) -> Iterator[str]:
    """Yield what is written where the letters of a secret are."""
    at = [place for place, char in enumerate(reading) if char in _ALNUM]
    for way in hits:
        start = letters.find(way)
        while start >= 0:
            written = text[at[start] : at[start + len(way) - 1] + 1]
            if BORDER not in written:
                yield written
            else:
                yield from (each for each in written.split(BORDER) if len(each) >= _SHORTEST_PART)
            start = letters.find(way, start + 1)


def _letters(text: str) -> bytes:
    """The letters and digits of a text, in lower case."""
    return text.encode("ascii", "ignore").translate(None, _SIGNS).lower()


def _readings(text: str) -> set[str]:
    r"""A text as it is, with blanks for ``\n`` and the like, and with its escapes decoded.

    All have the same length.
    """
    found = {text}
    if "\\" in text:
        found.add(re.sub(r"\\+[nrt]", lambda at: " " * len(at[0]), text))
    if any(sign in text for sign in "%=&\\"):
        found.add(re.sub(_ESCAPE, _decoded, text, flags=re.IGNORECASE))
    return found


def _decoded(escape: re.Match[str]) -> str:
    import html  # noqa: PLC0415 - it compiles patterns

    sixteen, eight, entity = escape.groups()
    char = chr(int(sixteen, 16)) if sixteen else chr(int(eight, 8)) if eight else ""
    return (char or html.unescape(entity)).rjust(len(escape[0]))[: len(escape[0])]


def _escaped(secret: str) -> set[str]:
    """The secret in the usual ways of escaping it."""
    quoted = {quote(secret, safe="", errors="replace"), quote(secret, errors="replace")}
    quoted.add(quote_plus(secret, errors="replace"))
    quoted |= {quote(each, safe="") for each in quoted}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    twice = {json.dumps(once)[1:-1] for once in escaped}
    # With one kind of quote in it, and with both: then the single ones are escaped.
    shown = {repr(secret)[1:-1], repr(f'{secret}"')[1:-2], repr(_bytes(secret))[2:-1]}
    ways = {secret} | shown | escaped | twice | quoted
    ways |= {_small_escapes(each) for each in quoted}
    encoded = _bytes(secret)
    if len(encoded) >= _FEWEST_ENCODED:
        encoders = (base64.b85encode, base64.a85encode, base64.b64encode, base64.urlsafe_b64encode)
        ways |= {encode(encoded).decode().rstrip("=") for encode in encoders}
    return ways


def _spelled(secret: str) -> Iterator[bytes]:
    """The letters and digits of every way to write it, where they are enough to be sure."""
    plain = _letters(secret)
    if len(plain) >= _FEWEST:
        yield plain
        yield plain[::-1]
    encoded = _bytes(secret)
    ways = {_letters(way) for way in _escaped(secret)} | {*_in_styles(encoded)}
    ways |= {_letters(way) for way in _in_bases(encoded)}
    yield from (way for way in ways if len(way) >= _FEWEST_ENCODED)


def _in_styles(secret: bytes) -> Iterator[bytes]:
    """Every byte escaped; all but letters and digits; all but these and some signs."""
    letters = ascii_letters + digits
    for style in _STYLES:
        for kept in ("", letters, letters + _UNRESERVED):
            parts = (chr(each) if chr(each) in kept else style.format(each) for each in secret)
            yield _letters("".join(parts))


def _in_bases(secret: bytes) -> Iterator[str]:
    """In base64, also within longer base64, twice, and of UTF-16; in base32."""
    if len(secret) < _FEWEST_ENCODED:
        return
    for each in (secret, base64.b64encode(secret), secret.decode().encode("utf-16-le")):
        yield from _shifted(each)
    yield base64.b32encode(secret).decode().rstrip("=")
    yield binascii.b2a_uu(secret[:45]).decode()


def _shifted(secret: bytes) -> Iterator[str]:
    """Base64 after any bytes and before any: its characters that depend on the secret alone."""
    for before in range(3):
        written = base64.b64encode(bytes(before) + secret).decode()
        first = -(-before * 8 // 6)
        yield written[first : (before + len(secret)) * 8 // 6]


def _bytes(secret: str) -> bytes:
    return secret.encode("utf-8", "replace")


def _small_escapes(quoted: str) -> str:
    """`%2f` for `%2F`: both are valid."""
    first, *others = quoted.split("%")
    return "%".join([first, *(each[:2].lower() + each[2:] for each in others)])
