"""One memory for every agent: what is said in one host is known in every other."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest
from support.hosts import HOSTS

pytestmark = [pytest.mark.xdist_group("langgraph"), pytest.mark.filterwarnings("ignore")]

#: What each host's user says; the question has the first word only.
WORDS = {
    "conversation": ("crimson", "walnut"), "anthropic": ("amber", "linen"),
    "chat": ("violet", "granite"), "mcp": ("indigo", "marble"),
    "openai-agents": ("turquoise", "copper"), "pydantic-ai": ("magenta", "velvet"),
    "langgraph": ("emerald", "bamboo"), "adk": ("scarlet", "leather"),
}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which every host has stored its fact."""
    home = tmp_path_factory.mktemp("matrix") / "home"
    home.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, host in HOSTS.items():
            colour, secret = WORDS[name]
            host(home).write(f"The {colour} door opens with the {secret} key.")
    return home


@pytest.mark.stress
@pytest.mark.parametrize("reader", HOSTS)
def test_a_host_recalls_what_every_host_wrote(written: Path, tmp_path: Path, reader: str) -> None:
    home = tmp_path / "home"
    shutil.copytree(written, home)  # what this test asks must not be what the next one finds
    missing = [
        writer
        for writer, (colour, secret) in WORDS.items()
        if secret not in HOSTS[reader](home).recall(f"Which key opens the {colour} door?")
    ]
    assert missing == []
