"""Whether an answer shows that a provider knows a turn."""

from __future__ import annotations

import pytest

from hermes_core.checkup.recall_sample import Judgement, count_words, question_about

TURNS = [
    {"user_content": user, "assistant_content": answer}
    for user, answer in (
        ("My dog Bello was born in Bonn in 2015", "A lovely age for a beagle!"),
        ("My dog likes the park", "Noted."),
        ("我的生日是六月十五日 我住在柏林", "好的"),
        ("please go on", "please go on"),
        ("please go on", "please go on"),
    )
]


def question(turn: dict[str, str]):
    counts, total = count_words([turn], TURNS)
    return question_about(turn, counts, total)


@pytest.mark.parametrize(
    ("answer", "control", "judgement"),
    [
        ("The user's dog is from Bonn.", "nothing", "RECALLED"),
        ("The user has a beagle.", "", "RECALLED"),
        ("Nothing is known about: My dog Bello was born in", "", "MISSING"),
        ("", "", "MISSING"),
        ("Bonn", "Bonn", "MISSING"),  # the same for a question that nobody asked
        ("bonn 2015 lovely beagle age", "bonn 2015 lovely beagle age", "UNKNOWN"),
    ],
)
def test_words_of_the_rest_of_the_turn_count(answer, control, judgement):
    asked = question(TURNS[0])
    assert asked.text == "My dog Bello was born"
    assert asked.judge(answer, control) is Judgement[judgement]


def test_a_run_of_words_counts_though_every_answer_has_it():
    text = "2015: A lovely age for a beagle!"
    assert question(TURNS[0]).judge(text, text) is Judgement.RECALLED


def test_a_single_word_is_not_part_of_the_question():
    turn = {"user_content": "It is called Rumpelstiltskin", "assistant_content": "Noted."}
    counts, total = count_words([turn], [*TURNS, turn])
    asked = question_about(turn, counts, total)
    assert asked.text.strip() == "It is called"
    assert asked.judge("Rumpelstiltskin", "") is Judgement.RECALLED


def test_a_number_that_any_answer_may_have_says_nothing():
    turn = {"user_content": "In which room do we meet on Monday?", "assistant_content": "Room 12."}
    counts, total = count_words([turn], [*TURNS, turn])
    asked = question_about(turn, counts, total)
    assert asked is None or asked.judge("0 memories found (took 12.12 ms)", "") is not (
        Judgement.RECALLED
    )


def test_a_language_without_spaces_can_be_judged():
    asked = question(TURNS[2])
    assert asked.judge("用户住在柏林", "") is Judgement.RECALLED
    assert asked.judge(asked.text, "") is Judgement.MISSING


def test_a_turn_without_rare_words_can_not_be_judged():
    assert question(TURNS[3]) is None
