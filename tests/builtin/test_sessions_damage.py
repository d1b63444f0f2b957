"""A damaged archive: no crash, no hang, no lie, and nothing lost that can be read."""

from __future__ import annotations

import json
import os
import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support.archives import SUFFIXES, assert_sound, fill, pages_of, rare_word, search, stored
from support.damage_runner import SESSIONS, TURNS

from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, SessionFacts
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_builtin.sessions.sqlite.database import archive_file
from hermes_builtin.sessions.sqlite.repair import _set_aside
from hermes_core.errors import DatabaseError

STRESS = bool(os.environ.get("HERMES_STRESS"))
#: So many bytes are flipped. Each takes a process, so not every byte of the file is.
SAMPLE = 1_000 if STRESS else 16
PARTS = 4 if STRESS else 1
PAGE = 4096
#: Which of the pages are damaged, one after the other.
EVERY = 1 if STRESS else 5
TESTS = str(Path(__file__).parents[1])

pytestmark = [
    pytest.mark.scaled,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="cases run in forked processes"),
    pytest.mark.files_only("about damage of the file; a server has its own checksums"),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small archive, closed."""
    path = tmp_path_factory.mktemp("small") / "small.db"
    fill(path, SESSIONS, TURNS)
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with several pages of messages and of the index, closed."""
    path = tmp_path_factory.mktemp("large") / "large.db"
    fill(path, 40, 6, words=3)
    return path


def run_cases(folder: Path, sound: Path, cases: list[list[Any]]) -> list[list[Any]]:
    """What went wrong, by the runner: kind, place, value, reason."""
    folder.mkdir()
    code = f"import sys; sys.path.insert(0, {TESTS!r}); from support import damage_runner as it"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{code}; it.main()", folder, sound],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        timeout=36_000 if STRESS else 300,
    )
    found: list[list[Any]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def compact(small: Path) -> Path:
    """The same in small pages, so that there are not too many bytes to flip."""
    path = small.with_name("compact.db")
    path.write_bytes(small.read_bytes())
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for change in ("journal_mode = DELETE", "page_size = 512"):
            database.execute(f"PRAGMA {change}")
        database.execute("VACUUM")
        database.execute("PRAGMA journal_mode = WAL")
    return path


@pytest.mark.parametrize("part", range(PARTS))
def test_a_flipped_byte_is_a_typed_error_or_an_answer_whose_changes_check_reports(
    compact: Path, tmp_path: Path, part: int
) -> None:
    content = compact.read_bytes()
    chosen = random.Random(7 + part)
    used = [place for place in range(part, len(content), PARTS) if content[place]]
    places = chosen.sample(used, min(len(used), SAMPLE // PARTS))
    cases = [["flip", place, chosen.choice((1, 4, 16, 32, 128, 255))] for place in places]
    assert run_cases(tmp_path / "home", compact, cases) == []


def test_a_word_that_is_lost_from_the_index_is_reported_by_check(small: Path, tmp_path) -> None:
    (page,) = pages_of(small)["archive_index_data"]
    at = small.read_bytes().index(b"zanzi", (page - 1) * PAGE, page * PAGE)
    path = changed(small, tmp_path / "state.db", (at, b"zanzj"))
    with closing(SqliteArchive(path)) as archive:
        problems = archive.check()
        assert problems or search(archive, rare_word(1)) == ["talk-1"]


def test_a_changed_letter_is_reported_by_check_and_marked_by_repair(small: Path, tmp_path) -> None:
    at = small.read_bytes().index(f"Tell me of {rare_word(1)}".encode())
    path = changed(small, tmp_path / "state.db", (at, b"B"))
    with closing(SqliteArchive(path)) as archive:
        (problem,) = (each for each in archive.check() if not each.index_only)
        assert "not what was stored" in problem.what
        archive.repair()
        assert archive.check() == []
        session = archive.session("talk-1", EVERYBODY)
        (first,) = archive.first(session, 1)
    assert first.content.startswith("Bell me")
    assert first.extra["damaged"] is True


@pytest.mark.parametrize(
    "change",
    [
        "archive_messages SET at = at + 86400",
        "archive_sessions SET title = 'About something else'",
        "archive_sessions SET source = 'cron'",
        "archive_sessions SET chat_id = 'elsewhere'",
        "archive_sessions SET profile = 'another'",
        "archive_sessions SET parent = 'talk-0' WHERE id = 'talk-1'",
    ],
)
def test_check_reports_what_was_changed_behind_its_back(change, small, tmp_path) -> None:
    path = changed(small, tmp_path / "state.db")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"UPDATE {change}")
        database.commit()
    with closing(SqliteArchive(path)) as archive:
        assert archive.check() != []


def test_a_page_that_is_cut_off_or_zero_is_an_error_or_reported(small: Path, tmp_path) -> None:
    size = small.stat().st_size
    pages = range(0, size, PAGE if STRESS else 3 * PAGE)
    cases = [
        *(["cut", place, 0] for place in pages if place),
        *(["cut", place + PAGE // 3, 0] for place in pages),
        *(["zeroes", place, PAGE] for place in pages),
    ]
    assert run_cases(tmp_path / "home", small, cases) == []


# -- single cases that must not come back ----------------------------------------------------


def changed(sound: Path, path: Path, *places: tuple[int, bytes]) -> Path:
    """A copy with other bytes at some places."""
    content = bytearray(sound.read_bytes())
    for at, new in places:
        content[at : at + len(new)] = new
    for suffix in SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def junk(sound: Path, path: Path, *pages: int) -> Path:
    """A copy with some pages overwritten."""
    return changed(sound, path, *(((page - 1) * PAGE, b"\xff" * PAGE) for page in pages))


def test_check_comes_to_an_end_when_messages_are_out_of_order(small: Path, tmp_path) -> None:
    content = small.read_bytes()
    ((page,),) = [pages for name, pages in pages_of(small).items() if name == "archive_messages"]
    start = (page - 1) * PAGE
    count = int.from_bytes(content[start + 3 : start + 5], "big")
    pointers = [content[start + 8 + 2 * n : start + 10 + 2 * n] for n in range(count)]
    pointers[2], pointers[-1] = pointers[-1], pointers[2]
    path = changed(small, tmp_path / "state.db", (start + 8, b"".join(pointers)))
    code = (
        "import signal, sys; from pathlib import Path; signal.alarm(4)\n"
        "from hermes_builtin.sessions.sqlite import SqliteArchive\n"
        "sys.exit(not SqliteArchive(Path(sys.argv[1])).check())"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, path], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "command",
    [
        ("check",),
        ("repair",),
        ("show", "talk-2"),
    ],
)
def test_a_tool_call_that_is_no_json_any_more_is_no_traceback(command, small, machine) -> None:
    at = small.read_bytes().index(b'{"tool_calls"')
    changed(small, machine.home / "state.db", (at, b"["))
    result = machine.run("sessions", *command)
    assert "JSON" not in result.err, result
    assert "Traceback" not in result.err, result


def test_a_damaged_schema_is_a_typed_error(small: Path, tmp_path: Path) -> None:
    content = small.read_bytes()
    statements = [match.start() for match in re.finditer(b"CREATE ", content)]
    cases = [
        ["flip", at, 128]
        for begin in statements
        for at in range(begin, min(begin + 200, len(content)), 29 if STRESS else 197)
    ]
    assert run_cases(tmp_path / "home", small, cases) == []


# -- the index ------------------------------------------------------------------------------

INDEX = ("archive_index_data", "archive_index_idx", "archive_index_config", "archive_terms")


def index_pages(path: Path) -> list[int]:
    return [page for name in INDEX for page in pages_of(path)[name]]


def test_a_search_makes_a_damaged_index_anew_from_the_messages(large: Path, tmp_path) -> None:
    wrong = []
    for page in index_pages(large)[::EVERY]:
        path = junk(large, tmp_path / "state.db", page)
        with closing(SqliteArchive(path)) as archive:
            for number in range(0, 40, 5):
                try:
                    found = search(archive, rare_word(number, 3))
                except DatabaseError as error:
                    found = [str(error)]
                if found != [f"talk-{number}"]:
                    wrong.append((page, number, found))
    assert wrong == []


def test_what_is_said_is_kept_although_the_index_is_damaged(large: Path, tmp_path: Path) -> None:
    for page in index_pages(large)[::EVERY]:
        path = junk(large, tmp_path / "state.db", page)
        with closing(SqliteArchive(path)) as archive:
            archive.append(SessionFacts("new", started=1.0), [NewMessage("user", "okapi", 1.0)])
        assert stored(path)["new"] == ["okapi"]


def test_an_import_is_kept_although_the_index_is_damaged(large: Path, tmp_path: Path) -> None:
    path = junk(large, tmp_path / "state.db", *pages_of(large)["archive_index_data"])
    with closing(SqliteArchive(path)) as archive:
        messages = [NewMessage("user", "okapi", 1.0), NewMessage("assistant", "Yes.", 1.0)]
        archive.take_over("elsewhere", 2, SessionFacts("new", started=1.0), messages)
        archive.append(SessionFacts("new", started=1.0), [NewMessage("user", "More.", 1.0)])
    assert stored(path)["new"] == ["okapi", "Yes.", "More."]


def test_repair_makes_a_damaged_index_anew_and_loses_nothing(large: Path, tmp_path: Path) -> None:
    before = stored(large)
    for page in index_pages(large)[::EVERY]:
        path = junk(large, tmp_path / "state.db", page)
        with closing(SqliteArchive(path)) as archive:
            assert archive.check()
            assert archive.repair()["lost"] == 0
            assert search(archive, rare_word(7, 3)) == ["talk-7"]
        assert stored(path) == before
        assert_sound(path)


# -- the tables -----------------------------------------------------------------------------


def test_damage_to_the_tables_stops_writes_with_a_clear_error(large: Path, tmp_path: Path) -> None:
    for name in ("archive_messages", "archive_sessions"):
        path = junk(large, tmp_path / "state.db", *pages_of(large)[name])
        before = path.read_bytes()
        with closing(SqliteArchive(path)) as archive:
            for _ in range(3):
                with pytest.raises(DatabaseError) as error:
                    archive.append(SessionFacts("new"), [NewMessage("user", "okapi", 1.0)])
                assert "sessions repair" in str(error.value)
                assert str(path) in str(error.value)
        assert path.read_bytes() == before


def readable(path: Path, ids: list[int]) -> dict[int, str]:
    """The messages that SQLite still gives, asked for one by one."""
    found = {}
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        for number in ids:
            with suppress(sqlite3.DatabaseError):
                query = "SELECT content FROM archive_messages WHERE id = ?"
                for (content,) in database.execute(query, (number,)):
                    found[number] = content
    return found


def message_ids(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [number for (number,) in database.execute("SELECT id FROM archive_messages")]


def one_page(large: Path, path: Path) -> Path:
    return junk(large, path, pages_of(large)["archive_messages"][7])


def one_byte(large: Path, path: Path) -> Path:
    at = large.read_bytes().index(rare_word(9).encode())
    return changed(large, path, (at, b"\xff"))


@pytest.mark.parametrize("harm", [one_page, one_byte])
def test_repair_loses_only_what_cannot_be_read(
    harm: Callable[[Path, Path], Path], large: Path, tmp_path: Path
) -> None:
    path = harm(large, tmp_path / "state.db")
    ids = message_ids(large)
    expected = readable(path, ids)
    with closing(SqliteArchive(path)) as archive:
        lost = archive.repair()["lost"]
    kept = readable(path, ids)
    assert {number: kept.get(number) for number in expected} == expected
    assert lost == len(ids) - len(kept)


def pages_like(path: Path, table: str, kind: str) -> list[int]:
    """The pages of a table that are leaves, or above them ("internal")."""
    with closing(sqlite3.connect(path)) as database:
        query = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ?"
        return [page for (page,) in database.execute(query, (table, kind))]


@pytest.mark.parametrize("table", ["archive_messages", "archive_sessions"])
def test_repair_prints_how_to_recover_rows_below_a_damaged_inner_page(
    table: str, tmp_path: Path, machine
) -> None:
    sound = tmp_path / "sound.db"
    fill(sound, 150, 4, words=100)
    above = pages_like(sound, table, "internal")[0]
    path = junk(sound, machine.home / "state.db", above)
    result = machine.run("sessions", "repair")
    assert result.code == 0, result
    (copy,) = machine.home.glob("state.db.*.copy*")
    hint = f"sqlite3 {copy} .recover | sqlite3 {copy}.recovered"
    assert result.out.splitlines()[-1] == f"hint: SQLite's shell may recover more: {hint}"
    assert_sound(path)


def test_repair_brings_back_nothing_that_was_deleted(large: Path, tmp_path: Path) -> None:
    path = changed(large, tmp_path / "state.db")
    with closing(SqliteArchive(path)) as archive:
        archive.delete([each for each in archive.sessions() if each.id != "talk-9"])
        archive.append(SessionFacts("more"), [NewMessage("user", "okapi " * 900, 1.0)] * 2)
    expected = {text for texts in stored(path).values() for text in texts}
    junk(path, path, pages_like(path, "archive_sessions", "leaf")[0])
    with closing(SqliteArchive(path)) as archive:
        archive.repair()
    kept = {text for texts in stored(path).values() for text in texts}
    assert kept <= expected


def test_repair_keeps_a_verified_copy_for_its_owner_alone(large: Path, tmp_path: Path) -> None:
    path = one_page(large, tmp_path / "state.db")
    before = readable(path, ids := message_ids(large))
    with closing(SqliteArchive(path)) as archive:
        copy = Path(archive.repair()["copy"])
        assert search(archive, rare_word(39, 3)) == ["talk-39"]
        archive.append(SessionFacts("new"), [NewMessage("user", "okapi", 1.0)])
    assert readable(copy, ids) == before
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir() if each.is_file()} == {0o600}
    assert_sound(path)


def test_repair_of_a_sound_archive_changes_nothing(large: Path, tmp_path: Path) -> None:
    path = changed(large, tmp_path / "state.db")
    with closing(SqliteArchive(path)) as archive:
        assert archive.repair() == {"problems": 0, "copy": "", "lost": 0, "recover": ""}
    assert path.read_bytes() == large.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["state.db"]


def hinted(machine, *words: str) -> list[list[str]]:
    """The commands that a command's hint says to run."""
    result = machine.run(*words)
    hints = [line.partition("hint: ")[2] for line in (result.out + result.err).splitlines()]
    return [each.removeprefix("run: hermes-plugins ").split() for each in hints if "run: " in each]


@pytest.mark.parametrize("first", ["status", "doctor", "sessions list", "sessions check"])
def test_the_hint_about_a_schema_that_is_gone_leads_to_a_new_archive(
    first: str, small: Path, machine
) -> None:
    path = changed(small, machine.home / "state.db", (100, b"\xff" * 2000))
    assert hinted(machine, *first.split()) == [["sessions", "repair"]]
    result = machine.run("sessions", "repair").done()
    assert f"a copy of the damaged file is {path}.damaged" in result.out
    assert machine.run("sessions", "list").err == "There are no conversations yet.\n"


@pytest.mark.parametrize(
    "command", ["status", "doctor", "sessions list", "sessions check", "sessions repair"]
)
def test_a_file_that_is_no_database_any_more_is_to_be_moved_away(
    command: str, small: Path, machine
) -> None:
    path = changed(small, machine.home / "state.db", (0, b"x" * 20))
    before = path.read_bytes()
    result = machine.run(*command.split())
    hint = "hint: it was not changed; move it away to start a new archive"
    assert hint in [line.strip() for line in (result.out + result.err).splitlines()]
    assert path.read_bytes() == before
    path.rename(path.with_name("moved.db"))
    machine.run(*command.split())
    machine.run("sessions", "check").done()


def test_a_file_that_is_set_aside_takes_its_own_journal_along(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_text("what is left")
    earlier = path.with_name(f"{path.name}.damaged")
    earlier.write_text("an earlier one")
    path.with_name(f"{path.name}-wal").write_bytes(b"its journal")
    aside = _set_aside(archive_file(path))
    assert aside == path.with_name(f"{path.name}.damaged-2")
    assert aside.with_name(f"{aside.name}-wal").read_bytes() == b"its journal"
    assert earlier.read_text() == "an earlier one"
    assert not path.exists()
