"""Grades: what a run must have shown for each, and what is remembered of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.kit import acme

from hermes_core import __version__
from hermes_core.conformance import Grade, Report, Result, all_checks, grade_of
from hermes_core.conformance.grades import (
    TIERS,
    badge,
    grading_of,
    known_grade,
    record_grade,
    tier_of,
)
from hermes_core.conformance.model import FAILED, MUST, PASSED, SKIPPED, markdown, plain, summary
from hermes_core.discovery import describe_directory

REGISTER = "def register(ctx):\n    ctx.register_memory_provider(None)\n"


def report(**states: str) -> Report:
    """All checks passed, except those named."""
    results = [Result.of(each, states.get(each.id, PASSED)) for each in all_checks()]
    return Report("acme", "acme", "1.0", "entry-point", "1.0", __version__, False, 1.0,
                  tuple(results))  # fmt: skip


def with_result(changed: Report, number: str, **fields: object) -> Report:
    results = [replace(each, **fields) if each.id == number else each for each in changed.results]
    return replace(changed, results=tuple(results))


def test_a_plugin_that_passes_everything_is_gold():
    assert grading_of(report()) == (Grade.GOLD, None, (), ())


@pytest.mark.parametrize(
    ("failed", "grade"),
    [("HP505", "none"), ("HP701", "bronze"), ("HP811", "bronze"), ("HP110", "silver")],
)
def test_a_failed_check_stops_at_the_grade_below_its_own(failed, grade):
    assert grade_of(report(**{failed: FAILED})) == grade


def test_every_must_is_needed_for_silver_and_everything_for_gold():
    for each in all_checks():
        grade = grade_of(report(**{each.id: FAILED}))
        assert grade in ((Grade.NONE, Grade.BRONZE) if each.level == MUST else (Grade.SILVER,))
        assert tier_of(each.id, each.level) in TIERS


def test_what_could_not_be_started_is_not_graded_however_little_failed():
    skipped = {each.id: SKIPPED for each in all_checks() if each.id > "HP207"}
    assert grade_of(report(**skipped)) == Grade.NOT_GRADED
    # But a fault that was seen is one.
    assert grade_of(report(**skipped | {"HP201": FAILED})) == Grade.NONE
    # A fault of a higher grade says nothing about the lower one.
    assert grade_of(report(**skipped | {"HP207": FAILED})) == Grade.NOT_GRADED


def test_without_recall_there_is_no_silver():
    recall = dict.fromkeys(("HP609", "HP701", "HP702", "HP703"), SKIPPED)
    grading = grading_of(report(**recall))
    assert grading.describe() == "bronze (for silver: run HP701, HP702, HP703)"


def test_a_check_that_does_not_apply_is_no_obstacle():
    assert grade_of(report(HP803=SKIPPED, HP705=SKIPPED)) == Grade.GOLD


def test_a_check_that_the_author_left_out_counts_as_failed():
    left_out = with_result(report(HP811=SKIPPED), "HP811", waived=True)
    assert grading_of(left_out).describe() == "bronze (for silver: fix HP811)"


def test_a_run_that_did_not_finish_is_not_graded():
    late = with_result(report(HP505=SKIPPED), "HP505", unfinished=True)
    assert grade_of(late) == Grade.NOT_GRADED


def test_a_part_of_the_checks_is_not_graded():
    few = replace(report(), results=report().results[:10])
    assert grade_of(few) == Grade.NOT_GRADED


def test_every_form_of_a_report_has_the_grade_and_the_way_to_the_next():
    checked = report(HP110=FAILED, HP312=FAILED)
    line = "grade: silver (for gold: fix HP110, HP312)"
    assert line in [text for text, _ in plain(checked, MUST, lambda text, _mark: text)]
    assert line in markdown(checked, MUST)
    assert line in summary(checked, MUST)
    told = json.loads(json.dumps(checked.as_json(MUST)))
    assert told["grade"] == "silver"
    assert told["next_grade"] == {"grade": "gold", "failed": ["HP110", "HP312"], "not_run": []}
    assert report().as_json(MUST)["next_grade"] is None


def test_the_badge_is_an_address_without_spaces():
    for each in Grade:
        assert badge(each).startswith("https://img.shields.io/badge/hermes--plugins-")
        assert " " not in badge(each)


# -- what is remembered ------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "plugins" / "acme"
    made.mkdir(parents=True)
    (made / "__init__.py").write_text(REGISTER)
    return made


def test_a_grade_counts_for_exactly_the_files_that_were_checked(tmp_path, folder):
    info = describe_directory(folder)
    assert known_grade(tmp_path, info) is None
    record_grade(tmp_path, info, report(HP110=FAILED, HP803=SKIPPED), "2026-11-18")
    known = known_grade(tmp_path, info)
    assert known == (Grade.SILVER, "2026-11-18", ("HP110",), 1, False)
    (folder / "__init__.py").write_text(REGISTER + "# changed\n")
    assert known_grade(tmp_path, describe_directory(folder)) is None


def test_a_grade_of_another_version_of_plugin_or_kit_does_not_count(tmp_path, folder):
    info = describe_directory(folder)
    record_grade(tmp_path, info, report(), "2026-11-18")
    assert known_grade(tmp_path, info._replace(version="2.0")) is None
    assert known_grade(tmp_path, info._replace(distribution="other")) is None
    record_grade(tmp_path, info, replace(report(), kit="0.0.1"), "2026-11-18")
    assert known_grade(tmp_path, info) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"checked": []}', '{"checked": {"acme@x": 1}}'])
def test_a_damaged_record_is_the_same_as_none_and_is_replaced(tmp_path, folder, text):
    info = describe_directory(folder)
    (tmp_path / "logs").mkdir()
    file = tmp_path / "logs" / "checks.json"
    file.write_text(text)
    assert known_grade(tmp_path, info) is None
    record_grade(tmp_path, info, report(), "2026-11-18")
    assert known_grade(tmp_path, info).grade == Grade.GOLD
    assert json.loads(file.read_text())["schema"] == 1


def test_no_home_is_made_for_it(tmp_path):
    record_grade(tmp_path / "nowhere", acme(), report(), "2026-11-18")
    assert not (tmp_path / "nowhere").exists()
