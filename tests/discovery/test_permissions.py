"""Folders that may not be read: told, and the rest is listed as it is."""

from __future__ import annotations

import os

import pytest
from support.modules import run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users and modes here")

# Root may read everything, so the process gives that right up once all is imported.
WITHOUT_RIGHTS = """
    import json, os, sys, tempfile
    os.umask(0o022)
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from hermes_core import discover
    from support.sites import add_directory

    def states():
        return {{each.name: (each.state, bool(each.problem)) for each in discover(home)}}

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        home = Path(folder)
        add_directory(home, "good", manifest="version: 1.0.0")
        add_directory(home, "locked", manifest="version: 1.0.0")
        (home / "plugins" / "locked" / "sub").mkdir()
        (home / "plugins" / "locked" / "sub" / "file").touch()
        sys.path.append(str(home / "plugins" / "locked"))
        pin = {{"owner": "directory", "hash": "sha256:0"}}
        config = {{"memory": {{"provider": "locked", "pins": {{"locked": pin}}}}}}
        (home / "config.yaml").write_text(json.dumps(config), "utf-8")
        before = states()
        os.chmod(home / {locked!r}, {mode})
        if os.geteuid() == 0:
            os.seteuid(65534)
        try:
            print(before["good"], states())
        finally:
            if os.getuid() == 0:
                os.seteuid(0)
            os.chmod(home / {locked!r}, 0o755)
"""


def listed(home, tests, locked, mode):
    code = WITHOUT_RIGHTS.format(tests=str(tests), locked=locked, mode=mode)
    done = run_python(code, home=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def tests(request):
    """The folder that the support modules are in."""
    return request.config.rootpath / "tests"


def test_a_folder_of_plugins_that_may_not_be_read_does_not_hide_the_built_in(home, tests):
    assert "'builtin': ('active', False)" in listed(home, tests, "plugins", 0)


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_plugin_that_may_not_be_read_does_not_end_the_listing(home, tests, mode):
    output = listed(home, tests, "plugins/locked", mode)
    assert "'good': ('installed', False)" in output
    assert "'builtin': ('active', False)" in output


def test_a_folder_of_plugins_that_may_be_listed_but_not_entered_is_no_crash(home, tests):
    assert "'builtin': ('active', False)" in listed(home, tests, "plugins", 0o444)


def test_a_pinned_plugin_with_a_folder_that_may_not_be_entered_is_told_as_changed(home, tests):
    output = listed(home, tests, "plugins/locked/sub", 0o444)
    assert "'locked': ('changed', True)" in output
    assert "'good': ('installed', False)" in output
