"""The click commands. Each is imported when it is run."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Final

import click

from hermes_core import __version__
from hermes_core.discovery import own_commands
from hermes_core.loading import import_value

_COMMANDS: Final = {
    "demo": "demo",
    "disable": "activation",
    "enable": "activation",
    "info": "listing",
    "list": "listing",
    "status": "activation",
}


class _Commands(click.Group):
    """Finds commands by name, and says what a misspelt one may have meant."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return sorted({*_COMMANDS, *own_commands()})

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        command: click.Command
        if home := _COMMANDS.get(cmd_name):
            module = import_module(f"hermes_core.cli.{home}")
            command = getattr(module, f"{cmd_name}_command")
            return command
        # The built-in brings its own, found like itself: we import no plugin by name.
        value = own_commands().get(cmd_name)
        if value is None:
            return None
        command = import_value(value)
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--home", metavar="FOLDER", help="Use this Hermes home instead of HERMES_HOME.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, home: str | None, debug: bool) -> None:
    """Memory plugins for Hermes agents: see what is installed, choose one, check it."""
    ctx.obj = home
    if not debug:
        logging.disable()  # what matters is said by the command itself, once
