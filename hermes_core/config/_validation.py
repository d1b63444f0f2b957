"""config.yaml against our JSON Schema, with errors that a person can act on."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing import Registry

from hermes_core.config._yaml import Document, type_name
from hermes_core.errors import ConfigError
from hermes_core.names import normalise, split_choice

_TEXT: Final = {"type": ["string", "null"]}
_SWITCH: Final = {"type": ["boolean", "null"]}
_SIZE: Final = {"type": ["integer", "null"], "minimum": 1}
_COUNT: Final = {"type": ["integer", "null"], "minimum": 0}
_SECONDS: Final = {"type": "number", "exclusiveMinimum": 0, "maximum": 3600}

#: Our keys under ``memory``. A provider can't have one of these names.
MEMORY_KEYS: Final[dict[str, Any]] = {
    "provider": _TEXT,
    "pin": {"enum": ["warn", "strict", None]},
    "pins": {
        "type": ["object", "null"],
        "additionalProperties": {
            "type": "object",
            "required": ["owner"],
            "properties": {"owner": {"type": "string"}, "version": _TEXT, "hash": _TEXT},
        },
    },
    "observers": {"type": ["array", "null"], "items": {"type": "string"}, "uniqueItems": True},
    "prefetch_budget": {"type": "number", "minimum": 0, "maximum": 600},
    "deadlines": {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": dict.fromkeys(
            ("load", "available", "initialize", "tool", "hook", "write", "shutdown"), _SECONDS
        ),
    },
    "memory_enabled": _SWITCH,
    "user_profile_enabled": _SWITCH,
    "memory_char_limit": _SIZE,
    "user_char_limit": _SIZE,
    "write_approval": {"type": ["boolean", "string", "null"]},
    "nudge_interval": _COUNT,
}

SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"memory": {"type": ["object", "null"], "properties": MEMORY_KEYS}},
}

_TYPE_NAMES: Final = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def validate(document: Document) -> tuple[str, ...]:
    """Raise one `ConfigError` with all that is wrong; give what is only worth a warning."""
    # An empty registry: a $ref is never fetched.
    validator = Draft202012Validator(SCHEMA, registry=Registry())
    found = sorted(validator.iter_errors(document.data), key=lambda each: list(map(str, each.path)))
    problems = [_explain(document, error) for error in found]
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
    if error.validator in ("minimum", "exclusiveMinimum", "maximum"):
        word = "at most" if error.validator == "maximum" else "at least"
        return f"expected {word} {allowed}, got {got}"
    if error.validator == "additionalProperties":
        schema: Any = error.schema
        known = list(schema["properties"])
        odd = sorted(set(map(str, got)) - set(known))
        return f"unknown key {', '.join(odd)}; there are {', '.join(known)}"
    return " ".join(error.message.split())


def _unknown_keys(document: Document) -> tuple[list[str], list[str]]:
    warnings: list[str] = []
    problems = [
        f"{document.where((str(key),))}: unknown key; did you mean memory?"
        for key in document.data
        if key != "memory" and get_close_matches(str(key).casefold(), ["memory"], cutoff=0.8)
    ]
    memory = document.data.get("memory")
    memory = memory if isinstance(memory, dict) else {}
    chosen = _chosen_name(memory.get("provider"))
    for key, value in memory.items():
        if key in MEMORY_KEYS or normalise(str(key)) == chosen:
            continue
        where = document.where(("memory", str(key)))
        close = get_close_matches(str(key).casefold(), MEMORY_KEYS, n=1, cutoff=0.8)
        if close:
            problems.append(f"{where}: unknown key; did you mean {close[0]}?")
        elif not isinstance(value, dict):  # a mapping is a provider's section
            warnings.append(f"{where}: unknown key, left alone")
    return problems, warnings


def _chosen_name(provider: Any) -> str:
    return normalise(split_choice(provider)[0]) if isinstance(provider, str) else ""
