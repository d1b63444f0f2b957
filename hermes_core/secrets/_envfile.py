"""``$HERMES_HOME/.env``: one writer that keeps every other line as it is."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hermes_core.errors import SecretsError
from hermes_core.secrets._checks import check_name, check_value
from hermes_core.secrets._dotenv import assignments, changed, quoted
from hermes_core.secrets._files import locked, read_text, write_text

_MARK: Final = "\ufeff"
_OTHERS: Final = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


class EnvFile:
    """A .env. It is read as python-dotenv reads it, but ``${}`` is left as it stands."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, str]:
        """All variables; those without ``=`` are none. A missing file has none."""
        return _values(self._text().removeprefix(_MARK))

    def change(self, changes: Mapping[str, str | None]) -> None:
        """Set variables, or delete them (None): all or nothing, in one replacement.

        Afterwards the file is for its owner alone, whatever it was before.
        """
        forms = {check_name(key): _quoted(key, value) for key, value in changes.items()}
        with locked(self.path):
            text = self._text()
            mark = _MARK if text.startswith(_MARK) else ""
            before = after = text.removeprefix(_MARK)
            for key, form in forms.items():
                after = changed(after, key, form)
            if after == before:
                return
            self._check(before, after, changes)
            write_text(self.path, mark + after)

    def exposed(self) -> str:
        """Says so when others than the owner can read or write the file, else ""."""
        try:
            mode = self.path.stat().st_mode
        except OSError:
            return ""
        if os.name == "nt" or not stat.S_ISREG(mode) or not mode & _OTHERS:
            return ""
        mode = stat.S_IMODE(mode)
        return f"{self.path} can be read by others (mode {mode:04o}): chmod 600 {self.path}"

    def _text(self) -> str:
        return read_text(self.path) or ""

    def _check(self, before: str, after: str, changes: Mapping[str, str | None]) -> None:
        """Read the new text before it is written: an open quote above could swallow a line."""
        wanted = {**_values(before), **changes}
        if _values(after) != {key: each for key, each in wanted.items() if each is not None}:
            raise SecretsError(
                "can't be changed without touching other lines; nothing was written",
                where=str(self.path),
                hint="look for a quote that is not closed",
            )


def _values(text: str) -> dict[str, str]:
    found = {each.key: each.value for each in assignments(text)}
    return {key: value for key, value in found.items() if value is not None}


def _quoted(key: str, value: str | None) -> str | None:
    if value is None:
        return None
    form = quoted(check_value(key, value))
    if form is None:
        raise SecretsError(
            "the value ends with a backslash, or has a quote or backslash together with a $ or `: "
            "no way of writing it to a .env is read alike by python-dotenv and by a shell; nothing "
            "was stored",
            where=key,
            hint="keep it in the OS keyring, or ask for a value without one of them",
        )
    return form
