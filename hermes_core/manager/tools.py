"""The tools that providers offer to the model.

`ToolRegistry` knows which provider owns which tool. A schema is checked before it is offered: one
that a model API refuses would break every turn.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from json import dumps, loads  # before a plugin can replace them
from typing import Any, Final, NamedTuple

from hermes_core.dispatch import HookCalls, ProviderAdapter
from hermes_core.errors import HermesError, describe
from hermes_core.storage.logger import logger

#: Names that only the built-in may use.
RESERVED: Final = frozenset({"memory", "session_search"})

#: Model APIs reject more in one request. A provider that offers more gets none: using the first
#: 128 would be a guess that nobody notices.
MAX_TOOLS: Final = 128

#: What every model API accepts as a name, and what at least one of them accepts.
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SOME_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class ToolError(HermesError):
    """A tool can't be offered."""


class ChangedToolError(ToolError):
    """A tool is offered, but not exactly as its provider wrote it, or not to every model."""


class ToolRegistry:
    """The tools of a manager's providers: which are offered, who owns each, and how to call one.

    Args:
        hooks: Calls the providers.
        reserved: Tool names that the host uses itself.
    """

    def __init__(self, hooks: HookCalls, reserved: Iterable[str] = ()) -> None:
        self._hooks = hooks
        self._host = frozenset(reserved)
        self._schemas: dict[str, dict[str, Any]] = {}
        self._owners: dict[str, str] = {}
        self._builtin: set[str] = set()
        self._adapters: list[ProviderAdapter] = []
        self._problems: dict[str, list[str]] = {}

    @property
    def warnings(self) -> list[str]:
        """What was wrong with tools that are not offered, or were changed."""
        return [each for problems in self._problems.values() for each in problems]

    def owner(self, name: str) -> str | None:
        """The provider that a tool belongs to."""
        return self._owners.get(name)

    def names(self) -> set[str]:
        """All tool names."""
        return set(self._schemas)

    def schemas(self) -> list[dict[str, Any]]:
        """All schemas, bare (name, description, parameters), the built-in's first."""
        ordered = sorted(self._schemas.items(), key=lambda each: each[0] not in self._builtin)
        # A copy: hosts add keys to schemas before they send them, and providers may reuse their
        # objects.
        return [copy.deepcopy(schema) for _, schema in ordered]

    def call(self, name: str, args: dict[str, Any], extra: Mapping[str, Any]) -> str:
        """Run a tool at its owner. Always returns a JSON string."""
        if name not in self._owners:
            # A provider may offer tools only some time after it was initialised.
            for adapter in self._adapters:
                if not adapter.inline:
                    self.refresh(adapter)
        outcome = self._hooks.first("handle_tool_call", tool_name=name, args=args, extra=extra)
        if outcome is None:
            return tool_error(f"no memory provider has the tool {name!r}")
        if outcome.error is not None:
            return tool_error(f"{name} of {outcome.provider} failed: {self._error_text(outcome)}")
        return tool_answer(outcome.value, outcome.provider)

    def _error_text(self, outcome: Any) -> str:
        for adapter in self._adapters:
            if adapter.name == outcome.provider:
                return adapter.error_text(outcome.error)  # without secrets
        return describe(outcome.error)

    def refresh(self, adapter: ProviderAdapter) -> None:
        """Ask a provider which tools it offers now."""
        if adapter not in self._adapters:
            self._adapters.append(adapter)
        offered = self._hooks.only(adapter, "get_tool_schemas")()
        if offered.error is not None:
            return  # what it offered before is better than nothing
        problems = self._replace(adapter, list(offered.value))
        for each in problems:
            if str(each) not in self._problems.get(adapter.name, ()):
                kind = "changed" if isinstance(each, ChangedToolError) else "refused"
                logger.warning("tool %s: %s", kind, each)
        self._problems[adapter.name] = [str(each) for each in problems]
        for every in self._adapters:  # the built-in may have taken a name from the other
            owned = (name for name, owner in self._owners.items() if owner == every.name)
            every.tools = frozenset(owned)

    def _replace(self, adapter: ProviderAdapter, schemas: list[Any]) -> list[ToolError]:
        """Replace a provider's tools; return what was wrong with those refused or changed."""
        for name in [name for name, owner in self._owners.items() if owner == adapter.name]:
            del self._schemas[name], self._owners[name]
        problems: list[ToolError] = []
        if len(schemas) > MAX_TOOLS:
            text = f"offers {len(schemas)} tools; at most {MAX_TOOLS} are possible, so none is used"
            problems, schemas = [ToolError(text)], []
        for schema in schemas:
            try:
                accepted = accept_schema(schema)
                self._add(adapter, accepted.schema)
                problems += accepted.remarks
            except ToolError as error:
                problems.append(error)
        for each in problems:
            each.where = f"provider {adapter.name}: get_tool_schemas"
        return problems

    def _add(self, adapter: ProviderAdapter, schema: dict[str, Any]) -> None:
        name, builtin = schema["name"], adapter.inline
        if name in self._host or (name in RESERVED and not builtin):
            keeper = "the host" if name in self._host else "the built-in"
            raise ToolError(f"the tool name {name!r} is reserved for {keeper}")
        # The built-in may take a name from an external provider, never the reverse, whichever is
        # asked first.
        if name in self._owners and not (builtin and name not in self._builtin):
            raise ToolError(f"the tool {name!r} belongs to {self._owners[name]} already")
        self._schemas[name] = schema
        self._owners[name] = adapter.name
        if builtin:
            self._builtin.add(name)


def normalise_schema(schema: Any) -> dict[str, Any]:
    """Return a tool schema in its bare form: name, description, parameters.

    Accepts that form and OpenAI's wrapped one, ``{"type": "function", "function": {...}}``.

    Raises:
        ToolError: Not every model API accepts it.
    """
    accepted = accept_schema(schema)
    for remark in accepted.remarks:
        raise remark
    return accepted.schema


class AcceptedSchema(NamedTuple):
    """A tool schema in its bare form, and what had to be changed in it."""

    schema: dict[str, Any]
    remarks: list[ToolError]


def accept_schema(schema: Any) -> AcceptedSchema:
    """Like `normalise_schema`, but leave out or change what a model API would refuse.

    One bad schema makes a model API refuse the whole request, and so breaks every turn. A name
    that only some model APIs accept stays: the host may use one of them.

    Raises:
        ToolError: No model API accepts it.
    """
    if isinstance(schema, dict) and isinstance(schema.get("function"), dict):
        schema = schema["function"]
    if not isinstance(schema, dict):
        raise ToolError(f"a tool schema is {type(schema).__name__}, not a mapping")
    remarks: list[ToolError] = []
    name = _accept_name(schema.get("name"), remarks)
    given = {"description": "", **schema}
    given["parameters"] = given.get("parameters") or {"type": "object", "properties": {}}
    bare = {"description": "", **_plain(name, given, remarks)}
    bare["description"] = _accept_description(name, bare["description"], remarks)
    bare["parameters"] = _accept_parameters(name, bare["parameters"], remarks)
    return AcceptedSchema(bare, remarks)


def _accept_name(name: Any, remarks: list[ToolError]) -> str:
    text = f"{name!r} is not a tool name: letters, digits, - and _, at most 64"
    if not isinstance(name, str) or not _SOME_NAME.fullmatch(name):
        raise ToolError(text)
    if not _NAME.fullmatch(name):
        remarks.append(ChangedToolError(f"{text}; it is offered, but some model APIs refuse it"))
    return name


def _accept_description(name: str, description: Any, remarks: list[ToolError]) -> str:
    if isinstance(description, str):
        return description
    if description is not None:
        text = f"the tool {name!r} has a description that is not text"
        remarks.append(ChangedToolError(f"{text}; it is offered without that"))
    return ""


def _plain(name: str, given: dict[str, Any], remarks: list[ToolError]) -> dict[str, Any]:
    """Return the parts of a schema that can be written as JSON; the parameters must be."""
    plain: dict[str, Any] = {}
    for key, value in given.items():
        try:
            # There and back: tuples become lists and keys become text here, not in the host's
            # request. NaN is valid for Python's encoder and invalid for every model API.
            plain[key] = loads(dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            text = f"the tool {name!r} can't be written as JSON: {key}: {error}"
            if key == "parameters":
                raise ToolError(text) from error
            remarks.append(ChangedToolError(f"{text}; it is offered without that"))
    return plain


def _accept_parameters(name: str, parameters: Any, remarks: list[ToolError]) -> dict[str, Any]:
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise ToolError(f"the tool {name!r} has parameters that are not an object schema")
    full: dict[str, Any] = {"type": "object", "properties": {}, **parameters}  # APIs demand both
    why = _invalid(full)
    if not why:
        return full
    text = f"the tool {name!r} has invalid parameters: {why}"
    remarks.append(ChangedToolError(f"{text}; it is offered without what is invalid"))
    return _repaired(parameters)


def _repaired(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters, with those that are described wrongly allowed to be anything."""
    found = parameters.get("properties")
    properties = found if isinstance(found, dict) else {}
    kept = {name: {} if _invalid(each) else each for name, each in properties.items()}
    wanted = parameters.get("required")
    required = [each for each in wanted if each in kept] if isinstance(wanted, list) else []
    return {"type": "object", "properties": kept, **({"required": required} if required else {})}


def _invalid(schema: Any) -> str:
    """Return why a JSON schema is invalid; "" if it is valid."""
    try:
        return _invalid_text(dumps(schema))
    except RecursionError:
        return "they are nested too deeply"


@lru_cache(maxsize=4 * MAX_TOOLS)  # each manager of a process offers the same tools
def _invalid_text(schema: str) -> str:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - 130 ms, only where tools are
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415

    try:
        Draft202012Validator.check_schema(loads(schema))
    except SchemaError as error:
        return error.message
    return ""


def tool_answer(value: Any, provider: str) -> str:
    """Return the result of a provider's tool as the JSON string that a host expects."""
    if isinstance(value, str):
        try:
            # Text that is JSON already passes as it is; other text becomes a JSON object, because
            # hosts parse every answer. Python's parser accepts NaN, which other parsers reject.
            loads(value, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return dumps({"result": value}, ensure_ascii=False)
        return value
    if value is None:
        return tool_error(f"{provider} returned nothing")
    try:
        return dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return tool_error(f"{provider} returned something that is not JSON: {error}")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def tool_error(message: str) -> str:
    """Return an error as the result of a tool."""
    return dumps({"error": message}, ensure_ascii=False)
