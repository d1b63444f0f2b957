"""What we write to a .env reads back in python-dotenv, mostly in a shell too; all else stays."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import subprocess
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.errors import SecretsError
from hermes_core.secrets import EnvFile, Secrets
from hermes_core.secrets._files import locked

SHELLS = [each for each in ("sh", "bash", "dash", "busybox") if shutil.which(each)]
needs_shell = pytest.mark.skipif("sh" not in SHELLS, reason="no POSIX shell here")

NASTY = {
    "plain": "sk-live_0123456789",
    "single quote": "it's",
    "double quote": 'say "yes"',
    "both quotes": '"it\'s"',
    "hash": "a #b#c",
    "leading hash": "#a",
    "interpolation": "${HOME} $HOME $(id) `id`",
    "blanks": "  a  b\t",
    "backslashes": "\\a\\\\b\\'c",
    "backslash and dollar": "\\d+$",
    "backslash n": "\\n\\t'",
    "equals": "a=b==",
    "tilde": "~/x:~",
    "glob": "*?[a]!",
    "semicolon": "a; echo b & c | d > e",
    "non-ASCII": "пароль-密码-🔑-é",
    "64 KB": "x'y " * 16384,
    "separators": "a\x0b\x0c\x85\u2028b",
    "BOM": "\ufeffa",
    "line breaks": "-----BEGIN\nKEY\n\n-----END\n",
    "line break and quote": "it's\n\\n",
    "backslash at the end": "a b\\",
}
VALUES = st.text(
    st.one_of(
        st.sampled_from("'\"\\$`#!{}() =~*ab\n\r"),
        st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"),
    ),
    min_size=1,
    max_size=12,
)


def by_shell(folder: Path, key: str, shell: str = "sh") -> str:
    """What a shell has in the variable after reading the file, byte for byte."""
    command = [shell, "sh"] if shell == "busybox" else [shell]
    script = f'set -a; . ./.env; printf %s "${key}"'
    done = subprocess.run(
        [*command, "-c", script], cwd=folder, capture_output=True, check=True, env={"LANG": "C"}
    )
    assert done.stderr == b""
    return done.stdout.decode()


def by_dotenv(folder: Path) -> dict[str, str | None]:
    return dotenv_values(folder / ".env", interpolate=False)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("value", NASTY.values(), ids=NASTY)
def test_a_nasty_value_reads_back_equal_everywhere(home, value, shell):
    EnvFile(home / ".env").change({"KEY": value})
    assert EnvFile(home / ".env").read() == {"KEY": value}
    assert by_dotenv(home) == {"KEY": value}
    assert by_shell(home, "KEY", shell) == value


@needs_shell
@given(value=VALUES)
def test_any_value_reads_back_equal_and_a_shell_reads_it_too_unless_we_say_so(
    tmp_path_factory, value
):
    folder = tmp_path_factory.mktemp("value")
    done = Secrets(folder, "dotenv").set("KEY", value)
    assert by_dotenv(folder) == {"KEY": value}
    assert EnvFile(folder / ".env").read() == {"KEY": value}
    if "a shell that sources .env" in done.reason:
        assert "\r" in value or (set(value) & set("'\\") and set(value) & set("$`"))
    else:
        assert by_shell(folder, "KEY") == value


@given(values=st.lists(st.text(max_size=8), min_size=1, max_size=4))
def test_any_text_is_stored_beside_others_but_for_what_no_variable_can_hold(
    tmp_path_factory, values
):
    folder = tmp_path_factory.mktemp("values")
    secrets = Secrets(folder, "dotenv")
    stored = {}
    for number, value in enumerate(values):
        refused = not value or "\0" in value or any("\ud800" <= c <= "\udfff" for c in value)
        with pytest.raises(SecretsError) if refused else nullcontext():
            secrets.set(f"KEY_{number}", value)
            stored[f"KEY_{number}"] = value
    assert by_dotenv(folder) == stored


@pytest.mark.parametrize("value", ["it's $5", "`'", "'\\$", "a\r\nb", "$(id)'\"\\"])
def test_a_value_that_a_shell_reads_differently_is_stored_and_that_is_said(home, value):
    done = Secrets(home, "dotenv").set("KEY", value)
    assert "but a shell that sources .env reads something else" in done.reason
    assert Secrets(home, "dotenv").get("KEY").value == value
    assert by_dotenv(home) == {"KEY": value}


def other_lines(text: str) -> list[str]:
    """The lines that are not about KEY; an end of the last one may be added."""
    return [each for each in re.split("\r?\n", text) if each and "KEY" not in each]


LINES = st.lists(
    st.sampled_from(
        [
            *("# note", "", "  ", "broken line"),
            *("A=1", "export B='two'", "C = 3 # c", "D='x\ny'", 'E="a\\nb"', "F=a#b", "G=it's"),
            *("KEY", "KEY=old", " export KEY='o' # k", "'KEY'=q", "KEY=x#y"),
        ]
    ),
    max_size=8,
)


@pytest.mark.scaled
@given(
    lines=LINES,
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    value=VALUES.filter(lambda value: "\n" not in value),  # the lines are compared below
)
def test_a_change_touches_no_other_variable_and_no_other_line(
    tmp_path_factory, lines, end, last, value
):
    logging.getLogger("dotenv.main").setLevel(logging.CRITICAL)
    path = tmp_path_factory.mktemp("lines") / ".env"
    text = end.join(lines) + (end if last else "")
    path.write_bytes(text.encode())
    before = by_dotenv(path.parent)
    EnvFile(path).change({"KEY": value})
    assert by_dotenv(path.parent) == {**before, "KEY": value}
    now = path.read_bytes().decode()
    assert other_lines(now) == other_lines(text)
    EnvFile(path).change({"KEY": None})
    without = {key: each for key, each in before.items() if key != "KEY"}
    assert by_dotenv(path.parent) == without


def changed(home: Path, text: str, **changes: str | None) -> str:
    (home / ".env").write_bytes(text.encode())
    EnvFile(home / ".env").change(changes)
    return (home / ".env").read_bytes().decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "K=new\n"),
        ("A=1", "A=1\nK=new\n"),
        ("A=1\r\n", "A=1\r\nK=new\r\n"),
        ("# c\nK=old\nB=2\n", "# c\nK=new\nB=2\n"),
        ("K=old\r\nB=2\r\n", "K=new\r\nB=2\r\n"),
        ("export K=old\n", "export K=new\n"),
        ("  K='old' # why\n", "  K=new # why\n"),
        ("K=old   # why\n", "K=new   # why\n"),
        ("K='old'# why\n", "K=new # why\n"),
        ("K = old\n", "K=new\n"),
        ("K='one\ntwo'\nB=2\n", "K=new\nB=2\n"),
        ("K=1\nA=2\nK=3\nB=4\n", "A=2\nK=new\nB=4\n"),
        ("\ufeffK=old\n", "\ufeffK=new\n"),
        ("KK=1\nK2=2\n#K=3\n", "KK=1\nK2=2\n#K=3\nK=new\n"),
    ],
)
def test_one_assignment_is_left_in_its_place_and_all_else_is_kept(home, text, expected):
    assert changed(home, text, K="new") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("K=1\nA=2\n  export K='3' # c\n# end", "A=2\n# end"),
        ("A=2\r\nK='a\r\nb'\r\n", "A=2\r\n"),
        ("\n\nK=1\n\n", "\n\n\n"),
        ("A=1\n", "A=1\n"),
    ],
)
def test_deleting_removes_every_assignment_and_nothing_else(home, text, expected):
    assert changed(home, text, K=None) == expected


def test_several_changes_are_one_replacement(home, monkeypatch):
    calls = []
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda *each: (calls.append(each), real(*each)))
    assert changed(home, "A=1\nB=2\n", A=None, B="3", C="4") == "B=3\nC=4\n"
    assert len(calls) == 1


def test_an_error_under_the_lock_is_not_taken_for_one_of_the_lock(home):
    def full():
        with locked(home / ".env"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        full()


def test_a_line_that_an_open_quote_would_swallow_is_not_written(home):
    (home / ".env").write_text("A=1\nB='open\n")
    with pytest.raises(SecretsError, match="quote that is not closed"):
        EnvFile(home / ".env").change({"K": "it is"})
    assert (home / ".env").read_text() == "A=1\nB='open\n"


@pytest.mark.parametrize("value", ["a\0b", "a\ud800b", "", "canary" * 20_000])
def test_what_no_variable_can_hold_is_refused_without_being_shown(home, value):
    with pytest.raises(SecretsError) as caught:
        EnvFile(home / ".env").change({"OTHER": "x", "KEY": value})
    assert str(caught.value).startswith("KEY: the value ")
    assert "canary" not in str(caught.value)
    assert not (home / ".env").exists()


@pytest.mark.parametrize("key", ["", "1A", "A B", "A=1", "A\nEVIL", "É", "A-B", "A\n", "${A}"])
def test_what_is_no_name_is_refused_without_being_shown(home, key):
    with pytest.raises(SecretsError) as caught:
        EnvFile(home / ".env").change({key: "x"})
    assert str(caught.value).startswith("the name given is not the name of a variable (letters")
    assert not (home / ".env").exists()


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_the_file_is_for_its_owner_from_the_first_byte_whatever_the_umask(home, umask, monkeypatch):
    modes = []
    real = os.fsync

    def spy(handle: int) -> None:
        modes.append(os.fstat(handle).st_mode & 0o777)
        real(handle)

    monkeypatch.setattr(os, "fsync", spy)
    before = os.umask(umask)
    try:
        EnvFile(home / ".env").change({"KEY": "value"})
    finally:
        os.umask(before)
    assert modes[0] & 0o077 == 0
    assert (home / ".env").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_file_that_others_can_read_is_reported_and_closed_by_a_write(home, mode):
    file = EnvFile(home / ".env")
    assert file.exposed() == ""
    file.path.write_text("A=1\n")
    file.path.chmod(mode)
    assert f"(mode {mode:04o}): chmod 600 {file.path}" in file.exposed()
    file.change({"KEY": "value"})
    assert file.exposed() == ""


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_stays_a_link(home, tmp_path):
    target = tmp_path / "dotfiles.env"
    target.write_text("A=1\n")
    (home / ".env").symlink_to(target)
    EnvFile(home / ".env").change({"KEY": "value"})
    assert (home / ".env").is_symlink()
    assert target.read_text() == "A=1\nKEY=value\n"


def test_writers_at_the_same_time_lose_nothing(home):
    def write(number: int) -> None:
        for turn in range(5):
            EnvFile(home / ".env").change({f"KEY_{number}_{turn}": "x"})

    threads = [threading.Thread(target=write, args=[number]) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(EnvFile(home / ".env").read()) == 30
