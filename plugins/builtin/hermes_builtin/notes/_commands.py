"""What the commands for the notes have in common.

Every change goes through the code that the tool uses, and through a manager, so that the
external provider hears of it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from hermes_builtin.notes import Notes, Refused, Settings, previews
from hermes_builtin.provider import BuiltinProvider
from hermes_core import HermesError, MemoryManager
from hermes_core.config import load_config
from hermes_core.errors import one_line
from hermes_core.home import resolve_home

json_option: Final = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")


def notes_of(ctx: click.Context) -> Notes:
    """The notes, to look at."""
    home = resolve_home(ctx.obj)
    return Notes(home, Settings.of(load_config(home).memory))


@contextmanager
def writable(ctx: click.Context) -> Iterator[BuiltinProvider]:
    """The built-in within a manager, so that what is written is mirrored."""
    home = resolve_home(ctx.obj)
    load_config(home)  # what is wrong with it stops us before anything is changed
    manager = MemoryManager.from_config(home)
    manager.initialize_all("hermes-plugins", platform="cli")
    builtin = manager.get_provider("builtin")
    if not isinstance(builtin, BuiltinProvider):
        raise HermesError("the built-in is not ours", where=type(builtin).__name__)
    try:
        yield builtin
    except Refused as refused:
        raise RejectedError(refused) from refused
    finally:
        manager.shutdown_all()
        problems = [str(problem) for problem in manager.problems]
        problems += [
            health["on_memory_write"].last_error
            for name, health in manager.health().items()
            if name != "builtin" and "on_memory_write" in health
        ]
        for problem in filter(None, problems):
            click.echo(f"The external provider was not told: {problem}", err=True)


class RejectedError(HermesError):
    """A change that can't be made, with what there is to choose from."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.text, hint="; ".join(previews(refused.matches)))


def indented(text: str, first: str, width: int) -> str:
    """Whole lines of a text after a first word, without what steers a terminal."""
    lines = [one_line(line) for line in text.split("\n")]
    return first + f"\n{' ' * width}".join(lines)
