from __future__ import annotations

import os
from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fences import PLAIN_SPELLINGS, tags, texts

from hermes_core import StreamScrubber

BLOCK = "<memory-context>\n[a note]\n\n- likes tea\n</memory-context>\n"
HELD = 8_000
LONGEST_TAG = 256
#: CPU time is measured: what grows with the square of the length would take minutes.
MANY = 50_000 if os.environ.get("HERMES_STRESS") else 10_000


def scrubbed(*chunks: str) -> str:
    scrubber = StreamScrubber()
    return "".join(map(scrubber.feed, chunks)) + scrubber.flush()


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@settings(deadline=None)
@given(texts, st.lists(st.integers(0, 200)))
def test_what_is_shown_does_not_depend_on_the_chunks(text: str, places: list[int]):
    whole = scrubbed(text)
    assert scrubbed(*cut(text, places)) == whole
    assert scrubbed(*text) == whole


@settings(deadline=None)
@given(st.lists(texts, max_size=5), st.integers(HELD - 40, HELD + 20), st.integers(1, 300))
def test_nor_does_it_where_much_is_held_back(parts: list[str], size: int, step: int):
    text = ("x" * (size // 2)).join(parts)
    chunks = [text[start : start + step] for start in range(0, len(text), step)]
    assert scrubbed(*chunks) == scrubbed(text)


@settings(deadline=None)
@given(texts)
def test_no_whole_tag_is_ever_shown(text: str):
    assert tags(scrubbed(text)) == (0, 0)


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="<")))
def test_text_without_brackets_passes_at_once(text: str):
    scrubber = StreamScrubber()
    assert [scrubber.feed(letter) for letter in text] == [*text]
    assert scrubber.flush() == ""


@settings(deadline=None)
@given(texts)
def test_what_may_be_a_tag_is_held_back_only_so_long_as_a_tag_can_be(text: str):
    scrubber = StreamScrubber()
    for letter in text + "<memory-context " + "x" * LONGEST_TAG:
        scrubber.feed(letter)
        assert len(scrubber._pending) <= LONGEST_TAG


@pytest.mark.parametrize("chunks", [[BLOCK], [*BLOCK], [BLOCK[:5], BLOCK[5:]]])
def test_a_leaked_block_is_dropped(chunks: list[str]):
    assert scrubbed("Well.\n", *chunks, "So it is.") == "Well.\n\nSo it is."


@pytest.mark.parametrize("opening", [tag for tag in PLAIN_SPELLINGS if "/m" not in tag])
def test_a_span_is_dropped_however_its_tags_are_spelled(opening: str):
    if "/" in opening[:3]:
        opening = opening.replace("/", "", 1)
    for closing in ("</memory-context>", "</ Memory-\u200bContext >"):
        said = f"a {opening}secret{closing} b"
        assert scrubbed(said) == scrubbed(*said) == "a  b"


def test_a_span_in_capitals_is_dropped_from_one_chunk():
    assert scrubbed("a <MEMORY-CONTEXT>secret</MEMORY-CONTEXT> b < c") == "a  b < c"


@pytest.mark.parametrize("before", ["", "Sure: ", "> ", "  "])
def test_a_block_is_dropped_wherever_it_begins(before: str):
    assert scrubbed(*f"{before}{BLOCK}done") == f"{before}\ndone"


def test_spans_within_spans_are_dropped_as_one():
    inner = "<memory-context>b</memory-context>"
    assert scrubbed(*f"1<memory-context>a{inner}c</memory-context>2") == "12"
    assert scrubbed(*f"1\n<memory-context>\na{inner}c</memory-context>2") == "1\n2"


def test_a_stray_closing_tag_is_removed():
    assert scrubbed("a</memory-context>b") == "ab"


@pytest.mark.parametrize(
    "leak", ["<memory-context>\nsecret", "<memory-context> [note] secret", "<memory-context>\n\n[n"]
)
def test_a_leaked_block_that_never_ends_is_dropped_to_the_end(leak: str):
    assert scrubbed(*f"Well.\n{leak}") == "Well.\n"


@pytest.mark.parametrize("quote", ["`", "'", '"'])
def test_a_tag_in_quotes_is_a_mention_and_nothing_after_it_waits(quote: str):
    scrubber = StreamScrubber()
    said = f"the {quote}<memory-context>{quote} block and {quote}</memory-context>{quote}, see?"
    shown = "".join(map(scrubber.feed, said))
    assert shown == said.replace("<", "[").replace(">", "]")


def test_an_answer_that_only_mentions_the_tag_is_shown_to_its_end():
    said = "The <memory-context> tag wraps what was recalled. That is all."
    assert scrubbed(*said) == said.replace("<", "[").replace(">", "]")


def test_a_mention_holds_a_long_answer_back_for_a_while_only():
    scrubber = StreamScrubber()
    assert scrubber.feed("The <memory-context> tag") == "The "
    shown = scrubber.feed("x" * HELD)
    assert shown == "[memory-context] tag" + "x" * HELD
    assert scrubber.feed("and on") == "and on"


def test_a_mention_before_a_leak_is_shown_and_the_leak_is_not():
    said = "The <memory-context> tag:\n<memory-context>\nsecret"
    assert scrubbed(*said) == "The [memory-context] tag:\n"


@pytest.mark.parametrize("half", ["<", "< ", "</", "<m", "<memory-", "<memory-context "])
def test_a_tag_whose_halves_would_meet_is_kept_apart(half: str):
    other = "memory-context>"[len(half.strip("</ ")) :]
    said = f"{half}<memory-context>x</memory-context>{other}"
    assert scrubbed(said) == scrubbed(*said) == f"{half}[memory-context]{other}"


def test_a_span_that_was_dropped_does_not_count_for_the_next():
    span = f"<memory-context>{'x' * (HELD - 1_000)}</memory-context>"
    assert scrubbed(f"1{span}2{span}3") == "123"
    assert scrubbed(f"1<memory-context>a{span}{'y' * 2_000}</memory-context>2") == "12"


def test_what_is_too_long_for_a_tag_is_shown_as_none():
    said = "<memory-context " + "x" * LONGEST_TAG
    assert scrubbed(*said, ">") == "[" + said[1:] + ">"


def test_half_a_tag_at_the_end_is_shown():
    assert scrubbed("a <memory-con") == "a <memory-con"
    assert scrubbed("a <") == "a <"


@pytest.mark.parametrize("end", ["flush", "reset"])
def test_the_next_stream_begins_anew(end: str):
    scrubber = StreamScrubber()
    scrubber.feed("Checking that now. <memory-context>\n[n] secret <mem")
    getattr(scrubber, end)()
    assert scrubber.feed(f"{BLOCK}ok") == "\nok"


@pytest.mark.scaled
@pytest.mark.parametrize(
    "flood",
    [
        "<" * 20 * MANY,
        "<memory-" * 2 * MANY,
        "<memory-context>x" * MANY,
        "<memory-context " * MANY,
        "\n<memory-context>\n" * MANY,
        "<" + "\u200b" * 20 * MANY,
        ("<mem" + "\u200b" * 50) * (MANY * 2 // 5),
        "</memory-context>" * MANY,
    ],
)
@pytest.mark.parametrize("size", [7, 10**7])
def test_a_flood_takes_no_longer_than_its_length(flood: str, size: int):
    begin = process_time()
    scrubbed(*(flood[start : start + size] for start in range(0, len(flood), size)))
    assert process_time() - begin < 10
