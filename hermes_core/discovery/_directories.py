"""Directory plugins: a folder with an ``__init__.py`` and, usually, a plugin.yaml."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hermes_core.discovery._info import NO_PROVIDER, ProviderInfo
from hermes_core.discovery._records import Record, read_record
from hermes_core.discovery._sources import speaks_of_provider

_MAX_BYTES: Final = 1_000_000


def home_directories(home: Path) -> Iterator[ProviderInfo]:
    """The plugins that a person put below ``$HERMES_HOME/plugins``."""
    try:
        folders = sorted((home / "plugins").iterdir())
    except OSError:
        return
    for folder in folders:
        if not folder.name.startswith(("_", ".")) and os.path.isdir(folder):  # noqa: PTH112
            yield describe_directory(folder)


def describe_directory(folder: Path) -> ProviderInfo:
    """What is known about a directory plugin without importing it."""
    manifest, problem = read_manifest(folder)
    record = read_record(folder) or Record()
    state = "broken" if problem else "installed"
    loadable = True
    if not os.path.isfile(folder / "__init__.py"):  # noqa: PTH113 - swallows what pathlib raises
        state, problem, loadable = "broken", "has no __init__.py that can be read", False
    elif not speaks_of_provider(folder):
        state, problem = "no-provider", NO_PROVIDER  # by its text; `enable` looks for real
    return ProviderInfo(
        name=folder.name,
        source="directory",
        version=_text(manifest.get("version")),
        description=_text(manifest.get("description")),
        state=state,
        problem=problem,
        directory=folder,
        loadable=loadable,
        commit=record.commit,
        bridge=record.bridge,
    )


def manifest_of(info: ProviderInfo) -> dict[str, Any]:
    """A provider's plugin.yaml, wherever it is; {} if it has none that can be read."""
    if info.directory is not None:
        return read_manifest(info.directory)[0]
    named = [name for name in info.files if name.rpartition("/")[2] == "plugin.yaml"]
    if info.location is None or not named:
        return {}
    return read_manifest((info.location / min(named, key=len)).parent)[0]


def read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """plugin.yaml, of which every field is optional, and what is wrong with it.

    Scalars are texts, as they are written: version 1.10 is not 1.1.
    """
    path = folder / "plugin.yaml"
    if not os.path.lexists(path):
        return {}, ""
    from hermes_core.yamltext import TEXT_LOADER, YamlProblem, parse  # noqa: PLC0415

    text = ""
    try:
        text = _read(path)
        _, data = parse(text, TEXT_LOADER)
    except YamlProblem as error:
        return _plain_lines(text), f"plugin.yaml is not valid YAML: {error.what}"
    except OSError as error:
        return {}, f"plugin.yaml {error.strerror or error}"
    if isinstance(data, dict):
        return data, ""
    return {}, "plugin.yaml has no keys" if data else ""


def _plain_lines(text: str) -> dict[str, Any]:
    """What can be made out in an invalid plugin.yaml: lines that are a key and a text."""
    pairs = (line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return {key: value.strip(" \"'") for key, value in pairs if key in _TEXT_KEYS}


_TEXT_KEYS: Final = ("name", "version", "description")


def _read(path: Path) -> str:
    if not os.path.isfile(path):  # noqa: PTH113 - a pipe would never end
        raise OSError(None, "is not a regular file")
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise OSError(None, "is too large to be one")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OSError(None, "is not UTF-8 text") from error


def _text(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""
