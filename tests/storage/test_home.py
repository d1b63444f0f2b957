"""Where HERMES_HOME is, and how files in it are written."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.configs import run_python, snapshot

from hermes_core.errors import HermesError, HomeError
from hermes_core.storage import home as home_module
from hermes_core.storage.files import replace_file
from hermes_core.storage.home import ensure_folder, resolve_home

posix_only = pytest.mark.skipif(os.name == "nt", reason="POSIX users, modes and links")


@pytest.fixture
def user(tmp_path, monkeypatch) -> Path:
    """The home folder of whoever runs this."""
    folder = tmp_path / "user"
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(folder))
    return folder


@pytest.mark.parametrize("value", [None, ""])
@posix_only
def test_without_a_variable_it_is_the_default(user, monkeypatch, value):
    if value is not None:
        monkeypatch.setenv("HERMES_HOME", value)
    assert resolve_home() == user / ".hermes"
    assert not user.exists()


@pytest.mark.parametrize("name", ["plain", "with spaces", "ünïcødé 家 🧠", "-dash", "a#b", "a%b"])
def test_the_variable_may_name_any_folder(tmp_path, monkeypatch, name):
    for folder in (tmp_path / name, tmp_path / name / "missing"):
        monkeypatch.setenv("HERMES_HOME", str(folder))
        assert resolve_home() == folder
    (tmp_path / name).mkdir()
    assert resolve_home(str(tmp_path / name)) == tmp_path / name


def test_the_argument_wins_over_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "variable"))
    assert resolve_home(tmp_path / "path") == tmp_path / "path"
    assert resolve_home(str(tmp_path / "text")) == tmp_path / "text"
    assert resolve_home() == tmp_path / "variable"


def test_an_empty_argument_is_as_good_as_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "variable"))
    assert resolve_home("") == tmp_path / "variable"


def test_a_tilde_is_the_users_home(user, monkeypatch):
    monkeypatch.setenv("HERMES_HOME", "~/agent")
    assert resolve_home() == user / "agent"
    assert resolve_home("~") == user
    # Only as the first part.
    assert resolve_home(user / "~" / "x") == user / "~" / "x"


def test_a_relative_path_starts_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERMES_HOME", "some/home")
    assert resolve_home() == tmp_path / "some" / "home"
    assert resolve_home("../other") == tmp_path.parent / "other"
    found = resolve_home(".")
    monkeypatch.chdir(tmp_path.parent)
    assert found == tmp_path


@posix_only
def test_a_linked_home_is_not_replaced_by_its_target(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    assert resolve_home(tmp_path / "link") == tmp_path / "link"


def test_on_windows_it_is_below_the_local_application_data(tmp_path, monkeypatch):
    system = SimpleNamespace(name="nt", environ={"LOCALAPPDATA": str(tmp_path)})
    monkeypatch.setattr(home_module, "os", system)
    assert home_module.default_home() == tmp_path / "hermes"


def test_on_windows_without_that_it_is_below_the_users_home(user, monkeypatch):
    monkeypatch.setattr(home_module, "os", SimpleNamespace(name="nt", environ={}))
    assert home_module.default_home() == user / ".hermes"


def test_a_file_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("text")
    monkeypatch.setenv("HERMES_HOME", str(file))
    with pytest.raises(HomeError) as caught:
        resolve_home()
    assert str(caught.value) == (
        f"{file}: the Hermes home is not a folder (point HERMES_HOME or --home to a folder)"
    )
    assert file.read_text() == "text"


@posix_only
def test_a_link_to_itself_is_an_error(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(HomeError, match="can't be read: ") as caught:
        resolve_home(tmp_path / "loop")
    assert str(tmp_path / "loop") in str(caught.value)


@posix_only
def test_a_default_home_that_cannot_be_read_is_named(user):
    user.mkdir()
    (user / ".hermes").symlink_to(".hermes")
    with pytest.raises(HomeError) as caught:
        resolve_home()
    assert str(user / ".hermes") in str(caught.value)


def test_a_null_character_is_an_error():
    with pytest.raises(HomeError, match="can't be read: "):
        resolve_home("a\0b")


@posix_only
def test_a_name_that_is_too_long_is_an_error():
    with pytest.raises(HomeError, match="can't be read: "):
        resolve_home("a" * 5_000)


@posix_only
def test_an_error_of_the_system_is_told_without_its_number(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(HomeError) as caught:
        resolve_home(tmp_path / "loop")
    assert "[Errno" not in str(caught.value)
    assert str(caught.value).count(str(tmp_path)) == 1


@posix_only
def test_a_user_who_does_not_exist_is_an_error_of_ours(monkeypatch):
    monkeypatch.setenv("HERMES_HOME", "~nobody-of-that-name/x")
    with pytest.raises(HomeError):
        resolve_home()


@posix_only
def test_a_user_without_a_home_is_an_error_of_ours(monkeypatch):
    """A container may run as a number that no user has."""
    import pwd

    def unknown(_):
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(HomeError):
        resolve_home()


GONE = """
import os, sys, tempfile
from hermes_core.errors import HomeError
from hermes_core.storage.home import resolve_home

folder = tempfile.mkdtemp(dir=sys.argv[1])
os.chdir(folder)
os.rmdir(folder)
try:
    resolve_home("relative")
except HomeError as error:
    print("refused:", error)
"""


@posix_only
def test_a_working_folder_that_is_gone_is_an_error_of_ours(tmp_path):
    done = run_python(GONE, tmp_path)
    assert done.stdout.startswith("refused: "), done.stderr


def test_a_folder_is_made_with_its_parents(tmp_path):
    folder = tmp_path / "a" / "b c"
    assert ensure_folder(folder) == folder
    assert ensure_folder(folder).is_dir()


@posix_only
def test_a_new_folder_is_its_owners_alone_and_an_old_one_keeps_its_mode(tmp_path):
    assert stat.S_IMODE(ensure_folder(tmp_path / "new").stat().st_mode) == 0o700
    (tmp_path / "old").mkdir()
    (tmp_path / "old").chmod(0o755)
    assert stat.S_IMODE(ensure_folder(tmp_path / "old").stat().st_mode) == 0o755


def test_a_folder_that_cannot_be_made_is_an_error_with_the_cause(tmp_path):
    (tmp_path / "file").write_text("text")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(HomeError, match=r"can't be created: .* \(choose another") as caught:
            ensure_folder(folder)
        assert str(caught.value).startswith(f"{folder}: ")
    assert (tmp_path / "file").read_text() == "text"


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "file"
    for content in (b"", b"one\r\n\x00\xff", b"two" * 100_000, b"3"):
        replace_file(path, content)
        assert path.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@posix_only
def test_a_file_in_the_working_folder_may_be_named_without_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    replace_file(Path("file"), b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


@posix_only
def test_a_chain_of_links_stays_and_the_last_file_is_replaced(tmp_path):
    real = tmp_path / "real"
    real.write_bytes(b"old")
    real.chmod(0o640)
    (tmp_path / "second").symlink_to("real")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    replace_file(tmp_path / "first", b"new")
    assert real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "second").is_symlink()


def test_a_target_that_is_a_folder_is_an_error_and_leaves_no_trace(tmp_path):
    (tmp_path / "folder").mkdir()
    before = snapshot(tmp_path)
    with pytest.raises((OSError, HermesError)):
        replace_file(tmp_path / "folder", b"content")
    assert snapshot(tmp_path) == before


def test_a_file_in_a_folder_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        replace_file(tmp_path / "missing" / "file", b"content")
