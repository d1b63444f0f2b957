"""Help texts: one short imperative sentence each, and fast."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from hermes_core.cli.app import BUILTIN_HELP, COMMANDS, cli

CONTEXT = click.Context(cli)


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for each in command.list_commands(CONTEXT):
            found = command.get_command(CONTEXT, each)
            assert found is not None
            yield from commands(found, f"{name} {each}".strip())


ALL = dict(commands(cli))


def summary(command: click.Command) -> str:
    return (command.help or "").partition("\n\n")[0].replace("\n", " ")


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_command_is_described_by_a_sentence_of_60_columns(name):
    texts = [summary(ALL[name])]
    texts += [each.help or "" for each in ALL[name].params if isinstance(each, click.Option)]
    for text in texts:
        assert 0 < len(text) <= 60, text
        assert text[0].isupper(), text
        assert text.endswith("."), text


def test_the_list_of_commands_says_what_each_says_itself():
    listed = {**{name: each.help for name, each in COMMANDS.items()}, **BUILTIN_HELP}
    assert listed == {name: summary(ALL[name]) for name in listed}
    assert {name for name in ALL if name and " " not in name} == set(listed)


def test_the_list_of_commands_imports_none_of_them(machine):
    code = "import sys, hermes_core.cli as c\nsys.argv[1:] = ['--help']\n"
    code += "try:\n    c.main()\nfinally:\n    print(*sys.modules, file=sys.stderr)\n"

    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=machine.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "uninstall" in done.stdout
    names = set(done.stderr.split())
    slow = {"jsonschema", "keyring", "pluggy", "rich", "hermes_builtin"}
    assert names & slow == set()
    assert not [name for name in names if name.startswith("hermes_core.checkup")]


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", sorted(ALL))
def test_no_line_of_the_help_ends_within_an_option(name, width):
    command = ALL[name]
    context = command.context_class(command, info_name=name, terminal_width=width)
    text = command.get_help(context)
    assert not [line for line in text.splitlines() if line.endswith("-")]
    assert "\u2011" not in text


@pytest.mark.parametrize("name", sorted(each for each in ALL if isinstance(ALL[each], click.Group)))
def test_a_list_of_commands_on_a_narrow_terminal_has_their_whole_sentences(name):
    group = ALL[name]
    assert isinstance(group, click.Group)
    context = group.context_class(group, info_name=name, terminal_width=60)
    listed = " ".join(group.get_help(context).partition("Commands:")[2].split())
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        assert f"{each} {summary(command)}" in listed
