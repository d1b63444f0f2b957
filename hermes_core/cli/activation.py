"""`enable`, `disable` and `status`: which external provider runs, and whether it does."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from hermes_core.activation import chosen
from hermes_core.cli._output import paint, print_json
from hermes_core.cli.listing import as_json, complete_name
from hermes_core.config import Config, Selection, load_config
from hermes_core.config.writing import DELETE, change_config
from hermes_core.discovery import ProviderInfo, find_provider, pin_of, scan
from hermes_core.errors import ConfigError, HermesError
from hermes_core.home import resolve_home
from hermes_core.names import BUILTIN, normalise, split_choice
from hermes_core.trial import Trial, try_activation


@click.command("enable")
@click.argument("name", shell_complete=complete_name)
@click.option("--force", is_flag=True, help="Enable it even if it does not work now.")
@click.pass_context
def enable_command(ctx: click.Context, name: str, force: bool) -> None:
    """Make NAME the external memory provider, after trying that it works.

    NAME may be name@owner, where two packages claim one name.
    """
    config = load_config(resolve_home(ctx.obj))
    info = find_provider(name, scan(config.home, Selection(), everything=True))
    if info.source == BUILTIN:
        click.echo("builtin is always active; nothing was changed.")
        return
    choice = _choice(name, info)
    trial = try_activation(config, choice)
    if trial.error and not force:
        if ctx.find_root().params["debug"]:
            click.echo(trial.traceback, err=True)
        raise HermesError(trial.error, hint="nothing was changed; --force enables it all the same")
    _write_choice(config, choice, info)
    before = config.selection.name
    if before and normalise(before) != info.key:
        click.echo(f"{info.name} replaces {before}.")
    click.echo(
        f"{info.name} is enabled{f' (it does not work now: {trial.error})' if trial.error else ''}."
    )


def _choice(name: str, info: ProviderInfo) -> str:
    """What goes into memory.provider: with its owner if a person had to name it."""
    return f"{info.name}@{info.owner}" if split_choice(name)[1] else info.name


def _write_choice(config: Config, choice: str, info: ProviderInfo) -> None:
    pin = {key: value for key, value in asdict(pin_of(info)).items() if value}
    changes: dict[tuple[str, ...], Any] = {("memory", "provider"): choice}
    changes |= _without_pins(config, keep=info.key)
    changes["memory", "pins", _pin_key(config, info)] = pin
    change_config(config.home, changes)


def _pin_key(config: Config, info: ProviderInfo) -> str:
    """The key of an existing pin, however it is spelt there, else the name."""
    for key in config.memory.get("pins") or {}:
        if normalise(str(key)) == info.key:
            return str(key)
    return info.name


def _without_pins(config: Config, keep: str = "") -> dict[tuple[str, ...], Any]:
    """Only what is enabled is pinned: forget the others."""
    return {
        ("memory", "pins", str(key)): DELETE
        for key in config.memory.get("pins") or {}
        if normalise(str(key)) != keep
    }


@click.command("disable")
@click.argument("name", required=False, shell_complete=complete_name)
@click.pass_context
def disable_command(ctx: click.Context, name: str | None) -> None:
    """Go on without an external provider. The built-in stays."""
    if name and normalise(name) == BUILTIN:
        raise HermesError(
            "the built-in can't be disabled: it keeps the notes and conversations that an "
            "external provider only adds to"
        )
    config = load_config(resolve_home(ctx.obj))
    active = config.selection.name
    if name and normalise(split_choice(name)[0]) != normalise(active):
        now = f"{active} is" if active else "none is"
        raise HermesError(f"{name} is not active, {now}; nothing was changed")
    if not active:
        click.echo("no external provider is active; nothing was changed.")
        return
    change_config(config.home, {("memory", "provider"): "", **_without_pins(config)})
    click.echo(f"{active} is disabled. Its own data was not touched.")


@click.command("status")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def status_command(ctx: click.Context, json_wanted: bool) -> None:
    """Say what is active and whether it works; exit code 1 if it does not."""
    home = resolve_home(ctx.obj)
    report = _report(home)
    if json_wanted:
        print_json(**report)
    else:
        _print_report(report)
    if not report["ok"]:
        ctx.exit(1)


def _report(home: Path) -> dict[str, Any]:
    problems: list[str] = []
    warnings: list[str] = []
    config = Config(home)
    try:
        config = load_config(home)
        warnings += config.warnings
    except ConfigError as error:
        problems += error.problems
    provider = _provider_report(config, problems, warnings) if config.selection.name else None
    return {
        "ok": not problems,
        "home": str(home),
        "config": str(config.path) if config.path.exists() else "",
        "builtin": as_json(find_provider(BUILTIN, scan(home, config.selection))),
        "provider": provider,
        "observers": list(config.observers),
        "problems": problems,
        "warnings": warnings,
    }


def _provider_report(config: Config, problems: list[str], warnings: list[str]) -> dict[str, Any]:
    report: dict[str, Any] = {"name": config.selection.name, "active": False}
    trial = Trial()
    try:
        info = chosen(config)
        if info is not None:
            report.update(as_json(info))
        trial = try_activation(config)
    except HermesError as error:
        trial = Trial(error=str(error))
    if trial.error:
        problems.append(trial.error)
    if trial.warning:
        warnings.append(f"{report['name']} {trial.warning}")
    report.update(loaded=trial.loaded, available=not trial.error, active=not trial.error)
    return report


def _print_report(report: dict[str, Any]) -> None:
    provider = report["provider"]
    config = report["config"] or "none (that is fine)"
    click.echo(f"home:      {report['home']}")
    click.echo(f"config:    {config}")
    click.echo(f"built-in:  {paint('active', 'active')}, always")
    if provider is None:
        click.echo("external:  none")
    else:
        works = (
            paint("works", "active") if provider["available"] else paint("does not work", "broken")
        )
        version = f" {provider['version']}" if provider.get("version") else ""
        owner = f" ({provider['distribution']}{version})" if provider.get("distribution") else ""
        click.echo(f"external:  {provider['name']}{owner}, {works}")
    for label in ("observers", "warnings", "problems"):
        for line in report[label]:
            click.echo(f"{label[:-1] + ':':10} {line}")
