"""The rows of the outbox as types."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from hermes_core.errors import HermesError
from hermes_core.session import SessionContext, identity_from, identity_text

TURN: Final = "sync_turn"


class WriteState(StrEnum):
    """The state of a write in the outbox. The values are what is stored."""

    #: It will be delivered, in order.
    WAITING = "waiting"
    #: It failed while others succeeded, so they go first. It is retried later, out of order.
    SKIPPED = "aside"
    #: It failed permanently: it is retried only if a person asks for it.
    FAILED = "dead"
    #: There was no room for its content, which the archive has.
    MISSED = "missed"

    @property
    def label(self) -> str:
        """The state in words for people."""
        return "failed permanently" if self is WriteState.FAILED else self.name.lower()


#: The keywords of a stream without a session: it stays, and says that a provider was used here.
USED: Final = "{}"


class ProviderKey(NamedTuple):
    """What identifies a provider in the outbox: another owner is another program.

    Attributes:
        provider: The provider's name.
        owner: The distribution that it came from.
    """

    provider: str
    owner: str


class StreamKey(NamedTuple):
    """What identifies a stream: one session of one provider, as its manager started it.

    A write is delivered only through an instance that was initialised with these keywords.

    Attributes:
        provider: The provider's name.
        owner: The distribution that the provider came from.
        session: The session's id, as `identity_text` writes it.
        keywords: Those of ``initialize``, as JSON.
    """

    provider: str
    owner: str
    session: str
    keywords: str

    @classmethod
    def of(cls, provider: str, owner: str, session: SessionContext) -> StreamKey:
        """Return the key of the writes of this session for a provider."""
        return cls(provider, owner, identity_text(session.session_id), session.to_json())

    @property
    def context(self) -> SessionContext:
        """The session that the key describes.

        Raises:
            HermesError: The stored keywords can't be read.
        """
        try:
            return SessionContext.from_json(identity_from(self.session), self.keywords)
        except ValueError as error:
            text = f"the keywords of session {self.session} can't be read"
            raise HermesError(text) from error


def turn_id(key: StreamKey, at: float, nth: int = 0) -> str:
    """Return the event id of a turn that was said at this time: whoever asks, it is the same.

    So a turn that is taken from the archive later has the id under which its provider knows it.

    Args:
        key: The stream of its session.
        at: When it was said.
        nth: How many turns of the session before it have the same time, as imported ones may.
    """
    more = (str(nth),) if nth else ()
    text = "\0".join((*key[:3], *_people(key), repr(float(at)), *more))
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


@lru_cache(maxsize=64)  # the key is parsed for this, and a session has many turns
def _people(key: StreamKey) -> tuple[str, ...]:
    """Whose turns a stream has, for their ids."""
    # One person's ids stay those of the first version. Of several, each has their own.
    platform, user, chat, profile = key.context.identity
    return tuple(map(identity_text, (platform, user, chat, profile))) if user or chat else ()


class WriteContent(NamedTuple):
    """A write that is to be stored.

    Attributes:
        event_id: Its identity.
        hook: The method of the provider.
        payload: The arguments of its hook, as JSON and without secrets.
    """

    event_id: str
    hook: str
    payload: str


class Write(NamedTuple):
    """One write on its way to the external provider."""

    id: int
    stream: int
    event_id: str
    hook: str
    payload: str
    created: float
    attempts: int
    failing_since: float | None
    error: str
    state: WriteState
    due: float
    faults: int


class FailureLimits(NamedTuple):
    """How often a write may fail, by its own fault or at all, before it is suspect."""

    faults: int
    attempts: int


#: Nothing is suspect.
NO_LIMITS: Final = FailureLimits(2**62, 2**62)


class Stream(NamedTuple):
    """The writes of one session for one provider, and which process delivers them.

    Attributes:
        id: Its number.
        key: What identifies it.
        holder: The process that has claimed it; "" if none has.
        expires: When the claim ends unless that process renews it.
        due: When the next attempt is made.
        writes: How many wait; skipped ones don't count.
        oldest: When the oldest of them was stored.
    """

    id: int
    key: StreamKey
    holder: str
    expires: float
    due: float
    writes: int
    oldest: float
