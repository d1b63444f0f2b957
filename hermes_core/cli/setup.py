"""`setup` and `config`: a plugin's questions, and every setting."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import click

from hermes_core.checkup.deliveries import Problem
from hermes_core.checkup.selection import choice_of, grants_for, lock_entry
from hermes_core.checkup.status import ProviderCheck, check_configured, set_field
from hermes_core.cli.checkup import setting_text, value_text
from hermes_core.cli.output import bold, note, plain, print_json, progress, say, warn
from hermes_core.cli.providers import (
    ask_grants,
    complete_name,
    grant_option,
    recovered_config,
)
from hermes_core.cli.secrets import hidden
from hermes_core.cli.usage import HintedUsageError, did_you_mean
from hermes_core.config import Config, PluginFacts, Selection, load_config
from hermes_core.config.document import YamlProblem, parse, read_document
from hermes_core.config.editor import DELETE, change_config
from hermes_core.config.environment import Lease
from hermes_core.config.fields import (
    HOST_KEYS,
    Field,
    FieldProblem,
    Settings,
    Value,
    active_fields,
    allowed_values,
    in_order,
    repeated_keys,
    validate_values,
    when,
)
from hermes_core.config.names import MEMORY_KEYS, normalise, split_choice
from hermes_core.config.settings import (
    ProviderConfigError,
    Sources,
    own_settings_of,
    secrets_in,
    section_of,
)
from hermes_core.config.setup_journal import SetupJournal, commit, complete, recover
from hermes_core.discovery import PUBLISHED, ProviderInfo, find_provider, manifest_of, scan
from hermes_core.dispatch import SingleProvider
from hermes_core.errors import HermesError, SecretsError, describe
from hermes_core.install.index import read_index, suggestion
from hermes_core.loading import LoadResult, counted
from hermes_core.loading.activation import (
    deadlines_of,
    fields_of,
    load_for,
    plain_values,
    save_config,
)
from hermes_core.privacy import mask_error, mask_secrets, remember_secrets
from hermes_core.provider import BUILTIN, MemoryProvider
from hermes_core.secrets import check_value, is_alike_in_a_shell
from hermes_core.storage.home import resolve_home

# Shown elsewhere: the pins are in the lock file now, the provider is the first row.
_HIDDEN = ("pins", "provider")

# The sections of ours below ``memory``; every other section is a provider's.
_SECTIONS = {"deadlines": "tool 30", "outbox": "max_mb 100"}  # each with an example


@click.command("setup")
@click.argument("name", required=False, shell_complete=complete_name)
@click.option(
    "--set", "given", multiple=True, metavar="KEY=VALUE", help="Set a field of the plugin."
)
@click.option("--secret-stdin", "from_stdin", multiple=True, metavar="KEY",
              help="Read this secret from standard input.")  # fmt: skip
@click.option("--no-input", is_flag=True, help="Ask nothing; fail if a value is missing.")
@grant_option
@click.pass_context
def setup_command(
    ctx: click.Context, name: str | None, given: tuple[str, ...], from_stdin: tuple[str, ...],
    *, no_input: bool, grants: tuple[str, ...],
) -> None:  # fmt: skip
    """Configure and enable a memory plugin.

    Asks for its settings, validates and stores them, enables the plugin and tests it.
    Asks before the plugin gets a variable that is not its own.
    """
    home = resolve_home(ctx.obj)
    # Before config.yaml is read: an interrupted setup would overwrite the answers of this one.
    recover(home)
    config = load_config(home)
    # With --secret-stdin the standard input is taken, even if it is a terminal.
    asking = not no_input and not from_stdin and sys.stdin.isatty()
    wanted = name or _chosen(config, asking)
    selection = Selection(*split_choice(wanted), facts=config.selection.facts)
    info = find_provider(wanted, scan(config.home, selection, everything=True))
    if info.source == BUILTIN:
        say("The built-in memory needs no setup.")
        return
    arguments = {**_arguments(given), **_from_stdin(from_stdin)}
    granted = {info.key: grants_for(config, info, grants)}
    config = config._replace(selection=config.selection._replace(grants=granted))
    with _loaded(config, info) as (loaded, fields, sources):
        provider = loaded.provider
        # Only now, since the fields are known only after loading.
        _known_keys(fields, arguments, info, from_stdin)
        if asking:
            sources.grants.names |= {*ask_grants(info, _wanted_besides(sources, fields))}
        settings = _answers(info, sources, fields, arguments, asking)
        _none_is_dropped(fields, arguments, settings)
        secret = secrets_in(fields, settings, sources.environment(fields))
        remember_secrets(secret)
        new = _validated(info, fields, settings)
        choice = (("memory", "provider"), choice_of(wanted, info))
        changes = [*_changes(config, info, fields, settings), choice]
        facts = PluginFacts(loaded.name, counted(loaded.registered))
        variables = [field.variable for field in fields]
        entry = lock_entry(info, facts, variables, sources.grants.names)
        journal = SetupJournal(info.name, changes, list(new), entry)
        _show(config, sources, journal, new)
        _show_stronger(sources, fields, settings)
        if asking and not click.confirm("Write this?", default=True, err=True):
            raise click.Abort
        # From here on the setup counts, even if the process is killed: see setup_journal.
        journal = commit(config.home, sources.secrets, journal, new)
        # Only a message: config.yaml has the values, and our host passes them to `initialize`.
        if problem := save_config(provider, info, config, plain_values(fields, settings)):
            say(f"  {info.name} could not save its settings: {mask_secrets(problem, secret)}")
        complete(config.home, journal)
        if note := _after(provider, info, config, asking):
            say(f"  {mask_secrets(note, secret)}")
    # After the block: its variables are released, and the child finds them as an agent would.
    if not prove(load_config(config.home), info):
        ctx.exit(1)


# -- which, and with what ---------------------------------------------------------------------


def _chosen(config: Config, asking: bool) -> str:
    """Ask which of the installed plugins to set up."""
    found = [
        each
        for each in scan(config.home, config.selection, everything=True)
        if each.source != BUILTIN and each.loadable and each.state != "no-provider"
    ]
    missing = PUBLISHED.keys() - {each.key for each in found}
    lines = [
        f"{number}. {each.name}  {plain(each.description)}" for number, each in enumerate(found, 1)
    ]
    for line in lines:
        say(line)
    index = read_index(config.home)
    for provider in (each for each in PUBLISHED if each in missing):
        say(f"   {provider}  not installed; {suggestion(index, provider)}")
    if not found:
        raise HermesError(
            "no memory plugin is installed",
            hint="install one; to see what there is, run: hermes-plugins search",
        )
    if not asking:
        raise HintedUsageError(
            "the plugin's name is missing", hint=f"run: hermes-plugins setup {found[0].name}"
        )
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
            todo = "pipe in one line for each value, in the order of the options"
            raise HermesError(f"standard input has no line for {key}", hint=todo)
        # Only the line break: blanks may belong to a secret.
        found[key] = line.removesuffix("\n").removesuffix("\r")
    return found


def _known_keys(
    fields: tuple[Field, ...],
    arguments: Mapping[str, str],
    info: ProviderInfo,
    from_stdin: tuple[str, ...],
) -> None:
    known = list(dict.fromkeys(field.key for field in fields))
    secret = {field.key for field in fields if field.secret}
    for key in arguments:
        if key not in known:
            names = ", ".join(known) or "none"
            hint = did_you_mean(key, known) or f"run: hermes-plugins setup {info.name}"
            raise HintedUsageError(
                f"{info.name} has no field {key!r}; its fields are: {names}", hint=hint
            )
        if key in secret and key not in from_stdin:
            raise HintedUsageError(
                f"{key} is a secret, and other users can see arguments",
                hint=f"use --secret-stdin {key}",
            )


@contextmanager
def _loaded(
    config: Config, info: ProviderInfo
) -> Iterator[tuple[LoadResult, tuple[Field, ...], Sources]]:
    sources = Sources(config, info, manifest_of(info))
    lease = Lease()
    environment = sources.environment()
    remember_secrets(secrets_in((), None, environment) | sources.secrets.values(keyring=False))
    try:
        deadlines = deadlines_of(config)
        with progress(f"Loading {info.name}"):
            loaded = load_for(config, info, sources, lease, pinned=False)
            sources.reported = own_settings_of(loaded.provider, info.name, config.home, deadlines)
            fields = fields_of(loaded.provider, info.name, deadlines)
        yield loaded, fields, sources
    except HermesError as error:
        # Without fields every value of the environment counts as secret, which is safe.
        mask_error(error, secrets_in((), None, environment))
        raise
    finally:
        lease.release()


# -- questions ---------------------------------------------------------------------------------


def _wanted_besides(sources: Sources, fields: tuple[Field, ...]) -> list[str]:
    """What the plugin does not get without consent, beside the variables of its fields."""
    others = {*sources.withheld((), {}), *sources.undeclared(fields)}
    return sorted(others - {field.variable for field in fields})


def _answers(
    info: ProviderInfo, sources: Sources, fields: tuple[Field, ...],
    arguments: Mapping[str, str], asking: bool,
) -> Settings:  # fmt: skip
    answers = {key: Value(value, "argument") for key, value in arguments.items()}
    # Only fields with the same key depend on what was in force before.
    stored = sources.settings(fields).values if repeated_keys(fields) else {}
    given, unread = _known(sources, fields, answers, stored)
    for field in in_order(fields) if asking else ():
        # Again for each question: an answer may add or remove the fields that follow.
        values = validate_values(fields, given, "").values
        current = field in active_fields(fields, values)
        if field.key in answers or not current or not field.applies(values):
            continue
        if sources.grants.is_withheld(field.variable):
            # Without consent it has no value, and an answer would replace somebody else's.
            sources.grants.names |= {*ask_grants(info, [field.variable])}
            given, unread = _known(sources, fields, answers, stored)
            if sources.grants.is_withheld(field.variable):
                continue
        if not field.is_prompted(values):
            continue
        answer = _ask(field, given.get(field.key), values)
        if answer is not None:
            answers[field.key] = given[field.key] = answer
            if repeated_keys(fields):  # it may have decided which field of a key is in force
                given, unread = _known(sources, fields, answers, stored)
    return sources.validated(fields, given, unread)


def _known(
    sources: Sources,
    fields: tuple[Field, ...],
    answers: Mapping[str, Value],
    stored: Mapping[str, Any],
) -> tuple[dict[str, Value], dict[str, FieldProblem]]:
    """Return the answers, and the values that are known from elsewhere.

    A value that was stored for another field of the same key is not used for this one: the URL
    of the cloud is not the local server's. The default takes its place, and is written.
    """
    given, unread = sources.found(fields, answers)
    values = validate_values(fields, given, "").values
    before = {field.key: field for field in active_fields(fields, stored)}
    several = repeated_keys(fields)
    for field in (each for each in active_fields(fields, values) if each.key in several):
        known = given.get(field.key)
        if field == before[field.key] or known is None or not sources.is_in_file(field, known):
            continue
        default = field.default_for(values)
        if default is None:
            del given[field.key]
        else:
            given[field.key] = Value(default, "argument")
    return given, unread


def _none_is_dropped(
    fields: tuple[Field, ...], arguments: Mapping[str, str], settings: Settings
) -> None:
    """Raise if a value was given for a field that does not apply."""
    for field in active_fields(fields, settings.values):
        if field.key in arguments and not field.applies(settings.values):
            raise click.UsageError(f"{field.key} applies only if {when(fields, field.key)}.")


def _ask(field: Field, current: Value | None, values: Mapping[str, Any]) -> Value | None:
    """Ask until the answer is valid; return None to leave the current value."""
    say()
    say(f"{bold(field.key)}{'' if field.required else '  (optional)'}  {plain(field.description)}")
    if field.url:
        say(f"  get it at {plain(field.url)}")
    if limits := allowed_values(field):
        say(f"  {limits}")
    default = current.value if current is not None else field.default_for(values)
    while True:
        try:
            answer = _prompt(field, current, default)
        except SecretsError as error:
            say(f"  {error}")
            continue
        # Enter without a default: what is stored stays, or an optional field stays empty.
        if answer == "" and (field.secret or default is None):
            if current is not None or not field.required:
                return None
            say("  A value is required.")
            continue
        problem = _wrong(field, answer)
        if not problem:
            # Not written again: a value from a variable or another file stays where it is.
            kept = current is not None and not field.secret and answer == str(current.value)
            return None if kept else Value(answer, "argument")
        say(f"  {problem}")


def _wrong(field: Field, answer: str) -> str:
    """Return what is wrong with an answer, or ""."""
    # Its condition was checked before; here only its value counts.
    alone = field._replace(when={})
    problems = validate_values([alone], {field.key: Value(answer, "")}, "").problems
    if problems:
        # The cause alone never has the value in it.
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
    """Return the new secrets by variable; raise with all problems at once."""
    current = active_fields(fields, settings.values)
    given = [each for each in current if each.secret and _has_value(each, settings)]
    new = {field.variable: str(settings.values[field.key]) for field in given}
    problems = [
        FieldProblem(field.key, problem, origin="from argument")
        for field in given
        if (problem := _not_storable(field, new[field.variable]))
    ]
    if settings.problems or problems:
        raise ProviderConfigError(info.name, (*settings.problems, *problems))
    return new


def _has_value(field: Field, settings: Settings) -> bool:
    return settings.origins.get(field.key) == "argument"


# -- writing -----------------------------------------------------------------------------------


def _changes(
    config: Config, info: ProviderInfo, fields: tuple[Field, ...], settings: Settings
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the changes of config.yaml: answers, and values of fields that no longer apply."""
    section, stored = section_of(config, info.name)
    # Only what was answered or given. Values from variables and files stay where they are.
    for key, value in plain_values(fields, settings).items():
        if settings.origins[key] == "argument":
            yield ("memory", section, key), value
    several = repeated_keys(fields)
    for field in active_fields(fields, settings.values):
        unused = field.key in several and field.key not in settings.values
        # A value of the other field with this key would be read as this one's.
        if unused and field.applies(settings.values) and stored.get(field.key) not in (None, ""):
            yield ("memory", section, field.key), DELETE


def _show(config: Config, sources: Sources, journal: SetupJournal, new: Mapping[str, str]) -> None:
    """Print what will be written, and where."""
    say("")
    for keys, value in journal.changes:
        shown = "removed" if value is DELETE else f"= {plain(str(value))}"
        say(f"  {config.path.name}:  {'.'.join(keys)} {shown}")
    if journal.plugin is not None and journal.plugin.grants:
        granted = ", ".join(journal.plugin.grants)
        say(f"  plugins.lock.json:  {journal.provider} may have {granted}")
    if journal.secrets:
        where = sources.secrets.where()
        for name in journal.secrets:
            say(f"  {'the keyring' if where.store == 'keyring' else '.env'}:  {name}")
        say(f"  {where.reason}")
        odd = [name for name, value in new.items() if not is_alike_in_a_shell(value)]
        if odd and where.store == "dotenv":
            say(
                f"  a shell that sources .env reads something else for {', '.join(odd)}, or runs it"
            )
        if where.store == "keyring":
            say("  hermes-agent, cron jobs and services can't read the keyring.")
            say("  If they have to, run `hermes-plugins secrets move --to dotenv`.")


def _show_stronger(sources: Sources, fields: tuple[Field, ...], settings: Settings) -> None:
    """Print which answers are overridden by another source."""
    for field in active_fields(fields, settings.values):
        if _has_value(field, settings):
            stronger = sources.stronger(field, settings.values[field.key])
            if stronger:
                say(f"  {field.key}: overridden by {stronger}")


def _after(provider: MemoryProvider, info: ProviderInfo, config: Config, asking: bool) -> str:
    """Run the plugin's post_setup, and return what the person should know about it."""
    with SingleProvider(provider, info.name, home=config.home) as single:
        if not single.overrides("post_setup"):
            return ""
        if not asking:
            return (
                f"{info.name} has more questions: run `hermes-plugins setup {info.name}` in a "
                "terminal."
            )
        # As hermes-agent calls it: with all of config.yaml, which it may change and save.
        whole = deepcopy(dict(read_document(config.home).data))
        # hermes-agent's default config has this mapping, and plugins write into it.
        if not isinstance(whole.get("memory"), dict):
            whole["memory"] = {}
        outcome = single.call("post_setup", hermes_home=str(config.home), config=whole)
    if outcome.error is None:
        return ""
    return f"post_setup of {info.name} failed: {describe(outcome.error)}"


def prove(config: Config, info: ProviderInfo) -> bool:
    """Load the provider as an agent would, probe its service, and print the result."""
    with progress(f"Testing {info.name}"):
        # seconds=0: the deadlines of config.yaml, since the first start of a service may be slow.
        check = check_configured(config, probe=True, seconds=0)
    works = bool(check.provider_name) and not check.refused
    if works:
        say(f"{info.name} is enabled and works.")
    about = "problem" if works else f"{info.name} is enabled, but does not work yet"
    for problem in (*check.problems, *([Problem(check.refused)] if check.refused else [])):
        note(f"{about}: {problem.what}", problem.hint)
    return works


# -- config ------------------------------------------------------------------------------------


@click.group("config")
def config_command() -> None:
    """Show and change settings."""


@config_command.command("show")
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def show(ctx: click.Context, origin: bool, json_wanted: bool) -> None:
    """Show every setting, but no secret."""
    config = recovered_config(ctx)
    check = ProviderCheck()
    if config.selection.name:
        with progress(f"Loading {config.selection.name}"):
            check = check_configured(config)
    rows = [*_own(config), *_of_provider(config, check)]
    unknown = check.problems if not check.provider_name and not check.settings else ()
    if json_wanted:
        print_json(settings=rows, problems=[str(each) for each in unknown])
    else:
        _print_rows(rows, origin=origin)
    for problem in unknown:
        warn(f"the provider's settings are unknown: {problem.what}", problem.hint)
    if unknown:
        ctx.exit(1)


def _print_rows(rows: list[dict[str, Any]], *, origin: bool) -> None:
    for row in rows:
        say(f"{row['name']}: {setting_text(row, origin=origin)}")


def _own(config: Config) -> list[dict[str, Any]]:
    rows = [_row("memory.provider", config.selection.choice or "", "config.yaml")]
    own = {key: config.memory.get(key) for key in MEMORY_KEYS if key not in _HIDDEN}
    for section in _SECTIONS:
        own |= {f"{section}.{key}": value for key, value in (own.pop(section) or {}).items()}
    rows += [
        _row(f"memory.{key}", value, "config.yaml")
        for key, value in own.items()
        if value is not None
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


def _of_provider(config: Config, check: ProviderCheck) -> list[dict[str, Any]]:
    section, values = section_of(config, config.selection.name)
    host = [
        _row(f"memory.{section}.{key}", values[key], "config.yaml")
        for key in sorted(HOST_KEYS & {*values})
    ]
    return [*host, *({"name": f"memory.{section}.{row['key']}", **row} for row in check.settings)]


# So that -1 is a value, and not an option.
@config_command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
@click.pass_context
def set_value(ctx: click.Context, key: str, value: str) -> None:
    """Set KEY to VALUE, for example memory.nudge_interval 5."""
    config = recovered_config(ctx)
    path = tuple(key.split("."))
    # Only this key: the rest of the section belongs to hermes-agent.
    if path[0] == "secrets" and path[1:] == ("backend",):
        _change(config, path, value)
    elif path[0] == "memory" and len(path) == 2:  # noqa: PLR2004
        _set_own(config, path, value)
    elif path[0] == "memory" and len(path) == 3 and path[1] in _SECTIONS:  # noqa: PLR2004
        _change(config, path, _scalar(value))
    elif path[0] == "memory" and len(path) == 3:  # noqa: PLR2004
        _set_of_provider(config, path[1], path[2], value)
    else:
        raise _not_a_setting(key)


def _set_own(config: Config, path: tuple[str, ...], value: str) -> None:
    if path[1] not in MEMORY_KEYS or path[1] == "pins":
        raise _not_a_setting(".".join(path))
    if path[1] in _SECTIONS:
        name = ".".join(path)
        raise HintedUsageError(
            f"{name} is a section, not a value",
            hint=f"name a key, for example: hermes-plugins config set {name}.{_SECTIONS[path[1]]}",
        )
    if path[1] == "provider":
        raise HintedUsageError(
            "memory.provider is set by `enable`, which tests the provider first",
            hint=f"run: hermes-plugins enable {value}",
        )
    _change(config, path, _scalar(value))


def _not_a_setting(key: str) -> HintedUsageError:
    known = [each for each in MEMORY_KEYS if each not in _HIDDEN]
    return HintedUsageError(
        f"{key} is not a setting",
        hint=did_you_mean(key.removeprefix("memory."), known, before="memory.")
        or "use memory.KEY or memory.PROVIDER.KEY; to see them: hermes-plugins config show",
    )


def _change(config: Config, path: tuple[str, ...], value: Any) -> None:
    """Change one value, unless it would make the file invalid."""
    change_config(config.home, {path: value}, valid=True)
    say(f"Set {'.'.join(path)} to {value_text(value)}.")


def _scalar(text: str) -> Any:
    # As YAML, so that 5, true and [a, b] have the same types as in the file.
    try:
        value = parse(text)[1]
    except YamlProblem:
        return text  # validated as text, which says what is allowed
    # A date or a mapping stays the text that was typed.
    return value if isinstance(value, str | int | float | bool | list) else text


def _set_of_provider(config: Config, name: str, key: str, value: str) -> None:
    choice = (
        config.selection.choice if normalise(name) == normalise(config.selection.name) else name
    )
    if key in HOST_KEYS:
        _change(config, ("memory", section_of(config, name)[0], key), value)
        return
    with progress(f"Testing {choice}"):
        answer, saving = set_field(config, choice, key, value)
    if answer.problems:
        raise HermesError(answer.what, hint=answer.hint or "see: hermes-plugins config show")
    (row,) = answer.settings
    say(f"Set {row['name']} to {value_text(row['value'])}.")
    for stronger in answer.warnings:
        warn(f"overridden by {stronger}")
    if saving is None:
        return
    # The plugin may not be set up yet. The value is still valid, so this is only a warning.
    if saving.problems:
        warn(f"{choice} could not be asked to save it: {saving.what}", saving.hint)
        return
    raise HermesError(
        next((each for each in saving.warnings if "save" in each), f"{choice} did not save it"),
        hint="config.yaml has the value; the next start of the plugin tries again",
    )
