"""`export` and `import`: the same lines after a way through another home, and nothing twice."""

from __future__ import annotations

import json
import os
import tempfile
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.commands import Machine
from support.storages import Storage

from hermes_builtin import portable, portable_notes
from hermes_builtin.notes import COMMAND, Author, Notes, Person, operation
from hermes_builtin.portable import PortableError, export_file, import_file
from hermes_builtin.sessions import session_merge
from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, SessionFacts
from hermes_builtin.sessions.location import locate
from hermes_core import HermesError, MemoryManager
from hermes_core.config import load_config

FAST = True
ADA = Person("telegram", "100")


def new_home(folder: Path, number: int = 0) -> Path:
    """An empty home, in its own namespace."""
    home = folder / f"home-{number}"
    home.mkdir(parents=True)
    storage = Storage.current
    lines = storage.config.replace(storage.namespace, f"{storage.namespace}-{number}")
    (home / "config.yaml").write_text(f"memory:\n  user_notes: per-user\n{lines}")
    return home


def notes_of(home: Path, person: Person | None = None) -> Notes:
    return Notes.open(home, load_config(home).memory, person)


def add(home: Path, text: str, target: str = "memory", person: Person | None = None) -> None:
    with closing(notes_of(home, person)) as notes:
        notes.change(target, [operation("add", text, None)], Author(COMMAND))


def fill(home: Path) -> None:
    for text in ("likes green tea", "lives in Kyïv\nsince 2020", "is gone"):
        add(home, text)
    add(home, "has a dog", "user", ADA)
    with closing(notes_of(home)) as notes:
        notes.change("memory", [operation("remove", None, "is gone")], Author("tool", "s-1"))
        notes.history.record_origins({"likes green tea": "web"})
        notes.pending.stage("memory", [operation("add", "waits", None)], Author("tool", "s-1"))
    with closing(locate(home).open()) as archive:
        call = {"id": "c1", "function": {"name": "map", "arguments": "{}"}}
        said = [
            NewMessage("user", "Where?", 1000.5),
            NewMessage("assistant", "", 1001.0, {"tool_calls": [call]}),
            NewMessage("tool", "a map\u2028", 1002.0, {"tool_name": "map"}),
            NewMessage("user", "yes", 1003.0),
            NewMessage("user", "yes", 1003.0),
            NewMessage("critic", "hm", 1004.0),
        ]
        archive.append(SessionFacts("s-1", source="cli", title="A title", started=999.0), said)
        archive.append(
            SessionFacts("s-1", source="telegram", user_id="100", chat_id="7"),
            [NewMessage("user", "the same name", 5.0)],
        )
        archive.append(SessionFacts("s-2", parent="s-1", source="cli"), said[:1])
        archive.end("s-2", 2000.0, EVERYBODY)


def exported(home: Path) -> bytes:
    file = home.parent / f"{os.urandom(4).hex()}.jsonl"
    export_file(home, file)
    content = file.read_bytes()
    file.unlink()
    return content


def records(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.decode().split("\n") if line]


@pytest.fixture
def home(both_storages: Storage, tmp_path: Path) -> Path:
    made = new_home(tmp_path)
    fill(made)
    return made


def imported(content: bytes, home: Path) -> portable.Counts:
    file = home.parent / "import.jsonl"
    file.write_bytes(content)
    return import_file(home, file)


def test_an_export_of_an_import_is_the_same_byte_by_byte(home, tmp_path):
    first = exported(home)
    of_providers = {"provider", "memory"}
    assert {each["type"] for each in records(first)} == set(portable._FIELDS) - of_providers
    other = new_home(tmp_path, 1)
    counts = imported(first, other)
    assert (counts.sessions, counts.messages, counts.known) == (3, 8, 0)
    assert exported(other) == first
    assert exported(home) == first


def test_importing_twice_changes_nothing(home, tmp_path):
    content = exported(home)
    other = new_home(tmp_path, 1)
    imported(content, other)
    again = imported(content, other)
    assert (again.notes, again.changes, again.sessions, again.messages, again.pending) == (0,) * 5
    assert exported(other) == content
    imported(content, home)
    assert exported(home) == content


def test_a_home_with_content_keeps_it_and_gets_what_it_does_not_have(home, tmp_path):
    other = new_home(tmp_path, 1)
    add(other, "was here before")
    add(other, "likes green tea")
    with closing(locate(other).open()) as archive:
        said = [NewMessage("user", "Where?", 1000.5), NewMessage("user", "Here.", 1000.7)]
        archive.append(SessionFacts("s-1", source="cli"), said)
    counts = imported(exported(home), other)
    assert (counts.notes, counts.messages) == (2, 7)
    with closing(notes_of(other)) as notes:
        entries = notes.book("memory").read().entries
        assert entries == ["was here before", "likes green tea", "lives in Kyïv\nsince 2020"]
        # A file does not change what this home knows of a text.
        assert notes.history.recorded_origins(entries)["likes green tea"] == "person"
        assert notes.history.last("memory").who == "import"
    with closing(locate(other).open()) as archive:
        session = archive.session("s-1", EVERYBODY)
        texts = [each.content for each in archive.messages(session)]
        assert texts.count("Where?") == 1
        assert texts[:2] == ["Where?", "Here."]
    assert imported(exported(home), other).messages == 0


def test_a_file_gives_no_authority_to_a_text_that_came_from_elsewhere(home, tmp_path):
    other = new_home(tmp_path, 1)
    add(other, "was here before")
    text = "lives in Kyïv\nsince 2020"
    with closing(notes_of(other)) as notes:
        notes.history.record_origins({text: "web"})
    imported(exported(home), other)
    with closing(notes_of(other)) as notes:
        assert set(notes.external_texts()) == {("likes green tea", "web"), (text, "web")}


def test_notes_keep_their_history_and_can_be_undone(home, tmp_path):
    other = new_home(tmp_path, 1)
    imported(exported(home), other)
    with closing(notes_of(other)) as notes:
        notes.undo(None, Author(COMMAND))
        assert "is gone" in notes.book("memory").read().entries
        assert [each.who for each in notes.history.changes("memory")][-1] == "command"
        assert notes.external_texts() == [("likes green tea", "web")]
    with closing(notes_of(other, ADA)) as notes:
        assert notes.notebooks["user"].read().entries == ["has a dog"]


def test_a_long_history_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(portable_notes, "_SOME_ORIGINS", 100)
    home = tmp_path / "home"
    home.mkdir()
    texts = [f"note {number} {'x' * 10_000}" for number in range(2000)]
    lines: list[dict[str, Any]] = [
        {"type": "header", "format": "hermes-memory", "version": 1},
        *(
            {"type": "change", "notebook": "memory", "at": float(at), "who": "command",
             "action": "replace", "after": text, "origins": {f"origin {at}": "web"}}
            for at, text in enumerate(texts)
        ),
        {"type": "note", "notebook": "memory", "text": texts[-1], "origin": "web"},
    ]  # fmt: skip
    file = tmp_path / "long.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    tracemalloc.start()
    try:
        counts = import_file(home, file)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (counts.notes, counts.changes) == (1, 2000)
    assert most < file.stat().st_size // 3
    with closing(notes_of(home)) as notes:
        assert notes.book("memory").read().entries == [texts[-1]]
        newest, before, *_ = notes.history.changes("memory")
        assert (newest.before, before.after, newest.made) == (texts[-2], texts[-2], True)
        assert notes.history.recorded_origins(["origin 0", "origin 1999", texts[-1]]) == {
            "origin 0": "web", "origin 1999": "web", texts[-1]: "web",
        }  # fmt: skip


def test_a_session_of_somebody_else_with_the_same_name_stays_apart(home, tmp_path):
    other = new_home(tmp_path, 1)
    with closing(locate(other).open()) as archive:
        theirs = SessionFacts("s-1", source="slack", user_id="9")
        archive.append(theirs, [NewMessage("user", "private", 1.0)])
    imported(exported(home), other)
    imported(exported(home), other)
    with closing(locate(other).open()) as archive:
        by_user = {
            each.user_id: [message.content for message in archive.messages(each)]
            for each in archive.sessions(EVERYBODY)
            if "s-1" in (each.id, each.name)
        }
    assert by_user["9"] == ["private"]
    assert by_user["100"] == ["the same name"]
    assert len(by_user[""]) == 6


ORIGINS = (
    b'{"type": "change", "notebook": "user", "at": 1, "who": "", "action": "", "after": "",'
    b' "origins": {"x": 1}}'
)
HALF = (
    b'{"type": "session", "id": "x"}\n'
    b'{"type": "message", "session": "x", "role": "user", "at": 1, "content": "\\ud800"}'
)
MEMORY = (
    b'{"type": "memory", "provider": "mem0", "id": "1", "text": "a", "metadata": {"score": SCORE}}'
)
WRONG = {
    "not JSON": (b"{", "line 3: not JSON"),
    "not a record": (b"[]", "line 3: not a record"),
    "unknown": (b'{"type": "thing"}', "line 3: unknown type 'thing'"),
    "missing": (b'{"type": "session"}', "line 3: id is missing"),
    "wrong": (b'{"type": "session", "id": 3}', "line 3: id has a wrong value"),
    "too large": (
        b'{"type": "session", "id": "a", "started": 99999999999999999999}',
        "line 3: started has a wrong value",
    ),
    "enormous": (
        b'{"type": "session", "id": "a", "ended": 1' + b"0" * 400 + b"}",
        "line 3: ended has a wrong value",
    ),
    "infinite": (
        b'{"type": "session", "id": "x", "started": Infinity}',
        "line 3: Infinity is not a number of JSON",
    ),
    "infinite in a memory": (
        MEMORY.replace(b"SCORE", b"-1e999"),
        "line 3: -1e999 is too large for a number",
    ),
    "no number in a memory": (
        MEMORY.replace(b"SCORE", b"NaN"),
        "line 3: NaN is not a number of JSON",
    ),
    "no number in a message": (
        HALF.replace(b'"\\ud800"', b'"", "extra": {"score": [NaN]}'),
        "line 4: NaN is not a number of JSON",
    ),
    "alone": (
        b'{"type": "message", "session": "x", "role": "user", "at": 1, "content": ""}',
        "a message has to follow its session",
    ),
    "notebook": (b'{"type": "note", "notebook": "user/../x", "text": "x"}', "belongs to no person"),
    "person": (
        b'{"type": "person", "notebook": "user/../x", "platform": "a", "user_id": "b"}',
        "not that of this person",
    ),
    "header": (b'{"type": "header", "format": "hermes-memory", "version": 1}', "first line"),
    "origins": (ORIGINS, "wrong value"),
    "half of a pair": (
        b'{"type": "note", "notebook": "memory", "text": "lone \\ud800"}',
        "line 3: half of a surrogate pair",
    ),
    "half in a message": (
        HALF,
        "line 4: half of a surrogate pair",
    ),
    "half in a change": (
        ORIGINS.replace(b'"x": 1', b'"\\udfff": "web"'),
        "line 3: half of a surrogate pair",
    ),
}


@pytest.mark.files_only
@pytest.mark.parametrize("damage", WRONG)
def test_a_wrong_line_is_named_and_nothing_is_imported(home, tmp_path, damage):
    line, problem = WRONG[damage]
    first, second, *rest = exported(home).split(b"\n")
    other = new_home(tmp_path, 1)
    before = exported(other)
    with pytest.raises(PortableError) as error:
        imported(b"\n".join([first, second, line, *rest]), other)
    assert problem in error.value.what
    assert exported(other) == before


def test_a_number_that_json_does_not_have_is_exported_as_text(home, tmp_path):
    with closing(locate(home).open()) as archive:
        extra = {"tool_calls": [{"scores": [float("nan"), float("-inf"), 0.5]}]}
        said = NewMessage("assistant", "", 7.0, extra)
        archive.append(SessionFacts("s-9", source="cli", started=7.0), [said])
    content = exported(home)
    (found,) = [each for each in records(content) if each.get("session") == "s-9"]
    assert found["extra"] == {"tool_calls": [{"scores": ["NaN", "-Infinity", 0.5]}]}
    other = new_home(tmp_path, 1)
    imported(content, other)
    assert exported(other) == content
    assert imported(content, home).messages == 0


def test_a_note_that_somebody_added_to_the_file_is_imported_with_the_history(home, tmp_path):
    content = exported(home)
    notebooks = [each["notebook"] for each in records(content) if each["type"] == "person"]
    added = [
        {"type": "note", "notebook": notebook, "origin": "web", "text": f"added to {notebook}"}
        for notebook in ("memory", *notebooks)
    ]
    content += b"".join(json.dumps(each).encode() + b"\n" for each in added)
    other = new_home(tmp_path, 1)
    counts = imported(content, other)
    assert counts.notes == 5
    with closing(notes_of(other)) as notes:
        found = notes.book("memory").read().entries
        assert found == ["likes green tea", "lives in Kyïv\nsince 2020", "added to memory"]
        assert ("added to memory", "web") in notes.external_texts()
        assert len(notes.history.changes("memory")) == 5
    with closing(notes_of(other, ADA)) as notes:
        assert notes.notebooks["user"].read().entries == ["has a dog", f"added to {notebooks[0]}"]
    again = imported(content, other)
    assert (again.notes, again.changes) == (0, 0)


@pytest.mark.files_only
def test_half_of_a_pair_in_what_is_known_of_a_message_is_repaired(home, tmp_path):
    extra = b'"extra": {"\\ud800": "\\udfff"}'
    message = b'{"type": "message", "session": "x", "role": "user", "at": 1, "content": "a", '
    lines = (b'{"type": "session", "id": "x"}', message + extra + b"}")
    other = new_home(tmp_path, 1)
    imported(b"\n".join([exported(other).strip(), *lines]), other)
    content = exported(other)
    again = new_home(tmp_path, 2)
    imported(content, again)
    assert exported(again) == content


@pytest.mark.files_only
def test_a_session_with_an_empty_id_comes_through(home, tmp_path):
    lines = (
        b'{"type": "session", "id": ""}',
        b'{"type": "message", "session": "", "role": "user", "at": 1, "content": "said"}',
    )
    other = new_home(tmp_path, 1)
    imported(b"\n".join([exported(other).strip(), *lines]), other)
    content = exported(other)
    again = new_home(tmp_path, 2)
    assert imported(content, again).messages == 1
    assert exported(again) == content


@pytest.mark.files_only
def test_other_files_and_newer_formats_are_refused(home, tmp_path):
    for content, problem in {
        b"": "is empty",
        b'{"role": "user"}\n': "not an export",
        b'{"type": "header", "format": "hermes-memory", "version": 2}\n': "format 2",
    }.items():
        with pytest.raises(PortableError, match=problem):
            imported(content, home)
    with pytest.raises(HermesError, match="can't be read"):
        import_file(home, tmp_path / "nothing")
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(HermesError, match="exists already"):
        export_file(home, tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.files_only
def test_an_import_that_stops_in_the_middle_is_finished_by_repeating_it(
    home, tmp_path, monkeypatch
):
    content = exported(home)
    other = new_home(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(session_merge, "BATCH", 2)
        original = session_merge.SessionMerge.store
        stored = []

        def store(self):
            original(self)
            stored.append(1)
            if len(stored) == 3:
                raise KeyboardInterrupt

        patch.setattr(session_merge.SessionMerge, "store", store)
        with pytest.raises(KeyboardInterrupt):
            imported(content, other)
    imported(content, other)
    assert exported(other) == content


@pytest.mark.files_only
@pytest.mark.usefixtures("few_distributions")
def test_the_commands_say_what_they_did(tmp_path):
    machine = Machine(tmp_path, in_process=True)
    manager = MemoryManager.from_config(machine.home)
    manager.initialize_all("session")
    manager.sync_all("Where is the key?", "Under the mat.")
    manager.shutdown_all()
    machine.run("memory", "add", "likes tea").done()
    file = str(tmp_path / "memory.jsonl")
    shown = machine.run("export", file).done().out
    assert shown.startswith("Wrote 1 note and 1 conversation with 2 messages to ")
    other = str(tmp_path / "other")
    shown = machine.run("--home", other, "import", file).done().out
    assert "Imported 1 note and 1 conversation with 2 messages; already stored: 0." in shown
    done = machine.json("--home", other, "import", file)
    assert (done["messages"], done["known"]) == (0, 3)
    assert "likes tea" in machine.run("--home", other, "memory", "show").out
    assert "Under the mat" in machine.run("--home", other, "sessions", "search", "mat").out
    odd = [
        {"type": "header", "format": "hermes-memory", "version": 1},
        *({"type": "pending", "id": each, "record": {"a": 1}} for each in ("../../../evil", "")),
    ]
    (tmp_path / "odd.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in odd))
    result = machine.run("--home", other, "import", str(tmp_path / "odd.jsonl"))
    assert (result.code, "already stored: 0." in result.out) == (0, True)
    assert "left out: 2 pending writes with an id that none can have" in result.err
    (tmp_path / "bad.jsonl").write_text("hello\n")
    assert "not an export" in machine.run("import", str(tmp_path / "bad.jsonl")).failed()


# -- any home ---------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=30)
IDS = st.sampled_from(["a", "b", "c", "ü-1"])
TIMES = st.floats(0, 2e9)
ROLES = st.sampled_from(["user", "assistant", "tool", "critic"])
EXTRAS = st.none() | st.dictionaries(st.sampled_from(["tool_name", "x"]), TEXTS | st.integers())
MESSAGES = st.lists(st.builds(NewMessage, ROLES, TEXTS, TIMES, EXTRAS), max_size=4)
SESSIONS = st.lists(
    st.tuples(
        st.builds(
            SessionFacts,
            IDS,
            source=st.sampled_from(["cli", "telegram", "cron"]),
            user_id=st.sampled_from(["", "1"]),
            chat_id=st.sampled_from(["", "7"]),
            profile=st.sampled_from(["", "work"]),
            title=TEXTS,
            parent=IDS,
            started=TIMES,
            ended=st.none() | TIMES,
            platform=st.sampled_from(["", "cli"]),
            name=st.just(""),
        ),
        MESSAGES,
    ),
    max_size=5,
)
NOTES = st.lists(
    st.tuples(st.sampled_from(["memory", "user"]), st.integers(0, 5), st.booleans()), max_size=8
)


@settings(max_examples=15, phases=[Phase.explicit, Phase.generate])  # shrinking takes minutes
@given(SESSIONS, NOTES)
def test_whatever_is_in_a_home_comes_through(sessions, noted):
    with tempfile.TemporaryDirectory() as folder:
        home, other = (Path(folder) / name for name in ("home", "other"))
        for each in (home, other):
            each.mkdir()
        with closing(locate(home).open()) as archive:
            for facts, messages in sessions:
                archive.append(facts, messages)
        with closing(notes_of(home)) as notes:
            for target, number, adds in noted:
                book = notes.notebooks[target]
                if adds:
                    wanted = operation("add", f"fact {number}", None)
                elif f"fact {number}" in book.read().entries:
                    wanted = operation("remove", None, f"fact {number}")
                else:
                    continue
                book.change([wanted], Author("tool"))
        first = exported(home)
        imported(first, other)
        assert exported(other) == first
        imported(first, other)
        assert exported(other) == first
