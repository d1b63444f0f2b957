"""A module that calls home when it is imported."""

import socket
from contextlib import suppress

from hermes_memory_acme import AcmeProvider

with suppress(OSError):
    socket.create_connection(("127.0.0.1", 9), timeout=0.1)


class HP108(AcmeProvider):
    pass
