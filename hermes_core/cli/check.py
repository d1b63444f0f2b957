"""`check`: the conformance kit on one plugin."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from hermes_core.cli._output import paint, print_json, say
from hermes_core.cli.listing import complete_name
from hermes_core.config import Selection
from hermes_core.conformance import Options, all_checks, check_plugin
from hermes_core.conformance._model import MUST, SHOULD, Check
from hermes_core.conformance._reports import badge, junit, markdown, plain
from hermes_core.discovery import ProviderInfo, find_provider, scan
from hermes_core.discovery._directories import describe_directory
from hermes_core.errors import HermesError, ProviderLoadError, UnknownProviderError
from hermes_core.home import resolve_home
from hermes_core.yamltext import LOADER, YamlProblem, parse

_NOT_LOADED = 3
_COLOURS = {"passed": "active", "failed": "broken", "warning": "changed", "skipped": "no-provider"}

_FILE = click.Path(dir_okay=False, path_type=Path)


def _settings(_ctx: click.Context, _parameter: click.Parameter, path: Path | None) -> Any:
    if path is None:
        return {}
    try:
        _, data = parse(path.read_text("utf-8"), LOADER)
        json.dumps(data)
    except (OSError, UnicodeDecodeError, YamlProblem, TypeError) as error:
        raise click.BadParameter(f"{path} can't be read: {error}") from error
    if not isinstance(data, dict):
        raise click.BadParameter(f"{path} has no keys")
    return data


def _pairs(_ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> Any:
    for each in values:
        name, equals, value = each.partition("=")
        if not name or not equals or not value.strip():
            raise click.BadParameter(f"{each!r} is not of the form NAME=TEXT")
    return dict(each.split("=", 1) for each in values)


@click.command("check")
@click.argument("plugin", metavar="NAME|PATH", required=False, shell_complete=complete_name)
@click.option("--level", type=click.Choice([MUST, SHOULD]), default=MUST, show_default=True,
              help="What counts as failed; at 'must' the rest is a warning.")  # fmt: skip
@click.option("-k", "words", metavar="TEXT", help="Only checks whose id, family or title has TEXT.")
@click.option(
    "--live", is_flag=True, help="Allow connections to this machine, for a backend there."
)
@click.option("--config", metavar="FILE", type=_FILE, callback=_settings,
              help="Values for the plugin's fields, as YAML or JSON.")  # fmt: skip
@click.option("--env", metavar="NAME=VALUE", multiple=True, callback=_pairs,
              help="A variable for the plugin; repeatable. It sees no others.")  # fmt: skip
@click.option("--skip", metavar="ID=REASON", multiple=True, callback=_pairs,
              help="A check that does not apply, and why; repeatable.")  # fmt: skip
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.option("--junit", metavar="FILE", type=_FILE, help="Write a JUnit report.")
@click.option("--markdown", metavar="FILE", type=_FILE, help="Write a report as Markdown.")
@click.option("--badge", metavar="FILE", type=_FILE, help="Write a badge as SVG.")
@click.option("--list", "list_wanted", is_flag=True, help="List the checks, and run none.")
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
    **given: Any,
) -> None:
    """Check whether a memory plugin keeps the contract.

    It runs in a process of its own: with an empty home, without your environment, your keyring
    and your network. Exit code 0 if it passes, 1 if a check failed, 3 if it can't be loaded.
    """
    checks = _chosen(words)
    if list_wanted:
        _list(checks, json_wanted)
        return
    if not plugin:
        raise click.UsageError("say which plugin: its name, or the path of its folder")
    unknown = set(given["skip"]) - {each.id for each in all_checks()}
    if unknown:
        raise click.BadParameter(
            f"there is no check {', '.join(sorted(unknown))}", ctx, None, "--skip"
        )
    options = Options(
        given["config"], given["env"], given["live"], given["skip"],
        tuple(each.id for each in checks),
    )  # fmt: skip
    try:
        info = _found(plugin, resolve_home(ctx.obj))
        with _progress(info.name, len(checks)) as begun:
            report = check_plugin(info, options, begun)
    except HermesError as error:
        sys.stderr.write(f"hermes-plugins: {error}\n")
        ctx.exit(_NOT_LOADED)
    forms = {"junit": junit, "markdown": markdown, "badge": badge}
    for name, form in forms.items():
        if given[name] is not None:
            _write(given[name], form(report, level))
    if json_wanted:
        print_json(**report.told(level))
    else:
        for line in plain(report, level, lambda text, word: paint(text, _COLOURS[word])):
            say(line)
    ctx.exit(0 if report.passes(level) else 1)


@contextmanager
def _progress(name: str, count: int) -> Iterator[Callable[[str], None]]:
    """A line for whoever waits at a terminal, gone when there is something to read."""
    if not sys.stderr.isatty():
        yield lambda _id: None
        return

    def show(text: str) -> None:
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()

    show(f"Checking {name}, {count} checks ...")
    try:
        yield lambda number: show(f"Checking {name}, {count} checks: {number} ...")
    finally:
        show("")


def _chosen(words: str | None) -> list[Check]:
    wanted = (words or "").casefold()
    found = [
        each
        for each in all_checks()
        if wanted in f"{each.id} {each.family} {each.title}".casefold()
    ]
    if not found:
        raise click.UsageError(f"no check has {words!r} in its id, family or title; see --list")
    return found


def _list(checks: list[Check], json_wanted: bool) -> None:
    if json_wanted:
        rows = ("id", "level", "family", "title", "why", "fix", "docs")
        print_json(checks=[{row: getattr(each, row) for row in rows} for each in checks])
        return
    for each in checks:
        say(f"{each.id}  {each.level:6}  {each.family:12}  {each.title}")


def _found(plugin: str, home: Path) -> ProviderInfo:
    """The plugin that is meant: an installed one by name, or a folder."""
    path = Path(plugin).expanduser()
    if plugin in (".", "..") or any(each in plugin for each in (os.sep, "/", "~")):
        return _folder(path)
    try:
        return find_provider(plugin, scan(home, Selection(), everything=True))
    except UnknownProviderError:
        if path.is_dir():
            return _folder(path)
        raise


def _folder(path: Path) -> ProviderInfo:
    path = path.resolve()
    if not path.is_dir():
        raise ProviderLoadError("there is no such folder", plugin=str(path), step="find")
    info = describe_directory(path)
    if info.loadable:
        return info
    hint = "a directory plugin is a folder with an __init__.py"
    if (path / "pyproject.toml").is_file():
        install = f"{sys.executable} -m pip install --editable {path}"
        hint = f"it is a project: run {install}, then check it by name"
    raise ProviderLoadError(info.problem, plugin=info.name, step="find", hint=hint)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise HermesError(f"can't be written: {error.strerror}", where=str(path)) from error
