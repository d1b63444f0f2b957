"""The tools that providers offer to the model: checked, named once, owned by one."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable
from typing import Any, Final

from hermes_core.errors import HermesError

#: Names that only the built-in may have.
RESERVED: Final = frozenset({"memory", "session_search"})

#: Models refuse more, and 200 tools of one provider would crowd out everything else.
MAX_TOOLS: Final = 128

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ToolError(HermesError):
    """A tool can't be offered."""


class ToolTable:
    """Which provider owns which tool.

    Args:
        reserved: Names that the host keeps for itself.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._host = frozenset(reserved)
        self._schemas: dict[str, dict[str, Any]] = {}
        self._owners: dict[str, str] = {}
        self._builtin: set[str] = set()

    def replace(self, provider: str, schemas: Iterable[Any], *, builtin: bool) -> list[ToolError]:
        """Take a provider's tools as they are now, in place of those it had before.

        Gives what was wrong with those that were not taken.
        """
        self.remove(provider)
        given = list(schemas)
        if len(given) > MAX_TOOLS:
            return [
                ToolError(
                    f"offers {len(given)} tools, at most {MAX_TOOLS} are possible; none is used",
                    where=f"provider {provider}: get_tool_schemas",
                )
            ]
        errors = []
        for schema in given:
            try:
                self._add(provider, normalise_schema(schema), builtin=builtin)
            except ToolError as error:
                error.where = f"provider {provider}: get_tool_schemas"
                errors.append(error)
        return errors

    def remove(self, provider: str) -> None:
        """Forget a provider's tools."""
        for name in self.of(provider):
            del self._schemas[name], self._owners[name]

    def of(self, provider: str) -> frozenset[str]:
        """The names of a provider's tools."""
        return frozenset(name for name, owner in self._owners.items() if owner == provider)

    def owner(self, name: str) -> str | None:
        """The provider that a tool belongs to."""
        return self._owners.get(name)

    def names(self) -> set[str]:
        """All tool names."""
        return set(self._schemas)

    def schemas(self) -> list[dict[str, Any]]:
        """All schemas, bare: name, description, parameters; the built-in's first."""
        ordered = sorted(self._schemas.items(), key=lambda each: each[0] not in self._builtin)
        return [copy.deepcopy(schema) for _, schema in ordered]

    def _add(self, provider: str, schema: dict[str, Any], *, builtin: bool) -> None:
        name = schema["name"]
        if name in self._host or (name in RESERVED and not builtin):
            keeper = "the host" if name in self._host else "the built-in"
            raise ToolError(f"the tool name {name!r} is reserved for {keeper}")
        if name in self._owners and not (builtin and name not in self._builtin):
            raise ToolError(f"the tool {name!r} belongs to {self._owners[name]} already")
        self._schemas[name] = schema
        self._owners[name] = provider
        if builtin:
            self._builtin.add(name)


def normalise_schema(schema: Any) -> dict[str, Any]:
    """A tool schema in its bare form: name, description, parameters.

    Takes that form and OpenAI's wrapped one, ``{"type": "function", "function": {...}}``.
    """
    if isinstance(schema, dict) and isinstance(schema.get("function"), dict):
        schema = schema["function"]
    if not isinstance(schema, dict):
        raise ToolError(f"a tool schema is {type(schema).__name__}, not a mapping")
    name = schema.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ToolError(f"{name!r} is no tool name: letters, digits, - and _, at most 64")
    bare = {"description": "", **schema}
    bare["parameters"] = bare.get("parameters") or {"type": "object", "properties": {}}
    try:
        plain: dict[str, Any] = json.loads(json.dumps(bare, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"the tool {name!r} can't be written as JSON: {error}") from error
    _check_parameters(name, plain["parameters"])
    return plain


def _check_parameters(name: str, parameters: Any) -> None:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - 130 ms, only where tools are
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415

    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise ToolError(f"the tool {name!r} has parameters that are no object schema")
    try:
        Draft202012Validator.check_schema(parameters)
    except (SchemaError, RecursionError) as error:
        why = getattr(error, "message", "they are nested too deeply")
        raise ToolError(f"the tool {name!r} has invalid parameters: {why}") from error


def tool_answer(value: Any, provider: str) -> str:
    """What a provider's tool returned, as the JSON string that a host expects."""
    if isinstance(value, str):
        try:
            json.loads(value, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return json.dumps({"result": value}, ensure_ascii=False)
        return value
    if value is None:
        return tool_error(f"{provider} gave no answer")
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return tool_error(f"{provider} gave an answer that is no JSON: {error}")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def tool_error(message: str) -> str:
    """An error as a tool's answer."""
    return json.dumps({"error": message}, ensure_ascii=False)
