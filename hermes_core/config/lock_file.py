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
from hermes_core.storage.files import read_regular, replace_file

FILE_NAME: Final = "plugins.lock.json"
VERSION: Final = 1
MAX_BYTES: Final = 1_000_000
# The limit is for a damaged file: an entry has about 300 bytes.
_TEXTS: Final = ("owner", "version", "hash", "provider", "registers")


def _hint(path: Path) -> str:
    return f"remove {path}, then run: hermes-plugins enable NAME"


class Pin(NamedTuple):
    """Who owned a provider, and in which state, when a person enabled it."""

    owner: str
    version: str = ""
    hash: str = ""


class PluginFacts(NamedTuple):
    """What only loading a plugin reveals, recorded when it was enabled.

    ``provider`` is the provider's own name, where that differs from the listed one;
    ``registers`` describes what the plugin registers besides; ``env`` names the variables
    that its fields declare, which have to be set before the plugin is imported.
    """

    provider: str = ""
    registers: str = ""
    # Known only after an import, but needed before the next one. A provider that was never
    # enabled finds most of its variables only after its import.
    env: tuple[str, ...] = ()


class LockEntry(NamedTuple):
    """One plugin of the lock file. ``name`` is spelt as it is listed.

    ``grants`` names the variables that a person agreed to pass to the plugin although they are
    not its own. None: the entry is older than grants, see `Selection.grants`.
    """

    name: str
    pin: Pin
    facts: PluginFacts = PluginFacts()
    grants: tuple[str, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """The entry without its empty values."""
        values = {**self.pin._asdict(), **self.facts._asdict(), "env": list(self.facts.env)}
        # `owner` is required when it is read, so it is written even if it is empty.
        found = {key: value for key, value in values.items() if value or key == "owner"}
        # Written even if it is empty: an entry without the key is from before there were grants.
        return found if self.grants is None else {**found, "grants": list(self.grants)}


def entry_of(name: str, values: Mapping[str, Any]) -> LockEntry:
    """The entry that a checked mapping describes, of the lock file or of config.yaml."""
    texts = {key: values.get(key) or "" for key in _TEXTS}
    # Only facts, unlike the pin: an entry of the wrong type is dropped, not an error.
    env = _strings(values.get("env"))
    grants = _strings(values["grants"]) if "grants" in values else None
    pin = Pin(texts["owner"], texts["version"], texts["hash"])
    return LockEntry(name, pin, PluginFacts(texts["provider"], texts["registers"], env), grants)


def _strings(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


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
        raise ConfigError("is not valid JSON", where=f"{path}{line}", hint=_hint(path)) from None
    if problem := _problem(data):
        raise ConfigError(problem, where=str(path), hint=_hint(path))
    return {
        normalise(name): entry_of(name, values) for name, values in sorted(data["plugins"].items())
    }


def unreadable_file(error: ConfigError) -> str:
    """Return which of the two files of a home's configuration an error is about."""
    return FILE_NAME if FILE_NAME in error.where else "config.yaml"


def write_lock_file(home: Path, entries: Mapping[str, LockEntry]) -> None:
    """Replace the file at once. The caller holds the lock of config.yaml."""
    import json  # noqa: PLC0415

    plugins = {each.name: each.as_json() for each in entries.values()}
    # Sorted and indented: in a home under version control a change is a small diff.
    text = json.dumps({"version": VERSION, "plugins": plugins}, indent=2, sort_keys=True)
    replace_file(home / FILE_NAME, f"{text}\n".encode("ascii"))


def _content(path: Path) -> bytes | None:
    try:
        status = path.stat()  # before it is opened: a FIFO would block
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            what = "is not a lock file of plugins"
            raise ConfigError(what, where=str(path), hint=_hint(path))
        return read_regular(path, MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = f"can't be read: {error.strerror or error}"
        raise ConfigError(what, where=str(path), hint="check its permissions") from None


def _problem(data: object) -> str:
    """What is wrong with the parsed file, or ""."""
    if not isinstance(data, dict) or not isinstance(data.get("plugins"), dict):
        return "is not a lock file of plugins"
    version = data.get("version")
    # A newer version may have a pin that this one would not check: refuse, do not guess.
    if version != VERSION:
        return f"has version {version!r}; this version of hermes-plugins reads {VERSION}"
    for name, values in data["plugins"].items():
        if not isinstance(values, dict) or not isinstance(values.get("owner"), str):
            return f"names no owner of {name!r}"
        wrong = [key for key in _TEXTS if not isinstance(values.get(key, ""), str)]
        if wrong:
            return f"{name!r}: {wrong[0]} is not a string"
    return ""
