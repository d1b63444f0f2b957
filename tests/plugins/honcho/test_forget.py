"""`forget`: conclusions and sessions are deleted; what Honcho can't delete is counted and named."""

from __future__ import annotations

from support.honcho_agents import facts, said

from hermes_core import ForgetRequest

FACT = "Ann lives at 4711 Quibblefjörd Road."


def _counts(report):
    return {each.place: each.count for each in report.items if each.count}


def test_conclusions_and_mirrored_notes_go_and_messages_are_named(agent, server, home):
    ann = agent()
    ann.note("add", FACT)
    ann.note("add", "Ann drinks tea.")
    ann.say("I am at 4711 Quibblefjörd Road.")
    wanted = ForgetRequest(str(home), text="QUIBBLEFJÖRD road")
    found = _counts(ann.provider.forget(wanted))
    # The note, and what Honcho concluded from the message: once for each who observed it.
    assert found == {"conclusions": 3, "messages": 1, "mirrored notes": 1}
    report = ann.provider.forget(wanted._replace(delete=True))
    assert _counts(report) == found
    assert "only delete whole sessions" in report.unreachable[0]
    assert _counts(ann.provider.forget(wanted)) == {"messages": 1}
    assert facts(server) == ["Ann drinks tea."]
    stored = b"".join(each.read_bytes() for each in home.rglob("*") if each.is_file())
    assert b"4711" not in stored


def test_turns_that_wait_are_deleted_before_they_are_sent(agent, server, home):
    ann = agent(config={"writeFrequency": "session"})
    ann.say(FACT)
    wanted = ForgetRequest(str(home), text="quibblefjörd", delete=True)
    assert _counts(ann.provider.forget(wanted)) == {"turns that wait": 1}
    ann.end()
    assert not [each for each in said(server) if "4711" in each]


def test_a_session_of_its_own_is_deleted(agent, server, home):
    for session, text in (("s1", FACT), ("s2", "Ann drinks tea.")):
        ann = agent(session, config={"sessionStrategy": "per-session"})
        ann.say(text)
    wanted = ForgetRequest(str(home), session_id="s1", delete=True)
    assert _counts(ann.provider.forget(wanted)) == {"sessions": 1}
    assert _counts(ann.provider.forget(wanted._replace(delete=False))) == {}
    assert "4711" not in " ".join(said(server))
    assert "Ann drinks tea." in said(server)


def test_a_session_that_many_conversations_share_is_left_alone(agent, server, home):
    ann = agent("s1")
    ann.say(FACT)
    report = ann.provider.forget(ForgetRequest(str(home), session_id="s1", delete=True))
    assert _counts(report) == {"messages": 2}
    assert "other conversations" in report.unreachable[0]
    assert FACT in said(server)


def test_a_person_takes_their_sessions_and_conclusions_with_them(agent, server, home):
    ann = agent("s1", platform="telegram", user_id="1001")
    bob = agent("s1", platform="telegram", user_id="1002")
    ann.say(FACT)
    ann.note("add", FACT)
    bob.say("Bob drinks tea.")
    wanted = ForgetRequest(str(home), user_id="1001", platform="telegram", delete=True)
    found = _counts(ann.provider.forget(wanted))
    assert found["sessions"] == 1
    assert found["conclusions"] > 1
    assert _counts(ann.provider.forget(wanted._replace(delete=False))) == {}
    assert "4711" not in " ".join([*said(server), *facts(server)])
    assert "Bob drinks tea." in said(server)
    assert b"1001" not in (home / "honcho" / "people.db").read_bytes()
