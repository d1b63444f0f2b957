"""Applies the rules of guard-rules.txt, with the words of guard-words.txt, to a text.

Words are compared without regard to case, accents and punctuation, and distances are counted
in words. So a rule takes time in proportion to the text, whatever the text is. What words
can't say (tags, fences, image links) is a shape.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from string import ascii_lowercase
from typing import Final, NamedTuple

_OVERRIDE: Final = "instruction override"
_EXFILTRATION: Final = "exfiltration"

#: Kind, a piece of text without which the pattern can't match, and the pattern.
_SHAPES: Final = (
    # The tokens of chat templates: ChatML, Llama, Gemma, Alpaca.
    (_OVERRIDE, "<|", r"<\|[\w ]{2,40}\|>"),
    (_OVERRIDE, "inst]", r"\[/?inst\]"),
    (_OVERRIDE, "sys>>", r"<</?sys>>"),
    (_OVERRIDE, "_of_turn>", r"<(?:start|end)_of_turn>"),
    (_OVERRIDE, "##", r"## ?(?:system|instruction|response) ?:"),
    # Tags of a voice that a note hasn't, and the end of the block that notes are in.
    (_OVERRIDE, "<", r"</?(?:system|operator|admin)(?:[-_ ]\w{1,20})?>"),
    (_OVERRIDE, "</", r"</(?:memory[-_ ]?context|memory|notes?|context|user-profile)>"),
    (_OVERRIDE, "══════", r"══════"),
    (_OVERRIDE, "--", r"-- ?(?:begin|end)(?: \w{2,3}){0,3} (?:system|memory|notes|prompt)"),
    # Turns of a conversation that never was.
    (_OVERRIDE, "role", r"role[\"'] ?: ?[\"'](?:system|developer)[\"']"),
    (_OVERRIDE, "assistant:", r"(?:human|user) ?:[^\n]{0,500}+\n\s*assistant ?:"),
    # A shell that somebody else types into.
    (_OVERRIDE, "/dev/tcp/", r"/dev/tcp/\S{1,60}"),
    # An address that the model is to fill with data.
    (_EXFILTRATION, "://", r"""(?x) https?:// [^\s<{\[]{3,200}+ (?<=[?&/=]) [<{\[] [^\n]{0,40}?
        (?:summary|conversation|message|base64|history|secret|password|prompt|memory|notes)"""),
)  # fmt: skip

# -- text to words ---------------------------------------------------------------------------

#: Signs that mean something, and the words they become. The text is in lower case by then:
#: nobody else can write these.
_SIGNS: Final = (
    ("\n\n", " BREAK "),
    (". ", " STOP "),
    ("; ", " STOP "),
    ("://", " LINK "),
    ("@", " AT "),
    (".env", " DOTENV "),
    ("|", " PIPE "),
    (">>", " APPEND "),
    ("$(", " SUBST "),
    ("$", " VARIABLE "),
    (" -i ", " IDENTITY "),
    ("system:", " SYSTEM "),
    ("[system", " SYSTEM "),
)
_FOREIGN: Final = r"[^\x00-\x7f](?:[\x00-\x7f]{0,20}+[^\x00-\x7f])*"
_ACCENTS: Final = r"[\u0300-\u036f\u0640\u064b-\u065f\u0670\u3099\u309a]"
_INVISIBLE: Final = (
    r"[\u00ad\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    r"\U000e0000-\U000e0fff]"
)
_WITHOUT_SPACES: Final = r"[\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]+"
_PUNCTUATION: Final = r"[^\w\x00-\x7f\u0900-\u0dff\u0e00-\u109f\u1780-\u17ff\u2550]+"
_ARABIC_ARTICLE: Final = r"(?<!\w)(?:[\u0648\u0641\u0628\u0643]?\u0627\u0644|\u0644\u0644)(?=\w{3})"
_OTHER_LETTERS: Final = str.maketrans(
    "łøđıᴀʙᴄᴅᴇꜰғɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ",
    "lodiabcdeffghijklmnoprstuvwyz",
) | {0x1F170 + number: letter for number, letter in enumerate(ascii_lowercase)}


class Text(NamedTuple):
    """A plain text, and its words."""

    plain: str
    words: list[str]
    different: set[str]

    @classmethod
    def of(cls, text: str) -> Text:
        """A plain text with words for the signs that mean something."""
        words = _words(text)
        return cls(text, words, set(words))


def plain(text: str) -> str:
    """Text in lower case, without accents and invisible characters."""
    if not text.isascii():
        text = re.sub(_FOREIGN, _folded, text)
    return text.encode(errors="replace").lower().decode()


def _folded(match: re.Match[str]) -> str:
    text = unicodedata.normalize("NFKD", match.group()).casefold()
    text = re.sub(f"{_ACCENTS}|{_INVISIBLE}", "", text).translate(_OTHER_LETTERS)
    text = re.sub(_WITHOUT_SPACES, lambda run: f" {' '.join(run.group())} ", text)
    return re.sub(_ARABIC_ARTICLE, "", re.sub(_PUNCTUATION, " ", text))


def _words(text: str) -> list[str]:
    for sign, word in _SIGNS:
        text = text.replace(sign, word)
    return text.encode().translate(_blanks()).decode().split()


@cache
def _blanks() -> bytes:
    """A table that makes a blank of every ASCII character but letters and digits."""
    signs = bytes(code for code in range(128) if not chr(code).isalnum())
    return bytes.maketrans(signs, b" " * len(signs))


# -- the files, read once --------------------------------------------------------------------

_HEAD: Final = 4  # a stem has at least so many letters, and is looked up by them
_NEXT: Final = 2  # the same for the words after it in a phrase

_Parts = tuple[str, ...]


class Rule(NamedTuple):
    """Classes of words with the largest gap before each, and what makes them harmless."""

    kind: str
    steps: list[tuple[int, str]]
    names: frozenset[str]
    unless: list[tuple[str, str]]


class _Entry(NamedTuple):
    """The classes of a word, and the phrases it begins, by the next word's first letters."""

    names: list[str]
    phrases: dict[str, list[tuple[_Parts, list[str]]]]


def _lines(name: str) -> Iterator[str]:
    text = Path(__file__).with_name(name).read_text("utf-8")
    for line in text.splitlines():
        if content := line.partition("#")[0].rstrip():
            yield content


@cache
def rules() -> list[Rule]:
    """The rules, in the order in which they are tried."""
    found = []
    for line in _lines("guard-rules.txt"):
        if line[0] != " ":
            kind = line.partition(":")[0]
            continue
        row, _, unless = line.partition(" unless ")
        steps = [(int(gap or 0), name) for gap, name in re.findall(r"(?:(\d+) )?([A-Z_]+)", row)]
        names = frozenset(name for _, name in steps)
        around = re.findall(r"(after|around|before) ([A-Z_]+)", unless)
        found.append(Rule(kind, steps, names, around))
    return found


@cache
def classes() -> dict[str, set[_Parts]]:
    """The phrases of each class, as words. A sign is a class of its own."""
    found: dict[str, set[_Parts]] = {word.strip(): {(word.strip(),)} for _, word in _SIGNS}
    for line in _lines("guard-words.txt"):
        if line[0] != " ":
            members = found.setdefault(line, set())
            continue
        for phrase in re.sub(r"(?:^|\|)\s*[a-z]{2}:", ",", line).split(","):
            members |= found[phrase.strip()[1:]] if "+" in phrase else {_parts(phrase)} - {()}
    return found


def _parts(phrase: str) -> _Parts:
    if phrase.strip().isupper():  # the word for a sign
        return (phrase.strip(),)
    words = _words(plain(phrase.replace("*", "0star0")))
    return tuple(word.replace("0star0", "*") for word in words)


@cache
def _names() -> dict[str, dict[_Parts, list[str]]]:
    """The classes of every phrase that makes a rule, by the first letters of the phrase."""
    found: dict[str, dict[_Parts, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in sorted({name for rule in rules() for name in rule.names}):
        for parts in classes()[name]:
            found[_head(parts[0])][parts].append(name)
    return dict(found)


@lru_cache(maxsize=4096)
def _entry(word: str) -> _Entry | None:
    """What the rules know about a word, or None."""
    entry = _Entry([], defaultdict(list))
    for parts, names in _names().get(word[:_HEAD], {}).items():
        if _fits(parts[0], word):
            if len(parts) == 1:
                entry.names.extend(names)
            else:
                entry.phrases[parts[1].rstrip("*")[:_NEXT]].append((parts, names))
    return entry if entry.names or entry.phrases else None


@cache
def _openings(name: str) -> dict[str, list[_Parts]]:
    """The phrases of a class by their first word, which is no stem."""
    found: dict[str, list[_Parts]] = defaultdict(list)
    for parts in classes()[name]:
        found[parts[0]].append(parts)
    return dict(found)


@cache
def _vocabulary() -> dict[str, set[str]]:
    """Every word of every phrase, by its first letters."""
    known: dict[str, set[str]] = defaultdict(set)
    for part in {part for phrases in classes().values() for parts in phrases for part in parts}:
        known[_head(part)].add(part)
    return dict(known)


def is_known(word: str) -> bool:
    """Whether a word is part of any rule."""
    return any(_fits(part, word) for part in _vocabulary().get(word[:_HEAD], ()))


def known_within(word: str) -> Iterator[tuple[int, str]]:
    """The known words of four letters or more inside a word, the longest at each place."""
    known = _vocabulary()
    for place in range(len(word) - _HEAD + 1):
        stems = (part.rstrip("*") for part in known.get(word[place : place + _HEAD], ()))
        if found := [stem for stem in stems if word.startswith(stem, place)]:
            yield place, max(found, key=len)


def _head(part: str) -> str:
    return part.rstrip("*")[:_HEAD]


def _fits(part: str, word: str) -> bool:
    return word.startswith(part[:-1]) if part[-1] == "*" else word == part


# -- the rules, applied ----------------------------------------------------------------------

_ACROSS: Final = 8  # a match that reaches into another entry has no more words than this
_LONGEST: Final = 3  # so many words has a phrase that excuses what follows

_Spans = Mapping[str, Sequence[tuple[int, int]]]


class Match(NamedTuple):
    """What a rule or a shape has found."""

    kind: str
    quote: str


def search(text: Text) -> Match | None:
    """The first thing wrong with a text, or None."""
    spans = _spans(text)
    for rule in rules():
        if rule.names <= spans.keys():
            for begin, end in _matches(rule, spans):
                if not _is_harmless(rule, text.words, begin, end):
                    return Match(rule.kind, _quote(text.words[begin:end]))
    for kind, piece, pattern in _SHAPES:
        if piece in text.plain and (found := re.search(pattern, text.plain)):
            return Match(kind, found.group().strip())
    return None


def _spans(text: Text) -> _Spans:
    """Where the words of each class are."""
    known = {word: entry for word in text.different if (entry := _entry(word))}
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for begin, word in enumerate(text.words):
        if word in known:
            names, phrases = known[word]
            for name in names:
                spans[name].append((begin, begin + 1))
            if phrases:
                after = text.words[begin + 1 : begin + 2]
                for parts, names in phrases.get(after[0][:_NEXT], ()) if after else ():
                    if _stands_at(parts, text.words, begin):
                        for name in names:
                            spans[name].append((begin, begin + len(parts)))
    return spans


def _stands_at(parts: _Parts, words: Sequence[str], begin: int) -> bool:
    found = words[begin : begin + len(parts)]
    return len(parts) == len(found) and all(map(_fits, parts, found))


def _matches(rule: Rule, spans: _Spans) -> Iterator[tuple[int, int]]:
    (_, first), *others = rule.steps
    for begin, end in spans[first]:
        last = end
        for gap, name in others:
            place = bisect_left(spans[name], (last,))
            if place == len(spans[name]) or spans[name][place][0] > last + gap:
                break
            last = spans[name][place][1]
        else:
            yield begin, last


def _is_harmless(rule: Rule, words: Sequence[str], begin: int, end: int) -> bool:
    """Whether a match runs from one entry into the next, or has around it what excuses it."""
    if end - begin > _ACROSS and "BREAK" in words[begin:end]:
        return True
    return any(_is_there(name, where, words, begin, end) for where, name in rule.unless)


def _is_there(name: str, where: str, words: Sequence[str], begin: int, end: int) -> bool:
    """Whether a word of a class is right before, in or right after a match."""
    places = {
        "after": range(max(begin - _LONGEST, 0), begin),
        "around": range(begin, end),
        "before": range(end, min(end + 1, len(words))),
    }[where]
    phrases = _openings(name)
    return any(
        (where != "after" or place + len(parts) == begin) and _stands_at(parts, words, place)
        for place in places
        for parts in phrases.get(words[place], ())
    )


def _quote(words: Sequence[str]) -> str:
    """Words as a person would write them."""
    text = " ".join(words)
    for sign, word in reversed(_SIGNS):
        text = text.replace(word, sign).replace(word.strip(), "")
    return unicodedata.normalize("NFC", text)
