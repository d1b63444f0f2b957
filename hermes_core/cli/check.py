"""`check` and `new`: run the conformance checks on a plugin, or create one."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from hermes_core.cli.output import paint, print_error, print_json, print_table, progress, say
from hermes_core.cli.plugin_search import add_hint
from hermes_core.cli.providers import complete_name
from hermes_core.cli.usage import HintedUsageError
from hermes_core.config import Selection
from hermes_core.config.document import LOADER, YamlProblem, parse
from hermes_core.conformance import (
    MUST,
    SHOULD,
    Check,
    Limits,
    Options,
    all_checks,
    check_plugin,
    grade_of,
    markdown,
    plain,
)
from hermes_core.conformance.grades import badge, record_grade, tier_of
from hermes_core.conformance.scaffold import PluginNameError, create_project, refuse_name
from hermes_core.discovery import ProviderInfo, describe_directory, find_provider, scan
from hermes_core.errors import CHECK_FOLDER, HermesError, ProviderLoadError, UnknownProviderError
from hermes_core.storage.home import resolve_home

# Not 1 or 2: CI has to tell "checks failed" (1) and a wrong command line (2) from this.
_NOT_LOADED = 3
# The kit's words for states, by the states that `paint` knows.
_LIST = "see: hermes-plugins check --list"
_COLOURS = {"passed": "active", "failed": "broken", "warning": "changed", "skipped": "no-provider"}

_FILE = click.Path(dir_okay=False, path_type=Path)


def _settings(_ctx: click.Context, _parameter: click.Parameter, path: Path | None) -> Any:
    if path is None:
        return {}
    try:
        _, data = parse(path.read_text("utf-8"), LOADER)
        # The settings go to the child process as JSON, which has no dates or sets.
        json.dumps(data)
    except (OSError, UnicodeDecodeError, YamlProblem, TypeError) as error:
        raise click.BadParameter(f"{path} can't be read: {error}") from error
    if not isinstance(data, dict):
        raise click.BadParameter(f"{path} is not a mapping")
    return data


def _pairs(_ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> Any:
    for each in values:
        name, equals, value = each.partition("=")
        # A skip needs its reason, and an empty variable is the same as none.
        if not name or not equals or not value.strip():
            raise click.BadParameter(f"{each!r} is not of the form NAME=TEXT")
    return dict(each.split("=", 1) for each in values)


@click.command("check")
@click.argument("plugin", metavar="NAME|PATH", required=False, shell_complete=complete_name)
@click.option("--level", type=click.Choice([MUST, SHOULD]), default=MUST, show_default=True,
              help="Fail at this level; lower ones are warnings.")  # fmt: skip
@click.option(
    "-k", "words", metavar="TEXT", help="Run only checks with TEXT in id, family or title."
)
@click.option("--live", is_flag=True, help="Allow connections to services on this machine.")
@click.option("--config", metavar="FILE", type=_FILE, callback=_settings,
              help="Read the plugin's settings from this YAML or JSON file.")  # fmt: skip
@click.option("--env", metavar="NAME=VALUE", multiple=True, callback=_pairs,
              help="Set a variable for the plugin; repeatable.")  # fmt: skip
@click.option("--skip", metavar="ID=REASON", multiple=True, callback=_pairs,
              help="Skip a check, and say why; repeatable.")  # fmt: skip
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.option("--markdown", metavar="FILE", type=_FILE, help="Write a report in Markdown.")
@click.option("--badge", "badge_wanted", is_flag=True, help="Print only a badge, in Markdown.")
@click.option("--list", "list_wanted", is_flag=True, help="List the checks without running them.")
@click.pass_context
def check_command(
    ctx: click.Context,
    /,
    *,
    plugin: str | None,
    level: str,
    words: str | None,
    list_wanted: bool,
    json_wanted: bool,
    badge_wanted: bool,
    **given: Any,
) -> None:
    """Run the conformance checks on a memory plugin, and grade it.

    The plugin runs in a separate process with an empty home, without your environment,
    keyring and network. Exit code 0 if it passes, 1 if a check fails, 3 if it can't be
    loaded.
    """
    checks = _chosen(words)
    if list_wanted:
        _list(checks, json_wanted)
        return
    if not plugin:
        raise HintedUsageError(
            "the plugin's name is missing",
            hint="name a folder, or an installed plugin: hermes-plugins list",
        )
    # Before the plugin is loaded, and with the exit code of a wrong command line.
    unknown = set(given["skip"]) - {each.id for each in all_checks()}
    if unknown:
        raise HintedUsageError(f"unknown check in --skip: {', '.join(sorted(unknown))}", hint=_LIST)
    options = Options(
        given["config"], given["env"], given["live"], given["skip"],
        tuple(each.id for each in checks), Limits().for_load(_load()),
    )  # fmt: skip
    try:
        home = resolve_home(ctx.obj)
        info = _found(plugin, home)
        with progress(f"Checking {info.name}", len(checks)) as step:
            report = check_plugin(info, options, lambda _id: step.advance())
    except HermesError as error:
        print_error(error)
        ctx.exit(_NOT_LOADED)
    if len(checks) == len(all_checks()):  # -k shows nothing about the rest
        record_grade(home, info, report, datetime.now(UTC).date().isoformat())
    if given["markdown"] is not None:
        _write(given["markdown"], markdown(report, level))
    if json_wanted:
        print_json(**report.as_json(level))
    elif badge_wanted:
        grade = grade_of(report)
        # Not `say`, which would wrap it on a narrow terminal.
        click.echo(f"![hermes-plugins: {grade}]({badge(grade)})")
    else:
        for line, indent in plain(report, level, lambda text, word: paint(text, _COLOURS[word])):
            say(line, indent=indent)
    ctx.exit(0 if report.passes(level) else 1)


def _load() -> float:
    """Return how many programs want each processor; 1.0 where the system does not say."""
    if not hasattr(os, "getloadavg"):  # Windows
        return 1.0
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return 1.0


def _chosen(words: str | None) -> list[Check]:
    wanted = (words or "").casefold()
    found = [
        each
        for each in all_checks()
        if wanted in f"{each.id} {each.family} {each.title}".casefold()
    ]
    if not found:
        raise HintedUsageError(f"no check has {words!r} in its id, family or title", hint=_LIST)
    return found


def _list(checks: list[Check], json_wanted: bool) -> None:
    if json_wanted:
        rows = ("id", "level", "family", "title", "why", "fix", "docs")
        texts = [{row: getattr(each, row) for row in rows} for each in checks]
        print_json(checks=[{**each, "grade": tier_of(each["id"], each["level"])} for each in texts])
        return
    cells = [
        (each.id, each.level, tier_of(each.id, each.level), each.family, each.title)
        for each in checks
    ]
    print_table(("ID", "LEVEL", "GRADE", "FAMILY", "TITLE"), cells, [""] * len(cells))


def _found(plugin: str, home: Path) -> ProviderInfo:
    """Return an installed plugin by name, or the one in a folder."""
    path = Path(plugin).expanduser()
    # A path has a separator. A bare word is a name first, and a folder only if there is no such
    # name.
    if plugin in (".", "..") or any(each in plugin for each in (os.sep, "/", "~")):
        return _folder(path)
    try:
        return find_provider(plugin, scan(home, Selection(), everything=True))
    except UnknownProviderError as error:
        if path.is_dir():
            return _folder(path)
        add_hint(error, str(home))
        raise


def _folder(path: Path) -> ProviderInfo:
    path = path.resolve()
    if not path.is_dir():
        todo = "name a folder, or an installed plugin: hermes-plugins list"
        raise HermesError("no such folder", where=str(path), hint=todo)
    info = describe_directory(path)
    if info.loadable:
        return info
    hint = "a directory plugin is a folder with an __init__.py"
    if (path / "pyproject.toml").is_file():
        hint = f"run `pip install --editable {path}`, then check it by name"
    raise ProviderLoadError(info.problem, plugin=info.name, step="find", hint=hint)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        what = f"can't be written: {error.strerror}"
        raise HermesError(what, where=str(path), hint=CHECK_FOLDER) from error


# -- new ---------------------------------------------------------------------------------------


@click.command("new")
@click.argument("name")
@click.option(
    "--folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Write it to this folder; by default NAME.",
)
def new_command(name: str, folder: Path | None) -> None:
    """Create a project for a new memory plugin.

    The project works as it is: code, tests and packaging.
    """
    try:
        # `create_project` checks it too; here it becomes an error of the argument NAME.
        refuse_name(name)
    except PluginNameError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    place = folder or Path(name)
    files = create_project(name, place)
    for path in files:
        say(f"  {path}")
    say()
    say(f"Created {len(files)} files. Next:")
    say(f"  cd {place}")
    say("  pip install --editable '.[test]'")
    say("  pytest")
    say(f"  hermes-plugins check {name} --level should")
