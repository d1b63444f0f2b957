"""The click commands. Each is imported when it is run."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Final

import click

from hermes_core import __version__
from hermes_core.discovery import own_commands
from hermes_core.loading import import_value
from hermes_core.names import nearest

_COMMANDS: Final = {
    "check": "check",
    "bridge": "bridge",
    "config": "config",
    "demo": "demo",
    "disable": "activation",
    "doctor": "doctor",
    "enable": "activation",
    "explain": "explain",
    "info": "listing",
    "install": "install",
    "list": "listing",
    "log": "log",
    "outbox": "outbox",
    "new": "new",
    "setup": "setup",
    "secrets": "secrets",
    "status": "activation",
    "uninstall": "uninstall",
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = nearest(args[0], self.list_commands(ctx))
            if not close:
                raise
            meant = f"{error.message} Did you mean {' or '.join(close)}?"
            raise click.UsageError(meant, ctx) from error


def _given_home(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("an empty name is no folder")
    return value


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    metavar="FOLDER",
    callback=_given_home,
    help="Use this Hermes home instead of HERMES_HOME.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, home: str | None, debug: bool) -> None:
    """Memory plugins for Hermes agents: see what is installed, choose one, check it."""
    ctx.obj = home
    if not debug:
        logging.disable()  # what matters is said by the command itself, once
