"""Configuration: what a plugin asks for, and how it keeps the answers."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from hermes_core.conformance._bench import Bench
from hermes_core.conformance._files import holding, shared_with_others
from hermes_core.conformance._model import MUST, SHOULD, Failed, Skipped, check
from hermes_core.schema import Field, SchemaError, read_fields


@check(
    "HP401",
    MUST,
    "`get_config_schema` is well-formed",
    fix="Give a list of mappings with a `key` each; defaults must be of their type and among the "
    "choices; `when` and `default_from` name other fields.",
)
def schema_is_sound(bench: Bench) -> None:
    """`setup` asks these questions and checks the answers against them. A plugin whose list is
    malformed can't be set up at all.
    """
    driver = bench.driver()
    raw = driver.call("get_config_schema")
    try:
        read_fields(raw if raw is not None else (), bench.info.name)
    except SchemaError as error:
        happened = error.what.partition("malformed: ")[2] or error.what
        raise Failed(happened, where=driver.where("get_config_schema")) from error


@check(
    "HP402",
    SHOULD,
    "Every field has a description",
    fix="Add `description`: one line that says what it is for.",
)
def fields_are_described(bench: Bench) -> None:
    """`setup` shows it beside the question. A bare key is a riddle to whoever did not write the
    plugin.
    """
    silent = [each.key for each in bench.stage.fields if not each.description.strip()]
    if silent:
        where = bench.driver().where("get_config_schema")
        raise Failed(f"there is none for {', '.join(silent)}", where=where)


@check(
    "HP403",
    MUST,
    "Settings have a place: `save_config`, or `env_var` on every field",
    fix="Override `save_config`, or give every field an `env_var`.",
)
def settings_have_a_place(bench: Bench) -> None:
    """Other hosts keep no settings for a plugin: they call `save_config`, or set the variables.
    With neither, answers are asked for and lost.
    """
    driver = bench.driver()
    raw = driver.ask("get_config_schema").value
    if driver.has("save_config") or not isinstance(raw, list | tuple):
        return
    plain = [each for each in raw if isinstance(each, dict) and not each.get("secret")]
    homeless = [str(each.get("key")) for each in plain if not each.get("env_var")]
    if homeless:
        happened = f"{', '.join(homeless)} has no env_var, and there is no save_config"
        raise Failed(happened, where=driver.where("get_config_schema"))


@check(
    "HP404",
    MUST,
    "What `save_config` is given is stored below the home",
    fix="Write the values to `<hermes_home>/<name>/config.json`, all of them, each time.",
)
def settings_are_kept(bench: Bench) -> None:
    """The values are a person's answers. They are saved again when one of them changes: the new one
    has to be there, the other ones too.
    """
    driver = bench.driver()
    if not driver.has("save_config"):
        return
    values, words = _sample(bench.stage.fields)
    if driver.ask("save_config", dict(values), str(bench.home)).error is not None:
        # It may be particular about its values. Those that its author gave must do.
        driver.call("save_config", bench.likely_settings(), str(bench.home))
        raise Skipped("it refuses the kit's values, and takes its own: which is fine")
    changed, later = _sample(bench.stage.fields)
    driver.call("save_config", dict(changed), str(bench.home))
    for key, word in later.items():
        if not holding(bench.home, word):
            old = " (the first value is there)" if holding(bench.home, words[key]) else ""
            raise Failed(
                f"{key} is in no file below hermes_home after the second call{old}",
                where=driver.where("save_config"),
            )


def _sample(fields: tuple[Field, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values for all fields that are no secrets; and the texts to look for."""
    values: dict[str, Any] = {}
    words: dict[str, str] = {}
    for each in fields:
        if each.secret:
            continue
        if each.choices or each.type != "text":
            values[each.key] = _typical(each)
            continue
        word = words[each.key] = f"kit{secrets.token_hex(6)}"
        values[each.key] = f"http://{word}.invalid" if _is_address(each) else word
    return values, words


def _is_address(field: Field) -> bool:
    """Whether a field wants a URL, which plugins look at more closely than at other texts."""
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
    "No secret reaches the disk",
    fix="Keep secrets in memory only. Leave fields with `secret: True` out of what you write, log "
    "or cache: the host stores them.",
)
def secrets_stay_secret(bench: Bench) -> None:
    """Secrets live in the keyring or in a private `.env`. A copy in a plugin's own file is in every
    backup, and stays when the key is changed. The kit gives each secret field a value of its own,
    leads a whole session, and looks for it in every file.
    """
    secret = {each.key: each for each in bench.stage.fields if each.secret}
    values = {key: os.environ.get(each.variable, "") for key, each in secret.items()}
    given = {key: bench.options.config.get(key) or value for key, value in values.items()}
    made = {key: value or f"sk-kit-{secrets.token_hex(8)}" for key, value in given.items()}
    os.environ.update({secret[key].variable: str(value) for key, value in made.items()})
    driver = bench.driver()
    if driver.has("save_config"):
        driver.ask("save_config", _sample(bench.stage.fields)[0], str(bench.home))
    bench.start(driver, provider_config=bench.settings(made))
    bench.live_through(driver)
    driver.shut()
    for key, value in made.items():
        places = (bench.home, bench.stage.user, Path.cwd(), Path(tempfile.gettempdir()))
        found = [file for place in places for file in holding(place, str(value))]
        if found:
            raise Failed(
                f"the value of {key} is in {found[0].name}", where=driver.where("save_config")
            )


@check(
    "HP406",
    MUST,
    "What `save_config` writes is for its owner alone",
    fix="Create the file with mode 0600: `os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)`.",
)
def settings_are_private(bench: Bench) -> None:
    """Settings name servers, accounts and habits. On a shared machine others can read a file with
    mode 0644.
    """
    driver = bench.driver()
    if not driver.has("save_config"):
        return
    driver.ask("save_config", _sample(bench.stage.fields)[0], str(bench.home))
    exposed = shared_with_others(bench.home)
    if exposed:
        where = driver.where("save_config")
        raise Failed("; ".join(exposed[:3]), expected="mode 0600", where=where)
