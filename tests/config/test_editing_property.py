"""Whatever the file looks like: a change changes its path, or it is refused."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from support.configs import (
    ConfigFile,
    by_yaml_11,
    by_yaml_12,
    comments,
    in_order,
    snapshot,
    with_change,
)
from support.yaml_texts import Keys, Text, paths, texts, values

from hermes_core.config.editor import DELETE, change_config
from hermes_core.errors import ConfigError

STRESS = bool(os.environ.get("HERMES_STRESS"))

calm = settings(
    deadline=None,
    database=None,
    derandomize=True,  # a build fails for a change, not by chance
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
changed = st.one_of(values, values, st.just(DELETE))


def check(before: Text, after: str, changes: dict[Keys, Any]) -> None:
    """Both parsers see the change and nothing else, and so does a reader of comments."""
    for parse in (by_yaml_11, by_yaml_12):
        wanted = parse(str(before))
        for keys, value in changes.items():
            wanted = with_change(wanted, keys, value)
        assert in_order(parse(after) or {}) == in_order(wanted)
    data = yaml.safe_load(str(before))
    gone = set().union(*(before.may_go(keys, value, data) for keys, value in changes.items()))
    kept = [each for each in comments(str(before)) if each not in gone]
    assert [each for each in comments(after) if each not in gone] == kept
    assert set(comments(after)) <= set(comments(str(before)))
    if before.newline == "\r\n":
        assert after.count("\n") == after.count("\r\n")
    assert after.endswith("\n") or not str(before).endswith("\n")


@settings(calm, max_examples=70 if STRESS else 25)
@given(text=texts(), changes=st.dictionaries(paths, changed, min_size=1, max_size=3))
def test_an_ordinary_file_is_never_refused(tmp_path: Path, text, changes):
    changes = _apart(changes)
    assume(all(_has_room(yaml.safe_load(str(text)), keys) for keys in changes))
    config = ConfigFile(tmp_path)
    config.write(str(text))
    after = config.change(changes)
    check(text, after, changes)


def _has_room(data, keys):
    """Whether there are sections, or nothing, on the way to a key."""
    for key in keys[:-1]:
        data = (data or {}).get(key)
        if data is not None and not isinstance(data, dict):
            return False
    return True


@settings(calm, max_examples=70 if STRESS else 25)
@given(text=texts(odd=True), keys=paths, value=changed)
def test_an_odd_file_is_changed_right_or_not_at_all(tmp_path: Path, text, keys, value):
    config = ConfigFile(tmp_path)
    home = config.write(str(text))
    before = snapshot(home)
    try:
        change_config(home, {keys: value})
    except ConfigError:
        event("refused")
        assert snapshot(home) == before
    else:
        event("changed")
        check(text, config.text, {keys: value})


@settings(calm, max_examples=25 if STRESS else 10)
@given(text=texts(), keys=paths, first=values, second=values)
def test_the_last_of_several_changes_is_what_stays(tmp_path: Path, text, keys, first, second):
    assume(_has_room(yaml.safe_load(str(text)), keys))
    config = ConfigFile(tmp_path)
    config.write(str(text))
    config.change({keys: copy.deepcopy(first)})
    once = config.text
    config.change({keys: copy.deepcopy(second)})
    check(text, config.text, {keys: second})
    config.change({keys: copy.deepcopy(first)})
    assert config.text == once


def test_the_oracle_does_not_let_go_of_every_comment():
    text = Text(["a: 1 # 1", "memory: # 2", "  # 3", "  provider: x # 4"])
    text.beside = {"# 1": ("a",), "# 4": ("memory", "provider")}
    text.inside = {"# 2": ("memory",), "# 3": ("memory", "")}
    data = yaml.safe_load(str(text))
    assert text.may_go(("memory", "provider"), "y", data) == set()
    assert text.may_go(("memory", "provider"), DELETE, data) == {"# 4"}
    assert text.may_go(("memory", "new", "key"), "y", data) == set()
    assert text.may_go(("memory",), "y", data) == {"# 2", "# 3", "# 4"}
    assert text.may_go(("a",), "y", data) == text.may_go(("a", "b"), "y", data) == set()


def _apart(changes: dict[Keys, Any]) -> dict[Keys, Any]:
    """The changes of which none is below or above another."""
    apart: dict[Keys, Any] = {}
    for keys, value in changes.items():
        if not any(keys[: len(k)] == k or k[: len(keys)] == keys for k in apart):
            apart[keys] = value
    return apart
