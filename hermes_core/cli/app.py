"""The click application. The module of a command is imported when the command is run.

The help of each command is written down here as well, so that `hermes-plugins --help` imports
none of them. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Final, NamedTuple

import click

from hermes_core import __version__
from hermes_core.discovery import own_commands
from hermes_core.errors import HermesError, UnknownProviderError


class _Command(NamedTuple):
    module: str
    help: str


# By command: the module below hermes_core.cli with NAME_command in it, and the help.
COMMANDS: Final = {
    "backup": _Command("backup", "Write the whole home to one file."),
    "bridge": _Command("install", "Let hermes-agent find a plugin that is a package."),
    "check": _Command("check", "Run the conformance checks on a memory plugin, and grade it."),
    "config": _Command("setup", "Show and change settings."),
    "demo": _Command("demo", "Show what memory does, in a temporary home."),
    "disable": _Command("providers", "Stop using the external provider."),
    "doctor": _Command("checkup", "Find problems and show how to fix them."),
    "enable": _Command("providers", "Use NAME as the external memory provider."),
    "explain": _Command("checkup", "Show what an agent would recall for QUESTION."),
    "forget": _Command("forget", "Delete a fact, a conversation or a person."),
    "index": _Command("index", "Show and update the index of known plugins."),
    "info": _Command("providers", "Show the details of one provider."),
    "install": _Command("install", "Install a memory plugin."),
    "list": _Command("providers", "List the installed memory providers."),
    "log": _Command("log", "Show the calls to memory providers."),
    "new": _Command("check", "Create a project for a new memory plugin."),
    "outbox": _Command("outbox", "Show and deliver pending writes."),
    "restore": _Command("backup", "Restore a home from a backup."),
    "search": _Command("index", "Search the known memory plugins."),
    "secrets": _Command("secrets", "Store the API keys of providers."),
    "setup": _Command("setup", "Configure and enable a memory plugin."),
    "status": _Command("checkup", "Show what is active and whether it works."),
    "storage": _Command("storage", "Show, check and move what the home stores."),
    "switch": _Command("switch", "Switch to another provider and copy your history to it."),
    "uninstall": _Command("install", "Disable and uninstall a memory plugin."),
    "upgrade": _Command("upgrade", "Upgrade memory plugins; roll back if they fail."),
}
#: Commands of the other packages of this distribution.
BUILTIN_HELP: Final = {
    "chat": "Talk with a model that has your memory.",
    "export": "Write notes and conversations as JSON lines.",
    "import": "Add the notes and conversations of an export.",
    "mcp": "Serve the memory to MCP clients such as Claude Code.",
    "memory": "Show and change the notes that the agent stores.",
    "sessions": "Search and manage past conversations.",
    "sync": "Share notes and conversations through a folder.",
    "ui": "Show and correct the memory in a browser.",
}


class _HelpFormatter(click.HelpFormatter):
    """Help in which no line ends within an option: click breaks lines at hyphens."""

    # A hyphen that joins words takes the place of every other until the text is wrapped.
    _JOINING: Final = "\u2011"

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", self._JOINING))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        joined = [(name, text.replace("-", self._JOINING)) for name, text in rows]
        super().write_dl(joined, col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(self._JOINING, "-")


class _HelpContext(click.Context):
    formatter_class = _HelpFormatter


def _with_our_help(command: click.Command) -> click.Command:
    command.context_class = _HelpContext
    if not command.short_help and command.help:
        # The whole sentence, which a list of commands wraps: click would cut it off.
        command.short_help = " ".join(command.help.partition("\n\n")[0].split())
    for each in getattr(command, "commands", {}).values():
        _with_our_help(each)
    return command


class _Commands(click.Group):
    """Finds commands by name, and imports the module of a command when it is run."""

    context_class = _HelpContext

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *own_commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command: click.Command
        # Ours first: an entry point can't replace a command of ours.
        if found := COMMANDS.get(cmd_name):
            module = import_module(f"hermes_core.cli.{found.module}")
            command = getattr(module, f"{cmd_name}_command")
            return _with_our_help(command)
        # Providers declare their commands as entry points, so no plugin is named in this module.
        value = own_commands().get(cmd_name)
        if value is None:
            return None
        from hermes_core.loading import import_value, load_command  # noqa: PLC0415 - takes 0.1 s

        if cmd_name in BUILTIN_HELP:
            command = import_value(value)
        else:
            command = load_command(cmd_name, value, ctx.params.get("home"))
        return _with_our_help(command)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. A provider that is not installed may be a plugin that we know."""
        try:
            return super().invoke(ctx)
        except UnknownProviderError as error:
            from hermes_core.cli.plugin_search import add_hint  # noqa: PLC0415 - rarely needed

            add_hint(error, ctx.params.get("home"))
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their help, and import only those of other distributions."""
        rows = []
        for name in self.list_commands(ctx):
            text = COMMANDS[name].help if name in COMMANDS else BUILTIN_HELP.get(name, "")
            rows.append((name, text or self._help_of(ctx, name)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _help_of(self, ctx: click.Context, name: str) -> str:
        """The help of a command of another distribution, which has to be imported for it."""
        try:
            command = self.get_command(ctx, name)
        except HermesError:  # to run it shows why; the others must have their help
            return "can't be loaded"
        return "" if command is None else command.get_short_help_str()


def _check_home(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    # `--home ""` comes from an unset variable in a script. It must not mean the working folder.
    if value == "":
        raise click.BadParameter("the name of the folder is empty")
    return value


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home", metavar="FOLDER", callback=_check_home, help="Use this home instead of HERMES_HOME."
)
@click.option("--debug", is_flag=True, help="Show tracebacks and log messages.")
@click.version_option(__version__, message="%(prog)s %(version)s", help="Show the version.")
@click.pass_context
def cli(ctx: click.Context, home: str | None, debug: bool) -> None:
    """Manage an agent's memory and its memory plugins."""
    # The text and not a path: each command resolves it, and reports an invalid home itself.
    ctx.obj = home
    if not debug:
        import logging  # noqa: PLC0415 - nothing else that prints the help needs it

        logging.disable()  # each command reports what matters itself, once
