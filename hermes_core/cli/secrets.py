"""`secrets`: set, list, delete and move secrets, without ever showing one."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any, Final

import click

from hermes_core.cli.output import plain, print_json, print_table, progress, say, warn
from hermes_core.cli.usage import HintedUsageError
from hermes_core.config import load_config
from hermes_core.config.names import name_problem
from hermes_core.errors import SecretsError
from hermes_core.secrets import MAX_VALUE_BYTES, Secrets, check_name
from hermes_core.storage.home import resolve_home

_PLACES: Final = {"keyring": "the OS keyring", "dotenv": ".env"}
#: A terminal silently cuts longer lines off.
_TERMINAL_BYTES: Final = 1023 if sys.platform == "darwin" else 4095


@click.group("secrets")
def secrets_command() -> None:
    """Store the API keys of providers.

    Uses the OS keyring if there is one, else the file .env in the home.
    """


# Extra arguments are accepted, to be refused below: click's own error would repeat the value.
@secrets_command.command(
    "set", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
@click.argument("variable")
@click.option("--provider", metavar="NAME", default="", help="Name the provider that needs it.")
@click.pass_context
def set_command(ctx: click.Context, variable: str, provider: str) -> None:
    """Store the secret VARIABLE.

    Asks for its value, or reads it from standard input.
    """
    if ctx.args:  # not shown: it may be the value
        raise HintedUsageError(
            "too many arguments; if one was the secret, replace it at its source: other users can "
            "see a command line, and the shell stores it in its history",
            hint="run `hermes-plugins secrets set VARIABLE` and type the value, or pipe it in",
        )
    check_name(variable)
    if provider and (problem := name_problem(provider)):
        raise SecretsError(problem, hint="see: hermes-plugins list")
    secrets = _secrets(ctx)
    # Before storing, which makes the file private.
    exposed = secrets.env_file.exposed()
    value = _value(variable)
    with _waiting():
        stored = secrets.set(variable, value, provider)
    say(f"Stored {variable} in {_PLACES[stored.store]}: {plain(stored.reason)}.")
    if stored.store == "keyring":
        say("hermes-agent, and services that run outside your session, can't read it there.")
    if stored.shadowed:
        warn(f"overridden by environment variable {variable}")
    if exposed:
        now = secrets.env_file.exposed()
        warn(now or f"other users could read {secrets.env_file.path} until now; it is private now")


@secrets_command.command("list")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def list_command(ctx: click.Context, json_wanted: bool) -> None:
    """List secrets and where each is stored, without values."""
    secrets = _secrets(ctx)
    with _waiting():
        names = secrets.names()
    exposed = secrets.env_file.exposed()
    if json_wanted:
        rows: list[dict[str, Any]] = [each._asdict() for each in names]
        print_json(secrets=rows, warnings=[exposed] if exposed else [])
        return
    if names:
        header = ("VARIABLE", "PROVIDER", "STATE")
        cells = [(each.variable, each.provider or "-", each.state) for each in names]
        print_table(header, cells, [""] * len(cells))
    # When piped, an empty list prints nothing.
    elif sys.stdout.isatty():
        say("No secrets are stored.")
    if exposed:
        warn(exposed)


@secrets_command.command("delete")
@click.argument("variable")
@click.pass_context
def delete_command(ctx: click.Context, variable: str) -> None:
    """Delete the secret VARIABLE everywhere."""
    with _waiting():
        deleted = _secrets(ctx).delete(variable)
    if deleted:
        say(f"Deleted {variable}.")
    else:
        say(f"{variable} is not set. Nothing was changed.")


@secrets_command.command("move")
@click.option(
    "--to",
    type=click.Choice(["keyring", "dotenv"]),
    required=True,
    help="Move them to the OS keyring, or to .env.",
)
@click.pass_context
def move_command(ctx: click.Context, to: str) -> None:
    """Move all stored secrets to the OS keyring or to .env."""
    with _waiting():
        moved = _secrets(ctx).move(to)
    if moved:
        say(f"Moved to {_PLACES[to]}: {', '.join(moved)}.")
    else:
        say("There is nothing to move.")


def _secrets(ctx: click.Context) -> Secrets:
    config = load_config(resolve_home(ctx.find_root().obj), plugins=False)
    return Secrets(config.home, config.secrets_backend)


def _waiting() -> AbstractContextManager[object]:
    """Show that a keyring takes its time: it may ask the person to unlock it."""
    return progress("Waiting for the secrets")


def _value(variable: str) -> str:
    """Read the value from the terminal, or else from standard input."""
    if sys.stdin is None:
        raise _empty(variable)
    return _prompted(variable) if sys.stdin.isatty() else _piped(variable)


def _empty(variable: str) -> SecretsError:
    todo = f"type or pipe it in; to remove it: hermes-plugins secrets delete {variable}"
    return SecretsError("the value is empty; nothing was stored", where=variable, hint=todo)


def _prompted(variable: str) -> str:
    value = hidden(f"Value of {variable} (hidden)", variable)
    if not value:
        raise _empty(variable)
    return value


def hidden(text: str, variable: str) -> str:
    """Ask for a secret without showing it; return "" if nothing was typed."""
    value: str = click.prompt(text, hide_input=True, default="", show_default=False, err=True)
    # The kernel's line buffer (canonical mode) drops the rest without a sign, so a value of this
    # length may be cut.
    if len(value.encode("utf-8", "surrogatepass")) >= _TERMINAL_BYTES:
        raise SecretsError(
            f"a terminal cuts lines off after {_TERMINAL_BYTES:,} bytes; nothing was stored",
            where=variable,
            hint=f"run `hermes-plugins secrets set {variable} < FILE`",
        )
    if any(char < " " for char in value):  # such as of an arrow key, since nothing is shown
        what = "the value has a control character; nothing was stored"
        raise SecretsError(what, where=variable, hint="type it again, or paste it")
    return value


def _piped(variable: str) -> str:
    content = sys.stdin.buffer.read(MAX_VALUE_BYTES + 3)  # a longer one is refused, not cut
    # One line break, which `echo` and editors add; more of them may belong to the value.
    content = content.removesuffix(b"\n").removesuffix(b"\r")
    if not content:
        raise _empty(variable)
    problem = None
    try:
        return content.decode()
    except UnicodeDecodeError:  # not chained: it carries the value
        problem = SecretsError("the value is not UTF-8; nothing was stored", where=variable)
    # Outside of the except clause, so that the original error is not its context either.
    raise problem
