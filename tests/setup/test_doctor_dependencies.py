"""`doctor` and what a plugin needs: packages, and files that are whole."""

from __future__ import annotations

import sqlite3

import pytest
from support.fielded import add_plugin, rows_of

CHOSEN = "memory: {provider: acme}\n"
MANIFEST = "version: 1.0\npip_dependencies: {}\n"


def needs(machine, *wanted: str, code: int = 0):
    add_plugin(machine.home, (), manifest=MANIFEST.format([*wanted]))
    machine.write_config(CHOSEN)
    machine.site.add("some-library", "1.4.2")
    return rows_of(machine, code=code)


@pytest.mark.parametrize("listed", ["some-library", "5", "{a: b}"])
def test_what_is_not_a_list_of_requirements_ends_no_diagnosis(machine, listed):
    add_plugin(machine.home, (), manifest=MANIFEST.format(listed))
    machine.write_config(CHOSEN)
    assert not [name for name in rows_of(machine) if name.startswith("needs")]


def test_a_package_that_is_not_installed_is_a_problem_and_is_not_installed(machine):
    row = needs(machine, "no-such-library>=2", code=1)["needs no-such-library"]
    assert (row["state"], row["detail"]) == ("problem", "not installed")
    assert row["todo"] == "pip install 'no-such-library>=2'"
    assert rows_of(machine, "--fix", code=1)["needs no-such-library"]["state"] == "problem"


def test_a_package_of_another_version_is_told(machine):
    wanted = {
        "Some_Library": ">=1.5", "some-library": "==1.3.*", "some.library": "~=1.5",
        "some_library": "<1.4", "SOME-library": "!=1.4.2", "Some.library": ">=1,<1.4",
    }  # fmt: skip
    rows = needs(machine, *map("".join, wanted.items()))
    for name, version in wanted.items():
        row = rows[f"needs {name}"]
        assert row["state"] != "ok"
        assert row["detail"].startswith("1.4.2 is installed, but ")
        assert all(clause in row["detail"] for clause in version.split(","))


@pytest.mark.parametrize(
    ("installed", "wanted", "met"),
    [
        ("2.0rc1", ">=2.0", False),
        ("2.0rc1", ">=1.9", True),
        ("1.0.post1", ">1.0", False),
        ("1.0.post1", ">=1.0", True),
        ("1!1.0", ">=2.0", True),
        ("1.0.dev3", "<1.0", False),
        ("1.0+local.2", "==1.0", True),
        ("1.10", "~=1.9", True),
        ("2.0", "~=1.9", False),
        ("1.0", "===1.0", True),
    ],
)
def test_versions_compare_as_pip_compares_them(machine, installed, wanted, met):
    machine.site.add("other-library", installed)
    assert ("needs other-library" not in needs(machine, f"other-library{wanted}")) is met


def test_a_requirement_that_cannot_be_read_is_shown(machine):
    row = needs(machine, "some library ((")["dependencies"]
    assert (row["state"], row["detail"]) == ("warning", "not a valid requirement: some library ((")


def test_what_is_met_is_one_line(machine):
    rows = needs(machine, "some-library>=1.4,<2", "some.library==1.4.*", "some-library[extra]")
    assert rows["dependencies"]["detail"] == "3 declared, none missing"


def test_a_condition_that_holds_here_does_not_hide_a_missing_package(machine):
    rows = needs(machine, "no-such-library>=2; python_version >= '3.8'", code=1)
    assert rows["needs no-such-library"]["state"] == "problem"


def test_a_condition_that_does_not_hold_here_asks_for_nothing(machine):
    rows = needs(machine, "no-such-library>=2; extra == 'dev'", "other; python_version < '3'")
    assert "needs no-such-library" not in rows


def test_what_a_distribution_requires_is_looked_at(machine):
    info = machine.install("alpha")
    metadata = (info / "METADATA").read_text()
    (info / "METADATA").write_text(
        metadata.replace("Summary:", "Requires-Dist: no-such-library (>=2)\nSummary:")
    )
    machine.write_config("memory: {provider: alpha}\n")
    assert rows_of(machine, code=1)["needs no-such-library"]["detail"] == "not installed"


def test_a_package_with_broken_metadata_does_not_end_the_diagnosis(machine):
    info = machine.site.add("odd-library", "1.0")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-library\n\n")
    rows = needs(machine, "odd-library>=1", code=1)
    assert "needs odd-library" in rows


ARCHIVE = """
import sys
from hermes_core import MemoryManager

manager = MemoryManager.from_config(sys.argv[1])
manager.initialize_all("s1", platform="cli")
manager.sync_all("the blue heron", "noted", session_id="s1")
manager.shutdown_all()
"""


@pytest.fixture
def archived(machine):
    """A home with a conversation in its archive."""
    import subprocess
    import sys

    subprocess.run(
        [sys.executable, "-P", "-c", ARCHIVE, machine.home], env=machine.environment, check=True
    )
    return machine


def damage(machine) -> None:
    (path,) = machine.home.glob("s*.db")
    with sqlite3.connect(path) as database:
        tables = database.execute(
            "SELECT name FROM sqlite_master WHERE sql LIKE '%fts5%' AND type = 'table'"
        ).fetchall()
        for (table,) in tables:
            database.execute(f"DELETE FROM {table}_data WHERE id > 10")
    database.close()


def test_a_damaged_index_of_the_archive_is_mended_after_a_copy(archived):
    assert "messages, all searchable" in rows_of(archived)["conversations"]["detail"]
    damage(archived)
    row = rows_of(archived, code=1)["conversations"]
    assert (row["state"], row["todo"]) == ("problem", "run: hermes-plugins sessions repair")
    mended = rows_of(archived, "--fix")["conversations"]
    assert "fixed: the index was rebuilt; a copy is " in mended["detail"]
    copy = mended["detail"].rpartition("a copy is ")[2]
    assert (archived.home / copy).exists()
    assert "all searchable" in rows_of(archived)["conversations"]["detail"]
    assert "heron" in archived.run("sessions", "search", "heron").out
