"""What Honcho concluded, page by page, for an export. Messages are the host's own."""

from __future__ import annotations

from typing import Any, Final

from hermes_core import MemoryItem, MemoryPage
from hermes_memory_honcho.client import NotFoundError, Peer
from hermes_memory_honcho.service import HonchoService

_PAGE: Final = 100


def conclusions(service: HonchoService, cursor: str) -> MemoryPage:
    """A page of the conclusions about the person and the agent; with the first one, their cards.

    The cursor is the number of the pair, and of the page: who concluded something of whom.
    """
    both = (service.names.user, service.names.ai)
    pairs = [(observer, target) for observer in both for target in both]
    number, page = map(int, cursor.split(":")) if cursor else (0, 1)
    observer, target = pairs[number]
    peer = Peer(observer, service.honcho)
    items: list[MemoryItem] = []
    is_last = True
    try:
        found = peer.conclusions_of(target).list(page=page, size=_PAGE)
        items += map(_conclusion, found.items)
        is_last = page >= (found.pages or 0)
        if page == 1:
            items += _card(peer, target)
    except NotFoundError:  # nobody has said anything yet
        pass
    if not is_last:
        return MemoryPage(tuple(items), f"{number}:{page + 1}")
    following = f"{number + 1}:1" if number + 1 < len(pairs) else ""
    return MemoryPage(tuple(items), following)


def _conclusion(found: Any) -> MemoryItem:
    known = {
        "kind": "conclusion",
        "observer": found.observer_id,
        "target": found.observed_id,
        "session": found.session_id,
        "level": getattr(found, "level", None),  # since Honcho 3
    }
    known = {key: value for key, value in known.items() if value}
    return MemoryItem(found.id, found.content, found.created_at.timestamp(), known)


def _card(peer: Peer, target: str) -> list[MemoryItem]:
    lines = list(peer.get_card(target=target) or ())
    if not lines:
        return []
    known = {"kind": "card", "observer": peer.id, "target": target}
    return [MemoryItem(f"card:{peer.id}:{target}", "\n".join(lines), 0.0, known)]
