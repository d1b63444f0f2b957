"""Every `hermes-plugins` command in the code blocks of docs and READMEs can be run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest
from support.commands import Machine, Result, posix_only
from support.our_plugins import install_plugin
from support.sites import provider_source

from hermes_core.cli.app import cli

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *ROOT.glob("plugins/*/README.md")]
COMMAND = re.compile(r"(?:^|[|;&] *)(?:\$ )?(?:[A-Z_]+=\S+ )*hermes-plugins ([^|#;&<>]*)")

#: Not run here, and why. They are parsed like the others, except those of plugins.
NOT_RUN = {
    "chat": "needs a model: tests/adapters",
    "install ./": "builds or installs a wheel: tests/install",
    "install git+": "needs a network: tests/install",
    "install https:": "needs a network: tests/install",
    "install mem": "needs a network: tests/install",
    "upgrade": "needs a network: tests/install/test_upgrade.py",
}
#: These go on until Ctrl-C. Each is started in a process and interrupted when it says something.
GOES_ON = ("log --follow", "mcp --http", "ui")
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


def inline_commands() -> set[str]:
    """What stands in backticks in a text."""
    found = set()
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for code in re.findall(r"`([^`]+)`", text):
            found |= {each.strip() for each in COMMAND.findall(" ".join(code.split()))}
    return {each for each in found if each and each.split()[0] not in {*OF_PLUGINS, "parrot"}}


def kind(command: str) -> str:
    """How it is tested."""
    if command.startswith(tuple(NOT_RUN)):
        return "parsed"
    if command.startswith(GOES_ON):
        return "interrupted"
    return "set up" if command.startswith("setup ") else "run"


def of_kind(wanted: str) -> list[str]:
    return sorted(each for each in commands() if kind(each) == wanted)


def parsed(arguments: list[str]) -> None:
    """Have click read the arguments of a command, without running it."""
    context = cli.make_context("hermes-plugins", arguments, resilient_parsing=True)
    command: click.Command = cli
    while isinstance(command, click.Group):
        if not arguments:
            return  # a text is about the group
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command = found
        rest = isinstance(command, click.Group)
        context = command.make_context(name, [*arguments], context, resilient_parsing=rest)
        if rest and arguments and arguments[0].startswith("-"):
            return  # a group with options, which does something without a command


def test_there_are_commands_in_the_docs():
    assert {"list", "status", "memory show", "sessions list"} <= commands()


def test_each_reason_why_a_command_is_not_run_is_about_one():
    for start in (*NOT_RUN, *GOES_ON):
        assert any(each.startswith(start) for each in commands()), start


@pytest.mark.parametrize("command", of_kind("parsed"))
def test_a_command_that_is_not_run_has_arguments_that_exist(command):
    parsed(shlex.split(command))


@pytest.mark.parametrize("command", sorted(inline_commands() - commands()))
def test_a_command_in_a_text_exists(command):
    with suppress(click.MissingParameter):  # `hermes-plugins install`: the text is about it
        parsed(shlex.split(command))


MESSAGE = {"session_id": "past", "role": "user", "content": "How do we deploy?", "timestamp": 1.0}
CLAUDE = {
    "type": "user",
    "uuid": "u1",
    "sessionId": "s1",
    "timestamp": "2026-11-18T10:00:00.000Z",
    "message": {"role": "user", "content": "How do we deploy?"},
}
CODEX = (
    {"timestamp": "2026-11-18T10:00:00Z", "type": "session_meta", "payload": {"id": "c1"}},
    {
        "timestamp": "2026-11-18T10:00:01Z",
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "How do we deploy?"}],
        },
    },
)
#: What a command reads: files in the working folder, and in the folder of the user.
FILES = {
    "CLAUDE.md": "- Run make test.\n",
    "AGENTS.md": "- Never push to main.\n",
    "messages.jsonl": json.dumps(MESSAGE),
    "conversations.json": json.dumps([{"uuid": "1", "chat_messages": []}]),
    "~/.codex/memories/notes.md": "- Prefers tabs.\n",
    "~/.claude/projects/p/s1.jsonl": json.dumps(CLAUDE),
    "~/.codex/sessions/c1.jsonl": "\n".join(map(json.dumps, CODEX)),
    "plugins.json": (ROOT / "hermes_core" / "install" / "plugins.json").read_text("utf-8"),
    "~/Dropbox/hermes/README": "What several machines share.\n",
    "~/src/my-plugin/plugin.yaml": "name: my-plugin\ntype: memory\n",
    "~/src/my-plugin/__init__.py": provider_source("my-plugin"),
}
#: An address that `getaddrinfo` may return.
LOCAL = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9))
#: What has to be run before a command, so that there is something for it.
BEFORE = {
    "bridge memkraft --remove": "bridge acme",
    "memory approve": "memory import CLAUDE.md",
    "memory reject": "memory import CLAUDE.md",
    "memory remove stage-2": 'memory replace stage-1 "The staging server is stage-2."',
}
_NO_WRITE = (1, "there is no write 12 in the outbox")
_NO_SERVER = (1, "PostgreSQL")
#: What a person answers; "a value" in all other cases.
ANSWERS = {"mcp install": "y\n"}
#: What a person has to confirm on a terminal.
CONFIRMED = ("install ~", "sessions delete ID", "sessions prune")
#: What does not exit with 0 here: the exit code, and what it says.
FAILS = {
    "config set memory.honcho.timeout 20": (1, "no memory provider 'honcho' is installed"),
    'forget "12 maple street" --provider': (1, "does not implement `forget`"),
    "outbox drop 12": _NO_WRITE,
    "outbox retry 12": _NO_WRITE,
    "outbox show 12": _NO_WRITE,
    "sessions import": (2, "hermes-agent has no conversations in this home"),
    "storage migrate --to files": (1, "already stores to files"),
    "storage migrate --to postgresql://hermes@127.0.0.1/hermes": _NO_SERVER,
    "storage migrate --to postgresql://hermes@127.0.0.1/hermes --dry-run": _NO_SERVER,
    "uninstall honcho": (1, "use --yes"),
}


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A home with one enabled plugin, a note and a conversation; and what it exports."""
    machine = Machine(tmp_path_factory.mktemp("docs") / "machine", in_process=True)
    machine.install("acme", provider_source("acme").replace("\ndef register", REMEMBERS))
    metadata = machine.install("plain", provider_source("plain")) / "METADATA"
    metadata.write_text(f"Requires-Python: >=3.11\n{metadata.read_text('utf-8')}", "utf-8")
    machine.run("enable", "acme").done()
    machine.run("memory", "add", "The staging server is stage-1.", "--target", "memory").done()
    write_files(machine, machine.user)
    machine.run("sessions", "import", "messages.jsonl", cwd=machine.user).done()
    for command in ("export laptop.jsonl --no-provider", "backup hermes-2026-11-18.zip"):
        machine.run(*command.split(), cwd=machine.user).done()
    shutil.copytree(machine.home, machine.user / "before")
    return machine


def write_files(machine: Machine, folder: Path) -> None:
    for name, text in FILES.items():
        path = machine.user / name[2:] if name.startswith("~") else folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


@pytest.fixture
def demo(stocked: Machine, tmp_path: Path) -> Machine:
    """That home as it was at first: no command sees what another one did."""
    shutil.rmtree(stocked.home)
    shutil.copytree(stocked.user / "before", stocked.home)
    shutil.rmtree(stocked.user / "restored", ignore_errors=True)
    write_files(stocked, tmp_path)
    return stocked


def prepare(machine: Machine, command: str, folder: Path) -> str:
    """Make what a command needs; return it with an id that exists."""
    first = command.split(maxsplit=1)[0]
    name = {"import": "laptop.jsonl", "restore": "hermes-2026-11-18.zip"}.get(first)
    if name is not None:
        shutil.copy(machine.user / name, folder / command.split()[1])
    before = next((BEFORE[each] for each in BEFORE if command.startswith(each)), "")
    if "--user 1001" in command:
        before = "config set memory.user_notes per-user"
    if before:
        assert machine.run(*shlex.split(before)).code == 0
    if first == "memory" and command.endswith(" ID"):
        (waiting,) = machine.json("memory", "pending")["pending"]
        return command.replace("ID", waiting["id"])
    return command.replace("ID", "past")


@pytest.mark.parametrize("command", of_kind("run"))
@pytest.mark.usefixtures("few_distributions", "forked_children")
def test_a_command_of_the_docs_runs(demo, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ready = prepare(demo, command, tmp_path)
    arguments = [PLAYED_BY.get(each, each) for each in shlex.split(ready)]
    arguments = [each.replace("~", str(demo.user)) for each in arguments]
    arguments += ["--yes"] * command.startswith(CONFIRMED)
    env = {"HERMES_BACKUP_PASSPHRASE": "a long passphrase", "EDITOR": f"{sys.executable} -c pass"}
    if command.startswith("check "):  # which starts processes of its own
        arguments = [each.replace("acme", "plain") for each in arguments]
        result = demo.run_process(*arguments, cwd=tmp_path, timeout=300)
    else:
        answer = next((ANSWERS[each] for each in ANSWERS if command.startswith(each)), "a value\n")
        result = demo.run(*arguments, input=answer, env=env)
    expect(result, *FAILS.get(command, (0, "")))


def expect(result: Result, code: int, text: str) -> None:
    assert result.code == code, result
    assert text in result.out + result.err
    assert "Traceback" not in result.err
    assert "unexpected" not in result.err


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A home in which our own plugins are installed."""
    machine = Machine(tmp_path_factory.mktemp("ours") / "machine", in_process=True)
    for name in ("hindsight", "honcho", "mem0"):
        install_plugin(name, machine.site.folder)
    return machine


@posix_only
@pytest.mark.parametrize("command", of_kind("set up"))
@pytest.mark.usefixtures("forked_children")
def test_a_provider_of_the_docs_is_set_up(ours, command, monkeypatch):
    """Up to its service, which nobody can reach here."""

    def refuse(_socket: socket.socket, _address: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [LOCAL])
    shutil.rmtree(ours.home)
    ours.home.mkdir()
    name, *options = shlex.split(command)[1:]
    # It asks for a key if nothing is given, and there is no terminal.
    text = "can't be reached" if options else f"set {name.upper()}_API_KEY"
    expect(ours.run("setup", name, *options, input="a value\n"), 1, text)
    if options:
        assert ours.memory["provider"] == name


@posix_only
@pytest.mark.parametrize("command", of_kind("interrupted"))
def test_a_command_that_goes_on_ends_with_ctrl_c(demo, command):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    given = shlex.split(command.replace("8765", port).replace("$TOKEN", "a-long-token"))
    demo.environment |= {"BROWSER": "true", "PYTHONUNBUFFERED": "1"}
    with demo.start(*given, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert first
    assert "Traceback" not in first + rest
    assert process.returncode in (0, 128 + signal.SIGINT)


def test_what_is_prepared_or_fails_is_in_the_docs():
    assert FAILS.keys() <= commands()
    assert all(any(each.startswith(name) for each in commands()) for name in BEFORE)


@pytest.mark.usefixtures("few_distributions")
def test_the_first_example_prints_in_a_new_home_what_it_shows(tmp_path):
    machine = Machine(tmp_path / "machine", in_process=True)
    text = (ROOT / "README.md").read_text("utf-8")
    block = re.search(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    for example in block[1].removeprefix("$ ").split("\n$ "):
        command, _, shown = example.partition("\n")
        printed = machine.run(*shlex.split(command)[1:]).done().out
        assert printed.replace(str(machine.home), "/home/ann/.hermes").strip() == shown.strip()


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
