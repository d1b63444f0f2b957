"""The fields that a provider declares, and values validated against them.

`read_fields` reads what ``get_config_schema()`` returned. `validate_values` coerces values,
fills in defaults and collects every problem.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hermes_core.errors import HermesError

# The words that YAML 1.1 reads as booleans, plus 1 and 0: a value from .env is always text.
_YES: Final = frozenset(("true", "yes", "on", "1", "y"))
_NO: Final = frozenset(("false", "no", "off", "0", "n"))
NAMES: Final = {
    "text": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "list": "a list",
}


class WrongTypeError(Exception):
    """A value is not of the type that it should have."""

    def __init__(self, kind: str) -> None:
        self.wanted = NAMES[kind]
        super().__init__(self.wanted)


def coerce(value: Any, kind: str) -> Any:
    """A value of the type: ``"10"`` is 10, ``"yes"`` is True, ``"a, b"`` is a list.

    Raises:
        WrongTypeError: It can't be meant. The error never has the value in it.
    """
    if kind == "boolean":
        return _boolean(value)
    if kind == "list":
        return _items(value)
    if kind in ("integer", "number"):
        return _number(value, kind)
    # YAML read `key: yes` as a boolean where the field is text; Python's "True" would be a
    # spelling that no plugin expects.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise WrongTypeError(kind)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower() if isinstance(value, str | int) else ""
    if text in _YES:
        return True
    if text in _NO:
        return False
    raise WrongTypeError("boolean")


def _items(value: Any) -> list[Any]:
    """A list; in a text with commas between, or as JSON."""
    # A variable can only hold text, so a list has two spellings there: JSON, or "a, b".
    if isinstance(value, str):
        if not value.lstrip().startswith("["):
            return [each.strip() for each in value.split(",") if each.strip()]
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise WrongTypeError("list") from None
    if not isinstance(value, list):
        raise WrongTypeError("list")
    return value


def _number(value: Any, kind: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise WrongTypeError(kind)
    if isinstance(value, str) and "_" in value:  # 1_000 is a number only in Python
        raise WrongTypeError(kind)
    try:
        number = float(value)
        # Via int and not via float where that is possible: a float loses digits above 2**53.
        whole = int(value) if isinstance(value, int | str) and _is_whole(value) else None
    except (ValueError, OverflowError):
        raise WrongTypeError(kind) from None
    if not isfinite(number):
        raise WrongTypeError(kind)
    if whole is not None:
        return whole
    # "10.0" is a whole number for an integer field, but stays a float for a number field.
    if number.is_integer() and (kind == "integer" or isinstance(value, int)):
        return int(number)
    if kind == "integer":
        raise WrongTypeError(kind)
    return number


def _is_whole(value: int | str) -> bool:
    return isinstance(value, int) or value.strip().lstrip("+-").isdecimal()


# hermes-agent has no fixed list of type names. These are the names that plugins use; an unknown
# name is text, since a plugin must not fail on a type that only its UI knows.
_TYPES: Final = {
    "": "text", "text": "text", "string": "text", "str": "text", "url": "text", "path": "text",
    "select": "text", "choice": "text", "password": "text", "secret": "text",
    "integer": "integer", "int": "integer", "number": "number", "float": "number",
    "boolean": "boolean", "bool": "boolean", "list": "list", "array": "list",
}  # fmt: skip
# POSIX names, so that a line of .env can set it. fullmatch, since `$` allows a newline.
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


#: Keys of ``memory.<provider>`` that the host reads itself. No field can have such a name.
HOST_KEYS: Final = frozenset({"isolation"})


class SchemaError(HermesError):
    """A provider's list of fields is malformed: a bug in the plugin."""


class Field(NamedTuple):
    """One setting of a provider."""

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
    # None: setup never asks. An empty mapping: it always asks, as `when` empty always applies.
    ask: Mapping[str, Any] | None = _NOTHING
    instead: Mapping[str, Any] = _NOTHING

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Whether the other values call for this field."""
        return _holds(self.when, values)

    def is_prompted(self, values: Mapping[str, Any]) -> bool:
        """Whether setup asks for it; a field that it does not ask for can still be set."""
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
        """The value if nobody sets it; it may depend on another field."""
        given = self.default_from
        if given and isinstance(given.get("map"), Mapping):
            derived = given["map"].get(values.get(str(given.get("field"))))
            if derived is not None:
                return derived
        return self.default


def _holds(condition: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    for key, wanted in condition.items():
        # A condition lists one value or several; several mean "one of".
        options = wanted if isinstance(wanted, list | tuple | set) else (wanted,)
        if values.get(key) not in options:
            return False
    return True


def variable_of(provider: str, key: str) -> str:
    """The environment variable of a field that names none: ``PROVIDER_KEY``."""
    return re.sub(r"\W", "_", f"{provider}_{key}", flags=re.ASCII).upper()


def read_fields(raw: object, provider: str) -> tuple[Field, ...]:
    """Read what ``get_config_schema()`` returned.

    Raises:
        SchemaError: Something is wrong with them; the error has all of it.
    """
    # A str is a Sequence of its characters.
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise SchemaError(
            f"get_config_schema() returned a {type(raw).__name__}, not a list",
            where=f"plugin {provider}",
            hint="This is a bug in the plugin. Please report it to its author.",
        )
    problems: list[str] = []
    read = (_read(entry, number, provider, problems) for number, entry in enumerate(raw, 1))
    fields = [field for field in read if field is not None]
    problems += _cross_problems(fields)
    if problems:
        raise SchemaError(
            f"its get_config_schema() is malformed: {'; '.join(problems)}",
            where=f"plugin {provider}",
            hint="This is a bug in the plugin. Please report it to its author.",
        )
    return tuple(_otherwise_last(_secret_everywhere(fields)))


def _read(entry: object, number: int, provider: str, problems: list[str]) -> Field | None:
    if not isinstance(entry, Mapping):
        problems.append(f"field {number} is a {type(entry).__name__}, not a mapping")
        return None
    key = entry.get("key")
    if not isinstance(key, str) or not key.strip():
        problems.append(f"field {number} has no key")
        return None
    if key in HOST_KEYS:
        problems.append(f"{key}: is a key of the host in the plugin's section; rename the field")
        return None
    if isinstance(entry.get("default"), list | tuple | set | Mapping):
        return None  # setup can't ask for it; the plugin reads it from elsewhere
    kind = str(entry.get("type") or "").lower()
    variable = entry.get("env_var") or variable_of(provider, key)
    if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
        problems.append(f"{key}: {variable!r} can't be an environment variable")
        variable = ""
    # A password without `secret` would be written to config.yaml and shown; types imply it.
    secret = bool(entry.get("secret")) or kind in ("password", "secret")
    field = Field(
        key,
        str(entry.get("description") or ""),
        _TYPES.get(kind, "text"),
        secret,
        bool(entry.get("required")),
        # A default secret would be shown by setup and by the JSON Schema.
        None if secret else entry.get("default"),
        tuple(_choices(entry.get("choices"))),
        str(entry.get("url") or ""),
        variable,
        _bound(entry, "minimum", key, problems),
        _bound(entry, "maximum", key, problems),
        _bound(entry, "step", key, problems),
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
        choices = tuple(coerce(each, field.type) for each in field.choices)
        field = field._replace(choices=choices)
        # Many plugins write `default: ""` for "none".
        if field.default is None or field.default == "":
            return field._replace(default=None)
        field = field._replace(default=coerce(field.default, field.type))
    except WrongTypeError as error:
        problems.append(f"{field.key}: its default or a choice is not {error.wanted}")
        return field
    if choices and field.default not in choices:
        problems.append(f"{field.key}: its default {field.default!r} is not among its choices")
    return field


def _choices(raw: Any) -> Iterator[Any]:
    """The values to choose from, whether or not they come with labels."""
    for each in raw if isinstance(raw, list | tuple) else ():
        # Three forms in use: {"value": v, "label": l}, (v, l), and v alone.
        if isinstance(each, Mapping):
            yield each.get("value")
        else:
            yield each[0] if isinstance(each, list | tuple) and each else each


def _bound(entry: Mapping[str, Any], name: str, key: str, problems: list[str]) -> float | None:
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
    """``ask``: False if setup does not ask for the field; or, like ``when``, a condition."""
    value = entry.get("ask")
    if isinstance(value, bool):
        return _NOTHING if value else None
    return _mapping(entry, "ask", key, problems)


def _cross_problems(fields: Sequence[Field]) -> Iterator[str]:
    keys = {field.key for field in fields}
    for number, field in enumerate(fields):
        same = (each for each in fields[:number] if each.key == field.key)
        # One key may be listed several times for different modes, but not twice for the same.
        if any(dict(each.when) == dict(field.when) for each in same):
            under = f" under the same condition ({field.condition})" if field.when else ""
            yield f"the key {field.key!r} is there twice{under}"
        for name, condition in (("when", field.when), ("ask", field.ask or _NOTHING)):
            for other in condition:
                if other not in keys:
                    yield f"{field.key}: its {name} names {other!r}, which is not a field"
        source = field.default_from.get("field")
        if source is not None and (not isinstance(source, str) or source not in keys):
            yield f"{field.key}: its default_from names {source!r}, which is not a field"


def _secret_everywhere(fields: Sequence[Field]) -> list[Field]:
    """The fields; what is a secret under one condition is stored as one, so it is never shown."""
    secret = {field.variable for field in fields if field.secret}
    # By variable and not by key, since a value is stored under its variable.
    return [field._replace(secret=field.variable in secret) for field in fields]


def _otherwise_last(fields: Sequence[Field]) -> Iterator[Field]:
    """The fields; of those with one key, the one without a condition takes the last place.

    It is what holds if no condition does, wherever its author put it.
    """
    by_key: dict[str, list[Field]] = {}
    for field in fields:
        by_key.setdefault(field.key, []).append(field)
    for same in by_key.values():
        # sort is stable: among the conditional ones the author's order stays.
        same.sort(key=lambda each: not each.when)
    for field in fields:
        # Each position that had this key gets the next of its fields: other keys do not move.
        yield by_key[field.key].pop(0)


def in_order(fields: Sequence[Field]) -> list[Field]:
    """The fields, each after those that decide about it, or about another of its key."""
    deciding: dict[str, set[str]] = {}
    for field in fields:
        deciding.setdefault(field.key, set()).update(_deciding(field) - {field.key})
    ordered: list[Field] = []
    left = list(fields)
    while left:
        open_keys = {field.key for field in left}
        # The first field that waits for nothing; in a circle, simply the first, since two fields
        # that depend on each other are the author's mistake and must not hang us.
        ready = (n for n, field in enumerate(left) if not deciding[field.key] & open_keys)
        ordered.append(left.pop(next(ready, 0)))
    return ordered


def _deciding(field: Field) -> set[str]:
    return {*field.when, *(field.ask or ()), *filter(None, [field.default_from.get("field")])}


def repeated_keys(fields: Sequence[Field]) -> set[str]:
    """The keys that have more than one field."""
    keys = [field.key for field in fields]
    return {key for key in keys if keys.count(key) > 1}


def when(fields: Sequence[Field], key: str) -> str:
    """When a key applies, in words."""
    return ", or ".join(field.condition for field in fields if field.key == key)


def active_fields(fields: Sequence[Field], values: Mapping[str, Any]) -> tuple[Field, ...]:
    """One field for each key: of several, the first whose condition holds.

    If none holds, the first one represents the key; it does not apply then.
    """
    chosen: dict[str, Field] = {}
    for field in fields:
        known = chosen.setdefault(field.key, field)
        if not known.applies(values) and field.applies(values):
            chosen[field.key] = field
    return tuple(chosen.values())


_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_JSON_TYPES: Final = {
    "text": "string", "integer": "integer", "number": "number", "boolean": "boolean",
    "list": "array",
}  # fmt: skip


class Value(NamedTuple):
    """A value, and where it came from."""

    value: Any
    origin: str


class FieldProblem(NamedTuple):
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
    problems: tuple[FieldProblem, ...]


def json_schema(fields: Sequence[Field]) -> dict[str, Any]:
    """The fields as JSON Schema, Draft 2020-12.

    A key that is listed more than once has its schema in a chain of conditions: the first one
    that holds counts.
    """
    by_key: dict[str, list[Field]] = {}
    for field in fields:
        by_key.setdefault(field.key, []).append(field)
    alone = [same[0] for same in by_key.values() if len(same) == 1]
    # "required" can't depend on another value by itself: if/then does that in JSON Schema.
    conditions = [
        {"if": _condition(field), "then": {"required": [field.key]}}
        for field in alone
        if field.required and field.when
    ]
    conditions += [_chain(same) for same in by_key.values() if len(same) > 1]
    return {
        "$schema": _DRAFT,
        "type": "object",
        "properties": {
            key: _property(same[0]) if len(same) == 1 else {} for key, same in by_key.items()
        },
        "required": [field.key for field in alone if field.required and not field.when],
        **({"allOf": conditions} if conditions else {}),
    }


def _condition(field: Field) -> dict[str, Any]:
    return {
        "properties": {key: {"enum": _options(value)} for key, value in field.when.items()},
        # Without this line the condition holds where the other value is missing.
        "required": list(field.when),
    }


def _chain(variants: Sequence[Field]) -> dict[str, Any]:
    """If the first one's condition holds, its schema; else the next one's, and so on."""
    if not variants:
        return {}
    first, *others = variants
    schema: dict[str, Any] = {"properties": {first.key: _property(first)}}
    if first.required:
        schema["required"] = [first.key]
    if not first.when:
        return schema
    otherwise = _chain(others)
    return {
        "if": _condition(first), "then": schema, **({"else": otherwise} if otherwise else {}),
    }  # fmt: skip


def _options(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set) else [value]


def _property(field: Field) -> dict[str, Any]:
    made: dict[str, Any] = {"type": _JSON_TYPES[field.type]}
    # "" is a string for JSON Schema, but for a person an empty value is a missing one.
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
            # Extensions of our own; "x-" keywords are ignored by validators.
            ("x-hermes-step", field.step),
            ("x-hermes-url", field.url),
            ("x-hermes-env", field.variable),
        )
        if value not in (None, "")
    }
    if field.secret:
        made |= {"writeOnly": True, "x-hermes-secret": True}
    return made


def validate_values(fields: Sequence[Field], given: Mapping[str, Value], where: str) -> Settings:
    """Coerce, fill in defaults, leave out what does not apply, and validate.

    Args:
        fields: What there is to set.
        given: What was found for some of them.
        where: What to call a field in messages: ``where.key``.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[FieldProblem] = []
    applying: dict[str, Field] = {}
    # In this order `values` already has what decides about the field, when it is looked at.
    for field in in_order(fields):
        if field.key in applying or not field.applies(values):
            continue
        applying[field.key] = field
        found = given.get(field.key)
        # Empty counts as not set: `export KEY=` is how people unset a variable for one command.
        if found is None or found.value in (None, ""):
            default = field.default_for(values)
            found = None if default is None else Value(default, "default")
        if found is None:
            continue
        try:
            values[field.key] = coerce(found.value, field.type)
            origins[field.key] = found.origin
        except WrongTypeError as error:
            problems.append(_problem(field, where, f"is not {error.wanted}", found))
    # A value of the wrong type is not in `values`, so the schema would call it missing as well.
    wrong = {problem.field for problem in problems}
    found_problems = _validated([*applying.values()], values, origins, where)
    order = {field.key: number for number, field in enumerate(fields)}
    # Back to the author's order, in which setup shows the fields.
    found_problems.sort(key=lambda each: order.get(each.field.rpartition(".")[2], 0))
    problems += [problem for problem in found_problems if problem.field not in wrong]
    return Settings(values, origins, tuple(problems))


def _validated(
    fields: Sequence[Field], values: Mapping[str, Any], origins: Mapping[str, str], where: str
) -> list[FieldProblem]:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow
    from referencing import Registry  # noqa: PLC0415

    by_key = {field.key: field for field in fields}
    # Whether they apply is known already. With an empty registry a $ref is never fetched.
    schema = json_schema([field._replace(when={}) for field in fields])
    validator = Draft202012Validator(schema, registry=Registry())
    problems = []
    for error in validator.iter_errors(dict(values)):
        missing = error.validator == "required"
        # jsonschema reports "required" on the object, with no path to the missing key.
        for key in _missing(error) if missing else [str(error.path[0])]:
            field = by_key[key]
            found = None if missing else Value(values[key], origins[key])
            problems.append(_problem(field, where, _cause(error.validator, field), found))
    # jsonschema yields one error per missing key, and each of them lists all of them.
    return list(dict.fromkeys(problems))


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


def _problem(field: Field, where: str, cause: str, found: Value | None) -> FieldProblem:
    if found is not None and not field.secret:
        cause = f"{_shown(found.value)} {cause}"
    if found is None:
        named = f"set {'' if field.secret else 'it or '}{field.variable}"
        hint = f"{named}; get one at {field.url}" if field.url else named
    else:
        # `instead` maps a value that people try to what they have to do, such as an old name.
        hint = str(field.instead.get(found.value, "")) if isinstance(found.value, str) else ""
    origin = "" if found is None or not found.origin else f"from {found.origin}"
    return FieldProblem(f"{where}.{field.key}", cause, allowed_values(field), origin, hint)


def _shown(value: Any) -> str:
    text = repr(value)
    # One line of a terminal has room for no more beside the rest of the message.
    return text if len(text) <= 60 else f"{text[:60]}..."  # noqa: PLR2004


def allowed_values(field: Field) -> str:
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
