"""Machines that share a folder, each with its own copy of it, as a service keeps them."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from hermes_builtin.notes import COMMAND, Author, Notes, operation
from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, SessionFacts
from hermes_builtin.sessions.location import locate
from hermes_builtin.sync import SyncReport, sync_folder
from hermes_core.config import load_config
from hermes_core.storage.search import Needles
from support.storages import Storage


class Peer:
    """A machine: its home, and its copy of the shared folder."""

    def __init__(self, folder: Path, number: int, shared: Path | None = None) -> None:
        self.number = number
        self.home = folder / f"home-{number}"
        self.home.mkdir(parents=True)
        self.shared = shared or folder / f"shared-{number}"
        self.shared.mkdir(exist_ok=True)
        storage = Storage.current
        lines = storage.config.replace(storage.namespace, f"{storage.namespace}-{number}")
        limits = "  memory_char_limit: 1000000\n"
        (self.home / "config.yaml").write_text(
            f"memory:\n  user_notes: per-user\n{limits}{lines}", "utf-8"
        )
        self.now = 1000.0 + number / 100
        #: The logs that this machine has ever written.
        self.logs: set[str] = set()

    def sync(self, **options) -> SyncReport:
        try:
            return sync_folder(self.home, self.shared, clock=self.clock, **options)
        finally:
            self.logs |= {each.stem for each in (self.home / "sync").glob("*.db")}

    def clock(self) -> float:
        self.now += 1
        return self.now

    # -- notes

    def notes(self) -> Notes:
        return Notes.open(self.home, load_config(self.home).memory)

    def change(self, action: str, content: str | None, old: str | None = None) -> None:
        with closing(self.notes()) as notes:
            notes.change("memory", [operation(action, content, old)], Author(COMMAND))

    def add(self, text: str) -> None:
        self.change("add", text)

    def remove(self, text: str) -> None:
        self.change("remove", None, text)

    def replace(self, old: str, new: str) -> None:
        self.change("replace", new, old)

    def entries(self) -> list[str]:
        with closing(self.notes()) as notes:
            return notes.notebooks["memory"].read().entries

    def forget_note(self, text: str) -> None:
        with closing(self.notes()) as notes:
            notes.notebooks["memory"].forget(Needles.of(text).found_in)

    # -- conversations

    def say(
        self, session: str, *texts: str, title: str = "", role: str = "user", at: float = 0.0
    ) -> None:
        with closing(locate(self.home).open()) as archive:
            facts = SessionFacts(session, source="cli", title=title)
            archive.append(facts, [NewMessage(role, each, at or self.clock()) for each in texts])

    def delete(self, session: str) -> list[str]:
        """Delete a session; returns what was said in it."""
        with closing(locate(self.home).open()) as archive:
            found = archive.session(session, EVERYBODY)
            if found is None:
                return []
            texts = [each.content for each in archive.messages(found)]
            archive.delete([found])
            return texts

    def forget(self, text: str) -> None:
        with closing(locate(self.home).open()) as archive:
            archive.replace_texts(Needles.of(text).found_in)

    def sessions(self) -> dict[str, tuple[str, list[str]]]:
        """The title and the sorted messages of each session."""
        with closing(locate(self.home).open()) as archive:
            return {
                each.name or each.id: (
                    each.title,
                    sorted(f"{m.at!r} {m.role} {m.content}" for m in archive.messages(each)),
                )
                for each in archive.sessions(EVERYBODY)
                if each.messages
            }

    def said(self) -> list[str]:
        return [text.split(" ", 2)[2] for _, texts in self.sessions().values() for text in texts]

    def everything(self) -> tuple[list[str], dict[str, tuple[str, list[str]]]]:
        return sorted(self.entries()), self.sessions()

    def shared_bytes(self) -> bytes:
        return b"".join(each.read_bytes() for each in sorted(self.shared.rglob("*.jsonl")))


def transfer(source: Peer, target: Peer, cut: random.Random | None = None) -> None:
    """Copy the logs that the machine of a folder has written, maybe only a part of each."""
    for log in sorted(each for each in source.shared.iterdir() if each.is_dir()):
        if is_of(log.name, target):
            continue  # only the machine itself writes its log
        if cut is not None and cut.random() < 0.5:
            continue  # so that effects arrive before their causes
        names = sorted(each.name for each in log.glob("*.jsonl"))
        for name in names:
            content = (log / name).read_bytes()
            copy = target.shared / log.name / name
            copy.parent.mkdir(exist_ok=True)
            is_owner = is_of(log.name, source)
            if not is_owner and copy.exists() and copy.stat().st_size >= len(content):
                continue
            if cut is not None and cut.random() < 0.3:
                content = content[: cut.randrange(len(content) + 1)]
            copy.write_bytes(content)


def is_of(machine: str, peer: Peer) -> bool:
    return machine in peer.logs


@dataclass
class Expected:
    """What must be there in the end, and what must not."""

    notes: set[str] = field(default_factory=set)
    gone_notes: set[str] = field(default_factory=set)
    said: set[str] = field(default_factory=set)
    gone_said: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
