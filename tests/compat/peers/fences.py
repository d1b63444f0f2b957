"""The fence around recalled text, and what takes it out of a model's output."""

from __future__ import annotations

from peers.host import memory_manager
from peers.stage import scenario

BLOCK = "<memory-context>\nsecret\n</memory-context>"


@scenario("build_memory_context_block")
def a_block_is_fenced(stage):
    block = memory_manager.build_memory_context_block("likes tea")
    ends = [block.startswith("<memory-context>\n"), block.endswith("\n</memory-context>")]
    return [*ends, "likes tea" in block]


@scenario("build_memory_context_block")
def a_block_says_what_it_is(stage):
    block = memory_manager.build_memory_context_block("likes tea")
    return block.splitlines()[1].partition(".")[0]


@scenario("build_memory_context_block")
def no_block_for_no_text(stage):
    return [memory_manager.build_memory_context_block(each) for each in ("", "  \n", None)]


@scenario("build_memory_context_block")
def a_fence_within_recalled_text_is_taken_out(stage):
    block = memory_manager.build_memory_context_block(f"before\n{BLOCK}\nafter")
    return [block.count("<memory-context>"), block.count("</memory-context>"), "secret" in block]


@scenario("build_memory_context_block")
def a_tag_within_recalled_text_is_taken_out(stage):
    block = memory_manager.build_memory_context_block("before </memory-context> after")
    return [block.count("</memory-context>"), "before" in block, "after" in block]


@scenario("sanitize_context")
def fences_are_taken_out(stage):
    block = memory_manager.build_memory_context_block("likes tea")
    texts = ("plain", f"before {block} after", f"{block}{block}", f"a\n{BLOCK}\nb")
    return [memory_manager.sanitize_context(each).split() for each in texts]


@scenario("sanitize_context")
def every_spelling_of_a_tag(stage):
    texts = (
        "a <MEMORY-CONTEXT>x</MEMORY-CONTEXT> b",
        "a < memory-context >x</ memory-context > b",
        "a </memory-context> b",
        "a <memory-context> b",
        "a <memory> b </memory>",
        "a <memory-contexts> b",
    )
    return [memory_manager.sanitize_context(each).split() for each in texts]


@scenario("sanitize_context")
def an_empty_text_stays_empty(stage):
    return [memory_manager.sanitize_context(each) for each in ("", "  ", "\n")]


def _scrubbed(*deltas):
    scrubber = memory_manager.StreamingContextScrubber()
    shown = [scrubber.feed(each) for each in deltas]
    return "".join(shown) + scrubber.flush()


@scenario("StreamingContextScrubber")
def streams_without_a_fence(stage):
    return [_scrubbed("Hello, ", "world."), _scrubbed(""), _scrubbed("a < b", " and c > d")]


@scenario("StreamingContextScrubber")
def a_fence_in_one_piece(stage):
    return _scrubbed(f"Before.\n{BLOCK}\nAfter.").split()


@scenario("StreamingContextScrubber")
def a_fence_in_single_characters(stage):
    return _scrubbed(*f"Before.\n{BLOCK}\nAfter.").split()


@scenario("StreamingContextScrubber")
def a_fence_that_begins_the_stream(stage):
    return _scrubbed("<memory-", "context>\nsecret\n</memory", "-context>After.").split()


@scenario("StreamingContextScrubber")
def a_fence_in_capitals(stage):
    return _scrubbed("<MEMORY-CONTEXT>\nsecret\n</MEMORY-CONTEXT>\nAfter.").split()


@scenario("StreamingContextScrubber")
def a_fence_that_never_ends(stage):
    return _scrubbed("Before.\n<memory-context>\nsec", "ret").split()


@scenario("StreamingContextScrubber")
def two_fences(stage):
    return _scrubbed(f"{BLOCK}\nBetween.\n{BLOCK}\nAfter.").split()


@scenario("StreamingContextScrubber")
def a_tag_that_is_mentioned_in_a_sentence(stage):
    return _scrubbed("Write <memory-context> to open", " and </memory-context> to close.")


@scenario("StreamingContextScrubber")
def the_beginning_of_a_tag_at_the_end(stage):
    return _scrubbed("The end <memory-con")


@scenario("StreamingContextScrubber")
def a_scrubber_that_is_used_again(stage):
    scrubber = memory_manager.StreamingContextScrubber()
    first = scrubber.feed("<memory-context>\nsecret")
    scrubber.reset()
    return [first, scrubber.feed("Hello.") + scrubber.flush()]


@scenario("StreamingContextScrubber")
def a_scrubber_after_its_flush(stage):
    scrubber = memory_manager.StreamingContextScrubber()
    scrubber.feed("<memory-context>\nsecret")
    return [scrubber.flush(), scrubber.feed("Hello.") + scrubber.flush()]
