"""What stands behind the tests is worth something only if it notices what is wrong."""

import base64
import json
import math
import struct
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from support.fake_model import FakeModel, embedding, facts_in
from support.mem0_servers import Mem0Platform, Mem0Server
from support.openapi import contract

KNOWN = contract("mem0-platform.json").is_known
needs_descriptions = pytest.mark.skipif(not KNOWN, reason="the API's description is not at hand")


def _post(url, body, **headers):
    request = Request(url, json.dumps(body).encode(), headers)
    with urlopen(request) as answer:
        return json.load(answer)


def test_texts_with_the_same_words_are_near_and_vectors_have_length_one():
    def likeness(one, other):
        return sum(a * b for a, b in zip(embedding(one), embedding(other), strict=True))

    assert likeness("the dog is called Rex", "Rex is the dog called") == pytest.approx(1)
    assert likeness("my dog Rex", "a dog Rex") > likeness("my dog Rex", "green tea at noon")
    assert math.hypot(*embedding("any text", 64)) == pytest.approx(1)
    assert embedding("") == embedding("?!")


def test_facts_are_statements_and_nothing_else():
    said = "I live in Lisbon. Do you know it? Yes. My dog is called Rex!\nOk"
    assert facts_in(said) == ["I live in Lisbon.", "My dog is called Rex!"]


def test_the_model_gives_vectors_as_numbers_or_packed_and_of_the_size_that_is_asked_for():
    with FakeModel() as model:
        asked = {"input": ["green tea"], "model": "m", "dimensions": 8}
        plain = _post(f"{model.url}/embeddings", asked)["data"][0]["embedding"]
        packed = _post(f"{model.url}/embeddings", {**asked, "encoding_format": "base64"})
        numbers = struct.unpack("<8f", base64.b64decode(packed["data"][0]["embedding"]))
        assert numbers == pytest.approx(plain)
        assert (
            len(_post(f"{model.url}/embeddings", {"input": "tea"})["data"][0]["embedding"]) == 1536
        )


def test_the_model_counts_what_it_was_asked_in_a_way_that_nobody_knows():
    with FakeModel() as model:
        _post(f"{model.url}/chat/completions", {"messages": [{"role": "user", "content": "Hi!"}]})
        with urlopen(f"{model.url.removesuffix('/v1')}/stats") as answer:
            assert json.load(answer)["unrecognised"] == 1


@needs_descriptions
@pytest.mark.parametrize(
    ("made", "path", "body"),
    [
        (Mem0Platform, "/v3/memories/search/", {"query": "tea"}),
        (Mem0Platform, "/v3/memories/search/", {"query": "tea", "filters": {}, "top_k": "ten"}),
        (Mem0Platform, "/v3/memories/add/", {"messages": [{"role": "tool", "content": "x"}]}),
        (Mem0Platform, "/v3/memories/invented/", {}),
        (Mem0Server, "/memories", {"messages": [{"content": "x"}]}),
        (Mem0Server, "/search", {"query": 7}),
    ],
)
def test_a_request_that_is_not_as_published_is_noticed(made, path, body):
    with made() as server:
        with pytest.raises(HTTPError) as caught:
            _post(server.url + path, body)
        caught.value.close()
        assert len(server.problems) == 1


@needs_descriptions
def test_an_answer_that_is_not_as_published_is_noticed(monkeypatch):
    with Mem0Platform() as server:
        monkeypatch.setattr(server, "_searched", lambda _: (200, {"results": [{"id": 7}]}))
        _post(f"{server.url}/v3/memories/search/", {"query": "tea", "filters": {"user_id": "a"}})
        assert "results" in server.problems[0]


def test_what_a_server_keeps_in_a_file_is_there_when_it_starts_again(tmp_path):
    state = tmp_path / "state.json"
    body = {"messages": [{"role": "user", "content": "I live in Lisbon."}], "user_id": "a"}
    with Mem0Server(state=state) as server:
        _post(f"{server.url}/memories", body)
    with Mem0Server(state=state) as server:
        assert [row["memory"] for row in server.store.rows.values()] == ["I live in Lisbon."]
