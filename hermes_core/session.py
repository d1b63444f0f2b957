"""`SessionContext`: who talks with the agent, where, and in which context.

One type from ``MemoryManager.initialize_all`` to the outbox. Providers still receive keywords, as
the contract says; `SessionContext.keywords` is the one place that makes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from json import dumps, loads  # before a plugin can replace them
from typing import Any, Final, Self

#: The ``agent_context`` of an agent that talks with its user.
PRIMARY: Final = "primary"

#: The platform of a person at a terminal, who owns the machine. Also the default.
TERMINAL: Final = "cli"

#: What hermes-agent calls the interfaces on the owner's machine: terminal, full screen, desktop and
#: editor. Without a user id, whoever talks there is the owner.
LOCAL: Final = frozenset({TERMINAL, "tui", "desktop", "acp"})

#: Fields that a provider receives only when the host knows them.
OPTIONAL: Final = (
    "parent_session_id",
    "user_id",
    "user_id_alt",
    "user_name",
    "chat_id",
    "chat_name",
    "chat_type",
    "thread_id",
    "session_title",
    "gateway_session_key",
)

#: Fields that a change of session may change. The platform and the profile stay.
CHANGEABLE: Final = tuple(
    name for name in OPTIONAL if name not in ("parent_session_id", "gateway_session_key")
)

#: Fields that people word themselves, so they may contain a secret. All others identify something
#: and must arrive unchanged. ``name`` is the name of a turn's author.
FREE_TEXT: Final = ("session_title", "user_name", "chat_name", "name")

#: What is no longer known when another user or chat follows, unless the host says it again.
_OF_THE_USER: Final = ("user_id_alt", "user_name", "gateway_session_key")
_OF_THE_CHAT: Final = ("chat_name", "chat_type", "thread_id", "gateway_session_key")

#: Fields that describe the session itself; the others describe its user and its place.
_OF_THE_SESSION: Final = ("parent_session_id", "session_title")
_ALWAYS: Final = ("hermes_home", "platform", "agent_context", "agent_identity", "agent_workspace")


@dataclass(frozen=True, slots=True)
class SessionContext:
    """One session, as its host started it.

    The defaults are those of a person at a terminal. Values are passed on unchanged;
    None means that the host does not know.

    Attributes:
        session_id: The session.
        hermes_home: The folder below which the agent stores its state.
        platform: Where the conversation takes place: "cli", "telegram", "cron", ...
        agent_context: What the agent does there: "primary", "subagent", "cron" or "flush".
        agent_identity: The agent's profile.
        agent_workspace: The workspace that the profile belongs to.
        parent_session_id: The session that this one continues.
        user_id: Who talks with the agent.
        user_id_alt: The same person, as another service knows them.
        user_name: What that person is called.
        chat_id: The chat or channel.
        chat_name: What the chat is called.
        chat_type: "dm", "group", ...
        thread_id: The thread within the chat.
        session_title: What the session is called.
        gateway_session_key: The session, as the host's gateway names it.
        more: Every other keyword that the host passed.
    """

    session_id: str = ""
    hermes_home: str = ""
    platform: str = TERMINAL
    agent_context: str = PRIMARY
    agent_identity: str = "default"
    agent_workspace: str = "hermes"
    parent_session_id: str | None = None
    user_id: str | None = None
    user_id_alt: str | None = None
    user_name: str | None = None
    chat_id: str | None = None
    chat_name: str | None = None
    chat_type: str | None = None
    thread_id: str | None = None
    session_title: str | None = None
    gateway_session_key: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def from_keywords(cls, session_id: str, keywords: Mapping[str, Any]) -> Self:
        """Build a context from the keywords of ``initialize``."""
        # None counts as missing: hermes-agent passes None for what a platform does not have, and
        # the defaults must apply then.
        fields = {name: value for name in _FIELDS if (value := keywords.get(name)) is not None}
        more = {name: value for name, value in keywords.items() if name not in _FIELDS}
        return cls(session_id, **fields, more=more)

    @classmethod
    def from_json(cls, session_id: str, text: str) -> Self:
        """Build a context from what `to_json` returned.

        Raises:
            ValueError: The text is not a JSON object.
        """
        found = loads(text)
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - the text is wrong, not its type
        return cls.from_keywords(session_id, found)

    @property
    def is_primary(self) -> bool:
        """Whether this is the agent itself, whose turns belong into its user's memory."""
        return (self.agent_context or PRIMARY) == PRIMARY

    def keywords(self) -> dict[str, Any]:
        """Return the keywords of ``initialize``: everything known but ``session_id``."""
        known = {name: getattr(self, name) for name in _FIELDS}
        if not self.hermes_home:
            del known["hermes_home"]
        return {name: value for name, value in known.items() if value is not None} | {**self.more}

    def to_json(self) -> str:
        """Return the plain keywords as JSON, the same text for the same session.

        The outbox identifies a session by this text, so its format must not change. The home is
        left out, since a home can be moved; so are objects of the host, which can't be stored.
        An object as an id (a UUID) is stored as text: without it, two people would be one.
        """
        stored = {
            name: value if _is_plain(value) else str(value)
            for name, value in self.keywords().items()
            if name != "hermes_home" and (_is_plain(value) or name in _FIELDS)
        }
        return dumps(stored, sort_keys=True)

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Who talks with the agent, and where: platform, user, chat and profile.

        Two sessions are of one person if these are the same, and not by their names.
        """
        known = (self.platform, self.user_id, self.chat_id, self.agent_identity)
        platform, user, chat, profile = ("" if each is None else str(each) for each in known)
        return platform, user, chat, profile

    def participants(self) -> dict[str, Any]:
        """Return who talks and where, without what describes this one session."""
        return {k: v for k, v in self.keywords().items() if k not in _OF_THE_SESSION}

    def switched(self, session_id: str, parent: str, changes: Mapping[str, Any]) -> Self:
        """Return the context of the session that follows this one.

        Args:
            session_id: The session that starts.
            parent: The session that it continues; "" if none.
            changes: The keywords of ``on_session_switch``. Only those in `CHANGEABLE` count.
        """
        # A host that does not know a value passes nothing: the old one still applies then.
        given = {name: changes[name] for name in CHANGEABLE if changes.get(name) is not None}
        # Another id, or the key of the chat before, would take one person for the other.
        known: dict[str, Any] = {}
        if given.get("user_id", self.user_id) != self.user_id:
            known |= dict.fromkeys(_OF_THE_USER)
        if given.get("chat_id", self.chat_id) != self.chat_id:
            known |= dict.fromkeys(_OF_THE_CHAT)
        known |= given
        return replace(self, session_id=session_id, parent_session_id=parent or None, **known)


_FIELDS: Final = (*_ALWAYS, *OPTIONAL)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


# -- ids as databases can store them ------------------------------------------------------------

_ESCAPE: Final = "\ufffd"
_ESCAPED: Final = re.compile(f"[{_ESCAPE}\ud800-\udfff]")
_ENCODED: Final = re.compile(f"{_ESCAPE}(fffd|d[89a-f][0-9a-f]{{2}})")


def identity_text(value: object) -> str:
    """An id as a database can store it: any two ids stay two.

    No database takes halves of surrogate pairs. They are written as U+FFFD and four hex digits;
    so is U+FFFD itself, since a replacement character alone would make one person of many.
    """
    text = str(value)
    return text if text.isascii() else _ESCAPED.sub(_escaped, text)


def identity_from(stored: str) -> str:
    """The id that `identity_text` was given."""
    return _ENCODED.sub(lambda found: chr(int(found[1], 16)), stored)


def _escaped(found: re.Match[str]) -> str:
    return f"{_ESCAPE}{ord(found[0]):04x}"
