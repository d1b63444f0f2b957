"""Ids for users, sessions and banks, in a service's alphabet, without collisions.

A text that fits is its own id, so that ids stay what hermes-agent and people call them. Any
other text is converted to the alphabet and gets a hash of the original.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Final, NamedTuple

from hermes_core.errors import ConfigError, DatabaseError
from hermes_core.service.own_files import own_database
from hermes_core.session import LOCAL, identity_text

#: 128 bits: even somebody who chooses their id can't find one with the hash of another.
_DIGITS: Final = 32
#: What looks like an id with a hash is never taken as it is; version 0.1.0 had 12 digits.
_HASHED: Final = re.compile(rf"(?:^|.*[-_.:])(?:[0-9a-f]{{12}}|[0-9a-f]{{{_DIGITS}}})", re.DOTALL)
_JOINTS: Final = "-_"


class Alphabet(NamedTuple):
    """What a service accepts as an id.

    Attributes:
        allowed: The characters, as inside the brackets of a regular expression.
        longest: The maximum length.
        filler: Replaces characters that are not allowed.
    """

    allowed: str
    longest: int
    filler: str = "-"

    def takes(self, text: str) -> bool:
        """Return whether a text is a valid id."""
        return bool(re.fullmatch(f"[{self.allowed}]{{1,{self.longest}}}", text))

    def sanitised(self, text: str) -> str:
        """Return the text with each run of forbidden characters replaced by the filler."""
        return re.sub(f"[^{self.allowed}]+", self.filler, text)


def make_id(text: str, alphabet: Alphabet) -> str:
    """Return the id of a text: the text itself if it fits, else one with a hash."""
    if alphabet.takes(text) and not _HASHED.fullmatch(text):
        return text
    return _with_hash(text, text, alphabet)


def expand_id(template: str, values: Mapping[str, str], alphabet: Alphabet) -> str:
    """Return the id for a template such as ``hermes-{profile}-{user}``.

    A field without a value is left out with its separator, as hermes-agent does. Values that
    could collide with others get a hash.

    Raises:
        ConfigError: The template is invalid or has an unknown field.
    """
    parts = _parsed(template, values)
    named = [values[field] for _, field in parts if field]
    text = alphabet.sanitised("".join(before + values.get(field, "") for before, field in parts))
    # An empty field leaves two separators in a row: "hermes--ada" becomes "hermes-ada".
    text = re.sub(r"([-_])\1+", r"\1", text).strip(_JOINTS)
    if _is_plain(parts, named, alphabet) and alphabet.takes(text) and not _HASHED.fullmatch(text):
        return text
    # The hash is one of the values, not of the text: "a-b" + "c" and "a" + "b-c" give the same
    # text.
    return _with_hash(text, repr(named), alphabet)


def _with_hash(text: str, origin: str, alphabet: Alphabet) -> str:
    digits = hashlib.sha256(origin.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    room = alphabet.longest - _DIGITS - len(alphabet.filler)
    start = alphabet.sanitised(text)[:room].strip(_JOINTS)
    return f"{start}{alphabet.filler}{digits}" if start else digits


def _parsed(template: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return its parts: the text before a field, and the field ("" after the last)."""
    try:
        parts = [(before, field or "") for before, field, *_ in Formatter().parse(template)]
    except ValueError as error:
        raise ConfigError(f"the template {template!r} is invalid: {error}") from error
    unknown = [field for _, field in parts if field and field not in values]
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in values)
        raise ConfigError(
            f"the template {template!r} has the unknown field {unknown[0]!r}",
            hint=f"known: {known}",
        )
    return parts


def _is_plain(parts: Sequence[tuple[str, str]], named: Sequence[str], alphabet: Alphabet) -> bool:
    """Return whether no other values could make the same text."""
    if any(value and not _stays_unchanged(value, alphabet) for value in named):
        return False
    if len(named) < 2:  # noqa: PLR2004 - one value can't be taken for another
        return True
    # With several fields the result is unambiguous only if each value can be cut out again: there
    # is text between the fields, empty values come last, and no value but the last contains a
    # separator.
    joints = [before for before, field in parts if field][1:]
    if not all(joints):  # two fields that touch
        return False
    first_empty = next((at for at, value in enumerate(named) if not value), len(named))
    if any(named[first_empty:]):
        return False
    return not any(char in value for value in named[:-1] for char in set("".join(joints)))


def _stays_unchanged(value: str, alphabet: Alphabet) -> bool:
    """Return whether a value stays unchanged wherever it appears in the id."""
    doubled = re.search(r"([-_])\1", value)
    return alphabet.takes(value) and not doubled and value.strip(_JOINTS) == value


# -- Who somebody is: two platforms may have the same number for two people ---------------------
#
# hermes-agent calls somebody by their number alone. Whoever came first keeps that name, so that
# their memory goes on; a home remembers from which platform that was.

_PEOPLE: Final = "CREATE TABLE IF NOT EXISTS people (name TEXT PRIMARY KEY, platform TEXT)"


def is_first(folder: Path, name: str, platform: str) -> bool:
    """Return whether a name belongs to a platform; it does if nobody had it before.

    If the folder can't be written to, it belongs to nobody: then no two people can share it.

    Args:
        folder: The provider's folder below the home; ``people.db`` in it has the names.
        name: The name.
        platform: The platform on which somebody is called so.
    """
    path, key = folder / "people.db", identity_text(name)
    try:
        with own_database(path, _PEOPLE) as database:
            database.execute("INSERT OR IGNORE INTO people VALUES (?, ?)", (key, platform))
            query = "SELECT platform FROM people WHERE name = ?"
            row = database.execute(query, (key,)).fetchone()
    except (DatabaseError, UnicodeEncodeError):
        return False
    return bool(row[0] == platform)


def forget_person(folder: Path, platform: str, user_id: str) -> None:
    """Forget that a name belongs to somebody of a platform.

    Call it only when the service has nothing of them any more: whoever has the same id on another
    platform may then get their name.
    """
    path, name = folder / "people.db", identity_text(user_id)
    if not path.exists():
        return
    with own_database(path, _PEOPLE, erase=True) as database:
        database.execute(
            # A plugin may put a prefix before the id, such as its workspace.
            "DELETE FROM people WHERE platform = ? AND (name = ? OR substr(name, -length(?)) = ?)",
            (platform, name, f"/{name}", f"/{name}"),
        )


def is_local(platform: str) -> bool:
    """Return whether a platform is on the owner's machine: nobody else talks there."""
    return platform in LOCAL


def person_name(folder: Path, platform: str, user_id: str, chat_id: str = "") -> str:
    """Return a text for who talks, from which `make_id` makes an id that nobody else has.

    It is the user id for the first one of that id, and "" for the person at the terminal. For
    anybody else it contains a NUL, which no id of the first kind does.

    Args:
        folder: The provider's folder below the home.
        platform: Where somebody talks.
        user_id: Who it is there; "" if the host does not know. Then it is whoever is in the chat.
        chat_id: The chat.
    """
    if not user_id:
        return "" if is_local(platform) else f"chat\0{(platform, chat_id)!r}"
    if "\0" not in user_id and is_first(folder, user_id, platform):
        return user_id
    return f"user\0{(platform, user_id)!r}"
