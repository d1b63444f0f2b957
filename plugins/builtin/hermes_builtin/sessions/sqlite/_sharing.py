"""One archive for all who use a file in this process: a gateway has hundreds of managers."""

from __future__ import annotations

import threading
from pathlib import Path

from hermes_builtin.sessions.sqlite._archive import SqliteArchive


class SharedArchives:
    """Archives by file, each closed when its last user lets go of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[Path, tuple[SqliteArchive, int]] = {}

    def open(self, path: Path, *, durable: bool = False) -> SqliteArchive:
        """The archive of a file, as its first user wants it. Every call needs a `close`."""
        with self._lock:
            archive, users = self._users.get(path) or (SqliteArchive(path, durable=durable), 0)
            self._users[path] = (archive, users + 1)
            return archive

    def close(self, archive: SqliteArchive) -> None:
        """One user less."""
        with self._lock:
            current, users = self._users.get(archive.path, (archive, 1))
            if current is archive and users > 1:
                self._users[archive.path] = (archive, users - 1)
                return
            if current is archive:
                self._users.pop(archive.path, None)
        archive.close()
