"""Who is who in Honcho: workspace, person, agent and session; and the data types of this plugin."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hermes_core import DatabaseError
from hermes_core.service import (
    Alphabet,
    SessionStart,
    expand_id,
    is_first,
    is_local,
    make_id,
    own_database,
    read_own_file,
)
from hermes_memory_honcho.settings import HonchoSettings


def writable(name: str) -> str:
    """A name as a file can hold it: ids of a gateway and names of folders may be no Unicode."""
    return name.encode("utf-8", "backslashreplace").decode()


# -- Names of folders: the last part of the path, unless another folder has that name already ---
#
# ``app`` is what hermes-agent calls the session of ``~/work/app``. That of ``~/play/app`` must be
# another one, so a home remembers which folder came first.

_FOLDERS: Final = "CREATE TABLE IF NOT EXISTS folders (name TEXT PRIMARY KEY, path TEXT)"


def folder_name(home: Path, folder: Path) -> str:
    """What a folder is called in this home. A path is the name of all others that share it."""
    name = folder.name or "root"
    key, path = writable(name), writable(str(folder))
    # Version 0.1.0 wrote this file, without a lock.
    first = read_own_file(home / "honcho" / "folders.json").get(key, path)
    try:
        with own_database(home / "honcho" / "folders.db", _FOLDERS) as db:
            db.execute("INSERT OR IGNORE INTO folders VALUES (?, ?)", (key, first))
            row = db.execute("SELECT path FROM folders WHERE name = ?", (key,)).fetchone()
    except DatabaseError:  # other checks report a read-only home
        return name
    return name if row[0] == path else str(folder)


# -----------------------------------------------------------------------------------------------
# Who is who in Honcho: the workspace, the person, the agent and the session of a conversation
#
# The names are hermes-agent's where they fit Honcho's alphabet. A name that does not fit gets a
# hash, so that two people, or two chats, never become one.

#: The server takes 512; hermes-agent uses at most 100, and so do names that it made.
ALPHABET: Final = Alphabet("a-zA-Z0-9_-", 100)
_NOBODY: Final = "user-default"  # a person without a name
#: ``telegram:1001`` in the aliases: a platform, and a user id there.
_WITH_PLATFORM: Final = re.compile(r"[a-z][a-z0-9_-]*:")


class SessionAddress(NamedTuple):
    """Where a conversation is stored: everything that its messages need to be filed."""

    session: str
    user: str
    ai: str


class Utterance(NamedTuple):
    """Something that somebody said."""

    peer: str
    text: str


class Names:
    """The names of one agent: settings, and what is known of who talks to it, where."""

    def __init__(self, settings: HonchoSettings, start: SessionStart, folder: Path) -> None:
        self._settings = settings
        self._start = start
        self._folder = folder
        self.workspace = make_id(settings.workspace, ALPHABET)
        self.ai = make_id(settings.ai_peer, ALPHABET)

    @cached_property
    def user(self) -> str:
        """The person."""
        return self._not_the_agent(self._user())

    @property
    def is_shared(self) -> bool:
        """Whether the agent talks to several people, of whom this is one."""
        known = self._start.user_id or self._start.user_id_alt
        return bool(known or self._is_elsewhere) and not self._pinned

    @property
    def _registry(self) -> Path:
        return self._start.home / "honcho"

    def place(self, session_id: str) -> SessionAddress:
        """Where a session of ours is stored."""
        return SessionAddress(self._session(session_id), self.user, self.ai)

    # -- the person -------------------------------------------------------------------------------

    @property
    def _pinned(self) -> bool:
        return self._settings.pin_user_peer and bool(self._settings.peer_name)

    def _user(self) -> str:
        settings = self._settings
        known = [each for each in (self._start.user_id, self._start.user_id_alt) if each]
        if self._pinned or (settings.peer_name and not known and not self._is_elsewhere):
            return make_id(settings.peer_name, ALPHABET)
        for each in known:
            if alias := self._alias(each):
                return make_id(alias, ALPHABET)
        if known:
            return self._without_alias(f"{settings.runtime_peer_prefix}{known[0]}")
        if settings.session_strategy == "per-session" and not self._chat:
            return self._nobody(_NOBODY)  # else every session would have another person
        return self._nobody(f"{_NOBODY}-{self._chat or self._common_session}")

    def _nobody(self, name: str) -> str:
        """Somebody without an id: the person at the terminal, or whoever is in a chat."""
        is_named = self._chat or not self._is_elsewhere
        return make_id(name if is_named else f"{name}\0{self._start.platform}", ALPHABET)

    def _alias(self, user: str) -> str:
        """The alias of a user id: for a platform, or for the first platform that has the id."""
        aliases, start = self._settings.user_peer_aliases, self._start
        if alias := aliases.get(f"{start.platform}:{user}"):
            return alias
        # Somebody may choose an id that reads like the user of another platform.
        alias = "" if _WITH_PLATFORM.match(user) else aliases.get(user, "")
        # The NUL: no workspace begins with one, so nobody's name is the key of an alias.
        key = f"\0alias/{self.workspace}/{user}"
        return alias if alias and is_first(self._registry, key, start.platform) else ""

    def _without_alias(self, name: str) -> str:
        """Somebody without an alias, who is taken for nobody else.

        They may call themselves like the person at the terminal, and have a number on one platform
        that is somebody else's on another: who came first has the plain name.
        """
        settings, platform = self._settings, self._start.platform
        named = {settings.peer_name, *settings.user_peer_aliases.values()}
        is_taken = name in named or name.startswith(_NOBODY) or "\0" in name
        if is_taken or not is_first(self._registry, f"{self.workspace}/{name}", platform):
            return make_id(_joined(platform, name), ALPHABET)
        return make_id(name, ALPHABET)

    def _not_the_agent(self, user: str) -> str:
        """A person is never the agent, whatever they are called."""
        return make_id(f"{user}\0", ALPHABET) if user == self.ai else user

    # -- the session ------------------------------------------------------------------------------

    def _session(self, session_id: str) -> str:
        settings = self._settings
        if self._chat:
            return make_id(self._chat, ALPHABET)
        is_own = settings.session_strategy == "per-session" and session_id
        name = self._prefixed(session_id) if is_own else self._common_session
        if not self.is_shared:
            return name
        # Two people may have sessions of one name, a folder is the same for everybody, and a
        # session's summary is for who is in it. The NUL makes it a name with a hash: a folder may
        # be called like a person and another folder.
        return make_id(f"{self.user}\0{name}", ALPHABET)

    @property
    def _is_elsewhere(self) -> bool:
        """Whether this is a gateway: anybody may talk there."""
        return not is_local(self._start.platform)

    @property
    def _chat(self) -> str:
        """What a chat is called: as the gateway says, or else by its number."""
        start, key = self._start, self._start.gateway_session_key
        if not key and not start.chat_id:
            return ""
        if not key:
            return _joined(*filter(None, ("chat", start.platform, start.chat_id, start.thread_id)))
        # hermes-agent's keys name their platform. Others may be a client's choice: one that reads
        # like a folder, a title or a chat of another platform must not open that session.
        is_whole = not self._is_elsewhere or f":{start.platform}:" in f":{key}:"
        return key if is_whole else _joined("key", start.platform, key)

    @cached_property
    def _common_session(self) -> str:
        """The session of a folder, a repository or everything."""
        settings, folder = self._settings, self._folder
        mapped = settings.sessions.get(str(folder))
        if mapped:
            return make_id(mapped, ALPHABET)
        if self._start.session_title:
            return self._prefixed(self._start.session_title)
        if settings.session_strategy == "global":
            return self.workspace
        if settings.session_strategy == "per-repo":
            folder = repository(folder) or folder
        return self._prefixed(folder_name(self._start.home, folder))

    def _prefixed(self, name: str) -> str:
        peer = self._settings.peer_name
        if not (self._settings.session_peer_prefix and peer):
            return make_id(name, ALPHABET)
        return expand_id("{peer}-{name}", {"peer": peer, "name": name}, ALPHABET)


def _joined(*parts: str) -> str:
    """Several names as one, which no other names make."""
    if any("\0" in each for each in parts):
        return f"\0{parts!r}"
    return "\0".join(parts)


def repository(folder: Path) -> Path | None:
    """The root of the Git repository that a folder is in."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


# -- What travels between the modules of this plugin --------------------------------------------


class Entry(NamedTuple):
    """What was said in one turn.

    Attributes:
        key: The same for every attempt.
        said: By whom, and what; however long.
        facts: Stored with each message.
        attempt: From the second on an earlier one may have come through, in part too.
        said_at: When, in seconds since the epoch.
    """

    key: str
    said: Sequence[Utterance]
    facts: Mapping[str, Any]
    attempt: int = 1
    said_at: float = 0.0


class Portrait(NamedTuple):
    """What somebody knows of somebody: conclusions, and a card of facts."""

    representation: str = ""
    card: Sequence[str] = ()


class FoundMessage(NamedTuple):
    """A message that was found."""

    peer: str
    session: str
    text: str


class SearchFilter(NamedTuple):
    """Where to search: days or moments in ISO 8601, one session, values that metadata has."""

    since: str = ""
    until: str = ""
    session: str = ""
    metadata: Mapping[str, Any] = MappingProxyType({})


class Context(NamedTuple):
    """What there is on a session and somebody in it."""

    summary: str = ""
    portrait: Portrait = Portrait()
    recent: Sequence[FoundMessage] = ()


class Queue(NamedTuple):
    """How far Honcho is with drawing conclusions, in pieces of work."""

    done: int = 0
    working: int = 0
    waiting: int = 0
