"""The kit proves itself: a good provider passes, and every check fails for its mutant alone."""

from __future__ import annotations

import ast
import os
from importlib import import_module
from pathlib import Path

import pytest
from support.forked_children import run_forked
from support.kit import acme
from support.sites import PLUGINS, Site, add_directory

from hermes_core.conformance import Limits, Options, _runner, all_checks, check_plugin
from hermes_core.conformance.model import FAILED, MUST, PASSED
from hermes_core.discovery import ProviderInfo, describe_directory

pytestmark = pytest.mark.scaled

FOLDER = Path(__file__).parent / "mutants"
EXIT = "HP311"
REGISTER = """
from hermes_memory_acme import AcmeProvider

def register(ctx):
    ctx.register_memory_provider(AcmeProvider())
"""
#: At full size every mutant meets every check; else the checks that it is known to fail.
STRESS = bool(os.environ.get("HERMES_STRESS"))
#: How long faults are waited for that never go away.
WAIT = 2.0 if STRESS else 0.5
#: What is about the end of a process needs a real one.
ALONE = {each.id for each in all_checks() if each.alone}
LEVELS = {each.id: each.level for each in all_checks()}


def classes() -> dict[str, str]:
    """Where each mutant is. Not by importing them: some do things then."""
    return {
        node.name: f"mutants.{file.stem}:{node.name}"
        for file in FOLDER.glob("*.py")
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name.startswith("HP")
    }


def wrong_group(folder: Path, site: Site) -> ProviderInfo:
    value = "hermes_memory_acme:AcmeProvider"
    info = site.add("acme-plugin", groups={PLUGINS: {"acme": value}}, summary="A plugin.")
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-plugin\nVersion: 1.0\nSummary: A plugin.\n"
        "Requires-Python: >=3.11\n\n"
    )
    return acme(value, distribution="acme-plugin")


def broken_manifest(folder: Path, site: Site) -> ProviderInfo:
    return describe_directory(add_directory(folder, "acme", REGISTER, "name: [acme\n"))


def other_manifest(folder: Path, site: Site) -> ProviderInfo:
    manifest = "name: honcho\nversion: 1.0\ndescription: A plugin.\n"
    return describe_directory(add_directory(folder, "acme", REGISTER, manifest))


def no_description(folder: Path, site: Site) -> ProviderInfo:
    return describe_directory(add_directory(folder, "acme", REGISTER))


#: What is wrong with these lies outside of their code.
PACKAGED = {
    "HP104": wrong_group,
    "HP105": broken_manifest,
    "HP106": other_manifest,
    "HP110": no_description,
}
#: Checks of level should that the same fault can't but fail.
ALSO = {"HP105": {"HP106", "HP110"}}


def failed(info: ProviderInfo, options: Options) -> set[str]:
    report = check_plugin(info, options)
    return {each.id for each in report.results if each.state == FAILED}


def test_the_good_provider_passes_every_check_and_none_is_skipped(good):
    report = check_plugin(good)
    assert [each for each in report.results if each.state != PASSED] == []
    assert len(report.results) == len(all_checks())


def test_every_check_has_a_mutant_and_every_mutant_a_check():
    assert set(LEVELS) == {*classes(), *PACKAGED}


@pytest.mark.parametrize("number", LEVELS)
def test_a_mutant_fails_its_check_and_no_other_that_must_hold(number, tmp_path, site, monkeypatch):
    if os.name == "posix" and not STRESS and number not in ALONE:
        monkeypatch.setattr(_runner, "run_child", run_forked)
    if number in ("HP406", "HP812") and os.name != "posix":
        pytest.skip("modes say nothing here")
    also, limits, env = ALSO.get(number, set()), {}, {}
    if number in PACKAGED:
        info = PACKAGED[number](tmp_path, site)
    else:
        info = acme(classes()[number])
        kind = getattr(import_module(info.entry_point.partition(":")[0]), number)
        also = getattr(kind, "ALSO", set())
        limits, env = getattr(kind, "LIMITS", {}), getattr(kind, "ENV", {})
    # The end of the process is its own mutant's business: it costs a process each.
    every = tuple(each for each in LEVELS if each != EXIT or number == EXIT)
    only = every if STRESS else (number, *sorted(also))
    options = Options(env=env, only=only, limits=Limits(**{"wait": WAIT, **limits}))
    assert failed(info, options) - also == {number}
    assert not {each for each in also if LEVELS[each] == MUST}
