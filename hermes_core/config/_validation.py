"""config.yaml against our JSON Schema, with errors that a person can act on."""

from __future__ import annotations

from difflib import get_close_matches
from math import isnan
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing import Registry

from hermes_core.config._yaml import Document, type_name
from hermes_core.errors import ConfigError
from hermes_core.names import BUILTIN, name_problem, normalise, split_choice

_LIKENESS: Final = 0.75

#: The words of hermes-agent for approval, beside true and false.
_APPROVAL: Final = ("on", "true", "yes", "1", "approve", "enabled")
_NO_APPROVAL: Final = ("off", "false", "no", "0", "disabled", "")

_TEXT: Final = {"type": ["string", "null"]}
_SWITCH: Final = {"type": ["boolean", "null"]}
_SIZE: Final = {"type": ["integer", "null"], "minimum": 1}
_COUNT: Final = {"type": ["integer", "null"], "minimum": 0}
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
    "context_max_chars": {"type": ["integer", "null"], "minimum": 0},
    "durability": {"enum": ["normal", "full", None]},
    "outbox": {
        "type": ["object", "null"],
        "properties": {"max_mb": {"type": "number", "exclusiveMinimum": 0}},
    },
    "observers": {"type": ["array", "null"], "items": {"type": "string"}, "uniqueItems": True},
    "prefetch_budget": {"type": "number", "minimum": 0, "maximum": 600},
    "deadlines": {
        "type": ["object", "null"],
        "properties": dict.fromkeys(_DEADLINES, _SECONDS),
    },
    "memory_enabled": _SWITCH,
    "user_profile_enabled": _SWITCH,
    "memory_char_limit": _SIZE,
    "user_char_limit": _SIZE,
    "write_approval": {"type": ["boolean", "string", "null"]},
    "nudge_interval": _COUNT,
}

#: The section is hermes-agent's, which names its own sources of secrets there.
_SECRETS: Final[dict[str, Any]] = {"backend": {"enum": ["auto", "keyring", "dotenv", None]}}

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


def validate(document: Document) -> tuple[str, ...]:
    """Raise one `ConfigError` with all that is wrong; give what is only worth a warning."""
    # An empty registry: a $ref is never fetched.
    validator = Draft202012Validator(SCHEMA, registry=Registry())
    found = sorted(validator.iter_errors(document.data), key=lambda each: list(map(str, each.path)))
    problems = [_explain(document, error) for error in found]
    problems += _odd_values(document)
    unknown, warnings = _unknown_keys(document)
    problems += unknown
    if problems:
        raise ConfigError("; ".join(problems), problems=tuple(problems))
    return tuple(warnings)


def _explain(document: Document, error: ValidationError) -> str:
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
        elif isinstance(got, bool) and "string" in names:
            cause += "; put it in quotes"
        return cause
    if error.validator == "enum":
        choices = ", ".join(str(choice) for choice in allowed if choice is not None)
        return f"expected one of {choices}, got {got!r}"
    if word := _BOUNDS.get(str(error.validator)):
        return f"expected {word} {allowed}, got {got}"
    return " ".join(error.message.split())


def _section(document: Document, *keys: str) -> dict[Any, Any]:
    found: Any = document.data
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _odd_values(document: Document) -> list[str]:
    """What a JSON Schema can't say."""
    memory = _section(document, "memory")
    found = []
    times = {("memory", "prefetch_budget"): memory.get("prefetch_budget")}
    for key, value in _section(document, "memory", "deadlines").items():
        times["memory", "deadlines", str(key)] = value  # type: ignore[index]
    for keys, value in times.items():
        if isinstance(value, float) and isnan(value):
            found.append(f"{document.where(keys)}: expected a number, got not-a-number")
    approval = memory.get("write_approval")
    if isinstance(approval, str) and not _is_switch(approval):
        where = document.where(("memory", "write_approval"))
        found.append(f"{where}: expected true or false, got {approval!r}")
    choice = _chosen_name(memory.get("provider"))
    if choice and choice != BUILTIN and (problem := name_problem(choice)):
        found.append(f"{document.where(('memory', 'provider'))}: {problem}")
    return found


def _is_switch(word: str) -> bool:
    return word.strip().casefold() in (*_APPROVAL, *_NO_APPROVAL)


def _unknown_keys(document: Document) -> tuple[list[str], list[str]]:
    problems: list[str] = []
    warnings: list[str] = []
    memory = _section(document, "memory")
    chosen = _chosen_name(memory.get("provider"))
    for keys, known in (
        (("memory",), tuple(_KEYS)),
        (("memory", "deadlines"), _DEADLINES),
        (("memory", "outbox"), _OUTBOX),
        (("secrets",), tuple(_SECRETS)),
        ((), ("memory", "secrets")),
    ):
        for key, value in _section(document, *keys).items():
            if key in known or (keys == ("memory",) and normalise(str(key)) == chosen):
                continue
            where = document.where((*keys, str(key)))
            close = get_close_matches(str(key).casefold(), known, n=1, cutoff=_LIKENESS)
            if close:
                problems.append(f"{where}: unknown key; did you mean {close[0]}?")
            elif known in (_DEADLINES, _OUTBOX):  # nobody else has keys there
                problems.append(f"{where}: unknown key; there are {', '.join(known)}")
            elif keys == ("secrets",):
                continue
            elif keys != ("memory",) or not isinstance(value, dict):  # else a provider's section
                warnings.append(f"{where}: unknown key, left alone")
    return problems, warnings


def _chosen_name(provider: Any) -> str:
    return normalise(split_choice(provider)[0]) if isinstance(provider, str) else ""
