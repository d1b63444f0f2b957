"""The tools of a plugin, and what a model would send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hermes_core.conformance._driver import Driver
from hermes_core.tools import ToolError, normalise_schema

_GOOD: Final[Mapping[str, Any]] = {
    "string": "parrot", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {},
}  # fmt: skip


def sound_schemas(driver: Driver) -> list[dict[str, Any]]:
    """The sound ones of its tools, in their bare form."""
    found = []
    for schema in driver.ask("get_tool_schemas").value or ():
        try:
            found.append(normalise_schema(schema))
        except ToolError:
            continue
    return found


def sample_arguments(schema: dict[str, Any], *, required_only: bool = False) -> dict[str, Any]:
    """Arguments that a model would send."""
    parameters = schema["parameters"]
    wanted = parameters.get("required") or () if required_only else parameters.get("properties")
    properties = parameters.get("properties") or {}
    return {name: _value(properties.get(name, {})) for name in wanted or ()}


def _value(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return "parrot"
    given = [schema[key] for key in ("const", "default") if key in schema]
    given += list(schema.get("enum") or ())[:1]
    if given:
        return given[0]
    kinds = schema.get("anyOf") or schema.get("oneOf")
    return _value(kinds[0]) if kinds else _plain_value(schema)


def _plain_value(schema: dict[str, Any]) -> Any:
    kind = kind_of(schema)
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", _GOOD[kind]))
    if kind == "array" and schema.get("minItems"):
        return [_value(schema.get("items"))]
    if kind == "object":
        required = schema.get("required") or ()
        return {name: _value(schema.get("properties", {}).get(name, {})) for name in required}
    return _GOOD.get(kind, "parrot")


def kind_of(schema: dict[str, Any]) -> str:
    """The type that a property has, or the first of them."""
    kind = schema.get("type", "string")
    return str(kind[0] if isinstance(kind, list) and kind else kind)
