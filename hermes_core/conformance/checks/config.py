"""Configuration: the settings that a plugin asks for, and how it stores them."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from hermes_core.config.fields import Field, SchemaError, read_fields
from hermes_core.conformance._context import CheckContext
from hermes_core.conformance._watch import holding, shared_with_others
from hermes_core.conformance.model import MUST, SHOULD, CheckFailure, CheckSkip, check


@check(
    "HP401",
    MUST,
    "`get_config_schema` is valid",
    fix="Return a list of mappings, each with a `key`. Defaults must have the field's type and "
    "be one of its choices. `when` and `default_from` name other fields.",
)
def schema_is_sound(context: CheckContext) -> None:
    """`setup` asks for these fields and validates the answers against them. A plugin with an
    invalid schema can't be set up.
    """
    driver = context.driver()
    raw = driver.call("get_config_schema")
    try:
        read_fields(raw if raw is not None else (), context.info.name)
    except SchemaError as error:
        # Without our own introduction, which names the method that `where` has.
        happened = error.what.partition("malformed: ")[2] or error.what
        raise CheckFailure(happened, where=driver.where("get_config_schema")) from error


@check(
    "HP402",
    SHOULD,
    "Every field has a description",
    fix="Add `description`: one line that says what the field is for.",
)
def fields_are_described(context: CheckContext) -> None:
    """`setup` shows it next to the question. A bare key means little to anyone but the author."""
    silent = [each.key for each in context.plugin.fields if not each.description.strip()]
    if silent:
        where = context.driver().where("get_config_schema")
        raise CheckFailure(f"no description for {', '.join(silent)}", where=where)


@check(
    "HP403",
    MUST,
    "Settings can be stored: by `save_config`, or by `env_var` on every field",
    fix="Override `save_config`, or set `env_var` on every field.",
)
def settings_have_a_place(context: CheckContext) -> None:
    """Other hosts do not store settings for a plugin. They call `save_config` or set the
    environment variables. With neither, the answers are lost.
    """
    driver = context.driver()
    raw = driver.ask("get_config_schema").value
    if driver.has("save_config") or not isinstance(raw, list | tuple):
        return
    # Secrets are left out: every host stores those.
    plain = [each for each in raw if isinstance(each, dict) and not each.get("secret")]
    homeless = [str(each.get("key")) for each in plain if not each.get("env_var")]
    if homeless:
        happened = f"{', '.join(homeless)} has no env_var, and there is no save_config"
        raise CheckFailure(happened, where=driver.where("get_config_schema"))


@check(
    "HP404",
    MUST,
    "`save_config` stores all values below the home",
    fix="Write all values to `<hermes_home>/<name>/config.json` on every call.",
)
def settings_are_kept(context: CheckContext) -> None:
    """The values are the user's answers. When one of them changes, the host saves all of them
    again. The new value and the unchanged ones must all be stored.
    """
    driver = context.driver()
    if not driver.has("save_config"):
        return
    values, words = _sample(context.plugin.fields)
    if driver.ask("save_config", dict(values), str(context.home)).error is not None:
        # It may validate its values. Those from its author must be accepted.
        driver.call("save_config", context.likely_settings(), str(context.home))
        raise CheckSkip("it rejects the kit's sample values and accepts the configured ones")
    changed, later = _sample(context.plugin.fields)
    driver.call("save_config", dict(changed), str(context.home))
    for key, word in later.items():
        if not holding(context.home, word):
            # Distinguishes "written only once" from "never written".
            old = " (the first value is stored)" if holding(context.home, words[key]) else ""
            raise CheckFailure(
                f"{key} is not in any file below hermes_home after the second call{old}",
                where=driver.where("save_config"),
            )


def _sample(fields: tuple[Field, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return values for all fields that are not secret, and the texts to search for."""
    values: dict[str, Any] = {}
    words: dict[str, str] = {}
    for each in fields:
        if each.secret:
            continue
        # Their values are not unique, so they can't be searched for: they are stored along.
        if each.choices or each.type != "text" or _is_number(each.default):
            values[each.key] = _typical(each)
            continue
        word = words[each.key] = f"kit{secrets.token_hex(6)}"
        # .invalid never resolves (RFC 2606), should the plugin try to connect.
        values[each.key] = f"http://{word}.invalid" if _is_address(each) else word
    return values, words


def _is_number(default: Any) -> bool:
    """Return whether a field without a type expects a number, which a plugin may correct."""
    if isinstance(default, str):
        return default.replace(".", "", 1).isdigit()
    return isinstance(default, int | float)


def _is_address(field: Field) -> bool:
    """Return whether a field expects a URL, which plugins validate more than other texts."""
    about = f"{field.key} {field.description}".lower()
    return "url" in about or "endpoint" in about or "://" in str(field.default)


def _typical(field: Field) -> Any:
    if field.default is not None:
        return field.default
    if field.choices:
        return field.choices[0]
    if field.type in ("boolean", "list"):
        return True if field.type == "boolean" else ["kit"]
    number = field.minimum if field.minimum is not None else min(1, field.maximum or 1)
    return int(number) if field.type == "integer" else number


@check(
    "HP405",
    MUST,
    "No secret is written to disk",
    fix="Keep secrets in memory only. Do not write, log or cache fields with `secret: True`: the"
    " host stores them.",
)
def secrets_stay_secret(context: CheckContext) -> None:
    """Secrets are stored in the keyring or in a private `.env`. A copy in a plugin's file gets into
    every backup and remains when the key changes. The kit sets a unique value for each secret
    field, runs a whole session, and searches every file for it.
    """
    secret = {each.key: each for each in context.plugin.fields if each.secret}
    values = {key: os.environ.get(each.variable, "") for key, each in secret.items()}
    given = {key: context.options.config.get(key) or value for key, value in values.items()}
    # A real key of the author, if given: the plugin may check its form. Else one that looks like a
    # key.
    made = {key: value or f"sk-kit-{secrets.token_hex(8)}" for key, value in given.items()}
    # In the environment as well as in the settings: plugins read either.
    os.environ.update({secret[key].variable: str(value) for key, value in made.items()})
    driver = context.driver()
    if driver.has("save_config"):
        # What a user would save: made-up words could make the plugin unavailable.
        driver.ask("save_config", context.likely_settings(), str(context.home))
    context.start(driver, provider_config=context.settings(made))
    context.live_through(driver)
    driver.shut()
    for key, value in made.items():
        # Everywhere that the plugin could write without knowing the home.
        places = (context.home, context.plugin.user, Path.cwd(), Path(tempfile.gettempdir()))
        found = [file for place in places for file in holding(place, str(value))]
        if found:
            raise CheckFailure(
                f"the value of {key} is in {found[0].name}", where=driver.where("save_config")
            )


@check(
    "HP406",
    MUST,
    "Only the owner can read what `save_config` writes",
    fix="Create the file with mode 0600: `os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)`.",
)
def settings_are_private(context: CheckContext) -> None:
    """Settings contain server names, accounts and habits. On a shared machine, other users can read
    a file with mode 0644.
    """
    driver = context.driver()
    if not driver.has("save_config"):
        return
    driver.ask("save_config", _sample(context.plugin.fields)[0], str(context.home))
    exposed = shared_with_others(context.home)
    if exposed:
        where = driver.where("save_config")
        raise CheckFailure("; ".join(exposed[:3]), expected="mode 0600", where=where)
