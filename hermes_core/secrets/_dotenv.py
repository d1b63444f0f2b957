"""The grammar of a .env, as python-dotenv reads it without interpolation; and its quoting.

python-dotenv itself does not write safely (it keeps 0644, severs links, checks no names),
and reading by the same rules as writing lets every change be verified before it is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_ANY_SPACE: Final = re.compile(r"\s*")
_SPACE: Final = re.compile(r"[^\S\r\n]*")
_EXPORT: Final = re.compile(r"(?:export[^\S\r\n]+)?")
_QUOTED_KEY: Final = re.compile(r"'[^']+'")
_KEY: Final = re.compile(r"[^=#\s]+")
_EQUAL: Final = re.compile(r"=[^\S\r\n]*")
_SINGLE: Final = re.compile(r"'(?:\\.|[^'\\])*'", re.DOTALL)
_DOUBLE: Final = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)
_REST: Final = re.compile(r"[^\r\n]*")
_INLINE_COMMENT: Final = re.compile(r"\s+#.*")
_COMMENT: Final = re.compile(r"(?:[^\S\r\n]*#[^\r\n]*)?")
_LINE_END: Final = re.compile(r"[^\S\r\n]*(?:\r\n|\n|\r|\Z)")
_REST_AND_END: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)?")
_BREAK: Final = re.compile(r"\r\n|\r")

_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_IN_DOUBLE: Final = re.compile(r"\\([\\'\"abfnrtv])")
_IN_SINGLE: Final = re.compile(r"\\([\\'])")

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:@%+,=-]+")
_NOT_IN_SINGLE: Final = re.compile(r"'|\\\\|\\\Z")
#: A backslash at the end: python-dotenv before 1.2.3 takes the quote after it for escaped.
_NOT_IN_DOUBLE: Final = re.compile(r"[$`]|\\\Z")
_INTERPOLATED: Final = re.compile(r"\$\{[^}]*\}")


class Assignment(NamedTuple):
    """``KEY=value`` in a text, from the start of its first line to the end of its last."""

    key: str
    value: str | None
    start: int
    end: int
    indent: str
    export: bool
    comment: str
    line_end: str


class _UnreadableError(Exception):
    """No assignment begins here."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise _UnreadableError
        self.at = found.end()
        return found[0]

    def sees(self, char: str) -> bool:
        return self.text.startswith(char, self.at)


def assignments(text: str) -> Iterator[Assignment]:
    """All assignments of a text, in order; what can't be read is passed over, by the line."""
    reader = _Reader(text)
    while reader.at < len(text):
        space = reader.take(_ANY_SPACE)
        try:
            found = _assignment(reader, re.split(r"[\r\n]", space)[-1])
        except _UnreadableError:
            reader.take(_REST_AND_END)
        else:
            if found is not None:
                yield found


def _assignment(reader: _Reader, indent: str) -> Assignment | None:
    start = reader.at - len(indent)
    if reader.at == len(reader.text):
        return None
    export = reader.take(_EXPORT) != ""
    key = None if reader.sees("#") else _key(reader)
    reader.take(_SPACE)
    value, comment = _value(reader) if key is not None and reader.sees("=") else (None, "")
    comment = comment or reader.take(_COMMENT)
    end = reader.take(_LINE_END)
    if key is None:
        return None
    line_end = end[len(end.rstrip("\r\n")) :]
    return Assignment(key, value, start, reader.at, indent, export, comment, line_end)


def _key(reader: _Reader) -> str:
    if reader.sees("'"):
        return _BREAK.sub("\n", reader.take(_QUOTED_KEY)[1:-1])
    return reader.take(_KEY)


def _value(reader: _Reader) -> tuple[str, str]:
    """The value, and the comment where it had to be cut off from it."""
    if reader.take(_EQUAL) != "=" and reader.sees("#"):
        return "", ""
    if reader.sees("'"):
        return _unescaped(_IN_SINGLE, reader.take(_SINGLE)), ""
    if reader.sees('"'):
        return _unescaped(_IN_DOUBLE, reader.take(_DOUBLE)), ""
    rest = reader.take(_REST)
    comment = _INLINE_COMMENT.search(rest)
    return (rest[: comment.start()].rstrip(), comment[0]) if comment else (rest.rstrip(), "")


def _unescaped(escapes: re.Pattern[str], quoted: str) -> str:
    # A file is read with its line ends made "\n", before anything else.
    text = _BREAK.sub("\n", quoted[1:-1])
    return escapes.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)


def quoted(value: str) -> str | None:
    """The value as python-dotenv and a shell both read it; None if no form suits both.

    In single quotes a shell knows no escapes, but python-dotenv does; in double quotes a
    shell expands ``$`` and `````, but python-dotenv has no escape for them.
    """
    if _PLAIN.fullmatch(value):
        return value
    if not _NOT_IN_SINGLE.search(value):
        return f"'{value}'"
    if not _NOT_IN_DOUBLE.search(value):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return None


def is_interpolated(value: str) -> bool:
    """Whether a reader that interpolates, as hermes-agent does, would read another value."""
    return bool(_INTERPOLATED.search(value))


def changed(text: str, key: str, value: str | None) -> str:
    """The text with the value of a key set, or with the key removed; all else as it was.

    ``value`` is already quoted. Of several assignments one is left: the last, which counts.
    """
    found = [each for each in assignments(text) if each.key == key]
    for position, each in reversed(list(enumerate(found))):
        is_last = position == len(found) - 1
        line = "" if value is None or not is_last else _line(each, value)
        text = text[: each.start] + line + text[each.end :]
    if found or value is None:
        return text
    return _appended(text, f"{key}={value}")


def _line(old: Assignment, value: str) -> str:
    """An assignment with another value; what a shell would take for part of it goes."""
    indent = old.indent if not old.indent.strip(" \t") else ""
    export = "export " if old.export else ""
    gap, mark, comment = old.comment.partition("#")
    if mark and (not gap or gap.strip(" \t")):
        gap = " "
    return f"{indent}{export}{old.key}={value}{gap}{mark}{comment}{old.line_end}"


def _appended(text: str, line: str) -> str:
    ends = re.search(r"\r\n|\n|\r", text)
    line_end = ends[0] if ends else "\n"
    gap = line_end if text and not text.endswith(("\n", "\r")) else ""
    return f"{text}{gap}{line}{line_end}"
