"""config.yaml in tests: written, changed, and read by two parsers that are not ours."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import yaml
from ruamel.yaml import YAML

from hermes_core.config.editor import DELETE, change_config

PROVIDER = ("memory", "provider")
FIELD = ("memory", "acme", "mem0")


class ConfigFile:
    """The config.yaml of one home, byte for byte."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "config.yaml"

    def write(self, content: str | bytes) -> Path:
        self.path.write_bytes(content.encode() if isinstance(content, str) else content)
        return self.home

    @property
    def text(self) -> str:
        return self.path.read_bytes().decode()

    def change(self, changes: Mapping[tuple[str, ...], Any]) -> str:
        """Change it and give the new text."""
        change_config(self.home, changes)
        return self.text


def snapshot(folder: Path) -> dict[str, object]:
    """All that is in a folder, without the empty files that are only there to be locked."""
    return dict(_entries(folder))


def _entries(folder: Path) -> Iterator[tuple[str, object]]:
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if path.suffix == ".lock" and status.st_size == 0:
            continue
        content = path.read_bytes() if path.is_file() else None
        target = str(path.readlink()) if path.is_symlink() else ""
        yield str(path.relative_to(folder)), (status.st_mode, status.st_ino, target, content)


def by_yaml_11(text: str) -> Any:
    """What PyYAML, and with it hermes-agent, reads."""
    return _plain(yaml.load(text, yaml.SafeLoader))


def by_yaml_12(text: str) -> Any:
    """What ruamel.yaml reads, with the rules of YAML 1.2."""
    return _plain(YAML(typ="safe", pure=True).load(text))


def with_change(data: Any, keys: tuple[str, ...], value: Any) -> Any:
    """The plain data with one path changed. Written anew: it has to judge the real one."""
    data = data if isinstance(data, dict) else {}
    first, rest = _plain(keys[0]), keys[1:]
    if rest:
        below = data.get(first)
        if isinstance(below, dict) or value is not DELETE:
            return {**data, first: with_change(below, rest, value)}
        return data
    if value is DELETE:
        return {key: each for key, each in data.items() if key != first}
    return {**data, first: _plain(value)}


def _plain(value: Any) -> Any:
    """Values that compare by type too (1 is not true), and share no part with another."""
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if value is None:
        return None
    return f"{type(value).__name__} {value!r}"


def in_order(data: Any) -> Any:
    """The same with the order of keys made part of the value."""
    if isinstance(data, dict):
        return [(key, in_order(each)) for key, each in data.items()]
    return [in_order(each) for each in data] if isinstance(data, list) else data


def comments(text: str) -> list[str]:
    """The comments of a text in which each is ``# <number>``."""
    return re.findall(r"# \d+(?!\d)", text)


def run_python(
    source: str, *arguments: object, timeout: float = 30.0
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-P", "-c", dedent(source), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
