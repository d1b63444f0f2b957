"""`secrets`: set, list, delete and move secrets, without ever showing one."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from hermes_core.cli._output import plain, print_json, print_table, say
from hermes_core.config import load_config
from hermes_core.errors import SecretsError
from hermes_core.home import resolve_home
from hermes_core.names import name_problem
from hermes_core.secrets import Secrets
from hermes_core.secrets._checks import MOST_BYTES, check_name

_PLACES: Final = {"keyring": "the OS keyring", "dotenv": ".env"}
#: A terminal cuts a longer line off, and says nothing.
_TERMINAL_BYTES: Final = 1023 if sys.platform == "darwin" else 4095


@click.group("secrets")
def secrets_command() -> None:
    """Keep the keys of providers: in the OS keyring where there is one, else in .env."""


@secrets_command.command(
    "set", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
@click.argument("variable")
@click.option("--provider", metavar="NAME", default="", help="Whose secret it is.")
@click.pass_context
def set_command(ctx: click.Context, variable: str, provider: str) -> None:
    """Store the secret VARIABLE. Its value is asked for, or read from stdin."""
    if ctx.args:  # not shown: it may be the value
        raise click.UsageError(
            "Only VARIABLE and --provider NAME can be given. The value is asked for, or read "
            "from stdin: on the command line others see it, and the shell keeps it in its "
            "history. If it was there now, replace it at its source."
        )
    check_name(variable)
    if provider and (problem := name_problem(provider)):
        raise SecretsError(problem)
    secrets = _secrets(ctx)
    exposed = secrets.env_file.exposed()
    stored = secrets.set(variable, _value(variable), provider)
    say(f"{variable} is stored in {_PLACES[stored.store]}: {plain(stored.reason)}.")
    if stored.store == "keyring":
        say("hermes-agent itself, and services without your session, can't read it there.")
    if stored.shadowed:
        _warn(f"this shell's environment has another value of {variable}, which goes first")
    if exposed:
        now = secrets.env_file.exposed()
        _warn(now or f"{secrets.env_file.path} could be read by others until now; it is 0600 now")


@secrets_command.command("list")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def list_command(ctx: click.Context, json_wanted: bool) -> None:
    """List what is set and where, without values."""
    secrets = _secrets(ctx)
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
    elif sys.stdout.isatty():
        say("no secrets are set.")
    if exposed:
        _warn(exposed)


@secrets_command.command("delete")
@click.argument("variable")
@click.pass_context
def delete_command(ctx: click.Context, variable: str) -> None:
    """Remove the secret VARIABLE from wherever it is kept."""
    if _secrets(ctx).delete(variable):
        say(f"{variable} is deleted.")
    else:
        say(f"{variable} is not set; nothing was changed.")


@secrets_command.command("move")
@click.option("--to", type=click.Choice(["keyring", "dotenv"]), required=True)
@click.pass_context
def move_command(ctx: click.Context, to: str) -> None:
    """Move all secrets that were set here to the OS keyring, or to .env."""
    moved = _secrets(ctx).move(to)
    if moved:
        say(f"moved to {_PLACES[to]}: {', '.join(moved)}.")
    else:
        say("there is nothing to move.")


def _secrets(ctx: click.Context) -> Secrets:
    config = load_config(resolve_home(ctx.find_root().obj))
    return Secrets(config.home, config.secrets_backend)


def _warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)


def _value(variable: str) -> str:
    """The value, from whoever sits at the terminal, or else from stdin."""
    if sys.stdin is None:
        raise SecretsError("no value was given", where=variable)
    return _prompted(variable) if sys.stdin.isatty() else _piped(variable)


def _prompted(variable: str) -> str:
    value = hidden(f"Value of {variable} (hidden)", variable)
    if not value:
        raise SecretsError("no value was given; nothing was stored", where=variable)
    return value


def hidden(text: str, variable: str) -> str:
    """Ask for a secret, which is not shown; "" if nothing was typed."""
    value: str = click.prompt(text, hide_input=True, default="", show_default=False, err=True)
    if len(value.encode("utf-8", "surrogatepass")) >= _TERMINAL_BYTES:
        raise SecretsError(
            f"a terminal cuts off what is longer than {_TERMINAL_BYTES:,} bytes, so nothing was "
            "stored",
            where=variable,
            hint=f"hermes-plugins secrets set {variable} < file",
        )
    if any(char < " " for char in value):  # an arrow key, where nothing is shown
        raise SecretsError("a key was pressed that is no character; type it again", where=variable)
    return value


def _piped(variable: str) -> str:
    content = sys.stdin.buffer.read(MOST_BYTES + 3)  # a longer one is refused, not cut
    content = content.removesuffix(b"\n").removesuffix(b"\r")
    if not content:
        raise SecretsError("no value was given; nothing was stored", where=variable)
    problem = None
    try:
        return content.decode()
    except UnicodeDecodeError:  # not chained: it carries the value
        problem = SecretsError("the value is not UTF-8; nothing was stored", where=variable)
    raise problem
