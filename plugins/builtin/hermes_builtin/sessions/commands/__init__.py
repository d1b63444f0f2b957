"""`hermes-plugins sessions`: past conversations, for the person whose they are."""

from __future__ import annotations

from typing import Final

import click

from hermes_builtin.sessions.commands import _care, _exchange, _looking

_COMMANDS: Final = (
    _looking.list_command,
    _looking.search,
    _looking.show,
    _looking.stats,
    _exchange.import_command,
    _exchange.export,
    _care.delete,
    _care.forget,
    _care.prune,
    _care.check,
    _care.repair,
)


@click.group("sessions")
def sessions() -> None:
    """Look at past conversations, search, import, export and forget them."""


for _command in _COMMANDS:
    sessions.add_command(_command)
