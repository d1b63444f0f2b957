"""`hermes-plugins forget`: what a person wants to forget is gone, and the receipt proves it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from support.commands import Machine, posix_only, run_on_terminal
from support.forget_home import (
    KEPT,
    TEXT,
    count,
    fill,
    grep,
    in_child,
    index_pages,
    index_terms,
)

from hermes_core import Config, ForgetRequest, MemoryManager, SessionContext
from hermes_core.checkup import forget, survey
from hermes_core.loading.activation import activate_builtin
from hermes_core.outbox import StreamKey
from hermes_core.outbox.spool import OutboxSpool

TESTS = Path(__file__).parents[1]
COMPILER = shutil.which("gcc") or shutil.which("cc")

pytestmark = [posix_only, pytest.mark.usefixtures("few_distributions")]


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, _packages: Path) -> Path:
    """A home with the text in every store; copied for each test."""
    home = tmp_path_factory.mktemp("filled")
    in_child(partial(_fill_quickly, home, _packages))
    return home


def _fill_quickly(home: Path, packages: Path) -> None:
    # As `few_distributions` does, which is for one test.
    installed = str(Path(pytest.__file__).parents[1])
    sys.path[:] = [str(packages) if each == installed else each for each in sys.path]
    fill(home)


@pytest.fixture
def machine(tmp_path: Path, filled: Path) -> Machine:
    made = Machine(tmp_path, in_process=True)
    made.home.rmdir()
    in_child(lambda: os.execvp("cp", ["cp", "-a", str(filled), str(made.home)]))
    return made


@pytest.fixture(autouse=True)
def _forked_children(request: pytest.FixtureRequest) -> None:
    """Children are forks, except in the test of every store."""
    if "fifty" not in request.node.name:
        request.getfixturevalue("forked_children")


def recalled(home: Path) -> str:
    """Everything that an agent gets to see: the prompt, recall and the search."""
    shown = []
    for facts in ({}, {"platform": "telegram", "user_id": "100100100"}):
        manager = MemoryManager.from_config(home)
        manager.initialize_all("later", **facts)
        shown.append(manager.build_system_prompt())
        shown.append(str(manager.recall_block(f"Where is {TEXT}?")))
        queries = ("Quibblefjörd", "7713", "quibble*", "Quibblefjord", "north", "map")
        searches = [{"query": each} for each in queries]
        shown += [manager.handle_tool_call("session_search", each) for each in [*searches, {}]]
        manager.shutdown_all()
    return json.dumps(json.loads(json.dumps(shown)), ensure_ascii=False).lower()


def test_fifty_canaries_in_every_store_are_gone_and_the_receipt_equals_the_count(machine):
    placed = count(machine.home)
    assert sum(placed.values()) >= 50
    assert len(placed) == 16, placed
    assert len(grep(machine.home)) >= 10
    in_child(partial(recalled, machine.home))  # a search puts all words into the index
    assert b"bblefj" in index_pages(machine.home)
    receipt = machine.json("forget", TEXT, "--yes")
    assert receipt["found"] == receipt["deleted"] == placed
    assert (receipt["complete"], receipt["remaining"], receipt["problems"]) == (True, {}, [])
    assert receipt["searched"]["files_after"] == []
    assert count(machine.home) == {}
    assert grep(machine.home) == []
    seen = recalled(machine.home)
    assert "quibblefj" not in seen.replace("where is quibblefj", "").replace('"quibblefj', "")
    assert KEPT in seen
    assert b"bblefj" not in index_pages(machine.home)
    assert not [term for term in index_terms(machine.home) if "quibble" in term or "7713" in term]


def test_everything_else_stays_and_the_stores_are_whole(machine):
    machine.run("forget", TEXT, "--yes").done()
    home = machine.home
    assert KEPT in (home / "memories" / "MEMORY.md").read_text("utf-8")
    assert (home / "outbox.db.damaged-20261102-101010").exists()
    with closing(sqlite3.connect(home / "outbox.db")) as database:
        rows = database.execute("SELECT payload FROM writes").fetchall()
    assert [json.loads(each)["user_content"] for (each,) in rows] == [KEPT, KEPT]
    assert machine.run("sessions", "check").done()
    shown = machine.run("sessions", "show", "session-0").done().out
    assert shown.count("[forgotten]") == 4
    assert KEPT in shown
    history = machine.run("memory", "history").done().out
    assert KEPT in history
    assert "file edit" not in history  # the record agrees with the files
    for change in range(1, 5):
        machine.run("memory", "undo", str(change))
    assert grep(home) == []


def test_the_receipt_has_counts_a_salted_hash_and_nothing_of_the_text(machine):
    machine.run("forget", TEXT, "--yes").done()
    (path,) = (machine.home / "receipts").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    receipt = json.loads(path.read_text("utf-8"))
    assert receipt["kind"] == "text"
    assert len(receipt["salt"]) == 32
    assert len(receipt["subject"]) == 64
    assert receipt["started"] <= receipt["finished"]
    assert any("backups" in each for each in receipt["unreachable"])
    assert not (machine.home / survey.JOURNAL).exists()


def test_a_dry_run_shows_what_there_is_and_changes_nothing(machine):
    before = {path: path.read_bytes() for path in machine.home.rglob("*") if path.is_file()}
    shown = machine.json("forget", TEXT, "--dry-run")
    counts = {}
    for each in shown["items"]:
        counts[each["place"]] = counts.get(each["place"], 0) + each["count"]
    assert counts == count(machine.home)
    out = machine.run("forget", TEXT, "--dry-run").done().out
    assert "Ada lives in" in out
    names = {"forget.json.lock", "state.db-shm", "state.db-wal", "outbox.db-wal", "outbox.db-shm"}
    after = {path: path.read_bytes() for path in machine.home.rglob("*") if path.is_file()}
    changed = {path.name for path in after if after[path] != before.get(path)}
    assert not {each for each in changed - names if not each.endswith(("-wal", "-shm", ".db"))}
    assert count(machine.home) == counts


def test_without_a_terminal_nothing_is_deleted_until_somebody_says_yes(machine):
    error = machine.run("forget", TEXT).failed()
    assert "nothing was deleted" in error
    assert sum(count(machine.home).values()) >= 50


def test_on_a_terminal_it_asks(machine):
    code, shown = run_on_terminal(machine, "forget", "nothing like this", "--yes")
    assert code == 0
    assert "Nothing was found." in shown


def test_the_text_can_come_from_standard_input(machine):
    machine.run("forget", "-", "--yes", input=f"{TEXT}\n").done()
    assert grep(machine.home) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "nothing to forget"),
        (("x",), "too short"),
        (("a\u200bb",), "too short"),
        (("some text", "--session", "s"), "only one of TEXT"),
    ],
)
def test_wrong_usage_is_one_line(machine, arguments, error):
    assert error in machine.run("forget", *arguments).misused()


# -- what a person calls the same ---------------------------------------------------------------

STREET = "Vimbleton Road 7"


def _talk(home: Path, *texts: str, session: str = "talk", **who: str) -> None:
    manager = MemoryManager.from_config(home)
    manager.initialize_all(session, **who)
    for each in texts:
        manager.sync_all(each, "ok")
    manager.shutdown_all()


def _stored(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file()).lower()


@pytest.mark.parametrize("asked", [STREET, "vimble\u00adton  road\n7", "\ufeffVIMBLETON\tROAD 7"])
def test_invisible_characters_and_blanks_do_not_count(tmp_path, asked):
    machine = Machine(tmp_path, in_process=True)
    spellings = (
        "Vimble\u200bton Road 7",
        "Vimbleton  Road\n 7",
        "Vimb\u00adleton\u00a0Road\u2028\u20607",
        json.dumps({"at": "Vimbleton\n\tRo\u200dad 7"}),
    )
    in_child(partial(_talk, machine.home, *(f"I live in {each}" for each in spellings)))
    (machine.home / "memories").mkdir(exist_ok=True)
    (machine.home / "memories" / "MEMORY.md").write_text("In\u200bto Vimbleton\nRoad 7", "utf-8")
    theirs = machine.home / "export.json"
    theirs.write_text(json.dumps("Vimb\u200bleton\n Road 7"))
    receipt = machine.json("forget", asked, "--yes", code=1)
    assert (receipt["deleted"]["messages"], receipt["deleted"]["MEMORY.md"]) == (4, 1)
    assert receipt["searched"]["files_after"] == ["export.json"]
    theirs.unlink()
    assert b"vimb" not in _stored(machine.home)


def test_a_text_of_nothing_that_is_seen_matches_nothing():
    assert not ForgetRequest("", "\u200b \n").matches("whatever there is")
    assert ForgetRequest("", "What\u200bever  there").matches("for whatever\nthere is")


def test_a_name_of_three_letters_is_a_whole_word(tmp_path):
    machine = Machine(tmp_path, in_process=True)
    in_child(partial(_talk, machine.home, "My name is Ann", "I had a banana with Anna"))
    receipt = machine.json("forget", "Ann", "--yes")
    assert (receipt["deleted"], receipt["complete"]) == ({"messages": 1}, True)
    shown = machine.run("sessions", "show", "talk").done().out
    assert "a banana with Anna" in shown
    assert "name" not in shown


def test_the_marker_does_not_count_as_what_is_forgotten(tmp_path):
    machine = Machine(tmp_path, in_process=True)
    in_child(partial(_talk, machine.home, "I have forgotten my umbrella"))
    assert machine.json("forget", "forgotten", "--yes")["complete"]
    assert "[removed]" in machine.run("sessions", "show", "talk").done().out
    assert b"forgotten" not in _stored(machine.home)


def test_a_text_in_an_id_is_named_with_what_to_do(tmp_path):
    machine = Machine(tmp_path, in_process=True)
    talk = partial(_talk, machine.home, "hello there")
    in_child(partial(talk, session="trip-to-zanzibar"))
    in_child(partial(talk, session="s2", platform="telegram", user_id="zanzibar", chat_id="c1"))
    result = machine.run("forget", "zanzibar", "--yes")
    assert result.code == 1
    assert "remaining: ids of conversations 2" in result.out
    assert "use --session ID or --user ID" in result.err
    assert "trip-to-zanzibar" in machine.run("forget", "zanzibar", "--dry-run").done().out
    machine.run("forget", "--session", "trip-to-zanzibar", "--yes").done()
    machine.run("forget", "--user", "zanzibar", "--yes").done()
    assert machine.json("forget", "zanzibar", "--yes")["complete"]
    assert b"zanzibar" not in _stored(machine.home)


# -- sessions and people ------------------------------------------------------------------------


def test_a_conversation_is_deleted_from_every_store(machine):
    receipt = machine.json("forget", "--session", "session-1", "--yes")
    assert receipt["found"] == receipt["deleted"]
    assert receipt["found"]["conversations"] == 1
    assert receipt["found"]["messages"] == 6
    assert receipt["found"]["outbox: sessions"] == 1
    assert receipt["complete"]
    assert "session-1" not in machine.run("sessions", "list").out
    stored = b"".join(path.read_bytes() for path in machine.home.rglob("*") if path.is_file())
    assert b"session-1" not in stored
    assert b"session-2" in stored
    assert machine.run("forget", "--session", "session-1", "--yes").done().out.startswith("Nothing")


def test_a_person_is_deleted_with_their_conversations_and_notes(machine):
    receipt = machine.json("forget", "--user", "100100100", "--yes")
    assert receipt["found"] == receipt["deleted"]
    assert receipt["found"]["conversations"] == 1
    assert receipt["found"]["folder of a user"] == 1
    assert receipt["complete"], receipt
    names = [str(path) for path in machine.home.rglob("*")]
    assert not [each for each in names if "100100100" in each]
    stored = b"".join(path.read_bytes() for path in machine.home.rglob("*") if path.is_file())
    assert b"100100100" not in stored
    assert machine.json("sessions", "list")["sessions"][0]["id"] != "session-3"


def test_one_id_on_two_platforms_has_to_be_told_apart(machine):
    in_child(partial(_talk_on_discord, machine.home))
    error = machine.run("forget", "--user", "100100100", "--yes").failed()
    assert "discord, telegram" in error
    machine.run("forget", "--user", "100100100", "--platform", "discord", "--yes").done()
    ids = [each["id"] for each in machine.json("sessions", "list")["sessions"]]
    assert "session-3" in ids
    assert "elsewhere" not in ids


def _talk_on_discord(home: Path) -> None:
    manager = MemoryManager.from_config(home)
    manager.initialize_all("elsewhere", platform="discord", user_id="100100100")
    manager.sync_all("I am somebody else", "Hello.")


# -- what it can't delete is named --------------------------------------------------------------


def test_files_of_others_are_named_and_the_exit_code_says_so(machine):
    theirs = machine.home / "exports" / "all.jsonl"
    theirs.parent.mkdir()
    theirs.write_text(json.dumps({"text": TEXT}), "utf-8")
    (machine.home / "old.tar.gz").write_bytes(b"\x1f\x8b\x08 compressed")
    result = machine.run("forget", TEXT, "--yes")
    assert result.code == 1
    assert "still in exports/all.jsonl" in result.out
    assert "old.tar.gz: compressed or not readable" in result.out
    assert count(machine.home) == {}


def test_only_what_our_own_stores_left_is_deleted(machine, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    theirs = [
        other / "thesis.damaged.md",
        other / "state.db.damaged-20261101-101010",
        other / "linked.txt",
        machine.home / "photo-report.damaged",
        machine.home / "state.db.damaged-notes.txt",
        machine.home / "exports" / "state.db.damaged",
        machine.home / ".letter.odt.0123abcd.tmp",
    ]
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.write_text(TEXT, "utf-8")
        os.utime(path, (1_000_000_000, 1_000_000_000))
    (machine.home / "link").symlink_to(other)
    (machine.home / "receipts").symlink_to(other)
    (machine.home / "outbox.db.damaged").symlink_to(other / "linked.txt")
    receipt = machine.json("forget", TEXT, "--yes", "--receipt", tmp_path / "receipt", code=1)
    assert [each.read_text("utf-8") for each in theirs] == [TEXT] * len(theirs)
    assert (machine.home / "outbox.db.damaged").is_symlink()
    after = receipt["searched"]["files_after"]
    assert {"link/thesis.damaged.md", "photo-report.damaged", "outbox.db.damaged"} <= {*after}
    assert len(after) == 8
    assert receipt["deleted"]["files set aside"] == 3


def test_a_home_and_notes_on_another_disk_are_the_home_all_the_same(machine, tmp_path):
    home = machine.home
    (home / "memories").rename(tmp_path / "notes")
    (home / "memories").symlink_to(tmp_path / "notes")
    (home / "a").symlink_to(tmp_path / "notes")  # another way to the same folder
    home.rename(tmp_path / "disk")
    home.symlink_to(tmp_path / "disk")
    placed = count(home)
    receipt = machine.json("forget", TEXT, "--yes")
    assert (receipt["complete"], receipt["found"]["temporary files"]) == (True, 2)
    assert receipt["found"]["files set aside"] == placed["files set aside"]
    assert not list((tmp_path / "notes").glob(".*.tmp"))
    assert grep(tmp_path / "disk") == grep(tmp_path / "notes") == []


def test_a_file_whose_name_has_the_text_does_not_bring_it_into_the_receipt(machine):
    (machine.home / f"{TEXT}.txt").write_text("nothing", "utf-8")
    receipt = machine.json("forget", TEXT, "--yes", code=1)
    assert receipt["searched"]["files_after"] == ["(not shown: it contains what was forgotten)"]


def _damage(path: Path, content: bytes = b"not a database" * 300) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(content)


@pytest.mark.stress
@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("state.db", {"messages", "titles of conversations"}),
        ("memories/history.db", {"note history", "refused notes"}),
        ("memories/MEMORY.md", {"MEMORY.md"}),
        ("outbox.db", {"outbox"}),
        ("logs/memory-calls.db", {"call log"}),
    ],
)
def test_a_damaged_store_is_named_and_all_others_are_emptied(machine, name, lost):
    placed = count(machine.home)
    path = machine.home / name
    damaged = b"\xff\xfe no text" if path.suffix == ".md" else b"not a database" * 300
    _damage(path, damaged)
    receipt = machine.json("forget", TEXT, "--yes", code=1)
    wanted = {key: each for key, each in placed.items() if key.partition(":")[0] not in lost}
    assert receipt["deleted"] == wanted
    assert receipt["remaining"] == {}
    assert [each for each in receipt["problems"] if path.name in each], receipt["problems"]
    assert not receipt["complete"]
    assert grep(machine.home) == []
    assert path.read_bytes() == damaged
    assert machine.run("forget", TEXT, "--yes").code == 1  # nobody can say that it is not there


def test_an_invalid_config_keeps_no_note_from_being_deleted(machine):
    (machine.home / "config.yaml").write_text("memory: [what")
    receipt = machine.json("forget", TEXT, "--yes", code=1)
    assert receipt["deleted"]["MEMORY.md"] == 4
    assert any("config.yaml" in each for each in receipt["problems"])
    # Where conversations are stored is not known: what is left is named.
    assert {*grep(machine.home)} <= {*receipt["searched"]["files_after"]}


@pytest.mark.stress
@pytest.mark.parametrize("what", [("--session", "session-3"), ("--user", "100100100")])
@pytest.mark.parametrize("name", ["state.db", "memories/history.db", "outbox.db"])
def test_a_damaged_store_keeps_no_other_from_forgetting_a_person(machine, what, name):
    _damage(machine.home / name)
    platform = ("--platform", "telegram") if what[0] == "--user" else ()
    receipt = machine.json("forget", *what, *platform, "--yes", code=1)
    assert receipt["deleted"].get("conversations", 0) == (name != "state.db")
    assert receipt["deleted"].get("folder of a user", 0) == (what[0] == "--user")
    assert [each for each in receipt["problems"] if Path(name).name in each]


def test_without_the_archive_nobody_guesses_the_platform_of_a_person(machine):
    _damage(machine.home / "state.db")
    assert "--platform" in machine.run("forget", "--user", "100100100", "--yes").failed()


def test_an_agent_that_runs_is_named_and_finds_nothing_any_more(machine):
    manager = MemoryManager.from_config(machine.home)
    manager.initialize_all("live")
    try:
        result = machine.run_process("forget", TEXT, "--yes")
        assert result.code == 0, result
        assert f"process {os.getpid()}" in result.out
        found = json.loads(manager.handle_tool_call("session_search", {"query": "Quibblefjörd"}))
        assert found["results"] == []
        manager.sync_all("Do you still work?", "Yes.")
        manager.handle_tool_call(
            "memory", {"target": "memory", "action": "add", "content": "it still works"}
        )
    finally:
        manager.shutdown_all()
    assert grep(machine.home) == []
    assert machine.run("sessions", "check").done()


# -- kill -9 ------------------------------------------------------------------------------------


def _killed_at(home: Path, number: int, request: ForgetRequest) -> bool:
    """Run a `forget` that is killed after its nth step; whether it came that far."""
    child = os.fork()
    if child == 0:
        steps = iter(range(1, 1000))

        def step(_: str) -> None:
            if next(steps) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            _carry_out(home, request, step)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def _carry_out(home: Path, request: ForgetRequest, step: Callable[[str], None]) -> None:
    config = Config(home)
    journal = forget.unfinished(home)
    if journal is not None:
        forget.resume(config, journal, step)
        return
    builtin = activate_builtin(config)
    subject = survey.subject_of(config, request, builtin)
    found = survey.survey(config, subject, builtin)
    forget.finish(config, forget.begin(home, subject, found, provider=False), step)


@pytest.mark.parametrize("number", [1, 3, 6])
def test_what_was_killed_is_finished_by_the_next_command(machine, number):
    placed = count(machine.home)
    assert _killed_at(machine.home, number, ForgetRequest(str(machine.home), TEXT))
    assert (machine.home / survey.JOURNAL).exists()
    assert stat.S_IMODE((machine.home / survey.JOURNAL).stat().st_mode) == 0o600
    status = machine.run("status")
    assert (status.code, "run: hermes-plugins forget" in status.out) == (1, True)
    receipt = machine.json("forget")
    assert receipt["found"] == receipt["deleted"] == placed
    assert (receipt["resumed"], receipt["complete"]) == (1, True)
    assert grep(machine.home) == []
    assert not (machine.home / survey.JOURNAL).exists()


@pytest.mark.stress
@pytest.mark.parametrize("subject", ["text", "session", "user"])
def test_killed_again_and_again_at_every_step(machine, subject):
    home = str(machine.home)
    request = {
        "text": ForgetRequest(home, TEXT),
        "session": ForgetRequest(home, session_id="session-1"),
        "user": ForgetRequest(home, user_id="100100100"),
    }[subject]
    placed = count(machine.home)
    kills = 0
    for number in range(1, 100):
        if not _killed_at(machine.home, number, request):
            break
        kills += 1
    assert kills >= 6
    (path,) = (machine.home / "receipts").iterdir()
    receipt = json.loads(path.read_text("utf-8"))
    assert receipt["found"] == receipt["deleted"]
    assert receipt["complete"]
    assert receipt["resumed"] == kills
    if subject == "text":
        assert receipt["found"] == placed
        assert grep(machine.home) == []


@pytest.mark.stress
@pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the fault shim with")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD is Linux")
def test_killed_in_front_of_calls_on_files(tmp_path):
    shim = tmp_path / "fault_shim.so"
    source = TESTS / "builtin" / "fault_shim.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
    result = subprocess.run(
        [sys.executable, "-P", TESTS / "support" / "forget_kills.py", tmp_path, "37"],
        env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    report = json.loads(result.stdout)
    assert report["wrong"] == []
    assert report["kills"] > 20


# -- the external provider ------------------------------------------------------------------------

PLUGIN = """
from hermes_core import ForgetItem, ForgetReport, MemoryProvider

class Acme(MemoryProvider):
    name = "acme"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): self.home = kwargs["hermes_home"]
    def get_tool_schemas(self): return []
    def backup_paths(self): return ["/somewhere/else"]
"""
FORGETS = """
    def forget(self, request):
        if request.delete:
            raise RuntimeError("the service is down for " + request.text)
        return ForgetReport((ForgetItem("facts", 2),), ("its own backups",))
"""


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (PLUGIN, "does not implement"),
        (PLUGIN + FORGETS, "(not shown: it contains what was forgotten)"),
    ],
)
def test_what_a_provider_can_not_delete_is_named(machine, source, problem):
    machine.add_directory("acme", source)
    machine.write_config("memory: {provider: acme}\n")
    receipt = machine.json("forget", TEXT, "--provider", "--yes", code=1)
    provider = receipt["provider"]
    assert (provider["name"], receipt["complete"]) == ("acme", False)
    assert any(problem in each for each in provider["problems"])
    assert any("/somewhere/else" in each for each in provider["unreachable"])
    assert grep(machine.home) == []
    if source != PLUGIN:
        assert provider["found"] == provider["remaining"] == {"facts": 4}  # 2 of each person
        assert provider["deleted"] == {}


def test_a_provider_is_not_asked_unless_the_person_says_so(machine):
    machine.add_directory("acme", PLUGIN + FORGETS)
    machine.write_config("memory: {provider: acme}\n")
    receipt = machine.json("forget", TEXT, "--yes")
    assert receipt["provider"] is None
    assert "acme: not asked; add --provider" in receipt["unreachable"]


def test_writes_in_the_spool_are_forgotten_while_the_server_is_down(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    machine = Machine(tmp_path, in_process=True)
    machine.write_config("memory:\n  storage: postgresql://nobody@127.0.0.1:1/none\n")
    spool = OutboxSpool(machine.home)
    for user, said in (("ann", TEXT), ("ann", KEPT), ("bob", KEPT)):
        who = SessionContext(session_id=f"of-{user}", platform="telegram", user_id=user)
        event = (f"e-{said}", "sync_turn", json.dumps({"user_content": said}))
        spool.add(StreamKey.of("journal", "", who), event, "it is down")
    for arguments in ([TEXT], ["--user", "ann", "--platform", "telegram"]):
        receipt = machine.json("forget", *arguments, "--yes", code=1)
        assert receipt["deleted"] == {"writes in the spool": 1}
        assert receipt["searched"]["files_after"] == []
    assert [each.session for each in spool.writes()] == ["of-bob"]
