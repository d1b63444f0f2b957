"""`enable`, `disable` and `status`: which external provider runs, and whether it does."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from hermes_core.cli._list import as_json
from hermes_core.cli._output import paint, plain, print_json, say
from hermes_core.cli._standing import print_standing, standing_as_json
from hermes_core.cli.listing import complete_name
from hermes_core.config import Config, Learnt, Selection, load_config
from hermes_core.config.writing import DELETE, change_config
from hermes_core.discovery import ProviderInfo, find_provider, pin_of, scan
from hermes_core.errors import ConfigError, HermesError
from hermes_core.home import resolve_home
from hermes_core.names import BUILTIN, normalise, split_choice
from hermes_core.redelivery import active_provider
from hermes_core.schema import variable_of
from hermes_core.setting_up import recover
from hermes_core.standing import Standing, standing
from hermes_core.trial import Trial, ask_service, try_configured, try_provider


def recovered_config(ctx: click.Context) -> Config:
    """config.yaml, after a set-up that was interrupted has been finished."""
    home = resolve_home(ctx.obj)
    recover(home)
    return load_config(home)


@click.command("enable")
@click.argument("name", shell_complete=complete_name)
@click.option("--force", is_flag=True, help="Enable it even if it does not work now.")
@click.pass_context
def enable_command(ctx: click.Context, name: str, force: bool) -> None:
    """Make NAME the external memory provider, after trying that it works.

    NAME may be name@owner, where two packages claim one name.
    """
    config = recovered_config(ctx)
    learnt = Selection(learnt=config.selection.learnt)
    info = find_provider(name, scan(config.home, learnt, everything=True))
    if info.source == BUILTIN:
        say("builtin is always active; nothing was changed.")
        return
    choice = choice_of(name, info)
    trial = try_provider(config, choice)
    if trial.problems and not force:
        if ctx.find_root().params["debug"]:
            click.echo(trial.traceback, err=True)
        raise HermesError(
            trial.problems[0], hint="nothing was changed; --force enables it all the same"
        )
    variables = [row["variable"] for row in trial.settings]
    learnt_now = Learnt(trial.own_name, trial.registers)
    change_config(config.home, choice_changes(config, choice, info, variables, learnt_now))
    before = config.selection.choice
    if before and not (normalise(before) == normalise(choice) or normalise(before) == info.key):
        say(f"{info.name} replaces {before}.")
    say(f"{info.name} is enabled.")
    if info.problem and info.state == "broken":
        say(f"Its {info.problem}.")
    for problem in trial.problems:
        say(f"It does not work yet: {problem}")


def choice_of(name: str, info: ProviderInfo) -> str:
    """What goes into memory.provider: with its owner if a person had to name it."""
    return f"{info.name}@{info.owner}" if split_choice(name)[1] else info.name


def choice_changes(
    config: Config, choice: str, info: ProviderInfo, variables: Iterable[str], learnt: Learnt
) -> dict[tuple[str, ...], Any]:
    """What to change in config.yaml to enable a provider that declares these variables."""
    if normalise(learnt.provider) == info.key:
        learnt = learnt._replace(provider="")
    pin: dict[str, Any] = {key: value for key, value in pin_of(info)._asdict().items() if value}
    # To be set before the plugin is imported, when nobody can ask it yet.
    prefix = variable_of(info.name, "")
    if others := sorted({each for each in variables if not each.startswith(prefix)}):
        pin["env"] = others
    pin |= {key: value for key, value in learnt._asdict().items() if value}
    changes: dict[tuple[str, ...], Any] = {("memory", "provider"): choice}
    changes |= _without_pins(config, keep=info.key)
    changes["memory", "pins", _pin_key(config, info)] = pin
    return changes


def prove(config: Config, info: ProviderInfo) -> bool:
    """Build a manager as an agent would, have the provider ask its service, and say the result."""
    trial = try_configured(config)
    refused = ask_service(config) if trial.provider_name else ""
    works = bool(trial.provider_name) and not refused
    if works:
        say(f"{info.name} is enabled, and works.")
    about = "but there is a problem" if works else f"{info.name} is enabled, but does not work yet"
    for problem in (*trial.problems, *filter(None, [refused])):
        click.echo(f"{about}: {problem}", err=True)
    return works


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
    config = recovered_config(ctx)
    active = config.selection.choice
    if name and not _is_meant(name, config.selection):
        now = f"{active} is" if active else "none is"
        raise HermesError(f"{name} is not active, {now}; nothing was changed")
    if not active:
        say("no external provider is active; nothing was changed.")
        return
    disable(config)
    say(f"{config.selection.name} is disabled. Its own data was not touched.")


def disable(config: Config) -> None:
    """Choose no external provider."""
    change_config(config.home, {("memory", "provider"): "", **_without_pins(config)})


def _is_meant(name: str, selection: Selection) -> bool:
    wanted, owner = split_choice(name)
    known = selection.learnt.get(normalise(selection.name), Learnt())
    if normalise(wanted) not in map(normalise, (selection.name, known.provider)):
        return False
    return not owner or not selection.owner or normalise(owner) == normalise(selection.owner)


@click.command("status")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def status_command(ctx: click.Context, json_wanted: bool) -> None:
    """Say what is active and whether it works; exit code 1 if it does not."""
    home = resolve_home(ctx.obj)
    with suppress(HermesError):  # said below, by the code that an agent runs
        recover(home)
    report, traceback = _report(home)
    if json_wanted:
        print_json(**report)
    else:
        _print_report(report)
    if traceback and ctx.find_root().params["debug"]:
        click.echo(traceback, err=True)
    if not report["ok"]:
        ctx.exit(1)


def _report(home: Path) -> tuple[dict[str, Any], str]:
    try:
        config = load_config(home)
    except ConfigError as error:
        config = Config(home)
        trial = Trial(problems=error.problems)
    else:
        # The same code as an agent runs, so that the two can't disagree.
        trial = try_configured(config)
    active = active_provider(config)
    stands = standing(config, active)
    # What was written lately says nothing of a service that is away now.
    refused = ask_service(config) if trial.provider_name and trial.probes else ""
    problems = [*trial.problems, *stands.problems, *filter(None, [refused])]
    report = {
        "ok": not problems,
        "home": str(home),
        "config": str(config.path) if config.path.exists() else "",
        "builtin": as_json(find_provider(BUILTIN, scan(home, config.selection))),
        "provider": _provider_report(config, trial, stands, answers=not refused)
        if config.selection.name
        else None,
        "observers": list(config.observers),
        "redact": config.redacts,
        **standing_as_json(stands, active),
        "problems": problems,
        "warnings": [*trial.warnings, *stands.warnings, *_foreign_keys(config)],
    }
    return report, trial.traceback


def _foreign_keys(config: Config) -> list[str]:
    """The keys of config.yaml that are not ours, in one line: hermes-agent has a dozen."""
    foreign = [each for each in config.warnings if each not in config.own_warnings]
    keys = ", ".join(each.split(": ")[1] for each in foreign)
    return [f"config.yaml: not ours, left alone: {keys}"] if keys else []


def _provider_report(
    config: Config, trial: Trial, stands: Standing, *, answers: bool
) -> dict[str, Any]:
    selection = config.selection
    found = scan(config.home, selection, everything=True)
    same = [each for each in found if each.key == normalise(selection.name)]
    same = [each for each in same if not selection.owner or each.owned_by(selection.owner)]
    report = as_json(same[0]) if same else {"name": selection.name, "state": "missing"}
    loads = bool(trial.provider_name)
    pin = selection.pin
    return {
        **report,
        "commit": same[0].commit if same else "",
        "active": loads,
        "works": loads and answers and not stands.failing,
        "answers": answers,
        "takes_writes": not stands.failing,
        "pin": None if pin is None else pin._asdict(),
        "path": str(same[0].directory or "") if same else "",
        "settings": list(trial.settings),
        "shown": trial.shown,
        "confirms_delivery": trial.confirms if loads else None,
    }


def setting_text(row: dict[str, Any]) -> str:
    """What is known of a field: its value, or that it is set, and where from."""
    if row["problem"]:
        if row["set"]:
            return paint("not valid", "broken")
        if "is missing" not in row["problem"]:  # there is one, which can't be used or read
            return paint(plain(row["problem"].partition(": ")[2]), "broken")
        return paint("missing", "broken") + (f", get it at {row['url']}" if row["url"] else "")
    if not row["set"]:
        return "not set"
    if row["secret"]:
        return f"set ({row['origin'].partition(' (')[0]})"
    return f"{plain(str(row['value']))}  ({row['origin']})"


def _works(provider: dict[str, Any]) -> str:
    if provider["works"]:
        return paint("works", "active")
    if provider["active"]:
        lacks = "DOES NOT ANSWER" if not provider["answers"] else "TAKES NO WRITES"
        return paint(f"loads, but {lacks}", "broken")
    return paint("does not work", "broken")


def _print_report(report: dict[str, Any]) -> None:
    provider = report["provider"]
    config = report["config"] or "none (that is fine)"
    say(f"home:      {report['home']}")
    say(f"config:    {config}")
    say(f"built-in:  {paint('active', 'active')}, always")
    if provider is None:
        say("external:  none")
    else:
        works = _works(provider)
        version = f" {provider['version']}" if provider.get("version") else ""
        owner = f" ({provider['distribution']}{version})" if provider.get("distribution") else ""
        say(f"external:  {provider['name']}{owner}, {works}")
        if provider["path"]:
            say(f"from:      {plain(provider['path'])}")
        if provider["commit"]:
            say(f"commit:    {plain(provider['commit'])}")
        if pin := provider["pin"]:
            say(f"pinned:    {pin['owner']} {pin['version']}".rstrip())
        for row in provider["settings"]:
            say(f"  {row['key']}: {setting_text(row)}")
        for key, value in provider["shown"].items():
            say(f"  {plain(key)}: {plain(value)}")
        if provider["active"]:
            confirmed = "confirmed by the provider"
            counted = "counted as delivered when it returns"
            say(f"delivery:  {confirmed if provider['confirms_delivery'] else counted}")
    print_standing(report)
    for label in ("observers", "warnings", "problems"):
        for line in report[label]:
            say(f"{label[:-1] + ':':10} {paint(line, 'broken' if label == 'problems' else '')}")
