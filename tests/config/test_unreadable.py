"""A config.yaml that can't be read is an error that says why, and nothing is touched."""

from __future__ import annotations

import os
import random

import pytest
from support.configs import PROVIDER, ConfigFile, snapshot
from support.other_user import as_other_user, shared_folder

from hermes_core.config import load_config, read_selection
from hermes_core.config.editor import change_config
from hermes_core.errors import ConfigError

posix_only = pytest.mark.skipif(os.name == "nt", reason="POSIX files")


def refusal(config: ConfigFile, *, content: bool = True) -> str:
    """Every way to use the file is refused with one message; what it is."""
    before = snapshot(config.home) if content else None
    texts = set()
    for use in (load_config, read_selection, lambda home: change_config(home, {PROVIDER: "x"})):
        with pytest.raises(ConfigError) as caught:
            use(config.home)
        texts.add(str(caught.value))
    if content:
        assert snapshot(config.home) == before
    (text,) = texts
    assert "\n" not in text
    return text


def test_a_folder(config):
    config.path.mkdir()
    (config.path / "inside").write_text("kept")
    assert refusal(config) == f"{config.path}: is a folder (move it away)"


@posix_only
def test_a_pipe_that_nobody_writes_to(config):
    os.mkfifo(config.path)
    assert refusal(config).startswith(f"{config.path}: is not a regular file")


@posix_only
def test_a_device(config):
    config.path.symlink_to(os.devnull)
    assert refusal(config).startswith(f"{config.path}: is not a regular file")


@posix_only
def test_a_link_to_itself(config):
    config.path.symlink_to(config.path.name)
    assert refusal(config).startswith(f"{config.path}: can't be read: ")


@posix_only
def test_a_file_that_we_may_not_read():
    with shared_folder() as home:
        path = ConfigFile(home).path
        path.write_text("memory: {provider: x}\n")
        path.chmod(0)
        for use in (load_config, read_selection, lambda home: change_config(home, {PROVIDER: "a"})):
            told = as_other_user(lambda use=use: use(home))
            expected = f"ConfigError: {path}: can't be read: Permission denied"
            assert told == f"{expected} (check its permissions)"


def test_ten_megabytes(config):
    config.write(b"a: 1\n" * 2_000_000)
    text = refusal(config)
    assert text.startswith(f"{config.path}: has 10,000,000 bytes, too large")


def test_a_large_file_that_is_still_a_configuration_is_read(config):
    config.write("# comment\n" * 90_000 + "memory: {provider: mem0}\n")
    assert load_config(config.home).selection.name == "mem0"


def test_random_bytes(config):
    config.write(random.Random(1).randbytes(5_000))
    assert refusal(config) == f"{config.path}:1: is not UTF-8 text (save it as UTF-8)"


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_in_another_encoding_with_the_line_where_it_shows(config, encoding):
    config.write("model: x\nmemory:\n  provider: é\n".encode(encoding))
    line = 3 if encoding == "latin-1" else 1
    assert refusal(config) == f"{config.path}:{line}: is not UTF-8 text (save it as UTF-8)"


@pytest.mark.parametrize(
    "content",
    [b"\0" * 100, "memory: {provider: x}".encode("utf-16-le"), b"a: \x1b[31mred\n", b"a: \x7f\n"],
)
def test_control_characters(config, content):
    config.write(content)
    text = refusal(config)
    assert "config.yaml" in text
    assert "is not valid YAML: unacceptable character" in text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("memory:\n\tprovider: x\n", 2),
        ("memory:\n  provider: x\n provider: y\n", 3),
        ("memory: [a\nother: 1\n", 2),
        ("memory: {provider: x\n", 2),
        ("memory:\n  provider: 'x\n", 3),
        ("a: b: c\n", 1),
        ("a: 1\n---\nb: 1\n", 2),
        ("a: 1\nmemory: {provider: x}\nb: *unknown\n", 3),
        ("a: 1\nb: !!python/object:os.system x\n", 2),
        ("a: 1\nb: !secret x\n", 2),
        ("a: 1\n? [a, b]\n: 1\n", 2),
        ("memory:\n  <<: 3\n", 2),
        ("%YAML 2.0\n---\nmemory: {}\n", 1),
        ("memory: @x\n", 1),
        ("memory: `x\n", 1),
    ],
)
def test_what_is_no_yaml_with_its_line(config, text, line):
    config.write(text)
    assert refusal(config).startswith(f"config.yaml:{line}: is not valid YAML: ")


@pytest.mark.parametrize("value", ["2001-99-99", "1" * 5_000, "2001-01-01T00:00:00+99:99"])
def test_values_that_yaml_cannot_make_anything_of(config, value):
    config.write(f"a: 1\nb: {value}\n")
    assert "is not valid YAML: " in refusal(config)


def test_a_date_that_does_not_exist_is_refused_with_its_line(config):
    config.write("a: 1\nb: 2001-99-99\n")
    assert refusal(config).startswith("config.yaml:2: ")


@pytest.mark.parametrize(
    "value", ["!!bool maybe", "!!timestamp today", "!!int ''", "!!float ''", "!!int '-'"]
)
def test_a_tag_that_does_not_fit_its_value(config, value):
    config.write(f"a: {value}\n")
    assert "is not valid YAML: " in refusal(config)


def test_a_home_below_a_file(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    home = tmp_path / "file" / "home"
    for use in (load_config, read_selection):
        with pytest.raises(ConfigError, match="can't be read: ") as caught:
            use(home)
        assert str(home / "config.yaml") in str(caught.value)


def test_a_key_of_two_lines_is_refused_in_one(config):
    config.write('"memo\\nry": 1\n')
    with pytest.raises(ConfigError, match="did you mean memory") as caught:
        load_config(config.home)
    assert "\n" not in str(caught.value)
