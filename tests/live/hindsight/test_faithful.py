"""The small server of the fast tests answers as the real one does."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from support.hindsight_agents import new_bank
from support.hindsight_server import HindsightServer

ITEM = {"content": "The tea is green.", "document_id": "d1", "tags": ["note:user"]}
RETAIN = ("POST", "/memories", {"items": [ITEM], "async": False})
REQUESTS = [
    ("GET", "/documents/d1", None),
    ("DELETE", "/documents/d1", None),
    ("GET", "/documents?tags=note:user&tags_match=all_strict", None),
    ("POST", "/memories/recall", {"query": "tea"}),
    ("POST", "/memories/recall", {"query": "?!"}),
    ("POST", "/nothing", {}),
    ("PUT", "", {"reflect_mission": "M"}),
    ("DELETE", "", None),
    RETAIN,
]


def ask(url: str, bank: str, method: str, path: str, body: Any) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{url}/v1/default/banks/{bank}{path}", data, {"Content-Type": "application/json"}
    )
    request.method = method
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def shape(told: Any) -> Any:
    """The keys of an answer, all the way down; of a list, its first element's."""
    if isinstance(told, dict):
        return {key: shape(value) for key, value in told.items()}
    return [shape(each) for each in told[:1]] if isinstance(told, list) else None


def covers(real: Any, ours: Any) -> bool:
    """Whether all that ours has is in the real answer too."""
    if isinstance(ours, dict):
        return isinstance(real, dict) and all(
            key in real and covers(real[key], value) for key, value in ours.items()
        )
    if isinstance(ours, list):
        return isinstance(real, list) and len(real) == len(ours) and all(map(covers, real, ours))
    return True


@pytest.mark.parametrize("filled", [False, True], ids=["no bank", "a bank"])
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: f"{each[0]} {each[1]}")
def test_the_small_server_answers_as_the_real_one(engine, request_, filled):
    bank = new_bank()
    with HindsightServer() as small:
        answers = []
        for url in (engine.url, small.url):
            if filled:
                assert ask(url, bank, *RETAIN)[0] == 200
            answers.append(ask(url, bank, *request_))
    (real_status, real), (our_status, ours) = answers
    assert our_status == real_status
    assert covers(shape(real), shape(ours)), (real, ours)
    if real_status == 404:
        assert ours == real


def test_a_bank_with_too_long_a_name_is_refused_by_both(engine):
    with HindsightServer() as small:
        answers = [ask(url, "x" * 193, *RETAIN) for url in (engine.url, small.url)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 400


def test_a_wrong_key_is_refused_by_both(locked_engine):
    with HindsightServer("k") as small:
        answers = [ask(url, "b", *RETAIN) for url in (locked_engine.url, small.url)]
    assert [status for status, _ in answers] == [401, 401]
