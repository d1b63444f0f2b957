"""``plugins.lock.json``: what the host records about the enabled plugin, beside config.yaml.

`enable` and `setup` write it; nobody edits it. An entry holds the pin (owner, version and
content hash at the time of enabling) and the facts that only loading the plugin reveals.

Homes from before this file have the same entries in ``memory.pins`` of config.yaml. Readers
accept both, and an entry in the lock file wins. The first change of config.yaml, whichever
command makes it, moves the others over: see `hermes_core.config.editor`.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.config.names import normalise
from hermes_core.errors import ConfigError
from hermes_core.storage.files import replace_file

FILE_NAME: Final = "plugins.lock.json"
VERSION: Final = 1
MAX_BYTES: Final = 1_000_000
_TEXTS: Final = ("owner", "version", "hash", "provider", "registers")
_HINT: Final = "remove the file, then run: hermes-plugins enable NAME"


class Pin(NamedTuple):
    """Who owned a provider, and in which state, when a person enabled it."""

    owner: str
    version: str = ""
    hash: str = ""


class PluginFacts(NamedTuple):
    """What only loading a plugin reveals, recorded when it was enabled.

    ``provider`` is the provider's own name, where that differs from the listed one;
    ``registers`` describes what the plugin registers besides; ``env`` names the variables
    that have to be set before the plugin is imported.
    """

    provider: str = ""
    registers: str = ""
    # Known only after the import, but needed before the next one. A provider that was never
    # enabled gets variables with names of its own choice only after its import.
    env: tuple[str, ...] = ()


class LockEntry(NamedTuple):
    """One plugin of the lock file. ``name`` is spelt as it is listed."""

    name: str
    pin: Pin
    facts: PluginFacts = PluginFacts()

    def as_json(self) -> dict[str, Any]:
        """The entry without its empty values."""
        values = {**self.pin._asdict(), **self.facts._asdict(), "env": list(self.facts.env)}
        return {key: value for key, value in values.items() if value or key == "owner"}


def entry_of(name: str, values: Mapping[str, Any]) -> LockEntry:
    """The entry that a checked mapping describes, of the lock file or of config.yaml."""
    texts = {key: values.get(key) or "" for key in _TEXTS}
    names = values.get("env")
    env = tuple(each for each in names if isinstance(each, str)) if isinstance(names, list) else ()
    pin = Pin(texts["owner"], texts["version"], texts["hash"])
    return LockEntry(name, pin, PluginFacts(texts["provider"], texts["registers"], env))


def read_lock_file(home: Path) -> dict[str, LockEntry]:
    """The recorded plugins by normalised name; none without a file.

    Raises:
        ConfigError: The file is damaged. A pin that can't be read must not count as no pin.
    """
    path = home / FILE_NAME
    content = _content(path)
    if content is None:
        return {}
    import json  # noqa: PLC0415 - `list` needs it only where a plugin was enabled

    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError("is not valid JSON", where=f"{path}{line}", hint=_HINT) from None
    if problem := _problem(data):
        raise ConfigError(problem, where=str(path), hint=_HINT)
    return {
        normalise(name): entry_of(name, values) for name, values in sorted(data["plugins"].items())
    }


def write_lock_file(home: Path, entries: Mapping[str, LockEntry]) -> None:
    """Replace the file at once. The caller holds the lock of config.yaml."""
    import json  # noqa: PLC0415

    plugins = {each.name: each.as_json() for each in entries.values()}
    text = json.dumps({"version": VERSION, "plugins": plugins}, indent=2, sort_keys=True)
    replace_file(home / FILE_NAME, f"{text}\n".encode("ascii"))


def _content(path: Path) -> bytes | None:
    try:
        status = path.stat()  # before it is opened: a FIFO would block
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise ConfigError("is not a lock file of plugins", where=str(path), hint=_HINT)
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror or error}", where=str(path)) from None


def _problem(data: object) -> str:
    """What is wrong with the parsed file, or ""."""
    if not isinstance(data, dict) or not isinstance(data.get("plugins"), dict):
        return "is not a lock file of plugins"
    version = data.get("version")
    if version != VERSION:
        return f"has version {version!r}; this version of hermes-plugins reads {VERSION}"
    for name, values in data["plugins"].items():
        if not isinstance(values, dict) or not isinstance(values.get("owner"), str):
            return f"names no owner of {name!r}"
        wrong = [key for key in _TEXTS if not isinstance(values.get(key, ""), str)]
        if wrong:
            return f"{name!r}: {wrong[0]} is not a string"
    return ""
