"""How commands print: tables on a terminal, plain lines elsewhere, JSON on request."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

_COLOURS: Final = {
    "active": "green",
    "installed": None,
    "changed": "yellow",
    "conflict": "red",
    "broken": "red",
    "no-provider": "bright_black",
}


def on_terminal() -> bool:
    """Whether a person is looking."""
    return sys.stdout.isatty()


def colourful() -> bool:
    """Whether colours are wanted: on a terminal, unless NO_COLOR or TERM=dumb says no."""
    return on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, state: str) -> str:
    """Text in the colour of a state, where colours are wanted."""
    colour = _COLOURS.get(state)
    return click.style(text, fg=colour) if colour and colourful() else text


def print_json(**values: Any) -> None:
    """One object, with the version of its form."""
    import json  # noqa: PLC0415 - a table needs none

    click.echo(json.dumps({"schema": 1, **values}, indent=2, ensure_ascii=False))


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], states: Sequence[str]
) -> None:
    """Aligned columns on a terminal; elsewhere tabs between the fields and no header."""
    if not on_terminal():
        for row in rows:
            click.echo("\t".join(_one_line(cell) for cell in row))
        return
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    room = shutil.get_terminal_size().columns
    title = "  ".join(cell.ljust(width) for cell, width in zip(header, widths, strict=True))
    click.echo(
        click.style(title[:room].rstrip(), bold=True) if colourful() else title[:room].rstrip()
    )
    for row, state in zip(rows, states, strict=True):
        line = "  ".join(
            _one_line(cell).ljust(width) for cell, width in zip(row, widths, strict=True)
        )
        click.echo(paint(_shortened(line.rstrip(), room), state))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shortened(line: str, room: int) -> str:
    return line if len(line) <= room else line[: max(room - 1, 0)] + "…"
