"""A report says the same in every form."""

from __future__ import annotations

import pytest

from hermes_core.conformance import Report, Result, all_checks
from hermes_core.conformance.model import markdown, plain, verdict


def result(number: str, state: str, **details: str) -> Result:
    (check,) = [each for each in all_checks() if each.id == number]
    return Result.of(check, state, **details)


@pytest.fixture
def report() -> Report:
    results = (
        result("HP101", "failed", happened="`name` is 'a|b'", expected="'acme'", fix="Rename."),
        result("HP201", "passed"),
        result("HP602", "failed", happened='it is <bad> & "ugly"\x1b[31m\n', where="a.py:1 (x)"),
        result("HP609", "skipped", reason="needs a <server>"),
    )
    return Report("acme", "hermes-acme", "1.2", "entry-point", "1.0", "0.1.0", False, 2.5, results)


def lines(report: Report, level: str) -> list[str]:
    return [line for line, _ in plain(report, level, lambda text, _mark: text)]


def test_at_level_must_what_should_be_done_is_a_warning(report):
    assert verdict(report, "must") == (
        "1 passed, 1 failed, 1 warning, 1 skipped in 2.5 s: FAILED at level must"
    )
    assert "2 failed, 1 skipped" in verdict(report, "should")
    assert [each.id for each in report.failures("must")] == ["HP602"]
    assert [each.id for each in report.failures("should")] == ["HP101", "HP602"]


def test_each_check_has_a_line_and_each_fault_what_to_do(report):
    text = lines(report, "must")
    assert text[0].startswith("warning HP101")
    assert text[1].split() == ["expected", "'acme'"]
    assert "to fix    Rename." in text[3]
    assert any(line.startswith("FAILED  HP602") for line in text)
    assert any(line.startswith("skipped HP609") and "needs a <server>" in line for line in text)
    assert text[-2] == "acme (hermes-acme 1.2), contract 1.0, kit 0.1.0"


def test_what_a_plugin_says_can_not_steer_the_terminal(report):
    assert "\x1b" not in "\n".join(lines(report, "must"))


def test_the_markdown_table_keeps_its_columns(report):
    rows = [line for line in markdown(report, "must").splitlines() if line.startswith("| HP")]
    assert len(rows) == 4
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)
    assert "## HP602" in markdown(report, "must")


def test_every_check_says_what_why_and_how():
    for each in all_checks():
        assert each.title, each.id
        assert len(each.why) > 30, each.id
        assert each.fix.endswith("."), each.id
        assert each.level in ("must", "should")


def test_ids_are_those_that_authors_know():
    """An id that was published never goes, and never means another thing."""
    known = {each.id: each.run.__name__ for each in all_checks()}
    assert (
        known.items()
        >= {
            "HP101": "names_agree",
            "HP206": "is_honest",
            "HP311": "lets_the_process_end",
            "HP405": "secrets_stay_secret",
            "HP506": "bad_arguments_are_answered",
            "HP602": "sync_takes_messages",
            "HP701": "users_do_not_mix",
            "HP811": "stays_at_home",
        }.items()
    )
