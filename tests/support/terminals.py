"""A person at a terminal: types when asked, and sees what is shown."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from support.commands import Machine, wait_until
from support.forked_commands import ForkedCommand

#: So that Ctrl-C is for the command. Not as a preexec_fn: this process may have threads.
_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Dialogue:
    """A command on a terminal of its own. `shown` is all that a person has seen so far."""

    def __init__(
        self, machine: Machine, *arguments: str, env: dict[str, str] | None = None
    ) -> None:
        import pty

        self._ours, theirs = pty.openpty()
        environment = {**machine.environment, "TERM": "xterm", "NO_COLOR": "1", **(env or {})}
        self.process: subprocess.Popen[bytes] | ForkedCommand
        venv = getattr(machine, "forked", False) and machine.python.parents[1]
        if machine.in_process or venv:
            streams = (theirs, theirs, theirs)
            self.process = ForkedCommand(
                arguments, environment, streams, terminal=True, venv=venv or None
            )
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, *machine.command(*arguments)],
                env=environment,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        os.close(theirs)
        self._bytes = b""
        self._read_to = 0

    @property
    def shown(self) -> str:
        return self._bytes.decode("utf-8", "replace").replace("\r\n", "\n")

    def wait_for(self, pattern: str, seconds: float = 30) -> str:
        """Wait until something new is shown that matches; gives it."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.shown[self._read_to :])):
            assert time.monotonic() < end, f"{pattern!r} never came:\n{self.shown}"
            assert self._receive(0.1) or self.process.poll() is None, self.shown
        self._read_to += found.end()
        return found[0]

    def type(self, text: str) -> None:
        """Type a text; a line ends with a newline of its own."""
        if "\x03" in text:
            wait_until(self._sleeps)
        data = text.encode("utf-8", "surrogateescape")
        while data:
            data = data[os.write(self._ours, data[:512]) :]
            self._receive(0)

    def _sleeps(self) -> bool:
        """Whether it waits in the kernel, or has ended.

        Python loses a signal that arrives after its last look for one and before the system call
        that waits for a line: the call waits on, until the next key.
        """
        stat = Path(f"/proc/{self.process.pid}/stat")
        if stat.exists():
            state = stat.read_text().rpartition(")")[2]
        else:
            ps = ["ps", "-o", "state=", "-p", str(self.process.pid)]
            state = subprocess.run(ps, capture_output=True, text=True, check=False).stdout
        return state.strip()[:1] not in ("R", "U")

    def answer(self, *pairs: Sequence[str]) -> None:
        """Wait for each prompt and type its answer, with the return key."""
        for prompt, text in pairs:
            self.wait_for(prompt)
            self.type(f"{text}\n")

    def end(self, seconds: float = 30) -> int:
        """Wait for the command's end; gives its exit code."""
        end = time.monotonic() + seconds
        while self._receive(0.1) or self.process.poll() is None:
            assert time.monotonic() < end, self.shown
        self.close()
        return self.process.wait()

    def close(self) -> None:
        """Hang up."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _receive(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            chunk = os.read(self._ours, 65536)
        except OSError:  # the other side has closed
            return False
        self._bytes += chunk
        return bool(chunk)
