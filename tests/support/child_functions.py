"""Functions for a child process, which has to be able to import them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from hermes_core.checkup.doctor import Finding


def yields_then(how: str) -> Iterator[Finding]:
    """One result; then an error, or the end of the process."""
    yield Finding("first")
    if how == "raises":
        raise ValueError("later")
    os._exit(7)


def sleeps() -> None:
    """Does not end."""
    time.sleep(600)


def runs(source: str) -> None:
    """Run statements."""
    exec(source, {})
