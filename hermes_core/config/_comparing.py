"""Whether a new text says what the old one said, but for one value.

Nodes are compared, not data: as data, ten aliases of aliases can fill a machine's memory,
and 1, True and 1.0 are the same.
"""

from __future__ import annotations

from typing import Any

import yaml

from hermes_core.config._editing import DELETE
from hermes_core.config._yaml import find_entry
from hermes_core.yamltext import nodes, parse

Path = tuple[str, ...]


def only_changed(old: str, new: str, keys: Path, value: Any) -> bool:
    """Whether ``new`` is ``old`` with the value at ``keys`` set or removed."""
    before, after = nodes(old), nodes(new)
    if not isinstance(before, yaml.MappingNode):
        before = yaml.MappingNode("tag:yaml.org,2002:map", [])
    return _changed(before, after, keys, value, {})


def _changed(
    before: yaml.Node | None,
    after: yaml.Node | None,
    keys: Path,
    value: Any,
    seen: dict[tuple[int, int], bool],
) -> bool:
    if not keys:
        return after is not None and _says(after, value)
    if not isinstance(before, yaml.MappingNode):
        before = yaml.MappingNode("tag:yaml.org,2002:map", [])
    if value is DELETE and not isinstance(after, yaml.MappingNode):
        return not before.value
    if not isinstance(after, yaml.MappingNode):
        return False
    old, new = _others(before, keys[0]), _others(after, keys[0])
    if len(old) != len(new) or not all(map(_same_entry(seen), old, new)):
        return False
    was, now = find_entry(before, keys[0]), find_entry(after, keys[0])
    if value is DELETE and (len(keys) == 1 or now is None):
        return now is None
    return now is not None and _changed(was and was[1], now[1], keys[1:], value, seen)


def _others(node: yaml.MappingNode, key: str) -> list[tuple[yaml.Node, yaml.Node]]:
    last = find_entry(node, key)
    return [entry for entry in node.value if last is None or entry[0] is not last[0]]


def _same_entry(seen: dict[tuple[int, int], bool]) -> Any:
    def compare(one: tuple[yaml.Node, yaml.Node], other: tuple[yaml.Node, yaml.Node]) -> bool:
        return _same(one[0], other[0], seen) and _same(one[1], other[1], seen)

    return compare


def _same(one: yaml.Node, other: yaml.Node, seen: dict[tuple[int, int], bool]) -> bool:
    pair = (id(one), id(other))
    if pair in seen:
        return seen[pair]
    seen[pair] = True  # what contains itself is the same unless it differs elsewhere
    same = type(one) is type(other) and one.tag == other.tag
    if same and isinstance(one, yaml.ScalarNode):
        same = one.value == other.value
    elif same:
        same = len(one.value) == len(other.value)
        for left, right in zip(one.value, other.value, strict=False):
            if isinstance(left, tuple):
                same = same and _same(left[0], right[0], seen) and _same(left[1], right[1], seen)
            else:
                same = same and _same(left, right, seen)
    seen[pair] = same
    return same


def _says(node: yaml.Node, value: Any) -> bool:
    _, data = parse(yaml.serialize(node, allow_unicode=True))
    return repr(data) == repr(value)
