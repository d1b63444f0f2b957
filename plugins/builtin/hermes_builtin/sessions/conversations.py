"""The conversations of a home as one agent sees them, and archived conversations as turns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from time import time as unix_time
from typing import Any, Final
from uuid import UUID, uuid4

from hermes_builtin.sessions.archive import (
    EVERYBODY,
    NOBODY,
    TALK,
    Archive,
    Message,
    NewMessage,
    Scope,
    Session,
    SessionFacts,
    message_origin,
    new_message,
)
from hermes_builtin.sessions.hermes_agent import not_imported
from hermes_builtin.sessions.location import Location, close_shared, locate
from hermes_builtin.sessions.session_text import MOST_CHARACTERS, SessionText, Sourced
from hermes_builtin.sessions.spool import Spool, may_succeed_later, shared_spool
from hermes_builtin.sessions.words import storable
from hermes_core.dispatch.process_state import stores_turns
from hermes_core.errors import DatabaseError, HermesError
from hermes_core.privacy.origin import DELEGATION, PROVIDER, as_messages, of_tool
from hermes_core.provider import PastSession
from hermes_core.session import TERMINAL, identity_from, identity_text
from hermes_core.storage.logger import SafeLogger

# -- The conversations of a home, as one agent sees them: who is speaking, and to whom ----------

logger = SafeLogger(logging.getLogger("hermes_builtin"), {})

_PRIMARY: Final = "primary"
# Messages of a session that are compared with a turn: more than one turn with its tools has.
_RECENT: Final = 40
# Messages of an earlier session, or of a subagent, that a note is compared with.
_READ_BACK: Final = 1000
# Sessions of one agent whose words are in memory: a host may name others than the current one. The
# words of the others are read from the archive again.
_SESSIONS: Final = 4
#: Our own tools: what they return has the origins of what it was made of.
_OWN_TOOLS: Final = ("memory", "session_search")
# hermes-agent's reasons for a switch after which the parent is only the session that was left.
_NO_CONTINUATION: Final = ("resume", "new_session")

Messages = Sequence[Mapping[str, Any]]
Report = Callable[[HermesError], None]


def open_archive(home: Path, settings: Mapping[str, Any] | None = None) -> Archive:
    """The archive of a home, for whoever closes it soon."""
    return locate(home, settings).open(durable=_is_durable(settings or {}))


def _is_durable(settings: Mapping[str, Any]) -> bool:
    return bool(settings.get("durability") == "full")


@stores_turns("turn", "_store", "archive")
class Conversations:
    """Opens the archive when it is first needed, and knows the sessions of one agent.

    Args:
        home: Whose archive.
        session_id: As the host calls it.
        facts: The keywords of ``initialize``.
        spooled: Called if the archive can't take a turn, which waits in the spool now.
    """

    def __init__(
        self,
        home: Path,
        session_id: str,
        facts: Mapping[str, Any],
        spooled: Report = lambda _: None,
    ) -> None:
        self._home = home
        self._spooled = spooled
        self._location: Location | None = None
        self._archive: Archive | None = None
        self._settings: Mapping[str, Any] = facts.get("provider_config") or {}
        context = str(facts.get("agent_context") or _PRIMARY)
        platform = str(facts.get("platform") or TERMINAL)

        self._facts = SessionFacts(
            session_id,
            # A subagent on Telegram is a subagent: searches leave it out by its source.
            source=platform if context == _PRIMARY else context,
            user_id=_id_or(facts, "user_id", ""),
            chat_id=_id_or(facts, "chat_id", ""),
            profile=_id_or(facts, "agent_identity", ""),
            title=storable(str(facts.get("session_title") or "")),
            parent=storable(str(facts.get("parent_session_id") or "")),
            started=unix_time(),
            platform=identity_text(platform),
        )
        self._texts: dict[str, SessionText] = {}
        #: What was read and is not in the archive yet, by session.
        self._reported: dict[str, list[NewMessage]] = {}
        #: What our own tools returned.
        self._answers: set[int] = set()
        self._closed = False
        self.spool: Spool = shared_spool(home, partial(open_archive, home, self._settings))

    @property
    def scope(self) -> Scope:
        """Whose conversations this agent may see."""
        return self.scope_for({})

    @property
    def _owner(self) -> Scope:
        """Whose the session is that runs, to the letter."""
        return Scope(
            self._facts.user_id, self._facts.chat_id, self._facts.profile, self._facts.platform
        )

    @property
    def session_id(self) -> str:
        """The session that runs now."""
        return self._facts.id

    @property
    def parent_id(self) -> str:
        """The session that this one continues."""
        return self._facts.parent

    @property
    def archive(self) -> Archive:
        """The archive."""
        if self._archive is None:
            self._location = where = locate(self._home, self._settings)
            # Late: an agent that is asked only for its tools creates no file.
            self._archive = where.open_shared(durable=_is_durable(self._settings))
            if where.theirs is not None and self._archive.once("told of hermes-agent"):
                logger.warning(
                    "sessions: hermes-agent stores conversations in %s, hermes-plugins in %s. "
                    "To search both, run: hermes-plugins sessions import %s",
                    where.theirs, where.path.name if where.path else where.shown, where.theirs,
                )  # fmt: skip
        return self._archive

    def prepare(self) -> None:
        """Make the archive and its views, and keep it open, unless hermes-agent has its own here.

        Others read the views from their start on. And a plugin may use up the open files that the
        process is allowed to have.
        """
        with suppress(Exception):  # whoever needs the archive gets the error
            if locate(self._home, self._settings).theirs is None:
                self.archive.prepare()

    def elsewhere(self) -> int:
        """How many conversations of hermes-agent in this home were not taken over."""
        archive = self.archive
        theirs = self._location.theirs if self._location is not None else None
        return not_imported(theirs, archive) if theirs is not None else 0

    def switch(self, session_id: str, parent: str, reset: bool, given: Mapping[str, Any]) -> None:
        """Another session runs from now on.

        It continues its parent after a compression or a branch. A new or a resumed one does
        not: there the parent is only the session that was left.
        """
        continues = not reset and given.get("reason") not in _NO_CONTINUATION
        if continues and self._facts.id in self._texts:
            self._texts.setdefault(session_id, self._texts[self._facts.id])
        if continues and session_id != self._facts.id:
            reported = self._reported.pop(self._facts.id, [])
            self._reported[session_id] = [*reported, *self._reported.get(session_id, [])]
        self._facts = self._facts._replace(
            id=session_id,
            parent=storable(parent) if continues else "",
            title="",
            started=unix_time(),
            user_id=_id_or(given, "user_id", self._facts.user_id),
            chat_id=_id_or(given, "chat_id", self._facts.chat_id),
        )

    def scope_for(self, given: Mapping[str, Any]) -> Scope:
        """Whose conversations may be seen in a call for which the host may say more."""
        return Scope.of(
            _id_or(given, "platform", self._facts.platform),
            _id_or(given, "user_id", self._facts.user_id),
            _id_or(given, "chat_id", self._facts.chat_id),
            self._facts.profile,
        )

    def messages(self, session_id: str) -> list[dict[str, Any]]:
        """All that was said in a session, in OpenAI's form; what waits in the spool comes last."""
        stored = _messages(self.archive, session_id, self.scope)
        if not self.spool.waiting().turns:
            return stored
        with self.spool.as_archive() as spooled:
            return [*stored, *_messages(spooled, session_id, self.scope)]

    def turn(
        self,
        user: str,
        assistant: str,
        session_id: str,
        messages: Messages | None,
        said_at: float = 0.0,
    ) -> list[int]:
        """Store a turn; ``said_at`` is its time, now by default."""
        facts = self._facts
        if session_id and session_id != facts.id:
            facts = facts._replace(id=session_id, parent="", title="")
        now = said_at or unix_time()
        messages = list(as_messages(messages or ()))
        # Hosts pass the turn, the whole conversation, or nothing. Only what follows this turn's
        # question is new.
        given_messages = [self._labelled(new_message(each, now), facts.id) for each in messages]
        reported = list(self._reported.get(facts.id, ()))
        between = turn_part(user, given_messages)
        if between is None or facts.id not in self._texts:
            # It may have read what the archive does not have: all of it counts.
            self._notice(facts, (each for each in given_messages if each.role not in TALK))
        if between is None:
            between = self._not_said_before(facts, messages, now)
        unsaid = _unsaid(reported, given_messages, now)
        stored = turn_messages(user, assistant, [*unsaid, *between], now)
        self._notice(facts, stored)
        numbers = self._store(facts, stored)
        del self._reported.get(facts.id, [])[: len(reported)]
        return numbers

    def _store(self, facts: SessionFacts, messages: list[NewMessage]) -> list[int]:
        """Append to the archive; or to the spool, if the archive can't take it now."""
        key = uuid4()
        if not self.spool.is_ahead(lambda: self.archive):
            try:
                return self.archive.append(facts, messages, key)
            except Exception as error:  # whatever went wrong: the turn must not be lost
                if not may_succeed_later(error):
                    raise self._refused(error, facts, messages, key) from error
                self.spool.reason = str(error)
        try:
            self.spool.add(facts, messages, durable=_is_durable(self._settings), key=key)
        except (HermesError, OSError) as error:
            what = f"{self.spool.reason}; nor can it be written to the spool: {error}"
            raise DatabaseError(what) from error
        self._spooled(DatabaseError(self.spool.reason))
        return []

    def _refused(
        self, error: Exception, facts: SessionFacts, messages: list[NewMessage], key: UUID
    ) -> DatabaseError:
        """The error for a turn that the archive would refuse again; it is set aside."""
        try:
            path = self.spool.set_aside(facts, messages, key, str(error))
        except (HermesError, OSError) as found:
            return DatabaseError(f"{error}; nor can it be written to the spool: {found}")
        return DatabaseError(f"{error}; it is set aside in {path}")

    def _notice(self, facts: SessionFacts, messages: Iterable[NewMessage]) -> None:
        text = self.text(facts.id)
        for each in messages:
            if not _is_ours(each):
                text.add(each.content, message_origin(facts.source, each))

    # -- where words come from --------------------------------------------------------------

    def text(self, session_id: str = "") -> SessionText:
        """The words of a session, and of those that it continues."""
        name = session_id or self._facts.id
        text = self._texts.pop(name, None) or SessionText(partial(self._earlier, name))
        while len(self._texts) >= _SESSIONS:
            del self._texts[next(iter(self._texts))]
        self._texts[name] = text  # the last is the one that was used last
        return text

    def report(self, content: str, origin: str, session_id: str = "") -> None:
        """A session has read a text. It is stored with the turn, unless a provider recalled it."""
        name = session_id or self._facts.id
        self.text(name).add(content, origin)
        if origin.startswith(PROVIDER) or not content.strip():
            return
        reported = self._reported.setdefault(name, [])
        reported.append(NewMessage("tool", content, 0.0, {"origin": origin}))
        while sum(len(each.content) for each in reported[1:]) > MOST_CHARACTERS:
            del reported[0]  # a host that stores no turns

    def answered(self, answer: str) -> None:
        """One of our own tools has returned this."""
        self._answers.add(_fingerprint(answer))

    def _labelled(self, message: NewMessage, session_id: str) -> NewMessage:
        """A message, with its origin if a tool of somebody else has the name of one of ours."""
        if not _is_ours(message) or _fingerprint(message.content) in self._answers:
            return message
        if _fingerprint(message.content) in self._archived_answers(session_id):
            return message
        extra = message.extra or {}
        return message._replace(extra={**extra, "origin": of_tool(extra.get("tool_name"))})

    def _archived_answers(self, name: str) -> set[int]:
        """What our own tools returned in a session before this process began."""
        try:
            session = self.archive.session(name, self.scope)
            stored: list[Message] = []
            if session is not None:
                stored = self.archive.last(session, _READ_BACK, ("tool",), self.scope)
        except (HermesError, OSError) as error:
            logger.warning("sessions: %s", error)
            return set()
        return {_fingerprint(each.content) for each in stored if _is_ours(each)}

    def _keep_reported(self) -> None:
        """Store what was read and belongs to no turn that was stored."""
        for name, messages in self._reported.items():
            with suppress(HermesError, OSError):  # the texts are only compared with notes
                if messages and self.archive.session(name, self._owner) is not None:
                    facts = self._facts
                    if name != facts.id:
                        facts = facts._replace(id=name, parent="", title="")
                    now = unix_time()
                    self._store(facts, [each._replace(at=now) for each in messages])
                    messages.clear()

    def begin_turn(self, message: str) -> None:
        """A turn begins with this message."""
        self._notice(self._facts, [NewMessage("user", message, 0.0)])

    def read(self, messages: Messages, session_id: str) -> None:
        """Messages that a host passes with a tool call: what the turn has read so far."""
        # What the user said in them may have been rewritten by the host.
        given = (each for each in as_messages(messages) if each.get("role") != "user")
        read = [self._labelled(new_message(each, 0.0), session_id) for each in given]
        self._notice(self._facts._replace(id=session_id), read)

    def delegated(self, result: str, child: str) -> None:
        """A subagent has completed its task: what it read counts as read."""
        self.report(result, DELEGATION)
        text = self.text()
        for each in self._archived([child]) if child else ():
            text.add(*each)

    def _earlier(self, name: str) -> Iterator[Sourced]:
        """What was said and read before in a session, and in those that it continues."""
        try:
            session = self.archive.session(name, self.scope)
            names = [name] if session is None else self.archive.lineage(session)
        except HermesError as error:  # notes are judged by what is known
            logger.warning("sessions: %s", error)
            return
        if name == self._facts.id and self._facts.parent:
            names.append(self._facts.parent)
        yield from self._archived(dict.fromkeys(reversed(names)))
        for each in self._reported.get(name, ()):
            yield each.content, message_origin("", each)

    def _archived(self, names: Iterable[str]) -> Iterator[Sourced]:
        try:
            found = [self.archive.session(name, self.scope) for name in names]
            for session in filter(None, found):
                for each in self.archive.last(session, _READ_BACK, scope=self.scope):
                    if not _is_ours(each):
                        yield each.content, message_origin(session.source, each)
        except HermesError as error:
            logger.warning("sessions: %s", error)

    def _not_said_before(
        self, facts: SessionFacts, messages: Messages, now: float
    ) -> list[NewMessage]:
        """What follows the last message of a user, or all, unless it is of an earlier turn."""
        start = max(
            (at for at, each in enumerate(messages) if each.get("role") == "user"), default=-1
        )
        tail = [self._labelled(new_message(each, now), facts.id) for each in messages[start + 1 :]]
        if not tail:  # usually: most hosts pass no messages
            return []
        try:
            session = self.archive.session(facts.id, self._owner)
            stored: list[Message] = []
            if session is not None:
                stored = self.archive.last(session, _RECENT, scope=self._owner)
        except (HermesError, OSError) as error:  # better stored twice than not at all
            logger.warning("sessions: %s", error)
            stored = []
        known = {(each.role, each.content) for each in stored}
        # The question is not among the messages: the host compressed or rewrote it. Then what
        # follows the last question is stored, unless it was stored with the turn before.
        return [] if all((each.role, each.content) in known for each in tail) else tail

    def end(self) -> None:
        """The session that runs has ended."""
        self._keep_reported()
        self.archive.end(self._facts.id, unix_time(), self._owner)

    def close(self) -> None:
        """Close the archive."""
        if self._archive is not None:
            self._keep_reported()
        if not self._closed:
            self.spool.close()
        self._closed = True
        archive, self._archive = self._archive, None
        if archive is not None:
            close_shared(archive)


def _messages(archive: Archive, session_id: str, scope: Scope) -> list[dict[str, Any]]:
    session = archive.session(session_id, scope)
    found = archive.messages(session) if session is not None else ()
    return [{"role": each.role, "content": each.content, **each.extra} for each in found]


def _id_or(given: Mapping[str, Any], name: str, otherwise: str) -> str:
    value = given.get(name)
    return otherwise if value is None else identity_text(value)


def _is_ours(message: Message | NewMessage) -> bool:
    """Whether one of our own tools returned it; one of somebody else is stored with its origin."""
    extra = message.extra or {}
    return extra.get("tool_name") in _OWN_TOOLS and not extra.get("origin")


def _fingerprint(text: str) -> int:
    return hash("".join(text.split()))


def _unsaid(
    reported: Sequence[NewMessage], given: Sequence[NewMessage], now: float
) -> list[NewMessage]:
    """What was reported and is not among the messages that a host passes at last."""
    texts = [each.content for each in given]
    missing = {each.content: each for each in reported}
    return [
        each._replace(at=now)
        for each in missing.values()
        if not any(each.content in text for text in texts)
    ]


def turn_part(user: str, messages: Sequence[NewMessage]) -> list[NewMessage] | None:
    """What came after what the user said; None if that is not among the messages.

    A host may hand over the whole conversation. It may have added to what the user said, and
    may have appended other messages.
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
    # The answer is often the last of `messages` as well; stored twice, it would rank twice.
    if not any(_says(each, "assistant", assistant) for each in kept):
        kept.append(NewMessage("assistant", assistant, now))
    return [NewMessage("user", user, now), *kept]


def _says(message: NewMessage, role: str, text: str) -> bool:
    said = message.content.strip()
    if role == "user":
        # Contained, not equal: hosts add context, such as recalled memories, to what the user said.
        return message.role == role and text.strip() in said
    return message.role == role and said == text.strip()


# -----------------------------------------------------------------------------------------------
# Archived conversations as the turns that they were written as: to hand them over once more


def archived_turns(home: Path, session_id: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The turns of one session in their order; none if the archive does not have it.

    Args:
        home: Whose archive.
        session_id: As the host called it.
        facts: The keywords of ``initialize``: two users may have sessions of one name.
    """
    names = ("user_id", "chat_id", "agent_identity")
    platform = identity_text(facts.get("platform") or TERMINAL)
    user, chat, profile = (_id_or(facts, name, "") for name in names)
    with closing(locate(home).open()) as archive:
        session = archive.session(session_id, Scope(user, chat, profile, platform))
        return [] if session is None else list(turns_of(archive.messages(session)))


def sessions_since(home: Path, since: float) -> Iterator[PastSession]:
    """The sessions in which a person spoke since then: what is known of each, and its turns.

    What was imported is left out: it was never to be sent.
    """
    with closing(locate(home).open()) as archive:
        for session in archive.sessions(EVERYBODY):
            if session.active < since or session.source in NOBODY:
                continue
            if archive.imported("", session.id):
                continue
            turns = [each for each in turns_of(archive.messages(session)) if each["at"] >= since]
            if turns:
                name = session.name or session.id
                yield PastSession(name, keywords_of(session), partial(iter, turns))


def turns_of(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """Each turn from what the user said up to the last answer to it."""
    for part in _parts(messages):
        if answers := _answers(part):
            yield _turn(part, answers[-1])


def joined_turns_of(messages: Iterable[Message], oldest: float = 0.0) -> Iterator[dict[str, Any]]:
    """The same turns, each with the messages before it that got no answer, from a time on."""
    unanswered: list[Message] = []
    for part in _parts(messages):
        if answers := _answers(part):
            yield _turn(part, answers[-1], unanswered)
            unanswered = []
        elif part[0].at >= oldest:
            unanswered += part


def unanswered_at_end(messages: Iterable[Message]) -> list[Message]:
    """What the user said after the last turn, and what got no answer."""
    found: list[Message] = []
    for part in _parts(messages):
        found = [] if _answers(part) else [*found, part[0]]
    return found


def _parts(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """The messages from each of a user on; without those before the first one."""
    part: list[Message] = []
    for message in messages:
        if message.role == "user":
            if part:
                yield part
            part = [message]
        elif part:
            part.append(message)
    if part:
        yield part


def _answers(messages: Iterable[Message]) -> list[str]:
    return [each.content for each in messages if each.role == "assistant" and each.content]


def _turn(
    part: Sequence[Message], answer: str, unanswered: Sequence[Message] = ()
) -> dict[str, Any]:
    said = [each.content for each in (*unanswered, part[0]) if each.role == "user"]
    return {
        # Of the message that was answered: a live turn has its id by this time.
        "at": part[0].at,
        # Once each: after an error, people repeat what they said.
        "user_content": "\n\n".join(filter(None, dict.fromkeys(said))),
        "assistant_content": answer,
        "messages": [
            {"role": each.role, "content": each.content, **each.extra}
            for each in (*unanswered, *part)
        ],
    }


def keywords_of(session: Session) -> dict[str, str]:
    """The keywords of ``initialize`` with which a session was begun, as far as they are known."""
    known = {
        "platform": session.place,
        "agent_identity": session.profile,
        "user_id": session.user_id,
        "chat_id": session.chat_id,
    }
    found = {name: identity_from(value) for name, value in known.items() if value}
    return {**found, **({"parent_session_id": session.parent} if session.parent else {})}
