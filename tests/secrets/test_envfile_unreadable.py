"""A .env that is no proper file: a clear error, and nothing lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.configs import snapshot
from support.other_user import as_other_user, shared_folder

from hermes_core.errors import SecretsError
from hermes_core.secrets import EnvFile

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX files")


def refused(home: Path) -> str:
    before = snapshot(home)
    with pytest.raises(SecretsError) as caught:
        EnvFile(home / ".env").change({"KEY": "canary-value"})
    assert snapshot(home) == before
    assert "canary" not in str(caught.value)
    assert caught.value.where
    return str(caught.value)


def test_a_folder(home):
    (home / ".env").mkdir()
    assert "is a folder (move it away)" in refused(home)
    with pytest.raises(SecretsError, match="is a folder"):
        EnvFile(home / ".env").read()


@posix
def test_a_fifo_does_not_hang(home):
    os.mkfifo(home / ".env")
    with pytest.raises(SecretsError, match="is not a regular file"):
        EnvFile(home / ".env").read()
    with pytest.raises(SecretsError, match="is not a regular file"):
        EnvFile(home / ".env").change({"KEY": "x"})


def test_not_utf8(home):
    (home / ".env").write_bytes(b"A=1\nB=\xff\xfe\n")
    assert "is not UTF-8 in line 2; nothing was changed (save it as UTF-8)" in refused(home)


def test_an_error_about_bytes_does_not_carry_the_file(home):
    (home / ".env").write_bytes(b"CANARY=1\nB=\xff\xfe\n")
    with pytest.raises(SecretsError) as caught:
        EnvFile(home / ".env").read()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_read_only_file(home):
    (home / ".env").write_text("A=1\n")
    (home / ".env").chmod(0o400)
    assert "is read-only; nothing was changed" in refused(home)


@posix
def test_a_loop_of_links(home):
    (home / ".env").symlink_to(home / ".env")
    assert "can't be read: Too many levels of symbolic links" in refused(home)


@posix
def test_a_link_into_nowhere(home):
    (home / ".env").symlink_to(home / "gone" / "x")
    assert "can't be written: No such file or directory" in refused(home)


@posix
def test_a_link_to_a_file_that_is_not_yet_there_makes_it(home):
    (home / ".env").symlink_to(home / "real.env")
    EnvFile(home / ".env").change({"KEY": "x"})
    assert (home / "real.env").read_text() == "KEY=x\n"


@posix
def test_a_folder_that_can_not_be_written():
    with shared_folder() as home:
        (home / ".env").write_text("A=1\n")
        home.chmod(0o555)
        told = as_other_user(lambda: EnvFile(home / ".env").change({"KEY": "x"}))
        assert told.startswith("SecretsError: ")
        assert "can't be locked" in told
        assert (home / ".env").read_text() == "A=1\n"
