"""Sessions in processes of their own, with what one of them said recalled in another."""

from support.mem0_processes import agent, ended, facts, once

QUESTION = "Which city have I moved to?"


def test_what_one_process_stores_another_recalls(home, served, stored):
    first = ended(agent(home, "s1", QUESTION, "I have moved to Lisbon.", "My dog is called Rex."))
    assert first["delivered"] is True
    second = ended(agent(home, "s2", QUESTION))
    assert "I have moved to Lisbon." in second["recalled"]
    assert "Rex" not in second["recalled"]
    once(stored(), ["I have moved to Lisbon.", "My dog is called Rex."])
    assert served.problems() == []


def test_four_sessions_in_four_processes_lose_nothing(home, served, stored):
    lines = facts(20)
    started = [agent(home, f"s{n}", QUESTION, *lines[n::4]) for n in range(4)]
    for each in started:
        ended(each)
    # In the process, one of them has had the folder; the others' turns wait for whoever is next.
    last = ended(agent(home, "s9", "What says Fact007 of box007?"))
    assert last["delivered"] is True
    assert lines[7] in last["recalled"]
    once(stored(), lines)
