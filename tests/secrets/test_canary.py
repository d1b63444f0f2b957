"""A canary value: in its store and nowhere else, whatever is done with it."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest
from support import keyrings
from support.commands import Machine, posix_only
from support.forked_commands import run_forked_command

from hermes_core.errors import HermesError
from hermes_core.secrets import Secrets

CANARY = "canary-4711-0815"

#: The keyring, and ``secrets.backend``: every way that a value can take.
STORES = [
    ("keyring.backends.fail.Keyring", "auto"),
    ("keyring.backends.null.Keyring", "keyring"),
    ("support.keyrings.InFile", "auto"),
    ("support.keyrings.RaisesOnSecondSet", "auto"),
    # These take paths that the others take, too.
    pytest.param("support.keyrings.InFile", "dotenv", marks=pytest.mark.stress),
    pytest.param("support.keyrings.RaisesOnSet", "keyring", marks=pytest.mark.stress),
    pytest.param("support.keyrings.Locked", "auto", marks=pytest.mark.stress),
]
LOGGED = """
import logging, sys
logging.disable = lambda *_: None
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
logging.debug("all is logged")
"""


def holders(folder: Path) -> set[str]:
    """The files below a folder that have the canary."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    }


@posix_only
@pytest.mark.parametrize(("backend", "choice"), STORES)
def test_it_is_in_its_store_and_nowhere_else(machine: Machine, tmp_path, backend, choice):
    machine.write_config(f"secrets: {{backend: {choice}}}\n")
    (machine.site.folder / "sitecustomize.py").write_text(LOGGED)
    machine.environment["PYTHON_KEYRING_BACKEND"] = backend
    said = b""
    for arguments in (
        ["set", "KEY", "--provider", "honcho"],
        ["list"],
        ["list", "--json"],
        ["move", "--to", "dotenv"],
        ["move", "--to", "keyring"],
    ):
        _, out, err = run_forked_command(
            ["--debug", "secrets", *arguments], machine.environment, CANARY.encode()
        )
        said += out + err
        kept = holders(tmp_path)
        assert kept <= {"machine/home/.env"} or kept <= {"keyring.json"}, kept
    assert said.count(b"all is logged") == 5
    assert CANARY.encode() not in said


@pytest.mark.parametrize(
    "kind",
    [keyrings.RaisesOnSet, keyrings.RaisesOnSecondSet, keyrings.Changing, keyrings.Hanging],
)
def test_no_traceback_and_no_log_has_it(home, use, caplog, kind):
    caplog.set_level(logging.DEBUG)
    use(kind())
    secrets = Secrets(home, "keyring", seconds=0.1)
    with pytest.raises(HermesError) as caught:
        secrets.set("KEY", CANARY, "honcho")
    text = "".join(traceback.format_exception(caught.value, chain=True))
    assert CANARY not in text
    assert CANARY not in caplog.text
    assert holders(home) == set()


@pytest.mark.parametrize("tail", ["\0", "\ud800", "x" * 100_000])
def test_no_refusal_has_it(home, tail):
    with pytest.raises(HermesError) as caught:
        Secrets(home, "dotenv").set("KEY", CANARY + tail)
    text = "".join(traceback.format_exception(caught.value, chain=True))
    assert CANARY not in text
    assert holders(home) == set()
