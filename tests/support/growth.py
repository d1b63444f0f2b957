"""How the work for a text grows with its length, by the CPU time of this process."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from time import process_time

#: Each text is so many times as long as the one before.
_STEP = 8
#: How much longer it may take: more than 8 times, which is linear, by all that a busy machine adds,
#: and less than 64 times, which is quadratic.
_MOST = 4 * _STEP
#: What takes less has not grown.
_SECONDS = 0.1
_TRIES = 3


def assert_linear(
    work: Callable[[str], object], of_length: Callable[[int], str], most: int
) -> None:
    """Assert that the work for a text of any length up to ``most`` grows with it, and no faster.

    Args:
        work: What is measured.
        of_length: A text of about so many characters.
        most: The longest one. The first that takes too long ends the test: what grows with the
            square of the length would take minutes for the longest.
    """
    lengths = [most]
    while lengths[-1] > 10_000:
        lengths.append(lengths[-1] // _STEP)
    texts = [of_length(each) for each in reversed(lengths)]
    before = _seconds(work, texts[0])
    for shorter, text in pairwise(texts):
        seconds = _seconds(work, text)
        tries = 1
        while seconds > max(_MOST * before, _SECONDS) and tries < _TRIES:
            seconds, before = (
                min(seconds, _seconds(work, text)),
                max(before, _seconds(work, shorter)),
            )
            tries += 1
        assert seconds <= max(_MOST * before, _SECONDS), (
            f"{len(shorter):,} characters: {before:.4f} s; {len(text):,}: {seconds:.4f} s"
        )
        before = seconds


def _seconds(work: Callable[[str], object], text: str) -> float:
    begin = process_time()
    work(text)
    return process_time() - begin
