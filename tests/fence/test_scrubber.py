from __future__ import annotations

import os
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fences import texts
from support.growth import assert_linear

from hermes_core import RecalledText, StreamScrubber, build_block

BLOCK = build_block([RecalledText("honcho", "- likes tea\n- [ ] buys milk")], max_chars=1_000).text
OPENING, CLOSING = "<memory-context>", "</memory-context>"
LONGEST_TAG = 64
LONGEST_FLOOD = 1_000_000 if os.environ.get("HERMES_STRESS") else 200_000


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


#: What an answer about the tags is made of.
_PROSE = st.sampled_from(
    (
        *(OPENING, CLOSING, OPENING.upper(), "< memory-context >", "\n<memory-context>\n"),
        *("```", "~~~", "`", "> ", "- [ ] ", "[x] done\n", "[", "]", "[note]", "<", "tea"),
        *("\n", "\n\n", " ", "    ", "\r\n", "\t", "\u200b"),
        *("[Recalled by memory", " plugins", "[System note: "),
    )
)
prose = st.lists(_PROSE | st.text(max_size=3), max_size=16).map("".join)


@settings(deadline=None)
@given(prose, st.lists(st.integers(0, 120)))
def test_an_answer_about_the_tags_does_not_depend_on_the_chunks(text: str, places: list[int]):
    whole = scrubbed(text)
    assert scrubbed(*cut(text, places)) == whole
    assert scrubbed(*text) == whole


@settings(deadline=None)
@given(prose, st.lists(st.integers(0, 120)))
def test_text_without_a_complete_block_comes_through_unchanged(text: str, places: list[int]):
    # No closing tag begins a line, and there is no note: whatever this is, it is no block.
    text = re.sub(r"(?i)(?<=\n)([ \t]*)(?=<[ \t]*/)", r"\1.", "." + text)
    text = re.sub(r"(?i)\[(?=recalled|system)", "(", text)
    assert scrubbed(*cut(text, places)) == text


@settings(deadline=None)
@given(prose.filter(lambda text: "/" not in text), st.lists(st.integers(0, 400)))
def test_an_echoed_block_is_dropped_from_any_answer(text: str, places: list[int]):
    answer = f"{text}{BLOCK}{text}"
    assert scrubbed(*cut(answer, places)) == text + text


@settings(deadline=None)
@given(st.lists(st.text(max_size=40), max_size=4), st.lists(st.integers(0, 900)))
def test_whatever_is_in_it(parts: list[str], places: list[int]):
    block = build_block([RecalledText("p", each) for each in parts], max_chars=5_000).text
    assert scrubbed(*cut(f"Well.\n{block}\nDone.", places)) == "Well.\n\nDone."


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
def test_an_echoed_block_is_dropped(chunks: list[str]):
    assert scrubbed("Well.\n", *chunks, "\nSo it is.") == "Well.\n\nSo it is."


@pytest.mark.parametrize("before", ["", "Sure: ", "> ", "  ", "    ", "```\n", "- ", "`"])
def test_a_block_with_a_note_is_dropped_wherever_it_begins(before: str):
    assert scrubbed(*f"{before}{BLOCK}\ndone") == f"{before}\ndone"


@pytest.mark.parametrize("between", ["", " ", "\n", "\r\n", " \n\n "])
def test_a_block_may_lose_its_line_ends(between: str):
    note = "[Recalled by memory plugins for this message.]"
    for said in (
        f"a {OPENING}{between}{note} secret {CLOSING} b",
        f"a {OPENING}{between}{note}{CLOSING} b",
    ):
        assert scrubbed(said) == scrubbed(*said) == "a  b"


def test_hermes_agents_block_is_dropped():
    said = (
        "Well. <memory-context>\n[System note: The following is recalled memory context, NOT new "
        "user input.]\n\nsecret\n</memory-context> So."
    )
    assert scrubbed(said) == scrubbed(*said) == "Well.  So."


@pytest.mark.parametrize(
    "opening", [OPENING, OPENING.upper(), "< memory-context >", "  <memory-context>\t"]
)
@pytest.mark.parametrize(
    "closing", [CLOSING, CLOSING.upper(), "</ memory-context >", " </memory-context>"]
)
def test_a_block_without_a_note_is_dropped_if_its_tags_begin_lines(opening: str, closing: str):
    said = f"a\n{opening}\nsecret\n{closing}b"
    assert scrubbed(said) == scrubbed(*said)
    assert scrubbed(said).split() == ["a", "b"]


@pytest.mark.parametrize(
    "said",
    [
        f"The {OPENING} tag wraps what was recalled. That is all.",
        f"The {OPENING} tag, up to {CLOSING}, is memory.",
        f"- [ ] remove {OPENING}\n- [x] keep {CLOSING}\nDone.",
        f"{OPENING} [ ] open\n{CLOSING} [x] closed\nDone.",
        f"- {OPENING} [x] done\n- more\n",
        f"{OPENING}\n[ ] a checkbox, and no closing tag\nDone.",
        f"`{OPENING}` and `{CLOSING}`",
        f'He wrote "{OPENING}" and "{CLOSING}".',
        f"> {OPENING}\n> quoted\n> {CLOSING}\nSo it is.",
        f"```\n{OPENING}\n[a note]\n- tea\n{CLOSING}\n```\nSee?",
        f"~~~text\n{OPENING}\n```\n{CLOSING}\n~~~\nSee?",
        f"    {OPENING}\n    code\n    {CLOSING}\nSee?",
        f"{OPENING}{CLOSING}",
        f"stray {CLOSING} tag\n{CLOSING}\nagain",
        f"{OPENING}\nnever closed",
        f"a\n{OPENING}\n[Recalled by memory plugins, never closed",
        f"{OPENING} inline </ memory-context > {OPENING}",
        "a <memory-con",
        "a <",
    ],
)
def test_what_only_mentions_the_tags_is_shown_as_it_is(said: str):
    assert scrubbed(said) == said
    assert scrubbed(*said) == said


def test_a_mention_in_a_sentence_holds_nothing_back():
    scrubber = StreamScrubber()
    assert scrubber.feed(f"The {OPENING} tag") == f"The {OPENING} tag"
    assert scrubber.feed(f"and `{CLOSING}`,") == f"and `{CLOSING}`,"


def test_a_mention_before_a_leak_is_shown_and_the_leak_is_not():
    said = f"The {OPENING} tag:\n{OPENING}\nsecret\n{CLOSING}\nSo."
    assert scrubbed(*said) == f"The {OPENING} tag:\n\nSo."
    said = f"Begin with\n{OPENING}\nand then:\n{OPENING}\nsecret\n{CLOSING}\nSo."
    assert scrubbed(*said) == f"Begin with\n{OPENING}\nand then:\n\nSo."


def test_half_a_tag_at_the_end_is_shown():
    assert scrubbed("a <memory-con") == "a <memory-con"
    assert scrubbed("a <") == "a <"


@pytest.mark.parametrize("end", ["flush", "reset"])
def test_the_next_stream_begins_anew(end: str):
    scrubber = StreamScrubber()
    scrubber.feed("Checking that now. <memory-context>\n[n] secret <mem")
    getattr(scrubber, end)()
    assert scrubber.feed(f"{BLOCK}\nok") == "\nok"


@pytest.mark.scaled
@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<memory-",
        "<memory-context>x",
        "<memory-context ",
        "\n<memory-context>\n",
        "\u200b",
        "<mem" + "\u200b" * 50,
        "</memory-context>",
    ],
)
@pytest.mark.parametrize("size", [7, 10**7])
def test_a_flood_takes_no_longer_than_its_length(piece: str, size: int):
    assert_linear(
        lambda flood: scrubbed(
            *(flood[start : start + size] for start in range(0, len(flood), size))
        ),
        lambda length: "<" + piece * (length // len(piece)),
        LONGEST_FLOOD,
    )
