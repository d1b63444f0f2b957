"""The command line: `hermes-plugins`. Commands are imported when they are run."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

import click

from hermes_core import __version__
from hermes_core.errors import HermesError

_COMMANDS: Final = {
    "demo": "demo",
    "disable": "activation",
    "enable": "activation",
    "info": "listing",
    "list": "listing",
    "status": "activation",
}


class CommandFailed(click.ClickException):
    """A failure as one line on stderr, exit code 1."""

    def show(self, file: Any = None) -> None:
        """Print it."""
        text = " ".join(self.message.split())
        click.echo(f"hermes-plugins: {text}", file=file or sys.stderr, err=True)


class _Commands(click.Group):
    """Finds commands by name, and turns exceptions into one line unless --debug is given."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        home = _COMMANDS.get(cmd_name)
        if home is None:
            return None
        module = import_module(f"hermes_core.cli.{home}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except HermesError as error:
            if ctx.params["debug"]:
                raise
            raise CommandFailed(str(error)) from error
        except Exception as error:
            if ctx.params["debug"]:
                raise
            raise CommandFailed(
                f"unexpected {type(error).__name__}: {error} (--debug shows where)"
            ) from error


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--home", metavar="FOLDER", help="Use this Hermes home instead of HERMES_HOME.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, home: str | None, debug: bool) -> None:  # noqa: ARG001 - invoke reads it
    """Memory plugins for Hermes agents: see what is installed, choose one, check it."""
    ctx.obj = home


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal can't show must not end the listing.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    cli(prog_name="hermes-plugins")
