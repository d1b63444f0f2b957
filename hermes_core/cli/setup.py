"""`setup`: from an installed plugin to one that works, by answering its questions."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click

from hermes_core.activation import deadlines_of, fields_of, plain_values, save_config
from hermes_core.cli._output import bold, plain, say
from hermes_core.cli.activation import choice_changes, choice_of, prove
from hermes_core.cli.listing import complete_name
from hermes_core.cli.secrets import hidden
from hermes_core.config import Config, Learnt, Selection, load_config
from hermes_core.discovery import ProviderInfo, find_provider, scan
from hermes_core.dispatch._lane import contained
from hermes_core.environment import Lease
from hermes_core.errors import HermesError, SecretsError, describe
from hermes_core.home import resolve_home
from hermes_core.loading import Loaded, counted, load
from hermes_core.masking import mask_error, masked
from hermes_core.names import BUILTIN, split_choice
from hermes_core.own_settings import own_settings_of
from hermes_core.provider import MemoryProvider
from hermes_core.schema import Field, Problem, Settings, Value, allowed, in_order, settle
from hermes_core.secrets._checks import check_value
from hermes_core.setting_up import Journal, commit, done, recover
from hermes_core.settings import ProviderConfigError, Sources, secrets_in, section_of

_KNOWN: Final = (
    ("honcho", "hermes-memory-honcho"),
    ("mem0", "hermes-memory-mem0"),
    ("hindsight", "hermes-memory-hindsight"),
)


@click.command("setup")
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="Answer a question.")
@click.option("--secret-stdin", "from_stdin", multiple=True, metavar="KEY",
              help="Read this secret from a line of standard input.")  # fmt: skip
@click.option("--no-input", is_flag=True, help="Ask nothing; what is missing is an error.")
@click.pass_context
def setup_command(
    ctx: click.Context, name: str | None, given: tuple[str, ...], from_stdin: tuple[str, ...],
    no_input: bool,
) -> None:  # fmt: skip
    """Set a memory plugin up: ask, check, write, enable, prove."""
    home = resolve_home(ctx.obj)
    recover(home)
    config = load_config(home)
    asking = not no_input and not from_stdin and sys.stdin.isatty()
    wanted = name or _chosen(config, asking)
    selection = Selection(*split_choice(wanted), learnt=config.selection.learnt)
    info = find_provider(wanted, scan(config.home, selection, everything=True))
    if info.source == BUILTIN:
        say("The built-in needs no set-up.")
        return
    arguments = {**_arguments(given), **_from_stdin(from_stdin)}
    with _loaded(config, info) as (loaded, fields, sources):
        provider = loaded.provider
        _known_keys(fields, arguments, info, from_stdin)
        settings = _answers(sources, fields, arguments, asking)
        _none_is_dropped(fields, arguments, settings)
        new = _validated(info, fields, settings)
        changes = [
            *_changes(config, info, fields, settings),
            *choice_changes(
                config,
                choice_of(wanted, info),
                info,
                [field.variable for field in fields],
                Learnt(loaded.name, counted(loaded.registered)),
            ).items(),
        ]
        journal = Journal(info.name, changes, list(new))
        _show(config, sources, journal)
        _show_stronger(sources, fields, settings)
        if asking and not click.confirm("Write this?", default=True, err=True):
            raise click.Abort
        commit(config.home, sources.secrets, journal, new)
        secret = secrets_in(fields, settings, sources.environment(fields))
        if problem := save_config(provider, info, config, plain_values(fields, settings)):
            say(f"  {info.name} could not keep its settings itself: {masked(problem, secret)}")
        done(config.home)
        if note := _after(provider, info, config, asking):
            say(f"  {masked(note, secret)}")
    if not prove(load_config(config.home), info):
        ctx.exit(1)


# -- which, and with what ---------------------------------------------------------------------


def _chosen(config: Config, asking: bool) -> str:
    """The plugin to set up, chosen from what is installed."""
    found = [
        each
        for each in scan(config.home, config.selection, everything=True)
        if each.source != BUILTIN and each.loadable
    ]
    missing = [pair for pair in _KNOWN if pair[0] not in {each.key for each in found}]
    lines = [
        f"{number}. {each.name}  {plain(each.description)}" for number, each in enumerate(found, 1)
    ]
    for line in lines:
        say(line)
    for provider, distribution in missing:
        say(f"   {provider}  not installed: pip install {distribution}")
    if not found:
        raise HermesError(
            "no memory plugin is installed", hint="install one with pip, and try again"
        )
    if not asking:
        raise click.UsageError("Say which: hermes-plugins setup NAME")
    number = click.prompt("Which one", type=click.IntRange(1, len(found)), err=True)
    chosen: ProviderInfo = found[number - 1]
    alone = [each.key for each in found].count(chosen.key) == 1
    return chosen.name if alone else f"{chosen.name}@{chosen.owner}"


def _arguments(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--set needs KEY=VALUE, not {key!r}.")
        found[key] = value
    return found


def _from_stdin(keys: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for key in keys:
        if sys.stdin.isatty():
            found[key] = hidden(f"{key} (hidden)", key)
            continue
        line = sys.stdin.readline()
        if not line:
            raise HermesError(f"standard input has no line for {key}")
        found[key] = line.removesuffix("\n").removesuffix("\r")
    return found


def _known_keys(
    fields: tuple[Field, ...],
    arguments: Mapping[str, str],
    info: ProviderInfo,
    from_stdin: tuple[str, ...],
) -> None:
    known = {field.key: field for field in fields}
    for key in arguments:
        if key not in known:
            names = ", ".join(known) or "none"
            raise click.UsageError(f"{info.name} has no field {key!r}; its fields are: {names}.")
        if known[key].secret and key not in from_stdin:
            raise click.UsageError(
                f"{key} is a secret, and arguments can be seen by others: use --secret-stdin {key}."
            )


@contextmanager
def _loaded(
    config: Config, info: ProviderInfo
) -> Iterator[tuple[Loaded, tuple[Field, ...], Sources]]:
    sources = Sources(config, info)
    lease = Lease()
    environment = sources.environment()
    try:
        lease.set(environment, f"plugin {info.name}")
        deadlines = deadlines_of(config)
        loaded = load(info, config.home, deadline=deadlines.load)
        sources.told = own_settings_of(loaded.provider, info.name, config.home, deadlines.hook)
        yield loaded, fields_of(loaded.provider, info.name, deadlines), sources
    except HermesError as error:
        mask_error(error, secrets_in((), None, environment))
        raise
    finally:
        lease.release()


# -- questions ---------------------------------------------------------------------------------


def _answers(
    sources: Sources, fields: tuple[Field, ...], arguments: Mapping[str, str], asking: bool
) -> Settings:
    given, unread = sources.found(fields)
    given |= {key: Value(value, "argument") for key, value in arguments.items()}
    for field in in_order(fields) if asking else ():
        values = settle(fields, given, "").values
        if field.key in arguments or not field.is_asked(values):
            continue
        answer = _ask(field, given.get(field.key), values)
        if answer is not None:
            given[field.key] = answer
    return sources.settled(fields, given, unread)


def _none_is_dropped(
    fields: tuple[Field, ...], arguments: Mapping[str, str], settings: Settings
) -> None:
    """An answer to a question that is not asked is a mistake."""
    for field in fields:
        if field.key in arguments and not field.applies(settings.values):
            raise click.UsageError(f"{field.key} is asked only if {field.condition}.")


def _ask(field: Field, current: Value | None, values: Mapping[str, Any]) -> Value | None:
    """Ask until the answer is valid; None keeps what there is."""
    say(
        f"\n{bold(field.key)}{'' if field.required else '  (optional)'}  {plain(field.description)}"
    )
    if field.url:
        say(f"  get it at {plain(field.url)}")
    if limits := allowed(field):
        say(f"  {limits}")
    default = current.value if current is not None else field.default_for(values)
    while True:
        try:
            answer = _prompt(field, current, default)
        except SecretsError as error:
            say(f"  {error}")
            continue
        if answer == "" and (field.secret or default is None):
            if current is not None or not field.required:
                return None
            say("  It is needed.")
            continue
        problem = _wrong(field, answer)
        if not problem:
            kept = current is not None and not field.secret and answer == str(current.value)
            return None if kept else Value(answer, "argument")
        say(f"  {problem}")


def _wrong(field: Field, answer: str) -> str:
    """What is wrong with an answer, if anything is."""
    alone = field._replace(when={})
    problems = settle([alone], {field.key: Value(answer, "")}, "").problems
    if problems:
        return problems[0].cause if field.secret else str(problems[0]).lstrip(".")
    return _not_storable(field, answer) if field.secret else ""


def _not_storable(field: Field, value: str) -> str:
    try:
        check_value(field.variable, value)
    except SecretsError as error:
        return error.what
    return ""


def _prompt(field: Field, current: Value | None, default: Any) -> str:
    if field.secret:
        kept = f" (Enter keeps the one in the {current.origin})" if current is not None else ""
        return hidden(f"  value{kept}", field.variable)
    shown = "" if default is None else str(default)
    answer: str = click.prompt("  value", default=shown, show_default=bool(shown), err=True)
    return answer


def _validated(info: ProviderInfo, fields: tuple[Field, ...], settings: Settings) -> dict[str, str]:
    """The secrets that were given now, by variable; all problems at once."""
    given = [each for each in fields if each.secret and _is_given(each, settings)]
    new = {field.variable: str(settings.values[field.key]) for field in given}
    problems = [
        Problem(field.key, problem, origin="from argument")
        for field in given
        if (problem := _not_storable(field, new[field.variable]))
    ]
    if settings.problems or problems:
        raise ProviderConfigError(info.name, (*settings.problems, *problems))
    return new


def _is_given(field: Field, settings: Settings) -> bool:
    return settings.origins.get(field.key) == "argument"


# -- writing -----------------------------------------------------------------------------------


def _changes(
    config: Config, info: ProviderInfo, fields: tuple[Field, ...], settings: Settings
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What was answered, for config.yaml."""
    section, _ = section_of(config, info.name)
    for key, value in plain_values(fields, settings).items():
        if settings.origins[key] == "argument":
            yield ("memory", section, key), value


def _show(config: Config, sources: Sources, journal: Journal) -> None:
    """What will be written, and where."""
    say("")
    for keys, value in journal.changes:
        if keys[:2] != ("memory", "pins"):
            say(f"  {config.path.name}:  {'.'.join(keys)} = {plain(str(value))}")
    if journal.secrets:
        where = sources.secrets.where()
        for name in journal.secrets:
            say(f"  {'the keyring' if where.store == 'keyring' else '.env'}:  {name}")
        say(f"  {where.reason}")
        if where.store == "keyring":
            say("  hermes-agent itself, cron jobs and services can't read the keyring: for them, "
                "hermes-plugins secrets move --to dotenv")  # fmt: skip


def _show_stronger(sources: Sources, fields: tuple[Field, ...], settings: Settings) -> None:
    """Answers that are written and not used, since another source counts more."""
    for field in fields:
        if _is_given(field, settings):
            stronger = sources.stronger(field, settings.values[field.key])
            if stronger:
                say(f"  {field.key}: not used while there is another value in: {stronger}")


def _after(provider: MemoryProvider, info: ProviderInfo, config: Config, asking: bool) -> str:
    """A plugin's own set-up, after the common one; gives what a person should know of it."""
    own = getattr(provider, "post_setup", None)
    if not callable(own):
        return ""
    if not asking:
        return (
            f"{info.name} has a set-up of its own, which asks questions: run setup on a terminal."
        )
    try:
        own(str(config.home), dict(load_config(config.home).memory))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the plugin's own code
        return f"{info.name}'s own set-up failed: {describe(contained(error))}"
    return ""
