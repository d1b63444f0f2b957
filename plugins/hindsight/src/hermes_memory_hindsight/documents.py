"""Which bank is used, and what is stored in it: each turn, note and task is one document."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from hermes_core import ConfigError
from hermes_core.service import (
    Alphabet,
    CompletedTurn,
    Delegation,
    Note,
    SessionStart,
    expand_id,
    person_name,
)
from hermes_memory_hindsight.settings import HindsightSettings

# -- Which bank: one for each profile and user, unless a person says otherwise ------------------

_BYTES: Final = 192  # the server's limit, in UTF-8
_WIDEST: Final = 4  # bytes of one character in UTF-8
#: What hermes-agent's plugin calls its bank if nobody says anything, and an id for everybody else.
_OURS: Final = "hermes-{profile}-{user}"


def person_of(start: SessionStart) -> str:
    """Who talks: "" for the person at the terminal."""
    return person_name(start.home / "hindsight", start.platform, start.user_id, start.chat_id)


def bank_of(settings: HindsightSettings, start: SessionStart, person: str, session_id: str) -> str:
    """The bank for a session of a person, as `person_of` calls them.

    Raises:
        ConfigError: The name that was set can't be one.
    """
    template = settings.bank_id_template or ("" if settings.bank_id else _OURS)
    values = {
        "profile": start.profile,
        "workspace": start.workspace,
        "platform": start.platform,
        "user": person,
        "session": session_id,
    }
    if not settings.bank_id_template:
        values["profile"] = "" if start.profile == "default" else start.profile
    plain = template.isascii() and all(map(str.isascii, values.values()))
    alphabet = Alphabet(r"\w-", _BYTES if plain else _BYTES // _WIDEST)
    expanded = expand_id(template, values, alphabet)
    # A template of which nothing is left, such as "{user}" at a terminal, names no bank.
    if template.format_map(values).strip("-_"):
        return expanded
    return _checked(settings.bank_id or "hermes")


def _checked(name: str) -> str:
    if "/" in name or len(name.encode("utf-8", "surrogatepass")) > _BYTES:
        raise ConfigError(
            f"bank_id {name!r} can't be the name of a bank",
            where="hindsight",
            hint=f"it has no slash, and at most {_BYTES} bytes",
        )
    return name


# -- What is stored: each turn, note and delegated task is its own document ---------------------
#
# A document's id follows from what it is. So writing it again, after an attempt of which nobody
# knows whether it came through, replaces it: the server works out what is new, and that is nothing.
# For the same reason nothing that changes from attempt to attempt stands in its text.

_NOTES: Final = {
    "memory": "a note that the agent stores",
    "user": "a note about the user",
}


class Document(NamedTuple):
    """Something to remember."""

    id: str
    content: str
    context: str
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    said_at: float = 0.0

    def item(self, scopes: str | list[list[str]] | None) -> dict[str, Any]:
        """As the SDK wants it."""
        made = {
            "content": self.content,
            "document_id": self.id,
            "context": self.context,
            "tags": list(self.tags),
            "metadata": dict(self.metadata),
            "observation_scopes": scopes,
            # The server dates it by its arrival otherwise: "yesterday" would mean another day.
            "timestamp": _moment(self.said_at) if self.said_at else None,
        }
        return {key: value for key, value in made.items() if value}


class DocumentWriter:
    """Writes documents for one session start."""

    def __init__(self, settings: HindsightSettings, start: SessionStart, person: str) -> None:
        self._settings = settings
        self._start = start
        # Two people may have the same note: removing one must leave the other.
        #: The owner of notes, in a bank that several people may share.
        self._owner = _digest(start.profile, person)[:12]
        self.parents = {start.session_id: start.parent_session_id}

    def turn(self, turn: CompletedTurn) -> Document:
        """A turn, in the words of both."""
        user, assistant = self._settings.retain_user_prefix, self._settings.retain_assistant_prefix
        return Document(
            turn.id,
            f"{user}: {turn.user}\n{assistant}: {turn.assistant}",
            self._settings.retain_context,
            self._tags(turn.session_id),
            self._metadata(turn.session_id, turn_id=turn.id),
            turn.said_at,
        )

    def delegation(self, done: Delegation) -> Document:
        """What a subagent was asked and found."""
        return Document(
            done.id,
            f"Task: {done.task}\nResult: {done.result}",
            "a task that the agent gave to a subagent",
            self._tags(done.session_id),
            self._metadata(done.session_id, child_session_id=done.child_session_id),
            done.said_at,
        )

    def note(self, note: Note) -> Document:
        """A note, as it is now."""
        return Document(
            self.note_id(note.target, note.content),
            note.content,
            _NOTES.get(note.target, "a note"),
            (*self._settings.retain_tags, self.note_tag(note.target)),
            self._metadata(note.session_id, target=note.target),
            note.said_at,
        )

    def fact(self, content: str, context: str, tags: Sequence[str], session: str) -> Document:
        """What the model stores with `hindsight_retain`."""
        return Document(
            # By content: a model that stores the same fact twice makes one document.
            f"told-{_digest(content, context, *tags)}",
            content,
            context,
            tuple(dict.fromkeys((*self._settings.retain_tags, *tags))),
            self._metadata(session),
        )

    def note_id(self, target: str, content: str) -> str:
        """The document of a note, by its text: that is all that is known when it goes."""
        return f"{self.note_prefix}{_digest(target, content)}"

    @property
    def note_prefix(self) -> str:
        """How the ids of this user's notes begin."""
        return f"note-{self._owner}-"

    @staticmethod
    def note_tag(target: str) -> str:
        """The tag of all notes of one kind."""
        return f"note:{target}"

    def _tags(self, session: str) -> tuple[str, ...]:
        parent = self.parents.get(session, "")
        lineage = [f"session:{session}"] + ([f"parent:{parent}"] if parent else [])
        return (*self._settings.retain_tags, *lineage)

    def _metadata(self, session: str, **more: str) -> dict[str, str]:
        start = self._start
        known = {
            "source": self._settings.retain_source,
            "session_id": session,
            "platform": start.platform,
            "user_id": start.user_id,
            "user_name": start.user_name,
            "chat_id": start.chat_id,
            "thread_id": start.thread_id,
            "agent_identity": start.profile,
            **more,
        }
        return {key: value for key, value in known.items() if value}


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _digest(*parts: str) -> str:
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    # 128 bits: documents are replaced by id, so two texts must never share one.
    return hashlib.sha256(text).hexdigest()[:32]
