"""`hermes-plugins switch`: another provider gets everything once, in order, with its times."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from support import switch_kills
from support.commands import Machine, posix_only
from support.storages import Storage
from support.switches import Past

from hermes_core import MemoryManager
from hermes_core.checkup import switch
from hermes_core.checkup.replayed_turns import ReplayedTurns
from hermes_core.cli import switch as cli_switch
from hermes_core.outbox import admin

pytestmark = pytest.mark.usefixtures("few_distributions", "forked_children")


@pytest.fixture
def past(both_storages: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Past:
    # The children are forks, so this reaches them.
    monkeypatch.setattr(switch, "_RECALL_SECONDS", 0.0)
    monkeypatch.setattr(switch, "_TRIES", 1)
    return Past(Machine(tmp_path, in_process=True))


def test_every_turn_arrives_once_in_order_with_its_time_and_session(past: Past) -> None:
    result = past.machine.run("switch", "beta", "--replay").done()
    assert Counter(past.arrived()) == Counter(past.said)
    sessions = [each["session"] for each in past.rows()]
    assert list(dict.fromkeys(sessions)) == ["s1", "s3", "s0", "s2"]  # as they began
    for session in ("s0", "s1", "s2", "s3"):
        own = [each for each in past.rows() if each["session"] == session]
        assert [each["said"] for each in own] == [f"question{at} of {session}" for at in range(3)]
        assert [each["at"] - own[0]["at"] for each in own] == [0, 10, 20]
    assert past.rows()[0]["at"] == 1_700_001_000.0
    assert past.active == "beta"
    assert "12 turns and 0 notes handed to beta." in result.out
    assert "4 of 4 sample turns recalled." in result.out
    assert "beta replaces alpha, whose data was not changed." in result.out


def test_without_replay_nothing_is_handed_over(past: Past) -> None:
    result = past.machine.run("switch", "beta").done()
    assert past.rows() == []
    assert past.active == "beta"
    assert result.lines == [
        "beta works: beta.jsonl is there",
        "beta replaces alpha, whose data was not changed.",
    ]


def test_a_dry_run_prints_the_estimate_and_changes_nothing(past: Past) -> None:
    past.talk("c", 2, 1_700_500_000.0, source="cron")
    past.note("Likes tea.")
    before = sorted(each.name for each in past.home.iterdir())
    result = past.machine.run("switch", "beta", "--replay", "--dry-run").done()
    assert result.lines == [
        "provider: beta (in place of alpha)",
        "turns:    12 turns in 4 sessions, 370 characters",
        "notes:    1",
        "left out: 2 turns of cron jobs and subagents",
        "time:     about 3 s (a guess: it was never called here)",
        "Nothing was changed.",
    ]
    assert sorted(each.name for each in past.home.iterdir()) == before
    assert past.rows() == []
    assert past.active == "alpha"
    found = past.machine.json("switch", "beta", "--replay", "--dry-run")
    assert (found["turns"], found["notes"], found["left_out"]) == (12, 1, 2)


def test_the_estimate_counts_what_was_imported(past: Past, tmp_path: Path) -> None:
    asked = {"timestamp": "2025-01-01T10:00:00Z", "sessionId": "c", "uuid": "1", "type": "user"}
    lines = [
        {**asked, "message": {"role": "user", "content": "Where is the walrus?"}},
        {**asked, "uuid": "2", "type": "assistant",
         "message": {"role": "assistant", "content": [{"type": "text", "text": "At sea."}]}},
    ]  # fmt: skip
    file = tmp_path / "c.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    past.machine.run("sessions", "import", str(file)).done()
    found = past.machine.json("switch", "beta", "--replay", "--dry-run")
    assert found["imported"] == 1


def test_a_dry_run_after_everything_arrived_says_that_there_is_nothing_to_send(past: Past) -> None:
    past.machine.run("switch", "beta", "--replay").done()
    result = past.machine.run("switch", "beta", "--replay", "--dry-run").done()
    assert "time:     nothing to send" in result.lines


def test_the_words_of_cron_jobs_and_subagents_are_left_out(past: Past) -> None:
    past.talk("c", 2, 1_700_500_000.0, source="cron")
    past.talk("d", 2, 1_700_500_000.0, source="subagent")
    past.machine.run("switch", "beta", "--replay").done()
    assert Counter(past.arrived()) == Counter(past.said)


def test_users_and_platforms_stay_who_they_were(past: Past) -> None:
    past.talk("t", 1, 1_700_500_000.0, source="telegram", user_id="7", chat_id="9")
    past.machine.run("switch", "beta", "--replay").done()
    (row,) = [each for each in past.rows() if each["session"] == "t"]
    assert (row["user"], row["platform"]) == ("7", "telegram")


def test_notes_arrive_once_with_the_time_at_which_they_were_made(past: Past) -> None:
    past.note("Likes tea.", "Lives in Bonn.")
    past.machine.run("switch", "beta", "--replay").done()
    notes = past.rows("note")
    assert [each["said"] for each in notes] == ["Likes tea.", "Lives in Bonn."]
    assert [(each["action"], each["target"]) for each in notes] == [("add", "memory")] * 2
    assert notes[0]["at"] < notes[1]["at"]


def test_secrets_are_masked_as_in_a_live_turn(past: Past) -> None:
    archive_text = "my key is sk-ant-api03-" + "a1B2c3D4e5" * 9
    manager = MemoryManager.from_config(past.home)
    manager.initialize_all("secret")
    manager.sync_all(archive_text, "Noted.")
    manager.shutdown_all()
    past.machine.run("switch", "beta", "--replay").done()
    (row,) = [each for each in past.rows() if each["session"] == "secret"]
    assert "a1B2c3" not in row["said"]


def test_since_leaves_out_what_was_said_before(past: Past) -> None:
    past.machine.run("switch", "beta", "--replay", "--since", "2023-11-14T23:30:00+00:00").done()
    assert {each["session"] for each in past.rows()} == {"s0", "s2"}


def test_a_provider_that_goes_down_half_way_gets_the_rest_later(past: Past) -> None:
    past.limit(5)
    result = past.machine.run("switch", "beta", "--replay")
    error = result.failed()
    assert "beta: 5 of 12 turns and notes arrived, 7 writes waiting in the outbox" in error
    assert "beta is down" in error
    assert "alpha stays active; to continue, run: hermes-plugins switch beta --replay" in error
    assert past.active == "alpha"
    status = past.machine.run("status")
    problem = status.lines.index("problem:   a replay to beta was interrupted")
    assert status.lines[problem + 1].strip() == "hint: run: hermes-plugins switch beta --replay"
    again = past.machine.run("switch", "beta", "--replay").failed()
    assert "beta: 5 of 12 turns and notes arrived, 7 writes waiting in the outbox" in again
    past.limit(None)
    told = past.machine.run("switch", "beta", "--replay").done().out  # at once
    assert "waiting:  7 writes in the outbox" in told
    assert Counter(past.arrived()) == Counter(past.said)
    assert past.active == "beta"


def test_a_refused_turn_stays_in_the_outbox_and_the_others_arrive(past: Past) -> None:
    past.talk("refused", 1, 1_600_000_000.0)
    result = past.machine.run("switch", "beta", "--replay")
    assert result.code == 1
    assert "1 write did not arrive (see: hermes-plugins outbox list)" in result.out
    assert len(past.arrived()) == 12
    (left,) = past.machine.json("outbox", "list")["writes"]
    assert (left["state"], left["session"]) == ("failed", "refused")


def test_a_provider_that_does_not_work_is_not_enabled(past: Past) -> None:
    (past.home / "broken").touch()
    error = past.machine.run("switch", "beta", "--replay").failed()
    assert "beta does not work: no disk" in error
    assert "nothing was changed" in error
    assert past.active == "alpha"
    assert past.rows() == []


def test_what_is_not_recalled_is_said(past: Past) -> None:
    (past.home / "deaf").touch()
    found = past.machine.json("switch", "beta", "--replay", code=1)
    assert (found["sampled"], found["recalled"], found["switched"]) == (4, 0, True)


@pytest.mark.parametrize(
    ("answer", "recalled", "unjudged"),
    [
        ("No memories found for this question: QUERY", 0, 0),  # an echo
        ("## Memories\n(no answer, please ask the user again)", 0, 0),
        ("What the question is about: s0x1 and s1x1.", 0, 2),  # the same for every question
        ("- He chases every postman away", 1, 0),  # whole words in a row are not a coincidence
    ],
)
def test_a_turn_counts_as_recalled_by_words_that_the_question_did_not_have(
    past: Past, answer: str, recalled: int, unjudged: int
) -> None:
    (past.home / "answer").write_text(answer)
    past.talk("names", 1, 1_650_000_000.0, said="My dog barks", answer="He chases every postman")
    found = past.machine.json("switch", "beta", "--replay", code=0 if recalled else 1)
    assert (found["recalled"], found["unjudged"]) == (recalled, unjudged)
    assert found["sampled"] == 5 - unjudged


def test_turns_without_words_of_their_own_are_not_called_recalled(past: Past) -> None:
    for number in range(4):
        past.talk(f"s{number}", 30, 1_750_000_000.0, said="yes please", answer="Done.")
    result = past.machine.run("switch", "beta", "--replay", "--since", "2025-01-01").done()
    assert "Whether beta recalls 4 sample turns can't be judged: too few rare words" in result.out
    assert "recalled." not in result.out


def test_turns_that_the_provider_got_when_they_were_said_do_not_arrive_again(past: Past) -> None:
    past.machine.run("switch", "beta").done()
    live = MemoryManager.from_config(past.home)
    live.initialize_all("live", platform="telegram", user_id="7", chat_id="9")
    for number in range(3):
        live.sync_all(f"live {number}", "answer")
    live.shutdown_all()
    past.machine.run("switch", "alpha").done()
    past.machine.run("switch", "beta", "--replay").done()
    found = Counter(past.arrived())
    assert found == Counter([*past.said, "live 0", "live 1", "live 2"])


def test_a_fresh_provider_looks_nothing_up(past: Past) -> None:
    past.machine.run("switch", "beta", "--replay").done()
    assert set(past.attempts()) == {1}
    past.talk("s9", 2, 1_750_000_000.0)
    past.machine.run("switch", "beta", "--replay", "--since", "2000-01-01").done()
    assert Counter(past.arrived()) == Counter(past.said)


def test_a_second_run_hands_over_only_what_is_new(past: Past) -> None:
    past.machine.run("switch", "beta", "--replay").done()
    calls = len(past.attempts())
    past.machine.run("switch", "alpha").done()
    live = MemoryManager.from_config(past.home)
    live.initialize_all("later")
    live.sync_all("said to alpha", "answer")
    live.shutdown_all()
    told = past.machine.run("switch", "beta", "--replay").done().out
    assert "turns:    1 turn in 1 session" in told
    assert past.arrived()[-1] == "said to alpha"
    assert len(past.attempts()) == calls + 1 + len(past.rows("turn", "alpha"))


def test_what_was_imported_after_a_replay_arrives_once_and_in_order(past: Past) -> None:
    past.machine.run("switch", "beta", "--replay").done()
    calls, before = len(past.attempts()), len(past.said)
    past.talk("imported", 2, 1_600_000_000.0)
    past.talk("s0", 1, 1_500_000_000.0)  # merged into a conversation that was handed over
    told = past.machine.run("switch", "beta", "--replay", "--dry-run").done().out
    assert "turns:    3 turns in 2 sessions" in told
    assert len(past.arrived()) == before
    past.machine.run("switch", "beta", "--replay").done()
    assert Counter(past.arrived()) == Counter(past.said)
    own = [each["said"] for each in past.rows() if each["session"] == "imported"]
    assert own == ["question0 of imported", "question1 of imported"]
    assert len(past.attempts()) == calls + 3
    past.machine.run("switch", "beta", "--replay").done()
    assert len(past.attempts()) == calls + 3


def test_a_message_without_an_answer_arrives_with_the_next_question(past: Past) -> None:
    start = 1_750_000_000.0
    said = ["Are you there?", "My cat is Tom.", "My cat is Tom.", "How old is he?"]
    past.append("s9", *(("user", text, start + at) for at, text in enumerate(said)))
    told = past.machine.run("switch", "beta", "--replay", "--dry-run").done()
    assert "turns:    12 turns in 4 sessions, 360 characters" in told.lines
    assert "left out: 4 messages without an answer" in told.lines
    past.append("s9", ("assistant", "Five.", start + 5), ("user", "And Rex?", start + 6))
    past.talk("c", 2, start, source="cron")
    told = past.machine.run("switch", "beta", "--replay").done()
    assert "turns:    13 turns in 5 sessions" in told.out
    both = "2 turns of cron jobs and subagents, 1 message without an answer"
    assert f"left out: {both}" in told.lines
    (row,) = [each for each in past.rows() if each["session"] == "s9"]
    assert row["said"] == "Are you there?\n\nMy cat is Tom.\n\nHow old is he?"
    assert (row["answered"], row["at"]) == ("Five.", start + 3)


def test_a_message_from_before_since_does_not_arrive_with_the_next_question(past: Past) -> None:
    said = [("user", "private, long before", 1_650_000_000.0), ("user", "after", 1_750_000_000.0)]
    past.append("s9", *said, ("assistant", "yes", 1_750_000_001.0))
    past.machine.run("switch", "beta", "--replay", "--since", "2025-01-01").done()
    (row,) = [each for each in past.rows() if each["session"] == "s9"]
    assert row["said"] == "after"


def test_a_turn_that_grew_since_the_last_replay_is_sent_once_more(past: Past) -> None:
    past.append("s9", ("user", "how?", 1_750_000_000.0), ("assistant", "wait", 1_750_000_001.0))
    past.machine.run("switch", "beta", "--replay").done()
    past.append("s9", ("assistant", "Like this.", 1_750_000_002.0))
    told = past.machine.run("switch", "beta", "--replay", "--dry-run").done().out
    assert "turns:    1 turn in 1 session" in told
    for _ in range(2):
        past.machine.run("switch", "beta", "--replay").done()
        own = [each for each in past.rows() if each["session"] == "s9"]
        assert [each["answered"] for each in own] == ["wait", "Like this."]
        assert len({each["id"] for each in own}) == 2
    assert len(past.attempts()) == len(past.said) + 2


def test_other_turns_with_the_times_of_deleted_ones_are_sent(past: Past) -> None:
    past.machine.run("switch", "beta", "--replay").done()
    past.delete("s1")
    past.talk("s1", 3, 1_700_001_000.0, said="another")
    for _ in range(2):
        past.machine.run("switch", "beta", "--replay").done()
        assert Counter(past.arrived()) == Counter(past.said)


def test_turns_of_one_time_are_not_sent_again_if_another_comes_before_them(past: Past) -> None:
    def talk(*texts: str) -> None:
        roles = ("user", "assistant")
        past.append("old", *((role, text, 5.0) for text in texts for role in roles))

    talk("a", "b", "b")
    past.machine.run("switch", "beta", "--replay").done()
    past.delete("old")
    talk("new", "b", "a", "b", "b")
    for _ in range(2):
        past.machine.run("switch", "beta", "--replay").done()
        assert sorted(each["said"] for each in past.rows() if each["session"] == "old") == [
            *("a", "b", "b", "b", "new")
        ]


def test_a_changed_turn_is_looked_up_by_its_own_id(past: Past) -> None:
    past.machine.run("switch", "beta", "--replay").done()
    past.append("s2", ("assistant", "more", 1_700_102_022.0))
    past.machine.run("switch", "beta", "--replay").done()
    assert len(past.rows()) == len(past.said) + 1
    (past.home / "switch.json").unlink()  # all of it once more: the provider has to look
    past.machine.run("switch", "beta", "--replay").done()
    assert len(past.rows()) == len(past.said) + 1


def test_a_list_of_the_first_format_goes_on(past: Past) -> None:
    past.machine.run("switch", "beta", "--replay").done()
    with closing(sqlite3.connect(past.home / "switch.db")) as database, database:
        database.execute("DROP INDEX handed_content")
        database.execute("ALTER TABLE handed DROP COLUMN content")
        database.execute("PRAGMA user_version = 1")
    calls = len(past.attempts())
    past.machine.run("switch", "beta", "--replay").done()
    assert len(past.attempts()) == calls
    past.append("s2", ("assistant", "more", 1_700_102_022.0))
    past.machine.run("switch", "beta", "--replay").done()
    assert past.rows()[-1]["answered"] == "more"
    assert len(past.attempts()) == calls + 1


def test_what_was_imported_while_a_replay_was_interrupted_arrives_too(past: Past) -> None:
    past.limit(7)
    past.machine.run("switch", "beta", "--replay").failed()
    past.talk("imported", 2, 1_600_000_000.0)
    past.limit(None)
    past.machine.run("switch", "beta", "--replay").done()
    assert Counter(past.arrived()) == Counter(past.said)


def test_the_notes_of_an_earlier_replay_are_not_sent_again(past: Past) -> None:
    past.note("Likes tea.", "Lives in Bonn.")
    past.machine.run("switch", "beta", "--replay").done()
    told = past.machine.run("switch", "beta", "--replay", "--dry-run").done()
    assert "notes:    0" in told.lines
    assert "time:     nothing to send" in told.lines
    past.configure()  # alpha gets the next one
    past.note("Has a dog.")
    calls = len(past.attempts())
    told = past.machine.run("switch", "beta", "--replay").done()
    assert "notes:    1" in told.lines
    assert "12 turns and 3 notes handed to beta." in told.out
    assert len(past.attempts()) == calls + 1
    found = [each["said"] for each in past.rows("note")]
    assert found == ["Likes tea.", "Lives in Bonn.", "Has a dog."]


AFTER_S3 = "2023-11-14T23:30:00+00:00"  # s0 and s2 began later


def test_a_repeated_date_sends_only_what_is_new(past: Past) -> None:
    for since in (AFTER_S3, AFTER_S3, "2023-11-15T00:00:00+00:00"):
        past.machine.run("switch", "beta", "--replay", "--since", since).done()
    assert len(past.attempts()) == 6
    past.talk("s9", 1, 1_750_000_000.0)
    past.machine.run("switch", "beta", "--replay", "--since", AFTER_S3).done()
    assert len(past.attempts()) == 7


def test_an_earlier_date_adds_what_was_said_before(past: Past) -> None:
    past.machine.run("switch", "beta", "--replay", "--since", AFTER_S3).done()
    told = past.machine.run("switch", "beta", "--replay", "--since", "2020-01-01").done()
    assert "turns:    6 turns in 2 sessions" in told.out
    assert len(past.attempts()) == len(past.said)
    assert Counter(past.arrived()) == Counter(past.said)


def test_without_a_date_the_one_of_the_last_run_counts(past: Past) -> None:
    past.machine.run("switch", "beta", "--replay", "--since", AFTER_S3).done()
    past.talk("s9", 1, 1_750_000_000.0)
    past.machine.run("switch", "beta", "--replay").done()
    assert {each["session"] for each in past.rows()} == {"s0", "s2", "s9"}
    assert len(past.attempts()) == 7


def test_an_interrupted_replay_since_an_age_goes_on(past: Past) -> None:
    (past.home / "blind").touch()
    past.limit(5)
    error = past.machine.run("switch", "beta", "--replay", "--since", "20000d").failed()
    assert error.strip().endswith("to continue, run: hermes-plugins switch beta --replay")
    past.limit(None)
    told = past.machine.run("switch", "beta", "--replay", "--since", "20000d").done()
    assert "12 turns and 0 notes handed to beta." in told.out
    assert Counter(past.arrived()) == Counter(past.said)


def test_an_interrupted_replay_can_go_on_with_a_later_date(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "_BATCH", 3)
    (past.home / "blind").touch()
    past.limit(2)  # of s1
    past.machine.run("switch", "beta", "--replay").failed()
    past.limit(None)
    past.machine.run("switch", "beta", "--replay", "--since", AFTER_S3).done()
    assert [each["session"] for each in past.rows()] == [*["s1"] * 3, *["s0"] * 3, *["s2"] * 3]


def test_the_command_for_agents_that_still_run_does_not_repeat_the_date(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_switch, "users_of", lambda _: ["the agent in process 7"])
    told = past.machine.run("switch", "beta", "--replay", "--since", AFTER_S3)
    assert "restart it, then run `hermes-plugins switch beta --replay`" in told.err
    past.machine.run("switch", "beta", "--replay").done()
    assert len(past.attempts()) == 6


def test_without_its_journal_a_replay_begins_again_and_the_provider_looks_each_turn_up(
    past: Past,
) -> None:
    past.machine.run("switch", "beta", "--replay").done()
    calls = len(past.attempts())
    (past.home / "switch.json").unlink()
    past.machine.run("switch", "beta", "--replay").done()
    assert len(past.attempts()) == calls + len(past.said)
    assert Counter(past.arrived()) == Counter(past.said)


@posix_only
@pytest.mark.parametrize("stored", [False, True])
def test_killed_while_a_changed_turn_is_stored_it_arrives_once(
    past: Past, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    past.machine.run("switch", "beta", "--replay").done()
    past.append("s2", ("assistant", "more", 1_700_102_022.0))

    def killed(*given: object, **_: object) -> None:
        if given[-1]:  # a run begins by noting what an earlier one has stored
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(*((ReplayedTurns, "finish") if stored else (admin, "add_writes")), killed)
        past.machine.run("switch", "beta", "--replay").failed()
    past.append("s2", ("assistant", "even more", 1_700_102_023.0))
    for _ in range(2):
        past.machine.run("switch", "beta", "--replay").done()
        own = [each["answered"] for each in past.rows() if each["said"] == "question2 of s2"]
        assert own == ["answer2 to s2x2", *(["more"] if stored else []), "even more"]


@posix_only
@pytest.mark.parametrize("notes", [(), ("Likes tea.",)])
def test_killed_after_a_batch_was_stored_it_is_not_sent_again(
    past: Past, monkeypatch: pytest.MonkeyPatch, notes: tuple[str, ...]
) -> None:
    past.note(*notes)
    (past.home / "blind").touch()
    finish = ReplayedTurns.finish

    def killed(handed: ReplayedTurns, events: list[str]) -> None:
        if events:
            os.kill(os.getpid(), signal.SIGKILL)
        finish(handed, events)

    with monkeypatch.context() as patch:
        patch.setattr(switch, "_BATCH", 5)
        patch.setattr(ReplayedTurns, "finish", killed)
        past.machine.run("switch", "beta", "--replay").failed()
    assert past.machine.json("outbox", "list")["writes"]
    told = past.machine.run("switch", "beta", "--replay").done()
    assert f"12 turns and {len(notes)} note" in told.out
    assert Counter(past.arrived()) == Counter(past.said)
    assert [each["said"] for each in past.rows("note")] == [*notes]


def test_a_journal_of_before_has_no_list_of_turns_so_the_provider_looks(past: Past) -> None:
    past.machine.run("switch", "beta", "--replay").done()
    calls = len(past.attempts())
    (past.home / "switch.db").unlink()
    journal = past.home / "switch.json"
    data = json.loads(journal.read_text())
    data["replays"][0].pop("began")
    data["replays"][0] |= {"place": [1.0, "s0"], "last": "x", "late": [], "looks_up": False}
    data["replays"][0]["finished"] = 0.0
    journal.write_text(json.dumps(data))
    past.machine.run("switch", "beta", "--replay").done()
    assert set(past.attempts()[calls:]) == {2}
    assert Counter(past.arrived()) == Counter(past.said)


def test_what_an_agent_says_through_the_old_provider_meanwhile_arrives(past: Past) -> None:
    agent = MemoryManager.from_config(past.home)
    agent.initialize_all("s0")
    agent.sync_all("before", "answer")
    past.machine.run("switch", "beta", "--replay")
    agent.sync_all("after", "answer")
    agent.shutdown_all()
    past.machine.run("switch", "beta", "--replay")
    own = [each["said"] for each in past.rows() if each["session"] == "s0"]
    assert own == [*(f"question{at} of s0" for at in range(3)), "before", "after"]


def test_the_same_time_for_every_turn_of_an_import_loses_none(past: Past) -> None:
    from support.archives import open_archive

    from hermes_builtin.sessions.archive import NewMessage, SessionFacts

    archive = open_archive(past.home)
    for number in range(3):
        said = [NewMessage("user", f"old {number}", 5.0), NewMessage("assistant", "yes", 5.0)]
        archive.append(SessionFacts("old", "chatgpt", started=5.0), said)
    archive.close()
    past.machine.run("switch", "beta", "--replay").done()
    old = [each for each in past.rows() if each["session"] == "old"]
    assert [each["said"] for each in old] == ["old 0", "old 1", "old 2"]
    assert len({each["id"] for each in old}) == 3
    assert {each["platform"] for each in old} == {"cli"}


def test_a_small_outbox_is_enough(past: Past) -> None:
    past.configure(outbox={"max_mb": 0.1})
    past.talk("long", 300, 1_600_000_000.0)
    past.machine.run("switch", "beta", "--replay").done()
    assert Counter(past.arrived()) == Counter(past.said)


def test_a_turn_that_is_larger_than_the_outbox_arrives_and_so_do_the_others(past: Past) -> None:
    past.configure(outbox={"max_mb": 0.1})
    past.talk("large", 2, 1_600_000_000.0, answer="word " * 50_000)
    past.machine.run("switch", "beta", "--replay").done()
    assert Counter(past.arrived()) == Counter(past.said)


def test_an_outbox_full_of_the_previous_provider_does_not_prevent_the_switch(past: Past) -> None:
    past.configure(outbox={"max_mb": 0.2})
    past.fill_outbox("alpha")
    result = past.machine.run("switch", "beta", "--replay")
    assert result.code == 0, result
    assert Counter(past.arrived()) == Counter(past.said)
    assert past.active == "beta"
    assert "outbox is full of writes for alpha: new turns may not reach beta" in result.err
    assert "hint: raise memory.outbox.max_mb in config.yaml" in result.err


def test_an_outbox_full_of_what_the_new_provider_refused_says_what_helps(past: Past) -> None:
    past.configure(outbox={"max_mb": 0.2})
    past.fill_outbox("beta", failed=True)
    past.configure(outbox={"max_mb": 0.05})
    error = past.machine.run("switch", "beta", "--replay").failed()
    assert "0 of 12 turns and notes arrived" in error
    assert "the outbox is full of writes that failed" in error
    helps = "retry or drop them (see: hermes-plugins outbox list), or raise memory.outbox.max_mb"
    assert f"{helps}; then run: hermes-plugins switch beta --replay" in error
    past.configure(outbox={"max_mb": 1})
    past.machine.run("switch", "beta", "--replay")
    assert Counter(past.arrived()) == Counter(past.said)


@pytest.mark.parametrize("arguments", [["--since", "2d"], ["--replay", "--since", "tomorrow"]])
def test_wrong_usage(past: Past, arguments: list[str]) -> None:
    assert past.machine.run("switch", "beta", *arguments).code == 2


def test_the_builtin_is_no_provider_to_switch_to(past: Past) -> None:
    assert "builtin is always active" in past.machine.run("switch", "builtin").failed()


@posix_only
@pytest.mark.files_only  # each run begins with a copy of the home
@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize(
    ("step", "most"), [(401, 5), pytest.param(7, 10_000, marks=pytest.mark.stress)]
)
def test_killed_anywhere_it_goes_on_and_each_arrives_once(
    past: Past, request: pytest.FixtureRequest, step: int, most: int, grown: bool
) -> None:
    packages = request.getfixturevalue("_packages")
    past.note("Likes tea.", "Lives in Bonn.")
    wanted = [*past.said, "Likes tea.", "Lives in Bonn."]
    if grown:
        past.machine.run("switch", "beta", "--replay").done()
        for number in range(4):
            past.append(f"s{number}", ("assistant", "more", 1_700_200_000.0))
            wanted.append(f"question2 of s{number}")
    given = {"wanted": wanted, "step": step, "most": most}
    script = Path(switch_kills.__file__)
    done = subprocess.run(
        [
            sys.executable,
            script,
            past.home,
            past.home.with_name("copy"),
            json.dumps(given),
            packages,
        ],
        env={**past.machine.environment, "PYTHONPATH": str(script.parents[1])},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["wrong"] == []
    assert told["kills"] > 3
