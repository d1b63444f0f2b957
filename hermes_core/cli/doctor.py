"""`doctor`: proves that memory works, and says what to do where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from hermes_core.cli._output import paint, plain, print_json, say
from hermes_core.config import Config, load_config
from hermes_core.doctor import PROBLEM, Finding, examine_config, examine_home, examine_secrets
from hermes_core.doctor._deliveries import examine_calls, examine_outbox
from hermes_core.errors import ConfigError, HermesError
from hermes_core.home import resolve_home
from hermes_core.setting_up import recover
from hermes_core.trial import run_doctor

_MARKS: Final = {
    "ok": ("ok", "active"),
    "warning": ("warning", "changed"),
    "problem": ("PROBLEM", "broken"),
}


@click.command("doctor")
@click.option("--write", is_flag=True, help="Also write something to the provider, and recall it.")
@click.option("--fix", is_flag=True, help="Mend what can be mended safely; installs nothing.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor_command(ctx: click.Context, write: bool, fix: bool, json_wanted: bool) -> None:
    """Check everything, by using it. Exit code 1 if there is a problem."""
    home = resolve_home(ctx.obj)
    unfinished = _recovered(home)
    config = _config(home)
    if write and config.selection.name and not json_wanted:
        say(
            f"Something is written to {config.selection.name}. If it has no probe of its own, "
            "which cleans up, that is a marker of user and session hermes-doctor, and stays there."
        )
    own = [
        *unfinished,
        *examine_home(home),
        *examine_config(home),
        *examine_secrets(home, config.secrets_backend),
        *examine_outbox(config),
        *examine_calls(config),
    ]
    rows = [_mended(each) if fix else each.told() for each in own]
    rows += run_doctor(config, write=write, fix=fix)
    if json_wanted:
        print_json(ok=not _bad(rows), checks=rows)
    else:
        for row in rows:
            _print(row)
    if _bad(rows):
        ctx.exit(1)


def _recovered(home: Path) -> list[Finding]:
    """Finish a set-up that was interrupted, as an agent does when it starts."""
    try:
        recover(home)
    except ConfigError:
        return []  # said when config.yaml is looked at
    except HermesError as error:
        return [Finding("set-up", PROBLEM, error.what, error.hint or "try again")]
    return []


def _config(home: Path) -> Config:
    try:
        return load_config(home)
    except ConfigError:
        return Config(home)


def _mended(finding: Finding) -> dict[str, Any]:
    if finding.fix is None:
        return finding.told()
    done = finding.fix()
    return Finding(finding.what, "ok", f"{finding.detail}; mended: {done}").told()


def _bad(rows: list[dict[str, Any]]) -> bool:
    return any(row["state"] == PROBLEM for row in rows)


def _print(row: dict[str, Any]) -> None:
    mark, colour = _MARKS[row["state"]]
    detail = f": {plain(row['detail'])}" if row["detail"] else ""
    say(f"{paint(f'{mark:8}', colour)} {plain(row['check'])}{detail}")
    if row["todo"] and row["state"] != "ok":
        say(f"{'':9}-> {plain(row['todo'])}")
