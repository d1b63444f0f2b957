"""What the three modes have in common: memories of an owner that can be searched and changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from hermes_core import ForgetItem, ForgetReport, ForgetRequest, MemoryItem, MemoryPage
from hermes_core.service import (
    Alphabet,
    Note,
    RecallResult,
    SessionStart,
    expand_id,
    make_id,
    person_name,
)
from hermes_memory_mem0.settings import Mem0Settings

# -----------------------------------------------------------------------------------------------
# What the three modes have in common: memories of an owner, that can be asked for and changed

Message = dict[str, str]


class Owner(NamedTuple):
    """Whose memories: every question names the user, every memory its author too."""

    user: str
    agent: str


class Mem0Memory(NamedTuple):
    """One fact."""

    id: str
    text: str
    user: str = ""
    score: float = 0.0
    created: str = ""
    metadata: Mapping[str, Any] = {}


class EventState(Enum):
    """What became of something that Mem0 works on in the background."""

    UNDERWAY = "underway"
    DONE = "done"
    FAILED = "failed"


class AddResult(NamedTuple):
    """Mem0's answer to an `Memories.add`.

    Attributes:
        event_id: What to ask for later, where facts are extracted later.
        is_shown: Whether the answer shows that nothing was lost.
    """

    event_id: str = ""
    is_shown: bool = True


class Memories(Protocol):
    """A place where Mem0 stores memories. Every method raises if it did not answer."""

    #: How a person calls the place: an address or a folder.
    where: str
    #: Whether facts are there when ``add`` returns, or made later.
    extracts_at_once: bool
    #: How many memories `all` returns at most; 0 if there is no limit.
    most_listed: int

    def open(self) -> None:
        """Get ready, over the network if need be. May be called again."""

    def add(
        self,
        owner: Owner,
        messages: Sequence[Message],
        marks: Mapping[str, str],
        *,
        infer: bool,
        said_at: float = 0.0,
    ) -> AddResult:
        """Store messages, or the facts in them.

        Args:
            owner: Whose they are.
            messages: Who said what.
            marks: Goes with each memory, and finds it again.
            infer: Let a model extract facts; else each message is a memory as it stands.
            said_at: When it was said, in Unix seconds; 0.0 for now.
        """

    def search(self, owner: Owner, query: str, limit: int, *, rerank: bool) -> list[Mem0Memory]:
        """What fits a question, the best first."""

    def marked(self, owner: Owner, marks: Mapping[str, str], text: str) -> list[Mem0Memory]:
        """The memories with these marks; ``text`` is what they are about."""

    def is_underway(self, owner: Owner, marks: Mapping[str, str]) -> bool:
        """Whether memories with these marks are still being made."""

    def event_state(self, event_id: str) -> EventState:
        """What became of an event."""

    def ask_model(self) -> None:
        """See that the model that extracts facts answers, where it is ours to ask."""

    def get(self, memory_id: str) -> Mem0Memory | None:
        """One memory."""

    def update(self, memory_id: str, text: str, marks: Mapping[str, str] | None = None) -> None:
        """Replace the text of a memory."""

    def delete(self, memory_id: str) -> None:
        """Remove a memory."""

    def all(self, owner: Owner) -> list[Mem0Memory]:
        """Every memory of a user."""

    def forget(self, owner: Owner) -> None:
        """Remove all memories of a user."""

    def erase_history(self, ids: Sequence[str], is_gone: Callable[[str], bool]) -> bool:
        """Remove what is kept of deleted memories: earlier versions, and what was said.

        Args:
            ids: The memories.
            is_gone: Whether a text, or who a message is of, is to be removed as well.

        Returns:
            Whether that can be done here.
        """

    def close(self) -> None:
        """Close it. May be called twice."""


def memory_of(row: Mapping[str, Any]) -> Mem0Memory:
    """A memory as Mem0 returns it, in any of its modes."""
    return Mem0Memory(
        str(row.get("id") or ""),
        str(row.get("memory") or ""),
        str(row.get("user_id") or ""),
        float(row.get("score") or 0.0),
        str(row.get("created_at") or ""),
        row.get("metadata") or {},
    )


def memories_in(answer: Any) -> list[Mem0Memory]:
    """The memories of an answer: a list, or an object that has one."""
    rows = answer.get("results") if isinstance(answer, Mapping) else answer
    rows = rows if isinstance(rows, list) else []
    return [memory_of(each) for each in rows if isinstance(each, Mapping) and each.get("memory")]


# -- What a person wants to be forgotten --------------------------------------------------------

_HISTORY: Final = "earlier versions of memories: Mem0 has no way to delete them"
_SHARED: Final = "all users share one user of Mem0: run `hermes-plugins forget TEXT --provider`"


def forget(memories: Memories, owner: Owner, request: ForgetRequest, *, own: bool) -> ForgetReport:
    """Find memories that a request means, and delete them; ``own`` if nobody else has the owner."""
    if request.user_id and not own:
        return ForgetReport(unreachable=(_SHARED,))
    if request.session_id:
        found = memories.marked(owner, {"session_id": request.session_id}, request.session_id)
    else:
        found = memories.all(owner)
    if request.text:
        found = [each for each in found if request.matches(each.text)]
    unreachable: list[str] = []
    if request.delete:
        if request.user_id:
            memories.forget(owner)
        else:
            for each in found:
                memories.delete(each.id)

        def is_gone(text: str) -> bool:
            return request.matches(text) or bool(request.user_id and owner.user in text)

        if not memories.erase_history([each.id for each in found], is_gone) and found:
            unreachable.append(_HISTORY)
    return ForgetReport((ForgetItem("memories", len(found)),), tuple(unreachable))


# -- What is listed for an export ---------------------------------------------------------------

_PAGE: Final = 500


def page_of(found: Sequence[Mem0Memory], cursor: str, most: int) -> MemoryPage:
    """A page of memories; the cursor is the number of its first one. ``most`` can be listed."""
    start = int(cursor or 0)
    items = tuple(map(_item, found[start : start + _PAGE]))
    end = start + len(items)
    missing = f"Mem0 lists at most {most:,} memories" if 0 < most <= len(found) else ""
    return MemoryPage(items, str(end) if end < len(found) else "", missing)


def _item(memory: Mem0Memory) -> MemoryItem:
    try:
        created = datetime.fromisoformat(memory.created).timestamp()
    except ValueError:
        created = 0.0
    return MemoryItem(memory.id, memory.text, created, memory.metadata)


# -- Texts on their way to Mem0 and back --------------------------------------------------------

#: Embedding models take about 8,000 tokens; a question needs less.
LONGEST_QUERY: Final = 2_000
_SHOWN: Final = 500
_HEADING: Final = "## Mem0 Memory"


def cleaned(text: str) -> str:
    """A text that every store takes: no halves of characters, no NUL."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", "")


def shortened(text: str, limit: int) -> str:
    """The beginning and the end of a text that is too long for a model; 0 for no limit.

    The built-in's archive has the complete text.
    """
    if not limit or len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[{left_out} characters are left out here]\n{text[-half:]}"


def question(text: str) -> str:
    """What is asked with: not more of a message than an embedding model takes."""
    return cleaned(text)[:LONGEST_QUERY].strip()


def recalled(memories: Sequence[Mem0Memory]) -> RecallResult:
    """Memories for the model to read; nothing for none."""
    lines = [f"- {_one_line(each.text)}" for each in memories]
    return RecallResult("\n".join([_HEADING, *lines]), len(lines)) if lines else RecallResult()


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# -- Whose memories they are, as sent to Mem0 ---------------------------------------------------

#: Mem0 takes anything without white space. ``*`` would mean everybody.
_IDS: Final = Alphabet(r"\w.@:+#=-", 128)
_NOBODY: Final = "hermes-user"
_DEFAULT_PROFILE: Final = "default"


def owner_of(settings: Mem0Settings, start: SessionStart) -> Owner:
    """Who owns what is said in a session.

    A name that is set up counts for everybody, as with hermes-agent. Without one it is the
    gateway's user, or ``hermes-user`` at a terminal; a profile other than the default one has
    its own users. Users of two platforms are two people, whatever their ids are, and whoever talks
    in a chat without a user id is not the person at the terminal.
    """
    agent = make_id(settings.agent_id, _IDS)
    user = person_name(start.home / "mem0", start.platform, start.user_id, start.chat_id)
    # Somebody may be called like nobody.
    user = f"user\0{user}" if user == _NOBODY else user or _NOBODY
    if settings.user_id:
        values = {"user": user, "profile": start.profile, "platform": start.platform}
        has_fields = "{" in settings.user_id
        named = settings.user_id
        own = expand_id(named, values, _IDS) if has_fields else make_id(named, _IDS)
        return Owner(own, agent)
    if start.profile in ("", _DEFAULT_PROFILE):
        return Owner(make_id(user, _IDS), agent)
    # With the separator it never fits as it stands, so it has a hash: no user can be called so.
    return Owner(make_id(f"{user}\n{start.profile}", _IDS), agent)


# -- The built-in's notes, mirrored: each note is one memory, word for word ---------------------


def mirror(memories: Memories, owner: Owner, note: Note, marks: Mapping[str, str]) -> None:
    """Follow a change of the notes. To do it twice does no harm."""
    content, old = cleaned(note.content).strip(), cleaned(note.old_text).strip()
    marks = {**marks, "note": note.target, "event_id": note.id}
    if note.action == "add":
        known = note.attempt > 1 and _there(memories, owner, note.target, content)
        if content and not known:
            _add(memories, owner, content, marks, note.said_at)
    elif note.action in ("replace", "remove") and old:
        found = _notes(memories, owner, note.target, old)
        outdated = _same(found, old) or ([] if note.old_is_whole else _having(found, old))
        new = content if note.action == "replace" else ""
        if new and not outdated:
            # It was never mirrored, or an earlier attempt has come this far.
            if not _there(memories, owner, note.target, new):
                _add(memories, owner, new, marks, note.said_at)
        else:
            _exchange(memories, outdated, new, marks)


def _exchange(
    memories: Memories, outdated: list[Mem0Memory], new: str, marks: Mapping[str, str]
) -> None:
    """Put a text in the place of notes; "" only takes them away."""
    if not new:
        for each in outdated:
            memories.delete(each.id)
    else:
        first, *others = outdated
        # Updated, not deleted and added: there is no moment without the note.
        memories.update(first.id, new, marks)
        for each in others:
            memories.delete(each.id)


def _add(
    memories: Memories, owner: Owner, content: str, marks: Mapping[str, str], said_at: float
) -> None:
    said = [{"role": "user", "content": content}]
    memories.add(owner, said, marks, infer=False, said_at=said_at)


def dated(marks: Mapping[str, str], said_at: float) -> dict[str, str]:
    """Marks for the engine, which dates a memory by ``created_at`` if there is one."""
    at = datetime.fromtimestamp(said_at, UTC).isoformat() if said_at else ""
    return {**marks, **({"created_at": at} if at else {})}


def _notes(memories: Memories, owner: Owner, target: str, text: str) -> list[Mem0Memory]:
    return memories.marked(owner, {"note": target}, question(text))


def _there(memories: Memories, owner: Owner, target: str, content: str) -> bool:
    return bool(_same(_notes(memories, owner, target, content), content))


def _same(notes: list[Mem0Memory], text: str) -> list[Mem0Memory]:
    return [each for each in notes if each.text == text]


def _having(notes: list[Mem0Memory], part: str) -> list[Mem0Memory]:
    """The note that has a part, if only one does."""
    having = [each for each in notes if part in each.text]
    return having if len(having) == 1 else []
