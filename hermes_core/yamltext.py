"""YAML from files that anybody may have written: parsed without surprises.

PyYAML's C parser is fast, but recurses in C and ends the process on deep nesting, and lets
Python's own errors through. Here every failure is a `YamlProblem` with a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

#: Values as YAML 1.1 has them, and scalars as they are written.
LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEXT_LOADER: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

MAX_DEPTH: Final = 100
MAX_ENTRIES: Final = 10_000

# What comes of a value that its type refuses: 2024-13-45, !!int x, !!binary x, ...
_REFUSALS: Final = (
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class YamlProblem(ValueError):  # noqa: N818 - reads as what it is
    """What is wrong with a text, and in which line (0 if that is not known)."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.line = line


def nodes(text: str) -> yaml.Node | None:
    """The root node of a text with one document, its merge keys as they are written."""
    return _guarded(text, LOADER, construct=False)[0]


def parse(text: str, loader: Any = LOADER) -> tuple[yaml.Node | None, Any]:
    """The root node and the data of a text with one document.

    Constructing resolves merge keys in the nodes; who needs them as written uses `nodes`.
    """
    return _guarded(text, loader, construct=True)


def _guarded(text: str, loader: Any, *, construct: bool) -> tuple[yaml.Node | None, Any]:
    data = root = None
    try:
        if _may_be_deep(text):
            _check_depth(text)
        machine = loader(text)
        try:
            root = machine.get_single_node()
            if construct and "<<" in text:
                _check_merges(root, {})
            if construct and root is not None:
                data = machine.construct_document(root)
        finally:
            machine.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(part for part in (error.context, error.problem) if part)
        raise YamlProblem(words, mark.line + 1 if mark else 0) from error
    except YamlProblem:
        raise
    except _REFUSALS as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise YamlProblem(what, _line_of_refusal(root)) from error
    except RecursionError as error:
        raise YamlProblem("it is nested too deeply") from error
    return root, data


def _check_merges(node: Any, sizes: dict[int, int]) -> int:
    """How many entries a node has once its merges are resolved; too many are refused."""
    if node is None or isinstance(node, yaml.ScalarNode):
        return 0
    if id(node) in sizes:
        return sizes[id(node)]
    sizes[id(node)] = 0  # what merges itself
    size = 0
    for each in node.value:
        key, value = each if isinstance(each, tuple) else (None, each)
        below = _check_merges(value, sizes)
        merged = key is not None and key.tag == "tag:yaml.org,2002:merge"
        size += below if merged or key is None else 1
        if size > MAX_ENTRIES:
            raise YamlProblem("it merges too much", node.start_mark.line + 1)
    sizes[id(node)] = size
    return size


def _line_of_refusal(root: yaml.Node | None) -> int:
    """The line of the first value that its type refuses."""
    for node in _scalars(root, set()):
        machine = LOADER("")
        try:
            machine.construct_object(node)
        except _REFUSALS:
            return int(node.start_mark.line) + 1
        finally:
            machine.dispose()
    return 0


def _scalars(node: Any, seen: set[int]) -> Iterator[yaml.ScalarNode]:
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        yield node
        return
    for each in node.value:
        for part in each if isinstance(each, tuple) else (each,):
            yield from _scalars(part, seen)


def _may_be_deep(text: str) -> bool:
    """A quick look: nearly every file has less of these altogether than levels are allowed."""
    if sum(map(text.count, ("[", "{", "- ", "? "))) > MAX_DEPTH:
        return True
    return any(len(line) - len(line.lstrip(" ")) > MAX_DEPTH for line in text.split("\n"))


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise YamlProblem("it is nested too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
