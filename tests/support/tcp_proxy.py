"""A proxy between a client and PostgreSQL that cuts, delays, swallows and corrupts."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


class Proxy:
    """Forwards connections to a port of loopback, faithfully until it is told otherwise.

    Attributes:
        silent: Forwards nothing, and closes nothing.
        delay: Seconds before each piece is forwarded.
        corrupts: Changes bytes of what the server answers.
        cuts_at: Closes the connection when the client sends this, before it is forwarded.
        cuts_answer_to: Forwards what contains this, and closes the connection before the answer.
        connections: How many were made.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self.connections = 0
        self.heal()
        threading.Thread(target=self._accept, daemon=True).start()

    def heal(self) -> None:
        """Forward faithfully from now on."""
        self.silent = False
        self.delay = 0.0
        self.corrupts = False
        self.cuts_at = b""
        self.cuts_answer_to = b""

    def cut(self) -> None:
        """Close all connections now."""
        while self._open:
            _close(self._open.pop())

    def close(self) -> None:
        _close(self._listener)
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                self.connections += 1
                with suppress(OSError):
                    self._pair(client)

    def _pair(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            _close(client)
            raise
        self._open += [client, server]
        is_deaf = threading.Event()  # the client hears nothing more
        for source, target, answers in ((client, server, False), (server, client, True)):
            work = (source, target, answers, is_deaf)
            threading.Thread(target=self._forward, args=work, daemon=True).start()

    def _forward(
        self,
        source: socket.socket,
        target: socket.socket,
        answers: bool,
        is_deaf: threading.Event,
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                while self.silent:
                    time.sleep(0.02)
                time.sleep(self.delay)
                if answers and self.corrupts:
                    data = bytes(each ^ 0x55 for each in data)
                if not answers and self.cuts_at and self.cuts_at in data:
                    break
                cuts = not answers and self.cuts_answer_to and self.cuts_answer_to in data
                if cuts:
                    is_deaf.set()
                    target.sendall(data)
                    time.sleep(0.5)  # the server does what it is asked for
                    break
                if answers and is_deaf.is_set():
                    continue
                target.sendall(data)
        _close(source)
        _close(target)


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


class SilentPort:
    """A port of loopback that takes connections and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def close(self) -> None:
        self._listener.close()
