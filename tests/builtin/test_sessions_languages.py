"""Other languages than English: a word is found in whatever form it was said."""

# ruff: noqa: RUF001 - Russian letters look like Latin ones

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.archives import open_archive, search

from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_builtin.sessions.sqlite import SqliteArchive, maintenance
from hermes_builtin.sessions.sqlite.database import ARCHIVE
from hermes_builtin.sessions.words import LANGUAGE_MARKS, inflected, language_of, runs, words
from hermes_core.storage.sqlite_connection import open_database

pytestmark = pytest.mark.usefixtures("both_storages")

SAID = {
    "de": ("Wir haben letztes Jahr zwei Häuser in Freiburg gekauft.", "Haus"),
    "fr": ("Nous avons vu les chevaux dans le pré avec ma soeur.", "cheval"),
    "es": ("Mis hijas cantaron tres canciones en la fiesta de la escuela.", "canción"),
    "it": ("Abbiamo mangiato le lasagne che ha fatto mia nonna.", "mangiare"),
    "nl": ("Wij hebben twee huizen in Utrecht gekocht.", "huis"),
    "ru": ("Мы купили два красных дома у моря.", "красный"),
    "sv": ("Jag har inte sett husen vid sjön, och det är synd.", "huset"),
    "tr": ("Benim için çok güzel evler vardı ama bir türlü seçemedim.", "evlerde"),
    "pl": ("Bardzo lubię stare książki, ale nie jest ich wiele.", "książka"),
}


@pytest.fixture
def archive(home: Path):
    with closing(open_archive(home)) as archive:
        yield archive


def say(archive: SqliteArchive, name: str, text: str) -> None:
    archive.append(SessionFacts(name, started=1.0), [NewMessage("user", text, 1.0)])


def test_a_word_is_found_in_another_form(archive: SqliteArchive) -> None:
    for code, (text, _) in SAID.items():
        say(archive, code, text)
    say(archive, "en", "We bought two houses.")
    missed = [code for code, (_, word) in SAID.items() if code not in search(archive, word)]
    assert missed == []
    assert archive.check() == []


def test_the_language_of_a_text_is_recognised_and_english_stays_english() -> None:
    assert {code: language_of(text, runs(text)) for code, (text, _) in SAID.items()} == {
        code: code for code in SAID
    }
    for text in (
        "We went to Rio de Janeiro last year and met the others there.",
        "The die is cast, and the war was over when I got there.",
        "x = y + 1",
        "",
        "ok",
    ):
        assert language_of(text, runs(text)) == ""
        assert not [word for word in words(text) if "+" in word]


def test_every_language_that_can_be_recognised_has_a_stemmer() -> None:
    for mark in LANGUAGE_MARKS:  # PyStemmer 3.0 has neither Czech nor Polish
        assert inflected("word", mark[1:]).endswith(mark)


def test_a_word_is_found_as_it_was_written_whatever_the_languages(archive: SqliteArchive) -> None:
    for number, (text, _) in enumerate(SAID.values()):
        say(archive, f"s{number}", text)
        say(archive, f"alone{number}", text.split()[-1])
    for number, (text, _) in enumerate(SAID.values()):
        for word in text.strip(".").split():
            assert search(archive, word), word
        assert f"alone{number}" in search(archive, text.split()[-1])


def test_what_was_found_by_its_stem_is_marked(archive: SqliteArchive) -> None:
    from hermes_builtin.sessions.archive import EVERYBODY, SearchOptions
    from hermes_builtin.sessions.display import snippet
    from hermes_builtin.sessions.query import parse

    say(archive, "de", SAID["de"][0])
    found = archive.search(parse("Haus"), SearchOptions(EVERYBODY, frozenset(("user",)), 3))
    (hit,) = found.hits
    (message,) = archive.first(hit.session, 1)
    assert ">>>Häuser<<<" in snippet(message, found.words)


@pytest.mark.files_only
def test_forgotten_words_of_a_language_leave_no_trace(archive: SqliteArchive) -> None:
    say(archive, "de", SAID["de"][0])
    assert search(archive, "Haus") == ["de"]
    archive.delete(list(archive.sessions()))
    with archive._file.reading() as database:
        assert database.execute("SELECT * FROM archive_terms").fetchall() == []


def test_an_archive_with_the_stems_of_version_2_is_indexed_again_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    older = replace(ARCHIVE, migrations=ARCHIVE.migrations[:2])
    open_database(path, older).close()
    with closing(SqliteArchive(tmp_path / "new.db")) as archive:
        for code, (text, _) in SAID.items():
            say(archive, code, text)
    with closing(open_database(path, older)) as database:
        database.execute("ATTACH ? AS new", (str(tmp_path / "new.db"),))
        for table in ("archive_sessions", "archive_messages"):
            database.execute(f"INSERT INTO {table} SELECT * FROM new.{table}")
        database.execute("INSERT INTO archive_index (rowid, words) VALUES (4194304, 'oldstem')")
        database.execute("INSERT INTO archive_terms VALUES ('oldstem', 32)")
    with closing(SqliteArchive(path)) as archive:
        assert search(archive, "Haus") == ["de"]
        assert search(archive, "oldstem") == []
        assert archive.check() == []
    assert not list(tmp_path.glob("*.damaged*"))


def test_it_is_indexed_again_in_a_quiet_moment_too(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(maintenance, "_QUIET_SECONDS", 3600)
    path = tmp_path / "state.db"
    with closing(SqliteArchive(path)) as archive:
        say(archive, "de", SAID["de"][0])
        archive._backlog._pending = 0  # as a process that was killed leaves it
    with closing(SqliteArchive(path)) as archive:
        say(archive, "more", "Hello.")
        assert archive._backlog._worker.alive
