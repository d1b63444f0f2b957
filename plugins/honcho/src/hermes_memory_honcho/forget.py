"""What a person wants to be forgotten, in Honcho and in the plugin's own files.

Honcho deletes conclusions and whole sessions. It has no request that deletes one message or a
peer, so those are counted and named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core import ForgetItem, ForgetReport, ForgetRequest
from hermes_core.service import forget_person
from hermes_memory_honcho.client import NotFoundError, Peer, Session
from hermes_memory_honcho.service import HonchoService
from hermes_memory_honcho.settings import HonchoSettings
from hermes_memory_honcho.writes import MirroredNotes, TurnBuffer

_PAGE: Final = 100
_MOST: Final = 100_000
#: Pauses until a session is gone, which Honcho deletes in the background.
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
_FILES: Final = (TurnBuffer, MirroredNotes)

_MESSAGES: Final = "messages: Honcho can only delete whole sessions"
_COMMON: Final = "messages of this session: its session in Honcho has other conversations as well"
_PEER: Final = "the name of the peer: Honcho has no way to delete a peer"


class _Pair(NamedTuple):
    """Somebody, and whom they know something of."""

    observer: str
    target: str


class _Fact(NamedTuple):
    """A conclusion."""

    pair: _Pair
    id: str
    text: str


class PersonDeletion:
    """One request, for the person whom a service was opened for."""

    def __init__(self, service: HonchoService, settings: HonchoSettings, home: Path) -> None:
        self._service = service
        self._settings = settings
        self._home = home
        self._names = service.names

    def run(self, request: ForgetRequest) -> ForgetReport:
        """Find what is meant, and delete what Honcho can delete."""
        way = self._text if request.text else self._user if request.user_id else self._session
        return way(request)

    def _text(self, request: ForgetRequest) -> ForgetReport:
        facts = [each for each in self._conclusions(self._pairs) if request.matches(each.text)]
        cards = {
            pair: [line for line in card if not request.matches(line)]
            for pair in self._pairs
            if any(map(request.matches, card := self._card(pair)))
        }
        sessions = self._sessions()
        said = sum(request.matches(text) for each in sessions for text in self._messages(each))
        if request.delete:
            self._delete_conclusions(facts)
            for pair, lines in cards.items():
                self._set_card(pair, lines)
        items = [
            ForgetItem("conclusions", len(facts)),
            ForgetItem("cards", len(cards)),
            ForgetItem("messages", said),
            *self._local(request.matches, delete=request.delete),
        ]
        return ForgetReport(tuple(items), (_MESSAGES,) if said else ())

    def _session(self, request: ForgetRequest) -> ForgetReport:
        place = self._names.place(request.session_id)
        is_own = self._settings.session_strategy == "per-session"
        own = is_own and place.session in self._sessions()
        local = self._local(lambda text: text == place.session, delete=own and request.delete)
        if own:
            if request.delete:
                self._delete_session(place.session)
            return ForgetReport((ForgetItem("sessions", 1), *local))
        filters = {"metadata": {"session_id": request.session_id}}
        said = len(list(self._messages(place.session, filters)))
        return ForgetReport((ForgetItem("messages", said),), (_COMMON,) if said else ())

    def _user(self, request: ForgetRequest) -> ForgetReport:
        if not self._names.is_shared:
            return ForgetReport(unreachable=("all users are one peer in these settings",))
        sessions = self._sessions()
        own = [each for each in sessions if self._is_alone(each)]
        # What the agent knows of itself, it knows from everybody.
        pairs = [each for each in self._pairs if self._names.user in each]
        facts = list(self._conclusions(pairs))
        cards = [each for each in pairs if self._card(each)]
        if request.delete:
            for each in own:
                self._delete_session(each)
            self._delete_conclusions(facts)
            for pair in cards:
                self._set_card(pair, [])
            forget_person(self._home / "honcho", request.platform, request.user_id)
        items = [
            ForgetItem("sessions", len(own)),
            ForgetItem("sessions with others", len(sessions) - len(own)),
            ForgetItem("conclusions", len(facts)),
            ForgetItem("cards", len(cards)),
            *self._local(lambda text: text == self._names.user, delete=request.delete),
        ]
        return ForgetReport(tuple(items), (_PEER,) if sessions or facts else ())

    # -- what Honcho has ------------------------------------------------------------------------

    @property
    def _pairs(self) -> list[_Pair]:
        """Who may know something of whom."""
        both = (self._names.user, self._names.ai)
        return [_Pair(observer, target) for observer in both for target in both]

    def _conclusions(self, pairs: list[_Pair]) -> Iterator[_Fact]:
        for pair in pairs:
            with suppress(NotFoundError):
                found = self._view(pair).list(size=_PAGE)
                for each in islice(found, _MOST):
                    yield _Fact(pair, each.id, each.content)

    def _view(self, pair: _Pair) -> Any:
        return Peer(pair.observer, self._service.honcho).conclusions_of(pair.target)

    def _delete_conclusions(self, facts: list[_Fact]) -> None:
        for each in facts:
            with suppress(NotFoundError):
                self._view(each.pair).delete(each.id)

    def _card(self, pair: _Pair) -> list[str]:
        with suppress(NotFoundError):
            observer = Peer(pair.observer, self._service.honcho)
            return list(observer.get_card(target=pair.target) or ())
        return []

    def _set_card(self, pair: _Pair, lines: list[str]) -> None:
        Peer(pair.observer, self._service.honcho).set_card(lines, target=pair.target)

    def _messages(self, session: str, filters: dict[str, Any] | None = None) -> Iterator[str]:
        with suppress(NotFoundError):
            found = Session(session, self._service.honcho).messages(filters=filters, size=_PAGE)
            for each in islice(found, _MOST):
                yield each.content

    def _is_alone(self, session: str) -> bool:
        """Whether nobody but the person and the agent takes part in a session."""
        with suppress(NotFoundError):
            peers = {each.id for each in Session(session, self._service.honcho).peers()}
            return peers <= {self._names.user, self._names.ai}
        return True

    def _delete_session(self, session: str) -> None:
        with suppress(NotFoundError):
            Session(session, self._service.honcho).delete()
        for pause in _PAUSES:
            if session not in self._sessions():
                return
            time.sleep(pause)

    def _sessions(self) -> list[str]:
        """The sessions of the person, as the server lists them now."""
        with suppress(NotFoundError):
            found = Peer(self._names.user, self._service.honcho).sessions(size=_PAGE)
            return [each.id for each in islice(found, _MOST)]
        return []

    # -- the plugin's own files -----------------------------------------------------------------

    def _local(self, is_meant: Callable[[str], bool], *, delete: bool) -> Iterator[ForgetItem]:
        """Turns that wait to be sent, and notes that were mirrored."""
        held, mirrored = (kind(self._home, self._names.workspace) for kind in _FILES)
        yield ForgetItem("turns that wait", held.forget(is_meant, delete=delete))
        yield ForgetItem("mirrored notes", mirrored.forget(is_meant, delete=delete))
