"""A provider's settings: every value, from the first source that has it.

The sources, in this order: an argument, the process's environment, ``.env``, the keyring,
config.yaml, the provider's own file, the default.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_core.config import Config
from hermes_core.discovery import ProviderInfo, manifest_of
from hermes_core.environment import is_ours
from hermes_core.errors import HermesError, SecretsError
from hermes_core.names import normalise
from hermes_core.schema import Field, Problem, Settings, Value, settle, variable_of
from hermes_core.secrets import Secrets

if TYPE_CHECKING:
    from hermes_core.own_settings import OwnSettings

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
        self._pin = _entry(config.memory.get("pins"), info.name)[1]
        #: The name that it is listed under, and the one that it calls itself.
        self._names = tuple(dict.fromkeys((info.name, info.learnt.provider or info.name)))
        self._section_key, self._section = section_of(config, *self._names)
        self._file, self._in_file = _own_file(config.home, *self._names)
        #: What the provider itself finds in files; it is asked when it is loaded.
        self.told: OwnSettings = ()

    @property
    def where(self) -> str:
        """What the settings are called in config.yaml."""
        return f"memory.{self._section_key}"

    def settings(self, fields: Sequence[Field]) -> Settings:
        """The values of all fields, and what is wrong with them."""
        return self.settled(fields, *self.found(fields))

    def found(self, fields: Sequence[Field]) -> tuple[dict[str, Value], dict[str, Problem]]:
        """What there is for each field, whether or not it applies; and what can't be read."""
        given: dict[str, Value] = {}
        unread: dict[str, Problem] = {}
        for field in fields:
            try:
                found = self._find(field)
            except SecretsError as error:
                name = f"{self.where}.{field.key}"
                unread[field.key] = Problem(name, error.what, hint=error.hint)
                continue
            if found is not None:
                given[field.key] = found
        return given, unread

    def settled(
        self, fields: Sequence[Field], given: Mapping[str, Value], unread: Mapping[str, Problem]
    ) -> Settings:
        """Values that were found, made ready; one that could not be read is not missing."""
        settled = settle(fields, given, self.where)
        problems = [
            unread[field.key]
            for field in fields
            if field.key in unread and field.key not in given and field.applies(settled.values)
        ]
        unknown = {problem.field for problem in problems}
        rest = [problem for problem in settled.problems if problem.field not in unknown]
        return settled._replace(problems=(*problems, *rest))

    def _find(self, field: Field) -> Value | None:
        if field.key in self._arguments:
            return Value(self._arguments[field.key], "argument")
        stored = self._variable(field)
        if stored is not None:
            return stored
        if self._section.get(field.key) not in (None, ""):
            return Value(self._section[field.key], f"config.yaml ({self.where}.{field.key})")
        if self._in_file.get(field.key) not in (None, ""):
            return Value(self._in_file[field.key], str(self._file))
        told = (Value(each[field.key], path) for path, each in self.told if field.key in each)
        return next((each for each in told if each.value not in (None, "")), None)

    def _variable(self, field: Field) -> Value | None:
        """The value of its variable, in the process or in a store."""
        inherited = self._inherited(field)
        if inherited is not None:
            return inherited
        secret = self.secrets.get(field.variable, self._info.name)
        if secret is not None and secret.value:
            return Value(secret.value, f"{_STORES[secret.store]} ({field.variable})")
        return None

    def _inherited(self, field: Field) -> Value | None:
        value = os.environ.get(field.variable, "")
        if not value or is_ours(field.variable):
            return None
        return Value(value, f"environment ({field.variable})")

    def stronger(self, field: Field, value: Any) -> str:
        """The source of another value that counts more than what is written for a field."""
        try:
            found = self._inherited(field) if field.secret else self._variable(field)
        except SecretsError:
            return ""  # said where the field's value is looked for
        if found is None:
            return ""
        same = settle([field._replace(when={})], {field.key: found}, "").values.get(field.key)
        return "" if same == value else found.origin

    def exposed(self, fields: Iterable[Field]) -> list[str]:
        """The secrets that stand in config.yaml or in a file of the provider's, in clear."""
        files = (("config.yaml", self._section), (str(self._file), self._in_file), *self.told)
        found = []
        for field in (each for each in fields if each.secret):
            place = next((path for path, told in files if told.get(field.key)), "")
            if place:
                found.append(
                    f"{field.key} is in clear in {place}; "
                    f"run hermes-plugins secrets set {field.variable}, and take it out there"
                )
        return found

    def environment(self, fields: Sequence[Field] = ()) -> dict[str, str]:
        """What the provider finds in its environment, from ``.env`` and the keyring.

        That is what it declares, ``requires_env`` of its plugin.yaml, ``<NAME>_*``, and what
        ``memory.<name>.env`` lists; nothing else. What of it is not set here is empty.
        """
        prefixes = tuple(variable_of(name, "") for name in self._names)
        named = {*_texts(self._section.get("env")), *(field.variable for field in fields)}
        named |= {*_texts(self._pin.get("env"))}  # what it declared when it was enabled
        named |= {*_texts(manifest_of(self._info).get("requires_env"))}
        for each in self.secrets.names():
            if each.variable.startswith(prefixes) or self._info.is_called(each.provider):
                named.add(each.variable)
        named |= {name for name in os.environ if name.startswith(prefixes) and is_ours(name)}
        found = {}
        for name in sorted(named):
            try:
                secret = self.secrets.get(name, self._info.name)
            except SecretsError:
                secret = None  # said where the field's value is looked for
            found[name] = "" if secret is None else secret.value
        return found


def secrets_in(
    fields: Sequence[Field], settings: Settings | None, environment: Mapping[str, str]
) -> frozenset[str]:
    """The values that must not be shown."""
    declared = {field.variable for field in fields if not field.secret}
    found = {value for name, value in environment.items() if name not in declared}
    values = settings.values if settings is not None else {}
    found |= {str(values[each.key]) for each in fields if each.secret and each.key in values}
    return frozenset(found)


def section_of(config: Config, *names: str) -> tuple[str, Mapping[str, Any]]:
    """A provider's part of config.yaml: its key as it is spelt there, and what it has."""
    return _entry(config.memory, *names)


def _entry(section: object, *names: str) -> tuple[str, Mapping[str, Any]]:
    """What a mapping has for a provider, however its name is spelt there."""
    entries = section.items() if isinstance(section, Mapping) else ()
    for name in names:
        for key, value in entries:
            if normalise(str(key)) == normalise(name) and isinstance(value, Mapping):
                return str(key), value
    return names[0], {}


def _own_file(home: Path, *names: str) -> tuple[Path | None, Mapping[str, Any]]:
    """What a provider keeps where hermes-agent's providers do."""
    places = [(home / f"{name}.json", home / name / "config.json") for name in names]
    for path in (path for pair in places for path in pair):
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
