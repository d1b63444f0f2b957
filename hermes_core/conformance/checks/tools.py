"""Tools: valid schemas, and a JSON result for every call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hermes_core.conformance._context import CheckContext, kind_of, sample_arguments, sound_schemas
from hermes_core.conformance._driver import Driver
from hermes_core.conformance.model import MUST, SHOULD, CheckFailure, check
from hermes_core.manager.tools import MAX_TOOLS, RESERVED, ToolError, normalise_schema
from hermes_core.provider import BUILTIN

_HUGE: Final = 1_000_000
# OpenAI's limit for the description of a function.
_DESCRIPTION: Final = 1024
#: What OpenAI's API rejects at the top level of a function's parameters.
_NOT_AT_TOP: Final = ("oneOf", "anyOf", "allOf", "enum", "not")
#: A value of a wrong type for each type.
_WRONG: Final[Mapping[str, Any]] = {
    "string": 7, "integer": "seven", "number": "seven", "boolean": "maybe", "array": {"a": 1},
    "object": ["a"],
}  # fmt: skip


@check(
    "HP501",
    MUST,
    "Tool schemas are valid",
    fix="Return a list of {name, description, parameters}. `parameters` is a JSON Schema "
    "(2020-12) of type object. Names have at most 64 letters, digits, - and _.",
)
def schemas_are_valid(context: CheckContext) -> None:
    """A host drops tools that it can't offer. A model API rejects the whole request because of one
    invalid tool.
    """
    driver = context.driver()
    given = driver.call("get_tool_schemas")
    where = driver.where("get_tool_schemas")
    if not isinstance(given, list | tuple):
        raise CheckFailure(f"it returned a {type(given).__name__}", expected="a list", where=where)
    if len(given) > MAX_TOOLS:
        raise CheckFailure(f"it offers {len(given)} tools, the limit is {MAX_TOOLS}", where=where)
    for schema in given:
        try:
            normalise_schema(schema)
        except ToolError as error:
            raise CheckFailure(error.what, where=where) from error


@check(
    "HP502",
    MUST,
    "OpenAI's API accepts the tool schemas",
    fix="At the top level of `parameters`, use only type, properties and required. Add `items` "
    "to arrays. List in `required` only names that are in `properties`.",
)
def schemas_are_safe(context: CheckContext) -> None:
    """A valid JSON Schema is not enough. With one array without `items` or one `oneOf` at the top
    level, the API rejects every request of the agent, not only calls to this tool.
    """
    driver = context.driver()
    for schema in sound_schemas(driver):
        for problem in _refused(schema["parameters"]):
            happened = f"{schema['name']}: {problem}"
            raise CheckFailure(happened, where=driver.where("get_tool_schemas"))


def _refused(parameters: dict[str, Any]) -> Iterator[str]:
    yield from (
        f"{word} at the top level of parameters" for word in _NOT_AT_TOP if word in parameters
    )
    if parameters.get("type") != "object":
        yield "parameters do not have the type object"
    unknown = set(parameters.get("required") or ()) - set(parameters.get("properties") or ())
    yield from (f"{name} is required but not a property" for name in sorted(unknown))
    yield from _bad_arrays(parameters, "")


def _bad_arrays(schema: Any, path: str) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _bad_arrays(each, path)
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and "items" not in schema:
        yield f"the array {path or 'parameters'} has no items"
    for key, value in schema.items():
        # A property may be called "items": names of properties are not keywords.
        if key in ("properties", "$defs") and isinstance(value, dict):
            for name, part in value.items():
                yield from _bad_arrays(part, f"{path}.{name}".strip("."))
        elif key in ("items", "anyOf", "oneOf", "allOf", "additionalProperties"):
            yield from _bad_arrays(value, path)


@check(
    "HP503",
    SHOULD,
    "Tools have a description and are not wrapped",
    fix='Return {"name": ..., "description": ..., "parameters": ...} without "type": "function" '
    "around it. Describe when to use the tool.",
)
def tools_are_described(context: CheckContext) -> None:
    """The description is all that a model knows about a tool. The wrapped form is for API requests:
    hosts add the wrapper themselves, and not all of them remove one first.
    """
    driver = context.driver()
    where = driver.where("get_tool_schemas")
    for schema in driver.ask("get_tool_schemas").value or ():
        if isinstance(schema, dict) and isinstance(schema.get("function"), dict):
            raise CheckFailure(f"{schema['function'].get('name')} is wrapped", where=where)
    for schema in sound_schemas(driver):
        text = str(schema["description"])
        if not text.strip() or len(text) > _DESCRIPTION:
            happened = f"{schema['name']} has a description of {len(text.strip())} characters"
            raise CheckFailure(happened, expected=f"1 to {_DESCRIPTION} characters", where=where)


@check(
    "HP504",
    MUST,
    "Tool names are unique and not reserved",
    fix="Start tool names with the plugin's name: `acme_search`.",
)
def names_are_its_own(context: CheckContext) -> None:
    """`memory` and `session_search` belong to the built-in provider. If two tools have the same
    name, hosts offer only one of them.
    """
    driver = context.driver()
    names = [schema["name"] for schema in sound_schemas(driver)]
    where = driver.where("get_tool_schemas")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CheckFailure(f"{', '.join(twice)} occurs twice", where=where)
    taken = [] if context.info.source == BUILTIN else sorted(RESERVED & set(names))
    if taken:
        raise CheckFailure(f"{', '.join(taken)} is reserved for the built-in", where=where)


def _each(context: CheckContext) -> Iterator[tuple[Driver, dict[str, Any]]]:
    """Yield every tool of a session."""
    driver = context.started()
    yield from ((driver, schema) for schema in sound_schemas(driver))


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not JSON")  # Python reads NaN and Infinity; other parsers don't


def _must_be_json(driver: Driver, name: str, args: Any, doing: str) -> None:
    answer = driver.ask("handle_tool_call", name, args)
    driver.sound("handle_tool_call", answer, f"({name!r}) with {doing}")
    where = driver.where("handle_tool_call")
    if not isinstance(answer.value, str):
        kind = type(answer.value).__name__
        raise CheckFailure(
            f"{name} with {doing} returned a {kind}", expected="a JSON string", where=where
        )
    try:
        json.loads(answer.value, parse_constant=_no_number)
    except ValueError as error:
        shown = answer.value[:80]
        raise CheckFailure(
            f"{name} with {doing} returned {shown!r}", expected="a JSON string", where=where
        ) from error


@check(
    "HP505",
    MUST,
    "Tools return a JSON string",
    fix="End `handle_tool_call` with `return json.dumps(...)`.",
)
def answers_are_json(context: CheckContext) -> None:
    """Hosts pass the result to the model unchanged, and some parse it first to detect an error."""
    for driver, schema in _each(context):
        _must_be_json(driver, schema["name"], sample_arguments(schema), "good arguments")
        required = sample_arguments(schema, required_only=True)
        _must_be_json(driver, schema["name"], required, "required arguments only")


@check(
    "HP506",
    MUST,
    "Tools return a JSON string for wrong, missing and additional arguments",
    fix='Validate the arguments first and return `json.dumps({"error": ...})`. Catch exceptions '
    "of the backend.",
)
def bad_arguments_are_answered(context: CheckContext) -> None:
    """Models send numbers as words, omit required arguments and invent others. An error message
    lets them correct the call; an exception does not.
    """
    for driver, schema in _each(context):
        name, good = schema["name"], sample_arguments(schema)
        properties = schema["parameters"].get("properties") or {}
        _must_be_json(driver, name, {}, "no arguments")
        _must_be_json(driver, name, {**good, "no_such_argument": 1}, "an additional argument")
        for key, part in properties.items():
            wrong = _WRONG.get(kind_of(part) if isinstance(part, dict) else "string")
            _must_be_json(driver, name, {**good, key: wrong}, f"{key}={wrong!r}")
            _must_be_json(driver, name, {**good, key: None}, f"{key}=None")


@check(
    "HP507",
    MUST,
    "Tools return a JSON string for an argument of 1 MB",
    fix="Limit the size of arguments, and return an error.",
)
def huge_arguments_are_answered(context: CheckContext) -> None:
    """Models do paste log files into a search."""
    for driver, schema in _each(context):
        properties = schema["parameters"].get("properties") or {}
        texts = [
            key
            for key, part in properties.items()
            if isinstance(part, dict) and kind_of(part) == "string"
        ]
        # Three are enough: each call sends a megabyte.
        for key in texts[:3]:
            huge = {**sample_arguments(schema), key: "parrot " * (_HUGE // 7)}
            _must_be_json(driver, schema["name"], huge, f"1 MB of {key}")


@check(
    "HP508",
    MUST,
    "An unknown tool returns JSON and does not raise",
    fix='End `handle_tool_call` with `return json.dumps({"error": f"unknown tool {tool_name}"})`.',
)
def unknown_tools_are_answered(context: CheckContext) -> None:
    """A model may call a tool that an earlier version of the plugin had."""
    driver = context.started()
    if not driver.has("handle_tool_call"):
        if sound_schemas(driver):
            raise CheckFailure("it offers tools but has no handle_tool_call", where="")
        return
    _must_be_json(driver, "no_such_tool", {"query": "parrot"}, "arguments")


@check(
    "HP509",
    SHOULD,
    "The same tools are offered before and after `initialize`",
    fix="Return a constant list from `get_tool_schemas`. A tool that can't work yet returns an "
    "error that says so.",
)
def tools_stay(context: CheckContext) -> None:
    """Hosts read the tools at different times: hermes-agent before a session, others during it. A
    tool that is missing at that moment is never offered.
    """
    driver = context.driver()
    before = {schema["name"] for schema in sound_schemas(driver)}
    context.start(driver)
    after = {schema["name"] for schema in sound_schemas(driver)}
    if before != after:
        names = ", ".join(sorted(before ^ after))
        raise CheckFailure(
            f"{names} is offered only {'before' if before - after else 'after'} initialize",
            where=driver.where("get_tool_schemas"),
        )
