"""The built-in's notes, mirrored: each note is one memory, word for word."""

from __future__ import annotations

from collections.abc import Mapping

from hermes_core.backends import Note
from hermes_memory_mem0.memories import Memories, Memory, Owner
from hermes_memory_mem0.texts import cleaned, question


def mirror(memories: Memories, owner: Owner, note: Note, marks: Mapping[str, str]) -> None:
    """Follow a change of the notes. To do it twice does no harm."""
    content, old = cleaned(note.content).strip(), cleaned(note.old_text).strip()
    marks = {**marks, "note": note.target, "event_id": note.id}
    if note.action == "add":
        known = note.attempt > 1 and _there(memories, owner, note.target, content)
        if content and not known:
            _add(memories, owner, content, marks)
    elif note.action in ("replace", "remove") and old:
        found = _notes(memories, owner, note.target, old)
        outdated = _same(found, old) or ([] if note.old_is_whole else _having(found, old))
        new = content if note.action == "replace" else ""
        _exchange(memories, owner, outdated, new, marks)


def _exchange(
    memories: Memories, owner: Owner, outdated: list[Memory], new: str, marks: Mapping[str, str]
) -> None:
    """Put a text in the place of notes; "" only takes them away."""
    if not new:
        for each in outdated:
            memories.delete(each.id)
    elif not outdated:
        # It was never mirrored, or an earlier attempt has come this far.
        if not _there(memories, owner, marks["note"], new):
            _add(memories, owner, new, marks)
    else:
        first, *others = outdated
        memories.update(first.id, new, marks)
        for each in others:
            memories.delete(each.id)


def _add(memories: Memories, owner: Owner, content: str, marks: Mapping[str, str]) -> None:
    memories.add(owner, [{"role": "user", "content": content}], marks, infer=False)


def _notes(memories: Memories, owner: Owner, target: str, text: str) -> list[Memory]:
    return memories.marked(owner, {"note": target}, question(text))


def _there(memories: Memories, owner: Owner, target: str, content: str) -> bool:
    return bool(_same(_notes(memories, owner, target, content), content))


def _same(notes: list[Memory], text: str) -> list[Memory]:
    return [each for each in notes if each.text == text]


def _having(notes: list[Memory], part: str) -> list[Memory]:
    """The note that has a part, if only one does."""
    having = [each for each in notes if part in each.text]
    return having if len(having) == 1 else []
