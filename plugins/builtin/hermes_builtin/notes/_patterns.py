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
from functools import cache, lru_cache
from pathlib import Path
from string import ascii_lowercase
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
        NO 2 ORDERS 6 BINDS_YOU
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
        USER 6 KEEP_QUIET
        KEEP_QUIET 6 USER
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
        KEEP 2 THIS 1 NOTE 8 LATER
        BOOT 15 PAYLOAD
        PAYLOAD 12 BOOT
        BOOT 18 LINK 8 PIPE 0 SHELL
        LINK 8 PIPE 0 SHELL 6 BOOT
    """),
    (OVERRIDE, "Controls are switched off", """
        DISABLE 4 APPROVAL           unless preceded by NOT
        APPROVAL 4 DISABLE_LAST
        APPROVAL 2 WAIVED
        SET 3 APPROVAL 3 NEVER_ASK
        DISABLE 3 DEFENCES 6 ALWAYS
    """),
    (EXFILTRATION, "Secrets are sent to a place outside", """
        SEND 10 SECRETS 12 PLACE     unless preceded by NOT, around LOGIN
        SEND 6 PLACE 6 WITH 4 SECRETS  unless preceded by NOT, around LOGIN, around STOP
        SECRETS 12 PLACE 10 SEND_LAST
        SECRETS 8 SEND_LAST 3 PLACE
        SECRETS 16 SEND 1 IT 6 PLACE
        SEND 5 SECRETS 8 ANYONE      unless preceded by NOT
        SEND 6 USER_DATA 8 LINK_PART  unless preceded by NOT, around LOGIN
    """),
    (EXFILTRATION, "The model is to show its instructions", """
        SHOW 5 OWN_ORDERS            unless preceded by NOT
        SYSTEM_PROMPT 6 SHOW_LAST
        SHOW 1 ALL 1 ABOVE
    """),
    (EXFILTRATION, "A command sends secrets", """
        NETWORK 14 SECRET_FILES      unless preceded by NOT, around LOGIN
        NETWORK 12 VARIABLE 4 SECRETS  unless preceded by NOT, around LOGIN
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
    (OVERRIDE, "##", r"## ?(?:system|instruction|response) ?:"),
    # Tags of a voice that a note hasn't, and the end of the block that notes are in.
    (OVERRIDE, "<", r"</?(?:system|operator|admin)(?:[-_ ]\w{1,20})?>"),
    (OVERRIDE, "</", r"</(?:memory[-_ ]?context|memory|notes?|context|user-profile)>"),
    (OVERRIDE, "══════", r"══════"),
    (OVERRIDE, "--", r"-- ?(?:begin|end)(?: of)?(?: the| new)* (?:system|memory|notes|context|prompt)"),
    # Turns of a conversation that never was.
    (OVERRIDE, "role", r"role[\"'] ?: ?[\"'](?:system|developer)[\"']"),
    (OVERRIDE, "assistant:", r"(?:human|user) ?:[^\n]{0,500}+\n\s*assistant ?:"),
    # A shell that somebody else types into.
    (OVERRIDE, "/dev/tcp/", r"/dev/tcp/\S{1,60}"),
    # An image whose address the model is to fill with data.
    (EXFILTRATION, "](http", r"""(?x) !\[[^\]\n]{0,80}+\]\(https?:// [^)<{\[\n!]{0,200}+ [<{\[] [^)\n]{0,60}?
        (?:summary|conversation|message|base64|history|secret|key|token|prompt|memory|notes|user)"""),
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
    ("[system]", " SYSTEM "),
)
_FOREIGN: Final = re.compile(r"[^\x00-\x7f](?:[\x00-\x7f]{0,20}+[^\x00-\x7f])*")
_DROPPED: Final = re.compile(
    r"[\u00ad\u0300-\u036f\u0640\u064b-\u065f\u0670\u115f\u1160\u180b-\u180e\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3099\u309a\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
_WITHOUT_SPACES: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]+")
_PUNCTUATION: Final = re.compile(r"[^\w\x00-\x7f\u0900-\u0dff\u0e00-\u109f\u1780-\u17ff\u2550]+")
_ARABIC_ARTICLE: Final = re.compile(
    r"(?<!\w)(?:[\u0648\u0641\u0628\u0643]?\u0627\u0644|\u0644\u0644)(?=\w{3})"
)
_OTHER_LETTERS: Final = str.maketrans(
    "łøđıᴀʙᴄᴅᴇꜰғɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ",  # noqa: RUF001 - small capitals are what is meant
    "lodiabcdeffghijklmnoprstuvwyz",
) | {0x1F170 + number: letter for number, letter in enumerate(ascii_lowercase)}


def plain(text: str) -> str:
    """Text in lower case, without accents and invisible characters."""
    if not text.isascii():
        text = _FOREIGN.sub(_folded, text)
    return text.encode(errors="replace").lower().decode()


def _folded(match: re.Match[str]) -> str:
    text = unicodedata.normalize("NFKD", match.group()).casefold()
    text = _DROPPED.sub("", text).translate(_OTHER_LETTERS)
    text = _WITHOUT_SPACES.sub(lambda run: f" {' '.join(run.group())} ", text)
    return _ARABIC_ARTICLE.sub("", _PUNCTUATION.sub(" ", text))


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


def _words(text: str) -> list[str]:
    for sign, word in _SIGNS:
        text = text.replace(sign, word)
    return text.encode().translate(_blanks()).decode().split()


@cache
def _blanks() -> bytes:
    """A table that makes a blank of every ASCII character but letters and digits."""
    characters = bytes(range(256))
    signs = bytes(code for code in range(128) if not chr(code).isalnum())
    return characters.translate(bytes.maketrans(signs, b" " * len(signs)))


# -- the rules, read -------------------------------------------------------------------------

_STEP: Final = re.compile(r"(?:(\d+) )?([A-Z_]+)")
_UNLESS: Final = re.compile(r"(preceded by|around|followed by) ([A-Z_]+)")
_HEAD: Final = 4  # a stem has at least so many letters, and is looked up by them

_Parts = tuple[str, ...]


class Rule(NamedTuple):
    """Classes of words with the largest gap before each, and what makes them harmless."""

    kind: str
    steps: list[tuple[int, str]]
    unless: list[tuple[str, str]]
    names: frozenset[str]


class _Entry(NamedTuple):
    """The classes of a word, and the phrases it begins, by the next word's first letters."""

    names: list[str]
    phrases: dict[str, list[tuple[_Parts, list[str]]]]


@cache
def rules() -> list[Rule]:
    """The rules, in the order in which they are tried."""
    found = []
    for kind, _, lines in _RULES:
        for line in lines.strip().splitlines():
            row, _, unless = line.partition("#")[0].partition(" unless ")
            steps = [(int(gap or 0), name) for gap, name in _STEP.findall(row)]
            names = frozenset(name for _, name in steps)
            found.append(Rule(kind, steps, _UNLESS.findall(unless), names))
    return found


@cache
def classes() -> dict[str, set[_Parts]]:
    """The phrases of each class of words.txt, as words."""
    found = {word.strip(): {(word.strip(),)} for _, word in _SIGNS}
    for line in Path(__file__).with_name("words.txt").read_text("utf-8").splitlines():
        if line[:1].isupper():
            members = found.setdefault(line.strip(), set())
        elif line[:1] == " ":
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
    for name in sorted({name for rule in rules() for _, name in rule.steps}):
        for parts in classes()[name]:
            found[_head(parts[0])][parts].append(name)
    return dict(found)


@lru_cache(maxsize=4096)
def _entry(word: str) -> _Entry | None:
    """What the rules know about a word, or None."""
    entry = _Entry([], defaultdict(list))
    for parts, names in _names().get(word[:_HEAD], {}).items():
        if not _fits(parts[0], word):
            continue
        if len(parts) == 1:
            entry.names.extend(names)
        else:
            entry.phrases[_head(parts[1])].append((parts, names))
    return entry if entry.names or entry.phrases else None


def _head(part: str) -> str:
    return part.rstrip("*")[:_HEAD]


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
        if parts := known.get(word[place : place + _HEAD]):
            stems = (part.rstrip("*") for part in parts)
            if found := max((one for one in stems if word.startswith(one, place)), key=len, default=""):
                yield place, found


def _fits(part: str, word: str) -> bool:
    return word.startswith(part[:-1]) if part[-1] == "*" else word == part


# -- the rules, applied ----------------------------------------------------------------------

_ACROSS: Final = 8  # a match that reaches into another entry has no more words than this
_BEFORE: Final = 3  # so many words before a match may make it harmless

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
                for parts, names in phrases.get(after[0][:_HEAD], ()) if after else ():
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
    """Whether a class has a word before, in or after a match, in the same entry."""
    places = {
        "preceded by": range(max(begin - _BEFORE, 0), begin),
        "around": range(begin, end),
        "followed by": range(end, end + 1),
    }[where]
    phrases = _openings(name)
    return any(
        "BREAK" not in words[place:begin] and _stands_at(parts, words, place)
        for place in places
        for parts in phrases.get(words[place] if place < len(words) else "", ())
    )


@cache
def _openings(name: str) -> dict[str, list[_Parts]]:
    """The phrases of a class by their first word, which is no stem."""
    found: dict[str, list[_Parts]] = defaultdict(list)
    for parts in classes()[name]:
        found[parts[0]].append(parts)
    return dict(found)


def _quote(words: Sequence[str]) -> str:
    """Words as a person would write them."""
    text = " ".join(words)
    for sign, word in reversed(_SIGNS):
        text = text.replace(word, sign).replace(word.strip(), "")
    return unicodedata.normalize("NFC", text)
