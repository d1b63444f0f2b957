"""A canary in every secret field: in its store and nowhere else, whatever is run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Machine, posix_only
from support.fielded import API_KEY, MODE, add_plugin, run_process_with

CANARY = "canary-4711-0815"
SECRETS = (
    {**API_KEY, "when": None},
    {"key": "pin", "secret": True, "type": "integer"},  # the canary is none: an error
    {"key": "word", "type": "password"},
    {"key": "kind", "secret": True, "choices": ["a", "b"]},  # nor is it among these
    {"key": "late", "secret": True, "when": {"mode": "cloud"}},
    MODE,
)
STORED = (SECRETS[0], SECRETS[2], *SECRETS[4:])
LOGGED = """
import logging, sys
logging.disable = lambda *_: None
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
logging.debug("all is logged")
"""
COMMANDS = [
    ["status", "--json"],
    ["config", "show", "--origin"],
    ["config", "show", "--json"],
    ["config", "set", "memory.acme.mode", "local"],
    ["doctor", "--json", "--write"],
    ["enable", "acme"],
]


def holders(folder: Path) -> set[str]:
    """The files below a folder that have the canary, but for the plugin's source."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "plugins" not in path.parts and CANARY.encode() in path.read_bytes()
    }


def said(machine: Machine, *arguments: str, stdin: str = "", **env: str) -> str:
    done = run_process_with(machine, stdin, "--debug", *arguments, **env)
    return done.out + done.err


@pytest.fixture
def logged(machine):
    """Everything that is logged is said."""
    (machine.site.folder / "sitecustomize.py").write_text(LOGGED)
    return machine


def set_up(machine: Machine) -> str:
    options = [part for key in ("api_key", "word", "late") for part in ("--secret-stdin", key)]
    lines = f"{CANARY}\n{CANARY}-b\n{CANARY}-c\n"
    return said(machine, "setup", "acme", *options, stdin=lines)


@pytest.mark.parametrize("backend", ["keyring.backends.fail.Keyring", "support.keyrings.InFile"])
def test_no_command_shows_it_or_writes_it_elsewhere(logged, tmp_path, backend):
    add_plugin(logged.home, STORED)
    logged.environment["PYTHON_KEYRING_BACKEND"] = backend
    text = set_up(logged)
    assert "acme is enabled and works." in text
    store = {"keyring.json"} if "InFile" in backend else {"machine/home/.env"}
    assert holders(tmp_path) == store
    for arguments in COMMANDS:
        text += said(logged, *arguments)
        assert CANARY not in text, arguments
    assert text.count("all is logged") > len(COMMANDS)
    assert holders(tmp_path) == store


@pytest.mark.parametrize("where", [".env", "environment", "config.yaml"])
def test_no_command_shows_one_that_is_not_valid(logged, tmp_path, where):
    add_plugin(logged.home, SECRETS)
    logged.write_config("memory: {provider: acme}\n")
    names = ("ACME_API_KEY", "ACME_PIN", "ACME_WORD", "ACME_LATE", "ACME_KIND")
    env = dict.fromkeys(names, CANARY) if where == "environment" else {}
    if where == ".env":
        (logged.home / ".env").write_text("".join(f"{name}={CANARY}\n" for name in names))
    elif where == "config.yaml":
        values = ", ".join(f"{name[5:].lower()}: {CANARY}" for name in names)
        logged.write_config(f"memory: {{provider: acme, acme: {{{values}}}}}\n")
    before = holders(tmp_path)
    for arguments in (["status"], COMMANDS[2], ["doctor"], ["setup", "acme", "--no-input"]):
        assert CANARY not in said(logged, *arguments, **env), arguments
    assert holders(tmp_path) == before


def test_a_refused_set_up_shows_nothing(logged, tmp_path):
    add_plugin(logged.home, SECRETS)
    text = said(
        logged, "setup", "acme", "--secret-stdin", "pin", "--secret-stdin", "kind",
        stdin=f"{CANARY}\n{CANARY}\n",
    )  # fmt: skip
    assert "pin: is not a whole number" in text
    assert "kind: is not one of the choices (one of a, b" in text
    assert CANARY not in text
    assert holders(tmp_path) == set()


@pytest.mark.parametrize("arguments", [["status"], ["doctor"], ["enable", "acme"]])
def test_an_error_of_the_plugin_that_has_it_is_not_shown_with_it(machine, arguments):
    add_plugin(
        machine.home,
        STORED[:1],
        "def is_available(self):\n"
        "    raise RuntimeError('GET https://acme.example/?key=' + os.environ['ACME_API_KEY'])\n",
    )
    machine.write_config("memory: {provider: acme}\n")
    (machine.home / ".env").write_text(f"ACME_API_KEY={CANARY}\n")
    assert CANARY not in said(machine, *arguments)


@posix_only
def test_it_is_in_the_arguments_and_the_environment_of_no_process(machine, tmp_path):
    spy = """
    def is_available(self):
        seen = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes()
                if b"hermes" in words:
                    seen.append((words + (folder / "environ").read_bytes()).decode("latin-1"))
            except OSError:
                continue
        pathlib.Path(os.environ["SEEN"]).write_text(repr(seen))
        return True
    """
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("no /proc here")
    machine.in_process = False  # the words and variables that processes start with
    add_plugin(machine.home, STORED, spy)
    machine.environment["SEEN"] = str(tmp_path / "seen.txt")
    assert "works" in set_up(machine)
    seen = (tmp_path / "seen.txt").read_text()
    assert "hermes-plugins" in seen
    assert CANARY not in seen
