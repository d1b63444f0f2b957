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

Messages = Sequence[Mapping[str, Any]]


class Conversations:
    """Opens the archive when it is first needed, and keeps what one agent's sessions are."""

    def __init__(self, home: Path, session_id: str, facts: Mapping[str, Any]) -> None:
        self._home = home
        self._place: Place | None = None
        self._archive: SqliteArchive | None = None
        context = str(facts.get("agent_context") or _PRIMARY)
        platform = str(facts.get("platform") or "")

        def given(name: str) -> str:
            value = facts.get(name)
            return "" if value is None else storable(str(value))

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
            self._archive = _SHARED.open(self._place.path)
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

    def switch(self, session_id: str, parent: str) -> None:
        """Another session runs from now on."""
        self._facts = self._facts._replace(
            id=session_id, parent=storable(parent), title="", started=time.time()
        )

    def turn(
        self, user: str, assistant: str, session_id: str, messages: Messages | None
    ) -> list[int]:
        """Keep a turn."""
        facts = self._facts
        if session_id and session_id != facts.id:
            facts = facts._replace(id=session_id, parent="", title="")
        return self.archive.append(facts, turn_messages(user, assistant, messages, time.time()))

    def end(self) -> None:
        """The session that runs has ended."""
        self.archive.end(self._facts.id, time.time())

    def close(self) -> None:
        """Let go of the archive."""
        archive, self._archive = self._archive, None
        if archive is not None:
            _SHARED.close(archive)


def turn_messages(
    user: str, assistant: str, messages: Messages | None, now: float
) -> list[NewMessage]:
    """The messages of a turn: what was asked, the tools' part, and what was answered.

    A host may hand over the whole conversation; the turn is what follows the last message
    of the user.
    """
    plain = [NewMessage("user", user, now), NewMessage("assistant", assistant, now)]
    messages = [each for each in messages or () if isinstance(each, Mapping)]
    start = next(
        (at for at in reversed(range(len(messages))) if messages[at].get("role") == "user"), None
    )
    if start is None:
        return plain
    taken = [new_message(each, now) for each in messages[start + 1 :]]
    kept = [each for each in taken if each.content.strip() or each.extra]
    if not any(each.role == "assistant" and each.content == assistant for each in kept):
        kept.append(plain[1])
    return [plain[0], *kept]
