"""A .env means to us what it means to python-dotenv, which hermes-agent reads it with."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_core.secrets import EnvFile

PIECES = st.sampled_from(
    [
        *"=#'\"\\$`{}ABab1 \té",
        *("\n", "\r\n", "\r", "\n\n", "\x0b", "\x85", "\u2028", "\xa0", "\0"),
        *("export ", "export\t", "KEY", "KEY=", "='", " #", "${KEY}"),
        *("\\n", "\\'", '\\"', "\\\\"),
    ]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)


def by_dotenv(path: Path) -> dict[str, str]:
    found = dotenv_values(path, interpolate=False)
    return {key: value for key, value in found.items() if value is not None}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logging.getLogger("dotenv.main").setLevel(logging.CRITICAL)
    return tmp_path_factory.mktemp("env") / ".env"


@given(text=TEXTS)
@example(text="\ufeffA=1\n")
@example(text="A=1\nA\n")
@example(text="A='one\r\ntwo'\r\nB=2\r\n")
@example(text="A= # nothing\nB=#all\nC=x #y\nD=x#y\n")
@example(text="'A B'=1\nA='open\nB=2\n")
@example(text="export A=1\nexport=2\nexport # x\n")
@example(text="A = 'x'#c\nB=\"a\\nb\"\nC='a\\nb'\n")
def test_any_text_reads_as_python_dotenv_reads_it(path, text):
    path.write_bytes(text.encode())
    assert EnvFile(path).read() == by_dotenv(path)


def test_a_missing_file_has_no_variables(home):
    assert EnvFile(home / ".env").read() == {}


def test_nothing_is_interpolated(home, monkeypatch):
    monkeypatch.setenv("HOME", "/elsewhere")
    (home / ".env").write_text("A=${HOME}\nB='${HOME}'\nC=\"$HOME\"\n")
    assert EnvFile(home / ".env").read() == {"A": "${HOME}", "B": "${HOME}", "C": "$HOME"}
