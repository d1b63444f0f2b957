"""Who is who in Honcho: the workspace, the person, the agent and the session of a conversation.

The names are hermes-agent's where they fit Honcho's alphabet. A name that does not fit gets a
hash, so that two people, or two chats, never become one.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from hermes_core.backends import Alphabet, Start, expanded_id, made_id
from hermes_memory_honcho.folders import folder_name
from hermes_memory_honcho.settings import Settings

#: The server takes 512; hermes-agent keeps to 100, and so do names that it made.
ALPHABET: Final = Alphabet("a-zA-Z0-9_-", 100)


class Place(NamedTuple):
    """Where a conversation is kept: everything that its messages need to be filed."""

    session: str
    user: str
    ai: str


class Said(NamedTuple):
    """Something that somebody said."""

    peer: str
    text: str


class Names:
    """The names of one agent: settings, and what is known of who talks to it, where."""

    def __init__(self, settings: Settings, start: Start, folder: Path) -> None:
        self._settings = settings
        self._start = start
        self._folder = folder
        self.workspace = made_id(settings.workspace, ALPHABET)
        self.ai = made_id(settings.ai_peer, ALPHABET)
        self.user = self._apart(self._user())

    @property
    def is_shared(self) -> bool:
        """Whether the agent talks to several people, of whom this is one."""
        return bool(self._start.user_id) and not self._pinned

    def place(self, session_id: str) -> Place:
        """Where a session of ours is kept."""
        return Place(self._session(session_id), self.user, self.ai)

    # -- the person -------------------------------------------------------------------------------

    @property
    def _pinned(self) -> bool:
        return self._settings.pin_user_peer and bool(self._settings.peer_name)

    def _user(self) -> str:
        settings = self._settings
        known = [each for each in (self._start.user_id, self._start.user_id_alt) if each]
        if self._pinned or (settings.peer_name and not known):
            return made_id(settings.peer_name, ALPHABET)
        for each in known:
            if each in settings.user_peer_aliases:
                return made_id(settings.user_peer_aliases[each], ALPHABET)
        if known:
            return self._stranger(f"{settings.runtime_peer_prefix}{known[0]}")
        if settings.session_strategy == "per-session" and not self._start.gateway_session_key:
            return "user-default"  # else every session would have a person of its own
        session = self._start.gateway_session_key or self._common_session
        return made_id(f"user-default-{session}", ALPHABET)

    def _stranger(self, name: str) -> str:
        """Somebody without an alias; with a prefix nobody is taken for one who has a name."""
        settings = self._settings
        named = {settings.peer_name, *settings.user_peer_aliases.values()}
        clash = bool(settings.runtime_peer_prefix) and name in named
        return made_id(f"{name}\0" if clash else name, ALPHABET)

    def _apart(self, user: str) -> str:
        """A person is never the agent, whatever they are called."""
        return made_id(f"{user}\0", ALPHABET) if user == self.ai else user

    # -- the session ------------------------------------------------------------------------------

    def _session(self, session_id: str) -> str:
        start, settings = self._start, self._settings
        if start.gateway_session_key:
            return made_id(start.gateway_session_key, ALPHABET)
        if settings.session_strategy == "per-session" and session_id:
            return self._prefixed(session_id)
        name = self._common_session
        if not self.is_shared:
            return name
        # A folder is the same for everybody, and a session's summary is for who is in it.
        return expanded_id("{user}-{name}", {"user": self.user, "name": name}, ALPHABET)

    @cached_property
    def _common_session(self) -> str:
        """The session of a folder, a repository or everything."""
        settings, folder = self._settings, self._folder
        mapped = settings.sessions.get(str(folder))
        if mapped:
            return made_id(mapped, ALPHABET)
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
            return made_id(name, ALPHABET)
        return expanded_id("{peer}-{name}", {"peer": peer, "name": name}, ALPHABET)


def repository(folder: Path) -> Path | None:
    """The root of the Git repository that a folder is in."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
