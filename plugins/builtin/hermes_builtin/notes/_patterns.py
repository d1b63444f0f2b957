"""The rules of the guard: which words, near which others, make a note a command.

A rule reads like its sentence. ``DROP 3 EARLIER 2 ORDERS`` is one of the words of DROP, at most
three words further one of EARLIER, and at most two words further one of ORDERS. The classes
are in words.txt. What words can't say (tags, fences, image links) is a shape.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

OVERRIDE: Final = "instruction override"
EXFILTRATION: Final = "exfiltration"

#: Kind and reason, and the rules: words in a row, and what makes them harmless after all.
_RULES: Final = (
    (OVERRIDE, "The instructions that the model has are not to count", """
        DROP 5 SYSTEM_PROMPT
        DROP 4 YOURS 3 ORDERS
        DROP 4 ORDERS 4 YOURS
        DROP 2 ALL 2 EARLIER 2 ORDERS
        DROP 2 ALL 2 ORDERS 3 EARLIER
        DROP 3 EARLIER 2 ORDERS      unless followed by TOPIC
        DROP 3 ORDERS 2 EARLIER      unless followed by TOPIC
        DROP 1 ALL 1 ORDERS          unless followed by TOPIC
        DROP 2 ALL 4 SAID            unless followed by TOPIC
        DROP 2 EARLIER 2 ALL 2 ORDERS
    """),
    (OVERRIDE, "The same, in languages that put the verb last", """
        YOURS 4 ORDERS 8 DROP_LAST
        EARLIER 6 ORDERS 8 DROP_LAST
        ORDERS 4 ALL 4 DROP_LAST
        SYSTEM_PROMPT 8 DROP_LAST
    """),
    (OVERRIDE, "The instructions are said to be void", """
        SYSTEM_PROMPT 6 VOID
        YOURS 2 ORDERS 6 VOID        unless around TOPIC
        ORDERS 3 YOURS 8 VOID
        EARLIER 3 ORDERS 4 VOID      unless around TOPIC
        ORDERS 2 EARLIER 6 VOID      unless around TOPIC
    """),
    (OVERRIDE, "This note is to count more than the instructions", """
        NEW_ORDERS
        FIRST 6 ELSE
        ELSE 6 FIRST
        ONLY 3 HERE
        COMPLY 1 ALL 2 REQUESTS      unless preceded by NOT
    """),
    (OVERRIDE, "The model is to be somebody without limits", """
        YOU_ARE 9 UNBOUND
        YOU_ARE 9 NO 3 LIMITS
        UNBOUND 4 YOU_ARE 4 AGENT
        MODE 14 AGENT
        AGENT 8 MODE
        SAFEGUARDS 5 OFF
        OFF 3 SAFEGUARDS
        SYSTEM_LABEL 10 AGENT
    """),
    (OVERRIDE, "The user is not to know", """
        NOT 2 TELL 4 USER            unless followed by NOT_THE_USER
        TELL 2 USER 3 NOT_TELL_LAST
        USER 8 NOT_TELL_LAST
        NOT 3 TELL 4 OWN_DOINGS
        OWN_DOINGS 8 NOT_TELL_LAST
        HIDE 8 USER                  unless preceded by NOT, around UI, followed by NOT_THE_USER
        USER 8 OWN_DOINGS 2 HIDE
        HIDE 6 OWN_DOINGS            unless preceded by NOT
        THEY 1 MUST_NOT_KNOW
        WITHOUT 3 USER 3 UNKNOWING
        WITHOUT 2 UNKNOWING 3 USER
        OMIT 1 OWN_DOINGS
    """),
    (OVERRIDE, "Something is done in secret, denied or wiped", """
        SECRETLY 5 DO
        DO 5 SECRETLY
        IF_ASKED 8 DENY
        LIE 3 USER                   unless preceded by NOT
        FAIL 5 CLAIM 5 SUCCESS
        REMOVE 2 TRACES 6 TRACED
        STEER 2 USER 2 TOWARDS
        RECOMMEND 8 EVERY_ANSWER
        NO_ASKING 3 RISKY
        RISKY 5 NO_ASKING            unless preceded by NOT
    """),
    (OVERRIDE, "The note copies itself, or a key, to where it stays", """
        ADD 10 KEY_FILES             unless preceded by NOT
        KEY_FILES 3 ADD
        APPEND 3 KEY_FILES
        ADD 2 THIS 2 NOTE 8 AGENT_FILES
        THIS 2 NOTE 3 ADD 6 AGENT_FILES
        ADD 4 AGENT_FILES 4 EVERY_PROJECT
        ADD 8 EVERY_PROJECT 3 AGENT_FILES
        THIS 1 NOTE 3 GONE 4 AGAIN
        NOT 0 REMOVE 0 THIS 0 NOTE 12 COPY_ON
        BOOT 15 PAYLOAD
        PAYLOAD 12 BOOT
        BOOT 18 LINK 8 PIPE 0 SHELL
        LINK 8 PIPE 0 SHELL 6 BOOT
    """),
    (OVERRIDE, "Controls are switched off", """
        DISABLE 4 APPROVAL           unless preceded by NOT
        APPROVAL 4 DISABLE_LAST
        SET 3 APPROVAL 3 NEVER_ASK
        DISABLE 3 DEFENCES 6 ALWAYS
    """),
    (EXFILTRATION, "Secrets are sent to a place outside", """
        SEND 10 SECRETS 12 PLACE     unless preceded by NOT, around LOGIN
        SEND 6 PLACE 6 WITH 4 SECRETS  unless preceded by NOT, around LOGIN, around STOP
        SECRETS 12 PLACE 10 SEND_LAST
        SECRETS 16 SEND 0 IT 3 PLACE
        SEND 5 SECRETS 8 ANYONE      unless preceded by NOT
        SEND 6 USER_DATA 8 LINK_PART  unless preceded by NOT, around LOGIN
    """),
    (EXFILTRATION, "The model is to show its instructions", """
        SHOW 5 OWN_ORDERS            unless preceded by NOT
        SYSTEM_PROMPT 6 SHOW_LAST
        SHOW 1 ALL 1 ABOVE
    """),
    (EXFILTRATION, "A command sends secrets", """
        NETWORK 14 SECRETS           unless preceded by NOT, around LOGIN
        SECRETS 10 PIPE 3 NETWORK
        SOURCES 6 PIPE 2 NETWORK
        NETWORK 10 SUBST 2 SOURCES
        SUBST 1 SOURCES 14 NETWORK
    """),
)  # fmt: skip

#: Kind, a piece of text without which the pattern can't match, and the pattern.
_SHAPES: Final = (
    # The tokens of chat templates: ChatML, Llama, Gemma, Alpaca.
    (OVERRIDE, "<|", r"<\|[\w ]{2,40}\|>"),
    (OVERRIDE, "inst]", r"\[/?inst\]"),
    (OVERRIDE, "sys>>", r"<</?sys>>"),
    (OVERRIDE, "_of_turn>", r"<(?:start|end)_of_turn>"),
    (OVERRIDE, "##", r"(?:^|\n)\s*#{2,} ?(?:system|instruction|response) ?:"),
    # Tags of a voice that a note hasn't, and the end of the block that notes are in.
    (OVERRIDE, "<", r"</?(?:system|operator|admin)(?:[-_ ]\w{1,20})?>"),
    (OVERRIDE, "</", r"</(?:memory[-_ ]?context|memory|notes?|context|user-profile)>"),
    (OVERRIDE, "══════", r"═{6,}"),
    (OVERRIDE, "--", r"--+ ?(?:begin|end)(?: of)?(?: the| new)* (?:system|memory|notes|context|prompt)"),
    # Turns of a conversation that never was.
    (OVERRIDE, "role", r"[\"']role[\"'] ?: ?[\"'](?:system|developer)[\"']"),
    (OVERRIDE, "assistant:", r"(?:^|\n)\s*(?:human|user) ?:[^\n]{0,2000}\n\s*assistant ?:"),
    # A shell that somebody else types into.
    (OVERRIDE, "/dev/tcp/", r"/dev/tcp/\S{1,60}"),
    # An image whose address the model is to fill with data.
    (
        EXFILTRATION,
        "](http",
        r"!\[[^\]\n]{0,80}\]\(https?://[^)\n]{0,200}[?&/=][^)\n]{0,80}[<{\[][^)\n]{0,60}"
        r"(?:summary|conversation|message|base64|history|secret|key|token|prompt|memory|notes|user)",
    ),
)

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
    ("system:", " SYSTEM "),
    ("[system]", " SYSTEM "),
)
_FOREIGN: Final = re.compile(r"[^\x00-\x7f]+")
_DROPPED: Final = re.compile(
    r"[\u00ad\u0300-\u036f\u0640\u064b-\u065f\u0670\u115f\u1160\u180b-\u180e\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3099\u309a\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
_WORD_OF_ITS_OWN: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")
_PUNCTUATION: Final = re.compile(r"[^\w\u0900-\u0dff\u0e00-\u109f\u2550]+")
_ARABIC_ARTICLE: Final = re.compile("^(?:[\u0648\u0641\u0628\u0643]?\u0627\u0644|\u0644\u0644)(?=\\w{3})")
_OTHER_LETTERS: Final = {ord("ł"): "l", ord("ø"): "o", ord("đ"): "d", ord("ı"): "i"}


def plain(text: str) -> str:
    """Text in lower case, without accents and invisible characters."""
    if not text.isascii():
        text = _FOREIGN.sub(_folded, text)
    return text.encode(errors="replace").lower().decode()


def _folded(match: re.Match[str]) -> str:
    text = unicodedata.normalize("NFKD", match.group()).casefold()
    text = _DROPPED.sub("", text).translate(_OTHER_LETTERS)
    text = _WORD_OF_ITS_OWN.sub(r" \g<0> ", text)
    return _ARABIC_ARTICLE.sub("", _PUNCTUATION.sub(" ", text))


def split(text: str) -> list[str]:
    """The words of a plain text, with words for the signs that mean something."""
    for sign, word in _SIGNS:
        text = text.replace(sign, word)
    return text.encode().translate(_blanks()).decode().split()


@cache
def _blanks() -> bytes:
    return bytes(code if code > 127 or chr(code).isalnum() else 32 for code in range(256))


# -- the rules, read -------------------------------------------------------------------------

_STEP: Final = re.compile(r"(?:(\d+) )?([A-Z_]+)")
_UNLESS: Final = re.compile(r"(preceded by|around|followed by) ([A-Z_]+)")
_HEAD: Final = 4  # a stem has at least so many letters, and words are looked up by them


class Rule(NamedTuple):
    """Classes of words with the largest gap before each, and what makes them harmless."""

    kind: str
    steps: list[tuple[int, str]]
    unless: list[tuple[str, str]]


class _Phrase(NamedTuple):
    parts: tuple[str, ...]
    classes: list[str]


@cache
def rules() -> list[Rule]:
    """The rules, in the order in which they are tried."""
    found = []
    for kind, _, lines in _RULES:
        for line in lines.strip().splitlines():
            row, _, unless = line.partition(" unless ")
            steps = [(int(gap or 0), name) for gap, name in _STEP.findall(row)]
            found.append(Rule(kind, steps, _UNLESS.findall(unless)))
    return found


@cache
def classes() -> dict[str, set[str]]:
    """The phrases of each class, as words.txt has them."""
    found: dict[str, set[str]] = {}
    for line in Path(__file__).with_name("words.txt").read_text("utf-8").splitlines():
        if line[:1].isupper():
            members = found.setdefault(line.strip(), set())
        elif line[:1] == " ":
            for words in re.sub(r"(?:^|\|)\s*[a-z]{2}:", ",", line).split(","):
                members |= found[words.strip()[1:]] if "+" in words else {words.strip()}
    for members in found.values():
        members.discard("")
    return found


@cache
def _index() -> dict[str, list[_Phrase]]:
    """Every phrase of every class, by the first letters of its first word."""
    by_parts: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, phrases in classes().items():
        for phrase in phrases:
            by_parts[_parts(phrase)].append(name)
    for _, word in _SIGNS:  # a sign is a class of its own
        by_parts[word.strip(),].append(word.strip())
    index: dict[str, list[_Phrase]] = defaultdict(list)
    for parts, names in by_parts.items():
        index[parts[0].rstrip("*")[:_HEAD]].append(_Phrase(parts, names))
    return dict(index)


def _parts(phrase: str) -> tuple[str, ...]:
    if phrase.isupper():
        return (phrase,)
    starred = split(plain(phrase.replace("*", "0star0")))
    return tuple(part.replace("0star0", "*") for part in starred)


@cache
def _vocabulary() -> dict[str, set[str]]:
    """Every word of every phrase, by its first letters."""
    known: dict[str, set[str]] = defaultdict(set)
    for phrases in _index().values():
        for part in {part for phrase in phrases for part in phrase.parts}:
            known[part.rstrip("*")[:_HEAD]].add(part)
    return dict(known)


def is_known(word: str) -> bool:
    """Whether a word is part of any rule."""
    return any(_fits(part, word) for part in _vocabulary().get(word[:_HEAD], ()))


def known_beginning(text: str) -> str:
    """The longest known word with which a text begins, or ""."""
    known = _vocabulary()
    parts = known.get(text[:_HEAD], set()) | known.get(text[: _HEAD - 1], set())
    stems = (part.rstrip("*") for part in parts)
    return max((stem for stem in stems if text.startswith(stem)), key=len, default="")


def _fits(part: str, word: str) -> bool:
    return word.startswith(part[:-1]) if part[-1] == "*" else word == part


# -- the rules, applied ----------------------------------------------------------------------

_Spans = Mapping[str, Sequence[tuple[int, int]]]


class Match(NamedTuple):
    """What a rule or a shape has found."""

    kind: str
    quote: str


def search(text: str, words: Sequence[str]) -> Match | None:
    """The first thing wrong with a plain text, whose words these are."""
    spans = _spans(words)
    for rule in rules():
        if all(name in spans for _, name in rule.steps):
            for begin, end in _matches(rule, spans):
                return Match(rule.kind, _quote(words[begin:end]))
    for kind, piece, pattern in _SHAPES:
        if piece in text and (found := re.search(pattern, text)):
            return Match(kind, found.group().strip())
    return None


def _spans(words: Sequence[str]) -> _Spans:
    """Where the words of each class are."""
    index = _index()
    known: dict[str, list[_Phrase]] = {}
    for word in set(words):
        if word[:_HEAD] in index:
            phrases = [phrase for phrase in index[word[:_HEAD]] if _fits(phrase.parts[0], word)]
            if phrases:
                known[word] = phrases
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for begin, word in enumerate(words):
        if word in known:
            for parts, names in known[word]:
                end = begin + len(parts)
                if len(parts) == 1 or _goes_on(parts, words[begin:end]):
                    for name in names:
                        spans[name].append((begin, end))
    return spans


def _goes_on(parts: tuple[str, ...], words: Sequence[str]) -> bool:
    return len(parts) == len(words) and all(map(_fits, parts, words))


def _matches(rule: Rule, spans: _Spans) -> Iterator[tuple[int, int]]:
    (_, first), *others = rule.steps
    for begin, end in spans[first]:
        last = end
        for gap, name in others:
            following = _between(spans[name], last, last + gap)
            if following is None:
                break
            last = following[1]
        else:
            if not any(_is_there(where, spans, name, begin, last) for where, name in rule.unless):
                yield begin, last


def _between(spans: Sequence[tuple[int, int]], low: int, high: int) -> tuple[int, int] | None:
    """The first span that begins in this range."""
    place = bisect_left(spans, (low,))
    return spans[place] if place < len(spans) and spans[place][0] <= high else None


def _is_there(where: str, spans: _Spans, name: str, begin: int, end: int) -> bool:
    """Whether a word of a class is before, in or after a match, in the same entry."""
    found = spans.get(name, ())
    if where == "followed by":
        return _between(found, end, end) is not None
    if where == "around":
        return _between(found, begin, end - 1) is not None
    before = _between(found, begin - 3, begin - 1)
    return before is not None and _between(spans.get("BREAK", ()), before[0], begin) is None


def _quote(words: Sequence[str]) -> str:
    """Words as a person would write them."""
    text = " ".join(words)
    for sign, word in reversed(_SIGNS):
        text = text.replace(word, sign).replace(word.strip(), sign.strip())
    return unicodedata.normalize("NFC", text)
