"""``$HERMES_HOME/secrets.json``: which secrets we keep and where. Names only, no values.

A keyring can't be listed, and one that does not answer must be told from a secret that was
never set.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

from hermes_core.errors import SecretsError
from hermes_core.secrets._files import read_text, write_text

Store = Literal["keyring", "dotenv"]
STORES: Final = ("keyring", "dotenv")
SCHEMA: Final = 1

_HINT: Final = (
    "move it away and set the secrets that are in the keyring again; those in .env are not touched"
)


class Entry(NamedTuple):
    """Where a secret is, and whose it is."""

    store: Store
    provider: str = ""


class Index:
    """The file. Whoever changes it holds its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Entry]:
        """All entries by variable; none if there is no file. A broken file is an error."""
        return {
            variable: Entry(entry["store"], entry.get("provider", ""))
            for variable, entry in self._data()["secrets"].items()
        }

    def change(self, variable: str, entry: Entry | None) -> None:
        """Set the entry of a variable, or remove it."""
        data = self._data()
        known = data["secrets"]
        if entry is None:
            known.pop(variable, None)
        else:
            known[variable] = {**known.get(variable, {}), **entry._asdict()}
        write_text(self.path, json.dumps(data, indent=2) + "\n")

    def _data(self) -> dict[str, Any]:
        text = read_text(self.path, hint=_HINT)
        if text is None:
            return {"schema": SCHEMA, "secrets": {}}
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if problem := _problem(data):
            raise SecretsError(problem, where=str(self.path), hint=_HINT)
        return cast("dict[str, Any]", data)


def _problem(data: object) -> str:
    if not isinstance(data, dict):
        return "is no JSON object"
    schema = data.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        return f"was written by a newer version (schema {schema})"
    secrets = data.get("secrets")
    if schema != SCHEMA or not isinstance(secrets, dict):
        return "is no index of secrets"
    for variable, entry in secrets.items():
        if not isinstance(entry, dict) or entry.get("store") not in STORES:
            return f"has no store for {variable}"
        if not isinstance(entry.get("provider", ""), str):
            return f"has no name of a provider for {variable}"
    return ""
