"""What our texts tell a person to run can be run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hermes_core.cli.app import cli

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"hermes-plugins ((?:[a-z]+(?: |\b))+)((?:--[a-z-]+)?)")


def sources() -> Iterator[Path]:
    yield from (ROOT / "hermes_core").rglob("*.py")
    yield from (ROOT / "plugins").rglob("*.py")
    yield from (ROOT / "docs").glob("*.md")
    yield ROOT / "README.md"


def hints() -> set[tuple[str, str]]:
    """Each command that follows a "run", a "see", a "then" or a prompt, and its first option."""
    found = set()
    for path in sources():
        text = re.sub(r'"\s*\n\s*f?"', "", path.read_text("utf-8"))
        for match in re.finditer(
            rf"(?:run|see|then|retry|again|runs|\$):? {COMMAND.pattern}", text
        ):
            found.add((match[1].strip(), match[2]))
    return found


def test_there_are_hints_to_check() -> None:
    words = {words for words, _ in hints()}
    assert {"outbox backfill", "outbox retry", "sessions repair", "disable"} <= words


@pytest.mark.parametrize(("words", "option"), sorted(hints()))
def test_a_hint_names_a_command_that_exists(words: str, option: str) -> None:
    ctx = click.Context(cli)
    command: click.Command = cli
    for word in words.split():
        if not isinstance(command, click.Group):
            break  # an argument
        found = command.get_command(ctx, word)
        assert found is not None, f"hermes-plugins {words}: there is no {word}"
        command = found
    if option:
        known = [name for each in command.params for name in each.opts]
        assert option in known, f"hermes-plugins {words} {option}"
