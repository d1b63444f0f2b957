"""A provider's settings: every value, from the first source that has it.

The sources, in this order: an argument, the process's environment, ``.env``, the keyring,
config.yaml, the provider's own file, what the provider itself reports (``own_settings``), the
default.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hermes_core.config import Config, PluginFacts
from hermes_core.config.environment import claimed_names, is_ours
from hermes_core.config.fields import (
    Field,
    FieldProblem,
    Settings,
    Value,
    active_fields,
    in_order,
    repeated_keys,
    validate_values,
    variable_of,
)
from hermes_core.config.grants import Grants, grant_hint
from hermes_core.config.names import normalise
from hermes_core.dispatch import Deadlines, SingleProvider
from hermes_core.errors import (
    HermesError,
    ProviderUnavailableError,
    SecretsError,
    WrongReturnType,
    describe,
)
from hermes_core.provider import MemoryProvider
from hermes_core.secrets import Secrets
from hermes_core.storage.files import read_regular

if TYPE_CHECKING:
    from hermes_core.discovery import ProviderInfo


_STORES: Final = {"dotenv": ".env", "keyring": "keyring"}
_OWN_FILE_BYTES: Final = 1_000_000

#: Files, each with its values by the keys of fields; the first file that has a value counts.
OwnSettings: TypeAlias = tuple[tuple[str, Mapping[str, Any]], ...]


class ProviderConfigError(HermesError):
    """A provider's settings are not valid; ``problems`` has a line for each."""

    def __init__(self, name: str, problems: Sequence[FieldProblem]) -> None:
        self.problems = tuple(map(str, problems))
        super().__init__(
            f"its settings are not valid: {'; '.join(self.problems)}",
            where=f"plugin {name}",
            hint=f"run: hermes-plugins setup {name}",
        )


class Sources:
    """Where the settings of one provider come from.

    Args:
        config: What config.yaml says.
        info: The provider as it was found.
        manifest: Its plugin.yaml, or {}.
        arguments: Values that override every other source.
    """

    def __init__(
        self,
        config: Config,
        info: ProviderInfo,
        manifest: Mapping[str, Any],
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self._info = info
        self._manifest = manifest
        self._arguments = arguments or {}
        self.secrets = Secrets(config.home, config.secrets_backend)
        self._facts = config.selection.facts.get(info.key, PluginFacts())
        #: The name that it is listed under, and the one that it calls itself.
        # Settings may be below either name; the listed one is asked first.
        self._names = tuple(dict.fromkeys((info.name, info.facts.provider or info.name)))
        self._section_key, self._section = section_of(config, *self._names)
        self._file, self._in_file = _own_file(config.home, *self._names)
        #: Which variables the provider may have.
        self.grants = Grants(config, info, self.secrets, _texts(self._section.get("env")))
        #: What the provider itself reports; set once it is loaded.
        self.reported: OwnSettings = ()

    @property
    def where(self) -> str:
        """What the settings are called in config.yaml."""
        return f"memory.{self._section_key}"

    def settings(self, fields: Sequence[Field]) -> Settings:
        """The values of all fields, and what is wrong with them."""
        return self.validated(fields, *self.found(fields))

    def found(
        self, fields: Sequence[Field], answers: Mapping[str, Value] | None = None
    ) -> tuple[dict[str, Value], dict[str, FieldProblem]]:
        """What there is for each field, whether or not it applies; and what can't be read.

        Of several fields with one key only the one in force is looked for: each may have a
        different variable.

        Args:
            fields: What to look for.
            answers: Values that override every source.
        """
        given = dict(answers or {})
        unread: dict[str, FieldProblem] = {}
        several = repeated_keys(fields)
        # In order, so that what decides which of several fields is in force is found first.
        for field in in_order(fields):
            if field.key in given or field.key in unread:
                continue
            # Validated again per field, since each value found may switch another field on. Lists
            # are short, and this is only for keys that are listed more than once.
            if field.key in several and not field.applies(
                validate_values(fields, given, "").values
            ):
                continue
            try:
                # A keyring that is locked is not "no value": a default must not silently take its
                # place.
                found = self._find(field)
            except SecretsError as error:
                name = f"{self.where}.{field.key}"
                unread[field.key] = FieldProblem(name, error.what, hint=error.hint)
                continue
            if found is not None:
                given[field.key] = found
            elif field.required and self.grants.is_withheld(field.variable):
                unread[field.key] = self._not_granted(field)
        return given, unread

    def _not_granted(self, field: Field) -> FieldProblem:
        hint = grant_hint(self._info.name, [field.variable])
        cause = f"{field.variable} is set, but not granted to {self._info.name}"
        return FieldProblem(f"{self.where}.{field.key}", cause, hint=hint)

    def validated(
        self,
        fields: Sequence[Field],
        given: Mapping[str, Value],
        unread: Mapping[str, FieldProblem],
    ) -> Settings:
        """Values that were found, made ready; one that could not be read is not missing."""
        validated = validate_values(fields, given, self.where)
        problems = [
            unread[field.key]
            for field in active_fields(fields, validated.values)
            if field.key in unread
            and field.key not in given
            and field.key not in validated.values  # a default takes the place of what is withheld
            and field.applies(validated.values)
        ]
        unknown = {problem.field for problem in problems}
        rest = [problem for problem in validated.problems if problem.field not in unknown]
        return validated._replace(problems=(*problems, *rest))

    def _find(self, field: Field) -> Value | None:
        if field.key in self._arguments:
            return Value(self._arguments[field.key], "argument")
        # The process's environment (`_inherited`), then .env and the keyring (`Secrets.get`).
        stored = self._variable(field)
        if stored is not None:
            return stored
        if self._section.get(field.key) not in (None, ""):
            return Value(self._section[field.key], f"config.yaml ({self.where}.{field.key})")
        if self._in_file.get(field.key) not in (None, ""):
            return Value(self._in_file[field.key], str(self._file))
        reported = (
            Value(values[field.key], path) for path, values in self.reported if field.key in values
        )
        return next((each for each in reported if each.value not in (None, "")), None)

    def is_in_file(self, field: Field, value: Value) -> bool:
        """Whether a value is the one of config.yaml or the provider's own file."""
        # Every source that is a variable ends its origin like this; files have no variable.
        return value.origin != "argument" and not value.origin.endswith(f"({field.variable})")

    def _variable(self, field: Field) -> Value | None:
        """The value of its variable, in the process or in a store, if it may have that."""
        if not self.grants.allows(field.variable):
            return None
        inherited = self._inherited(field)
        if inherited is not None:
            return inherited
        secret = self.secrets.get(field.variable, self._info.name)
        if secret is not None and secret.value:
            return Value(secret.value, f"{_STORES[secret.store]} ({field.variable})")
        return None

    def _inherited(self, field: Field) -> Value | None:
        value = os.environ.get(field.variable, "")
        # What we set ourselves came from .env or the keyring: its origin has to be that store, and
        # another home in this process must not see it.
        if not value or is_ours(field.variable):
            return None
        return Value(value, f"environment ({field.variable})")

    def stronger(self, field: Field, value: Any) -> str:
        """The source of another value that overrides what is written for a field."""
        try:
            found = self._inherited(field) if field.secret else self._variable(field)
        except SecretsError:
            return ""  # reported where the field's value is looked up
        if found is None:
            return ""
        # Compared after coercion: "10" in the environment is the same as 10 in config.yaml.
        same = validate_values([field._replace(when={})], {field.key: found}, "").values.get(
            field.key
        )
        return "" if same == value else found.origin

    def exposed(self, fields: Iterable[Field]) -> list[str]:
        """Return a warning for each secret that is in plain text in a file of settings."""
        files = (("config.yaml", self._section), (str(self._file), self._in_file), *self.reported)
        found = []
        for field in (each for each in fields if each.secret):
            place = next((path for path, values in files if values.get(field.key)), "")
            if place:
                found.append(
                    f"{field.key} is in plain text in {place}; "
                    f"run hermes-plugins secrets set {field.variable}, then remove it there"
                )
        return found

    def environment(self, fields: Sequence[Field] = ()) -> dict[str, str]:
        """What the provider finds in its environment, from ``.env`` and the keyring.

        That is what it declares and may have, what was stored for it or granted to it, and what
        ``memory.<name>.env`` lists; nothing else. What of it is not set here is empty.
        """
        named = {*_texts(self._section.get("env")), *self.grants.stored()}
        named |= {*self._declared(fields)}
        # Variables that another manager of this process set: listed here, they become empty for
        # this provider, or a conflict, instead of leaking from one home into another.
        prefixes = tuple(variable_of(name, "") for name in self._names)
        named |= {name for name in claimed_names() if name.startswith(prefixes)}
        return {name: self._stored_value(name) for name in sorted(named)}

    @property
    def held(self) -> frozenset[str]:
        """What stays set between the provider's calls: a person listed it for that."""
        return frozenset(_texts(self._section.get("env")))

    def _stored_value(self, variable: str) -> str:
        """What a store has for a variable; "" if it has nothing, or not for this provider."""
        if not self.grants.allows(variable):
            return ""
        try:
            secret = self.secrets.get(variable, self._info.name)
        except SecretsError:
            return ""  # reported where the field's value is looked up
        return "" if secret is None else secret.value

    def _declared(self, fields: Iterable[Field]) -> set[str]:
        """The variables that it asks for, now or when it was enabled."""
        needed = _texts(self._manifest.get("requires_env"))
        return {*needed, *self._facts.env, *(field.variable for field in fields)}

    def withheld(self, fields: Sequence[Field], values: Mapping[str, Any]) -> list[str]:
        """The variables that have a value and are not granted: what applies of what it declares."""
        current = [each for each in active_fields(fields, values) if each.applies(values)]
        others = {field.variable for field in fields} - {field.variable for field in current}
        return self.grants.withheld(self._declared(current) - others)

    def undeclared(self, fields: Iterable[Field]) -> list[str]:
        """What .env has below the provider's name and nobody declares: not passed to it either."""
        known = {*self._declared(fields), *_texts(self._section.get("env"))}
        return sorted(self.grants.below_name() - self.grants.stored() - known)


def secrets_in(
    fields: Sequence[Field], settings: Settings | None, environment: Mapping[str, str]
) -> frozenset[str]:
    """The values that must not be shown."""
    values = settings.values if settings is not None else {}
    current = active_fields(fields, values)
    secret = {field.variable for field in current if field.secret}
    # What no field declares may be a secret, so all of it is treated as one. A declared field that
    # is not secret (a URL, a user name) stays readable in logs.
    declared = {field.variable for field in fields if not field.secret} - secret
    found = {value for name, value in environment.items() if name not in declared}
    found |= {str(values[each.key]) for each in current if each.secret and each.key in values}
    return frozenset(found)


def section_of(config: Config, *names: str) -> tuple[str, Mapping[str, Any]]:
    """A provider's part of config.yaml: its key as it is spelt there, and what it has."""
    return _entry(config.memory, *names)


def _entry(section: object, *names: str) -> tuple[str, Mapping[str, Any]]:
    """What a mapping has for a provider, however its name is spelt there."""
    entries = section.items() if isinstance(section, Mapping) else ()
    # Names outside: an entry under the listed name wins over one under its own name.
    for name in names:
        for key, value in entries:
            if normalise(str(key)) == normalise(name) and isinstance(value, Mapping):
                return str(key), value
    return names[0], {}


def _own_file(home: Path, *names: str) -> tuple[Path | None, Mapping[str, Any]]:
    """What a provider keeps where hermes-agent's providers do."""
    # Both layouts exist among hermes-agent's providers: NAME.json and NAME/config.json.
    places = [(home / f"{name}.json", home / name / "config.json") for name in names]
    for path in (path for pair in places for path in pair):
        try:
            data = json.loads(read_regular(path, _OWN_FILE_BYTES))
            if isinstance(data, dict):
                return path, data
        # The file is the provider's business: if it is damaged, the provider reports that.
        except (OSError, ValueError, RecursionError):
            continue
    return None, {}


def _texts(value: object) -> list[str]:
    """Names of variables: strings, or mappings with a name."""
    entries = value if isinstance(value, list | tuple) else [value]
    names = [each.get("name") if isinstance(each, Mapping) else each for each in entries]
    return [name for name in names if isinstance(name, str) and name]


def own_settings_of(
    provider: MemoryProvider, name: str, home: Path, deadlines: Deadlines
) -> OwnSettings:
    """Return what a provider's ``own_settings`` returns, or () if it has no such method.

    Raises:
        HermesError: The call failed, or the provider reports that a file is invalid.
    """
    with SingleProvider(provider, name, deadlines=deadlines, home=home) as single:
        outcome = single.call("own_settings", hermes_home=str(home))
    error = outcome.error
    # A provider raises one to say what is wrong in its file: its words are better than ours.
    if isinstance(error, HermesError) and not isinstance(error, WrongReturnType):
        raise error
    if error is None:
        try:
            return tuple((str(path), dict(values)) for path, values in outcome.value)
        except Exception as caught:  # noqa: BLE001 - the plugin's objects may do anything
            error = caught
    raise ProviderUnavailableError(
        f"own_settings failed: {describe(error)}",
        where=f"plugin {name}",
        hint="This is a bug in the plugin. Please report it to its author.",
    ) from error
