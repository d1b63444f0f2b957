"""Nothing that somebody said or heard reaches anybody else, whichever way text comes back.

One table: people on several platforms and profiles, all with one server, and every way in which
Honcho's text reaches an agent. Each of them tells the agent a secret of their own, in turns, notes,
conclusions and a card; the agent repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.honcho_agents import Agent
from support.honcho_server import HonchoServer


class Who(NamedTuple):
    """Somebody, and what the host knows of them."""

    secret: str
    facts: dict[str, Any]


PEOPLE = {
    "the terminal": Who("walrus", {}),
    "telegram 7": Who("badger", {"platform": "telegram", "user_id": "7", "chat_id": "7"}),
    "discord 7": Who("ocelot", {"platform": "discord", "user_id": "7", "chat_id": "7"}),
    "telegram 8": Who(
        "lemur",
        {"platform": "telegram", "user_id": "8", "gateway_session_key": "agent:main:telegram:dm:8"},
    ),
    "called like the person": Who("gibbon", {"platform": "matrix", "user_id": "alice"}),
    "called like the agent": Who("tapir", {"platform": "matrix", "user_id": "hermes"}),
    "called like nobody": Who("quokka", {"platform": "slack", "user_id": "user-default-app"}),
    "an odd name": Who("numbat", {"platform": "matrix", "user_id": "@bob:example.org"}),
    "an odd name, sanitised": Who("dingo", {"platform": "matrix", "user_id": "-bob-example-org"}),
    "only another id": Who("gecko", {"platform": "signal", "user_id_alt": "+49 1"}),
    "a chat without a user": Who("okapi", {"platform": "webhook", "chat_id": "app"}),
    "a key like the terminal's session": Who(
        "wombat", {"platform": "api_server", "user_id": "9", "gateway_session_key": "hermes"}
    ),
    "an id like another's alias": Who("civet", {"platform": "webhook", "user_id": "signal:+49 2"}),
    "who has that alias": Who("serval", {"platform": "signal", "user_id": "+49 2"}),
    "another profile": Who("vicuna", {"agent_identity": "coder"}),
    "telegram 7 there": Who(
        "marmot",
        {"agent_identity": "coder", "platform": "telegram", "user_id": "7", "chat_id": "7"},
    ),
}

QUERY = "What is the secret word about the animal?"
SOMEBODY = ("user", "ai", "hermes", "alice", "7", "8", "user-default-app", "-bob-example-org")

Way = Callable[[Agent], object]


def _tool(name: str, peer: str, /, **arguments: Any) -> Way:
    return lambda agent: agent.call(name, peer=peer, **arguments)


def _after_a_turn(agent: Agent) -> object:
    agent.provider.queue_prefetch(QUERY)
    return agent.recall(QUERY)


#: Every way in which text comes back.
WAYS: dict[str, Way] = {
    "recall": lambda agent: agent.recall(QUERY),
    "recall after a turn": _after_a_turn,
    "compression": lambda agent: agent.provider.on_pre_compress([]),
    "the system prompt": lambda agent: agent.provider.system_prompt_block(),
    "search in one session": _tool("honcho_search", "user", query=QUERY, session="hermes"),
    **{
        f"{name} of {peer}": _tool(name, peer, **arguments)
        for peer in SOMEBODY
        for name, arguments in {
            "honcho_search": {"query": QUERY},
            "honcho_reasoning": {"query": QUERY},
            "honcho_context": {},
            "honcho_profile": {},
            "honcho_conclude": {"list": True},
        }.items()
    },
}


#: Where everybody finds their own.
OWN = (
    "recall",
    "recall after a turn",
    "compression",
    *(
        f"honcho_{each} of user"
        for each in ("search", "reasoning", "context", "profile", "conclude")
    ),
)


#: In `make test`, one of each kind. Everybody has written all the same.
_SOME = ("the terminal", "telegram 7", "another profile")
BY_MODE = [
    pytest.param(mode, name, marks=() if name in some else pytest.mark.stress)
    for mode, some in (("directional", [*PEOPLE][::2]), ("unified", _SOME))
    for name in PEOPLE
]
everybody = pytest.mark.parametrize(("world", "reader"), BY_MODE, indirect=["world"])


class World(NamedTuple):
    """Everybody's agent, at one server."""

    server: HonchoServer
    agents: dict[str, Agent]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory) -> Iterator[Callable[[str], World]]:
    """Returns the world of a mode, which all tests share."""
    with ExitStack() as stack:
        yield cache(lambda mode: stack.enter_context(_world(mode, tmp_path_factory.mktemp("home"))))


@pytest.fixture
def world(request, worlds) -> World:
    made: World = worlds(request.param)
    return made


@contextmanager
def _world(mode: str, home: Path) -> Iterator[World]:
    server = HonchoServer().start()
    config = {
        "peerName": "alice",
        "sessionStrategy": "global",
        "userPeerAliases": {"signal:+49 2": "eve"},
        "observationMode": mode,
        "baseUrl": server.url,
        "firstTurnBaseWait": 30,
        "firstTurnDialecticWait": 30,
        "dialecticMaxChars": 10_000,
        "contextTokens": 10_000,
    }
    agents = {
        name: Agent(home, f"s{at}", provider_config=config, **who.facts)
        for at, (name, who) in enumerate(PEOPLE.items())
    }
    for number in range(10):  # enough for a summary, and in turns: nobody's words come all first
        for name, each in agents.items():
            secret = PEOPLE[name].secret
            each.say(f"My secret word is {secret}, {number}.", f"The secret animal is {secret}.")
    for name, each in agents.items():
        _confide(each, PEOPLE[name].secret)
    yield World(server, agents)
    for each in agents.values():
        each.provider.shutdown()
    server.stop()
    assert server.faults == []


def _confide(agent: Agent, secret: str) -> None:
    agent.note("add", f"The secret word is {secret}.")
    for peer in ("user", "ai"):
        agent.call("honcho_conclude", conclusion=f"The secret animal is a {secret}.", peer=peer)
        agent.call("honcho_profile", card=[f"Secret word: {secret}"], peer=peer)


def _secrets(world: World, reader: str, way: str) -> set[str]:
    """Whose secrets somebody gets in some way."""
    told = str(WAYS[way](world.agents[reader]))
    return {name for name, who in PEOPLE.items() if who.secret in told}


@everybody
def test_everybody_gets_their_own_and_nobody_elses(world: World, reader: str):
    got = {way: _secrets(world, reader, way) for way in WAYS}
    assert {way: names for way, names in got.items() if names - {reader}} == {}
    assert [way for way in OWN if reader not in got[way]] == []


@everybody
def test_nobody_deletes_what_is_somebody_elses(world: World, reader: str):
    workspaces = ("hermes", "hermes_coder")
    known = [each for name in workspaces for each in world.server.store.conclusions(name)]
    kept = {each["id"] for each in known if PEOPLE[reader].secret not in each["content"]}
    for number in sorted(kept)[::50]:
        for peer in ("user", "ai"):
            answer = world.agents[reader].call("honcho_conclude", delete_id=number, peer=peer)
            assert "not there" in answer["error"]
    left = {each["id"] for name in workspaces for each in world.server.store.conclusions(name)}
    assert kept <= left


def test_in_a_group_everybody_hears_what_is_said_there_and_nothing_else(agent):
    def joined(name: str, **where: str) -> Agent:
        return agent(f"{name}{where}", platform="telegram", user_id=name, **where)

    joined("ann", chat_id="ann").say("My secret word is badger.")
    in_group = {name: joined(name, chat_id="group") for name in ("ann", "bob")}
    in_group["ann"].say("We all like the lemur.", "So do I.")
    in_group["bob"].say("Hello.")
    for way in ("recall", "honcho_search of user", "honcho_context of user"):
        assert "badger" not in str(WAYS[way](in_group["bob"]))
    found = in_group["bob"].call("honcho_search", query="lemur")["result"]
    assert "We all like the lemur." in found
