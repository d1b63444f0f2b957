"""What a text looks like to a model: look-alikes as ASCII, everything invisible as a blank."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

#: Characters that look like these and that neither NFKC nor their names reveal.
_DRAWN: Final = {
    "<": "\u02c2\u1438\u2039\u2329\u276c\u276e\u2770\u27e8\u27ea\u2991\u2993\u29fc\u3008\u300a"
    "\u226a\u227a\u22d6\u25c1\u25c2\u00ab\u2a79\u276a",
    ">": "\u02c3\u1433\u203a\u232a\u276d\u276f\u2771\u27e9\u27eb\u2992\u2994\u29fd\u3009\u300b"
    "\u226b\u227b\u22d7\u25b7\u25b8\u00bb\u2a7a\u276b",
    "/": "\u2044\u2215\u29f8\u2571\u27cb\u3033\u30ce\u4e3f\u1735\u2cc6\u31d3\u2f03",
    "-": "\u02d7\u06d4\u1173\u1427\u2212\u2500\u2501\u2796\u2cba\u30fb\u30fc\u3161\u4e00\u2043"
    "\u00b7\u00af\u02c9\u2022\u223c\u301c\uff5e\u2f00",
    "c": "\u0441\u0421\u03f2\u03f9\u13df\u2ca5\u2ca4\ua4da\uabaf\u04ab\u04aa\u00a2\U0001043d"
    "\U00010415\U000102a2\U00010302\u217d\u0297\u1455",
    "e": "\u0435\u0415\u0395\u03b5\u0454\u0404\u04bd\u04bf\u212e\u13ac\ua4f0\u22ff\u2d39\u2c89"
    "\u2c88\uab32\u0259\u018f\u03f5\u2208\u0511\u0190\u025b",
    "m": "\u043c\u041c\u039c\u04ce\u04cd\u13b7\u2c98\u2c99\u03fa\u16d6\ua4df\U000102b0"
    "\U00010311\u20a5\uab87\u028d\u043b\u028d",
    "n": "\u043f\u041f\u0438\u0418\u0578\u057c\u03b7\u039d\u03bd\ua4e0\u2c9a\u2c9b\u014b\u0572"
    "\u03c0\u144e",
    "o": "\u043e\u041e\u03bf\u039f\u03c3\u0585\u0555\u05e1\u0647\u0d20\u101d\u12d0\u2c9f\u2c9e"
    "\u2d54\ua4f3\u25cb\u25ef\u3007\u04e9\u04e8\u03b8\u0398\u00b0\u2218\u25e6\u06c1\u09e6"
    "\U0001043e\U00010404\U00010292",
    "r": "\u0433\u0413\u0393\u1d26\u13a1\u13d2\ua4e3\u2c85\u2c84\u044f\u042f\u0280\u0491\u0490"
    "\uab47\uab48\uab81\u01a6",
    "t": "\u0442\u0422\u03c4\u03a4\u13a2\ua4d4\u2ca6\u2ca7\u22a4\u27d9\u2020\U00010297\U00010315"
    "\u0548\u271d\uff34\u04ad\u04ac",
    "x": "\u0445\u0425\u03c7\u03a7\u00d7\u1541\u157d\u2a2f\u292b\u292c\u2573\u04b3\u04b2\u2cad"
    "\u2cac\ua4eb\u2d5d\u16b7\u2715\u2716\u2717\u2718\u274c\u166d\U00010317\U00010290",
    "y": "\u0443\u0423\u03b3\u03a5\u03c5\u04af\u04ae\u04b1\u04b0\u0263\u10e7\u13a9\u13bd\ua4ec"
    "\u2ca9\u2ca8\uab5a\u1d8c\u04ef\u0479\U000102b2\u03d2",
}
#: Blank although they are letters or symbols: Hangul fillers and an empty Braille pattern.
_EMPTY: Final = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f")
#: Separators, controls, marks that combine, and code points that are unassigned or private.
_UNSEEN: Final = frozenset(("Zs", "Zl", "Zp", "Cc", "Cf", "Cn", "Co", "Cs", "Mn", "Me", "Mc"))
_LATIN: Final = r"LATIN (?:(?:SMALL|CAPITAL) LETTER|LETTER SMALL CAPITAL) ([A-Z])(?: WITH .*)?"
_ENCLOSED: Final = ((0x1F150, 0x1F169), (0x1F170, 0x1F189), (0x1F1E6, 0x1F1FF))
_TAGS: Final = range(0xE0020, 0xE007F)

_NAMED: Final = {
    **dict.fromkeys(("lt", "lang", "langle", "laquo", "lsaquo", "nvlt"), "<"),
    **dict.fromkeys(("gt", "rang", "rangle", "raquo", "rsaquo", "nvgt"), ">"),
    **dict.fromkeys(("sol", "frasl", "bsol"), "/"),
    **dict.fromkeys(("hyphen", "dash", "ndash", "mdash", "minus", "lowbar", "underbar"), "-"),
    **dict.fromkeys(
        (
            *("nbsp", "ensp", "emsp", "thinsp", "shy", "zwj", "zwnj", "lrm", "rlm", "tab"),
            *("newline", "zerowidthspace", "nobreak", "numsp", "puncsp", "hairsp"),
        ),
        " ",
    ),
}
_NAMES: Final = "|".join(sorted(_NAMED, key=len, reverse=True))
#: An ampersand may be written as an entity itself, and that again.
_ESCAPE: Final = (
    r"&(?:amp;|#0*+38;|#x0*+26;)*+"
    rf"(?:#x0*+([0-9a-f]{{1,6}}+)|#0*+(?P<decimal>\d{{1,7}}+)|(?P<name>{_NAMES}));?+"
    r"|\\u0000([0-9a-f]{4})|\\u([0-9a-f]{4})|\\u\{([0-9a-f]{1,6})\}|\\x([0-9a-f]{2})"
    r"|%([0-7][0-9a-f])"
)
_HIGHEST: Final = 0x10FFFF


def with_readable_tags(text: str) -> str:
    """Return a text with ASCII for the tags block: invisible, but some models read it."""
    if any(ord(char) in _TAGS for char in set(text)):
        return text.translate({code: code - 0xE0000 for code in _TAGS})
    return text


def skeleton(text: str) -> str:
    """Return what a text looks like, with as many characters as it has."""
    looks = {ord(char): _look(char) for char in set(text) - _SAFE}
    text = text.translate(looks) if looks else text
    if "&" in text or "\\" in text or "%" in text:
        text = _escape().sub(_decoded, text)
    return text


_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789 .,:;!?'\"()[]{}#*+=@$^`|~&%\\/<>-")


@cache
def _escape() -> re.Pattern[str]:
    return re.compile(_ESCAPE)


def _decoded(escape: re.Match[str]) -> str:
    """What an escape looks like, with so many blanks on the inner side that the length stays."""
    if escape["name"]:
        char = _NAMED[escape["name"]]
    else:
        digits = escape["decimal"] or escape[escape.lastindex or 0]
        code = int(digits, 10 if escape["decimal"] else 16)
        char = _look(chr(code)) if code <= _HIGHEST else "?"
    size = len(escape[0])
    return char.ljust(size) if char == "<" else char.rjust(size)


@cache
def _drawn() -> dict[str, str]:
    return {char: shown for shown, chars in _DRAWN.items() for char in chars}


def _look(char: str) -> str:
    if char.isascii():
        return char.lower() if char.isprintable() and char != "_" else "-" if char == "_" else " "
    return _foreign(char)


@cache
def _foreign(char: str) -> str:
    """Cached: at most one entry for each code point that texts contain."""
    drawn, category = _drawn().get(char), unicodedata.category(char)
    if drawn:
        return drawn
    if char in _EMPTY or category in _UNSEEN:
        return " "
    if category in ("Pd", "Pc"):
        return "-"
    if unicodedata.digit(char, None) == 0:
        return "o"
    for first, last in _ENCLOSED:
        if first <= ord(char) <= last:
            return chr(ord("a") + ord(char) - first)
    return _folded(char) or char


def _folded(char: str) -> str:
    """The ASCII letter or sign that a character is a variant of, or looks like."""
    plain = unicodedata.normalize("NFKD", char).strip("()")
    bases = [each for each in plain if unicodedata.category(each) not in _UNSEEN]
    if len(bases) == 1 and bases[0] != char:
        return _look(bases[0])
    letter = re.fullmatch(_LATIN, unicodedata.name(char, ""))
    if letter:
        return letter[1].lower()
    lower = char.lower()
    return _look(lower) if lower != char and len(lower) == 1 else ""
