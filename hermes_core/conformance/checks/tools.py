"""Tools: what a model is offered, and what it gets back whatever it asks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hermes_core.conformance._arguments import kind_of, sample_arguments, sound_schemas
from hermes_core.conformance._bench import Bench
from hermes_core.conformance._driver import Driver
from hermes_core.conformance._model import MUST, SHOULD, Failed, check
from hermes_core.names import BUILTIN
from hermes_core.tools import MAX_TOOLS, RESERVED, ToolError, normalise_schema

_HUGE: Final = 1_000_000
_DESCRIPTION: Final = 1024
#: What OpenAI refuses at the top of a function's parameters.
_NOT_AT_TOP: Final = ("oneOf", "anyOf", "allOf", "enum", "not")
#: What a model may send in place of what was asked for.
_WRONG: Final[Mapping[str, Any]] = {
    "string": 7, "integer": "seven", "number": "seven", "boolean": "maybe", "array": {"a": 1},
    "object": ["a"],
}  # fmt: skip


@check(
    "HP501",
    MUST,
    "Tool schemas are valid",
    fix="Give a list of {name, description, parameters}; parameters are JSON Schema (2020-12) of "
    "type object; names are letters, digits, - and _, at most 64.",
)
def schemas_are_valid(bench: Bench) -> None:
    """A host drops what it can't offer; a model's provider refuses the whole request because of one
    tool.
    """
    driver = bench.driver()
    given = driver.call("get_tool_schemas")
    where = driver.where("get_tool_schemas")
    if not isinstance(given, list | tuple):
        raise Failed(f"it returned a {type(given).__name__}", expected="a list", where=where)
    if len(given) > MAX_TOOLS:
        raise Failed(f"it offers {len(given)} tools, at most {MAX_TOOLS} are possible", where=where)
    for schema in given:
        try:
            normalise_schema(schema)
        except ToolError as error:
            raise Failed(error.what, where=where) from error


@check(
    "HP502",
    MUST,
    "Tool schemas are such that OpenAI's API accepts them",
    fix="At the top of `parameters` use type, properties and required only; give arrays `items`; "
    "list in `required` only what is in `properties`.",
)
def schemas_are_safe(bench: Bench) -> None:
    """Valid JSON Schema is not enough: one array without `items` or one `oneOf` at the top, and the
    API refuses every request of the agent, not only this tool.
    """
    driver = bench.driver()
    for schema in sound_schemas(driver):
        for problem in _refused(schema["parameters"]):
            happened = f"{schema['name']}: {problem}"
            raise Failed(happened, where=driver.where("get_tool_schemas"))


def _refused(parameters: dict[str, Any]) -> Iterator[str]:
    yield from (
        f"{word} at the top of its parameters" for word in _NOT_AT_TOP if word in parameters
    )
    if parameters.get("type") != "object":
        yield "its parameters have no type object"
    unknown = set(parameters.get("required") or ()) - set(parameters.get("properties") or ())
    yield from (f"{name} is required and is no property" for name in sorted(unknown))
    yield from _bad_arrays(parameters, "")


def _bad_arrays(schema: Any, path: str) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _bad_arrays(each, path)
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and "items" not in schema:
        yield f"the array {path or 'of its parameters'} has no items"
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, dict):
            for name, part in value.items():
                yield from _bad_arrays(part, f"{path}.{name}".strip("."))
        elif key in ("items", "anyOf", "oneOf", "allOf", "additionalProperties"):
            yield from _bad_arrays(value, path)


@check(
    "HP503",
    SHOULD,
    "Tools are described, and not wrapped",
    fix='Return {"name": ..., "description": ..., "parameters": ...} without "type": "function" '
    "around it; say in the description when to use the tool.",
)
def tools_are_described(bench: Bench) -> None:
    """The description is all that a model knows of a tool. The wrapped form is for a request to the
    API; hosts wrap themselves, and not every one of them unwraps first.
    """
    driver = bench.driver()
    where = driver.where("get_tool_schemas")
    for schema in driver.ask("get_tool_schemas").value or ():
        if isinstance(schema, dict) and isinstance(schema.get("function"), dict):
            raise Failed(f"{schema['function'].get('name')} is wrapped", where=where)
    for schema in sound_schemas(driver):
        text = str(schema["description"])
        if not text.strip() or len(text) > _DESCRIPTION:
            happened = f"{schema['name']} has a description of {len(text.strip())} characters"
            raise Failed(happened, expected=f"1 to {_DESCRIPTION} characters", where=where)


@check(
    "HP504",
    MUST,
    "Tool names are unique and not reserved",
    fix="Begin the names with the plugin's: `acme_search`.",
)
def names_are_its_own(bench: Bench) -> None:
    """`memory` and `session_search` are the built-in's. Of two tools with one name a host offers
    one.
    """
    driver = bench.driver()
    names = [schema["name"] for schema in sound_schemas(driver)]
    where = driver.where("get_tool_schemas")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Failed(f"{', '.join(twice)} is there twice", where=where)
    taken = [] if bench.info.source == BUILTIN else sorted(RESERVED & set(names))
    if taken:
        raise Failed(f"{', '.join(taken)} is reserved for the built-in", where=where)


def _each(bench: Bench) -> Iterator[tuple[Driver, dict[str, Any]]]:
    """Every tool of a session."""
    driver = bench.started()
    yield from ((driver, schema) for schema in sound_schemas(driver))


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not JSON")  # Python writes and reads it; nobody else does


def _must_be_json(driver: Driver, name: str, args: Any, doing: str) -> None:
    answer = driver.ask("handle_tool_call", name, args)
    driver.sound("handle_tool_call", answer, f"({name!r}) with {doing}")
    where = driver.where("handle_tool_call")
    if not isinstance(answer.value, str):
        kind = type(answer.value).__name__
        raise Failed(f"{name} with {doing} gave a {kind}", expected="a JSON string", where=where)
    try:
        json.loads(answer.value, parse_constant=_no_number)
    except ValueError as error:
        shown = answer.value[:80]
        raise Failed(
            f"{name} with {doing} gave {shown!r}", expected="a JSON string", where=where
        ) from error


@check(
    "HP505",
    MUST,
    "A tool's answer is a JSON string",
    fix="End `handle_tool_call` with `return json.dumps(...)`.",
)
def answers_are_json(bench: Bench) -> None:
    """Hosts hand the answer to the model as it is, and some read it first to see whether it is an
    error.
    """
    for driver, schema in _each(bench):
        _must_be_json(driver, schema["name"], sample_arguments(schema), "good arguments")
        required = sample_arguments(schema, required_only=True)
        _must_be_json(driver, schema["name"], required, "required arguments only")


@check(
    "HP506",
    MUST,
    "So is the answer to wrong, missing and additional arguments",
    fix='Check the arguments first and return `json.dumps({"error": ...})`; catch what the backend '
    "raises.",
)
def bad_arguments_are_answered(bench: Bench) -> None:
    """Models send numbers as words, forget what is required and invent what is not there. Told what
    is wrong, they correct themselves; an exception tells them nothing.
    """
    for driver, schema in _each(bench):
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
    "So is the answer to an argument of a megabyte",
    fix="Limit what you take, and answer with an error.",
)
def huge_arguments_are_answered(bench: Bench) -> None:
    """A model that pastes a log file into a search happens."""
    for driver, schema in _each(bench):
        properties = schema["parameters"].get("properties") or {}
        texts = [
            key
            for key, part in properties.items()
            if isinstance(part, dict) and kind_of(part) == "string"
        ]
        for key in texts[:3]:
            huge = {**sample_arguments(schema), key: "parrot " * (_HUGE // 7)}
            _must_be_json(driver, schema["name"], huge, f"a megabyte of {key}")


@check(
    "HP508",
    MUST,
    "An unknown tool is answered with JSON, not with an exception",
    fix='End `handle_tool_call` with `return json.dumps({"error": f"unknown tool {tool_name}"})`.',
)
def unknown_tools_are_answered(bench: Bench) -> None:
    """A model may call a tool that an earlier version of the plugin had."""
    driver = bench.started()
    if not driver.has("handle_tool_call"):
        if sound_schemas(driver):
            raise Failed("it offers tools and has no handle_tool_call", where="")
        return
    _must_be_json(driver, "no_such_tool", {"query": "parrot"}, "arguments")


@check(
    "HP509",
    SHOULD,
    "The same tools are offered before and after `initialize`",
    fix="Return a constant list from `get_tool_schemas`; a tool that can't work yet says so in its "
    "answer.",
)
def tools_stay(bench: Bench) -> None:
    """Hosts ask for the tools at different times: hermes-agent before a session, others within. A
    tool that is not there when they ask is never offered.
    """
    driver = bench.driver()
    before = {schema["name"] for schema in sound_schemas(driver)}
    bench.start(driver)
    after = {schema["name"] for schema in sound_schemas(driver)}
    if before != after:
        names = ", ".join(sorted(before ^ after))
        raise Failed(
            f"{names} is there only {'before' if before - after else 'after'} it",
            where=driver.where("get_tool_schemas"),
        )
