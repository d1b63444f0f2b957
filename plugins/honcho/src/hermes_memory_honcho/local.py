"""Small databases of the plugin's own, below the home: for their owner alone, for all processes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from hermes_core import DatabaseError

_BUSY_SECONDS: Final = 10.0


@contextmanager
def opened(path: Path, table: str) -> Iterator[sqlite3.Connection]:
    """A connection for one change, which is made as a whole or not at all.

    Raises:
        DatabaseError: The file can't be used.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as db, db:
            db.execute(table)
            yield db
    except (OSError, sqlite3.Error) as error:
        raise DatabaseError(
            f"what waits to be sent, or was, can't be kept: {error}",
            where=str(path),
            hint="see that the disk has room; a damaged file can be moved away",
        ) from error
