"""The kit in an author's own test run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_core import HermesError
from hermes_core.conformance import all_checks, conformance_suite
from hermes_core.conformance.scaffold import PROJECT

# Runs in a process of its own: what is imported is what counts.
SPY = """
import sys
import hermes_core.conformance.pytest_plugin
import pytest
print(sorted(name for name in sys.modules if name.startswith(("hermes_", "click", "jsonschema"))))
"""


@pytest.fixture
def project(tmp_path: Path, site) -> Path:
    """An author's repository, with the plugin installed."""
    value = "hermes_memory_acme:AcmeProvider"
    info = site.add(
        "hermes-memory-acme",
        groups={"hermes_agent.memory_providers": {"acme": value}},
        summary="A plugin.",
    )
    metadata = info / "METADATA"
    metadata.write_text(metadata.read_text().replace("\n\n", "\nRequires-Python: >=3.11\n\n", 1))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\nxfail_strict = true\n")
    return folder


def run(project: Path, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on these suites, of which each becomes a class."""
    classes = [f"Test{number} = {each}\n" for number, each in enumerate(tests.split(" & "))]
    (project / "test_it.py").write_text(
        "from hermes_core.conformance import conformance_suite\n" + "".join(classes)
    )
    paths = [str(PROJECT / "src"), *(each for each in sys.path[:3] if "site" in each)]
    return subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTEST_ADDOPTS": "-p no:langsmith_plugin -p no:anyio",  # slow, and not ours
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.stress  # test_mutants.py runs the whole kit on this plugin too
def test_one_line_of_test_code_runs_the_whole_kit(project):
    done = run(project, "conformance_suite('acme')", "-q")
    assert done.returncode == 0, done.stdout
    assert f"{len(all_checks())} passed" in done.stdout
    assert "acme (hermes-memory-acme 1.0), contract 1.0, kit " in done.stdout


@pytest.mark.stress
def test_only_what_pytest_selects_is_run_and_what_is_not_run_has_a_reason(project):
    suites = (
        "conformance_suite('acme')",
        "conformance_suite('acme', skip={'HP602': 'no turns here'})",
        "conformance_suite('nosuch')",
        "conformance_suite('acme', skip={'HP999': 'why'})",
    )
    done = run(project, " & ".join(suites), "-k", "HP602 or HP60 and sync", "-v")
    assert "Test0::test_HP602_sync_takes_messages PASSED" in done.stdout
    assert "\n2 passed, 0 failed, 0 skipped" in done.stdout
    assert "skipped HP602: no turns here" in done.stdout
    assert "no memory provider 'nosuch' is installed" in done.stdout
    assert "unknown check HP999" in done.stdout


@pytest.mark.stress
def test_a_fault_fails_its_test_with_what_to_do_and_what_should_be_done_fails_as_expected(
    project, tmp_path
):
    (tmp_path / "site" / "hermes_memory_other.py").write_text(
        "from hermes_memory_acme import AcmeProvider\n"
        "class Other(AcmeProvider):\n"
        "    def on_pre_compress(self, messages): pass\n"
    )
    entry_points = next((tmp_path / "site").glob("*.dist-info")) / "entry_points.txt"
    entry_points.write_text("[hermes_agent.memory_providers]\nacme = hermes_memory_other:Other\n")
    metadata = entry_points.with_name("METADATA")
    metadata.write_text("Metadata-Version: 2.1\nName: hermes-memory-acme\nVersion: 1.0\n\n")
    suites = "conformance_suite('acme') & conformance_suite('acme', level='must')"
    done = run(project, suites, "-k", "Test0 and HP61 or HP110", "-v")
    assert done.returncode == 1
    assert "HP611 `on_pre_compress` returns a str" in done.stdout
    assert "happened  it returned None" in done.stdout
    assert "to fix    Return '' if" in done.stdout
    assert "Traceback" not in done.stdout
    assert "Test0::test_HP110_" in done.stdout
    assert "2 failed, " in done.stdout
    assert "1 xfailed" in done.stdout


def test_an_unknown_level_is_refused_at_once():
    with pytest.raises(HermesError, match="unknown level"):
        conformance_suite("acme", level="perhaps")


def test_the_pytest_plugin_imports_pytest_and_the_standard_library_only():
    done = subprocess.run(
        [sys.executable, "-P", "-c", SPY], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(
        ["hermes_core", "hermes_core.conformance", "hermes_core.conformance.pytest_plugin"]
    )


def test_a_run_without_the_suite_says_nothing_of_it_and_has_the_option_for_a_live_backend(project):
    (project / "test_other.py").write_text(
        "def test_it(pytestconfig): assert pytestconfig.getoption('--hermes-live') is False\n"
    )
    done = run(project, "None", "-q", "test_other.py")
    assert "1 passed" in done.stdout
    assert "conformance" not in done.stdout


@pytest.mark.stress
def test_the_report_comes_from_the_workers_of_xdist_too(project):
    suite = "conformance_suite('acme', skip={'HP602': 'no turns here'})"
    done = run(project, suite, "-k", "HP602 or HP603", "-n", "1")
    assert "gw0: acme (hermes-memory-acme 1.0), contract 1.0, kit " in done.stdout
    assert "gw0: skipped HP602: no turns here" in done.stdout
