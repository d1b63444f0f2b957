"""`doctor` names the import hooks whose packages `list` can't show."""

from __future__ import annotations

import sys
from pathlib import Path

import importlib_metadata
import pytest
from support.commands import Machine


class Hook:
    """An import hook with packages of its own."""

    def __init__(self, found: object) -> None:
        self._found = found

    def find_spec(self, _name: str, _path: object = None, _target: object = None) -> None:
        return None

    def find_distributions(self, _context: object = None) -> object:
        if isinstance(self._found, Exception):
            raise self._found
        yield self._found


class Unreadable(importlib_metadata.Distribution):
    """A package whose files raise."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def read_text(self, filename: str) -> str | None:
        raise self._error

    def locate_file(self, path: object) -> Path:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (RuntimeError("none today"), "could not list its packages: RuntimeError: none today"),
        (Unreadable(OSError("gone")), "has a package that can't be read: OSError: gone"),
        (Unreadable(ValueError("bad")), "has a package that can't be read: ValueError: bad"),
        (Unreadable(RuntimeError("odd")), "has a package that can't be read: RuntimeError: odd"),
    ],
)
def test_a_hook_that_raises_is_named_and_list_goes_on(
    tmp_path, monkeypatch, few_distributions, found, told
):
    machine = Machine(tmp_path / "machine", in_process=True)
    machine.install("alpha")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Hook(found)])
    assert "alpha" in machine.providers()
    result = machine.run("doctor", "--json")
    assert f"{__name__.rpartition('.')[2]}.Hook {told}" in result.out
