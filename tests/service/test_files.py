"""A plugin's own settings file."""

import json
import stat

import pytest

from hermes_core import ConfigError
from hermes_core.service import read_own_file, save_own_file


def test_a_file_that_is_not_there_says_nothing(tmp_path):
    assert read_own_file(tmp_path / "acme.json") == {}


@pytest.mark.parametrize("content", ["{", "[]", '"text"', "\x00"])
def test_a_broken_file_is_an_error_and_stays_as_it_is(tmp_path, content):
    path = tmp_path / "acme.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"acme\.json"):
        save_own_file(path, {"host": "there"})
    assert path.read_text() == content


def test_saving_keeps_the_other_settings_and_takes_away_what_is_none(tmp_path):
    path = tmp_path / "acme" / "config.json"
    save_own_file(path, {"host": "here", "hosts": {"hermes": {"x": 1}}, "old": "é"})
    save_own_file(path, {"host": "there", "old": None})
    assert json.loads(path.read_text("utf-8")) == {"host": "there", "hosts": {"hermes": {"x": 1}}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
