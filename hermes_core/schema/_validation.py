"""A provider's fields as JSON Schema, and values against it: all problems at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hermes_core.schema._fields import Field, in_order
from hermes_core.schema._values import NAMES, NotSuch, coerced

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_JSON_TYPES: Final = {
    "text": "string", "integer": "integer", "number": "number", "boolean": "boolean",
    "list": "array",
}  # fmt: skip


class Value(NamedTuple):
    """A value, and where it came from."""

    value: Any
    origin: str


class Problem(NamedTuple):
    """What is wrong with a field: never with the value of a secret in it."""

    field: str
    cause: str
    allowed: str = ""
    origin: str = ""
    hint: str = ""

    def __str__(self) -> str:
        details = "; ".join(filter(None, (self.allowed, self.origin, self.hint)))
        return f"{self.field}: {self.cause}{f' ({details})' if details else ''}"


class Settings(NamedTuple):
    """Values that are ready for a provider, where they came from, and what is wrong."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    problems: tuple[Problem, ...]


def json_schema(fields: Sequence[Field]) -> dict[str, Any]:
    """The fields as JSON Schema, Draft 2020-12."""
    conditions = [
        {
            "if": {
                "properties": {key: {"enum": _options(value)} for key, value in field.when.items()},
                "required": list(field.when),
            },
            "then": {"required": [field.key]},
        }
        for field in fields
        if field.required and field.when
    ]
    return {
        "$schema": _DRAFT,
        "type": "object",
        "properties": {field.key: _property(field) for field in fields},
        "required": [field.key for field in fields if field.required and not field.when],
        **({"allOf": conditions} if conditions else {}),
    }


def _options(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set) else [value]


def _property(field: Field) -> dict[str, Any]:
    made: dict[str, Any] = {"type": _JSON_TYPES[field.type]}
    if field.required and field.type == "text":
        made["minLength"] = 1
    if field.choices:
        made["enum"] = list(field.choices)
    made |= {
        key: value
        for key, value in (
            ("description", field.description),
            ("default", field.default),
            ("minimum", field.minimum),
            ("maximum", field.maximum),
            ("x-hermes-step", field.step),
            ("x-hermes-url", field.url),
            ("x-hermes-env", field.variable),
        )
        if value not in (None, "")
    }
    if field.secret:
        made |= {"writeOnly": True, "x-hermes-secret": True}
    return made


def settle(fields: Sequence[Field], given: Mapping[str, Value], where: str) -> Settings:
    """Coerce, fill in defaults, leave out what does not apply, and validate.

    Args:
        fields: What there is to set.
        given: What was found for some of them.
        where: What to call a field in messages: ``where.key``.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[Problem] = []
    for field in in_order(fields):
        if not field.applies(values):
            continue
        found = given.get(field.key)
        if found is None or found.value in (None, ""):
            default = field.default_for(values)
            found = None if default is None else Value(default, "default")
        if found is None:
            continue
        try:
            values[field.key] = coerced(found.value, field.type)
            origins[field.key] = found.origin
        except NotSuch as error:
            problems.append(_problem(field, where, f"is not {error.wanted}", found))
    wrong = {problem.field for problem in problems}
    found_problems = _validated(fields, values, origins, where)
    problems += [problem for problem in found_problems if problem.field not in wrong]
    return Settings(values, origins, tuple(problems))


def _validated(
    fields: Sequence[Field], values: Mapping[str, Any], origins: Mapping[str, str], where: str
) -> list[Problem]:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow
    from referencing import Registry  # noqa: PLC0415

    by_key = {field.key: field for field in fields}
    # An empty registry: a $ref is never fetched.
    validator = Draft202012Validator(json_schema(fields), registry=Registry())
    problems = []
    for error in validator.iter_errors(dict(values)):
        missing = error.validator == "required"
        for key in _missing(error) if missing else [str(error.path[0])]:
            field = by_key[key]
            if missing and not field.applies(values):
                continue
            found = None if missing else Value(values[key], origins[key])
            problems.append(_problem(field, where, _cause(error.validator, field), found))
    order = {field.key: number for number, field in enumerate(fields)}
    unique = dict.fromkeys(problems)
    return sorted(unique, key=lambda each: order.get(each.field.rpartition(".")[2], 0))


def _missing(error: Any) -> list[str]:
    return [key for key in error.validator_value if key not in error.instance]


def _cause(validator: object, field: Field) -> str:
    return {
        "required": "is missing",
        "minLength": "is empty",
        "enum": "is not one of the choices",
        "minimum": "is too small",
        "maximum": "is too large",
    }.get(str(validator), f"is not {NAMES[field.type]}")


def _problem(field: Field, where: str, cause: str, found: Value | None) -> Problem:
    if found is not None and not field.secret:
        cause = f"{_shown(found.value)} {cause}"
    if found is None:
        named = f"set {'' if field.secret else 'it or '}{field.variable}"
        hint = f"{named}; get one at {field.url}" if field.url else named
    else:
        hint = str(field.instead.get(found.value, "")) if isinstance(found.value, str) else ""
    origin = "" if found is None or not found.origin else f"from {found.origin}"
    return Problem(f"{where}.{field.key}", cause, allowed(field), origin, hint)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."  # noqa: PLR2004


def allowed(field: Field) -> str:
    """What a field may be, in words."""
    if field.choices:
        return f"one of {', '.join(map(str, field.choices))}"
    bounds = []
    if field.minimum is not None:
        bounds.append(f"at least {field.minimum:g}")
    if field.maximum is not None:
        bounds.append(f"at most {field.maximum:g}")
    kind = "" if field.type == "text" else NAMES[field.type]
    return ", ".join(filter(None, (kind, *bounds)))
