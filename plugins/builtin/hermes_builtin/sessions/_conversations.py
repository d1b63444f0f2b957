"""The conversations of a home, as one agent sees them: who is speaking, and to whom."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hermes_builtin.sessions._content import new_message
from hermes_builtin.sessions._hermes_agent import not_imported
from hermes_builtin.sessions._model import NewMessage, Scope, SessionFacts
from hermes_builtin.sessions._place import Place, place
from hermes_builtin.sessions._words import storable
from hermes_builtin.sessions.sqlite import SharedArchives, SqliteArchive

logger = logging.getLogger("hermes_builtin")

_SHARED: Final = SharedArchives()
_PRIMARY: Final = "primary"
_RECENT: Final = 40
_NO_CONTINUATION: Final = ("resume", "new_session")

Messages = Sequence[Mapping[str, Any]]


class Conversations:
    """Opens the archive when it is first needed, and keeps what one agent's sessions are."""

    def __init__(self, home: Path, session_id: str, facts: Mapping[str, Any]) -> None:
        self._home = home
        self._place: Place | None = None
        self._archive: SqliteArchive | None = None
        settings = facts.get("provider_config") or {}
        self._durable = settings.get("durability") == "full"
        context = str(facts.get("agent_context") or _PRIMARY)
        platform = str(facts.get("platform") or "")

        def given(name: str) -> str:
            return _told(facts, name, "")

        self._facts = SessionFacts(
            session_id,
            source=platform if context == _PRIMARY else context,
            user_id=given("user_id"),
            chat_id=given("chat_id"),
            profile=given("agent_identity"),
            title=given("session_title"),
            parent=given("parent_session_id"),
            started=time.time(),
        )

    @property
    def scope(self) -> Scope:
        """Whose conversations this agent may see."""
        return Scope(self._facts.user_id, self._facts.chat_id, self._facts.profile)

    @property
    def session_id(self) -> str:
        """The session that runs now."""
        return self._facts.id

    @property
    def parent_id(self) -> str:
        """The session that this one continues."""
        return self._facts.parent

    @property
    def archive(self) -> SqliteArchive:
        """The archive."""
        if self._archive is None:
            self._place = place(self._home)
            self._archive = _SHARED.open(self._place.path, durable=self._durable)
            if self._place.theirs is not None and self._archive.once("told of hermes-agent"):
                logger.warning(
                    "sessions: hermes-agent keeps its conversations in %s; ours are in %s. "
                    "To search its too, run: hermes-plugins sessions import %s",
                    self._place.theirs, self._place.path.name, self._place.theirs,
                )  # fmt: skip
        return self._archive

    def elsewhere(self) -> int:
        """How many conversations of hermes-agent in this home were not taken over."""
        archive = self.archive
        theirs = self._place.theirs if self._place is not None else None
        return not_imported(theirs, archive) if theirs is not None else 0

    def switch(self, session_id: str, parent: str, reset: bool, given: Mapping[str, Any]) -> None:
        """Another session runs from now on.

        It continues its parent after a compression or a branch. A new or a resumed one does
        not: there the parent is only the session that was left.
        """
        continues = not reset and given.get("reason") not in _NO_CONTINUATION
        self._facts = self._facts._replace(
            id=session_id,
            parent=storable(parent) if continues else "",
            title="",
            started=time.time(),
            user_id=_told(given, "user_id", self._facts.user_id),
            chat_id=_told(given, "chat_id", self._facts.chat_id),
        )

    def scope_for(self, given: Mapping[str, Any]) -> Scope:
        """Whose conversations may be seen in a call for which the host may say more."""
        return Scope(
            _told(given, "user_id", self._facts.user_id),
            _told(given, "chat_id", self._facts.chat_id),
            self._facts.profile,
        )

    def turn(
        self, user: str, assistant: str, session_id: str, messages: Messages | None
    ) -> list[int]:
        """Keep a turn."""
        facts = self._facts
        if session_id and session_id != facts.id:
            facts = facts._replace(id=session_id, parent="", title="")
        now = time.time()
        messages = [each for each in messages or () if isinstance(each, Mapping)]
        between = turn_part(user, [new_message(each, now) for each in messages])
        if between is None:
            between = self._not_said_before(facts, messages, now)
        return self.archive.append(facts, turn_messages(user, assistant, between, now))

    def _not_said_before(
        self, facts: SessionFacts, messages: Messages, now: float
    ) -> list[NewMessage]:
        """What follows the last message of a user, unless it belongs to an earlier turn."""
        start = max(
            (at for at, each in enumerate(messages) if each.get("role") == "user"), default=None
        )
        if start is None:
            return []
        tail = [new_message(each, now) for each in messages[start + 1 :]]
        session = self.archive.session(facts.id, self.scope)
        stored = self.archive.last(session, _RECENT) if session is not None else []
        known = {(each.role, each.content) for each in stored}
        return [] if all((each.role, each.content) in known for each in tail) else tail

    def end(self) -> None:
        """The session that runs has ended."""
        self.archive.end(self._facts.id, time.time(), self.scope)

    def close(self) -> None:
        """Let go of the archive."""
        archive, self._archive = self._archive, None
        if archive is not None:
            _SHARED.close(archive)


def _told(given: Mapping[str, Any], name: str, otherwise: str) -> str:
    value = given.get(name)
    return otherwise if value is None else storable(str(value))


def turn_part(user: str, messages: Sequence[NewMessage]) -> list[NewMessage] | None:
    """What came after what the user said; None if that is not among the messages.

    A host may hand over the whole conversation. It may have added to what the user said, and
    may have put messages of its own behind it.
    """
    for at in reversed(range(len(messages))):
        if _says(messages[at], "user", user):
            return list(messages[at + 1 :])
    return None


def turn_messages(
    user: str, assistant: str, between: Sequence[NewMessage], now: float
) -> list[NewMessage]:
    """The messages of a turn: what was asked, the tools' part, and what was answered."""
    kept = [each for each in between if each.content.strip() or each.extra]
    if not any(_says(each, "assistant", assistant) for each in kept):
        kept.append(NewMessage("assistant", assistant, now))
    return [NewMessage("user", user, now), *kept]


def _says(message: NewMessage, role: str, text: str) -> bool:
    said = message.content.strip()
    if role == "user":
        return message.role == role and text.strip() in said
    return message.role == role and said == text.strip()
