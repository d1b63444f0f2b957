"""The changelog, the version that pages show, and links that mkdocs does not check."""

from __future__ import annotations

import pkgutil
import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from hermes_core import __version__

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
GROUPS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
RELEASES = re.findall(r"^## \[(.+?)\](?: - \d{4}-\d\d-\d\d)?$", CHANGELOG, re.MULTILINE)


def section(release: str) -> str:
    return CHANGELOG.partition(f"\n## [{release}]")[2].partition("\n## ")[0]


def test_the_newest_release_is_this_version():
    assert RELEASES[:2] == ["Unreleased", __version__]


@pytest.mark.parametrize("release", RELEASES[:2])
def test_the_changes_of_a_release_are_grouped(release):
    assert set(re.findall(r"^### (.+)$", section(release), re.MULTILINE)) <= GROUPS


def test_new_names_of_the_renamed_are_public():
    rows = re.findall(
        r"^\| .+ \| `(hermes_core[\w.]*)\.(\w+)`(?:, `\.(\w+)`)*", CHANGELOG, re.MULTILINE
    )
    assert len(rows) > 10
    for module, *names in rows:
        owner = pkgutil.resolve_name(module)
        assert all(hasattr(owner, name) for name in names if name), module


def test_every_release_has_a_link():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    links = dict(re.findall(r"^\[(.+?)\]: (\S+)$", CHANGELOG, re.MULTILINE))
    home = urls["Homepage"]
    newest = {"Unreleased": "HEAD", **{name: f"v{name}" for name in RELEASES[1:]}}
    expected = {
        newer: f"{home}/compare/v{older}...{newest[newer]}" for newer, older in pairwise(RELEASES)
    }
    first = RELEASES[-1]
    assert links == {**expected, first: f"{home}/releases/tag/v{first}"}


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as mkdocs and GitHub make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", each).strip().lower() for each in titles]
    return {re.sub(r"[\s]", "-", each) for each in plain}


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_every_link_leads_somewhere(name):
    links = re.findall(r"\]\((?!https?:|mailto:)([^)#]*)(?:#([^)]+))?\)", (ROOT / name).read_text())
    for path, anchor in links:
        target = ROOT / (path or name)
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_pages_show_this_version():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {
        (page.name, version)
        for page in pages
        for version in re.findall(r"^builtin +active +(\S+)", page.read_text("utf-8"), re.MULTILINE)
    }
    assert shown == {("getting-started.md", __version__)}


def test_the_front_page_of_the_docs_leads_to_every_page():
    text = (ROOT / "docs" / "index.md").read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"]({page.name}" in text, page.name
