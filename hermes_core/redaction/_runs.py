"""Finds tokens by their looks: only runs of 20 and more letters, digits, `_` and `-` can be one.

Such runs are rare, and finding them costs a microsecond for a kilobyte: the text becomes bytes,
one for each character, in which whatever may stand in a token is an `a` and all else a blank.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from functools import cache
from string import ascii_letters, digits
from typing import Final, NamedTuple

from hermes_core.redaction._formats import prefixes
from hermes_core.redaction._looks import stands_in

#: What was found, and of which kind it is.
Finding = tuple[str, str]

_SHORTEST: Final = b"a" * 20
_CLASSES: Final = bytes(
    ord("a") if chr(code) in f"{ascii_letters}{digits}_-" else ord(" ") for code in range(256)
)
#: Prefixes with a sign in them, such as `hooks.slack.com/services/`, begin before the run.
_REACH: Final = 64
_JOINTS: Final = frozenset("./:~")


class _Shapes(NamedTuple):
    """Patterns that are tried where a run begins, and what is told by the whole of it."""

    dull: re.Pattern[str]
    escaped: re.Pattern[str]
    image: re.Pattern[str]
    telegram: re.Pattern[str]
    others: tuple[tuple[str, re.Pattern[str]], ...]
    jwt: re.Pattern[str]


@cache
def _shapes() -> _Shapes:
    return _Shapes(
        # Hashes, UUIDs and names in one case: nothing that a prefix could begin in.
        dull=re.compile(
            r"[0-9a-f]+|[0-9A-F]+|(?i:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
            r"|[a-z_-]+|[A-Z_-]+"
        ),
        escaped=re.compile(r"\\[nrt]|%[0-9A-Fa-f]{2}|\\u00[0-9a-f]{2}|\\x[0-9a-f]{2}"),
        image=re.compile(r"[A-Za-z0-9+/=]+"),
        telegram=re.compile(r"\d{8,10}:"),
        others=(
            ("mailchimp-key", re.compile(r"[0-9a-f]{32}-us\d{1,2}(?![\w-])")),
            ("mailgun-key", re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![\w-])")),
            ("discord-token", re.compile(r"[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,}", re.ASCII)),
        ),
        jwt=re.compile(r"(eyJ[\w-]{8,}+)\.[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]+){0,2}", re.ASCII),
    )


def tokens(text: str) -> Iterator[Finding]:
    """Every token in a text that is known by its prefix or its shape."""
    classes = text.encode("ascii", "replace").translate(_CLASSES)
    end = 0
    while (start := classes.find(_SHORTEST, end)) >= 0:
        reach, end = end, classes.find(b" ", start)
        end = len(text) if end < 0 else end
        before = text[start - 1] if start else ""
        if before == "," and text.endswith(";base64", 0, start - 1):
            image = _shapes().image.match(text, start)
            end = image.end() if image else end
            continue
        if before not in _JOINTS and _shapes().dull.fullmatch(text, start, end):
            if shaped := _shaped(text, start):
                yield shaped[0]
            continue
        reach = max(reach, start - _REACH) if before in _JOINTS else start
        for finding, stop in _in_run(text, reach, start, end):
            end = max(end, stop)
            yield finding


def _in_run(text: str, reach: int, start: int, end: int) -> Iterator[tuple[Finding, int]]:
    """What one run holds, and where that ends: some tokens go on beyond a dot."""
    if shaped := _shaped(text, start):
        yield shaped
    table = prefixes()
    while match := table.any.search(text, reach, end):
        reach = match.start() + 1
        if not _begins(text, match.start()):
            continue
        for kind, body in table.formats[match[0]]:
            if rest := body.match(text, match.end()):
                reach = rest.end()
                if not stands_in(rest[0]):
                    yield (text[match.start() : rest.end()], kind), rest.end()
                break


def _begins(text: str, at: int) -> bool:
    """Whether something may begin here: after no letter, unless that ends an escape."""
    before = text[at - 1] if at else " "
    if not (before.isascii() and before.isalnum()):
        return True
    escaped = _shapes().escaped
    return any(at >= size and escaped.fullmatch(text, at - size, at) for size in (2, 3, 4, 6))


def _shaped(text: str, start: int) -> tuple[Finding, int] | None:
    """A token without a prefix that begins where the run does, or just before; and its end."""
    shapes = _shapes()
    if shapes.escaped.match(text, start - 1 if start else 0):  # the n of a written line end
        start += 1
    if start and text[start - 1] == ":":
        for size in (11, 10, 9):
            bot = start >= size and shapes.telegram.fullmatch(text, start - size, start)
            if bot and text.startswith("AA", start):
                return (text[start - size : start + 35], "telegram-token"), start + 35
    for kind, pattern in shapes.others:
        if match := pattern.match(text, start):
            return (match[0], kind), match.end()
    at = text.find("eyJ", start, start + 16)
    if at >= 0 and (at == start or _begins(text, at)) and (match := shapes.jwt.match(text, at)):
        return ((match[0], "jwt"), match.end()) if _is_json(match[1]) else None
    return None


def _is_json(part: str) -> bool:
    """Whether the first part of a JWT decodes to what begins like an object."""
    try:
        decoded = base64.urlsafe_b64decode(part[: len(part) // 4 * 4])
    except (ValueError, binascii.Error):
        return False
    return decoded[:1] == b"{" and b'"' in decoded
