"""What can go wrong with notes."""

from __future__ import annotations

from hermes_core import HermesError


class NotesError(HermesError):
    """A notebook can't be read or changed."""


class FileChanged(Exception):  # noqa: N818 - reads as what happened; never leaves the package
    """The file was changed between reading and writing it."""


class Refused(Exception):  # noqa: N818 - reads as what happened; never leaves the package
    """An operation can't be carried out on the entries as they are.

    ``current`` says that whoever asked must see the entries to choose; ``matches`` are the
    entries among which, where there are several.
    """

    def __init__(self, text: str, *, current: bool = False, matches: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.current = current
        self.matches = matches
