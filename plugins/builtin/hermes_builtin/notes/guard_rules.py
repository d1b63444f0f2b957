"""Reads guard-rules.txt and guard-words.txt, and applies their rules to a text."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import compress
from pathlib import Path
from string import ascii_lowercase
from typing import Final, NamedTuple

# -- Reads guard-rules.txt and guard-words.txt, and a text as the rules see it ------------------
#
# Words are compared without regard to case, accents and punctuation. Both files are read when
# the first text is scanned, not when this module is imported.

# -- texts -----------------------------------------------------------------------------------

#: Signs that mean something, and the words they become. The text is in lower case by then:
#: nobody else can write these.
SIGNS: Final = (
    ("\n\n", " BREAK "),
    (". ", " STOP "),  # a sentence ends, or an item of a list
    (".\n", " STOP "),
    ("? ", " STOP "),
    ("! ", " STOP "),
    ("\n- ", " STOP "),
    ("://", " LINK "),
    ("@", " AT "),
    (".env.example", " ENVEXAMPLE "),
    (".env", " DOTENV "),
    (".ssh/config", " SSHCONFIG "),  # the one file in that folder that is not secret
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
_LAM: Final = "\u0644"  # a letter of the article
_OTHER_LETTERS: Final = dict(
    zip("łøđıᴀʙᴄᴅᴇꜰғɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "lodiabcdeffghijklmnoprstuvwyz", strict=True)
) | {chr(0x1F170 + number): letter for number, letter in enumerate(ascii_lowercase)}


_MARKS: Final = ("HOST", "NUMERIC")  # words that are put before addresses
_NUMERIC: Final = r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"
_HOST: Final = (
    r"(?<=[a-z0-9])(?<!\.env)\.(?:example|com|net|org|io|ru|cn|xyz|zip|top|info|biz|dev|app|me|co|site|online)"
    r"(?![\w.-])"
)


class Text(NamedTuple):
    """A plain text, and its words."""

    plain: str
    words: list[str]
    different: set[str]

    @classmethod
    def of(cls, plain: str) -> Text:
        """A plain text, with words for the signs that mean something, and one for its end."""
        words = _words(_with_hosts(plain))
        words.append("BREAK")
        return cls(plain, words, set(words))


def plain(text: str) -> str:
    """Text in lower case, without accents and invisible characters."""
    if not text.isascii():
        text = re.sub(_FOREIGN, _folded, text)
    return text.encode(errors="replace").lower().decode()


def _folded(match: re.Match[str]) -> str:
    text = unicodedata.normalize("NFKD", match.group()).casefold()
    text = re.sub(f"{_ACCENTS}|{_INVISIBLE}", "", text)
    for letter in _OTHER_LETTERS.keys() & set(text):  # few texts have any
        text = text.replace(letter, _OTHER_LETTERS[letter])
    text = re.sub(_WITHOUT_SPACES, lambda run: f" {' '.join(run.group())} ", text)
    text = re.sub(_PUNCTUATION, " ", text)
    return re.sub(_ARABIC_ARTICLE, "", text) if _LAM in text else text


def _with_hosts(text: str) -> str:
    """A text with a word before each numeric address and each name of a host."""
    if "." not in text:
        return text
    return re.sub(_HOST, r" HOST \g<0>", re.sub(_NUMERIC, r" NUMERIC \g<0>", text))


def _words(text: str) -> list[str]:
    for sign, word in SIGNS:
        if sign[0] in text:  # a search for one character is much faster
            text = text.replace(sign, word)
    return text.encode().translate(_blanks()).decode().split()


@cache
def _blanks(kept: str = "") -> bytes:
    """A table that makes a blank of every ASCII character but letters, digits, and a few."""
    signs = bytes(code for code in range(128) if not chr(code).isalnum() and chr(code) not in kept)
    return bytes.maketrans(signs, b" " * len(signs))


# -- rules and words -------------------------------------------------------------------------

HEAD: Final = 4  # a stem has at least so many letters, and words are looked up by them
NEXT: Final = 2  # the same for a word that follows another in a phrase

_JUMBLED: Final = 6  # shorter words are too often anagrams of one another
_STEMMED: Final = ("instruction", "instructions", "disregard", "guidelines", "restrictions")

Parts = tuple[str, ...]


class Rule(NamedTuple):
    """Classes of words, with the largest gap before each, and what makes them harmless."""

    kind: str
    steps: list[tuple[int, str]]
    names: frozenset[str]
    unless: list[tuple[str, str]]


class RulePhrase(NamedTuple):
    """Words in a row, the classes they belong to, and which of the words it is looked up by."""

    parts: Parts
    names: list[str]
    place: int


class WordEntry(NamedTuple):
    """The classes of a word, and the phrases that it begins, or is further on in.

    The phrases are listed by the first letters of the word after it, or before it.
    ``possible`` are the classes of the word and of all these phrases.
    """

    names: list[str]
    begun: dict[str, list[RulePhrase]]
    joined: dict[str, list[RulePhrase]]
    possible: set[str]


@cache
def file_text(name: str) -> str:
    """The text of one of the files beside this one."""
    return Path(__file__).with_name(name).read_text("utf-8")


def _lines(name: str) -> Iterator[str]:
    for line in file_text(name).splitlines():
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
        found.append(
            Rule(kind, steps, names, re.findall(r"(after|around|before) ([A-Z_]+)", unless))
        )
    return found


@cache
def classes() -> dict[str, set[Parts]]:
    """The phrases of each class, as words. Each sign is a class."""
    found: dict[str, set[Parts]] = {
        word: {(word,)} for word in (*(word.strip() for _, word in SIGNS), *_MARKS)
    }
    text = plain("\n".join(_lines("guard-words.txt")))  # one by one takes five times as long
    for name, body in re.findall(r"^([a-z_]+)((?:\n .*)+)", text, re.MULTILINE):
        phrases = re.sub(r"[|\n]\s*(?:[a-z]{2}:)?|\+[a-z_]+", ",", body)
        others = [found[other.upper()] for other in re.findall(r"\+([a-z_]+)", body)]
        found[name.upper()] = set(_spelt(phrases)).union(*others)
    return found


def _spelt(phrases: str) -> Iterator[Parts]:
    """The words of phrases that have commas between them."""
    for phrase in phrases.encode().translate(_blanks(kept="*,")).decode().split(","):
        if parts := tuple(phrase.split()):
            yield parts


@cache
def concepts() -> list[str]:
    """The names of the classes that sentences are weighed by."""
    return [name for name in classes() if name.startswith("C_")]


@cache
def _phrases() -> dict[str, list[RulePhrase]]:
    """The phrases that the rules consist of, by the first letters of their longest word."""
    names: dict[Parts, list[str]] = defaultdict(list)
    of_rules = {name for rule in rules() for name in rule.names}
    for name in sorted(of_rules.union(concepts())):
        for parts in classes()[name]:
            names[parts].append(name)
    found: dict[str, list[RulePhrase]] = defaultdict(list)
    for parts, of in names.items():
        longest = max(reversed(parts), key=_weight) if len(parts) > 1 else parts[0]
        found[letters(longest)].append(RulePhrase(parts, of, parts.index(longest)))
    return dict(found)


def _weight(part: str) -> int:
    return 0 if part[-1] == "*" and len(part) <= HEAD else len(part)


@lru_cache(maxsize=4096)
def entry(word: str) -> WordEntry | None:
    """What the rules know about a word, or None."""
    found = WordEntry([], defaultdict(list), defaultdict(list), set())
    for phrase in _phrases().get(word[:HEAD], ()):
        parts, names, place = phrase
        if not fits(parts[place], word):
            continue
        found.possible.update(names)
        if place:
            found.joined[letters(parts[place - 1], NEXT)].append(phrase)
        elif len(parts) > 1:
            found.begun[letters(parts[1], NEXT)].append(phrase)
        else:
            found.names.extend(names)
    return found if found.possible else None


@cache
def openings(name: str) -> dict[str, list[Parts]]:
    """The phrases of a class by their first word, which is not a stem."""
    found: dict[str, list[Parts]] = defaultdict(list)
    for parts in classes()[name]:
        found[parts[0]].append(parts)
    return dict(found)


@cache
def _vocabulary() -> dict[str, set[str]]:
    """Every word of every phrase, by its first letters."""
    known: dict[str, set[str]] = defaultdict(set)
    for part in {part for phrases in classes().values() for parts in phrases for part in parts}:
        known[letters(part)].add(part)
    return dict(known)


def is_known(word: str) -> bool:
    """Whether a word is part of any class."""
    parts = _vocabulary().get(word[:HEAD])
    return parts is not None and any(fits(part, word) for part in parts)


@lru_cache(maxsize=4096)
def jumbled(word: str) -> str:
    """The long known word whose inner letters are in another order here; "" if there is none."""
    if len(word) < _JUMBLED or is_known(word):
        return ""
    return _jumbles().get(word[0] + "".join(sorted(word[1:-1])) + word[-1], "")


@cache
def _jumbles() -> dict[str, str]:
    """The long words of phrases, by their first letter, the sorted rest, and the last."""
    words = {part for phrases in classes().values() for parts in phrases for part in parts}
    whole = {word for word in words if len(word) >= _JUMBLED and word.isascii() and word.isalpha()}
    whole.update(word for word in _STEMMED)
    return {word[0] + "".join(sorted(word[1:-1])) + word[-1]: word for word in whole}


def known_within(word: str) -> Iterator[tuple[int, str]]:
    """The known words of four letters or more inside a word, the longest at each place."""
    known = _vocabulary()
    for place in range(len(word) - HEAD + 1):
        stems = (part.rstrip("*") for part in known.get(word[place : place + HEAD], ()))
        if found := [stem for stem in stems if word.startswith(stem, place)]:
            yield place, max(found, key=len)


def letters(part: str, number: int = HEAD) -> str:
    """The first letters of a word or stem."""
    return part.rstrip("*")[:number]


def fits(part: str, word: str) -> bool:
    """Whether a word is a part of a phrase, or begins with it if that is a stem."""
    return word.startswith(part[:-1]) if part[-1] == "*" else word == part


def stands_at(parts: Parts, words: Sequence[str], begin: int) -> bool:
    """Whether a phrase is at this place among words."""
    found = words[begin : begin + len(parts)]
    return len(parts) == len(found) and all(map(fits, parts, found))


# -- Applies the rules of guard-rules.txt to a text ---------------------------------------------
#
# Distances are counted in words, so a rule takes time in proportion to the text, whatever the
# text is. What words can't say (tags, fences, addresses to be filled in) is a shape.

_OVERRIDE: Final = "instruction override"
_EXFILTRATION: Final = "exfiltration"
_TAMPERING: Final = "tampering"

#: Kind, a piece of text without which there is no match, and a pattern.
_SHAPES: Final = (
    # The tokens of chat templates: ChatML, Llama, Gemma, Alpaca.
    (_OVERRIDE, "<", r"<\|[\w ]{2,40}\|>|<</?sys>>|<(?:start|end)_of_turn>"),
    (_OVERRIDE, "[", r"\[/?inst\]"),
    (_OVERRIDE, "##", r"## ?(?:system|instruction|response) ?:"),
    # Tags of a voice that a note hasn't, and the end of the block that notes are in.
    (_OVERRIDE, "<", r"</?(?:system|operator|admin|developer)(?:[-_ ]\w{1,20})?>"),
    (_OVERRIDE, "</", r"</(?:memory[-_ ]?context|memory|notes?|context|user-profile)>"),
    (_OVERRIDE, "══", r"══════"),
    (_OVERRIDE, "--", r"-- ?(?:begin|end)(?: \w{2,3}){0,3} (?:system|memory|notes|prompt)"),
    # Turns of a conversation that never was.
    (_OVERRIDE, "role", r"role[\"'] ?: ?[\"'](?:system|developer)[\"']"),
    (_OVERRIDE, "\nassistant", r"(?:human|user) ?:[^\n]{0,500}+\n\s*assistant ?:"),
    # A shell that somebody else types into.
    (_TAMPERING, "/dev/tcp/", r"/dev/tcp/\S{1,60}"),
    (
        _TAMPERING,
        "nc",
        r"\bnc(?:at)? [^\n|;]{0,60}-[a-z]{0,4}[ec] ?(?:/bin|bash|sh|cmd|powershell)",
    ),
    (_TAMPERING, "spawn", r"pty\.spawn"),
    (_TAMPERING, "mkfifo", r"mkfifo [^\n]{0,80}\bnc(?:at)?\b"),
    # A script that comes without encryption, or from a bare address, and is run unread.
    (
        _TAMPERING,
        "http",
        (
            r"https?://(?:(?<=http://)(?!localhost|127\.)|(?=\d{1,3}\.\d{1,3}\.))"
            r"[^\s|]{1,200}[^\n|]{0,20}\| ?(?:sudo )?(?:ba|z|da)?sh\b"
        ),
    ),
    (_TAMPERING, "chmod", r"chmod (?:-r )?[0-7+a-z]{2,4} /etc/(?:shadow|passwd|sudoers)"),
    (_TAMPERING, "rm -", r"rm -[rf]{1,3} [^\n]{0,40}(?:\.hermes|memories|/\*|~/?(?:\s|$))"),
    (_TAMPERING, "allow", r"[\"']allow[\"'] ?: ?\[ ?[\"']\*[\"']"),
    # An address that the model is to fill with data.
    (
        _EXFILTRATION,
        "=",
        (
            r"=[<{\[][^\n]{0,40}?"
            r"(?:summary|conversation|message|base64|history|secret|password|prompt|memory|notes)"
        ),
    ),
    (_EXFILTRATION, "cookie", r"://[^\n]{0,120}document\.cookie"),
    (
        _EXFILTRATION,
        "![",
        r"!\[[^\]\n]{0,80}\]\(https?://[^)\s]{0,200}[?&/][\w-]{0,20}=(?:[{<\[$%]|\.\.\.)",
    ),
)

_ACROSS: Final = 8  # a match that reaches into another entry has no more words
_EXCUSE: Final = 3  # nor has a phrase that excuses what follows
_LONGEST: Final = 10  # words of the longest phrase: ユーザーの指示として, a word for each sign
_TRIES: Final = 4  # places at which a match may end
_RARE: Final = 4  # if the second class is so many times rarer than the first, look from there

_Span = tuple[int, int]
Spans = dict[str, list[_Span]]


class Match(NamedTuple):
    """What a rule or a shape has found."""

    kind: str
    quote: str


def search(text: Text, spans: Spans) -> Match | None:
    """The first thing wrong with a text, or None."""
    for rule in _possible(spans):
        for begin, end in _matches(rule, spans):
            if not _is_harmless(rule, text.words, begin, end):
                return Match(rule.kind, quoted(text.words[begin:end]))
    for kind, piece, pattern in _SHAPES:
        if piece in text.plain and (found := re.search(pattern, text.plain)):
            return Match(kind, found.group())
    return None


def known_spans(text: Text) -> Spans:
    """Where the words of each class are, in order."""
    return _spans(text.words, {word: what for word in text.different if (what := entry(word))})


def _possible(names: Iterable[str]) -> list[Rule]:
    """The rules that may match where these classes are: for most texts there are few."""
    there = set(names)
    places = sorted(place for name in there for place in _beginning().get(name, ()))
    return [rule for place in places if (rule := rules()[place]).names <= there]


@cache
def _beginning() -> dict[str, list[int]]:
    """Where the rules are that begin with a class."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, rule in enumerate(rules()):
        found[rule.steps[0][1]].append(place)
    return dict(found)


def _spans(words: Sequence[str], known: Mapping[str, WordEntry]) -> dict[str, list[_Span]]:
    """Where the words of each class are, in order."""
    spans: dict[str, list[_Span]] = defaultdict(list)
    for at, word in compress(enumerate(words), map(known.__contains__, words)):
        names, begun, joined, _ = known[word]
        for name in names:
            spans[name].append((at, at + 1))
        if begun and (phrases := begun.get(words[at + 1][:NEXT])):
            _add(phrases, words, at, spans)
        if joined and (phrases := joined.get(words[at - 1][:NEXT])):
            _add(phrases, words, at, spans)
    for places in spans.values():
        places.sort()
    return spans


def _add(
    phrases: list[RulePhrase], words: Sequence[str], at: int, spans: dict[str, list[_Span]]
) -> None:
    for parts, names, place in phrases:
        begin = at - place
        if begin >= 0 and stands_at(parts, words, begin):
            for name in names:
                spans[name].append((begin, begin + len(parts)))


def _matches(rule: Rule, spans: dict[str, list[_Span]]) -> Iterator[_Span]:
    (_, first), (gap, second), *_ = rule.steps
    starts, nexts = spans[first], spans[second]
    if len(nexts) * _RARE < len(starts):
        starts = _near(starts, nexts, gap)
    for begin, end in starts:
        place = bisect_left(nexts, (end,))
        if place < len(nexts) and nexts[place][0] <= end + gap:  # rare: most stop here
            for last in _ends(end, rule.steps[1:], spans):
                yield begin, last


def _near(starts: list[_Span], nexts: list[_Span], gap: int) -> list[_Span]:
    """Those of many places that are before one of a few others."""
    found: set[_Span] = set()
    for begin, _ in nexts:
        low = bisect_left(starts, (begin - gap - _LONGEST,))
        found.update(starts[low : bisect_left(starts, (begin,))])
    return sorted(found)


def _ends(end: int, steps: list[tuple[int, str]], spans: dict[str, list[_Span]]) -> Iterator[int]:
    """Where a match may end that goes on with these steps.

    Every step goes to the first place there is. The last one also tries the next few, because
    the first may be harmless: "disable confirmation mails and approval prompts".
    """
    for step, (gap, name) in enumerate(steps, 1):
        place = bisect_left(spans[name], (end,))
        places = spans[name][place : place + (_TRIES if step == len(steps) else 1)]
        ends = [stop for start, stop in places if start <= end + gap]
        if not ends:
            return
        end = ends[0]
    yield from ends


def _is_harmless(rule: Rule, words: Sequence[str], begin: int, end: int) -> bool:
    """Whether a match runs from one entry into the next, or has around it what excuses it."""
    if end - begin > _ACROSS and "BREAK" in words[begin:end]:
        return True
    return any(_is_there(name, where, words, begin, end) for where, name in rule.unless)


def _is_there(name: str, where: str, words: Sequence[str], begin: int, end: int) -> bool:
    """Whether a match is right after or right before a word of a class, or around one."""
    places = {
        "after": range(max(begin - _EXCUSE, 0), begin),
        "around": range(begin, end),
        "before": range(end, min(end + 1, len(words))),
    }[where]
    phrases = openings(name)
    return any(
        (where != "after" or place + len(parts) == begin) and stands_at(parts, words, place)
        for place in places
        for parts in phrases.get(words[place], ())
    )


def quoted(words: Sequence[str]) -> str:
    """Words as a person would write them."""
    text = " ".join(word for word in words if word not in _MARKS)
    for sign, word in reversed(SIGNS):
        text = text.replace(word, sign).replace(word.strip(), "")
    return unicodedata.normalize("NFC", text)
