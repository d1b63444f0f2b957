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
    assert "not an error" in empty["hint"]
    card = ["Name: Al", "Drinks tea"]
    answer = {"result": "Peer card updated (2 facts).", "card": card}
    assert one.call("honcho_profile", card=card) == answer
    assert one.call("honcho_profile") == {"result": card}
    assert one.call("honcho_profile", peer="ai")["result"] == "No profile facts available yet."


def test_an_empty_card_clears_it_also_the_one_that_honcho_wrote(server, agent):
    one = agent(config={"peerName": "al"})
    one.say("x")
    server.store.set_card("hermes", ("al", "al"), ["Written by Honcho"])
    assert one.call("honcho_profile") == {"result": ["Written by Honcho"]}
    one.call("honcho_profile", card=["Name: Al"])
    assert one.call("honcho_profile", card=[]) == {"result": "Peer card cleared.", "card": []}
    assert one.call("honcho_profile")["result"] == "No profile facts available yet."


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


def test_reasoning_knows_what_was_noted(server, agent):
    one = agent()
    one.call("honcho_conclude", conclusion="Prefers tabs.")
    asked = []
    served = server.served

    def noted(method, path, body, query, key):
        asked.append((path, body))
        return served(method, path, body, query, key)

    server.served = noted
    one.call("honcho_reasoning", query="tabs or spaces?")
    ((_, body),) = [each for each in asked if each[0].endswith("/chat")]
    assert "Prefers tabs." in body["query"]
    assert body["stream"] is True


def test_context_shows_card_conclusions_and_the_last_messages(agent):
    one = agent()
    assert one.call("honcho_context") == {"result": "No context available yet."}
    one.say("My dog is called Rex.")
    one.call("honcho_profile", card=["Name: Al"])
    told = one.call("honcho_context")["result"]
    for part in ("## Representation", "called Rex", "## Card\nName: Al", "## Recent messages"):
        assert part in told


def test_context_is_one_call_and_keeps_to_its_tokens(server, agent):
    one = agent()
    for number in range(30):
        one.say(f"Turn {number}. " + "word " * 60)
    server.requests.clear()
    short = one.call("honcho_context", tokens=200)["result"]
    assert [path.rsplit("/", 1)[-1] for _, path in server.requests] == ["context"]
    assert len(short) <= 800
    assert len(one.call("honcho_context", tokens=4000)["result"]) > 1600


def test_an_answer_that_breaks_off_is_given_as_far_as_it_came(agent, monkeypatch):
    import httpx

    from hermes_memory_honcho import service

    def broken(*_, **__):
        yield "The dog is "
        raise httpx.ReadTimeout("too slow")

    one = agent()
    one.say("x")
    monkeypatch.setattr(service.Peer, "chat_stream", broken)
    answer = one.call("honcho_reasoning", query="Which dog?")["result"]
    assert answer.startswith("The dog is ")
    assert "broke off" in answer


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
    assert "not the id" in one.call("honcho_conclude", delete_id="../peers")["error"]


def test_somebody_else_can_be_asked_about_by_the_only_person(agent):
    one = agent(config={"peerName": "al"})
    one.call("honcho_conclude", conclusion="Bob is tall.", peer="bob")
    (found,) = one.call("honcho_conclude", list=True, peer="bob")["conclusions"]
    assert found["content"] == "Bob is tall."
    assert one.call("honcho_conclude", list=True)["conclusions"] == []


def test_half_a_character_in_an_argument_is_answered(agent):
    one = agent()
    one.say("The dog is called Rex.")
    found = one.call("honcho_search", query="dog", metadata={"a\ud800": "b"})
    assert found == {"result": "No relevant context found."}
    answer = one.provider.handle_tool_call("honcho_conclude", {"conclusion": "Likes \ud800tea."})
    assert "Likes ?tea." in answer.encode().decode()
