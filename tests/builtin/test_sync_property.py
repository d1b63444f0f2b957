"""Several machines, random operations, partitions, torn files and crashes: all end up the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import permutations
from pathlib import Path

import pytest
from support.storages import Storage, scaled
from support.synced import Expected, Peer, transfer

from hermes_builtin.notes import Notebook
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_builtin.sync import folder as sync_run
from hermes_builtin.sync import state as sync_state
from hermes_builtin.sync.notes import NotesSync

pytestmark = [
    pytest.mark.scaled,
    pytest.mark.files_only("about logs and crashes; test_sync.py runs over both storages"),
]
SESSIONS = [f"s-{number}" for number in range(6)]
#: What is said again and again, also at the same time.
COMMON = ["continue", "yes"]


class Crash(BaseException):
    """The process ends here."""


@contextmanager
def crashing(patch: pytest.MonkeyPatch, chance: random.Random) -> Iterator[None]:
    """End somewhere in a run: before or after something is stored, or in the middle of a line."""
    left = chance.randrange(1, 12)

    def step() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise Crash

    def around(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def wrapped(*arguments, **options):
            step()
            result = real(*arguments, **options)
            step()
            return result

        patch.setattr(owner, name, wrapped)

    def torn(path: Path, end: int, content: bytes) -> None:
        try:
            step()
        except Crash:
            write(path, end, content[: chance.randrange(len(content))])
            raise
        write(path, end, content)

    write = sync_state._append_to
    with patch.context() as inner:
        patch = inner
        around(SqliteArchive, "append")
        around(SqliteArchive, "remove")
        around(SqliteArchive, "replace_message")
        around(Notebook, "merge")
        around(sync_state.State, "set_read")
        around(sync_state, "replace_file")
        inner.setattr(sync_state, "_append_to", torn)
        with suppress(Crash):
            yield


class World:
    """Machines, and what must become of what they do."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        patch: pytest.MonkeyPatch,
        *,
        damages: bool = False,
        repeats: bool = False,
    ) -> None:
        self.damages, self.repeats = damages, repeats
        self.chance = random.Random(seed)
        # Logs are read in the order of these ids.
        ids = random.Random(seed)
        patch.setattr(sync_run, "new_machine_id", lambda: f"machine-{ids.randrange(16**8):08x}")
        self.peers = [Peer(folder, number) for number in range(3)]
        self.expected = Expected()
        self._patch = patch
        self._number = 0

    def text(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._number}-{self.chance.randrange(10**6)}-end"

    def step(self) -> None:
        kinds = {
            "add": 10, "remove": 5, "replace": 5, "say": 25, "delete": 4, "forget": 3,
            "forget_note": 1, "sync": 20, "crash": 5, "transfer": 25, "damage": int(self.damages),
            "repeat": 25 * self.repeats,
        }  # fmt: skip
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        getattr(self, kind)(self.chance.choice(self.peers))

    def add(self, peer: Peer) -> None:
        text = self.text("note")
        peer.add(text)
        self.expected.notes.add(text)

    def remove(self, peer: Peer) -> None:
        if entries := peer.entries():
            text = self.chance.choice(entries)
            peer.remove(text)
            self.expected.gone_notes.add(text)

    def forget_note(self, peer: Peer) -> None:
        if entries := peer.entries():
            text = self.chance.choice(entries)
            peer.forget_note(text)
            self.expected.gone_notes.add(text)
            self.expected.forgotten.add(text)

    def replace(self, peer: Peer) -> None:
        if entries := peer.entries():
            old, new = self.chance.choice(entries), self.text("note")
            peer.replace(old, new)
            self.expected.gone_notes.add(old)
            self.expected.notes.add(new)

    def say(self, peer: Peer) -> None:
        text = self.text("said")
        title = self.text("title") if self.chance.random() < 0.2 else ""
        peer.say(self.chance.choice(SESSIONS), text, title=title)
        self.expected.said.add(text)

    def repeat(self, peer: Peer) -> None:
        """Say what was said before, as an import does whose messages have no times."""
        text, at = self.chance.choice(COMMON), self.chance.choice([1.0, 2.0])
        peer.say(self.chance.choice(SESSIONS[:2]), *[text] * self.chance.choice([1, 1, 2]), at=at)

    def delete(self, peer: Peer) -> None:
        gone = set(peer.delete(self.chance.choice(SESSIONS)))
        self.expected.gone_said |= gone
        self.expected.forgotten |= gone - {"[forgotten]", *COMMON}

    def forget(self, peer: Peer) -> None:
        if said := [each for each in peer.said() if each != "[forgotten]"]:
            text = self.chance.choice(said)
            peer.forget(text)
            self.expected.gone_said.add(text)
            self.expected.forgotten |= {text} - {*COMMON}

    def sync(self, peer: Peer) -> None:
        peer.sync()

    def crash(self, peer: Peer) -> None:
        with crashing(self._patch, self.chance):
            peer.sync()

    def transfer(self, peer: Peer) -> None:
        other = self.chance.choice([each for each in self.peers if each is not peer])
        transfer(peer, other, self.chance)

    def damage(self, peer: Peer) -> None:
        """Something changes a file of the folder, of the machine's own log or of another's."""
        logs = sorted(peer.shared.rglob("*.jsonl"))
        # A log that its machine has given up is nobody's to repair.
        if logs := [each for each in logs if self.is_used(each)]:
            log = self.chance.choice(logs)
            content = bytearray(log.read_bytes())
            content[self.chance.randrange(len(content))] ^= 1
            log.write_bytes(content)

    def is_used(self, log: Path) -> bool:
        name = log.parent.name
        return any((each.home / "sync" / f"{name}.db").exists() for each in self.peers)

    def settle(self) -> None:
        """Everybody syncs, and all files arrive."""
        for _ in range(4):
            for peer in self.peers:
                peer.sync()
                for source, target in permutations(self.peers, 2):
                    transfer(source, target)


def check(world: World) -> None:
    """The same everywhere, nothing lost, nothing back."""
    # Who says again what a damaged log said may do so after another machine has deleted it: then a
    # title, which has no text of its own, may be on one of them only.
    first, *others = [without_titles(each) if world.damages else each.everything()
                      for each in world.peers]  # fmt: skip
    for each in others:
        assert each == first
    expected = world.expected
    assert set(first[0]) == expected.notes - expected.gone_notes
    said = set(world.peers[0].said()) - {"[forgotten]", *COMMON}
    assert said == expected.said - expected.gone_said
    for peer in world.peers:
        logs = (each for each in peer.shared.rglob("*.jsonl") if world.is_used(each))
        content = "".join(each.read_text("utf-8") for each in logs)
        assert not [text for text in expected.forgotten if text in content]
        report = peer.sync()
        assert not any(vars_of(report.sent)), report
        assert not any(vars_of(report.received)), report


def check_deletion(world: World) -> None:
    """What one of them deletes is deleted everywhere."""
    for session in SESSIONS:
        world.peers[0].delete(session)
    world.settle()
    assert [peer.sessions() for peer in world.peers] == [{}] * 3


def without_titles(peer: Peer) -> tuple[list[str], dict[str, list[str]]]:
    notes, sessions = peer.everything()
    return notes, {session: texts for session, (_, texts) in sessions.items()}


def vars_of(amounts) -> list[int]:
    return [getattr(amounts, name) for name in amounts.__dataclass_fields__]


@pytest.mark.parametrize("kinds", [(), ("damages",), ("repeats",)], ids=" ".join)
@pytest.mark.parametrize("seed", range(4))
def test_machines_end_up_with_the_same_in_whatever_order_they_sync(
    seed, kinds, tmp_path, monkeypatch
):
    if seed >= scaled(4, 2):
        pytest.skip("make stress runs all of them")
    monkeypatch.setattr(sync_state, "SEGMENT_BYTES", 4000)
    monkeypatch.setattr(sync_state, "_LINES", 3)
    monkeypatch.setattr(Storage, "current", Storage())
    world = World(tmp_path, seed, monkeypatch, **dict.fromkeys(kinds, True))
    for _ in range(scaled(1000, 120)):
        world.step()
    world.settle()
    check(world)
    check_deletion(world)


@pytest.fixture
def peers(tmp_path, monkeypatch) -> list[Peer]:
    monkeypatch.setattr(Storage, "current", Storage())
    return [Peer(tmp_path, number, tmp_path / "shared") for number in range(3)]


def after_append(archive, facts, messages, **options):
    append(archive, facts, messages, **options)
    if messages:
        raise Crash


def before_set_read(state, machine, column, seq):
    if machine != state.machine and column == "sessions":
        raise Crash
    set_read(state, machine, column, seq)


append, set_read = SqliteArchive.append, sync_state.State.set_read


@pytest.mark.parametrize(
    ("owner", "name", "crashing"),
    [
        (SqliteArchive, "append", after_append),
        (sync_state.State, "set_read", before_set_read),
    ],
)
def test_what_is_forgotten_after_a_crash_does_not_come_back(
    peers, monkeypatch, owner, name, crashing
):
    laptop, desk, tablet = peers
    laptop.say("s-1", "the secret")
    laptop.say("s-1", "the rest")
    laptop.sync()
    tablet.say("s-2", "said elsewhere")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crashing)
        with pytest.raises(Crash):
            desk.sync()
    assert sorted(desk.said()) == ["the rest", "the secret"]
    desk.forget("the secret")
    for peer in (tablet, desk, laptop, tablet):
        peer.sync()
    for peer in peers:
        assert sorted(peer.said()) == ["[forgotten]", "said elsewhere", "the rest"]
    assert b"the secret" not in desk.shared_bytes()


def test_what_is_forgotten_does_not_come_back_from_the_log_of_another_machine(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(Storage, "current", Storage())
    laptop, desk, tablet = peers = [Peer(tmp_path, number) for number in range(3)]
    for peer in (laptop, tablet):  # both have imported it
        peer.now = 2000.0
        peer.say("s-1", "the secret")
        peer.sync()
    transfer(laptop, desk)
    desk.sync()
    desk.forget("the secret")
    transfer(tablet, desk)
    for peer in (desk, laptop, tablet, desk):
        peer.sync()
        for source, target in permutations(peers, 2):
            transfer(source, target)
    assert [peer.said() for peer in peers] == [["[forgotten]"]] * 3
    assert not any(b"the secret" in peer.shared_bytes() for peer in peers)


@pytest.mark.parametrize("change", ["delete", "forget", "forget_note"])
def test_a_text_leaves_the_log_though_the_run_that_said_so_was_interrupted(
    peers, monkeypatch, change
):
    laptop = peers[0]
    laptop.say("s-1", "the secret")
    laptop.add("the secret note")
    laptop.sync()
    getattr(laptop, change)({"delete": "s-1"}.get(change, "the secret"))

    def crash(*_, **__):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(NotesSync, "apply", crash)
        with pytest.raises(Crash):
            laptop.sync()
    laptop.sync()
    gone = b"the secret note" if change == "forget_note" else b'"the secret"'
    assert gone not in laptop.shared_bytes()


@pytest.mark.parametrize("is_added_here", [False, True])
def test_a_note_that_is_removed_elsewhere_after_a_crash_here_does_not_come_back(
    peers, monkeypatch, is_added_here
):
    laptop, desk, _ = peers
    laptop.add("the old note")
    for peer in (laptop, desk):
        peer.sync()
    laptop.add("the note")
    laptop.sync()

    def after_merge(*arguments, **options):
        merge(*arguments, **options)
        raise Crash

    merge = Notebook.merge
    with monkeypatch.context() as patch:
        patch.setattr(Notebook, "merge", after_merge)
        with pytest.raises(Crash):
            desk.sync()
    assert desk.entries() == ["the old note", "the note"]
    laptop.remove("the note")
    laptop.sync()
    if is_added_here:
        desk.remove("the note")
        desk.add("the note")
    for peer in (desk, laptop, desk):
        peer.sync()
    expected = ["the old note", *(["the note"] if is_added_here else [])]
    assert desk.entries() == laptop.entries() == expected
