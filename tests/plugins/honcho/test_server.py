"""The tests' own server answers as the real one was seen to."""

import json
from collections.abc import Iterator

import httpx
import pytest
from honcho import Honcho, Peer, Session
from honcho.http.exceptions import AuthenticationError, NotFoundError, UnprocessableEntityError
from support.honcho_requests import Reply
from support.openapi import FOLDER

RECORDED = FOLDER / "honcho-recorded.json"
#: What the plugin does not ask for, so that the server does not have it.
UNUSED = ("/scopes", "/schedule_dream", "PUT /v3/workspaces/w3/peers/alice", "/w3/chat",
          "GET /v3/workspaces/w3/sessions/s1/peers", "/peers/alice/sessions",
          "/conclusions/2pKI")  # fmt: skip


@pytest.fixture
def honcho(server) -> Iterator[Honcho]:
    with httpx.Client(trust_env=False) as client:
        yield Honcho(
            base_url=server.url, api_key="k", workspace_id="w", max_retries=0, http_client=client
        )


@pytest.mark.parametrize("text", ["a b", "ü", "a/b", "x" * 513])
def test_ids_have_an_alphabet_and_a_length(honcho, text: str):
    with pytest.raises((UnprocessableEntityError, NotFoundError)):
        honcho.peer(text)


def test_a_message_has_at_most_25000_characters_and_a_request_100_messages(honcho):
    session, peer = Session("s", honcho), Peer("p", honcho)
    session.add_messages([peer.message("x" * 25_000)] * 100)
    with pytest.raises(UnprocessableEntityError):
        session.add_messages([peer.message("x" * 25_001)])
    with pytest.raises(UnprocessableEntityError):
        session.add_messages([peer.message("x")] * 101)


def test_a_wrong_key_is_a_401(server, honcho):
    server.behaviour.key = "another"
    with pytest.raises(AuthenticationError):
        honcho.peer("p")


def test_what_is_refused_in_the_middle_is_not_there_in_part(server, honcho):
    session, peer = Session("s", honcho), Peer("p", honcho)
    with pytest.raises(UnprocessableEntityError):
        session.add_messages([peer.message("good"), peer.message("x" * 25_001)])
    assert server.store.messages("w") == []


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded requests are not at hand")
def test_it_answers_what_was_recorded_with_the_same_status_and_keys(server):
    compared = 0
    for method, url, asked, status, answered in json.loads(RECORDED.read_text("utf-8")):
        if (
            status >= 500
            or any(part in f"{method} {url}" for part in UNUSED)
            or 'stream":true' in asked
        ):
            continue
        path, _, query = url.partition("?")
        parameters = dict(each.split("=") for each in query.split("&")) if query else {}
        body = json.loads(asked) if asked else None
        reply = server.served(method, path, body, parameters, "")
        assert reply is not None
        assert reply.status == status, (method, url, reply)
        compared += _same_shape(reply, answered)
    assert compared > 20


def _same_shape(reply: Reply, answered: str) -> bool:
    """Whether there was something to compare: long answers are cut in the recording."""
    try:
        seen = json.loads(answered)
    except ValueError:
        return False
    mine = reply.body
    if isinstance(seen, list):
        seen, mine = seen[0], mine[0]
    assert set(mine) == set(seen)
    return True
