"""What config.yaml says: the selection that `list` needs, and the whole file, validated."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hermes_core.config.document import YamlDocument, read_document, read_text, type_name
from hermes_core.config.lock_file import LockEntry, Pin, PluginFacts, entry_of, read_lock_file
from hermes_core.config.names import name_problem, nearest, normalise, split_choice
from hermes_core.errors import ConfigError
from hermes_core.provider import BUILTIN
from hermes_core.storage.address import address_problem, namespace_problem

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
# Where versions before the lock file wrote the pins; still read, moved on the next change.
_PINS: Final = ("memory", "pins")
#: The value of ``memory.storage`` for files and SQLite in the home.
FILES: Final = "files"

#: The values of ``memory.<provider>.isolation``, a key of the host in the provider's section.
ISOLATIONS: Final = ("none", "process")


def isolation_problem(value: object) -> str:
    """What is wrong with a value of ``isolation``."""
    return f"expected one of {', '.join(ISOLATIONS)}, got {value!r}"


class Selection(NamedTuple):
    """Which external provider a person chose. ``name`` is "" for none.

    ``grants`` has the variables that a person agreed to pass to a plugin. None stands for an
    entry from before there were grants: what it recorded counts as granted, and ``<NAME>_*``
    too, so that the home keeps working. The next `enable` or `setup` records it as grants.
    ``isolation`` is what each provider's section says about it.
    """

    name: str = ""
    owner: str = ""
    pins: Mapping[str, Pin] = _EMPTY
    strict: bool = False
    facts: Mapping[str, PluginFacts] = _EMPTY
    grants: Mapping[str, tuple[str, ...] | None] = _EMPTY
    isolation: Mapping[str, Any] = _EMPTY

    @property
    def choice(self) -> str:
        """As it is written: name, or name@owner."""
        return f"{self.name}@{self.owner}" if self.owner else self.name

    @property
    def pin(self) -> Pin | None:
        """The chosen provider's pin."""
        return self.pins.get(normalise(self.name))

    def is_isolated(self, *names: str) -> bool:
        """Whether the provider of that name, or of these names, runs in its own process.

        Raises:
            ConfigError: Its section says something else. A plugin that a person does not trust
                must not run in the agent's process because of a typing mistake.
        """
        found = (self.isolation.get(normalise(name)) for name in names)
        value = next((each for each in found if each is not None), None)
        if value not in (None, *ISOLATIONS):
            where = f"config.yaml: memory.{names[0]}.isolation"
            todo = f"run: hermes-plugins config set memory.{names[0]}.isolation process"
            raise ConfigError(isolation_problem(value), where=where, hint=todo)
        return bool(value == "process")

    @property
    def strict_hash(self) -> str:
        """The hash that the chosen provider must have to be loaded; "" if any will do."""
        return self.pin.hash if self.strict and self.pin is not None else ""


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
        """Whether secrets are redacted from what is sent to an external provider."""
        return self.memory.get("redact") is not False

    @property
    def durable(self) -> bool:
        """Whether what is stored is to survive a power cut, not only a crash."""
        return self.memory.get("durability") == "full"

    @property
    def storage(self) -> str:
        """The address of the database that has everything the home stores; "" for files."""
        return storage_of(self.memory)

    @property
    def storage_namespace(self) -> str:
        """The home's name in that database: as configured, else its profile, else "default"."""
        return namespace_of(self.memory, self.home)

    @property
    def outbox_max_mb(self) -> float | None:
        """How large the outbox may grow, if configured."""
        return (self.memory.get("outbox") or {}).get("max_mb")

    @property
    def context_max_chars(self) -> int | None:
        """How much recalled text a turn may have, if configured."""
        return self.memory.get("context_max_chars")

    @property
    def deadlines(self) -> Mapping[str, float]:
        """The deadlines that differ from ours, by field name of `Deadlines`."""
        own = dict(self.memory.get("deadlines") or {})
        # The one deadline that people tune, so it is a key directly below ``memory`` and has no
        # second spelling below ``deadlines``.
        if "prefetch_budget" in self.memory:
            own["prefetch"] = self.memory["prefetch_budget"]
        return own


def storage_of(memory: Mapping[str, Any]) -> str:
    """The address of a database that ``memory.storage`` names; "" for files."""
    address = memory.get("storage") or FILES
    return "" if address == FILES else str(address)


def namespace_of(memory: Mapping[str, Any], home: Path) -> str:
    """The name of a home in a database that has many."""
    # hermes-agent keeps the home of a profile in `<root>/profiles/<name>`.
    profile = home.name if home.parent.name == "profiles" else ""
    given = memory.get("storage_namespace") or profile or "default"
    return str(given)


def read_selection(home: Path) -> Selection:
    """Read only the selection, with plain type checks: `list` must not load a validator."""
    return _selection(*_read(home))


def load_config(home: Path, *, plugins: bool = True) -> Config:
    """Read and validate config.yaml.

    Args:
        home: The Hermes home.
        plugins: Whether to read plugins.lock.json, too. What uses no plugin needs no pins, and
            works while that file is damaged.

    Raises:
        ConfigError: Has every problem, each with its line.
    """
    document, recorded = _read(home) if plugins else (read_document(home), {})
    warnings = validate(document)
    # `or {}`: "memory:" without a value is null in YAML, and the schema allows that.
    memory = document.data.get("memory") or {}
    secrets = document.data.get("secrets") or {}
    return Config(
        home,
        _selection(document, recorded),
        MappingProxyType(memory),
        warnings,
        secrets_backend=secrets.get("backend") or "auto",
    )


def _read(home: Path) -> tuple[YamlDocument, dict[str, LockEntry]]:
    """config.yaml and the lock file of one moment.

    `enable` replaces the two one after the other. The lock file is read last, since a pin is
    in it before it leaves config.yaml; and both again if config.yaml changed meanwhile, also if
    there is no lock file: `disable` may just have emptied it.
    """
    document = read_document(home)
    recorded = read_lock_file(home)
    # Compares text, not mtime: two changes within the clock's resolution have the same mtime.
    while read_text(document.path) != document.mark + document.text:
        document = read_document(home)
        recorded = read_lock_file(home)
    return document, recorded


def _selection(document: YamlDocument, recorded: Mapping[str, LockEntry]) -> Selection:
    memory = _expect(document, ("memory",), document.data.get("memory"), dict, "a mapping") or {}
    choice = provider_choice(document, memory.get("provider"))
    name, owner = split_choice(choice)
    # The lock file wins over memory.pins, which `change_plugins` may fail to remove.
    entries = {**pins_in(document), **recorded}
    # The built-in is always active, so naming it means: no external provider.
    if normalise(name) == BUILTIN:
        name = owner = ""
    # Either name selects a provider whose own name differs; the listed one is used.
    if name and normalise(name) not in entries:
        wanted = normalise(name)
        listed = [
            each.name for each in entries.values() if normalise(each.facts.provider) == wanted
        ]
        # Two plugins that call themselves the same can't be told apart here; `find_provider`
        # reports the conflict later.
        name = listed[0] if len(listed) == 1 else name
    return Selection(
        name,
        owner,
        MappingProxyType({key: each.pin for key, each in entries.items()}),
        memory.get("pin") == "strict",
        MappingProxyType({key: each.facts for key, each in entries.items()}),
        MappingProxyType({key: each.grants for key, each in entries.items()}),
        MappingProxyType(
            {
                normalise(str(key)): section["isolation"]
                for key, section in memory.items()
                if isinstance(section, dict) and "isolation" in section
            }
        ),
    )


def pins_in(document: YamlDocument) -> dict[str, LockEntry]:
    """The entries that older versions wrote to ``memory.pins``, by normalised name."""
    memory = _expect(document, ("memory",), document.data.get("memory"), dict, "a mapping") or {}
    section = _expect(document, _PINS, memory.get("pins"), dict, "a mapping") or {}
    found = {}
    for key, value in section.items():
        path = (*_PINS, str(key))
        values = _expect(document, path, value, dict, "a mapping") or {}
        for name in ("owner", "version", "hash", "provider", "registers"):
            _expect(document, (*path, name), values.get(name), str, "a string")
        found[normalise(str(key))] = entry_of(str(key), values)
    return found


def provider_choice(document: YamlDocument, value: Any) -> str:
    """``memory.provider``: a string, or nothing."""
    keys = ("memory", "provider")
    # Its own message, since a list is what people try to activate two providers.
    if isinstance(value, list):
        raise ConfigError(
            "expected a string, got a list; only one external provider can be active",
            where=document.where(keys),
            hint=f"name one of them in {document.path}",
        )
    choice: str = _expect(document, keys, value, str, "a string") or ""
    return choice.strip()


def _expect(
    document: YamlDocument, keys: tuple[str, ...], value: Any, kind: type, name: str
) -> Any:
    if value is None or isinstance(value, kind):
        return value
    what = f"expected {name}, got {type_name(value)}"
    raise ConfigError(what, where=document.where(keys), hint=f"correct {document.path}")


# The least difflib ratio for "did you mean". One typo in a key of ours is about 0.9; unrelated
# keys of hermes-agent must stay below, because a match is an error.
_LIKENESS: Final = 0.75

#: The words of hermes-agent for approval, beside true and false.
_APPROVAL: Final = ("on", "true", "yes", "1", "approve", "enabled")
_NO_APPROVAL: Final = ("off", "false", "no", "0", "disabled", "")

# The examples are for the hint of `config set`.
_TEXT: Final = {"type": ["string", "null"]}
_SWITCH: Final = {"type": ["boolean", "null"], "examples": ["true"]}
_SIZE: Final = {"type": ["integer", "null"], "minimum": 1, "examples": ["2200"]}
_COUNT: Final = {"type": ["integer", "null"], "minimum": 0, "examples": ["10"]}
# An hour is the limit: with more, a hanging provider would hang the agent as well.
_SECONDS: Final = {"type": "number", "exclusiveMinimum": 0, "maximum": 3600}

_OUTBOX: Final = ("max_mb",)
_DEADLINES: Final = ("load", "available", "initialize", "tool", "hook", "write", "shutdown")

_KEYS: Final[dict[str, Any]] = {
    "provider": _TEXT,
    "pin": {"enum": ["warn", "strict", None]},
    "pins": {
        "type": ["object", "null"],
        "additionalProperties": {
            "type": "object",
            "required": ["owner"],
            "properties": {
                "owner": {"type": "string"},
                **dict.fromkeys(("version", "hash", "provider", "registers"), _TEXT),
            },
        },
    },
    "redact": _SWITCH,
    "context_max_chars": {"type": ["integer", "null"], "minimum": 0, "examples": ["20000"]},
    "durability": {"enum": ["normal", "full", None]},
    "outbox": {
        "type": ["object", "null"],
        "properties": {"max_mb": {"type": "number", "exclusiveMinimum": 0}},
    },
    "observers": {
        "type": ["array", "null"],
        "items": {"type": "string"},
        "uniqueItems": True,
        "examples": ["'[NAME]'"],
    },
    # 0 means: do not wait, use only recalled text that is ready.
    "prefetch_budget": {"type": "number", "minimum": 0, "maximum": 600, "examples": ["2"]},
    "deadlines": {
        "type": ["object", "null"],
        "properties": dict.fromkeys(_DEADLINES, _SECONDS),
    },
    "memory_enabled": _SWITCH,
    "user_profile_enabled": _SWITCH,
    "memory_char_limit": _SIZE,
    "user_char_limit": _SIZE,
    # A string too: quoted words that YAML would not read as a boolean. `_odd_values` checks them.
    "write_approval": {"type": ["boolean", "string", "null"], "examples": ["true"]},
    "nudge_interval": _COUNT,
    "user_notes": {"enum": ["shared", "per-user", None]},
    # `_odd_values` checks it.
    "storage": {**_TEXT, "examples": ["postgresql://USER@HOST/DATABASE"]},
    "storage_namespace": _TEXT,
    "external_notes": {"enum": ["ask", "allow", "refuse", None]},
}

#: The section is hermes-agent's, which names its own sources of secrets there.
_SECRETS: Final[dict[str, Any]] = {"backend": {"enum": ["auto", "keyring", "dotenv", None]}}

# No "additionalProperties": false anywhere. hermes-agent shares the file and providers have
# sections in it, so `_unknown_keys` decides by name which unknown keys are errors.
SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "memory": {"type": ["object", "null"], "properties": _KEYS},
        "secrets": {"type": ["object", "null"], "properties": _SECRETS},
    },
}

_TYPE_NAMES: Final = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


_BOUNDS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
}


def validate(document: YamlDocument) -> tuple[str, ...]:
    """Raise one `ConfigError` with every problem; return the warnings."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow; `list` does not need it
    from referencing import Registry  # noqa: PLC0415

    # With an empty registry a $ref is never fetched over the network.
    validator = Draft202012Validator(SCHEMA, registry=Registry())
    # jsonschema's order depends on the schema; sorted, the messages are the same in every run.
    found = sorted(validator.iter_errors(document.data), key=lambda each: list(map(str, each.path)))
    problems = [_explain(document, error) for error in found]
    problems += _odd_values(document)
    unknown, warnings = _unknown_keys(document)
    problems += unknown
    if problems:
        todo = f"correct {document.path}"
        raise ConfigError("; ".join(problems), problems=tuple(problems), hint=todo)
    return tuple(warnings)


def example_of(keys: tuple[str, ...], value: object) -> str:
    """Return a valid value of a setting, the one that is most like ``value``; "" if unknown."""
    section: Any = SCHEMA
    for key in keys:
        section = section.get("properties", {}).get(key, {})
    if "enum" in section:
        choices = [each for each in section["enum"] if each is not None]
        return (nearest(str(value), choices) or choices)[0]
    return str(section.get("examples", [""])[0])


def _explain(document: YamlDocument, error: ValidationError) -> str:
    keys = tuple(str(part) for part in error.absolute_path)
    return f"{document.where(keys)}: {_cause(keys, error)}"


def _cause(keys: tuple[str, ...], error: ValidationError) -> str:
    allowed: Any = error.validator_value
    got: Any = error.instance
    if error.validator == "type":
        names = [allowed] if isinstance(allowed, str) else [n for n in allowed if n != "null"]
        expected = " or ".join(_TYPE_NAMES[name] for name in names)
        cause = f"expected {expected}, got {type_name(got)}"
        if keys == ("memory", "provider") and isinstance(got, list):
            cause += "; only one external provider can be active"
        # YAML 1.1 reads on, off, yes and no as booleans.
        elif isinstance(got, bool) and "string" in names:
            cause += "; put it in quotes"
        return cause
    if error.validator == "enum":
        choices = ", ".join(str(choice) for choice in allowed if choice is not None)
        return f"expected one of {choices}, got {got!r}"
    if word := _BOUNDS.get(str(error.validator)):
        return f"expected {word} {allowed}, got {got}"
    return " ".join(error.message.split())


def _section(document: YamlDocument, *keys: str) -> dict[Any, Any]:
    found: Any = document.data
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _odd_values(document: YamlDocument) -> list[str]:
    """What a JSON Schema can't say."""
    memory = _section(document, "memory")
    found = []
    times = {("memory", "prefetch_budget"): memory.get("prefetch_budget")}
    for key, value in _section(document, "memory", "deadlines").items():
        times["memory", "deadlines", str(key)] = value  # type: ignore[index]
    for keys, value in times.items():
        # .nan passes every bound of a JSON Schema, since no comparison with it is true.
        if isinstance(value, float) and isnan(value):
            found.append(f"{document.where(keys)}: expected a number, got not-a-number")
    approval = memory.get("write_approval")
    if isinstance(approval, str) and not _is_switch(approval):
        where = document.where(("memory", "write_approval"))
        found.append(f"{where}: expected true or false, got {approval!r}")
    found += _odd_storage(document, memory)
    choice = _chosen_name(memory.get("provider"))
    for key, section in memory.items():
        if normalise(str(key)) == choice and isinstance(section, dict):
            value = section.get("isolation")
            if value not in (None, *ISOLATIONS):
                where = document.where(("memory", str(key), "isolation"))
                found.append(f"{where}: {isolation_problem(value)}")
    if choice and choice != BUILTIN and (problem := name_problem(choice)):
        found.append(f"{document.where(('memory', 'provider'))}: {problem}")
    return found


def _odd_storage(document: YamlDocument, memory: Mapping[str, Any]) -> list[str]:
    checks = {"storage": address_problem, "storage_namespace": namespace_problem}
    problems = {
        key: problem
        for key, check in checks.items()
        if isinstance(value := memory.get(key), str)
        and (key, value) != ("storage", FILES)
        and (problem := check(value))
    }
    return [f"{document.where(('memory', key))}: {each}" for key, each in problems.items()]


def _is_switch(word: str) -> bool:
    return word.strip().casefold() in (*_APPROVAL, *_NO_APPROVAL)


def _unknown_keys(document: YamlDocument) -> tuple[list[str], list[str]]:
    from difflib import get_close_matches  # noqa: PLC0415 - slow; `list` does not need it

    problems: list[str] = []
    warnings: list[str] = []
    memory = _section(document, "memory")
    chosen = _chosen_name(memory.get("provider"))
    # The empty path, the top level, is last: a typo in "memory" is reported after those inside.
    for keys, known in (
        (("memory",), tuple(_KEYS)),
        (("memory", "deadlines"), _DEADLINES),
        (("memory", "outbox"), _OUTBOX),
        (("secrets",), tuple(_SECRETS)),
        ((), ("memory", "secrets")),
    ):
        for key, value in _section(document, *keys).items():
            # The chosen provider's section may have any name, also one that is near a key of ours.
            if key in known or (keys == ("memory",) and normalise(str(key)) == chosen):
                continue
            where = document.where((*keys, str(key)))
            close = get_close_matches(str(key).casefold(), known, n=1, cutoff=_LIKENESS)
            # An error and not a warning: a mistyped `redact: false` would silently leave the
            # default.
            if close:
                problems.append(f"{where}: unknown key; did you mean {close[0]}?")
            elif known in (_DEADLINES, _OUTBOX):  # no provider or host has keys there
                problems.append(f"{where}: unknown key; there are {', '.join(known)}")
            # hermes-agent configures its own sources of secrets in this section.
            elif keys == ("secrets",):
                continue
            elif keys != ("memory",) or not isinstance(value, dict):  # else a provider's section
                # Only a warning: hermes-agent has a dozen keys that we do not know.
                warnings.append(f"{where}: unknown key, left alone")
    return problems, warnings


def _chosen_name(provider: Any) -> str:
    return normalise(split_choice(provider)[0]) if isinstance(provider, str) else ""
