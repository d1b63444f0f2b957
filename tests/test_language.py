"""The worst of the old dialect is gone: from messages, help, docs, docstrings and comments.

The list is short on purpose: it has phrases that no technical writer uses, not matters of taste.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: What follows "a log of its own", but not "own" in "its own log".
AFTER_OWN = (
    "that|which|where|in|on|at|for|to|and|or|with|by|from|beside|after|before|while|if|as|is|are|"
    "was|were|has|have|again|comes?"
)
PHRASES = re.compile(
    r"\b(anew|mend(?:s|ed|ing)?|(?:is|are|was|were|be) away|all the same|"
    # Not "can't be told apart".
    r"(?:is|are|was|were) (?:not )?told(?! apart)|does not tell|tells? (?:you|nothing)(?! your)|"
    r"nobody can tell|"
    r"g[ai]ves? (?:it back|back|no|none|nothing)|giving back|"
    # Not "one of its own classes", and not "there is no file".
    rf"of (?:its|their|his|your) own(?!\s+(?!(?:{AFTER_OWN})\b)\w)|that is fine|"
    r"(?<!there )is no (?!such|longer|more)\w+|"
    r"keeps? (?:a turn|turns in|a text|texts|the answers)|"
    r"given up|counts? more|tell its author|for good|on its own account|the whole of it|"
    r"set-up|nobody (?:delivers|waits)|it gives no|stand-ins?|leftovers?|roster|mailbox|gave up)\b",
    re.IGNORECASE,
)


def docs() -> Iterator[Path]:
    yield from (ROOT / "docs").rglob("*.md")
    yield from (ROOT / "plugins").glob("*/README.md")
    yield from (ROOT / ".github").rglob("*.md")
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))


def sources() -> Iterator[Path]:
    for folder in ("hermes_core", "hermes_adapters", "hermes_inspector", "plugins"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".html", ".js", ".md", ".toml", ".yaml"):
                yield path


def changes() -> Iterator[Path]:
    yield ROOT / "CHANGELOG.md"


def prose(text: str) -> str:
    """A page without its code blocks, whose lines keep their numbers."""
    blocks = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    return blocks.sub(lambda match: "\n" * match[0].count("\n"), text)


def words(text: str) -> str:
    """The strings, docstrings and comments of a module, on their lines."""
    kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    found: list[list[str]] = [[] for _ in range(text.count("\n") + 2)]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                found[number - 1].append(line)
    return "\n".join(" ".join(line) for line in found)


def found_in(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    if path.name == "CHANGELOG.md":  # what the first release said stays as it was
        text = text[: text.index("\n## [0.1.0]")]
    text = words(text) if path.suffix == ".py" else prose(text)
    return [f"{text[: match.start()].count(chr(10)) + 1}: {match[0]}"
            for match in PHRASES.finditer(text)]  # fmt: skip


@pytest.mark.parametrize("kind", [sources, docs, changes])
def test_nobody_reads_the_old_dialect(kind):
    wrong = {path.relative_to(ROOT).as_posix(): found_in(path) for path in kind()}
    assert {name: each for name, each in wrong.items() if each} == {}


@pytest.mark.parametrize(
    ("text", "is_dialect"),
    [
        ("It has a log of its own in the folder.", True),
        ("Each has a process of its own.", True),
        ("messages that are lines of their own come last", True),
        ("It has its own log in the folder.", False),
        ("The class is one of its own classes.", False),
        ("It reads the lists of its own namespace only.", False),
    ],
)
def test_what_counts_as_of_its_own(text: str, is_dialect: bool) -> None:
    assert bool(PHRASES.search(text)) is is_dialect
