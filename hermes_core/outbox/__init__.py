"""The outbox: stores writes for the external provider until it has accepted them.

`writer` puts the writes of a manager into the `store`, which keeps them in a file (`sqlite`) or in
PostgreSQL (`postgres`). `database` is what these two offer, `records` are its rows, `heads` finds
the streams that are due, `delivery` delivers one stream, `failures` decides whether to retry,
`worker` starts deliveries when they are due, `admin` is what a person can do: list, retry, drop,
backfill.
"""

from __future__ import annotations

from hermes_core.outbox.delivery import SessionStream, StreamDelivery
from hermes_core.outbox.records import Stream, StreamKey, Write, WriteState
from hermes_core.outbox.store import DEFAULT_MAX_MB, OutboxFull, OutboxStore
from hermes_core.outbox.worker import (
    FreshProvider,
    Outbox,
    ProviderFactory,
    deliver_inherited,
    open_outbox,
)

__all__ = [
    "DEFAULT_MAX_MB",
    "FreshProvider",
    "Outbox",
    "OutboxFull",
    "OutboxStore",
    "ProviderFactory",
    "SessionStream",
    "Stream",
    "StreamDelivery",
    "StreamKey",
    "Write",
    "WriteState",
    "deliver_inherited",
    "open_outbox",
]
