"""A service's published API, where it is at hand: is a request or an answer as it says?

The descriptions lie beside the repository, not in it: ``../shared/data/openapi``. Without them
everything counts as right.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "openapi"
_GOOD = re.compile("2..")


@cache
def contract(file: str) -> Contract:
    """A description, read once: it is hundreds of kilobytes, and every server of a test has one."""
    return Contract(file)


class Contract:
    """The description of one API, of OpenAPI 3.0 or 3.1."""

    def __init__(self, file: str) -> None:
        path = FOLDER / file
        self._validators: dict[int, Draft202012Validator] = {}
        self.is_known = path.exists()
        self._document = json.loads(path.read_text("utf-8")) if self.is_known else {"paths": {}}
        # Fixed parts count more than named ones: /memories/search/ is no memory called search.
        paths = sorted(self._document["paths"], key=lambda each: each.count("{"))
        self._paths = [
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", each)), self._document["paths"][each])
            for each in paths
        ]

    def request_problem(self, method: str, path: str, query: dict[str, str], body: Any) -> str:
        """What is wrong with a request; "" if nothing is."""
        if not self.is_known:
            return ""
        operation = self._operation(method, path)
        if operation is None:
            return f"there is no {method} {path}"
        named = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
        # mem0ai adds these two to every request once the platform has told them.
        unknown = set(query) - named - {"org_id", "project_id"}
        if unknown:
            return f"{method} {path} takes no {', '.join(sorted(unknown))}"
        told = operation.get("requestBody")
        if told is None:
            return "" if body is None else f"{method} {path} takes no body"
        if body is None and not told.get("required"):
            return ""
        return self._problem(told, body)

    def answer_problem(self, method: str, path: str, status: int, body: Any) -> str:
        """What is wrong with a good answer; "" if nothing is. Any status of success will do."""
        operation = self._operation(method, path)
        if operation is None or status >= 400:
            return ""
        told = next(each for code, each in operation["responses"].items() if _GOOD.fullmatch(code))
        return self._problem(told, body)

    def _operation(self, method: str, path: str) -> dict[str, Any] | None:
        for pattern, operations in self._paths:
            if pattern.fullmatch(path) and method.lower() in operations:
                found: dict[str, Any] = operations[method.lower()]
                return found
        return None

    def _problem(self, told: dict[str, Any], body: Any) -> str:
        schema = told.get("content", {}).get("application/json", {}).get("schema")
        if schema is None:
            return ""
        validator = self._validators.get(id(schema))  # part of the document, which stays
        if validator is None:
            validator = Draft202012Validator(self._resolved(schema))
            self._validators[id(schema)] = validator
        errors = validator.iter_errors(body)
        return "; ".join(f"{error.json_path}: {error.message[:200]}" for error in errors)

    def _resolved(self, schema: Any) -> Any:
        """A schema without references, and with ``nullable`` as JSON Schema has it."""
        if isinstance(schema, list):
            return [self._resolved(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema:
            found: Any = self._document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            return self._resolved(found)
        made = {key: self._resolved(value) for key, value in schema.items()}
        if schema.get("nullable") is True and isinstance(schema.get("type"), str):
            made["type"] = [schema["type"], "null"]
        return made
