"""`config`: what the settings are, where each comes from, and changing one."""

from __future__ import annotations

from typing import Any

import click

from hermes_core.cli._output import plain, print_json, say
from hermes_core.cli.activation import recovered_config, setting_text
from hermes_core.config import Config, load_config
from hermes_core.config.writing import change_config
from hermes_core.errors import HermesError
from hermes_core.names import MEMORY_KEYS, normalise
from hermes_core.secrets import Secrets
from hermes_core.setting_up import Journal, commit
from hermes_core.settings import section_of
from hermes_core.trial import Trial, try_configured, try_provider, try_setting

_HIDDEN = ("pins", "provider")


@click.group("config")
def config_command() -> None:
    """Show and change settings."""


@config_command.command("show")
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def show(ctx: click.Context, origin: bool, json_wanted: bool) -> None:
    """Print every setting; a secret only as being set."""
    config = recovered_config(ctx)
    trial = try_configured(config) if config.selection.name else Trial()
    rows = [*_own(config), *_of_provider(config, trial)]
    unknown = trial.problems if not trial.provider_name and not trial.settings else ()
    if json_wanted:
        print_json(settings=rows, problems=list(unknown))
    else:
        _print_rows(rows, origin=origin)
    for problem in unknown:
        click.echo(f"the provider's settings are not known: {problem}", err=True)
    if unknown:
        ctx.exit(1)


def _print_rows(rows: list[dict[str, Any]], *, origin: bool) -> None:
    for row in rows:
        text = setting_text(row)
        value, _, where = text.partition("  (")
        shown = f"{value}  ({where}" if origin and where else value
        say(f"{row['name']}: {shown}")


def _own(config: Config) -> list[dict[str, Any]]:
    rows = [_row("memory.provider", config.selection.choice or "", "config.yaml")]
    rows += [
        _row(f"memory.{key}", config.memory[key], "config.yaml")
        for key in MEMORY_KEYS
        if key not in _HIDDEN and config.memory.get(key) is not None
    ]
    rows.append(_row("secrets.backend", config.secrets_backend, "config.yaml"))
    if config.secrets_backend == "auto":
        rows[-1]["origin"] = "default"
    if not config.selection.choice:
        rows[0]["origin"] = "default"
    return rows


def _row(name: str, value: Any, origin: str) -> dict[str, Any]:
    return {
        "name": name, "key": name.rpartition(".")[2], "value": value, "origin": origin,
        "secret": False, "set": True, "problem": "", "url": "",
    }  # fmt: skip


def _of_provider(config: Config, trial: Trial) -> list[dict[str, Any]]:
    section, _ = section_of(config, config.selection.name)
    return [{"name": f"memory.{section}.{row['key']}", **row} for row in trial.settings]


@config_command.command("set")
@click.argument("key")
@click.argument("value")
@click.pass_context
def set_value(ctx: click.Context, key: str, value: str) -> None:
    """Set KEY (such as memory.nudge_interval) to VALUE, after checking it."""
    config = recovered_config(ctx)
    path = tuple(key.split("."))
    if path[0] == "secrets" and path[1:] == ("backend",):
        _change(config, path, value)
    elif path[0] == "memory" and len(path) == 2:  # noqa: PLR2004
        _set_own(config, path, value)
    elif path[0] == "memory" and len(path) == 3:  # noqa: PLR2004
        _set_of_provider(config, path[1], path[2], value)
    else:
        raise click.UsageError(
            f"{plain(key)} is no setting of ours: say memory.KEY or memory.PROVIDER.KEY."
        )


def _set_own(config: Config, path: tuple[str, ...], value: str) -> None:
    if path[1] not in MEMORY_KEYS or path[1] == "pins":
        raise click.UsageError(f"{'.'.join(path)} is no setting; see docs/configuration.md.")
    if path[1] == "provider":
        raise click.UsageError("Run hermes-plugins enable, which tries the provider first.")
    _change(config, path, _scalar(value))


def _change(config: Config, path: tuple[str, ...], value: Any) -> None:
    """Change one value, unless the file would not be valid then."""
    change_config(config.home, {path: value}, valid=True)
    say(f"{'.'.join(path)} is {plain(str(value))} now.")


def _scalar(text: str) -> Any:
    from hermes_core.yamltext import parse  # noqa: PLC0415

    value = parse(text)[1]
    return value if isinstance(value, str | int | float | bool | list) else text


def _set_of_provider(config: Config, name: str, key: str, value: str) -> None:
    choice = (
        config.selection.choice if normalise(name) == normalise(config.selection.name) else name
    )
    answer = try_setting(config, choice, key, value)
    if answer.problems:
        raise HermesError(answer.problems[0], hint="nothing was changed")
    (row,) = answer.settings
    section, _ = section_of(config, name)
    changes = [(("memory", section, key), row["value"])]
    secrets = Secrets(config.home, config.secrets_backend)
    commit(config.home, secrets, Journal(name, changes, []), {})
    try_provider(load_config(config.home), choice)  # which lets it keep the value itself
    say(f"memory.{section}.{key} is {plain(str(row['value']))} now.")
    for stronger in answer.warnings:
        click.echo(f"warning: another value counts more, from {stronger}", err=True)
