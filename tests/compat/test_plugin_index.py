"""The index of plugins is what the runs have shown, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hermes_core.conformance import Grade, all_checks

PUBLIC = Path(__file__).parent / "public"
INDEX = Path(__file__).parents[2] / "hermes_core" / "install" / "plugins.json"


def script(name: str) -> ModuleType:
    """A script beside the data, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"public_{name}", PUBLIC / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


maker, page = script("index"), script("page")


def read(path: Path) -> list[dict]:
    return json.loads(path.read_text("utf-8"))


RESULTS = read(PUBLIC / "results.json")
PLUGINS = read(INDEX)["plugins"]


def test_index_and_page_are_made_from_the_results(monkeypatch):
    """If this fails: python tests/compat/public/index.py; python tests/compat/public/page.py."""
    monkeypatch.setattr(sys, "argv", ["index.py", "--check"])
    assert maker.main() == 0
    assert page.main() == 0


def test_the_page_names_failures_in_a_few_words(monkeypatch, tmp_path):
    failures = {
        "process": json.dumps({"problems": []}),
        "prefetch": "ServerError: " + "a long reason " * 40,
        "shutdown": "no answer within 4.99968 s",
    }
    result = {"distribution": "acme", "version": "1", "listing": [], "problem": ""}
    (tmp_path / "results.json").write_text(json.dumps([{**result, "failures": failures}]))
    (tmp_path / "page.md").write_text(f"{page.BEGIN}{page.END}")
    monkeypatch.setattr(page, "HERE", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(sys, "argv", ["page.py"])
    assert page.main() == 0
    (shown,) = re.findall(r"\*\*acme\*\*: (.*)", (tmp_path / "page.md").read_text("utf-8"))
    assert shown.startswith("process fails: it redirects standard output")
    assert shown.endswith(" …; shutdown fails: no answer within 5 s")
    assert len(shown) < 300


def test_every_package_was_tried_in_the_version_that_the_list_names():
    packages = {each["distribution"]: each["version"] for each in read(PUBLIC / "packages.json")}
    assert {each["distribution"]: each["version"] for each in RESULTS} == packages
    assert {each["distribution"]: each["version"] for each in PLUGINS} == packages


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda each: each["distribution"])
def test_an_entry_has_the_form_that_readers_expect(plugin):
    assert plugin["name"]
    assert plugin["memories"] in ("local", "service", "both", "unknown")
    assert plugin["made_for"] in ("hermes-agent", "hermes-plugins")
    assert plugin["grade"] in list(Grade)
    kinds = {each["kind"] for each in plugin["needs"]}
    assert kinds <= {"key", "server", "binary", "package", "setting"}
    for text in (plugin["description"], plugin["problem"]):
        assert len(text) <= 160
        assert "\n" not in text
    assert re.fullmatch(r"(sha256:[0-9a-f]{64})?", plugin["hash"])
    # Whatever was not tested says why, and has no grade.
    assert plugin["tested"] or (plugin["problem"] and plugin["grade"] == "not graded")
    assert plugin["tested"] or not plugin["hash"]


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda each: each["distribution"])
def test_the_counts_of_an_entry_are_those_of_a_whole_run(plugin):
    checks = plugin["checks"]
    total = checks["passed"] + len(checks["failed"]) + checks["skipped"]
    # A newer kit may have more checks than the run that made the index.
    assert (total > len(all_checks()) // 2) is plugin["tested"]
    assert set(checks["failed"]) <= {each.id for each in all_checks()}


def described(*fields: tuple[str, bool, bool], **more: object) -> dict:
    rows = [
        {"key": name.lower(), "variable": name, "secret": secret, "required": required}
        for name, secret, required in fields
    ]
    return {"described": {"fields": rows}, "problem": "", **more}


def test_needs_are_what_a_person_has_to_provide():
    result = described(
        ("ACME_API_KEY", True, True),
        ("ACME_URL", False, False),
        ("ACME_LIMIT", False, False),
        ("ACME_MAX_TOKENS", False, False),
        ("ACME_REDACT_SECRETS", False, False),
        ("ACME_WORKSPACE", False, True),
    )
    result["described"] |= {
        "requires_env": [{"name": "ACME_TOKEN", "required": True}],
        "packages": [{"name": "acme-sdk"}],
    }
    assert [(each["kind"], each["name"], each["optional"]) for each in maker.needs(result)] == [
        ("key", "ACME_API_KEY", False),
        ("key", "ACME_TOKEN", False),
        ("package", "acme-sdk", False),
        ("setting", "ACME_WORKSPACE", False),
        ("server", "ACME_URL", True),
    ]


@pytest.mark.parametrize(
    "name",
    ["ACME_MAX_TOKENS", "ACME_CONTEXTTOKENS", "ACME_REDACT_SECRETS", "ACME_API_KEY_ENV",
     "ACME_HOST_FILES_ROOT", "ACME_HOST_FILES_ALLOW", "ACME_HOST_FILES_WATCHER"],
)  # fmt: skip
def test_an_option_is_neither_a_key_nor_a_server(name):
    assert maker.needs(described((name, False, False))) == []


def test_what_is_missing_is_a_need():
    problems = {
        "import failed: ModuleNotFoundError: No module named 'requests'": ("package", "requests"),
        "Install memleaf and expose the memleaf-mcp executable.": ("binary", "memleaf-mcp"),
    }
    for problem, need in problems.items():
        (found,) = maker.needs({"problem": problem})
        assert (found["kind"], found["name"]) == need


@pytest.mark.parametrize(
    ("result", "place"),
    [
        (described(recalls=True), "local"),
        (described(("ACME_URL", False, False), recalls=True, server="acme"), "service"),
        (described(("ACME_LLM_API_KEY", True, False), recalls=True), "local"),
        (described(("ACME_PG_DSN", False, False), recalls=True), "both"),
        (described(("ACME_API_KEY", True, True)), "service"),
        (described(needs_network=True), "service"),
        (described(needs_network=True, files_in_home=["acme.db"]), "local"),
        (described(needs_network=True, writes_outside=[".cache", ".acme"]), "local"),
        (described(("ACME_EMBED_URL", False, False), needs_network=True), "unknown"),
        (described(files_in_home=["SOUL.md", "skills"]), "unknown"),
        (described(files_in_home=["acme"]), "local"),
        (described(), "unknown"),
    ],
)
def test_where_memories_live_follows_from_what_was_seen(result, place):
    assert maker.memories(result) == place
