"""A journal: a file in the home that says what was begun and how far it is.

`forget`, `storage migrate` and `switch` each have one. It is written before the first step and
replaced as a whole, so after a crash it says what the next run has to go on with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from hermes_core.errors import CHECK_FOLDER, HermesError
from hermes_core.storage.files import file_lock, read_regular, replace_file, sync_folder

_T = TypeVar("_T")

_LOCK_SECONDS: Final = 2.0
#: A `forget` names every session of a person.
_MOST_BYTES: Final = 100_000_000


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal of one command.

    Attributes:
        name: Its file in the home.
        what: What it is about, for an error.
        hint: What to do if it can't be read.
    """

    name: str
    what: str
    hint: str

    def read(self, home: Path, parse: Callable[[dict[str, Any]], _T]) -> _T | None:
        """Return what ``parse`` makes of it; None if there is none.

        Raises:
            HermesError: It can't be read.
        """
        path = home / self.name
        try:
            return parse(json.loads(read_regular(path, _MOST_BYTES)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"{self.what} can't be read: {error}"
            raise HermesError(what, where=str(path), hint=self.hint) from error

    def write(self, home: Path, values: Mapping[str, Any]) -> None:
        """Replace it.

        Raises:
            HermesError: It can't be written.
        """
        path = home / self.name
        text = json.dumps({"schema": 1, **values}, default=dict)
        try:
            replace_file(path, text.encode("utf-8", "surrogatepass"), mode=0o600)
        except OSError as error:
            what = f"can't be written: {error.strerror or error}"
            raise HermesError(what, where=str(path), hint=CHECK_FOLDER) from error

    def remove(self, home: Path) -> None:
        """Remove it: what it is about is done."""
        (home / self.name).unlink(missing_ok=True)
        with suppress(OSError):
            sync_folder(home)

    @contextmanager
    def exclusive(self, home: Path) -> Iterator[None]:
        """Hold the lock that lets one of these run at a time; a home that is not there has none."""
        if not home.is_dir():
            yield
            return
        with file_lock(home / f"{self.name}.lock", _LOCK_SECONDS):
            yield
