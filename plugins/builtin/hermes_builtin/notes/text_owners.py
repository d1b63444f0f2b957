"""In whose notebooks texts are, by their hashes: nobody else may see a hash of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from hermes_builtin.notes.entries import split, text_hash
from hermes_builtin.notes.history import entries_of

#: What stands for the notebooks that all people have in common.
SHARED: Final = "memory"
_PRIVATE: Final = "user/"

#: A notebook, and the text of a change before and after it, and how that was divided.
ChangedTexts = tuple[str, str | None, str, str | None]


def owner_of(target: str) -> str:
    """The notebook if it is a user's own, else `SHARED`."""
    return target if target.startswith(_PRIVATE) else SHARED


def owners_by_hash(
    texts: Iterable[tuple[str, str]],
    changes: Iterable[ChangedTexts],
    refused: Iterable[tuple[str, str]],
) -> Mapping[str, set[str]]:
    """Whose notebooks the entries of texts are in, or were in.

    Args:
        texts: Notebooks and their texts.
        changes: What their history has.
        refused: Notebooks, and the texts that the guard refused for them.

    Returns:
        By the hash of each entry what `owner_of` returns. Texts that are in no notebook are
        left out.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for target, entry in (*_entries(texts, changes), *refused):
        found[text_hash(entry)].add(owner_of(target))
    return found


def _entries(
    texts: Iterable[tuple[str, str]], changes: Iterable[ChangedTexts]
) -> Iterator[tuple[str, str]]:
    for target, text in texts:
        yield from ((target, each) for each in split(text))
    for target, before, after, seen in changes:
        yield from ((target, each) for each in (*split(before or ""), *entries_of(after, seen)))
