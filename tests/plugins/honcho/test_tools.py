"""The five tools, as hermes-agent has them."""

import pytest

NAMES = [
    "honcho_profile",
    "honcho_search",
    "honcho_reasoning",
    "honcho_context",
    "honcho_conclude",
]


def offered(provider):
    return [each["name"] for each in provider.get_tool_schemas()]


@pytest.mark.parametrize(("mode", "names"), [("hybrid", NAMES), ("tools", NAMES), ("context", [])])
def test_the_mode_says_which_are_offered(agent, mode: str, names: list[str]):
    one = agent(config={"recallMode": mode})
    assert offered(one.provider) == names
    assert one.provider.system_prompt_block().startswith("# Honcho Memory")


def test_the_same_are_offered_before_the_start(home, agent, monkeypatch):
    (home / "honcho.json").write_text('{"recallMode": "context"}', "utf-8")
    one = agent()
    assert offered(one.provider) == []
    one.provider.shutdown()
    assert offered(one.provider) == []


def test_a_profile_is_empty_with_a_hint_written_and_read(agent):
    one = agent()
    empty = one.call("honcho_profile")
    assert empty["result"] == "No profile facts available yet."
    assert "no error" in empty["hint"]
    card = ["Name: Al", "Drinks tea"]
    answer = {"result": "Peer card updated (2 facts).", "card": card}
    assert one.call("honcho_profile", card=card) == answer
    assert one.call("honcho_profile") == {"result": card}
    assert one.call("honcho_profile", peer="ai")["result"] == "No profile facts available yet."


def test_search_gives_excerpts_of_all_sessions(agent):
    agent("s1", config={"sessionStrategy": "per-session", "peerName": "al"}).say(
        "My dog is called Rex.", "A good name for a dog."
    )
    two = agent("s2", config={"sessionStrategy": "per-session", "peerName": "al"})
    found = two.call("honcho_search", query="dog")["result"]
    assert "[al · s1] My dog is called Rex." in found
    assert "[assistant · s1] A good name for a dog." in found


def test_search_keeps_to_its_tokens_and_says_when_there_is_nothing(agent):
    one = agent()
    assert one.call("honcho_search", query="x") == {"result": "No relevant context found."}
    for number in range(30):
        one.say(f"dog {number} " + "bone " * 200)
    assert len(one.call("honcho_search", query="dog", max_tokens=100)["result"]) <= 400
    assert len(one.call("honcho_search", query="dog", max_tokens=9000)["result"]) <= 8000


def test_reasoning_asks_the_model(agent):
    one = agent()
    assert one.call("honcho_reasoning", query="dog?") == {"result": "No result from Honcho."}
    one.say("My dog is called Rex.")
    answer = one.call("honcho_reasoning", query="Which dog?", reasoning_level="high")
    assert "called Rex" in answer["result"]


def test_context_shows_card_conclusions_and_the_last_messages(agent):
    one = agent()
    assert one.call("honcho_context") == {"result": "No context available yet."}
    one.say("My dog is called Rex.")
    one.call("honcho_profile", card=["Name: Al"])
    told = one.call("honcho_context")["result"]
    for part in ("## Representation", "called Rex", "## Card\nName: Al", "## Recent messages"):
        assert part in told


def test_conclusions_are_kept_listed_searched_and_deleted(agent):
    one = agent()
    fact = "Prefers tabs."
    assert one.call("honcho_conclude", conclusion=fact) == {
        "result": f"Conclusion saved for user: {fact}"
    }
    one.call("honcho_conclude", conclusion="Lives in Berlin.")
    listed = one.call("honcho_conclude", list=True)["conclusions"]
    assert [each["content"] for each in listed] == ["Lives in Berlin.", fact]
    (found,) = one.call("honcho_conclude", list=True, query="tabs")["conclusions"]
    deleted = one.call("honcho_conclude", delete_id=found["id"])
    assert deleted == {"result": f"Conclusion {found['id']} deleted."}
    assert len(one.call("honcho_conclude", list=True)["conclusions"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"conclusion": "x", "list": True},
        {"conclusion": "x", "delete_id": "y"},
        {"conclusion": "x", "query": "q"},
        {"conclusion": 5},
    ],
)
def test_arguments_that_make_no_sense_are_answered(server, agent, arguments: dict):
    assert "error" in agent().call("honcho_conclude", **arguments)
    assert server.requests == []


@pytest.mark.parametrize("tool", ["honcho_search", "honcho_reasoning"])
def test_a_question_is_needed(agent, tool: str):
    assert "query" in agent().call(tool)["error"]
    assert "query" in agent().call(tool, query="  ")["error"]


def test_a_deletion_that_fails_says_so(agent):
    one = agent()
    one.say("x")
    assert "not there" in one.call("honcho_conclude", delete_id="nosuch")["error"]
    assert "no id" in one.call("honcho_conclude", delete_id="../peers")["error"]


def test_somebody_else_can_be_asked_about_by_the_only_person(agent):
    one = agent(config={"peerName": "al"})
    one.call("honcho_conclude", conclusion="Bob is tall.", peer="bob")
    (found,) = one.call("honcho_conclude", list=True, peer="bob")["conclusions"]
    assert found["content"] == "Bob is tall."
    assert one.call("honcho_conclude", list=True)["conclusions"] == []
