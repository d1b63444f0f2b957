"""The fields of a provider's set-up, as its author listed them: checked, every fault named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hermes_core.errors import HermesError
from hermes_core.schema._values import NotSuch, coerced

_TYPES: Final = {
    "": "text", "text": "text", "string": "text", "str": "text", "url": "text", "path": "text",
    "select": "text", "choice": "text", "password": "text", "secret": "text",
    "integer": "integer", "int": "integer", "number": "number", "float": "number",
    "boolean": "boolean", "bool": "boolean", "list": "list", "array": "list",
}  # fmt: skip
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class SchemaError(HermesError):
    """A provider's list of fields is malformed: its author's fault."""


class Field(NamedTuple):
    """One thing to be set up."""

    key: str
    description: str = ""
    type: str = "text"
    secret: bool = False
    required: bool = False
    default: Any = None
    choices: tuple[Any, ...] = ()
    url: str = ""
    variable: str = ""
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    when: Mapping[str, Any] = _NOTHING
    default_from: Mapping[str, Any] = _NOTHING
    ask: Mapping[str, Any] | None = _NOTHING
    instead: Mapping[str, Any] = _NOTHING

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Whether the other values call for this field."""
        return _holds(self.when, values)

    def is_asked(self, values: Mapping[str, Any]) -> bool:
        """Whether set-up asks for it; what it does not ask can be set all the same."""
        return self.ask is not None and self.applies(values) and _holds(self.ask, values)

    @property
    def condition(self) -> str:
        """When it applies, in words."""
        parts = []
        for key, wanted in self.when.items():
            options = wanted if isinstance(wanted, list | tuple | set) else (wanted,)
            parts.append(f"{key} is {' or '.join(map(str, options))}")
        return " and ".join(parts)

    def default_for(self, values: Mapping[str, Any]) -> Any:
        """What it is if nobody says anything; it may follow from another field."""
        given = self.default_from
        if given and isinstance(given.get("map"), Mapping):
            derived = given["map"].get(values.get(str(given.get("field"))))
            if derived is not None:
                return derived
        return self.default


def _holds(condition: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    for key, wanted in condition.items():
        options = wanted if isinstance(wanted, list | tuple | set) else (wanted,)
        if values.get(key) not in options:
            return False
    return True


def variable_of(provider: str, key: str) -> str:
    """The environment variable of a field that names none: ``PROVIDER_KEY``."""
    return re.sub(r"\W", "_", f"{provider}_{key}", flags=re.ASCII).upper()


def read_fields(raw: object, provider: str) -> tuple[Field, ...]:
    """The fields that ``get_config_schema()`` gave.

    Raises:
        SchemaError: Something is wrong with them; the error has all of it.
    """
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise SchemaError(
            f"get_config_schema() gave a {type(raw).__name__}, not a list",
            where=f"plugin {provider}",
            hint="that is the plugin's fault: tell its author",
        )
    problems: list[str] = []
    fields: dict[str, Field] = {}
    for number, entry in enumerate(raw, 1):
        field = _read(entry, number, provider, problems)
        if field is None:
            continue
        if field.key in fields:
            problems.append(f"the key {field.key!r} is there twice")
        fields[field.key] = field
    problems += _cross_problems(fields)
    if problems:
        raise SchemaError(
            f"its get_config_schema() is malformed: {'; '.join(problems)}",
            where=f"plugin {provider}",
            hint="that is the plugin's fault: tell its author",
        )
    return tuple(fields.values())


def _read(entry: object, number: int, provider: str, problems: list[str]) -> Field | None:
    if not isinstance(entry, Mapping):
        problems.append(f"field {number} is a {type(entry).__name__}, not a mapping")
        return None
    key = entry.get("key")
    if not isinstance(key, str) or not key.strip():
        problems.append(f"field {number} has no key")
        return None
    if isinstance(entry.get("default"), list | tuple | set | Mapping):
        return None  # nothing that a person can be asked; the plugin has it from elsewhere
    kind = str(entry.get("type") or "").lower()
    variable = entry.get("env_var") or variable_of(provider, key)
    if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
        problems.append(f"{key}: {variable!r} can't be an environment variable")
        variable = ""
    secret = bool(entry.get("secret")) or kind in ("password", "secret")
    field = Field(
        key,
        str(entry.get("description") or ""),
        _TYPES.get(kind, "text"),
        secret,
        bool(entry.get("required")),
        None if secret else entry.get("default"),
        tuple(_choices(entry.get("choices"))),
        str(entry.get("url") or ""),
        variable,
        _number(entry, "minimum", key, problems),
        _number(entry, "maximum", key, problems),
        _number(entry, "step", key, problems),
        when=_mapping(entry, "when", key, problems),
        default_from=_mapping(entry, "default_from", key, problems),
        ask=_asking(entry, key, problems),
        instead=_mapping(entry, "instead", key, problems),
    )
    return _with_checked_default(field, problems)


def _with_checked_default(field: Field, problems: list[str]) -> Field:
    if field.minimum is not None and field.maximum is not None and field.minimum > field.maximum:
        problems.append(f"{field.key}: its minimum is larger than its maximum")
    try:
        choices = tuple(coerced(each, field.type) for each in field.choices)
        field = field._replace(choices=choices)
        if field.default is None or field.default == "":
            return field._replace(default=None)
        field = field._replace(default=coerced(field.default, field.type))
    except NotSuch as error:
        problems.append(f"{field.key}: its default or a choice is not {error.wanted}")
        return field
    if choices and field.default not in choices:
        problems.append(f"{field.key}: its default {field.default!r} is not among its choices")
    return field


def _choices(raw: Any) -> Iterator[Any]:
    """The values to choose from, whether or not they come with labels."""
    for each in raw if isinstance(raw, list | tuple) else ():
        if isinstance(each, Mapping):
            yield each.get("value")
        else:
            yield each[0] if isinstance(each, list | tuple) and each else each


def _number(entry: Mapping[str, Any], name: str, key: str, problems: list[str]) -> float | None:
    value = entry.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        problems.append(f"{key}: its {name} is not a number")
        return None
    return value


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # a whole number that is too large for anything
        return False


def _mapping(
    entry: Mapping[str, Any], name: str, key: str, problems: list[str]
) -> Mapping[str, Any]:
    value = entry.get(name)
    if value is None:
        return _NOTHING
    if not isinstance(value, Mapping):
        problems.append(f"{key}: its {name} is not a mapping")
        return _NOTHING
    return MappingProxyType(dict(value))


def _asking(entry: Mapping[str, Any], key: str, problems: list[str]) -> Mapping[str, Any] | None:
    """``ask``: False for what set-up does not ask; or, like ``when``, when it does."""
    value = entry.get("ask")
    if isinstance(value, bool):
        return _NOTHING if value else None
    return _mapping(entry, "ask", key, problems)


def _cross_problems(fields: Mapping[str, Field]) -> Iterator[str]:
    for field in fields.values():
        for name, condition in (("when", field.when), ("ask", field.ask or _NOTHING)):
            for other in condition:
                if other not in fields:
                    yield f"{field.key}: its {name} names {other!r}, which is no field"
        source = field.default_from.get("field")
        if source is not None and (not isinstance(source, str) or source not in fields):
            yield f"{field.key}: its default_from names {source!r}, which is no field"


def in_order(fields: Sequence[Field]) -> list[Field]:
    """The fields, each after those that decide about it."""
    ordered: list[Field] = []
    left = list(fields)
    while left:
        done = {field.key for field in ordered}
        number = next((n for n, field in enumerate(left) if _deciding(field) <= done), 0)
        ordered.append(left.pop(number))
    return ordered


def _deciding(field: Field) -> set[str]:
    return {*field.when, *(field.ask or ()), *filter(None, [field.default_from.get("field")])}
