"""Changes one value in the text of a YAML file and not a byte besides.

A round-trip emitter re-indents lists, folds lines and drops quotes in parts that nobody
asked it to touch. Here the parser only says where a value begins and ends.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import yaml

from hermes_core.config._yaml import Loader, find_entry

DELETE: Final = object()

# Plain in YAML 1.1 and 1.2 alike; whatever else a string is, it gets quotes.
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"})

Path = tuple[str, ...]


def edit(text: str, keys: Path, value: Any) -> str:
    """The text with the value at ``keys`` set, or removed if it is `DELETE`.

    Not for every YAML that exists (aliases, merges): the caller checks what came of it.
    """
    root = yaml.compose(text, Loader=Loader)
    if not isinstance(root, yaml.MappingNode):
        return text if value is DELETE else _append_document(text, keys, value)
    return _Editor(text).apply(root, keys, value)


def render(value: Any) -> str:
    """A value in flow style, on one line, the same for YAML 1.1 and 1.2."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{render(k)}: {render(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(render(each) for each in value) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.casefold() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _append_document(text: str, keys: Path, value: Any) -> str:
    newline = _newline(text)
    if text and not text.endswith("\n"):
        text += newline
    return text + _block(keys, value, 0, newline) + newline


def _block(keys: Path, value: Any, indent: int, newline: str) -> str:
    """Nested keys, one a line, the value behind the last."""
    lines = [" " * (indent + 2 * depth) + f"{render(key)}:" for depth, key in enumerate(keys)]
    lines[-1] += f" {render(value)}"
    return newline.join(lines)


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
        if len(keys) > 1:
            if isinstance(old, yaml.MappingNode) and (old.value or old.flow_style):
                return self.apply(old, keys[1:], value)
            if value is DELETE:
                return self._text
            return self._fill(key, old, keys[1:], value)
        if value is DELETE:
            return self._remove(node, key, old)
        return self._replace(key, old, render(value))

    def _replace(self, key: yaml.Node, old: yaml.Node, rendered: str) -> str:
        start, end = old.start_mark.index, self._end(old)
        if start == end:  # no value at all: the mark is behind the colon
            return f"{self._text[:start]} {rendered}{self._text[start:]}"
        if old.start_mark.line > key.start_mark.line:  # a block below its key
            colon = self._text.index(":", key.end_mark.index) + 1
            return f"{self._text[:colon]} {rendered}{self._text[end:]}"
        return self._text[:start] + rendered + self._text[end:]

    def _fill(self, key: yaml.Node, old: yaml.Node, keys: Path, value: Any) -> str:
        """Put keys below one that has no value yet, behind whatever comment is on its line."""
        if not isinstance(old, yaml.ScalarNode) or old.start_mark.index != old.end_mark.index:
            nested = value
            for name in reversed(keys):
                nested = {name: nested}
            return self._replace(key, old, render(nested))
        at = self._line_end(key.end_mark.index)
        block = _block(keys, value, key.start_mark.column + 2, self._newline)
        return self._text[:at] + self._newline + block + self._text[at:]

    def _insert(self, node: yaml.MappingNode, keys: Path, value: Any) -> str:
        if node.flow_style:
            nested = value
            for name in reversed(keys[1:]):
                nested = {name: nested}
            at = node.end_mark.index - 1
            comma = ", " if node.value else ""
            return f"{self._text[:at]}{comma}{render(keys[0])}: {render(nested)}{self._text[at:]}"
        at = self._line_end(self._end(node))
        block = _block(keys, value, node.value[0][0].start_mark.column, self._newline)
        return self._text[:at] + self._newline + block + self._text[at:]

    def _remove(self, node: yaml.MappingNode, key: yaml.Node, old: yaml.Node) -> str:
        if len(node.value) == 1:
            start, end = node.start_mark.index, self._end(node)
            return self._text[:start] + "{}" + self._text[end:]
        if node.flow_style:
            return self._remove_from_flow(node, key, old)
        start = self._text.rfind("\n", 0, key.start_mark.index) + 1
        end = self._line_end(self._end(old))
        end += len(self._newline) if self._text.startswith(self._newline, end) else 0
        return self._text[:start] + self._text[end:]

    def _remove_from_flow(self, node: yaml.MappingNode, key: yaml.Node, old: yaml.Node) -> str:
        keys = [each for each, _ in node.value]
        position = keys.index(key)
        if position + 1 < len(keys):
            start, end = key.start_mark.index, keys[position + 1].start_mark.index
        else:
            start, end = self._end(node.value[position - 1][1]), self._end(old)
        return self._text[:start] + self._text[end:]

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
        # A key without a value may be marked far behind; its own end is the truth then.
        return max(int(last[0].end_mark.index) + 1, self._end(last[1]))

    def _line_end(self, index: int) -> int:
        end = self._text.find("\n", index)
        if end < 0:
            return len(self._text)
        return end - 1 if self._text[end - 1] == "\r" else end
