"""`forget`: memories go by their text, their session or their user, in all three modes."""

from __future__ import annotations

import json

from hermes_core import ForgetRequest

FACT = "Ann lives at 4711 Quibblefjord Road."
TEA = "Ann drinks green tea."


def _add(provider, text):
    assert "error" not in json.loads(provider.handle_tool_call("mem0_add", {"content": text}))


def _counts(report):
    return {each.place: each.count for each in report.items if each.count}


def _request(place, **given):
    return ForgetRequest(str(place.home), **given)


def test_a_fact_is_found_deleted_and_not_found_again(place):
    provider = place.provider()
    _add(provider, FACT)
    _add(provider, TEA)
    wanted = _request(place, text="quibblefjord ROAD")
    assert _counts(provider.forget(wanted)) == {"memories": 1}
    assert place.texts() == sorted([FACT, TEA])
    deleted = provider.forget(wanted._replace(delete=True))
    assert _counts(deleted) == {"memories": 1}
    assert _counts(provider.forget(wanted)) == {}
    assert place.texts() == [TEA]
    if place.mode == "oss":
        assert deleted.unreachable == ()
        provider.shutdown()
        files = [each for each in place.home.rglob("*") if each.is_file()]
        assert not [each for each in files if b"Quibblefjord" in each.read_bytes()]
    else:
        assert "earlier versions" in deleted.unreachable[0]


def test_a_session_takes_its_memories_with_it(place):
    for session, text in (("s1", FACT), ("s2", TEA)):
        provider = place.provider(session)
        provider.sync_turn(text, "Noted.", session_id=session, turn_id=f"t-{session}")
        assert place.texts()
    provider.forget(_request(place, session_id="s1", delete=True))
    assert place.texts() == [TEA]


def test_a_user_takes_all_memories_with_them_and_nobody_elses(place):
    ann = place.provider(platform="telegram", user_id="1001")
    bob = place.provider(platform="telegram", user_id="1002")
    _add(ann, FACT)
    _add(bob, TEA)
    wanted = _request(place, user_id="1001", platform="telegram", delete=True)
    assert _counts(ann.forget(wanted)) == {"memories": 1}
    assert _counts(ann.forget(wanted._replace(delete=False))) == {}
    assert place.texts() == [TEA]
    assert b"1001" not in (place.home / "mem0" / "people.db").read_bytes()


def test_an_owner_whom_all_users_share_is_left_alone(server):
    provider = server.provider(platform="telegram", user_id="1001", config={"user_id": "everybody"})
    _add(provider, FACT)
    report = provider.forget(_request(server, user_id="1001", platform="telegram", delete=True))
    assert "share one user" in report.unreachable[0]
    assert server.texts() == [FACT]
