"""Loading and starting a plugin changes nothing that belongs to the host's process."""

from __future__ import annotations

import os
import subprocess
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path
from textwrap import indent
from time import sleep

import pytest
from support.modules import provider_class, waits_for
from support.sites import add_directory

from hermes_core import MemoryManager, load_provider


@pytest.mark.parametrize("when", ["import", "initialize"])
def test_what_another_thread_sets_while_a_plugin_loads_stays(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The host's environment is the host's: nothing is put back, and nobody is blamed."""
    monkeypatch.setenv("HOST_TOKEN", "old")
    begun, done = tmp_path / "begun", tmp_path / "done"
    wait = f"open({str(begun)!r}, 'w').close()\n" + waits_for(done)
    method = "def initialize(self, session_id, **kwargs):\n" + indent(wait, "    ")
    source = provider_class("mine", body=method if when == "initialize" else "")
    add_directory(home, "mine", wait + source if when == "import" else source)

    def host_thread() -> None:
        while not begun.exists():
            sleep(0.005)
        os.environ["HOST_TOKEN"] = "new"
        done.touch()

    other = threading.Thread(target=host_thread)
    other.start()
    manager = MemoryManager(home=home)
    manager.add_provider(load_provider("mine", home))
    manager.initialize_all("s")
    other.join(10)
    assert os.environ["HOST_TOKEN"] == "new"
    assert manager.warnings == ()
    manager.shutdown_all()


def test_the_standard_library_is_not_patched(home: Path) -> None:
    def methods() -> tuple[object, ...]:
        return threading.Thread.start, subprocess.Popen.__init__, BaseProcess.start

    before = methods()
    add_directory(home, "mine")
    manager = MemoryManager(home=home)
    manager.add_provider(load_provider("mine", home))
    manager.initialize_all("s")
    assert methods() == before
    manager.shutdown_all()
