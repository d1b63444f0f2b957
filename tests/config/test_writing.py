"""How config.yaml is written: in one step, with its mode, through a link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from support.configs import PROVIDER, ConfigFile, run_python, snapshot
from support.other_user import as_other_user, shared_folder

from hermes_core.config import load_config, read_selection
from hermes_core.config.editor import change_config
from hermes_core.errors import ConfigError, HermesError, HomeError

posix_only = pytest.mark.skipif(os.name == "nt", reason="POSIX modes and signals")

TEXT = "# mine\nmemory:\n  provider: old  # c\n"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> set[str]:
    """The files in a folder besides the lock."""
    return {each.name for each in folder.iterdir() if each.suffix != ".lock"}


def test_a_missing_home_is_made_for_its_owner_alone(tmp_path):
    home = tmp_path / "a b" / "ö"
    change_config(home, {PROVIDER: "mem0"})
    assert read_selection(home).name == "mem0"
    assert names(home) == {"config.yaml"}
    if os.name == "posix":
        assert mode(home) == 0o700


@posix_only
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_file_is_its_owners_alone(home, umask):
    before = os.umask(umask)
    try:
        change_config(home, {PROVIDER: "mem0"})
    finally:
        os.umask(before)
    assert mode(home / "config.yaml") == 0o600


@posix_only
@pytest.mark.parametrize("kept", [0o600, 0o644, 0o660, 0o400])
def test_an_existing_file_keeps_its_mode(config, kept):
    config.write(TEXT)
    config.path.chmod(kept)
    config.change({PROVIDER: "new"})
    assert mode(config.path) == kept


@posix_only
@pytest.mark.parametrize("relative", [True, False])
def test_a_link_stays_a_link_and_its_target_is_written(config, tmp_path, relative):
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    target = dotfiles / "hermes.yaml"
    target.write_text(TEXT)
    link = "../dotfiles/hermes.yaml" if relative else str(target)
    config.path.symlink_to(link)
    assert "provider: new  # c" in config.change({PROVIDER: "new"})
    assert str(config.path.readlink()) == link
    assert not target.is_symlink()
    assert names(dotfiles) == {"hermes.yaml"}


@posix_only
def test_a_link_to_a_file_that_is_still_to_come_makes_it(config):
    config.path.symlink_to("real.yaml")
    config.change({PROVIDER: "new"})
    assert config.path.is_symlink()
    assert names(config.home) == {"config.yaml", "real.yaml"}


@posix_only
def test_a_link_into_a_folder_that_is_missing_is_an_error(config):
    config.path.symlink_to("missing/config.yaml")
    before = snapshot(config.home)
    with pytest.raises(ConfigError, match=r"can't be written: .*nothing was changed"):
        config.change({PROVIDER: "new"})
    assert snapshot(config.home) == before


@pytest.mark.parametrize("failing", ["fsync", "replace", "chmod"])
def test_a_failure_on_the_way_leaves_the_old_file_and_nothing_else(config, monkeypatch, failing):
    home = config.write(TEXT)
    config.path.chmod(0o644)
    before = snapshot(home)

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(ConfigError) as caught:
            change_config(home, {PROVIDER: "new"})
    assert snapshot(home) == before
    assert str(caught.value).startswith(
        f"{config.path}: can't be written: No space left on device; nothing was changed"
    )
    assert "free space" in caught.value.hint
    assert "provider: new" in config.change({PROVIDER: "new"})


def test_an_interruption_leaves_the_old_file_and_nothing_else(config, monkeypatch):
    home = config.write(TEXT)
    before = snapshot(home)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            change_config(home, {PROVIDER: "new"})
    assert snapshot(home) == before
    assert "provider: new" in config.change({PROVIDER: "new"})


@posix_only
def test_a_folder_that_cannot_be_synced_is_no_failure_once_the_file_is_there(config, monkeypatch):
    """Some file systems can't; what has been written must not be reported as not written."""
    home = config.write(TEXT)
    real = os.fsync

    def only_files(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(handle)

    monkeypatch.setattr(os, "fsync", only_files)
    failed = False
    try:
        change_config(home, {PROVIDER: "new"})
    except HermesError:
        failed = True
    assert failed == (config.text == TEXT)


FULL_DISK = """
import resource, sys
from pathlib import Path
from hermes_core.config.editor import change_config
from hermes_core.errors import ConfigError

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    change_config(Path(sys.argv[1]), {("memory", "provider"): "new"})
except ConfigError as error:
    print(error)
"""


@posix_only
def test_a_disk_that_is_full_leaves_the_old_file_and_nothing_else(config):
    home = config.write(TEXT + "# long\n" * 1_000)
    before = snapshot(home)
    done = run_python(FULL_DISK, home)
    assert "can't be written: " in done.stdout, done.stderr
    assert "nothing was changed" in done.stdout
    assert snapshot(home) == before


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a place nobody writes to")
def test_a_home_that_cannot_be_written_to_is_an_error_that_says_so():
    home = Path("/sys/kernel")
    assert load_config(home).selection.name == ""
    with pytest.raises(ConfigError, match=r"can't be written: .*; nothing was changed"):
        change_config(home, {PROVIDER: "new"})


@posix_only
def test_a_read_only_home_is_an_error_that_says_so():
    with shared_folder() as home:
        ConfigFile(home).write(TEXT)
        home.chmod(0o500)
        told = as_other_user(lambda: change_config(home, {PROVIDER: "new"}))
        assert told.startswith("ConfigError: ")
        assert "can't be written: Permission denied; nothing was changed" in told
        assert ConfigFile(home).text == TEXT


def test_a_home_that_is_a_file_is_an_error_and_stays_one(tmp_path):
    file = tmp_path / "file"
    file.write_text("text")
    for home in (file, file / "below"):
        with pytest.raises(HomeError, match="can't be created") as caught:
            change_config(home, {PROVIDER: "new"})
        assert str(home) in str(caught.value)
    assert file.read_text() == "text"


def test_a_home_with_a_name_that_is_not_utf_8_works(tmp_path):
    home = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        home.mkdir()
    except (OSError, UnicodeError):
        pytest.skip("this file system has no such names")
    ConfigFile(home).change({PROVIDER: "new"})
    assert read_selection(home).name == "new"
