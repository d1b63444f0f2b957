"""Long messages in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_honcho.texts import CONTINUED, pieces


def test_a_message_that_fits_is_one_piece():
    assert list(pieces("short", 25_000)) == ["short"]
    assert list(pieces("x" * 100, 100)) == ["x" * 100]


@given(st.text(alphabet=" .\nab世👩", max_size=400), st.integers(20, 80))
def test_pieces_fit_and_together_are_the_message(text: str, limit: int):
    found = list(pieces(text, limit))
    assert all(len(piece) <= limit for piece in found)
    rest = [piece.removeprefix(CONTINUED) for piece in found[1:]]
    assert all(piece.startswith(CONTINUED) for piece in found[1:])
    assert "".join([found[0], *rest]) == text


def test_a_piece_ends_with_a_paragraph_rather_than_a_sentence_rather_than_a_word():
    paragraph = "One two. Three four\n\nfive. Six seven eight nine ten eleven"
    assert next(pieces(paragraph, 40)) == "One two. Three four\n\n"
    assert next(pieces("One two three. Four five six seven eight", 30)) == "One two three. "
    words = "One two three four five six seven eight"
    assert next(pieces(words, 30)) == "One two three four five six "
