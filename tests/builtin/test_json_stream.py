"""Entries of a JSON file come one by one, however the file is read and wherever it breaks."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_builtin.sessions import json_stream
from hermes_builtin.sessions.json_stream import JsonEntry, JsonStream

pytestmark = pytest.mark.files_only("nothing is stored")

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=5)


class InPieces(io.BytesIO):
    """A file that returns fewer bytes than it is asked for, as a pipe does."""

    def __init__(self, content: bytes, piece: int) -> None:
        super().__init__(content)
        self._piece = piece

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, self._piece) if size and size > 0 else self._piece)


def entries(content: str | bytes, piece: int = 1 << 20) -> list[JsonEntry]:
    data = content.encode() if isinstance(content, str) else content
    return list(JsonStream(InPieces(data, piece)))


def values(found: list[JsonEntry]) -> list[Any]:
    return [each.value for each in found if not each.problem]


def problems(found: list[JsonEntry]) -> list[str]:
    return [f"{each.place} {each.problem}" for each in found if each.problem]


@given(ENTRIES, st.sampled_from([None, 0, 2]), st.booleans(), st.integers(1, 40))
def test_an_array_has_the_same_entries_in_every_form_and_size_of_reads(
    given_entries: list[Any], indent: int | None, escaped: bool, piece: int
) -> None:
    content = json.dumps(given_entries, indent=indent, ensure_ascii=escaped).encode()
    found = entries(content, piece)
    assert [each.value for each in found] == given_entries
    assert not problems(found)
    for each in found:  # an entry can be read again
        assert json.loads(content[each.start : each.start + each.length]) == each.value


@given(ENTRIES, st.booleans(), st.integers(1, 40), st.sampled_from(["\n", "\r\n", "\n \n"]))
def test_lines_are_entries(given_entries: list[Any], escaped: bool, piece: int, end: str) -> None:
    lines = (json.dumps(each, ensure_ascii=escaped) + end for each in given_entries)
    found = entries("\ufeff" + "".join(lines), piece)
    assert [each.value for each in found] == given_entries


@given(ENTRIES.filter(bool), st.data())
def test_what_is_whole_before_a_cut_is_there_and_the_cut_is_named(
    given_entries: list[Any], data: st.DataObject
) -> None:
    content = json.dumps(given_entries).encode()
    cut = data.draw(st.integers(1, len(content) - 1))
    found = entries(content[:cut])
    whole = values(found)
    assert whole == given_entries[: len(whole)]
    # An entry is missing only if the cut is in it, or before it.
    lengths = [len(json.dumps(each)) + 2 for each in given_entries]
    assert sum(lengths[: len(whole) + 1]) > cut - 1
    (problem,) = problems(found)
    assert problem.startswith(f"entry {len(whole) + 1} (byte ")


@pytest.mark.parametrize(
    ("content", "whole", "problem"),
    [
        ('{"a": 1}\n{"b": 2\n{"c": 3}\n', [1, 3], "line 2 is not JSON"),
        ('{"a": 1}\n{"b": "x\n{"c": 3}\n', [1, 3], "line 2 is not JSON"),
        ('{"a": 1}\nhello\n{"c": 3}\n', [1, 3], "line 2 is not JSON"),
        ('{"a": 1}\n{"b": "x', [1], "line 2 is cut off"),
        ('{"a": 1}\n]\n{"c": 3}', [1], "line 2 is not JSON"),
        ('{\n"a": 1,\n"b": [\n{"c": 3}\n', [], "line 1 is cut off"),
        ('[{"a": 1}, {"b": }, {"c": 3}]', [1], "entry 2 (byte 11) is not JSON"),
        ('[{"a": 1} {"b": 2}]', [1], "entry 1 (byte 10) a comma is missing"),
        ('[{"a": 1}]\n[{"b": 2}]', [1], "entry 1 (byte 11) follows the end"),
        ('[{"a": 1}', [1], "entry 2 (byte 9) is missing: the file is cut off"),
        ("[" * 100_000, [], "entry 1 (byte 1) is nested too deeply"),
        (b'[{"a": 1}, {"b": "\xff"}, {"c": 3}]', [1, 3], "entry 2 (byte 11) is not UTF-8"),
        (b'{"a": 1}\n{"b": "\xe9l"}\n{"c": 3}\n', [1, 3], "line 2 is not UTF-8"),
    ],
)  # fmt: skip
def test_where_a_file_is_broken(content: str | bytes, whole: list[int], problem: str) -> None:
    for piece in (1 << 20, 7, 1):
        found = entries(content, piece)
        assert [next(iter(each.values())) for each in values(found)] == whole
        (named,) = problems(found)
        assert named.startswith(problem)


def test_an_entry_that_would_fill_the_memory_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "LONGEST_ENTRY", 1_000_000)
    monkeypatch.setattr(json_stream, "_CHUNK", 10_000)
    long = json.dumps({"a": "x" * 5_000_000})
    found = entries(f'{{"a": 1}}\n{long}\n{{"c": 3}}\n')
    assert values(found) == [{"a": 1}, {"c": 3}]
    assert problems(found) == ["line 2 is longer than 1 MB"]
    found = entries(f'[{{"a": 1}}, {long}]')
    assert values(found) == [{"a": 1}]
    assert len(problems(found)) == 1
