"""Honcho's published API, where it is at hand: is a request or an answer as it says?

The description lies beside the repository, not in it: ``../shared/data/openapi``.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "openapi"
_FILE = SHARED / "honcho-3.0.12.json"
_ROOT = "urn:honcho"


class Contract:
    """The description of the API. Without its file, everything is as it says."""

    def __init__(self, file: Path = _FILE) -> None:
        self.known = file.exists()
        self._document: dict[str, Any] = json.loads(file.read_text("utf-8")) if self.known else {}

    def request_problem(self, method: str, path: str, body: Any, query: dict[str, str]) -> str:
        """What is wrong with a request; "" if nothing is."""
        if not self.known:
            return ""
        operation = self._operation(method, path)
        if operation is None:
            return f"there is no {method} {path}"
        known = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
        if set(query) - known:
            return f"{method} {path} takes no {', '.join(sorted(set(query) - known))}"
        told = operation.get("requestBody")
        if told is None:
            return "" if body is None else f"{method} {path} takes no body"
        if body is None and not told.get("required"):
            return ""
        return self._problem(told["content"]["application/json"]["schema"], body)

    def answer_problem(self, method: str, path: str, status: int, body: Any) -> str:
        """What is wrong with a good answer; "" if nothing is.

        What a get-or-create has created is answered with 201 by the server, which the
        description does not mention: any good answer of it counts.
        """
        operation = self._operation(method, path) if self.known else None
        if operation is None or status >= 400:
            return ""
        for code, told in operation["responses"].items():
            if code.startswith("2"):
                schema = told.get("content", {}).get("application/json", {}).get("schema")
                return "" if schema is None else self._problem(schema, body)
        return ""

    def _operation(self, method: str, path: str) -> dict[str, Any] | None:
        for pattern, operations in self._paths:
            if pattern.fullmatch(path) and method.lower() in operations:
                found: dict[str, Any] = operations[method.lower()]
                return found
        return None

    @cached_property
    def _paths(self) -> list[tuple[re.Pattern[str], dict[str, Any]]]:
        # Fixed parts count more than named ones: /messages/list is no message called list.
        paths = sorted(self._document["paths"], key=lambda path: path.count("{"))
        return [
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), self._document["paths"][path])
            for path in paths
        ]

    @cached_property
    def _registry(self) -> Registry[Any]:
        resource = Resource(contents=self._document, specification=DRAFT202012)
        return Registry().with_resource(_ROOT, resource)

    def _problem(self, schema: dict[str, Any], value: Any) -> str:
        based = json.loads(json.dumps(schema).replace('"#/', f'"{_ROOT}#/'))
        validator = Draft202012Validator(based, registry=self._registry)
        return "; ".join(
            f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(value)
        )
