"""A plugin's own files: its settings, and a small database."""

import json
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core import ConfigError, DatabaseError
from hermes_core.service import own_database, read_own_file, save_own_file


def test_a_file_that_is_not_there_says_nothing(tmp_path):
    assert read_own_file(tmp_path / "acme.json") == {}


@pytest.mark.parametrize("content", ["{", "[]", '"text"', "\x00"])
def test_a_broken_file_is_an_error_and_stays_as_it_is(tmp_path, content):
    path = tmp_path / "acme.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"acme\.json"):
        save_own_file(path, {"host": "there"})
    assert path.read_text() == content


def test_saving_keeps_the_other_settings_and_takes_away_what_is_none(tmp_path):
    path = tmp_path / "acme" / "config.json"
    save_own_file(path, {"host": "here", "hosts": {"hermes": {"x": 1}}, "old": "é"})
    save_own_file(path, {"host": "there", "old": None})
    assert json.loads(path.read_text("utf-8")) == {"host": "there", "hosts": {"hermes": {"x": 1}}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


TABLE = "CREATE TABLE IF NOT EXISTS names (name TEXT PRIMARY KEY)"


def test_a_database_is_created_private_and_commits_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "plugin" / "names.db"
    with own_database(path, TABLE) as database:
        database.execute("INSERT INTO names VALUES ('Ada')")
    with pytest.raises(DatabaseError), own_database(path, TABLE) as database:
        database.executemany("INSERT INTO names VALUES (?)", [("Eve",), ("Ada",)])
    with own_database(path, TABLE) as database:
        assert database.execute("SELECT name FROM names").fetchall() == [("Ada",)]
    assert os.name == "nt" or path.stat().st_mode & 0o777 == 0o600


def test_a_database_of_an_earlier_version_is_used_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "names.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(TABLE)
        database.execute("INSERT INTO names VALUES ('Ada')")
    with own_database(path, TABLE) as database:
        assert database.execute("SELECT name FROM names").fetchall() == [("Ada",)]


def test_a_damaged_database_is_an_error_and_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "names.db"
    path.write_bytes(b"damaged " * 1000)
    with pytest.raises(DatabaseError, match=r"names\.db") as caught, own_database(path, TABLE):
        pass
    assert "move it away" in caught.value.hint
    assert path.read_bytes() == b"damaged " * 1000


def test_a_database_in_a_folder_that_cant_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "names.db"
    with pytest.raises(DatabaseError, match="can't be"), own_database(path, TABLE):
        pass
