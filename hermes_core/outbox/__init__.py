"""The outbox: writes for the external provider, kept until it has taken them."""

from __future__ import annotations

from hermes_core.outbox._layout import DEAD, MISSED, WAITING, Origin, Stream, Write
from hermes_core.outbox._leftovers import Revive, Revived, deliver_left
from hermes_core.outbox._outbox import DEFAULT_MAX_MB, Outbox, open_outbox
from hermes_core.outbox._route import Mailbox, Route
from hermes_core.outbox._store import OutboxFull, OutboxStore

__all__ = [
    "DEAD",
    "DEFAULT_MAX_MB",
    "MISSED",
    "WAITING",
    "Mailbox",
    "Origin",
    "Outbox",
    "OutboxFull",
    "OutboxStore",
    "Revive",
    "Revived",
    "Route",
    "Stream",
    "Write",
    "deliver_left",
    "open_outbox",
]
