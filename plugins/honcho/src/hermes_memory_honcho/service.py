"""What Honcho is asked: messages, conclusions, what is known of somebody, and by whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from hermes_core import HermesError
from hermes_core.backends import made_id
from hermes_memory_honcho.chunks import pieces
from hermes_memory_honcho.naming import ALPHABET, Names, Place, Said
from hermes_memory_honcho.settings import Observation, Settings
from hermes_memory_honcho.texts import shortened, storable
from hermes_memory_honcho.wire import (
    BadRequestError,
    MessageCreateParams,
    NotFoundError,
    Peer,
    Session,
    SessionPeerConfig,
    UnprocessableEntityError,
    Wire,
)

_BATCH: Final = 100  # messages in a request, and things on a page
_PAGES: Final = 20
_NEAREST: Final = 20
_URL_QUERY: Final = 1_000  # what is asked in an address
_QUERY: Final = 4_000
_CONCLUSIONS: Final = 25


class Entry(NamedTuple):
    """What was said in one turn.

    Attributes:
        key: The same for every attempt.
        said: By whom, and what; however long.
        facts: Kept with each message.
        again: An earlier attempt may have come through, in part too: look first.
    """

    key: str
    said: Sequence[Said]
    facts: Mapping[str, Any]
    again: bool


class Portrait(NamedTuple):
    """What somebody knows of somebody: conclusions, and a card of facts."""

    representation: str = ""
    card: Sequence[str] = ()


class Excerpt(NamedTuple):
    """A message that was found."""

    peer: str
    session: str
    text: str


class Service:
    """One agent's Honcho. Nothing is asked before it has to be."""

    def __init__(self, settings: Settings, names: Names) -> None:
        self.names = names
        self.wire = Wire(settings)
        self.honcho = self.wire.honcho(settings, names.workspace)
        self._settings = settings
        self._opened: set[Place] = set()

    def close(self) -> None:
        """Let go of the connections."""
        self.wire.close()

    # -- messages ---------------------------------------------------------------------------------

    def open(self, place: Place) -> Session:
        """A session, with its people in it; they are told to the server once."""
        if place not in self._opened:
            peers: list[Any] = [
                (place.user, _config(self._settings.user_observed)),
                (place.ai, _config(self._settings.ai_observed)),
            ]
            self.honcho.session(place.session, peers=peers)
            self._opened.add(place)
        return Session(place.session, self.honcho)

    def add(self, place: Place, entries: Sequence[Entry]) -> None:
        """Add what was said, once, in as few requests as Honcho allows."""
        try:
            self._add(place, entries)
        except NotFoundError:  # the server has lost what it was told of us
            self._opened.clear()
            self.honcho = self.wire.honcho(self._settings, self.names.workspace)
            self._add(place, [each._replace(again=True) for each in entries])

    def _add(self, place: Place, entries: Sequence[Entry]) -> None:
        session = self.open(place)
        messages = [each for entry in entries for each in self._messages(place, entry)]
        for start in range(0, len(messages), _BATCH):
            session.add_messages(messages[start : start + _BATCH])

    def _messages(self, place: Place, entry: Entry) -> list[MessageCreateParams]:
        limit = self._settings.message_max_chars
        parts = [
            (Peer(peer, self.honcho), piece)
            for peer, text in entry.said
            if text
            for piece in pieces(text, limit)
        ]
        there = self.parts(place, entry.key) if entry.again else frozenset()
        return [
            peer.message(
                storable(text),
                metadata={**storable(entry.facts), "turn_id": entry.key, "part": part},
            )
            for part, (peer, text) in enumerate(parts)
            if part not in there
        ]

    def parts(self, place: Place, key: str) -> frozenset[int]:
        """Which parts of a turn are there."""
        with suppress(NotFoundError):
            found = Session(place.session, self.honcho).messages(
                filters={"metadata": {"turn_id": key}}, size=_BATCH
            )
            return frozenset(int(each.metadata.get("part", -1)) for each in found)
        return frozenset()

    def search(self, query: str, peer: str, limit: int) -> list[Excerpt]:
        """Messages of all sessions that somebody took part in, whoever said them."""
        filters: dict[str, object] = {"peer_perspective": peer}
        if peer == self.names.ai and self.names.is_shared:
            # What it said to this person, not what it said to others.
            filters = {"peer_perspective": self.names.user, "peer_id": peer}
        asked = shortened(query, _QUERY)
        try:
            found = self.honcho.search(asked, filters=filters, limit=limit)
        except (BadRequestError, UnprocessableEntityError):  # an older server
            found = self._said_by(peer, asked, limit)
        return [Excerpt(each.peer_id, each.session_id, each.content) for each in found]

    def _said_by(self, peer: str, query: str, limit: int) -> list[Any]:
        if peer == self.names.ai and self.names.is_shared:
            return []
        with suppress(NotFoundError):
            return list(Peer(peer, self.honcho).search(query, limit=limit))
        return []

    def summary(self, session: str) -> str:
        """Honcho's summary of a session, if it has made one."""
        with suppress(NotFoundError):
            told = Session(session, self.honcho).summaries()
            best = told.long_summary or told.short_summary
            return best.content if best else ""
        return ""

    def recent(self, session: str, count: int) -> list[Excerpt]:
        """The last messages of a session, in their order."""
        with suppress(NotFoundError):
            page = Session(session, self.honcho).messages(size=count, reverse=True)
            found = list(islice(page, count))
            return [Excerpt(each.peer_id, each.session_id, each.content) for each in found[::-1]]
        return []

    # -- what is known of somebody ----------------------------------------------------------------

    def peer(self, asked: str) -> str:
        """Whom a model means: ``user``, ``ai``, or somebody by their id.

        Raises:
            HermesError: It means somebody else, and there are several people here.
        """
        asked = asked.strip() or "user"
        known = {"user": self.names.user, "ai": self.names.ai}
        peer = known.get(asked) or (asked if ALPHABET.takes(asked) else made_id(asked, ALPHABET))
        if self.names.is_shared and peer not in known.values():
            raise HermesError(
                f"{asked!r:.60} can't be asked about here", hint="peer is user or ai in a gateway"
            )
        return peer

    def portrait(self, peer: str, query: str = "") -> Portrait:
        """What the agent knows of somebody, with regard to a question."""
        observer, target = self._view(peer)
        asked = shortened(query, _URL_QUERY) or None
        with suppress(NotFoundError):
            found = observer.context(
                target=target, search_query=asked, max_conclusions=_CONCLUSIONS
            )
            return Portrait(_substance(found.representation or ""), tuple(found.peer_card or ()))
        return Portrait()

    def card(self, peer: str) -> list[str]:
        """The facts on somebody's card."""
        observer, target = self._view(peer)
        with suppress(NotFoundError):
            found = observer.get_card(target=target)
            if not found and observer.id != target and not self.names.is_shared:
                found = Peer(target, self.honcho).get_card()
            return list(found or ())
        return []

    def set_card(self, peer: str, card: list[str]) -> list[str]:
        """Write somebody's card anew."""
        observer, target = self._view(peer)
        self._ensure(observer.id, target)
        return list(observer.set_card(storable(card), target=target) or card)

    def ask(self, query: str, peer: str, level: str) -> str:
        """What Honcho's model answers to a question about somebody."""
        observer, target = self._view(peer)
        asked = shortened(query, self._settings.dialectic_max_input)
        with suppress(NotFoundError):
            answer = observer.chat(asked, target=target, reasoning_level=level)
            return str(answer or "").strip()
        return ""

    # -- conclusions ------------------------------------------------------------------------------

    def conclude(self, peer: str, content: str, place: Place | None = None) -> None:
        """Keep a fact about somebody."""
        observer, target = self._view(peer)
        if place is None:
            self._ensure(observer.id, target)
        else:
            self.open(place)
        fact = {"content": storable(content), "session_id": place.session if place else None}
        observer.conclusions_of(target).create([fact])

    def conclusions(self, peer: str, query: str, limit: int) -> list[tuple[str, str]]:
        """Ids and facts: those nearest to a query, or the newest."""
        observer, target = self._view(peer)
        view = observer.conclusions_of(target)
        with suppress(NotFoundError):
            found = view.query(shortened(query, _QUERY), top_k=limit) if query else (
                view.list(size=limit).items)  # fmt: skip
            return [(each.id, each.content) for each in found]
        return []

    def find_conclusion(self, peer: str, content: str) -> str:
        """The id of a fact, by its text; "" if it is not there."""
        wanted = storable(content)
        found = (each for each, text in self._candidates(peer, wanted) if text == wanted)
        return next(found, "")

    def delete_conclusion(self, peer: str, number: str) -> None:
        """Forget a fact.

        Raises:
            HermesError: That is no id.
        """
        if not ALPHABET.takes(number):
            raise HermesError(f"{number!r:.60} is no id of a conclusion", hint="list has them")
        observer, target = self._view(peer)
        observer.conclusions_of(target).delete(number)

    def _candidates(self, peer: str, content: str) -> Iterator[tuple[str, str]]:
        """The nearest ones first, then all."""
        yield from self.conclusions(peer, content, _NEAREST)
        observer, target = self._view(peer)
        with suppress(NotFoundError):
            every = observer.conclusions_of(target).list(size=_BATCH)
            for each in islice(every, _PAGES * _BATCH):
                yield each.id, each.content

    def _view(self, peer: str) -> tuple[Peer, str]:
        """Who looks, and at whom.

        The agent looks at people. At the agent a person looks who is one of several: what it
        knows of itself, it knows from talking to all of them.
        """
        observer = peer
        if peer == self.names.ai:
            observer = self.names.user if self.names.is_shared else peer
        elif self._settings.ai_observed.others:
            observer = self.names.ai
        return Peer(observer, self.honcho), peer

    def _ensure(self, *peers: str) -> None:
        for peer in dict.fromkeys(peers):
            self.honcho.peer(peer)


def _config(observed: Observation) -> SessionPeerConfig:
    return SessionPeerConfig(observe_me=observed.me, observe_others=observed.others)


def _substance(representation: str) -> str:
    """A representation, unless it is only headings."""
    text = representation.strip()
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return text if any(line.strip() for line in lines) else ""
