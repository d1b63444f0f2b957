"""Other words for a word: a question says "film" where the conversation said "movie".

The words are in thesaurus.txt, which is read at the first search, not at import.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from hermes_builtin.sessions._stemming import stem

#: What another word counts for, where the word itself counts for 1.
WEIGHT: Final = 0.6

_FILE: Final = Path(__file__).with_name("thesaurus.txt")


def related(term: str) -> frozenset[str]:
    """Give the stems that may stand for a stem, without the stem itself."""
    return _read(_FILE).get(term, frozenset())


@cache
def _read(file: Path) -> Mapping[str, frozenset[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for line in file.read_text(encoding="utf-8").splitlines():
        for term, other in _pairs(line):
            found[term].add(other)
    return {term: frozenset(others - {term}) for term, others in found.items()}


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    """Read ``a = b c`` (both ways) and ``a > b c`` (from a alone)."""
    words = line.partition("#")[0].split()
    if not words:
        return
    head, sign, *members = words
    for member in members:
        yield stem(head), stem(member)
        if sign == "=":
            yield stem(member), stem(head)
