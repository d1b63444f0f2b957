"""`hermes-plugins sync`: several machines share notes and conversations through a folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.commands import Machine
from support.disks import small_disk
from support.storages import Storage, scaled
from support.synced import Peer, transfer

from hermes_builtin.notes import COMMAND, Author, NotesError, Person, notes_text, operation
from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, SessionFacts
from hermes_builtin.sessions.location import locate
from hermes_builtin.sync import SyncError, state, sync_folder
from hermes_builtin.sync import notes as sync_notes
from hermes_builtin.sync.log import encoded, seed
from hermes_core.provider import ForgetRequest
from hermes_core.storage.files import file_lock

ADA = Person("telegram", "1002003004")
HALF = "\ud800"  # of a surrogate pair
NOTE = {"type": "note", "notebook": "memory", "text": "x"}
SESSION = {"type": "session", "session": "abc", "id": "s-9"}
MESSAGE = {"type": "message", "session": "abc", "id": "x", "role": "user", "content": "x", "at": 1}


@pytest.fixture
def peers(both_storages: Storage, tmp_path: Path) -> tuple[Peer, Peer]:
    """Two machines and one folder."""
    shared = tmp_path / "shared"
    return Peer(tmp_path, 0, shared), Peer(tmp_path, 1, shared)


def log_of(peer: Peer) -> Path:
    (path,) = (peer.home / "sync").glob("*.db")
    return peer.shared / path.stem / "0001.jsonl"


# -- what is shared -----------------------------------------------------------------------------


def test_two_machines_have_the_same_notes_and_conversations(peers):
    laptop, desk = peers
    laptop.add("likes tea")
    laptop.say("s-1", "hello there", title="Greetings")
    desk.add("has a dog")
    desk.say("s-2", "how is the dog?")
    laptop.sync()
    received = desk.sync()
    assert (received.received.notes, received.received.messages) == (1, 1)
    assert (received.sent.notes, received.sent.messages) == (1, 1)
    laptop.sync()
    assert laptop.everything() == desk.everything()
    assert sorted(desk.entries()) == ["has a dog", "likes tea"]
    assert desk.sessions()["s-1"][0] == "Greetings"
    again = laptop.sync()
    assert again.sent == again.received == type(again.sent)()


def test_messages_keep_their_time_and_say_which_machine_they_are_from(peers):
    laptop, desk = peers
    call = {"tool_name": "map", "origin": "web"}
    with closing(locate(laptop.home).open()) as archive:
        facts = SessionFacts("s-1", source="telegram", user_id="100", chat_id="7", parent="s-0")
        archive.append(facts, [NewMessage("tool", "a map\u2028", 5.25, call)])
        archive.append(facts, [NewMessage("critic", "hm", 6.0)])
        archive.end("s-1", 7.0, EVERYBODY)
    laptop.sync()
    desk.sync()
    with closing(locate(desk.home).open()) as archive:
        (session,) = archive.sessions(EVERYBODY)
        first, second = archive.messages(session)
    assert (session.user_id, session.chat_id, session.parent) == ("100", "7", "s-0")
    assert session.ended == 7.0
    name = log_of(laptop).parent.name.rpartition("-")[0]
    assert first[1:] == ("tool", "a map\u2028", 5.25, {**call, "machine": name})
    assert second[1:3] == ("critic", "hm")


def test_a_session_of_another_person_with_the_same_name_stays_apart(peers):
    laptop, desk = peers
    laptop.say("s-1", "of the owner")
    with closing(locate(desk.home).open()) as archive:
        facts = SessionFacts("s-1", source="telegram", user_id="100")
        archive.append(facts, [NewMessage("user", "of Ada", 5.0)])
    for peer in (laptop, desk, laptop):
        peer.sync()
    for peer in peers:
        with closing(locate(peer.home).open()) as archive:
            texts = {
                each.user_id: [m.content for m in archive.messages(each)]
                for each in archive.sessions(EVERYBODY)
            }
        assert texts == {"": ["of the owner"], "100": ["of Ada"]}


def test_every_person_has_their_own_notes_on_every_machine(peers):
    laptop, desk = peers
    with closing(laptop.notes().of(ADA)) as notes:
        notes.change("user", [operation("add", "has a cat", None)], Author(COMMAND))
    laptop.sync()
    desk.sync()
    with closing(desk.notes()) as notes:
        assert notes.people() == [ADA]
        assert notes.of(ADA).notebooks["user"].read().entries == ["has a cat"]
        assert not notes.notebooks["user"].read().entries


def test_a_machine_that_comes_after_months_gets_everything(peers, monkeypatch):
    monkeypatch.setattr(state, "SEGMENT_BYTES", 2000)
    laptop, desk = peers
    for number in range(60):
        laptop.add(f"note {number}")
        laptop.say(f"s-{number % 7}", f"message {number}")
        if number % 10 == 0:
            laptop.sync()
    laptop.sync()
    assert len(list(log_of(laptop).parent.iterdir())) > 2
    desk.sync()
    assert desk.everything() == laptop.everything()


# -- what two machines do at the same time ------------------------------------------------------


def test_a_removed_note_does_not_come_back(peers):
    laptop, desk = peers
    laptop.add("likes tea")
    laptop.sync()
    desk.sync()
    desk.remove("likes tea")
    laptop.add("has a dog")
    for peer in (laptop, desk, laptop, desk):
        peer.sync()
    assert laptop.entries() == desk.entries() == ["has a dog"]


def test_both_versions_of_a_note_stay_and_the_report_says_so(peers):
    laptop, desk = peers
    laptop.add("likes tea")
    laptop.sync()
    desk.sync()
    laptop.replace("likes tea", "likes green tea")
    desk.replace("likes tea", "likes black tea")
    laptop.sync()
    (said,) = desk.sync().conflicts
    assert "likes green tea" in said
    assert "likes black tea" in said
    (said,) = laptop.sync().conflicts
    assert not desk.sync().conflicts
    assert sorted(laptop.entries()) == sorted(desk.entries())
    assert sorted(desk.entries()) == ["likes black tea", "likes green tea"]


def test_machines_of_the_same_name_are_told_apart_in_a_conflict(peers, monkeypatch):
    laptop, desk = peers
    monkeypatch.setattr(state.socket, "gethostname", lambda: "same")
    laptop.add("likes tea")
    laptop.sync()
    desk.sync()
    laptop.replace("likes tea", "likes green tea")
    desk.replace("likes tea", "likes black tea")
    laptop.sync()
    (said,) = desk.sync().conflicts
    for peer in peers:
        assert f"({log_of(peer).parent.name})" in said


def test_notes_beyond_the_limit_are_all_there_and_the_report_says_so(peers):
    laptop, desk = peers
    for peer in peers:
        config = peer.home / "config.yaml"
        config.write_text(config.read_text().replace("1000000", "100"))
    laptop.add("a" * 80)
    desk.add("b" * 80)
    laptop.sync()
    (said,) = desk.sync().messages
    assert "MEMORY.md has 163 of 100 characters" in said
    assert sorted(desk.entries()) == ["a" * 80, "b" * 80]


def test_what_is_said_elsewhere_survives_the_deletion_of_its_session(peers):
    laptop, desk = peers
    laptop.say("s-1", "the beginning")
    laptop.sync()
    desk.sync()
    laptop.delete("s-1")
    desk.say("s-1", "the rest")
    laptop.sync()
    report = desk.sync()
    assert report.received.deleted_sessions == 1
    laptop.sync()
    assert desk.said() == laptop.said() == ["the rest"]
    assert b"the beginning" not in laptop.shared_bytes()


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("has_stored", [False, True])
@pytest.mark.parametrize("earlier", [[], ["the beginning"]])
def test_deleted_after_a_crash_is_only_what_was_here(peers, monkeypatch, has_stored, earlier):
    laptop, desk = peers
    for text in earlier:
        laptop.say("s-1", text)
        laptop.sync()
        desk.sync()
    laptop.say("s-1", "the rest")
    laptop.say("s-2", "something else")
    laptop.sync()

    def crashing(archive, facts, messages, **options):
        if has_stored and messages:
            real(archive, facts, messages, **options)
        if messages:
            raise Crash
        return real(archive, facts, messages, **options)

    with closing(locate(desk.home).open()) as archive:
        kind = type(archive)
    real = kind.append
    with monkeypatch.context() as patch:
        patch.setattr(kind, "append", crashing)
        with pytest.raises(Crash):
            desk.sync()
    # What a person could see there is deleted for good, and the rest arrives.
    assert desk.delete("s-1") == [*earlier, *(["the rest"] if has_stored else [])]
    for peer in (desk, laptop, desk):
        peer.sync()
    left = [] if has_stored else ["the rest"]
    assert sorted(desk.said()) == sorted(laptop.said()) == ["something else", *left]


@pytest.mark.files_only
def test_a_removal_that_arrives_before_what_it_removes_counts(both_storages, tmp_path):
    laptop, desk, late = (Peer(tmp_path, number) for number in range(3))
    laptop.add("likes tea")
    laptop.say("s-1", "hello")
    laptop.sync()
    old = shutil.copytree(log_of(laptop).parent, tmp_path / "old")
    transfer(laptop, desk)
    desk.sync()
    desk.remove("likes tea")
    desk.delete("s-1")
    desk.sync()
    shutil.copytree(log_of(desk).parent, late.shared / log_of(desk).parent.name)
    late.sync()
    shutil.copytree(old, late.shared / log_of(laptop).parent.name)
    assert late.sync().received.messages == 0
    assert late.everything() == ([], {})


def test_the_title_that_was_given_last_counts(peers):
    laptop, desk = peers
    laptop.say("s-1", "hello")
    laptop.sync()
    desk.sync()
    laptop.say("s-1", "more", title="from the laptop")
    desk.say("s-1", "and more", title="from the desk")
    for peer in (laptop, desk, laptop, desk):
        peer.sync()
    assert laptop.sessions() == desk.sessions()
    assert laptop.sessions()["s-1"][0] in ("from the laptop", "from the desk")


# -- messages that were said several times at the same time ----------------------------------------


def imported_again(folder: Path) -> list[Peer]:
    """Machines that have a message once, then twice; one got its logs in the wrong order."""
    laptop, desk, tablet = peers = [Peer(folder, number) for number in range(3)]
    laptop.say("s-1", "continue", at=1.0)
    laptop.sync()
    transfer(laptop, desk)
    desk.sync()
    desk.say("s-1", "continue", at=1.0)
    desk.sync()
    log = log_of(desk).parent
    shutil.copytree(log, tablet.shared / log.name)
    tablet.sync()
    laptop.say("s-1", "continue", at=1.0)
    transfer(desk, laptop)
    laptop.sync()
    transfer(laptop, tablet)
    tablet.sync()
    return peers


def settle(peers: list[Peer]) -> None:
    for _ in range(3):
        for source in peers:
            source.sync()
            for target in peers:
                transfer(source, target)
    for peer in peers:
        report = peer.sync()
        assert report.sent == report.received == type(report.sent)()


@pytest.mark.files_only
def test_a_message_that_was_said_twice_is_twice_on_every_machine(both_storages, tmp_path):
    peers = imported_again(tmp_path)
    settle(peers)
    assert [each.said() for each in peers] == [["continue"] * 2] * 3


@pytest.mark.files_only
@pytest.mark.parametrize("number", range(3))
def test_messages_that_were_said_twice_do_not_come_back(both_storages, tmp_path, number):
    peers = imported_again(tmp_path)
    peers[number].delete("s-1")
    peers[number].sync()
    settle(peers)
    assert [each.sessions() for each in peers] == [{}] * 3


@pytest.mark.files_only
def test_a_message_that_was_said_twice_is_forgotten_twice(both_storages, tmp_path):
    peers = imported_again(tmp_path)
    peers[1].forget("continue")
    settle(peers)
    assert [each.said() for each in peers] == [["[forgotten]"] * 2] * 3
    peers[2].say("s-1", "continue", at=1.0)
    settle(peers)
    assert [each.said() for each in peers] == [["[forgotten]", "[forgotten]", "continue"]] * 3


@pytest.mark.files_only
@pytest.mark.parametrize("has_removed", [False, True])
def test_an_interrupted_deletion_removes_no_copy_that_was_not_sent(peers, monkeypatch, has_removed):
    laptop, desk = peers
    laptop.say("s-1", "continue", at=1.0)
    for peer in peers:
        peer.sync()
    laptop.delete("s-1")
    laptop.sync()
    desk.say("s-1", "continue", at=1.0)

    def crashing(archive, session, numbers):
        if has_removed:
            real(archive, session, numbers)
        raise Crash

    with closing(locate(desk.home).open()) as archive:
        kind = type(archive)
    real = kind.remove
    with monkeypatch.context() as patch:
        patch.setattr(kind, "remove", crashing)
        with pytest.raises(Crash):
            desk.sync()
    desk.sync()
    assert desk.said() == ["continue"]
    settle([*peers])
    assert laptop.said() == ["continue"]


# -- forgetting ---------------------------------------------------------------------------------


def forget(peer: Peer, **what: str) -> None:
    from hermes_builtin.forget import forget as forget_in_stores

    report = forget_in_stores(ForgetRequest(home=str(peer.home), delete=True, **what))
    assert not report.unreachable


def test_what_is_forgotten_leaves_the_folder_and_all_machines(peers):
    laptop, desk = peers
    laptop.add("lives in Maple Street")
    desk.say("s-1", "send it to Maple Street", title="To Maple Street")
    for peer in (laptop, desk, laptop):
        peer.sync()
    assert b"Maple" in laptop.shared_bytes()
    forget(laptop, text="maple street")
    for peer in (laptop, desk, laptop, desk):
        peer.sync()
    assert b"Maple" not in laptop.shared_bytes()
    assert laptop.everything() == desk.everything()
    assert desk.entries() == []
    assert desk.said() == ["[forgotten]"]
    assert desk.sessions()["s-1"][0] == ""


def traces(peer: Peer, text: bytes) -> list[str]:
    """The files of a home that have a text."""
    files = [each for each in peer.home.rglob("*") if each.is_file()]
    return [str(each.relative_to(peer.home)) for each in files if text in each.read_bytes()]


def undo_all(peer: Peer) -> None:
    with closing(peer.notes()) as notes, suppress(NotesError):
        for _ in range(4):
            notes.undo(None, Author(COMMAND))


@pytest.mark.parametrize("is_held", [False, True])
def test_a_note_that_is_forgotten_leaves_the_history_of_every_machine(peers, is_held):
    laptop, desk = peers
    held = desk if is_held else laptop
    held.add("lives in Maple Street")
    held.add("has a dog")
    for peer in (laptop, desk, laptop):
        peer.sync()
    with closing(desk.notes()) as notes:
        again = [operation("replace", "moved away", "lives in Maple Street")]
        notes.pending.stage("memory", again, Author(COMMAND))
        other = notes.pending.stage("memory", [operation("add", "a", None)], Author(COMMAND))
    desk.remove("has a dog")
    desk.add("has a cat")
    forget(laptop, text="maple street")
    for peer in (laptop, desk, laptop, desk):
        peer.sync()
    assert traces(desk, b"Maple") == traces(laptop, b"Maple") == []
    with closing(desk.notes()) as notes:
        assert not notes.history.matching(lambda text: "Maple" in text)
        assert [each.id for each in notes.pending.all()] == [other]
    undo_all(desk)
    for peer in (desk, laptop):
        peer.sync()
        assert not [each for each in peer.entries() if "Maple" in each]


def test_only_what_is_forgotten_leaves_the_history(peers):
    laptop, desk = peers
    for text in ("lives in Maple Street", "has a dog"):
        laptop.add(text)
    laptop.sync()
    desk.sync()
    laptop.remove("has a dog")
    forget(laptop, text="maple street")
    laptop.sync()
    assert desk.sync().received.removed_notes == 2
    assert desk.entries() == []
    with closing(desk.notes()) as notes:
        assert notes.history.matching(lambda text: text == "has a dog")
        notes.undo(None, Author(COMMAND))
    assert desk.entries() == ["has a dog"]


def test_a_note_that_a_new_machine_has_by_itself_is_not_forgotten(peers):
    laptop, desk = peers
    laptop.add("likes tea")
    laptop.sync()
    forget(laptop, text="likes tea")
    laptop.sync()
    desk.add("likes tea")
    for peer in (desk, laptop):
        peer.sync()
    assert desk.entries() == laptop.entries() == ["likes tea"]


def test_a_person_who_is_forgotten_leaves_no_trace_in_the_folder(peers):
    laptop, desk = peers
    with closing(laptop.notes().of(ADA)) as notes:
        notes.change("user", [operation("add", "has a cat", None)], Author(COMMAND))
    with closing(locate(laptop.home).open()) as archive:
        facts = SessionFacts("s-1", source="telegram", user_id=ADA.user_id)
        archive.append(facts, [NewMessage("user", "hello from Ada", 5.0)])
    laptop.sync()
    desk.sync()
    forget(desk, user_id=ADA.user_id, platform="telegram")
    for peer in (desk, laptop, desk):
        peer.sync()
    for trace in (b"Ada", b"a cat", ADA.user_id.encode()):
        assert trace not in laptop.shared_bytes()
    with closing(laptop.notes()) as notes:
        assert notes.of(ADA).notebooks["user"].read().entries == []
    assert laptop.said() == []


@pytest.mark.files_only
def test_the_state_of_a_home_has_no_texts(peers):
    laptop, _ = peers
    laptop.add("lives in Maple Street")
    laptop.say("s-1", "send it to Maple Street", title="To Maple Street")
    laptop.sync()
    assert not [
        each.name for each in (laptop.home / "sync").iterdir() if b"Maple" in each.read_bytes()
    ]


def test_a_note_with_a_secret_stays_at_home(peers):
    laptop, desk = peers
    with closing(laptop.notes()) as notes:
        book = notes.notebooks["memory"]
        key = "sk-proj-" + "Zk3Q9x" * 8
        book.take_over([], [f"key: {key}", "likes tea"])
    (said,) = laptop.sync().messages
    assert "secret" in said
    desk.sync()
    assert desk.entries() == ["likes tea"]
    assert key.encode() not in laptop.shared_bytes()


# -- files that are lost, torn, copied or of another version --------------------------------------


@pytest.mark.parametrize("file", [None, "0001.jsonl.tmp", ".syncthing.0001.jsonl.tmp"])
def test_a_machine_whose_folder_is_there_before_its_log_is_waited_for(peers, file):
    laptop, desk = peers
    laptop.add("a note of the laptop")
    laptop.sync()
    folder = laptop.shared / "phone-3f09ab12"
    folder.mkdir()
    if file:
        (folder / file).write_bytes(b'{"half')
    report = desk.sync()
    assert "a note of the laptop" in str(desk.entries())
    assert report.incomplete == ("phone-3f09ab12",)


def test_a_torn_file_is_read_to_its_last_whole_line_and_continued_later(peers):
    laptop, desk = peers
    for number in range(20):
        laptop.add(f"note {number}")
    laptop.sync()
    content = log_of(laptop).read_bytes()
    seen = 0
    for size in range(0, len(content), 97):
        log_of(laptop).write_bytes(content[:size])
        report = desk.sync()
        assert report.incomplete or content[:size].endswith(b"\n") or not size
        assert len(desk.entries()) >= seen
        seen = len(desk.entries())
    assert 0 < seen < 20
    log_of(laptop).write_bytes(content.replace(b"\n", b"\r\n"))  # as git may do
    assert not desk.sync().incomplete
    assert sorted(desk.entries()) == sorted(laptop.entries())


def damage(log: Path, old: bytes, new: bytes) -> None:
    content = log.read_bytes()
    assert content.count(old) == 1
    log.write_bytes(content.replace(old, new))


@pytest.mark.files_only
def test_a_damaged_line_resurrects_nothing_and_loses_nothing(peers, tmp_path):
    laptop, desk = peers
    late = Peer(tmp_path, 2, laptop.shared)
    for text in ("the secret plan", "stays"):
        laptop.add(text)
    laptop.say("s-1", "will be deleted")
    laptop.say("s-2", "will be forgotten")
    for peer in (laptop, desk, laptop):
        peer.sync()
    damaged = log_of(desk)
    desk.add("from the desk")
    desk.say("s-3", "said at the desk", title="At the desk")
    desk.sync()
    laptop.sync()
    desk.remove("the secret plan")
    desk.delete("s-1")
    desk.forget("will be forgotten")
    desk.add("not read by the laptop")
    desk.sync()
    damage(damaged, b'"text":"from the desk"', b'"text":"from the deck"')
    late.sync()
    (message,) = desk.sync().messages
    assert "is damaged, or was also written by another home" in message
    for peer in (laptop, late, laptop, desk, late):
        report = peer.sync()
    assert laptop.everything() == desk.everything() == late.everything()
    assert sorted(late.entries()) == ["from the desk", "not read by the laptop", "stays"]
    assert sorted(late.said()) == ["[forgotten]", "said at the desk"]
    assert late.sessions()["s-3"][0] == "At the desk"
    assert not report.incomplete
    assert not report.problems
    # A note and a message that the laptop has read from the lost lines can be removed.
    desk.remove("from the desk")
    laptop.delete("s-3")
    for peer in (desk, laptop, late, desk):
        peer.sync()
    assert laptop.everything() == desk.everything() == late.everything()
    assert sorted(late.entries()) == ["not read by the laptop", "stays"]
    assert late.said() == ["[forgotten]"]


@pytest.mark.files_only
def test_a_damaged_line_is_a_problem_until_its_machine_continues(peers, monkeypatch):
    monkeypatch.setattr(state, "SEGMENT_BYTES", 1000)
    laptop, desk = peers
    for number in range(30):
        laptop.add(f"note {number} of the laptop")
    laptop.sync()
    damage(log_of(laptop), b'"note 2 of', b'"note 3 of')  # long before the end
    report = desk.sync()
    (problem,) = report.problems
    assert "line 4 of 0001.jsonl is damaged, and what follows can't be read" in problem
    assert report.incomplete == ()
    assert len(desk.entries()) == 2
    laptop.sync()
    report = desk.sync()
    assert (report.problems, report.incomplete) == ((), ())
    assert sorted(desk.entries()) == sorted(laptop.entries())


@pytest.mark.files_only
@pytest.mark.parametrize("first", [0, 2])
def test_two_damaged_lines_in_a_row_are_damage(peers, first):
    laptop, desk = peers
    for number in range(6):
        laptop.add(f"note {number}")
    laptop.sync()
    lines = log_of(laptop).read_bytes().splitlines(keepends=True)
    lines[first : first + 2] = [b"garbage line\n"] * 2
    log_of(laptop).write_bytes(b"".join(lines))
    report = desk.sync()
    assert f"line {first + 1} of 0001.jsonl is damaged" in report.problems[0]
    assert report.incomplete == ()


@pytest.mark.files_only
def test_a_damaged_end_of_a_segment_is_damage_too(peers, monkeypatch):
    monkeypatch.setattr(state, "SEGMENT_BYTES", 1000)
    laptop, desk = peers
    for number in range(30):
        laptop.add(f"note {number} of the laptop")
    laptop.sync()
    damage(log_of(laptop), b'"type":"end"', b'"type":"enf"')
    (problem,) = desk.sync().problems
    assert "0001.jsonl is damaged" in problem
    laptop.sync()
    assert desk.sync().problems == ()
    assert sorted(desk.entries()) == sorted(laptop.entries())


@pytest.mark.files_only
def test_what_is_named_like_a_segment_and_is_no_file_is_named(peers):
    laptop, desk = peers
    laptop.add("likes tea")
    laptop.sync()
    log_of(laptop).with_name("0002.jsonl").mkdir()
    (problem,) = desk.sync().problems
    assert "0002.jsonl: can't be read: is not a regular file" in problem


@pytest.mark.files_only
def test_conflict_copies_and_other_files_are_not_read(peers):
    laptop, desk = peers
    laptop.add("likes tea")
    laptop.sync()
    log = log_of(laptop)
    for name in ("0001 (conflicted copy).jsonl", "0001.sync-conflict-20261118.jsonl", ".0001.tmp"):
        log.with_name(name).write_bytes(b"rubbish\n" + log.read_bytes())
    (laptop.shared / ".git").mkdir()
    (laptop.shared / "notes.txt").write_text("mine")
    report = desk.sync()
    assert not report.problems
    assert not report.incomplete
    assert desk.entries() == ["likes tea"]


@pytest.mark.files_only
def test_a_log_of_a_newer_version_is_refused_and_the_others_are_read(peers, tmp_path):
    laptop, desk = peers
    third = Peer(tmp_path, 2, laptop.shared)
    laptop.add("likes tea")
    third.add("has a dog")
    laptop.sync()
    third.sync()
    log = log_of(laptop)
    log.write_bytes(log.read_bytes().replace(b'"version":1', b'"version":2', 1))
    report = desk.sync()
    (problem,) = report.problems
    assert "has format 2, and this version knows 1" in problem
    assert "\n" not in problem
    assert desk.entries() == ["has a dog"]


@pytest.mark.files_only
@pytest.mark.parametrize(
    "record",
    [
        {"type": "note", "notebook": "memory", "text": ["x"]},
        {"type": "note", "notebook": "user/../../x", "text": "x", "person": ["..", ".."]},
        {"type": "note", "notebook": "memory", "text": "x", "person": 5},
        {"type": "note", "notebook": "memory", "text": "  "},
        {"type": "remove", "tags": [["vm"]]},
        {"type": "session", "session": "abc"},
        {"type": "message", "session": "abc", "id": ["x"]},
        {"type": "message", "session": "abc", "id": "x", "role": "user", "content": "x", "at": "?"},
        {"type": "delete", "session": "abc"},
        {"type": "replace", "session": "abc", "id": "x"},
        {**NOTE, "text": HALF},
        {**NOTE, "origin": HALF},
        {**NOTE, "replaces": [["vm", 2**63]]},
        {**NOTE, "as": ["vm", 10**25]},
        {**NOTE, "as": ["vm", 1.5]},
        {**NOTE, "as": [HALF, 1]},
        {"type": "remove", "tags": [["vm", 10**30]]},
        {"type": "remove", "tags": [["vm", float("inf")]]},
        {"type": "remove", "tags": [["vm", -1]]},
        {"type": "remove", "tags": [[5, 1]]},
        {"type": "unknown", "as": ["vm", 2**63]},
        {**SESSION, "id": HALF},
        {**SESSION, "title": HALF, "stamp": 1.0},
        {**SESSION, "title": "x", "stamp": float("nan")},
        {**SESSION, "title": "x", "stamp": 1e300},
        {**SESSION, "started": float("inf")},
        {**SESSION, "ended": float("nan")},
        {**SESSION, "user_id": 5},
        {**MESSAGE, "at": 10**400},
        {**MESSAGE, "at": float("inf")},
        {**MESSAGE, "at": float("nan")},
        {**MESSAGE, "at": "5"},
        {**MESSAGE, "content": HALF},
        {**MESSAGE, "content": None},
        {**MESSAGE, "extra": [["a", 1]]},
        {"type": "delete", "session": "abc", "seen": {"vm": 10**30}},
        {"type": "delete", "session": "abc", "seen": {HALF: 1}},
    ],
    ids=lambda record: json.dumps(record)[:60],
)
def test_a_log_that_makes_no_sense_does_not_keep_the_others_from_syncing(peers, record):
    laptop, desk = peers
    laptop.add("likes tea")
    laptop.sync()
    write_odd_log(desk, record)
    desk.add("has a dog")
    report = desk.sync()
    (problem,) = report.problems
    assert f"line 1 ({record['type']}) can't be used" in problem
    assert report.sent.notes == 1
    assert sorted(desk.entries()) == ["has a dog", "likes tea"]
    assert not desk.sessions()
    assert desk.sync().problems == report.problems
    assert laptop.sync().received.notes == 1


def write_odd_log(peer: Peer, *records: dict[str, Any], header: bytes = b"") -> None:
    """The log of a machine whose lines are whole, whatever they say."""
    facts = {"type": "header", "format": "hermes-sync", "version": 1, "machine": "odd-00000000"}
    content, before = b"", seed("odd-00000000", 1)
    for number, each in enumerate((facts, *records)):
        line, before = encoded({"seq": number, **each}, before)
        content += line
    folder = peer.shared / "odd-00000000"
    folder.mkdir(exist_ok=True)
    (folder / "0001.jsonl").write_bytes(header or content)


@pytest.mark.files_only
def test_a_header_that_is_no_record_does_not_keep_the_others_from_syncing(peers):
    _, desk = peers
    text = b',"seq":0,"type":"header","name":'
    check = sha256(seed("odd-00000000", 1).encode() + text[1:]).hexdigest()[:16].encode()
    write_odd_log(desk, header=b'{"sum":"%s"%s\n' % (check, text))
    desk.add("likes tea")
    report = desk.sync()
    (problem,) = report.problems
    assert "its header can't be used" in problem
    assert report.sent.notes == 1


@pytest.mark.files_only
def test_notes_that_are_gone_again_need_no_room(peers, monkeypatch):
    monkeypatch.setattr(notes_text, "MAX_BYTES", 120)
    monkeypatch.setattr(sync_notes, "MAX_BYTES", 120)
    laptop, desk = peers
    for letter in "abcd":
        for each in laptop.entries():
            laptop.remove(each)
        laptop.add(letter * 60)
        laptop.sync()
    assert desk.sync().problems == ()
    assert desk.entries() == ["d" * 60]


@pytest.mark.files_only
@pytest.mark.parametrize("sizes", [[100], [40, 40]])
def test_notes_that_would_make_the_notebook_unreadable_are_not_read(peers, monkeypatch, sizes):
    monkeypatch.setattr(notes_text, "MAX_BYTES", 120)
    monkeypatch.setattr(sync_notes, "MAX_BYTES", 120)
    laptop, desk = peers
    desk.add("b" * 60)
    write_odd_log(desk, *({**NOTE, "text": "e" * size} for size in sizes))
    report = desk.sync()
    (problem,) = report.problems
    assert "its notes are too many for MEMORY.md" in problem
    assert report.sent.notes == 1
    assert desk.entries() == ["b" * 60]
    write_odd_log(desk, {**NOTE, "text": "e" * 40})
    assert desk.sync().problems == ()
    assert desk.entries() == ["b" * 60, "e" * 40]
    laptop.add("c" * 80)
    laptop.sync()
    assert "its notes are too many" in desk.sync().problems[0]


@pytest.mark.files_only
def test_a_copied_home_gets_its_own_id_and_nothing_is_lost(peers, tmp_path):
    laptop, desk = peers
    laptop.add("from before")
    laptop.sync()
    copy = Peer(tmp_path, 3, laptop.shared)
    shutil.rmtree(copy.home)
    shutil.copytree(laptop.home, copy.home)
    laptop.add("from the laptop")
    copy.add("from the copy")
    laptop.sync()
    (said,) = copy.sync().messages
    assert "was also written by another home" in said
    assert log_of(copy) != log_of(laptop)
    for peer in (laptop, desk, copy):
        peer.sync()
        assert sorted(peer.entries()) == ["from before", "from the copy", "from the laptop"]


@pytest.mark.files_only
def test_copies_that_wrote_at_the_same_time_lose_nothing(peers, tmp_path):
    """A service keeps one of two versions of a file, and makes a conflict copy of the other."""
    laptop, desk = peers
    laptop.add("from before")
    laptop.sync()
    copy = Peer(tmp_path, 3)
    shutil.rmtree(copy.home)
    shutil.rmtree(copy.shared)
    shutil.copytree(laptop.home, copy.home)
    shutil.copytree(laptop.shared, copy.shared)
    for peer, text in ((laptop, "from the laptop"), (copy, "from the copy")):
        peer.add(text)
        peer.say(f"s of {text}", f"said {text}")
        peer.sync()
    name = log_of(laptop).parent.name
    shutil.copy(log_of(laptop), copy.shared / name / "0001.jsonl")
    copy.shared = laptop.shared
    for peer in (copy, laptop, desk, copy):
        peer.sync()
    assert copy.everything() == laptop.everything() == desk.everything()
    assert sorted(desk.entries()) == ["from before", "from the copy", "from the laptop"]


@pytest.mark.files_only
def test_a_restored_home_goes_on_and_brings_nothing_back(peers, tmp_path):
    laptop, desk = peers
    for text in ("stays", "will be removed"):
        laptop.add(text)
    laptop.say("s-1", "will be deleted")
    laptop.say("s-2", "stays")
    for peer in (laptop, desk, laptop):
        peer.sync()
    shutil.copytree(laptop.home, tmp_path / "backup")
    desk.remove("will be removed")
    desk.delete("s-1")
    laptop.add("after the backup")
    for peer in (desk, laptop, desk):
        peer.sync()
    shutil.rmtree(laptop.home)
    shutil.copytree(tmp_path / "backup", laptop.home)
    for peer in (laptop, desk, laptop):
        peer.sync()
    assert laptop.everything() == desk.everything()
    assert sorted(laptop.entries()) == ["after the backup", "stays"]
    assert laptop.said() == ["stays"]


@pytest.mark.files_only
def test_a_missing_notes_file_is_not_taken_for_a_removal(peers):
    laptop, desk = peers
    laptop.add("likes tea")
    desk.add("has a dog")
    for peer in (laptop, desk, laptop):
        peer.sync()
    (laptop.home / "memories" / "MEMORY.md").unlink()
    (said,) = laptop.sync().messages
    assert "MEMORY.md was missing" in said
    desk.sync()
    assert sorted(laptop.entries()) == sorted(desk.entries()) == ["has a dog", "likes tea"]


@pytest.mark.files_only
def test_a_lost_archive_deletes_nothing_elsewhere(peers):
    laptop, desk = peers
    laptop.say("s-1", "hello")
    for peer in (laptop, desk):
        peer.sync()
    for each in laptop.home.glob("state.db*"):
        each.unlink()
    for peer in (laptop, desk):
        peer.sync()
    assert desk.said() == ["hello"]


@pytest.mark.files_only
def test_a_folder_may_move_and_an_empty_one_is_not_taken_for_it(peers, tmp_path):
    laptop, _ = peers
    laptop.add("likes tea")
    laptop.sync()
    moved = laptop.shared.rename(tmp_path / "elsewhere")
    laptop.shared.mkdir()  # its disk is not mounted
    with pytest.raises(SyncError, match="not in this folder any more"):
        laptop.sync()
    assert not list(laptop.shared.iterdir())
    laptop.shared = moved
    assert laptop.sync().sent.notes == 0


@pytest.mark.files_only
def test_a_folder_that_can_not_be_used_is_one_line(peers, tmp_path):
    laptop, _ = peers
    with pytest.raises(SyncError, match="no such folder"):
        sync_folder(laptop.home, tmp_path / "nowhere")
    with pytest.raises(SyncError, match="inside of the Hermes home"):
        sync_folder(laptop.home, laptop.home)
    with pytest.raises(SyncError, match="has the Hermes home in it"):
        sync_folder(laptop.home, laptop.home.parent)
    (laptop.home / "sync").mkdir()
    with (
        file_lock(laptop.home / "sync" / "lock", 1),
        pytest.raises(SyncError, match="another sync of this home runs"),
    ):
        laptop.sync()


@pytest.mark.files_only
def test_a_full_disk_is_one_line_and_the_next_run_goes_on(peers, tmp_path):
    laptop, desk = peers
    with small_disk(tmp_path / "disk", "400k") as disk:
        laptop.shared = desk.shared = disk.folder / "home"
        laptop.add("likes tea")
        laptop.sync()
        desk.sync()
        for number in range(40):
            laptop.say("s-1", f"{number} " + "x" * 2000)
        disk.fill(leave=20_000)
        with pytest.raises(SyncError, match="No space left") as raised:
            laptop.sync()
        assert "nothing is lost" in raised.value.hint
        desk.sync()  # reads what is whole
        disk.make_room()
        laptop.sync()
        desk.sync()
        assert desk.everything() == laptop.everything()
        assert len(desk.said()) == 40


# -- while agents run, and after a kill -----------------------------------------------------------


def test_agents_may_write_meanwhile(peers):
    laptop, desk = peers
    stop = threading.Event()
    written: list[str] = []

    def write() -> None:
        while not stop.is_set():
            text = f"said {len(written)}"
            laptop.say(f"s-{len(written) % 3}", text)
            laptop.add(text)
            written.append(text)

    agent = threading.Thread(target=write)
    agent.start()
    try:
        for _ in range(5):
            laptop.sync()
            desk.sync()
    finally:
        stop.set()
        agent.join()
    laptop.sync()
    desk.sync()
    assert laptop.everything() == desk.everything()
    assert sorted(desk.entries()) == sorted(desk.said()) == sorted(written)


KILLED = """
import os, sys
from pathlib import Path
from hermes_builtin.notes import Notebook
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_builtin.sync import state, sync_folder

left = int(sys.argv[3])
state._LINES = 2

def around(owner, name):
    real = getattr(owner, name)
    def wrapped(*arguments, **options):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), 9)
        return real(*arguments, **options)
    setattr(owner, name, wrapped)

for name in ("append", "remove", "replace_message"):
    around(SqliteArchive, name)
around(Notebook, "merge")
for name in ("set_read", "flush", "rewrite"):
    around(state.State, name)
around(os, "fsync")
around(os, "replace")
sync_folder(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.files_only
@pytest.mark.stress
@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_killed_run_is_finished_by_the_next_one(peers, tmp_path):
    laptop, desk = peers
    for number in range(6):
        laptop.add(f"note {number}")
        desk.add(f"other {number}")
        laptop.say("s-1", f"said {number}")
        desk.say("s-2", f"answered {number}")
    for peer in (laptop, desk, laptop):
        peer.sync()
    laptop.remove("note 1")
    desk.remove("note 2")
    desk.say("s-1", "more")
    desk.delete("s-2")
    desk.forget("said 3")
    laptop.say("s-3", "new")
    desk.sync()
    kills = 0
    for step in range(1, 200, scaled(1, 9)):
        shutil.copytree(tmp_path / "home-0", tmp_path / "saved")
        shutil.copytree(laptop.shared, tmp_path / "saved-shared")
        command = [sys.executable, "-P", "-c", KILLED, laptop.home, laptop.shared, str(step)]
        code = subprocess.run(command, check=False, capture_output=True).returncode
        kills += code == -9
        laptop.sync()
        desk.sync()
        assert laptop.everything() == desk.everything()
        assert not {"note 1", "note 2"} & set(laptop.entries())
        assert sorted(laptop.said()) == sorted(
            [*(f"said {n}" for n in range(6) if n != 3), "[forgotten]", "more", "new"]
        )
        if code == 0:
            break
        for name, saved in (("home-0", "saved"), ("shared", "saved-shared")):
            shutil.rmtree(tmp_path / name)
            (tmp_path / saved).rename(tmp_path / name)
        (desk.home / "sync").rename(tmp_path / f"old-{step}")  # it joins again
    assert kills > scaled(20, 2)


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine", in_process=True)


def test_the_command_says_what_it_did(machine, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    machine.run("memory", "add", "likes tea").done()
    other = Peer(tmp_path, 1, shared)
    other.say("s-1", "hello")
    other.sync()
    with machine.unchanged():
        planned = machine.json("sync", str(shared), "--dry-run")
    assert planned["dry_run"] is True
    assert (planned["sent"]["notes"], planned["received"]["messages"]) == (1, 1)
    assert len(list(shared.iterdir())) == 1
    shown = machine.run("sync", str(shared)).done().lines
    assert shown == [
        f"Synced {shared} (2 machines).",
        "sent:     1 note",
        "received: 1 message in 1 conversation",
    ]
    done = machine.json("sync", str(shared))
    assert done["conflicts"] == []
    assert not any(done["sent"].values())


def test_a_problem_is_an_exit_code_and_an_error_one_line(machine, tmp_path):
    shared = tmp_path / "shared"
    failed = machine.run("sync", str(shared))
    assert failed.code == 1
    assert failed.err.splitlines()[0] == f"hermes-plugins: {shared}: no such folder"
    shared.mkdir()
    folder = shared / "desk-0123abcd"
    folder.mkdir()
    header = {"sum": "0" * 16, "seq": 0, "type": "header", "format": "hermes-sync", "version": 9}
    (folder / "0001.jsonl").write_text(json.dumps(header) + "\n")
    result = machine.run("sync", str(shared))
    assert result.code == 1
    assert "has format 9" in result.err
