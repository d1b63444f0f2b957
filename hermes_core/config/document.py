"""config.yaml as text and as YAML, with the line of every key.

The file may have been written by anybody. PyYAML's C parser is fast, but it recurses in C,
ends the process on deep nesting, and lets Python's own errors through. Here every failure
is a `YamlProblem` with a line, or a `ConfigError` made from one.

Values mean what YAML 1.1 says (``yes`` is true), because hermes-agent shares the file and
reads it that way.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from hermes_core.errors import ConfigError, one_line
from hermes_core.storage.files import read_regular

#: The first reads values as YAML 1.1 does, the second returns scalars as they are written.
LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEXT_LOADER: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

# Far more than a person writes, far less than what overflows libyaml's C stack. MAX_ENTRIES bounds
# what merge keys expand to: n lines of merges can yield 2**n entries.
MAX_DEPTH: Final = 100
MAX_ENTRIES: Final = 10_000
MAX_NODES: Final = 50_000
MAX_DIGITS: Final = 1_000
_INTEGER: Final = "tag:yaml.org,2002:int"

# What PyYAML raises for a value that its type rejects: 2024-13-45, !!int x, !!binary x, ...
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

    Constructing resolves merge keys in the nodes; use `nodes` to get them as written.
    """
    return _guarded(text, loader, construct=True)


def _guarded(text: str, loader: Any, *, construct: bool) -> tuple[yaml.Node | None, Any]:
    data = root = None
    try:
        # Before the parser composes nodes: a stack overflow in C ends the process, not in an
        # error.
        if _may_be_large(text):
            _check_events(text)
        machine = loader(text)
        try:
            root = machine.get_single_node()
            _check_expanded(root, {})
            # Before constructing, since that is what expands the merges.
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
    # It is a ValueError, which _REFUSALS would catch and lose the line of.
    except YamlProblem:
        raise
    except _REFUSALS as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise YamlProblem(what, _line_of_refusal(root)) from error
    except RecursionError as error:
        raise YamlProblem("it is nested too deeply") from error
    return root, data


def _check_merges(node: Any, sizes: dict[int, int]) -> int:
    """How many entries a node has once its merges are resolved; too many are an error."""
    if node is None or isinstance(node, yaml.ScalarNode):
        return 0
    if id(node) in sizes:
        return sizes[id(node)]
    sizes[id(node)] = 0  # for a node that merges itself: the recursion ends here
    size = 0
    for each in node.value:
        key, value = each if isinstance(each, tuple) else (None, each)
        below = _check_merges(value, sizes)
        # A sequence as a merge's value counts as the sum of its mappings; elsewhere a value is one
        # entry, however large it is.
        merged = key is not None and key.tag == "tag:yaml.org,2002:merge"
        size += below if merged or key is None else 1
        if size > MAX_ENTRIES:
            raise YamlProblem("it merges too much", node.start_mark.line + 1)
    sizes[id(node)] = size
    return size


def _line_of_refusal(root: yaml.Node | None) -> int:
    """The line of the first value that its type rejects."""
    # PyYAML's own errors have a mark; what int() or datetime() raises inside it has none. So the
    # scalars are constructed again one by one, each with a new loader, because a loader has state.
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


def _may_be_large(text: str) -> bool:
    """A quick look: nearly every file has less of these altogether than is allowed."""
    if sum(map(text.count, ("[", "{", "- ", "? "))) > MAX_DEPTH:
        return True
    if sum(map(text.count, (",", ":", "\n"))) > MAX_NODES // 3:
        return True
    return any(len(line) - len(line.lstrip(" ")) > MAX_DEPTH for line in text.split("\n"))


def _check_events(text: str) -> None:
    """Refuse what would be too deep or too large as nodes, which take 1 KB each."""
    # Events come one at a time and need no recursion, unlike nodes.
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=LOADER), start=1):
        if count > MAX_NODES:
            raise YamlProblem("it has too many values")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise YamlProblem("it is nested too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_expanded(node: Any, sizes: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How many values a node has, and how deep they are, with every alias written out.

    An alias costs nothing until somebody prints, copies or compares what it is in.
    """
    if node is None:
        return 0, 0
    if isinstance(node, yaml.ScalarNode):
        if len(node.value) > MAX_DIGITS and node.tag == _INTEGER:
            # 1:1:1... is a number of base 60, which takes minutes to compute.
            raise YamlProblem("it has a number that is too long", node.start_mark.line + 1)
        return 1, 1
    if id(node) in sizes:
        return sizes[id(node)]
    sizes[id(node)] = 1, 1  # what contains itself
    parts = (part for each in node.value for part in (each if isinstance(each, tuple) else (each,)))
    found = [_check_expanded(each, sizes) for each in parts]
    size = 1 + sum(each for each, _ in found)
    depth = 1 + max((each for _, each in found), default=0)
    if size > MAX_NODES or depth > MAX_DEPTH + 1:
        raise YamlProblem("its aliases expand to too much", node.start_mark.line + 1)
    sizes[id(node)] = size, depth
    return size, depth


FILE_NAME: Final = "config.yaml"
MAX_BYTES: Final = 1_000_000

# Windows editors write a byte order mark. It is split off, so that the parser's positions are
# positions in the text that the editor cuts; it is written back in front.
_MARK: Final = "\ufeff"
_STRING: Final = "tag:yaml.org,2002:str"


class YamlDocument(NamedTuple):
    """A parsed file. ``mark`` is its byte order mark, which is not part of the text."""

    path: Path
    text: str
    data: dict[str, Any]
    mark: str = ""

    def line(self, keys: tuple[str, ...]) -> int:
        """The line, from 1, of the key at a path, or of its nearest parent that has one."""
        node = _tree(self.text)
        line = 1
        for key in keys:
            entry = find_entry(node, key)
            if entry is None:
                break
            line, node = entry[0].start_mark.line + 1, entry[1]
        return line

    def where(self, keys: tuple[str, ...]) -> str:
        """A path for a message: ``config.yaml:12: memory.provider``."""
        return one_line(f"{self.path.name}:{self.line(keys)}: {'.'.join(keys)}")


# One entry: all messages of one validation are about the same text.
@lru_cache(maxsize=1)
def _tree(text: str) -> yaml.Node | None:
    """The nodes of a text: every message about it asks for a line in it."""
    return nodes(text)


def find_entry(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    """The last (key, value) with that key, as the last one counts."""
    if not isinstance(node, yaml.MappingNode):
        return None
    found = None
    for each, value in node.value:
        # A key 1 or yes is a number or a boolean, not the text.
        if isinstance(each, yaml.ScalarNode) and each.tag == _STRING and each.value == key:
            found = (each, value)
    return found


def read_document(home: Path) -> YamlDocument:
    """Parse config.yaml. A missing file is an empty one; everything else is an error."""
    path = home / FILE_NAME
    return parse_document(path, read_text(path))


def parse_document(path: Path, text: str) -> YamlDocument:
    """Parse the text of a config.yaml."""
    mark = _MARK if text.startswith(_MARK) else ""
    text = text.removeprefix(_MARK)
    try:
        _, data = parse(text)
    except YamlProblem as error:
        line = f"{path.name}:{error.line}" if error.line else str(path)
        what, todo = f"is not valid YAML: {error.what}", f"correct {path}"
        raise ConfigError(what, where=line, hint=todo) from error
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(
            f"expected keys and values, got {type_name(data)}",
            where=f"{path.name}:1",
            hint=f"correct {path}",
        )
    return YamlDocument(path, text, data, mark)


def read_text(path: Path) -> str:
    """The text of a config.yaml; "" if there is none."""
    try:
        status = path.stat()
        # Checked before opening: reading a FIFO would block forever.
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise ConfigError(f"is {kind}", where=str(path), hint="move it away")
        if status.st_size > MAX_BYTES:
            raise ConfigError(
                f"has {status.st_size:,} bytes, too large for a configuration",
                where=str(path),
                hint=f"make it smaller than {MAX_BYTES:,} bytes",
            )
        content = read_regular(path, MAX_BYTES)
    except FileNotFoundError:
        return ""
    except OSError as error:
        what = f"can't be read: {error.strerror or error}"
        raise ConfigError(what, where=str(path), hint="check its permissions") from error
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "is not UTF-8 text", where=f"{path}:{line}", hint="save it as UTF-8"
        ) from error


def type_name(value: Any) -> str:
    """A YAML value's type as a person calls it."""
    names = {
        # By exact type below, since a bool is also an int.
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "a mapping",
        type(None): "nothing",
    }
    return names.get(type(value), f"a {type(value).__name__}")
