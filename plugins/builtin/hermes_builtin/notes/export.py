"""MEMORY.md and USER.md as copies of notes that are in a database, in step with them.

The copies are for people who edit files by hand. What they change is merged into the notebook by
entries, as it stands, and recorded as a file edit; then the copy gets what the notebook has. A copy
that is missing is written again: it is not the notebook.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from hermes_builtin.notes.entries import FileChanged, KnownText, NotesError, parse
from hermes_builtin.notes.history_file import HistoryFile
from hermes_builtin.notes.notebook import FILES, Notebook
from hermes_builtin.notes.notes_text import FileText, NotesFile
from hermes_builtin.notes.people import PeopleFolders
from hermes_core.errors import CHECK_FOLDER
from hermes_core.storage.files import replace_file
from hermes_core.storage.migration import MOVED_HINT, frozen_hint

_STATE: Final = ".exported.json"


class ExportResult(NamedTuple):
    """What was done to one copy.

    Attributes:
        target: The notebook.
        path: The copy.
        written: Whether the copy was changed.
        edited: Whether an edit of the copy was taken over.
        kept: The name of the file that was there before the first export; "" if there was none.
    """

    target: str
    path: str
    written: bool = False
    edited: bool = False
    kept: str = ""


class _CommonText(NamedTuple):
    """The text that the notebook and its copy had in common, as far as we know.

    Attributes:
        text: What was in the copy when it was last written.
        following: What it is about to get. If we are killed in between, it has one of the two.
        inode: Which file it was.
    """

    text: str
    following: str
    inode: int = 0


class Export:
    """The copies of all notebooks of a home.

    Args:
        folder: ``memories`` below the home.

    Raises:
        NotesError: The notes were moved from this folder to the database. What is there stays as it
            was, for whoever goes back.
    """

    def __init__(self, folder: Path) -> None:
        _refuse_source(folder)
        self._folder = folder
        self._people = PeopleFolders(folder)
        self._state = folder / _STATE
        self._common = self._read_state()

    def step(self, notebook: Notebook) -> ExportResult:
        """Take over what somebody did to the copy, and write what the notebook has.

        Raises:
            NotesError: The copy, or the notebook, can't be read or written.
        """
        name = notebook.key.partition("/")[2]
        folder = self._people.folder(name) if name else self._folder
        copy = NotesFile(folder / FILES[notebook.target])
        with copy.locked():
            done = ExportResult(notebook.key, copy.place)
            try:
                return self._synchronised(notebook, copy, done)
            except FileChanged:  # an editor was faster; the next step sees what it saved
                return done

    def _synchronised(
        self, notebook: Notebook, copy: NotesFile, done: ExportResult
    ) -> ExportResult:
        seen, common = copy.look(), self._common.get(notebook.key)
        if seen.inode and common is None:
            done = done._replace(kept=self._keep(copy, seen, notebook.text.read()))
        elif seen.inode and common is not None and seen.text not in (common.text, common.following):
            base = KnownText(common.text, parse(common.text), common.inode)
            wanted = parse(seen.text, base, seen.inode)
            done = done._replace(edited=notebook.take_over(base.entries, wanted).changed)
        text = notebook.text.read()
        if text == seen.text and (seen.inode or not text):
            self._note(notebook.key, _CommonText(text, text, seen.inode))
            return done
        self._note(notebook.key, _CommonText(common.text if common else "", text, seen.inode))
        aside = copy.write_aside(text)
        try:
            copy.put_in_place(aside, expected=seen.text)
        except BaseException:
            aside.discard()
            raise
        self._note(notebook.key, _CommonText(text, text, aside.inode))
        return done._replace(written=True)

    def _keep(self, copy: NotesFile, seen: FileText, text: str) -> str:
        """Keep a file that we did not write: it may be all that is left of older notes."""
        if seen.text in ("", text):
            return ""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        kept = copy.path.with_name(f"{copy.path.name}.before-export-{stamp}")
        self._write(kept, seen.text)
        return kept.name

    def _note(self, key: str, common: _CommonText) -> None:
        if self._common.get(key) != common:
            self._common[key] = common
            self._write(self._state, json.dumps({k: v._asdict() for k, v in self._common.items()}))

    def _read_state(self) -> dict[str, _CommonText]:
        try:
            found = json.loads(self._state.read_text("utf-8"))
            return {str(key): _CommonText(**each) for key, each in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # as before the first export: what is there is kept

    @staticmethod
    def _write(path: Path, text: str) -> None:
        try:
            replace_file(path, text.encode(), mode=0o600)
        except OSError as error:
            what = f"can't be written: {error.strerror or error}"
            raise NotesError(what, where=str(path), hint=CHECK_FOLDER) from error


def _refuse_source(folder: Path) -> None:
    with closing(HistoryFile(folder / "history.db")) as history:
        why = history.frozen()
        if (hint := frozen_hint(why)) != MOVED_HINT:  # it is a copy that is not complete
            raise NotesError(why, where=str(folder), hint=hint)
        if why:
            raise NotesError(
                "these notes were moved to the database, and stay here as they were",
                where=str(folder),
                hint="move this folder out of the home, then export again",
            )
