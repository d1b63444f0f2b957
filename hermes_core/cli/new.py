"""`new`: a plugin project that is right from the start."""

from __future__ import annotations

from pathlib import Path

import click

from hermes_core.cli._output import say
from hermes_core.scaffold import PluginNameError, create_project, refuse_name


@click.command("new")
@click.argument("name")
@click.option(
    "--folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Where to write it; by default a folder called NAME.",
)
def new_command(name: str, folder: Path | None) -> None:
    """Write a memory plugin that works: code, tests, packaging. Then make it yours."""
    try:
        refuse_name(name)
    except PluginNameError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    place = folder or Path(name)
    files = create_project(name, place)
    for path in files:
        say(f"  {path}")
    say(f"\n{len(files)} files. Next:")
    say(f"  cd {place}")
    say("  python -m pip install --editable '.[test]'")
    say("  pytest")
    say(f"  hermes-plugins check {name} --level should")
