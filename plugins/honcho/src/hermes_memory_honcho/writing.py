"""Writes: turns at once or several together, notes as conclusions, results of subagents."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from hermes_core.backends import Delegation, Note, Turn
from hermes_memory_honcho.held import Held, HeldTurn
from hermes_memory_honcho.mirrored import Mirrored
from hermes_memory_honcho.naming import Place, Said
from hermes_memory_honcho.service import Entry, Service
from hermes_memory_honcho.settings import Settings
from hermes_memory_honcho.texts import storable

_LEFT_SECONDS: Final = 3600.0  # who has not sent a turn after an hour will not any more


class Writer:
    """What one agent tells Honcho."""

    def __init__(self, service: Service, settings: Settings, home: Path) -> None:
        self._service = service
        self._names = service.names
        self._settings = settings
        self._held = Held(home, service.names.workspace)
        self._mirrored = Mirrored(home, service.names.workspace)
        self._places: dict[Place, None] = {}  # in their order
        self._looked_for_left = False

    def turn(self, turn: Turn) -> None:
        """A turn: now, or with the others of its session."""
        place = self._names.place(turn.session_id)
        said = [Said(place.user, turn.user), Said(place.ai, turn.assistant)]
        self._write(place, said, turn.id, {"session_id": turn.session_id}, turn.attempt)

    def delegation(self, delegation: Delegation) -> None:
        """What a subagent found out is something that the agent says."""
        place = self._names.place(delegation.session_id)
        text = f"A subagent was asked: {delegation.task}\n\nIt answered: {delegation.result}"
        facts = {"session_id": delegation.session_id, "child": delegation.child_session_id}
        self._write(place, [Said(place.ai, text)], delegation.id, facts, delegation.attempt)

    def note(self, note: Note) -> None:
        """A note of either notebook is something that the agent knows of the person."""
        place = self._names.place(note.session_id)
        content, old = storable(note.content.strip()), storable(note.old_text.strip())
        if old and not note.old_is_whole:
            old = self._mirrored.meant(place.user, old, content)
        if note.action in ("add", "replace") and content:
            self._keep(place, content, again=note.attempt > 1 or note.action == "replace")
        if old and (note.action == "remove" or (note.action == "replace" and old != content)):
            self._drop(place.user, old)

    def _keep(self, place: Place, content: str, *, again: bool) -> None:
        if not (again and self._service.find_conclusion(place.user, content)):
            self._service.conclude(place.user, content, place)
        self._mirrored.put(place.user, content)

    def _drop(self, user: str, content: str) -> None:
        number = self._service.find_conclusion(user, content)
        if number:
            self._service.delete_conclusion(user, number)
        self._mirrored.remove(user, content)

    def end(self, session_id: str) -> None:
        """A session is over: send what waits of it, and of those that led to it."""
        for place in [*self._places, self._names.place(session_id)]:
            self._send(self._held.take(place))
            self._places.pop(place, None)

    def _write(
        self, place: Place, said: list[Said], key: str, facts: dict[str, Any], attempt: int
    ) -> None:
        if not self._settings.save_messages:
            return
        if not self._looked_for_left:
            self._send(self._held.take(older=_LEFT_SECONDS))
            self._looked_for_left = True
        if self._settings.write_every == 1:
            self._service.add(place, [Entry(key, said, facts, attempt > 1)])
        else:
            self._hold(HeldTurn(key, place, said, facts), attempt)

    def _hold(self, turn: HeldTurn, attempt: int) -> None:
        if attempt > 1 and self._service.parts(turn.place, turn.key):
            return  # it was sent, and only its confirmation got lost
        self._places[turn.place] = None
        waiting = self._held.put(turn)
        if 0 < self._settings.write_every <= waiting:
            self._send(self._held.take(turn.place))

    def _send(self, turns: list[HeldTurn]) -> None:
        """Send turns that waited, those of a session together."""
        left = list(turns)
        try:
            for place in dict.fromkeys(each.place for each in turns):
                here = [each for each in turns if each.place == place]
                entries = [Entry(each.key, each.said, each.facts, each.again) for each in here]
                self._service.add(place, entries)
                self._held.sent(here)
                left = [each for each in left if each.place != place]
        finally:
            if left:
                self._held.give_back(left)
