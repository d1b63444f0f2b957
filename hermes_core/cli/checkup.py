"""`status`, `doctor` and `explain`: whether memory works, and what it recalls."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from hermes_core.checkup.deliveries import (
    ActiveProvider,
    DeliveryStatus,
    HookStatus,
    Problem,
    writes,
)
from hermes_core.checkup.doctor import PROBLEM, Finding, run_doctor
from hermes_core.checkup.explain import explain
from hermes_core.checkup.status import HomeStatus, home_status
from hermes_core.cli.outbox import report_as_json
from hermes_core.cli.output import (
    bold,
    duration,
    moment,
    paint,
    plain,
    print_json,
    print_traceback,
    progress,
    say,
    say_field,
    say_hint,
    say_text,
)
from hermes_core.cli.provider_list import as_json
from hermes_core.cli.providers import granted_to, isolation_of, recovered_config, say_grants
from hermes_core.config import Config, load_config
from hermes_core.config.setup_journal import recover
from hermes_core.errors import ConfigError, HermesError
from hermes_core.install.rollback import interrupted
from hermes_core.storage.home import resolve_home
from hermes_core.storage.outages import remembered_outages

_MARKS: Final = {
    "ok": ("ok", "active"),
    "warning": ("warning", "changed"),
    "problem": ("PROBLEM", "broken"),
}


# -- status ------------------------------------------------------------------------------------


@click.command("status")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def status_command(ctx: click.Context, json_wanted: bool) -> None:
    """Show what is active and whether it works.

    Exit code 1 if something does not work.
    """
    home = resolve_home(ctx.obj)
    with suppress(HermesError):  # reported below, by the code that an agent runs
        recover(home)
    with progress("Checking the memory providers"), remembered_outages():
        report, traceback = _report(home)
    if json_wanted:
        print_json(**report)
    else:
        _print_report(report)
    if traceback and ctx.find_root().params["debug"]:
        print_traceback(traceback)
    if not report["ok"]:
        ctx.exit(1)


def _report(home: Path) -> tuple[dict[str, Any], str]:
    found = home_status(home)
    config, installed = found.config, found.installed
    upgrade = interrupted(home)
    warnings = [*found.warnings, *([Problem.of(upgrade)] if upgrade else [])]
    report = {
        "ok": not found.problems,
        "home": str(home),
        "config": str(config.path) if config.path.exists() else "",
        "builtin": as_json(installed.builtin),
        "provider": _provider_report(found) if config.selection.name else None,
        "observers": list(config.observers),
        "redact": config.redacts,
        **_delivery_json(found.deliveries, installed.active),
        "problems": [str(each) for each in found.problems],
        "warnings": [str(each) for each in warnings],
        # One for each of them: what to do about it, or "".
        "problem_hints": [each.hint for each in found.problems],
        "warning_hints": [each.hint for each in warnings],
    }
    return report, found.check.traceback


def _provider_report(found: HomeStatus) -> dict[str, Any]:
    check, info = found.check, found.installed.provider
    selection = found.config.selection
    report = as_json(info) if info else {"name": selection.name, "state": "missing"}
    loads = bool(check.provider_name)
    pin = selection.pin
    return {
        **report,
        "commit": info.commit if info else "",
        "active": loads,
        "works": found.provider_works,
        "answers": not check.refused,
        "takes_writes": not found.deliveries.failing,
        "pin": None if pin is None else pin._asdict(),
        "grants": granted_to(selection, selection.name),
        "withheld": list(check.withheld),
        "path": str(info.directory or "") if info else "",
        "isolation": isolation_of(selection, info, selection.name),
        "settings": list(check.settings),
        "shown": check.shown,
        "confirms_delivery": check.confirms if loads else None,
    }


def value_text(value: Any) -> str:
    """Return a value as config.yaml has it, such as ``true`` or ``[a, b]``."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    return plain(str(value).lower() if isinstance(value, bool) else str(value))


def setting_text(row: dict[str, Any], *, origin: bool = True) -> str:
    """Return the value of a field, or that it is set, and where it comes from."""
    if row["problem"]:
        if row["set"]:
            return paint("not valid", "broken")
        if "is missing" not in row["problem"]:  # there is one, which can't be used or read
            return paint(plain(row["problem"].partition(": ")[2]), "broken")
        return paint("missing", "broken") + (f", get it at {row['url']}" if row["url"] else "")
    if not row["set"]:
        return "not set"
    if row["secret"]:
        # Only the store, without the variable's name in parentheses.
        return f"set ({row['origin'].partition(' (')[0]})"
    value = value_text(row["value"])
    return f"{value}  ({row['origin']})" if origin else value


def _works(provider: dict[str, Any]) -> str:
    if provider["works"]:
        return paint("works", "active")
    if provider["active"]:
        lacks = "DOES NOT ANSWER" if not provider["answers"] else "WRITES FAIL"
        return paint(f"loads, but {lacks}", "broken")
    return paint("does not work", "broken")


def _print_report(report: dict[str, Any]) -> None:
    provider = report["provider"]
    say_field("home", report["home"])
    say_field("config", report["config"] or "not found, using defaults")
    say_field("built-in", f"{paint('active', 'active')} (always)")
    if provider is None:
        say_field("external", "none")
    else:
        _print_provider(provider)
    _print_deliveries(report)
    for observer in report["observers"]:
        say_field("observer", plain(observer))
    for label, colour in (("warning", ""), ("problem", "broken")):
        hints = report[f"{label}_hints"]
        for line, hint in zip(report[f"{label}s"], hints, strict=True):
            what = line.removesuffix(f" ({hint})") if hint else line
            say_field(label, paint(plain(what), colour))
            say_hint(hint, 11)


def _print_provider(provider: dict[str, Any]) -> None:
    works = _works(provider)
    version = f" {provider['version']}" if provider.get("version") else ""
    owner = f" ({provider['distribution']}{version})" if provider.get("distribution") else ""
    say_field("external", f"{provider['name']}{owner}, {works}")
    if provider["path"]:
        say_field("from", plain(provider["path"]))
    if provider["commit"]:
        say_field("commit", plain(provider["commit"]))
    if pin := provider["pin"]:
        say_field("pinned", f"{pin['owner']} {pin['version']}".rstrip())
    if provider["isolation"] == "process":
        say_field("isolation", "process (the plugin runs in its own process)")
    say_grants(provider["name"], provider["grants"], provider["withheld"])
    for row in provider["settings"]:
        say(f"  {row['key']}: {setting_text(row)}")
    for key, value in provider["shown"].items():
        say(f"  {plain(key)}: {plain(value)}")
    if provider["active"]:
        confirmed = "confirmed by the provider"
        counted = "counted as delivered when the call returns"
        say_field("delivery", confirmed if provider["confirms_delivery"] else counted)


def _delivery_json(deliveries: DeliveryStatus, active: ActiveProvider) -> dict[str, Any]:
    """Return what the outbox and the log add to the report of `status`."""
    return {
        "outbox": None if deliveries.outbox is None else report_as_json(deliveries.outbox, active),
        "hooks": [_hook_as_json(each) for each in deliveries.hooks],
        "lost_calls": deliveries.lost,
    }


def _hook_as_json(each: HookStatus) -> dict[str, Any]:
    return {
        **each.report._asdict(),
        "last_at": moment(each.report.last_at),
        "last_failed": each.last_failed,
        "error_at": moment(each.error_at),
    }


def _print_deliveries(report: dict[str, Any]) -> None:
    """Print the pending writes, and the calls of the last day."""
    for each in (report["outbox"] or {"providers": []})["providers"]:
        if each["waiting"]:
            say_field("waiting", _waiting(each))
    if report["hooks"]:
        say_field("calls", "in the last 24 hours")
    for hook in report["hooks"]:
        line = f"{plain(hook['provider'])} {plain(hook['hook'])}: {_call_figures(hook)}"
        say(f"  {paint(line, 'broken') if hook['last_failed'] else line}")
    if report["lost_calls"]:
        say(f"  {report['lost_calls']:,} calls are missing from the log: it could not keep up")


def _waiting(each: dict[str, Any]) -> str:
    text = f"{writes(each['waiting'])} for {plain(each['provider'])}"
    if not each["active"]:
        return f"{text}, which is not active"
    return f"{text}, the oldest since {_short(each['oldest'])}"


def _call_figures(hook: dict[str, Any]) -> str:
    counts = {"failed": hook["failures"], "late": hook["late"], "skipped": hook["paused"]}
    parts = [
        "1 call" if hook["calls"] == 1 else f"{hook['calls']:,} calls",
        *(f"{count:,} {what}" for what, count in counts.items() if count),
        f"p95 {duration(hook['p95_seconds'])}",
    ]
    if hook["last_error"]:
        parts.append(f"last error {_short(hook['error_at'])}: {plain(hook['last_error'])}")
    if hook["last_failed"]:
        parts[0] = f"LAST CALL FAILED, {parts[0]}"
    return ", ".join(parts)


def _short(at: str | None) -> str:
    return (at or "?")[:16].replace("T", " ")


# -- doctor ------------------------------------------------------------------------------------


@click.command("doctor")
@click.option("--write", is_flag=True, help="Also write a test entry and recall it.")
@click.option("--fix", is_flag=True, help="Fix what can be fixed safely; installs nothing.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor_command(ctx: click.Context, write: bool, fix: bool, json_wanted: bool) -> None:
    """Find problems and show how to fix them.

    Exit code 1 if there is a problem.
    """
    home = resolve_home(ctx.obj)
    unfinished = [*_recovered(home), *_interrupted_upgrade(home)]
    config = _config_or_defaults(home)
    # Before it happens: the entry may stay in the service.
    if write and config.selection.name and not json_wanted:
        say(
            f"--write stores a test entry in {config.selection.name}, for the user and session "
            "hermes-doctor. A plugin without a probe does not remove it."
        )
    with progress("Testing the memory providers"), remembered_outages():
        findings = run_doctor(config, write=write, fix=fix, before=unfinished)
    rows = [each.as_json() for each in findings]
    if json_wanted:
        print_json(ok=not _has_problem(rows), checks=rows)
    else:
        for row in rows:
            _print_finding(row)
    if _has_problem(rows):
        ctx.exit(1)


def _recovered(home: Path) -> list[Finding]:
    """Finish an interrupted setup, as an agent does when it starts."""
    try:
        recover(home)
    except ConfigError:
        return []  # reported with config.yaml
    except HermesError as error:
        return [Finding("setup", PROBLEM, error.what, error.hint or "try again")]
    return []


def _interrupted_upgrade(home: Path) -> list[Finding]:
    error = interrupted(home)
    return [] if error is None else [Finding("upgrade", PROBLEM, error.what, error.hint)]


def _config_or_defaults(home: Path) -> Config:
    try:
        return load_config(home)
    except ConfigError:
        return Config(home)


def _has_problem(rows: list[dict[str, Any]]) -> bool:
    return any(row["state"] == PROBLEM for row in rows)


def _print_finding(row: dict[str, Any]) -> None:
    mark, colour = _MARKS[row["state"]]
    detail = f": {plain(row['detail'])}" if row["detail"] else ""
    say(f"{paint(f'{mark:8}', colour)} {plain(row['check'])}{detail}", indent=9)
    if row["todo"] and row["state"] != "ok":
        say_hint(row["todo"], 9)


# -- explain -----------------------------------------------------------------------------------


@click.command("explain")
@click.argument("question")
@click.option("--session", metavar="ID", default="", help="Use this session.")
@click.option("--user", metavar="ID", default="", help="Use this user.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def explain_command(
    ctx: click.Context, question: str, session: str, user: str, json_wanted: bool
) -> None:
    """Show what an agent would recall for QUESTION.

    Calls the providers as in a real turn, but stores nothing.
    Exit code 1 if a provider fails or does not answer.
    """
    if not question.strip():
        raise click.UsageError("QUESTION is empty.")
    config = recovered_config(ctx)
    with progress("Asking the memory providers"):
        done = explain(config, question, session=session, user=user)
    if not done.results:
        raise done.error()
    (result,) = done.results
    row = asdict(result)
    problems = [*result.problems, *([Problem(done.problem)] if done.problem else [])]
    if json_wanted:
        print_json(**{**row, "problems": [*map(str, problems)]})
    else:
        _print_explanation(row, problems)
    if problems or any(each["error"] for each in row["providers"]):
        ctx.exit(1)


def _print_explanation(row: dict[str, Any], problems: list[Problem]) -> None:
    if row["injected"]:
        say_text(row["injected"])
    else:
        say("Nothing would be injected.")
    say()
    say(bold("from:"))
    for each in row["providers"]:
        process = " (in its own process)" if each["isolated"] else ""
        say(f"  {plain(each['provider'])}{process}: {_provider_line(each)}")
    if row["notes"]:
        origins = Counter(each["origin"] for each in row["notes"])
        counts = ", ".join(f"{count:,} from {plain(each)}" for each, count in origins.items())
        say(f"  notes in the system prompt: {counts}")
    for label, lines in (("left out", row["left_out"]), ("warning", row["warnings"])):
        for line in lines:
            say_field(label, plain(line))
    for each in problems:
        say(f"{paint('problem:', 'broken')}   {plain(each.what)}", indent=11)
        say_hint(each.hint, 11)


def _provider_line(each: dict[str, Any]) -> str:
    took = duration(each["seconds"])
    if each["error"]:
        return f"{paint(plain(each['error']), 'broken')} after {took}"
    if each["why_nothing"]:
        return f"nothing in {took}: {plain(each['why_nothing'])}"
    origin = f", origin {plain(each['origin'])}" if each["origin"] else ""
    return f"{each['characters']:,} characters in {took}{origin}"
