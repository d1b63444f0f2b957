"""How commands print: tables on a terminal, plain lines elsewhere, JSON on request."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from hermes_core.errors import one_line

_COLOURS: Final = {"active": 32, "changed": 33, "conflict": 31, "broken": 31, "no-provider": 90}
_BOLD: Final = 1


def on_terminal() -> bool:
    """Whether a person is looking."""
    return sys.stdout.isatty()


def paint(text: str, state: str) -> str:
    """Text in the colour of a state, where colours are wanted."""
    return _styled(text, _COLOURS.get(state))


def bold(text: str) -> str:
    """Text that stands out, where colours are wanted."""
    return _styled(text, _BOLD)


def _styled(text: str, code: int | None) -> str:
    wanted = on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\033[{code}m{text}\033[0m" if code and wanted else text


def say(text: str = "") -> None:
    """A line for whoever runs the command."""
    sys.stdout.write(f"{text}\n")


def plain(text: str) -> str:
    """Text from a plugin on one line, without the characters that steer a terminal."""
    return " ".join(one_line(text).split())


def print_json(**values: Any) -> None:
    """One object, with the version of its form."""
    _say_json(values, indent=2)


def print_json_line(**values: Any) -> None:
    """The same on one line, where more may follow."""
    _say_json(values, indent=None)


def _say_json(values: dict[str, Any], indent: int | None) -> None:
    import json  # noqa: PLC0415 - a table needs none

    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    say(json.dumps({"schema": 1, **values}, indent=indent, ensure_ascii=not utf8))


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], states: Sequence[str]
) -> None:
    """Aligned columns on a terminal; elsewhere tabs between the fields and no header."""
    Table(header).print(rows, states)


class Table:
    """A table that may go on: its header is printed once, and its columns only widen."""

    def __init__(self, header: Sequence[str]) -> None:
        self._header = header
        self._widths: list[int] = []

    def print(self, rows: Sequence[Sequence[str]], states: Sequence[str]) -> None:
        """More rows, each in the colour of its state."""
        lines = [[plain(cell) for cell in row] for row in rows]
        if not on_terminal():
            for line in lines:
                say("\t".join(line))
            return
        room = os.get_terminal_size(sys.stdout.fileno()).columns or 80
        columns = zip(self._header, *lines, strict=True)
        widths = [max(map(_width, column)) for column in columns]
        if not self._widths:
            self._widths = widths
            say(bold(_aligned(self._header, widths, room)))
        self._widths = [*map(max, self._widths, widths)]
        for line, state in zip(lines, states, strict=True):
            say(paint(_aligned(line, self._widths, room), state))


def _aligned(cells: Sequence[str], widths: Sequence[int], room: int) -> str:
    pairs = zip(cells, widths, strict=True)
    line = "  ".join(cell + " " * (width - _width(cell)) for cell, width in pairs).rstrip()
    if _width(line) <= room:
        return line
    while _width(line) >= room:
        line = line[:-1]
    return line + "…"


def _width(text: str) -> int:
    """How many columns a terminal takes for a text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # noqa: PLC0415

    wide = sum(east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(combining(char) > 0 for char in text)
