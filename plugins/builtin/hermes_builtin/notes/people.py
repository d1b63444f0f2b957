"""Whose USER.md it is, where ``memory.user_notes`` is ``per-user``."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from hermes_builtin.notes.entries import NotesError
from hermes_core.errors import CHECK_FOLDER
from hermes_core.session import LOCAL, TERMINAL
from hermes_core.storage.files import replace_file
from hermes_core.storage.home import ensure_folder

PER_USER: Final = "per-user"

_READABLE: Final = 32
_DIGITS: Final = 32
_NAME: Final = re.compile(rf"[a-z0-9-]{{0,{_READABLE + 1}}}[0-9a-f]{{{_DIGITS}}}")
_FILE: Final = "person.json"


class Person(NamedTuple):
    """Somebody, as the host knows them: the platform is part of who it is."""

    platform: str = TERMINAL
    user_id: str = ""

    @classmethod
    def of(cls, facts: Mapping[str, Any], before: Person | None = None) -> Self:
        """The person whom the keywords of a call name; what they don't say is as before."""
        known = before or cls()
        platform, user = facts.get("platform"), facts.get("user_id")
        return cls(
            known.platform if platform in (None, "") else str(platform),
            known.user_id if user is None else str(user),
        )

    @property
    def is_owner(self) -> bool:
        """Whether it is the owner of the machine, at whichever interface on it."""
        return not self.user_id and self.platform in LOCAL

    @property
    def folder(self) -> str:
        """The name of their folder; no two people have the same, on no file system.

        The hash is of the exact identity. The rest is for people who look into the folder, in
        lower-case letters and digits: ids may differ in case alone, and file names may not.
        """
        exact = "\0".join(f"{len(each)}:{each}" for each in self)
        digits = sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        readable = re.sub("[^a-z0-9]+", "-", f"{self.platform}-{self.user_id}".lower())
        return f"{readable[:_READABLE].strip('-')}-{digits}".lstrip("-")


def checked_name(name: str) -> str:
    """The name of a user's folder.

    Raises:
        NotesError: It can't be the name of one.
    """
    if not _NAME.fullmatch(name):
        raise NotesError(f"{name!r} is not the name of a user's folder")
    return name


class PeopleFolders:
    """``memories/users``: a folder for each user, with a file that says whose it is."""

    def __init__(self, memories: Path) -> None:
        self._memories = memories

    def folder(self, name: str) -> Path:
        """The folder of this name. Raises `NotesError` if it can't be the name of one."""
        return self._memories / "users" / checked_name(name)

    def introduce(self, person: Person) -> None:
        """Note whose folder it is: its name does not say it."""
        folder = self.folder(person.folder)
        path = folder / _FILE
        if path.exists():
            return
        ensure_folder(folder)
        try:
            replace_file(path, json.dumps(person._asdict()).encode(), mode=0o600)
        except OSError as error:
            what = f"can't be written: {error.strerror or error}"
            raise NotesError(what, where=str(path), hint=CHECK_FOLDER) from error

    def person(self, name: str) -> Person | None:
        """Whose folder it is; None if nobody noted it, or not correctly."""
        try:
            found = json.loads((self.folder(name) / _FILE).read_text("utf-8"))
            person = Person(str(found["platform"]), str(found["user_id"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return person if person.folder == name else None

    def exists(self, name: str) -> bool:
        """Whether there is a folder of this user."""
        return self.folder(name).exists()

    def drop(self, name: str) -> None:
        """Delete the folder of a user; the caller has its lock."""
        shutil.rmtree(self.folder(name))

    def names(self) -> list[str]:
        """The names of all folders, whether or not it was noted whose they are."""
        names = sorted(each.name for each in (self._memories / "users").glob("*/"))
        return [name for name in names if _NAME.fullmatch(name)]

    def all(self) -> list[Person]:
        """Everybody with their own USER.md."""
        known = (self.person(name) for name in self.names())
        return [person for person in known if person is not None]
