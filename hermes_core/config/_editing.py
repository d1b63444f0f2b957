"""Changes one value in the text of a YAML file and not a byte besides.

A round-trip emitter re-indents lists, folds lines and drops quotes in parts that nobody
asked it to touch. Here the parser only says where a value begins and ends.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import yaml

from hermes_core.config._yaml import find_entry
from hermes_core.yamltext import nodes

DELETE: Final = object()

# Plain in YAML 1.1 and 1.2 alike; whatever else a string is, it gets quotes.
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"})

_ALIAS: Final = re.compile(r"\s*(\*[^\s,\]}]+)")
_HEADER_COMMENT: Final = re.compile(r"[ \t]#[^\n]*")
_DOCUMENT_END: Final = re.compile(r"^\.\.\.[ \t]*$", re.MULTILINE)

Path = tuple[str, ...]


class CantEditError(Exception):
    """The text can't be changed there without changing what it says elsewhere."""


def edit(text: str, keys: Path, value: Any) -> str:
    """The text with the value at ``keys`` set, or removed if it is `DELETE`.

    Not for every YAML that exists: the caller checks what came of it.
    """
    root = nodes(text)
    if isinstance(root, yaml.MappingNode):
        return _Editor(text).apply(root, keys, value)
    return text if value is DELETE else _filled_document(text, keys, value)


def render(value: Any) -> str:
    """A value in flow style, on one line, the same for YAML 1.1 and 1.2."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{render(k)}: {render(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(render(each) for each in value) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.casefold() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _filled_document(text: str, keys: Path, value: Any) -> str:
    newline = _newline(text)
    end = _DOCUMENT_END.search(text)
    head, tail = (text[: end.start()], text[end.start() :]) if end else (text, "")
    if head and not head.endswith("\n"):
        head += newline
    return head + _block(keys, value, 0, newline) + newline + tail


def _block(keys: Path, value: Any, indent: int, newline: str) -> str:
    """Nested keys, one a line, the value behind the last."""
    lines = [" " * (indent + 2 * depth) + f"{render(key)}:" for depth, key in enumerate(keys)]
    lines[-1] += f" {render(value)}"
    return newline.join(lines)


def _nested(keys: Path, value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


class _Editor:
    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = _newline(text)

    def apply(self, node: yaml.MappingNode, keys: Path, value: Any) -> str:
        """Walk down to the deepest mapping that exists, and change it there."""
        entry = find_entry(node, keys[0])
        if entry is None:
            return self._text if value is DELETE else self._insert(node, keys, value)
        key, old = entry
        if len(keys) == 1:
            if value is DELETE:
                return self._remove(node, key, old)
            return self._replace(key, old, render(value))
        if isinstance(old, yaml.MappingNode) and not _is_alias(key, old):
            return self.apply(old, keys[1:], value)
        return self._text if value is DELETE else self._fill(key, old, keys[1:], value)

    def _replace(self, key: yaml.Node, old: yaml.Node, rendered: str) -> str:
        if _is_alias(key, old):
            return self._replace_alias(key, rendered)
        start, end = old.start_mark.index, self._end(old)
        if start == end:  # no value at all: the mark is behind the colon
            return f"{self._text[:start]} {rendered}{self._text[start:]}"
        if old.start_mark.line > key.start_mark.line:  # below its key; keep what is between
            colon = self._text.index(":", key.end_mark.index) + 1
            between = self._text[colon:start].rstrip()
            return f"{self._text[:colon]} {rendered}{between}{self._text[end:]}"
        kept = ""
        if isinstance(old, yaml.ScalarNode) and old.style in ("|", ">"):
            comment = _HEADER_COMMENT.search(self._text, start, self._line_end(start))
            kept = comment.group() if comment else ""
        return self._text[:start] + rendered + kept + self._text[end:]

    def _replace_alias(self, key: yaml.Node, rendered: str) -> str:
        colon = self._text.index(":", key.end_mark.index) + 1
        alias = _ALIAS.match(self._text, colon)
        if alias is None:
            raise CantEditError("an alias that can't be found")
        return self._text[: alias.start(1)] + rendered + self._text[alias.end(1) :]

    def _fill(self, key: yaml.Node, old: yaml.Node, keys: Path, value: Any) -> str:
        """Put keys below one that has no value yet, behind whatever comment is on its line."""
        if not isinstance(old, yaml.ScalarNode) or old.tag != "tag:yaml.org,2002:null":
            raise CantEditError("there is no section")
        if old.start_mark.index != old.end_mark.index:  # it is written out: null, ~
            return self._replace(key, old, render(_nested(keys, value)))
        at = self._line_end(key.end_mark.index)
        block = _block(keys, value, key.start_mark.column + 2, self._newline)
        return self._text[:at] + self._newline + block + self._text[at:]

    def _insert(self, node: yaml.MappingNode, keys: Path, value: Any) -> str:
        if node.flow_style:
            at = node.end_mark.index - 1
            last = self._value_end(*node.value[-1]) if node.value else at
            comma = ", " if node.value and self._comma(last, at) is None else ""
            entry = f"{render(keys[0])}: {render(_nested(keys[1:], value))}"
            return f"{self._text[:at]}{comma}{entry}{self._text[at:]}"
        at = self._line_end(self._end(node))
        block = _block(keys, value, node.value[0][0].start_mark.column, self._newline)
        return self._text[:at] + self._newline + block + self._text[at:]

    def _remove(self, node: yaml.MappingNode, key: yaml.Node, old: yaml.Node) -> str:
        if node.flow_style:
            return self._remove_from_flow(node, key, old)
        if len(node.value) == 1:
            start, end = node.start_mark.index, self._end(node)
            return self._text[:start] + "{}" + self._text[end:]
        start = self._text.rfind("\n", 0, key.start_mark.index) + 1
        end = self._line_end(self._end(old))
        end += len(self._newline) if self._text.startswith(self._newline, end) else 0
        return self._text[:start] + self._text[end:]

    def _remove_from_flow(self, node: yaml.MappingNode, key: yaml.Node, old: yaml.Node) -> str:
        """Take out an entry and one comma, and nothing else: there may be comments."""
        start, end = key.start_mark.index, self._value_end(key, old)
        position = [each for each, _ in node.value].index(key)
        comma = self._comma(end, node.end_mark.index)
        if comma is None and position:
            comma = self._comma(self._value_end(*node.value[position - 1]), start)
        if comma is None:
            return self._text[:start] + self._text[end:]
        if comma < start:
            between = self._text[comma + 1 : start].rstrip(" ")
            return self._text[:comma] + between + self._text[end:]
        behind = self._text[comma + 1 :]
        behind = behind[1:] if behind.startswith(" ") and behind[1:2] != "#" else behind
        return self._text[:start] + self._text[end:comma] + behind

    def _comma(self, start: int, end: int) -> int | None:
        """Where the first comma is that is in no comment."""
        comment = False
        for index in range(start, end):
            char = self._text[index]
            if char == "\n":
                comment = False
            elif char == "#":
                comment = True
            elif char == "," and not comment:
                return index
        return None

    def _value_end(self, key: yaml.Node, value: yaml.Node) -> int:
        """Where the text of an entry's value ends, also if it is an alias."""
        if not _is_alias(key, value):
            return self._end(value)
        alias = _ALIAS.match(self._text, self._text.index(":", key.end_mark.index) + 1)
        return alias.end(1) if alias else int(key.end_mark.index)

    def _end(self, node: yaml.Node) -> int:
        """Where a node's text ends. A block's own mark lies behind the comments after it."""
        if isinstance(node, yaml.ScalarNode):
            end = int(node.end_mark.index)
            return len(self._text[:end].rstrip()) if node.style in ("|", ">") else end
        if not isinstance(node, yaml.CollectionNode) or node.flow_style:
            return int(node.end_mark.index)
        last = node.value[-1]
        if not isinstance(last, tuple):
            return self._end(last)
        if _is_alias(*last):
            return self._line_end(last[0].end_mark.index)
        # A key without a value may be marked far behind; its own end is the truth then.
        return max(int(last[0].end_mark.index) + 1, self._end(last[1]))

    def _line_end(self, index: int) -> int:
        end = self._text.find("\n", index)
        if end < 0:
            return len(self._text)
        return end - 1 if self._text[end - 1] == "\r" else end


def _is_alias(key: yaml.Node, value: yaml.Node) -> bool:
    """Whether the value stands elsewhere, before its key."""
    return bool(value.start_mark.index < key.end_mark.index)
