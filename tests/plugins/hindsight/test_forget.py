"""`forget`: documents go by their text or their session, and a user's bank as a whole."""

from __future__ import annotations

from hermes_core import ForgetRequest

FACT = "I live at 4711 Quibblefjord Road."


def _counts(report):
    return {each.place: each.count for each in report.items if each.count}


def _texts(server):
    return [text for bank in server.banks for text in server.texts(bank)]


def test_a_fact_is_found_deleted_and_not_found_again(started, server, home):
    provider = started()
    provider.sync_turn(FACT, "Noted.", session_id="s1", turn_id="t1")
    provider.sync_turn("I drink tea.", "Noted.", session_id="s1", turn_id="t2")
    wanted = ForgetRequest(str(home), text="quibblefjord road")
    assert _counts(provider.forget(wanted)) == {"documents": 1}
    assert len(_texts(server)) == 2
    assert _counts(provider.forget(wanted._replace(delete=True))) == {"documents": 1}
    assert _counts(provider.forget(wanted)) == {}
    assert ["tea" in each for each in _texts(server)] == [True]


def test_a_session_takes_its_documents_with_it(started, server, home):
    provider = started()
    provider.sync_turn(FACT, "Noted.", session_id="s1", turn_id="t1")
    provider.sync_turn("I drink tea.", "Noted.", session_id="s2", turn_id="t2")
    wanted = ForgetRequest(str(home), session_id="s1", delete=True)
    assert _counts(provider.forget(wanted)) == {"documents": 1}
    assert ["tea" in each for each in _texts(server)] == [True]


def test_a_user_takes_their_bank_with_them(started, server, home):
    ann = started(facts={"platform": "telegram", "user_id": "1001"})
    bob = started(facts={"platform": "telegram", "user_id": "1002"})
    ann.sync_turn(FACT, "Noted.", session_id="s1", turn_id="t1")
    bob.sync_turn("I drink tea.", "Noted.", session_id="s1", turn_id="t2")
    wanted = ForgetRequest(str(home), user_id="1001", platform="telegram", delete=True)
    assert _counts(ann.forget(wanted)) == {"documents": 1}
    assert _counts(ann.forget(wanted._replace(delete=False))) == {}
    assert ["tea" in each for each in _texts(server)] == [True]
    assert b"1001" not in (home / "hindsight" / "people.db").read_bytes()


def test_a_bank_of_all_users_is_left_alone(started, server, home):
    facts = {"platform": "telegram", "user_id": "1001"}
    provider = started(facts=facts, bank_id="everybody")
    provider.sync_turn(FACT, "Noted.", session_id="s1", turn_id="t1")
    wanted = ForgetRequest(str(home), user_id="1001", platform="telegram", delete=True)
    assert "belongs to all users" in provider.forget(wanted).unreachable[0]
    assert len(_texts(server)) == 1
