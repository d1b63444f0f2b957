"""Notes are mirrored as conclusions."""

import pytest
from support.honcho_agents import facts

from hermes_core import HermesError


def test_add_replace_and_remove_are_followed(server, agent):
    one = agent()
    one.note("add", "Likes tea.")
    assert facts(server) == ["Likes tea."]
    one.note("replace", "Likes coffee.", old="Likes tea.")
    assert facts(server) == ["Likes coffee."]
    one.note("remove", "Likes coffee.")
    assert facts(server) == []


def test_both_notebooks_are_about_the_person(server, agent):
    one = agent(user_id="alice", gateway_session_key="c")
    one.provider.on_memory_write("add", "memory", "The repo uses make.", {}, event_id="n1")
    one.provider.on_memory_write("add", "user", "Likes tea.", {}, event_id="n2")
    known = server.store.conclusions("hermes")
    assert {(each["observer_id"], each["observed_id"]) for each in known} == {("hermes", "alice")}
    assert {each["session_id"] for each in known} == {"c"}


def test_a_note_is_recalled_until_it_is_removed(agent):
    one = agent()
    one.note("add", "The parrot is called Polly.")
    assert "Polly" in one.recall("What is the parrot called?")
    one.note("remove", "The parrot is called Polly.")
    assert "Polly" not in one.recall("What is the parrot called?")


def test_a_note_whose_confirmation_got_lost_is_there_once(server, agent):
    one = agent()
    one.note("add", "Likes tea.", attempt=1)
    one.note("add", "Likes tea.", attempt=2)
    one.note("replace", "Likes coffee.", old="Likes tea.", attempt=1)
    one.note("replace", "Likes coffee.", old="Likes tea.", attempt=2)
    assert facts(server) == ["Likes coffee."]


def test_an_old_note_is_found_among_many(server, agent):
    one = agent()
    one.note("add", "zzz")
    for number in range(150):
        one.note("add", f"Fact {number} zzz.")
    one.note("remove", "zzz")
    assert "zzz" not in facts(server)
    assert len(facts(server)) == 150


def test_what_is_not_there_need_not_be_removed(server, agent):
    agent().note("remove", "Never was.")
    assert facts(server) == []


def test_a_note_that_honcho_did_not_take_is_an_error(server, agent):
    one = agent()
    server.behaviour.refuse = 503
    with pytest.raises(HermesError, match="can't be reached"):
        one.note("add", "Likes tea.")


def test_without_an_outbox_a_part_of_a_note_names_it(server, agent):
    one = agent()
    one.note("add", "Likes green tea in the morning.", event_id="")
    one.note("add", "Has a dog called Rex.", event_id="")
    one.provider.shutdown()
    two = agent("s2")
    two.note("replace", "Likes green tea all day.", old="green tea", event_id="")
    two.note("remove", "", old="called Rex", event_id="")
    two.provider.shutdown()
    assert facts(server) == ["Likes green tea all day."]


def test_a_part_that_several_notes_have_or_none_removes_nothing(server, agent):
    one = agent()
    one.call("honcho_conclude", conclusion="Has two parrots.")
    one.note("add", "Likes green tea.")
    one.note("add", "Likes black tea.")
    one.note("remove", "", old="tea", event_id="")
    one.note("remove", "", old="parrot", event_id="")
    one.provider.shutdown()
    assert sorted(facts(server)) == ["Has two parrots.", "Likes black tea.", "Likes green tea."]


def test_a_removal_that_is_told_twice_spares_the_note_that_has_the_text_as_a_part(server, agent):
    one = agent()
    one.note("add", "Likes tea")
    one.note("add", "Likes tea with milk")
    one.note("remove", "", old="Likes tea")
    one.note("remove", "", old="Likes tea", attempt=2)
    assert facts(server) == ["Likes tea with milk"]


def test_a_note_replaced_by_itself_is_there_once(server, agent):
    one = agent()
    one.note("add", "Likes tea.")
    one.note("replace", "Likes tea.", old="Likes tea.")
    one.note("replace", "Likes tea.", old="tea", event_id="")
    one.provider.shutdown()
    assert facts(server) == ["Likes tea."]


def test_a_part_names_no_note_of_another_user(server, agent):
    agent(user_id="alice", gateway_session_key="a").note("add", "Likes green tea.")
    bob = agent(user_id="bob", gateway_session_key="b")
    bob.note("remove", "", old="green tea", event_id="")
    bob.provider.shutdown()
    assert facts(server) == ["Likes green tea."]
