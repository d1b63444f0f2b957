"""Every `hermes-plugins` command in the code blocks of docs and READMEs can be run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from support.commands import Machine
from support.sites import provider_source

from hermes_core.cli.app import cli

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *ROOT.glob("plugins/*/README.md")]
COMMAND = re.compile(r"(?:^|[|;&] *)(?:\$ )?(?:[A-Z_]+=\S+ )*hermes-plugins ([^|#;&<>]*)")

#: Not run here, and why. They are parsed like the others, except those of plugins.
NOT_RUN = {
    "backup": "writes files: tests/checkup/test_backup.py",
    "chat": "needs a model: tests/adapters",
    "check": "takes long: tests/conformance",
    "demo": "takes long: tests/e2e/test_demo.py",
    "export": "writes files: tests/builtin/test_portable.py",
    "import": "needs a file: tests/builtin/test_portable.py",
    "install": "needs a network: tests/install",
    "log --follow": "does not end: tests/call_log",
    "mcp": "does not end: tests/adapters",
    "memory edit": "needs a terminal: tests/builtin",
    "memory export --watch": "does not end: tests/builtin",
    "memory import": "needs files: tests/builtin/test_notes_import.py",
    "restore": "needs a backup: tests/checkup/test_backup.py",
    "sessions import": "needs a file of hermes-agent: tests/builtin",
    "setup": "needs the fields of a real plugin: tests/plugins",
    "ui": "does not end: tests/inspector",
    "uninstall": "changes the environment: tests/install",
}
#: Commands that a plugin adds; it is not installed here.
OF_PLUGINS = {"honcho": "tests/plugins/honcho/test_commands.py"}
#: Names in the docs, and the one that is installed here.
PLAYED_BY = dict.fromkeys(("NAME", "memkraft", "parrot", "honcho", "mem0", "hindsight"), "acme")


#: `doctor --write` waits for what it wrote to be recalled.
REMEMBERS = """
    said = ""

    def sync_turn(self, user_content, assistant_content, **kwargs):
        self.said += user_content

    def prefetch(self, query, **kwargs):
        return self.said

def register"""


def commands() -> set[str]:
    found = set()
    for page in PAGES:
        text = page.read_text("utf-8")
        for block in re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                found |= {each.strip() for each in COMMAND.findall(line.strip())}
    return {each for each in found if each.split()[0] not in OF_PLUGINS}


def is_run(command: str) -> bool:
    return not any(command.startswith(each) for each in NOT_RUN)


def parsed(arguments: list[str]) -> None:
    """Have click read the arguments of a command, without running it."""
    context = cli.make_context("hermes-plugins", arguments, resilient_parsing=True)
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command = found
        rest = isinstance(command, click.Group)
        context = command.make_context(name, [*arguments], context, resilient_parsing=rest)
        if rest and arguments and arguments[0].startswith("-"):
            return  # a group with options, which does something without a command


def test_there_are_commands_in_the_docs():
    assert {"list", "status", "memory show", "sessions list"} <= commands()


@pytest.mark.parametrize("command", sorted(filter(lambda each: not is_run(each), commands())))
def test_a_command_that_is_not_run_has_arguments_that_exist(command):
    parsed(shlex.split(command))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A home with one enabled plugin and a note."""
    machine = Machine(tmp_path_factory.mktemp("docs") / "machine", in_process=True)
    machine.install("acme", provider_source("acme").replace("\ndef register", REMEMBERS))
    machine.run("enable", "acme").done()
    machine.run("memory", "add", "The staging server is stage-1.", "--target", "memory").done()
    return machine


@pytest.mark.parametrize("command", sorted(filter(is_run, commands())))
@pytest.mark.usefixtures("few_distributions", "forked_children")
def test_a_command_of_the_docs_runs(demo, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = [PLAYED_BY.get(each, each) for each in shlex.split(command)]
    result = demo.run(*arguments, input="a value\n")
    assert result.code in {0, 1}, result
    assert "Traceback" not in result.err
    assert "unexpected" not in result.err


def typed(text: str) -> list[str]:
    """The lines that a reader types."""
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize(
    ("section", "page"),
    [
        ("Install", "getting-started.md"),
        ("Run an agent", "getting-started.md"),
        ("Write a plugin", "write-a-plugin.md"),
    ],
)
def test_the_front_page_leaves_out_no_step_of_the_page_it_leads_to(section, page):
    front = (ROOT / "README.md").read_text("utf-8").partition(f"## {section}\n")[2]
    short = [each for each in typed(front.partition("\n## ")[0]) if each != "hermes-plugins demo"]
    guide = typed((ROOT / "docs" / page).read_text("utf-8"))
    first, last = guide.index(short[0]), guide.index(short[-1])
    assert [each for each in guide[first : last + 1] if each != "pytest -q"] == short
