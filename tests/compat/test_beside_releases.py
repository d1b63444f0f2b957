"""Ours beside every release of hermes-agent: the same scenarios, members and host program.

`peers/differences.py` lists what differs on purpose; docs/compatibility.md prints it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from compat.peers.differences import DIFFERENCES, NEWER, SIGNATURES
from compat.peers.page import PAGE, with_table
from support.hermes_agent import PEERS, missing
from support.releases import OURS, PROGRAMS, answer, scenarios, start

from hermes_core.loading.compat import OFFERED

STRESS = bool(os.environ.get("HERMES_STRESS"))
#: The scenarios take most of the time: `make test` runs them beside the newest release.
COMPARED = [*PEERS] if STRESS else [*PEERS][-1:]
RELEASES = [
    pytest.param(each, marks=pytest.mark.skipif(bool(missing(each)), reason=missing(each)))
    for each in PEERS
]
IMPORTS = """\
from agent.memory_manager import MemoryManager, StreamingContextScrubber
from agent.memory_provider import MemoryProvider
"""
OUR_IMPORTS = """\
from hermes_core import MemoryManager, MemoryProvider
from hermes_core import StreamScrubber as StreamingContextScrubber
"""
OFFER = (
    "from hermes_core.loading.compat import offer_hermes_agent_modules\n"
    "offer_hermes_agent_modules()\n"
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The scenarios of every release that is there and of ours, run once."""
    there = [each for each in COMPARED if not missing(each)]
    return scenarios(tmp_path_factory.mktemp("results"), *there, OURS)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The public members of every release that is there and of ours."""
    there = [each for each in PEERS if not missing(each)]
    return scenarios(tmp_path_factory.mktemp("members"), *there, OURS, options=("--members",))


# One worker runs all tests of a fixture: it takes longer than they do.
@pytest.mark.xdist_group("beside-releases")
@pytest.mark.scaled
@pytest.mark.parametrize("release", [each for each in RELEASES if each.values[0] in COMPARED])
def test_scenarios_have_the_same_results_but_for_the_differences_on_purpose(release, results):
    found = results
    theirs, ours = found[release]["results"], found[OURS]["results"]
    assert set(DIFFERENCES) <= set(theirs), "differences without a scenario"
    assert not [name for name in ours if _is_absent(ours[name])], "members that ours has not"
    assert {name: ours[name] for name in NEWER} == NEWER
    differing = {name for name in ours if _differs(theirs[name], ours[name])}
    expected = {name for name, each in DIFFERENCES.items() if each.only in ("", release)}
    expected -= {name for name in expected if _is_absent(theirs[name])}
    shown = [f"{name}\n  {theirs[name]}\n  {ours[name]}" for name in differing - expected]
    assert not shown, "unexpected differences (theirs, ours):\n" + "\n".join(sorted(shown))
    assert not expected - differing, "differences that are no longer there"


def _differs(theirs: Any, ours: Any) -> bool:
    return not _is_absent(theirs) and theirs != ours


def _is_absent(theirs: Any) -> bool:
    """Whether a release does not have what a scenario is about."""
    return isinstance(theirs, dict) and set(theirs) == {"missing"}


@pytest.mark.xdist_group("beside-releases")
@pytest.mark.parametrize("release", RELEASES)
def test_every_public_member_takes_the_calls_that_it_takes_there(release, members):
    found = members
    theirs, ours = found[release]["members"], found[OURS]["members"]
    wrong = {
        name: (shape, ours.get(name, "missing"))
        for name, shape in theirs.items()
        if name not in ours or not _accepts(ours[name], shape)
    }
    assert {name: wrong[name] for name in wrong if name not in SIGNATURES} == {}


Shape = list[list[str]] | None


def _accepts(ours: Shape, theirs: Shape) -> bool:
    """Whether every call that fits their parameters fits ours and means the same."""
    if theirs is None or ours is None:
        return theirs is ours
    known = {name: (kind, default) for name, kind, default in ours}
    if "VAR_KEYWORD" in (kind for kind, _ in known.values()):  # what is not named is passed on
        known = {name: (kind, default) for name, kind, default in theirs} | known
    wanted = {name for name, *_ in theirs}
    required = {name for name, (kind, default) in known.items() if _is_required(kind, default)}
    return (
        all(known.get(name) == (kind, default) for name, kind, default in theirs)
        and _positions(theirs) == _positions(ours)[: len(_positions(theirs))]
        and required <= wanted
    )


def _is_required(kind: str, default: str) -> bool:
    return not kind.startswith("VAR") and default == "<class 'inspect._empty'>"


def _positions(shape: list[list[str]]) -> list[str]:
    return [name for name, kind, _ in shape if kind.startswith("POSITIONAL")]


@pytest.mark.scaled
@pytest.mark.parametrize("release", [each for each in RELEASES if each.values[0] in COMPARED])
@pytest.mark.parametrize("ours", ["imports", "offered"])
def test_a_host_uses_ours_by_changing_its_imports(release, ours, tmp_path):
    source = (PROGRAMS / "host_program.py").read_text("utf-8")
    assert IMPORTS in source
    changed = source.replace(IMPORTS, OUR_IMPORTS) if ours == "imports" else OFFER + source
    theirs = _calls(release, tmp_path, source)
    assert _calls(OURS, tmp_path, changed) == theirs


def _calls(side: str, folder: Path, source: str) -> dict[str, Any]:
    path = folder / f"{side}.py"
    path.write_text(source, "utf-8")
    with start(side, folder, str(path)) as child:
        result: dict[str, Any] = answer(child)
    for _, kwargs in result["calls"]["initialize"]:
        del kwargs["hermes_home"]
    return result


@pytest.mark.skipif(any(map(missing, PEERS)), reason="; ".join(map(missing, PEERS)))
@pytest.mark.xdist_group("beside-releases")
def test_the_page_has_the_table_of_members(members):
    text = PAGE.read_text("utf-8")
    assert text == with_table(text, members), "run python tests/compat/peers/page.py"


def test_the_page_has_every_module_that_is_offered():
    text = PAGE.read_text("utf-8")
    assert [each for each in OFFERED if OFFERED[each] and f"| `{each}` |" not in text] == []
