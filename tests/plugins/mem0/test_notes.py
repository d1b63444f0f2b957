"""The built-in's notes are mirrored: added, replaced, removed, each change once."""

import os

import pytest

TEA = "Ann drinks green tea."
COFFEE = "Ann drinks coffee now."


def _note(provider, action, content, *, event="e1", attempt=1, target="user", **metadata):
    provider.on_memory_write(action, target, content, metadata, event_id=event, attempt=attempt)


def test_a_note_is_recalled_word_for_word(place):
    provider = place.provider()
    _note(provider, "add", TEA)
    assert TEA in provider.prefetch("What tea does Ann drink?")
    (row,) = place.rows()
    assert row["metadata"]["note"] == "user"


def test_a_note_that_was_replaced_is_gone_and_the_new_one_is_there(place):
    provider = place.provider()
    _note(provider, "add", TEA)
    _note(provider, "add", "The printer is on the second floor.", event="e2", target="memory")
    _note(provider, "replace", COFFEE, event="e3", old_text=TEA)
    assert place.texts() == [COFFEE, "The printer is on the second floor."]


def test_a_note_that_was_removed_is_gone(place):
    provider = place.provider()
    _note(provider, "add", TEA)
    _note(provider, "remove", "", event="e2", old_text=TEA)
    assert place.texts() == []


def test_without_an_outbox_a_part_of_a_note_names_it_if_only_one_has_it(place):
    provider = place.provider()
    _note(provider, "add", TEA)
    _note(provider, "add", COFFEE, event="e2")
    _note(provider, "remove", "", event="", old_text="Ann drinks")
    _note(provider, "remove", "", event="", old_text="green")
    provider.shutdown()
    assert place.texts() == [COFFEE]


def test_a_removal_that_is_told_twice_spares_the_note_that_has_the_text_as_a_part(place):
    provider = place.provider()
    _note(provider, "add", "Likes tea")
    _note(provider, "add", "Likes tea with milk", event="e2")
    _note(provider, "remove", "", event="e3", old_text="Likes tea")
    _note(provider, "remove", "", event="e3", old_text="Likes tea", attempt=2)
    assert place.texts() == ["Likes tea with milk"]


@pytest.mark.parametrize("action", ["add", "replace", "remove"])
def test_a_change_that_is_told_twice_is_made_once(place, action):
    provider = place.provider()
    if action != "add":
        _note(provider, "add", TEA, event="e0")
    for attempt in (1, 2):
        _note(provider, action, COFFEE if action != "remove" else "", attempt=attempt, old_text=TEA)
    assert place.texts() == ([] if action == "remove" else [COFFEE])


def test_a_note_that_was_never_mirrored_is_added_when_it_is_replaced(place):
    _note(place.provider(), "replace", COFFEE, old_text=TEA)
    assert place.texts() == [COFFEE]


def test_a_memory_that_is_no_note_is_left_alone_by_them(place):
    provider = place.provider()
    provider.sync_turn(TEA, "Fine.", turn_id="t1")
    _note(provider, "remove", "", old_text=TEA)
    assert place.texts() == [TEA]


def test_notes_of_another_user_are_left_alone(place):
    _note(place.provider(user_id="ann"), "add", TEA)
    _note(place.provider(user_id="bob"), "remove", "", old_text=TEA)
    assert place.texts() == [TEA]


@pytest.mark.scaled
def test_an_old_note_is_found_among_many(place):
    # The platform lists a hundred on a page; the others list all at once.
    many = 230 if place.mode == "platform" or os.environ.get("HERMES_STRESS") else 30
    provider = place.provider()
    notes = [f"Shelf {number} has {number} books." for number in range(many)]
    for number, note in enumerate(notes):
        _note(provider, "add", note, event=f"e{number}")
    gone = {notes[0], notes[many // 2], notes[-1]}
    for note in gone:
        _note(provider, "remove", "", event=f"r{note}", old_text=note)
    assert place.texts() == sorted({*notes} - gone)
