"""A framework that is missing or not tested, and what importing the adapters costs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hermes_adapters.frameworks import FrameworkMissing, require
from hermes_core import HermesError

ROOT = Path(__file__).parents[2]
REQUIRED = re.compile(r'^require\("([^"]+)", extra="([^"]+)", tested="([^"]+)"\)$', re.MULTILINE)
FRAMEWORKS = {
    "adk": ("google.adk", "adk"),
    "anthropic": ("anthropic", "anthropic"),
    "langgraph": ("langgraph", "langgraph"),
    "openai_agents": ("agents", "openai-agents"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai"),
}


def run(program: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_importing_the_package_imports_no_framework() -> None:
    names = [package for package, _ in FRAMEWORKS.values()]
    program = f"import sys, hermes_adapters; print([n for n in {names} if n in sys.modules])"
    assert run(program) == "[]\n"


def test_a_missing_framework_names_the_command_that_installs_it() -> None:
    """Metadata is hidden, as if nothing were installed; all adapters in one process."""
    program = f"""
import importlib, importlib.metadata
def missing(name):
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = missing
for module in {list(FRAMEWORKS)}:
    try:
        importlib.import_module("hermes_adapters." + module)
    except ImportError as error:
        print(error)
"""
    lines = run(program).splitlines()
    assert len(lines) == len(FRAMEWORKS)
    for line, (_, extra) in zip(lines, FRAMEWORKS.values(), strict=True):
        assert f"pip install 'hermes-plugins[{extra}]'" in line


def test_an_extra_installs_what_is_tested_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    found: dict[str, list[str]] = {}
    for path in (ROOT / "hermes_adapters").glob("*.py"):
        for framework, extra, tested in REQUIRED.findall(path.read_text("utf-8")):
            found.setdefault(extra, []).append(f"{framework}{tested}")
    assert found == {extra: extras[extra] for _, extra in FRAMEWORKS.values()}


def test_a_missing_framework_is_an_import_error_with_a_hint() -> None:
    with pytest.raises(FrameworkMissing, match="no-such-framework is not installed") as caught:
        require("no-such-framework", extra="x", tested=">=1")
    assert isinstance(caught.value, HermesError)
    assert isinstance(caught.value, ImportError)


def test_a_version_that_is_not_tested_warns() -> None:
    with pytest.warns(UserWarning, match=r"pluggy .* is not tested .*tested: <0.1"):
        require("pluggy", extra="x", tested="<0.1")


def test_it_warns_once() -> None:
    """However often the adapter is imported."""
    program = """
import importlib.metadata, sys
real = importlib.metadata.version
importlib.metadata.version = lambda name: "99" if name == "anthropic" else real(name)
sys.stderr = sys.stdout
import hermes_adapters.anthropic
from hermes_adapters.anthropic import MemoryTool
import hermes_adapters.anthropic
"""
    assert run(program).count("is not tested with hermes-plugins") == 1
