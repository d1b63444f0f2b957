"""A text for an editor, for `memory edit`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from hermes_core import HermesError


class Draft:
    """A text for an editor. Its file stays until it is discarded: it may hold all there is."""

    def __init__(self, text: str, name: str) -> None:
        self._before = f"{text}\n".encode() if text else b""
        # A copy, not the notebook itself: an editor would bypass lock, guard and history.
        handle, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".md")
        with os.fdopen(handle, "wb") as file:
            file.write(self._before)
        self.path = Path(path)

    @property
    def kept(self) -> str:
        """Where the person finds what they wrote."""
        return f"your text is kept in {self.path}"

    def edit(self) -> str | None:
        """What the person made of it; None if they left it as it was."""
        try:
            click.edit(filename=str(self.path))
        except click.ClickException as error:
            if self._is_changed():
                raise HermesError(error.message, hint=self.kept) from error
            self.discard()
            what = f"the editor could not be run: {error.message.partition(':')[0]}"
            raise HermesError(what, hint="set EDITOR to the command of your editor") from error
        if not self._is_changed():
            self.discard()
            return None
        try:
            # Bytes: text mode would translate line ends, and a comparison with what was written
            # would differ.
            return self.path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise HermesError(
                "the editor did not save UTF-8 text; nothing was changed", hint=self.kept
            ) from error

    def discard(self) -> None:
        """It was taken over, or never changed."""
        self.path.unlink(missing_ok=True)

    def _is_changed(self) -> bool:
        return self.path.exists() and self.path.read_bytes() != self._before
