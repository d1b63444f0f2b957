"""The worst of the old dialect is gone from what people read: messages, help and docs.

The list is short on purpose: it has phrases that no technical writer uses, not matters of taste.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PHRASES = re.compile(
    r"\b(is told|are told|anew|mend(?:s|ed|ing)?|is away|be away|all the same|of its own|"
    r"that is fine|is no (?!such)(?:\w+ )?(?:name|setting|folder|file|provider|plugin|error)|"
    r"given up|counts more|tell its author|for good|on its own account|"
    r"set-up|nobody (?:delivers|waits)|it gives no|stand-ins?|leftovers?|roster|mailbox|gave up)\b",
    re.IGNORECASE,
)
#: Functions whose text arguments a person reads.
SAYING = {
    "echo", "say", "say_field", "warn", "option", "argument", "confirm", "prompt", "Finding",
    "progress", "print_error",
}  # fmt: skip


def docs() -> Iterator[Path]:
    yield from (ROOT / "docs").rglob("*.md")
    yield from (ROOT / "plugins").glob("*/README.md")
    yield from (ROOT / ".github").rglob("*.md")
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))


def sources() -> Iterator[Path]:
    for folder in ("hermes_core", "plugins"):
        for path in (ROOT / folder).rglob("*.py"):
            if "scaffold/project" not in path.as_posix():
                yield path


def texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.lineno, each.value


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts of what is raised and printed, and the help of commands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from texts(node.exc)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in SAYING or name.endswith(("Error", "Problem")):
                yield from texts(node)
            for each in node.keywords:
                if each.arg in ("hint", "help", "detail"):
                    yield from texts(each.value)
        elif isinstance(node, ast.FunctionDef) and node.decorator_list:
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if "command(" in decorators or "group(" in decorators:
                yield node.lineno, ast.get_docstring(node) or ""


def found_in(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        lines = [*messages(ast.parse(text))]
    else:
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        lines = [*enumerate(prose.splitlines(), 1)]
    return sorted({f"{number}: {match[0]}" for number, line in lines
                   for match in PHRASES.finditer(line)})  # fmt: skip


@pytest.mark.parametrize("kind", [sources, docs])
def test_nobody_reads_the_old_dialect(kind):
    wrong = {path.relative_to(ROOT).as_posix(): found_in(path) for path in kind()}
    assert {name: each for name, each in wrong.items() if each} == {}
