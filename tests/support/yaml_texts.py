"""Strategies for files as people write them: YAML in all its styles, with comments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from hermes_core.config.editor import DELETE

Keys = tuple[str, ...]

KEYS = ("memory", "provider", "acme", "mem0", "a", "no", "a b", "é")
PLAIN = ("memory", "provider", "acme", "mem0", "a", "é")
SCALARS = ("x", "1", "010", "yes", "~", "1.5", "'q'", '"d\\n"', "a b", "http://h:1/#x", "x:y")
SCALARS += ('"#no"', "''", "2001-01-01", "12:30:45", "'it''s'", "-1", "家", '"a: b"', "[]", "{}")


@dataclass(slots=True)
class Text:
    """A file's text, and what belongs to which path in it."""

    lines: list[str] = field(default_factory=list)
    inside: dict[str, Keys] = field(default_factory=dict)
    beside: dict[str, Keys] = field(default_factory=dict)
    newline: str = "\n"
    final_newline: bool = True

    def __str__(self) -> str:
        return self.newline.join(self.lines) + (self.newline if self.final_newline else "")

    def may_go(self, keys: Keys, value: Any, data: Any) -> set[str]:
        """The comments that a change may take along: those inside what it replaces."""
        for depth in range(1, len(keys)):
            data = data.get(keys[depth - 1], {}) if isinstance(data, dict) else data
            if not isinstance(data, dict):  # it has to make way for a mapping
                keys, value = keys[:depth], None
                break
        gone = {each for each, path in self.inside.items() if path[: len(keys)] == keys}
        for comment, path in self.beside.items():
            if path[: len(keys)] == keys and (value is DELETE or path != keys):
                gone.add(comment)
        return gone


class Writer:
    """Draws a mapping, line by line."""

    def __init__(self, draw: Any, *, odd: bool) -> None:
        self.draw = draw
        self.odd = odd
        self.text = Text()
        self.anchors: list[str] = []

    def chance(self, percent: int) -> bool:
        # Shrinks towards False, and with it towards plain files.
        return self.draw(st.integers(0, 99)) >= 100 - percent

    def pick(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def comment(self) -> str:
        return f"# {len(self.text.inside) + len(self.text.beside) + 1}"

    def add(self, line: str) -> None:
        self.text.lines.append(line)

    def key_line(self, line: str, path: Keys, *, beside: bool) -> None:
        """A line with, perhaps, a comment behind it."""
        if self.chance(30):
            comment = self.comment()
            (self.text.beside if beside else self.text.inside)[comment] = path
            line += f"{self.pick(' ', '   ')}{comment}"
        self.add(line)

    def gap(self, path: Keys, indent: int) -> None:
        """Empty lines and comments between two entries; a comment's indent is anything."""
        while self.chance(20):
            if self.chance(60):
                comment = self.comment()
                # Above an entry of this mapping, so inside this mapping.
                self.text.inside[comment] = (*path, "")
                self.add(" " * self.draw(st.sampled_from([indent, indent, 0])) + comment)
            else:
                self.add("")

    def mapping(self, path: Keys, indent: int, depth: int = 0) -> None:
        keys = self.draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True))
        if depth == 0 and "memory" not in keys and self.chance(70):
            keys.append("memory")
        step = self.draw(st.sampled_from([2, 4, 1]))
        if self.odd and "base" in self.anchors and self.chance(20):
            self.add(" " * indent + "<<: *base")
        for key in keys:
            self.gap(path, indent)
            self.entry((*path, key), indent, step, depth)
        self.gap(path, indent)

    def entry(self, path: Keys, indent: int, step: int, depth: int) -> None:
        start = " " * indent + self.spelt(path[-1]) + self.pick("", "", " ") + ":"
        kinds = ["scalar", "scalar", "empty", "flow", "folded", "below", "words"]
        if depth < 3:
            kinds += ["mapping", "mapping", "mapping", "list"]
        kind = self.pick(*kinds)
        if kind == "scalar":
            self.key_line(f"{start}{self.pick(' ', '  ')}{self.scalar()}", path, beside=True)
        elif kind == "empty":
            self.key_line(start, path, beside=True)
        elif kind == "flow":
            self.key_line(f"{start} {self.flow()}", path, beside=True)
        elif kind == "words":
            self.add(f"{start} some")
            self.key_line(" " * (indent + 2) + "words", path, beside=True)
        elif kind == "below":
            self.key_line(start, path, beside=False)
            self.key_line(" " * (indent + 1) + self.scalar(), path, beside=False)
        elif kind == "folded":
            self.folded(start, path, indent)
        elif kind == "list":
            self.items(start, path, indent)
        else:
            self.key_line(start, path, beside=False)
            self.mapping(path, indent + step, depth + 1)

    def spelt(self, key: str) -> str:
        if key not in PLAIN:
            return f'"{key}"'
        return self.pick(key, key, f"'{key}'", f'"{key}"')

    def scalar(self) -> str:
        if self.odd and self.anchors and self.chance(15):
            name = self.pick(*self.anchors)
            if name != "base":
                return f"*{name}"
        text = self.pick(*SCALARS)
        if self.odd and self.chance(10):
            self.anchors.append(f"n{len(self.anchors)}")
            return f"&{self.anchors[-1]} {text}"
        return text

    def flow(self, depth: int = 0) -> str:
        if depth == 2 or self.chance(40):
            return self.pick(*SCALARS)
        if self.chance(30):
            return f"[{', '.join(self.flow(depth + 1) for _ in range(2))}]"
        keys = self.draw(st.lists(st.sampled_from(KEYS), max_size=3, unique=True))
        space = self.pick("", " ")
        comma = ",}" if self.odd and keys and self.chance(10) else "}"
        inner = ", ".join(f"{self.spelt(key)}: {self.flow(depth + 1)}" for key in keys)
        return "{" + space + inner + space + comma

    def folded(self, start: str, path: Keys, indent: int) -> None:
        keep = "+" if self.odd and self.chance(20) else self.pick("", "-")
        self.key_line(f"{start} {self.pick('|', '>')}{keep}", path, beside=False)
        self.add(" " * (indent + 2) + "text")
        if self.chance(50):
            self.add(" " * (indent + 2) + self.pick("text", "#text", "  more", "key: value"))
        if self.chance(30):
            self.add("")

    def items(self, start: str, path: Keys, indent: int) -> None:
        self.key_line(start, path, beside=False)
        indent += self.draw(st.sampled_from([0, 2]))
        for _ in range(self.draw(st.integers(1, 2))):
            self.key_line(" " * indent + "- " + self.flow(1), path, beside=False)


@st.composite
def texts(draw: Any, *, odd: bool = False) -> Text:
    """A config.yaml. An odd one has anchors, merges, markers and what else nobody needs."""
    writer = Writer(draw, odd=odd)
    if odd and writer.chance(30):
        writer.add("base: &base {provider: x, mem0: y}")
        writer.anchors.append("base")
    start = writer.pick("", "", "---", "comment")
    if start:
        writer.add("# 0" if start == "comment" else start)
    writer.mapping((), 0)
    if odd and writer.chance(20):
        writer.add("...")
    text = writer.text
    text.newline = writer.pick("\n", "\n", "\r\n")
    # Without its newline, a block of text at the end of a file means something else.
    ends_in_text = any(each.startswith(("|", ">")) for each in _words(text.lines[-3:]))
    text.final_newline = (ends_in_text and not odd) or not writer.chance(20)
    return text


def _words(lines: list[str]) -> list[str]:
    return " ".join(lines).split()


_NAMES = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Cn", "Zl", "Zp"), exclude_characters="\ufeff"),
    max_size=8,
)
_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.just(1.5), _NAMES)
values = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=2),
    max_leaves=4,
)
paths = st.one_of(
    st.sampled_from([("memory", "provider"), ("memory", "acme", "mem0"), ("memory", "no")]),
    st.lists(st.sampled_from((*KEYS, "new", "12")), min_size=1, max_size=4).map(tuple),
)
