"""A provider's settings: every value, from the first source that has it.

The sources, in this order: an argument, the process's environment, ``.env``, the keyring,
config.yaml, the provider's own file, the default.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hermes_core.config import Config
from hermes_core.discovery import ProviderInfo, manifest_of
from hermes_core.environment import is_ours
from hermes_core.errors import HermesError, SecretsError
from hermes_core.names import normalise
from hermes_core.schema import Field, Problem, Settings, Value, settle, variable_of
from hermes_core.secrets import Secrets

_STORES: Final = {"dotenv": ".env", "keyring": "keyring"}
_OWN_FILE_BYTES: Final = 1_000_000


class ProviderConfigError(HermesError):
    """A provider's settings are not valid; ``problems`` has a line for each."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(map(str, problems))
        super().__init__(
            f"its settings are not valid: {'; '.join(self.problems)}",
            where=f"plugin {name}",
            hint=f"run: hermes-plugins setup {name}",
        )


class Sources:
    """Where the settings of one provider come from."""

    def __init__(
        self, config: Config, info: ProviderInfo, arguments: Mapping[str, Any] | None = None
    ) -> None:
        self._config = config
        self._info = info
        self._arguments = arguments or {}
        self.secrets = Secrets(config.home, config.secrets_backend)
        self._section_key, self._section = section_of(config, info.name)
        self._file, self._in_file = _own_file(config.home, info.name)

    @property
    def where(self) -> str:
        """What the settings are called in config.yaml."""
        return f"memory.{self._section_key}"

    def settings(self, fields: Sequence[Field]) -> Settings:
        """The values of all fields, and what is wrong with them."""
        given: dict[str, Value] = {}
        problems: list[Problem] = []
        for field in fields:
            try:
                found = self._find(field)
            except SecretsError as error:
                problems.append(Problem(f"{self.where}.{field.key}", error.what, hint=error.hint))
                continue
            if found is not None:
                given[field.key] = found
        settled = settle(fields, given, self.where)
        unknown = {problem.field for problem in problems}
        rest = [problem for problem in settled.problems if problem.field not in unknown]
        return settled._replace(problems=(*problems, *rest))

    def _find(self, field: Field) -> Value | None:
        if field.key in self._arguments:
            return Value(self._arguments[field.key], "argument")
        inherited = os.environ.get(field.variable, "")
        if inherited and not is_ours(field.variable):
            return Value(inherited, f"environment ({field.variable})")
        secret = self.secrets.get(field.variable, self._info.name)
        if secret is not None and secret.value:
            return Value(secret.value, f"{_STORES[secret.store]} ({field.variable})")
        if self._section.get(field.key) not in (None, ""):
            return Value(self._section[field.key], f"config.yaml ({self.where}.{field.key})")
        if self._in_file.get(field.key) not in (None, ""):
            return Value(self._in_file[field.key], str(self._file))
        return None

    def exposed(self, fields: Iterable[Field]) -> list[str]:
        """The secrets that stand in config.yaml or in a file of the provider's, in clear."""
        return [
            field.key
            for field in fields
            if field.secret and (self._section.get(field.key) or self._in_file.get(field.key))
        ]

    def environment(self, fields: Sequence[Field] = ()) -> dict[str, str]:
        """What the provider finds in its environment, from ``.env`` and the keyring.

        That is what it declares, ``requires_env`` of its plugin.yaml, ``<NAME>_*``, and what
        ``memory.<name>.env`` lists; nothing else.
        """
        prefix = variable_of(self._info.name, "")
        named = {*_texts(self._section.get("env")), *(field.variable for field in fields)}
        named |= {*_texts(manifest_of(self._info).get("requires_env"))}
        for each in self.secrets.names():
            if each.variable.startswith(prefix) or normalise(each.provider) == self._info.key:
                named.add(each.variable)
        found = {}
        for name in sorted(named):
            try:
                secret = self.secrets.get(name, self._info.name)
            except SecretsError:
                continue  # said where the field's value is looked for
            if secret is not None:
                found[name] = secret.value
        return found


def section_of(config: Config, name: str) -> tuple[str, Mapping[str, Any]]:
    """A provider's part of config.yaml: its key as it is spelt there, and what it has."""
    for key, value in config.memory.items():
        if normalise(str(key)) == normalise(name) and isinstance(value, Mapping):
            return str(key), value
    return name, {}


def _own_file(home: Path, name: str) -> tuple[Path | None, Mapping[str, Any]]:
    """What a provider keeps where hermes-agent's providers do."""
    for path in (home / f"{name}.json", home / name / "config.json"):
        try:
            if path.stat().st_size <= _OWN_FILE_BYTES:
                data = json.loads(path.read_text("utf-8"))
                if isinstance(data, dict):
                    return path, data
        except (OSError, ValueError, RecursionError):
            continue
    return None, {}


def _texts(value: object) -> list[str]:
    """Names of variables: strings, or mappings with a name."""
    entries = value if isinstance(value, list | tuple) else [value]
    names = [each.get("name") if isinstance(each, Mapping) else each for each in entries]
    return [name for name in names if isinstance(name, str) and name]
