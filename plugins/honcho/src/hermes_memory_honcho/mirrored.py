"""Which notes were mirrored, word for word.

hermes-agent names the note that goes by a part of its text. Among conclusions, which Honcho also
draws itself, that part may be in one that was never a note: so a part is looked up here.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from sqlite3 import Connection
from typing import Final

from hermes_memory_honcho.local import opened

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS notes (
    workspace TEXT, user TEXT, content TEXT, PRIMARY KEY (workspace, user, content))
"""


class Mirrored:
    """The notes of one workspace that Honcho was told."""

    def __init__(self, home: Path, workspace: str) -> None:
        self._path = home / "honcho" / "notes.db"
        self._workspace = workspace

    def put(self, user: str, content: str) -> None:
        """A note was told."""
        with self._open() as db:
            db.execute(
                "INSERT OR IGNORE INTO notes VALUES (?, ?, ?)", (self._workspace, user, content)
            )

    def remove(self, user: str, content: str) -> None:
        """A note was taken back."""
        with self._open() as db:
            db.execute(
                "DELETE FROM notes WHERE (workspace, user, content) = (?, ?, ?)",
                (self._workspace, user, content),
            )

    def meant(self, user: str, part: str, new: str) -> str:
        """The note that a part of it names, if only one has it; else the part itself.

        Args:
            user: Whose note.
            part: Some of its text, or all.
            new: What takes its place; an earlier attempt may have put it here.
        """
        if not self._path.exists():
            return part
        with self._open() as db:
            rows = db.execute(
                "SELECT content FROM notes WHERE (workspace, user) = (?, ?)"
                " AND instr(content, ?) AND content != ?",
                (self._workspace, user, part, new),
            ).fetchall()
        found = [content for (content,) in rows]
        return found[0] if len(found) == 1 and part != new else part

    def _open(self) -> AbstractContextManager[Connection]:
        return opened(self._path, _TABLE)
