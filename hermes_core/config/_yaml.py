"""config.yaml as text and as YAML, with the line of every key.

Values mean what YAML 1.1 says (``yes`` is true), since that is how hermes-agent, which
shares the file, reads them.
"""

from __future__ import annotations

import stat
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from hermes_core.errors import ConfigError, one_line
from hermes_core.yamltext import YamlProblem, nodes, parse

FILE_NAME: Final = "config.yaml"
MAX_BYTES: Final = 1_000_000

_MARK: Final = "\ufeff"
_STRING: Final = "tag:yaml.org,2002:str"


class Document(NamedTuple):
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


def read_document(home: Path) -> Document:
    """Parse config.yaml. A missing file is an empty one; everything else is an error."""
    path = home / FILE_NAME
    return parse_document(path, _read_text(path))


def parse_document(path: Path, text: str) -> Document:
    """Parse the text of a config.yaml."""
    mark = _MARK if text.startswith(_MARK) else ""
    text = text.removeprefix(_MARK)
    try:
        _, data = parse(text)
    except YamlProblem as error:
        line = f"{path.name}:{error.line}" if error.line else str(path)
        raise ConfigError(f"is not valid YAML: {error.what}", where=line) from error
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(
            f"expected keys and values, got {type_name(data)}", where=f"{path.name}:1"
        )
    return Document(path, text, data, mark)


def _read_text(path: Path) -> str:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise ConfigError(f"is {kind}", where=str(path), hint="move it away")
        if status.st_size > MAX_BYTES:
            raise ConfigError(
                f"has {status.st_size:,} bytes, more than any configuration needs",
                where=str(path),
                hint=f"at most {MAX_BYTES:,} are read",
            )
        content = path.read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror or error}", where=str(path)) from error
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
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "a mapping",
        type(None): "nothing",
    }
    return names.get(type(value), f"a {type(value).__name__}")
