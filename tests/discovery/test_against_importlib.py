"""Our scan of dist-info folders against importlib_metadata, on sites made at random."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from pathlib import Path

import importlib_metadata
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.sites import MEMORY, OBSERVERS, PLUGINS, Site

from hermes_core.config.names import normalise
from hermes_core.discovery.metadata import distributions, parse_entry_points

pytestmark = pytest.mark.scaled

#: Each builds a site on the disk.
EXAMPLES = 200 if os.environ.get("HERMES_STRESS") else 20

GROUPS = [MEMORY, PLUGINS, OBSERVERS, "console_scripts", "hermes_agent.other", "spaced name"]
NAMES = ["acme", "Acme-Memory", "acme_memory", "x", "ns.pkg", "Ünïcode", "a--b"]

spaces = st.sampled_from(["", " ", "\t", "  "])
plain = st.text(alphabet="abcXYZ019_.-é", min_size=1, max_size=8)
values = st.one_of(
    plain,
    st.builds("{}:{}".format, plain, plain),
    st.builds("{}:{} [{}]".format, plain, plain, plain),
    st.just("a:b = c"),
)
summaries = st.text(alphabet="abc é.:-", max_size=20).map(str.strip)


@st.composite
def entry_points(draw) -> str:
    """An entry_points.txt as somebody may have written it by hand."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    lines = []
    for group in draw(st.lists(st.sampled_from(GROUPS), unique=True, max_size=3)):
        lines.append(f"{draw(spaces)}[{group}]{draw(spaces)}")
        for name in draw(st.lists(plain, unique=True, max_size=3)):
            lines.append(f"{draw(spaces)}{name}{draw(spaces)}={draw(spaces)}{draw(values)}")
            lines += draw(st.lists(st.sampled_from(["", "# a = b:c", " #[x]", "\t"]), max_size=1))
    return newline.join(lines) + draw(st.sampled_from(["", newline]))


@st.composite
def sites(draw, most: int = 3) -> list[list[tuple[str, str, str, str | None, bool]]]:
    """The contents of folders on the import path, each project at most once in each."""
    project = st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(["1.0", "2.0rc1", "1!3+local"]),
        summaries,
        st.none() | entry_points(),
        st.booleans(),
    )
    folder = st.lists(project, unique_by=lambda each: normalise(each[0]), max_size=4)
    return draw(st.lists(folder, min_size=1, max_size=most))


def build(root: Path, folders) -> list[str]:
    """Write the folders; gives their paths."""
    paths = []
    for number, projects in enumerate(folders):
        site = Site(root / str(number))
        paths.append(str(site.folder))
        for name, version, summary, declared, egg in projects:
            info = site.add(name, version, summary=summary)
            if declared is not None:
                (info / "entry_points.txt").write_bytes(declared.encode())
            if egg:
                (info / "METADATA").rename(info / "PKG-INFO")
                info.rename(info.with_suffix(".egg-info"))
    return paths


def ours(paths, marker=None):
    return {
        normalise(each.name): (
            each.name,
            each.version,
            each.summary,
            sorted(each.entry_points),
            each.problem,
        )
        for each in distributions(marker, paths)
    }


def theirs(paths):
    found = {}
    for each in importlib_metadata.distributions(path=paths):
        points = sorted((point.group, point.name, point.value) for point in each.entry_points)
        summary = each.metadata.get("Summary") or ""
        found.setdefault(normalise(each.name), (each.name, each.version, summary, points, ""))
    return found


def with_marker(found, marker):
    return {
        key: each for key, each in found.items() if any(marker in point[0] for point in each[3])
    }


@settings(derandomize=True, max_examples=EXAMPLES, deadline=None)
@given(sites())
def test_both_find_the_same_distributions_with_the_same_entry_points(folders):
    with tempfile.TemporaryDirectory() as root:
        paths = build(Path(root), folders)
        assert ours(paths) == theirs(paths)


@settings(derandomize=True, max_examples=EXAMPLES, deadline=None)
@given(sites(most=1))
def test_the_quick_look_for_our_groups_misses_none_and_adds_none(folders):
    with tempfile.TemporaryDirectory() as root:
        paths = build(Path(root), folders)
        quick = with_marker(ours(paths, b"hermes_agent."), "hermes_agent.")
        assert quick == with_marker(theirs(paths), "hermes_agent.")


@settings(derandomize=True, max_examples=EXAMPLES, deadline=None)
@given(sites())
@example([[("acme", "2.0", "", None, False)], [("acme", "1.0", "", f"[{MEMORY}]\na=b", False)]])
def test_the_quick_look_agrees_also_where_one_folder_shadows_another(folders):
    with tempfile.TemporaryDirectory() as root:
        paths = build(Path(root), folders)
        quick = with_marker(ours(paths, b"hermes_agent."), "hermes_agent.")
        assert quick == with_marker(theirs(paths), "hermes_agent.")


@settings(derandomize=True)
@given(st.text())
def test_any_text_is_parsed_without_an_exception_and_bad_lines_are_told(text):
    found, problem = parse_entry_points(text)
    for each in found:
        assert each.group
        assert each.name
        assert each.value
    kept = [line.strip() for line in text.splitlines()]
    other = [
        line
        for line in kept
        if line and not line.startswith("#") and not (line[0] == "[" and line[-1] == "]")
    ]
    assert (len(found) < len(other)) == bool(problem)


def recorded(names) -> tuple[str, ...]:
    """What our scan reads back from a RECORD with these names in it."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([name, "sha256=x", "1"] for name in names)
    with tempfile.TemporaryDirectory() as root:
        info = Site(Path(root)).add("acme")
        (info / "RECORD").write_text(text.getvalue(), "utf-8")
        (distribution,) = distributions(None, [root])
        return distribution.files


@settings(derandomize=True, max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.text(alphabet="abc/.,' é-_", min_size=1)))
def test_file_names_come_out_of_record_as_they_went_in(names):
    assert recorded(names) == tuple(names)


@pytest.mark.parametrize("name", ['"a".py', 'a.py"'])
def test_a_file_name_with_quotation_marks_comes_out_as_it_went_in(name):
    assert recorded([name]) == (name,)
