"""What Honcho is asked: messages, conclusions, what is known of somebody, and by whom.

Who may know what is decided here, and nowhere else. Every question is asked for one person: it
looks through the sessions of that person alone, and through what the agent knows of them or they
know of others. What the agent knows of itself it knows from talking to everybody, so nobody sees
that: they see the agent as they have met it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, TypeVar

import httpx

from hermes_core import HermesError
from hermes_core.service import make_id
from hermes_memory_honcho.client import (
    BadRequestError,
    HonchoError,
    MessageCreateParams,
    NotFoundError,
    Peer,
    Session,
    SessionConfiguration,
    SessionPeerConfig,
    TimedClient,
    UnprocessableEntityError,
    never_arrived,
)
from hermes_memory_honcho.names import (
    ALPHABET,
    Context,
    Entry,
    FoundMessage,
    Names,
    Portrait,
    Queue,
    SearchFilter,
    SessionAddress,
)
from hermes_memory_honcho.settings import HonchoSettings, Observation
from hermes_memory_honcho.texts import pieces, shortened, storable

_BATCH: Final = 100  # messages in a request, and things on a page
_PAGES: Final = 20
_SESSIONS: Final = 1_000  # as many as the server takes in a filter
_NEAREST: Final = 20
_URL_QUERY: Final = 1_000  # what is asked in an address
_QUERY: Final = 4_000
_CONCLUSIONS: Final = 25
_NOTED: Final = 5  # facts that go along with a question
_WRITE_SECONDS: Final = 110.0  # hosts allow a write 120
_LONGEST_TIMEOUT: Final = 100.0
_WIDER: Final = 3  # what was too slow gets so much more time
_WIDENINGS: Final = 10  # a power without a limit overflows after hours of attempts
_ANSWER_SECONDS: Final = 25.0  # an answer that still comes then is cut off
_BROKE_OFF: Final = " … (the answer broke off here)"
#: Pauses between looks for a write that timed out, and that the server may still carry out.
PATIENCE: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 4.0)

_ANYWHERE: Final = SearchFilter()

_T = TypeVar("_T")


class HonchoService:
    """One agent's Honcho. Nothing is asked before it has to be."""

    def __init__(self, settings: HonchoSettings, names: Names) -> None:
        self.names = names
        self.wire = TimedClient(settings)
        self.honcho = self.wire.honcho(settings, names.workspace)
        self._settings = settings
        self._opened: set[SessionAddress] = set()
        self._listed: list[str] | None = None
        #: Writes that failed, and certainly left nothing behind.
        self._unsent: set[str] = set()
        #: How long to wait for writes that timed out, also in an earlier process; used up once.
        self._pauses = list(PATIENCE)

    def close(self) -> None:
        """Close the connections."""
        self.wire.close()

    def queue(self) -> Queue | None:
        """How far conclusions are, from the database; None if the workspace is not there yet."""
        try:
            status = self.wire.read(self._settings, f"{self.names.workspace}/queue/status")
        except NotFoundError:
            return None
        counts = (
            status.get(f"{name}_work_units") for name in ("completed", "in_progress", "pending")
        )
        return Queue(*(int(each or 0) for each in counts))

    # -- sessions ---------------------------------------------------------------------------------

    def open(self, place: SessionAddress) -> Session:
        """A session, with its peers; they are sent to the server once."""
        if place not in self._opened:
            self._introduce(place)
            self._opened.add(place)
        return Session(place.session, self.honcho)

    def _introduce(self, place: SessionAddress) -> None:
        """Send the server which peer observes which.

        A session has at most ten observers. Whoever comes later takes part without being one.
        """
        user, ai = self._settings.user_observed, self._settings.ai_observed
        fewer = (user._replace(others=False), ai)
        for last, (person, agent) in enumerate([(user, ai), fewer]):
            try:
                self._join(place, {place.user: _config(person), place.ai: _config(agent)})
            except BadRequestError:
                if last or not user.others:
                    raise
            else:
                return

    def _join(self, place: SessionAddress, peers: Mapping[str, SessionPeerConfig]) -> None:
        """An existing session has its old configuration, so send it again."""
        session = self.honcho.session(place.session, peers=list(peers.items()))
        for peer, config in peers.items():
            session.set_peer_configuration(peer, config)
        switches = self._settings.switches_of(place.session)
        if switches:
            session.set_configuration(SessionConfiguration.model_validate(switches))

    def sessions(self, *, refresh: bool = True) -> list[str]:
        """The sessions that the person takes part in."""
        if refresh or self._listed is None:
            with suppress(NotFoundError):
                found = Peer(self.names.user, self.honcho).sessions(size=_BATCH, reverse=True)
                self._listed = [each.id for each in islice(found, _SESSIONS)]
        mine = [each.session for each in self._opened if each.user == self.names.user]
        return list(dict.fromkeys([*mine, *(self._listed or [])]))[:_SESSIONS]

    # -- messages ---------------------------------------------------------------------------------

    def add(self, place: SessionAddress, entries: Sequence[Entry]) -> None:
        """Add what was said, once, in as few requests as Honcho allows."""
        attempt = max(each.attempt for each in entries)
        # Nothing of a first attempt can be on the server yet.
        self._unsent.update(each.key for each in entries if each.attempt == 1)
        with self._in_time(attempt):
            try:
                self._add(place, entries)
            except NotFoundError:  # the server has lost our workspace
                # A server that was reset: sessions, peers and workspace have to be created again.
                # As a later attempt, because an earlier batch of this call may have arrived.
                self._opened.clear()
                self.honcho = self.wire.honcho(self._settings, self.names.workspace)
                self._add(place, [each._replace(attempt=attempt + 1) for each in entries])

    @contextmanager
    def _in_time(self, attempt: int) -> Iterator[None]:
        """What was too slow for the first attempt gets more time in the next."""
        usual = self._settings.timeout
        # Embedding a long turn may take the server longer than its timeout. Without more time,
        # every attempt would fail in the same way.
        wider = usual * _WIDER ** min(attempt - 1, _WIDENINGS)
        seconds = min(wider, max(usual, _LONGEST_TIMEOUT))
        with self.wire.within(max(_WRITE_SECONDS, usual)), self.wire.request_timeout(seconds):
            yield

    def _add(self, place: SessionAddress, entries: Sequence[Entry]) -> None:
        session = self.open(place)
        messages = [each for entry in entries for each in self._messages(place, entry)]
        for start in range(0, len(messages), _BATCH):
            # The server accepts at most 100 messages in one request.
            with self._sending(*(each.key for each in entries)):
                session.add_messages(messages[start : start + _BATCH])

    @contextmanager
    def _sending(self, *keys: str) -> Iterator[None]:
        """Remember of writes that fail whether the server may still carry them out."""
        self._unsent.difference_update(keys)
        try:
            yield
        except HonchoError as error:
            if never_arrived(error):
                self._unsent.update(keys)
            else:
                self._pauses = list(PATIENCE)
            raise

    def _look_until_complete(
        self, key: str, look: Callable[[], _T], is_all: Callable[[_T], bool]
    ) -> _T:
        """What there is of a write that was tried before.

        A request that we no longer wait for may be carried out later, even after a look that was
        sent after it. So what is not there yet is looked for a few times more, once the server
        answers again; what it has not carried out then was never on its way.
        """
        found = look()
        # The pauses are shared by all writes: after an outage the first one waits, the others
        # don't.
        while self._pauses and key not in self._unsent and not is_all(found):
            time.sleep(self._pauses.pop(0))
            found = look()
        return found

    def _messages(self, place: SessionAddress, entry: Entry) -> list[MessageCreateParams]:
        limit = self._settings.message_max_chars
        parts = [
            (Peer(peer, self.honcho), piece)
            for peer, text in entry.said
            if text
            for piece in pieces(storable(text), limit)
        ]
        there: frozenset[int] = frozenset()
        if entry.attempt > 1:
            there = self._look_until_complete(
                entry.key, lambda: self.parts(place, entry.key), lambda got: len(got) >= len(parts)
            )
        moment = datetime.fromtimestamp(entry.said_at or time.time(), UTC)
        return [
            peer.message(
                text,
                # `turn_id` and `part` find each piece again, so that a repeated delivery sends only
                # what is missing.
                metadata={**storable(entry.facts), "turn_id": entry.key, "part": part},
                created_at=moment,
            )
            for part, (peer, text) in enumerate(parts)
            if part not in there
        ]

    def parts(self, place: SessionAddress, key: str) -> frozenset[int]:
        """Which parts of a turn are there."""
        with suppress(NotFoundError):
            found = Session(place.session, self.honcho).messages(
                filters={"metadata": {"turn_id": key}}, size=_BATCH
            )
            return frozenset(int(each.metadata.get("part", -1)) for each in found)
        return frozenset()

    def search(
        self,
        query: str,
        peer: str,
        limit: int,
        among: SearchFilter = _ANYWHERE,
        *,
        refresh: bool = True,
    ) -> list[FoundMessage]:
        """Messages of the person's sessions: all of them, or those of somebody else in there.

        Args:
            query: What to look for.
            peer: The person, for everything; or who said it.
            limit: So many.
            among: Where.
            refresh: Look which sessions there are; else those count that were known last.
        """
        sessions = self.sessions(refresh=refresh)
        if among.session:
            sessions = [each for each in sessions if each == among.session]
        if not sessions:
            return []
        # Honcho's own search of a peer covers what the peer said alone, not the agent's answers to
        # it.
        filters: dict[str, Any] = {"session_id": {"in": sessions}}
        if peer != self.names.user:
            filters["peer_id"] = peer
        if among.since or among.until:
            filters["created_at"] = _between(among)
        if among.metadata:
            filters["metadata"] = storable(dict(among.metadata))
        found = self._found(shortened(query, _QUERY), peer, filters, limit)
        return [FoundMessage(each.peer_id, each.session_id, each.content) for each in found]

    def _found(self, query: str, peer: str, filters: dict[str, Any], limit: int) -> list[Any]:
        try:
            return list(self.honcho.search(query, filters=filters, limit=limit))
        except (BadRequestError, UnprocessableEntityError):  # an older server
            # An older server can't filter. Without the filter it would search the sessions of other
            # people, so only the plain question about the person is asked again.
            if peer != self.names.user or set(filters) != {"session_id"}:
                return []
            return list(Peer(peer, self.honcho).search(query, limit=limit))

    def summary(self, session: str) -> str:
        """Honcho's newest summary of a session, if it has made one."""
        with suppress(NotFoundError):
            found = Session(session, self.honcho).summaries()
            made = [each for each in (found.long_summary, found.short_summary) if each]
            newest = max(made, key=lambda each: _age(each.created_at), default=None)
            return newest.content if newest else ""
        return ""

    def context(self, session: str, peer: str, tokens: int) -> Context:
        """Summary, picture and last messages of a session, in one call."""
        observer, target = self._view(peer)
        view = None if observer.id == target else observer.id
        try:
            found = Session(session, self.honcho).context(
                tokens=tokens, peer_target=target, peer_perspective=view
            )
        except NotFoundError:  # nothing was said yet in this session
            return Context(portrait=self.portrait(peer))
        known = Portrait(_substance(found.peer_representation or ""), tuple(found.peer_card or ()))
        said = [
            FoundMessage(each.peer_id, each.session_id, each.content) for each in found.messages
        ]
        return Context(found.summary.content if found.summary else "", known, said)

    # -- what is known of somebody ----------------------------------------------------------------

    def peer(self, asked: str) -> str:
        """Whom a model means: ``user``, ``ai``, or somebody by their id.

        Raises:
            HermesError: It means somebody else, and there are several people here.
        """
        asked = asked.strip() or "user"
        known = {"user": self.names.user, "ai": self.names.ai}
        # An id as it stands first: `make_id` would add a hash to one that already has one.
        peer = known.get(asked) or (asked if ALPHABET.takes(asked) else make_id(asked, ALPHABET))
        if self.names.is_shared and peer not in known.values():
            raise HermesError(
                f"{asked!r:.60} can't be asked about here", hint="peer is user or ai in a gateway"
            )
        return peer

    def portrait(self, peer: str, query: str = "") -> Portrait:
        """What is known of somebody, with regard to a question."""
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
            # Honcho writes the card of a peer for itself; the one that the agent has of them may
            # not exist.
            if not found and target == self.names.user != observer.id:
                found = Peer(target, self.honcho).get_card()
            return list(found or ())
        return []

    def set_card(self, peer: str, card: list[str]) -> list[str]:
        """Replace somebody's card. An empty one leaves none, also of those Honcho wrote."""
        observer, target = self._view(peer)
        self._ensure(observer.id, target)
        written = observer.set_card(storable(card), target=target)
        if not card and target == self.names.user != observer.id:
            Peer(target, self.honcho).set_card([])
        return list(written or card)

    def ask(self, query: str, peer: str, level: str) -> str:
        """What Honcho's model answers to a question, from what the person said and heard."""
        asked = shortened(query, self._settings.dialectic_max_input)
        with suppress(NotFoundError):
            answer = self._person.chat(asked, target=self._other(peer), reasoning_level=level)
            return str(answer or "").strip()
        return ""

    def think(self, query: str, peer: str, level: str) -> str:
        """The same for a question that may take long, with facts that were noted.

        The answer comes in pieces: of one that takes too long there is what came in time.
        """
        noted = [text for _, text in self.conclusions(peer, query, _NOTED)]
        facts = "\n".join(f"- {each}" for each in noted)
        prompt = f"{query}\n\nNoted about them:\n{facts}" if noted else query
        asked = shortened(prompt, self._settings.dialectic_max_input)
        with suppress(NotFoundError):
            return _joined(
                self._person.chat_stream(asked, target=self._other(peer), reasoning_level=level)
            )
        return ""

    @property
    def _person(self) -> Peer:
        return Peer(self.names.user, self.honcho)

    def _other(self, peer: str) -> str | None:
        return None if peer == self.names.user else peer

    # -- conclusions ------------------------------------------------------------------------------

    def conclude(
        self, peer: str, content: str, place: SessionAddress | None = None, key: str = ""
    ) -> None:
        """Store a fact about somebody; ``key`` is the identity of the write, if it has one."""
        observer, target = self._view(peer)
        if place is None:
            self._ensure(observer.id, target)
        else:
            self.open(place)
        fact = {"content": storable(content), "session_id": place.session if place else None}
        with self._sending(key):
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

    def find_conclusion(self, peer: str, content: str, key: str = "", attempt: int = 1) -> str:
        """The id of a fact, by its text; "" if it is not there.

        Args:
            peer: Whom it is about.
            content: The fact.
            key: The identity of the write that may have stored it.
            attempt: Which attempt of that write this is.
        """
        wanted = storable(content)

        def look() -> str:
            found = (each for each, text in self._candidates(peer, wanted) if text == wanted)
            return next(found, "")

        return self._look_until_complete(key, look, bool) if attempt > 1 else look()

    def delete_conclusion(self, peer: str, number: str) -> None:
        """Delete a fact about somebody.

        Raises:
            HermesError: That is not an id, or the id of a fact about somebody else.
        """
        if not ALPHABET.takes(number):
            raise HermesError(
                f"{number!r:.60} is not the id of a conclusion", hint="`list` shows them"
            )
        observer, target = self._view(peer)
        view = observer.conclusions_of(target)
        # The server deletes by id alone, whoever the fact is about.
        with suppress(NotFoundError):
            if view.get_many([number]):
                view.delete(number)
                return
        raise HermesError(f"the conclusion {number} is not there", hint="`list` shows them")

    def _candidates(self, peer: str, content: str) -> Iterator[tuple[str, str]]:
        """The nearest ones first, then all."""
        # The exact text is nearly always among the nearest; listing all is the fallback, and
        # bounded.
        yield from self.conclusions(peer, content, _NEAREST)
        observer, target = self._view(peer)
        with suppress(NotFoundError):
            every = observer.conclusions_of(target).list(size=_BATCH)
            for each in islice(every, _PAGES * _BATCH):
                yield each.id, each.content

    def _view(self, peer: str) -> tuple[Peer, str]:
        """Who looks, and at whom: the agent at the person, and the person at all others."""
        observer = self.names.user
        if peer == self.names.user and self._settings.ai_observed.others:
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


def _joined(pieces_: Iterator[str]) -> str:
    said: list[str] = []
    end = time.monotonic() + _ANSWER_SECONDS
    try:
        for piece in pieces_:
            said.append(piece)
            if time.monotonic() > end:
                said.append(_BROKE_OFF)
                break
    except httpx.TransportError:
        if not said:
            raise
        said.append(_BROKE_OFF)
    return "".join(said).strip()


def _moment(text: str) -> datetime:
    made = datetime.fromisoformat(text)
    return made if made.tzinfo else made.replace(tzinfo=UTC)


def _age(written: str) -> datetime:
    """When something was made; what has no readable time is old."""
    try:
        return _moment(written)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def _between(among: SearchFilter) -> dict[str, str]:
    """A filter for the time: a day without an hour counts as a whole.

    Raises:
        HermesError: That is not a date.
    """
    found = {}
    for name, written, clock in (
        ("gte", among.since, "00:00:00"),
        ("lte", among.until, "23:59:59.999999"),
    ):
        if written:
            try:
                moment = _moment(
                    f"{written}T{clock}" if len(written) == len("2026-01-31") else written
                )
            except ValueError:
                raise HermesError(
                    f"{written!r:.40} is not a date", hint="write 2026-01-31, or 2026-01-31T18:30"
                ) from None
            found[name] = moment.isoformat()
    return found
