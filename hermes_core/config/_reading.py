"""What config.yaml says: the part that `list` needs, and all of it, validated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hermes_core.config._yaml import Document, read_document, type_name
from hermes_core.errors import ConfigError
from hermes_core.names import BUILTIN, normalise, split_choice

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class Pin(NamedTuple):
    """Who owned a provider, and in which state, when a person enabled it."""

    owner: str
    version: str = ""
    hash: str = ""


class Learnt(NamedTuple):
    """What only loading a plugin tells, kept beside its pin.

    ``provider`` is what the provider calls itself, where that is another name; ``registers``
    what the plugin registers besides, in words.
    """

    provider: str = ""
    registers: str = ""


class Selection(NamedTuple):
    """Which external provider a person chose. ``name`` is "" for none."""

    name: str = ""
    owner: str = ""
    pins: Mapping[str, Pin] = _EMPTY
    strict: bool = False
    learnt: Mapping[str, Learnt] = _EMPTY

    @property
    def choice(self) -> str:
        """As it is written: name, or name@owner."""
        return f"{self.name}@{self.owner}" if self.owner else self.name

    @property
    def pin(self) -> Pin | None:
        """The chosen provider's pin."""
        return self.pins.get(normalise(self.name))


class Config(NamedTuple):
    """A validated config.yaml. ``memory`` has our keys and the providers' sections."""

    home: Path
    selection: Selection = Selection()
    memory: Mapping[str, Any] = _EMPTY
    warnings: tuple[str, ...] = ()
    secrets_backend: str = "auto"

    @property
    def path(self) -> Path:
        """Where it was read from."""
        return self.home / "config.yaml"

    @property
    def own_warnings(self) -> tuple[str, ...]:
        """Those about ``memory``; hermes-agent has a dozen keys beside it."""
        return tuple(each for each in self.warnings if ": memory." in each)

    @property
    def observers(self) -> tuple[str, ...]:
        """The observers that a person named."""
        return tuple(self.memory.get("observers") or ())

    @property
    def redacts(self) -> bool:
        """Whether secrets are taken out of what an external provider gets."""
        return self.memory.get("redact") is not False

    @property
    def durable(self) -> bool:
        """Whether what is stored is to survive a power cut, not only a crash."""
        return self.memory.get("durability") == "full"

    @property
    def outbox_max_mb(self) -> float | None:
        """How large the outbox may grow, if a person said so."""
        return (self.memory.get("outbox") or {}).get("max_mb")

    @property
    def context_max_chars(self) -> int | None:
        """How much recalled text a turn may have, if a person said so."""
        return self.memory.get("context_max_chars")

    @property
    def deadlines(self) -> Mapping[str, float]:
        """The deadlines that differ from ours, by field name of `Deadlines`."""
        own = dict(self.memory.get("deadlines") or {})
        if "prefetch_budget" in self.memory:
            own["prefetch"] = self.memory["prefetch_budget"]
        return own


def read_selection(home: Path) -> Selection:
    """The selection alone, with a plain type check: listing must not load a validator."""
    return _selection(read_document(home))


def load_config(home: Path) -> Config:
    """All of config.yaml, validated; every problem is named, each with its line."""
    from hermes_core.config._validation import validate  # noqa: PLC0415 - jsonschema is slow

    document = read_document(home)
    warnings = validate(document)
    memory = document.data.get("memory") or {}
    secrets = document.data.get("secrets") or {}
    return Config(
        home,
        _selection(document),
        MappingProxyType(memory),
        warnings,
        secrets_backend=secrets.get("backend") or "auto",
    )


def _selection(document: Document) -> Selection:
    memory = _expect(document, ("memory",), document.data.get("memory"), dict, "a mapping") or {}
    choice = provider_choice(document, memory.get("provider"))
    name, owner = split_choice(choice)
    section = _expect(document, ("memory", "pins"), memory.get("pins"), dict, "a mapping") or {}
    pins = {normalise(str(key)): _pin(document, str(key), value) for key, value in section.items()}
    learnt = {
        normalise(str(key)): Learnt(**_texts(document, str(key), value, Learnt._fields))
        for key, value in section.items()
    }
    if normalise(name) == BUILTIN:
        name = owner = ""
    # Either name selects a provider that calls itself otherwise; one of them is used.
    if name and normalise(name) not in pins:
        listed = [str(key) for key in section if _calls_itself(learnt[normalise(str(key))], name)]
        name = listed[0] if len(listed) == 1 else name
    strict = memory.get("pin") == "strict"
    return Selection(name, owner, MappingProxyType(pins), strict, MappingProxyType(learnt))


def _calls_itself(learnt: Learnt, name: str) -> bool:
    return bool(learnt.provider) and normalise(learnt.provider) == normalise(name)


def provider_choice(document: Document, value: Any) -> str:
    """``memory.provider``: a string, or nothing."""
    keys = ("memory", "provider")
    if isinstance(value, list):
        raise ConfigError(
            "expected a string, got a list; only one external provider can be active",
            where=document.where(keys),
        )
    choice: str = _expect(document, keys, value, str, "a string") or ""
    return choice.strip()


def _pin(document: Document, key: str, value: Any) -> Pin:
    return Pin(**_texts(document, key, value, Pin._fields))


def _texts(document: Document, key: str, value: Any, names: tuple[str, ...]) -> dict[str, str]:
    """Some of the texts that a pin has."""
    keys = ("memory", "pins", key)
    entry = _expect(document, keys, value, dict, "a mapping") or {}
    return {
        name: _expect(document, (*keys, name), entry.get(name), str, "a string") or ""
        for name in names
    }


def _expect(document: Document, keys: tuple[str, ...], value: Any, kind: type, name: str) -> Any:
    if value is None or isinstance(value, kind):
        return value
    raise ConfigError(f"expected {name}, got {type_name(value)}", where=document.where(keys))
