"""What belongs to the process, and not to a plugin that runs in it."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path


class Belongings:
    """Remembers working folder, variables, signal handlers and streams, and puts them back."""

    def __init__(self) -> None:
        self._folder = Path.cwd()
        self._variables = dict(os.environ)
        self._signals = {each: signal.getsignal(each) for each in signal.valid_signals()}
        self._streams = (sys.stdin, sys.stdout, sys.stderr, sys.excepthook)

    def changes(self) -> list[str]:
        """What is no longer as it was."""
        found = []
        if Path.cwd() != self._folder:
            found.append(f"the working folder is {Path.cwd()}")
        names = {name for name, _ in os.environ.items() ^ self._variables.items()}
        found += [f"the variable {name} was changed" for name in sorted(names)]
        found += [
            f"the handler of {signal.Signals(each).name} was replaced"
            for each, handler in self._signals.items()
            if signal.getsignal(each) is not handler
        ]
        names_now = zip(("stdin", "stdout", "stderr", "excepthook"), self._streams, strict=True)
        found += [
            f"sys.{name} was replaced" for name, old in names_now if getattr(sys, name) is not old
        ]
        return found

    def restore(self) -> None:
        """Put everything back."""
        os.chdir(self._folder)
        for name in set(os.environ) - set(self._variables):
            del os.environ[name]
        os.environ.update(self._variables)
        for each, handler in self._signals.items():
            if signal.getsignal(each) is not handler:
                with suppress(OSError, ValueError, TypeError):
                    signal.signal(each, handler)
        sys.stdin, sys.stdout, sys.stderr, sys.excepthook = self._streams
