"""The click commands. Each is imported when it is run."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from hermes_core import __version__

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
        return sorted(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        home = _COMMANDS.get(cmd_name)
        if home is None:
            return None
        module = import_module(f"hermes_core.cli.{home}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--home", metavar="FOLDER", help="Use this Hermes home instead of HERMES_HOME.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, home: str | None, debug: bool) -> None:  # noqa: ARG001 - main reads it
    """Memory plugins for Hermes agents: see what is installed, choose one, check it."""
    ctx.obj = home
