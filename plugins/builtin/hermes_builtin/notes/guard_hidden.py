"""Finds what a person who reads a text can't see and a model can: characters and markup."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple


class HiddenText(NamedTuple):
    """What was found: a kind, and words for a person."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"

    @property
    def advice(self) -> str:
        """What to save instead."""
        return _ADVICE.get(self.kind, "Save the fact alone.")


#: What to do about each family of findings.
_ADVICE: Final = {
    "instruction override": "Save what the user wants, without a word on the model's own rules.",
    "role takeover": "Save who people are; a note can't say who the model is to be.",
    "deception": "Save the fact; a note can't ask to keep something from the user.",
    "persistence": "Save the fact; a note can't give consent, fetch orders, or copy itself.",
    "tampering": "Save where the file is; change files and settings with the user, not by a note.",
    "exfiltration": "Save where the data is; a note can't ask to send or show it.",
    "hidden characters": "Save it again without the characters that can't be seen.",
    "hidden text": "Save only the text that a reader would see.",
}

FAMILIES: Final = frozenset(_ADVICE)


# -- Characters in notes that a person can't see, where they hide something ---------------------
#
# Joiners are part of emoji and of many scripts, direction marks of right-to-left text, and a
# soft hyphen of a long word: these pass where they belong. A model reads them all, and some
# can spell any text, one character or one bit each.

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


def hidden_characters(text: str) -> HiddenText | None:
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


def _finding(char: str) -> HiddenText:
    name = unicodedata.name(char, "character without a name").lower()
    return HiddenText("hidden characters", f"U+{ord(char):04X} {name}")


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


# -- Text that a page doesn't show ---------------------------------------------------------------
#
# Comments and invisible elements are part of ordinary markup, so what they say decides. A comment
# is suspicious if it speaks to a model; an invisible element, if it holds a sentence.

#: How comments and the like begin and end.
_COMMENTS: Final = (
    ("<!--", "-->"),
    ("[//]: #", "\n"),
    ("{{!", "}}"),
    ("{#", "#}"),
    ("<template", "</template"),
    ("<noscript", "</noscript"),
    ("<script", "</script"),
    ("<meta", ">"),
    (" alt=", ">"),
    (" title=", ">"),
    ("<font color", "</font"),
)
_TO_A_MODEL: Final = (
    r"\b(?:assistants?|ai|ais|llms?|language models?|chatbots?|chatgpt|gpt|claude|gemini|copilot)\b"
    r"|\b(?:agents?|models?|system|bots?|instructions?)\b ?[:,]|\bai[-_]instructions?\b|text/llm"
    r"|\b(?:ignore|disregard|obey|override)\b(?= \w+ \w+)"
)
_UNSHOWN: Final = (
    r"display ?: ?none|visibility ?: ?hidden|opacity ?: ?0?\.?0+(?![.\d])"
    r"|font-size ?: ?0?\.?[01]?(?:px|pt|em|rem|%)?(?![.\d])|color ?: ?transparent"
    r"|(?:left|top|right|text-indent|margin-left) ?: ?-\d{3,}"
    r"|(?:max-)?(?:width|height) ?: ?0(?![.\d])|clip ?: ?rect\(0| hidden(?= |>|=)"
)
_COLOUR: Final = r"(?<![\w-])(color|background(?:-color)?) ?: ?([#\w]{3,20})"
_TAG: Final = r"<[a-z][a-z0-9]{0,15}(?=[ /])[^<>]{0,600}>"
_SENTENCE: Final = r"(?:\w+\W+){2,}\w+"
_SAME: Final = {"white": "#fff", "#ffffff": "#fff", "black": "#000", "#000000": "#000"}
_FAR: Final = 15  # so many empty lines, and what follows is out of sight


def hidden_text(text: str) -> HiddenText | None:
    """The first piece of text that a page would not show and that is there for a model, or None."""
    if "\n" in text and _scrolled_away(text):
        return HiddenText("hidden text", "a line far below the others")
    if not ("<" in text or "{" in text or "[" in text):
        return None
    lower = text.lower()
    for piece in _comments(lower):
        if found := re.search(_TO_A_MODEL, piece):
            return HiddenText("hidden text", f"a comment that says “{_cut(piece, found.start())}”")
    for piece in _unshown(lower):
        if re.search(_SENTENCE, piece):
            return HiddenText("hidden text", f"an invisible element that says “{_cut(piece)}”")
    return None


def _cut(piece: str, at: int = 0) -> str:
    return " ".join(piece[at:].split())[:40].strip()


def _scrolled_away(text: str) -> bool:
    """Whether text comes after many empty lines."""
    return any(
        gap.group().count("\n") >= _FAR and gap.end() < len(text)
        for gap in re.finditer(r"\n[\s\u2800]{14,}+", text)
    )


def _comments(text: str) -> Iterator[str]:
    """What is inside comments and other places that a page doesn't show."""
    for begin, end in _COMMENTS:
        place = text.find(begin)
        while place >= 0:
            inside = place + len(begin)
            stop = text.find(end, inside)
            if stop < 0:
                stop = min(len(text), inside + 600)
            yield text[inside:stop]
            place = text.find(begin, max(stop, inside))


def _unshown(text: str) -> Iterator[str]:
    """The text of the elements whose style hides them."""
    for tag in re.finditer(_TAG, text):
        if re.search(_UNSHOWN, tag.group()) or _is_one_colour(tag.group()):
            stop = text.find("<", tag.end())
            if stop >= 0:  # a tag alone is an example
                yield text[tag.end() : stop]


def _is_one_colour(tag: str) -> bool:
    """Whether letters have the colour of what is behind them."""
    colours = {
        what.partition("-")[0]: _SAME.get(value, value) for what, value in re.findall(_COLOUR, tag)
    }
    return colours.get("color") is not None and colours.get("color") == colours.get("background")
