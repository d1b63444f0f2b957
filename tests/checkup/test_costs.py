"""What a command that runs plugin code costs: one child process, one scan, one hash."""

from __future__ import annotations

import pytest
from support.commands import Machine
from support.fielded import TIMEOUT, add_plugin, machine_in, saved_of

PROBE = (
    "def probe(self, write):\n"
    "    import types; return types.SimpleNamespace(ok=True, detail='answers')\n"
)

#: In the command and in its child: notes each process that is started, each listing of the
#: folder of plugins, and each time that a file is read which only the content hash reads.
COUNTING = """
import os, sys

PLUGINS, DATA, LOG = {plugins!r}, {data!r}, {log!r}
PROCESSES = {{"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}}


def heard(event, arguments):
    first = str(arguments[0]) if arguments else ""
    what = (
        "process" if event in PROCESSES
        else "scan" if event in ("os.listdir", "os.scandir") and first == PLUGINS
        else "hash" if event == "open" and first == DATA
        else ""
    )
    if what:
        file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, (what + "\\n").encode())
        os.close(file)


sys.addaudithook(heard)
"""


@pytest.fixture(scope="module")
def enabled(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine with an enabled plugin."""
    machine = machine_in(tmp_path_factory.mktemp("enabled"))
    folder = add_plugin(machine.home, (TIMEOUT,), PROBE)
    (folder / "data.txt").write_text("only hashed")
    machine.run("enable", "acme").done()
    return machine


def costs(machine: Machine, *arguments: str) -> list[str]:
    """Run a command; return what it did, in no order."""
    log = machine.home.parent / "counted"
    plugins = machine.home / "plugins"
    data = plugins / "acme" / "data.txt"
    (machine.site.folder / "sitecustomize.py").write_text(
        COUNTING.format(plugins=str(plugins), data=str(data), log=str(log))
    )
    log.unlink(missing_ok=True)
    machine.run(*arguments).done()
    return sorted(log.read_text().split())


@pytest.mark.parametrize(
    "arguments", [("status",), ("doctor",), ("doctor", "--write"), ("config", "show")], ids=" ".join
)
def test_one_process_one_scan_and_one_hash(enabled, arguments):
    assert costs(enabled, *arguments) == ["hash", "process", "scan"]


def test_a_value_is_checked_written_and_saved_by_one_process(enabled):
    assert costs(enabled, "config", "set", "memory.acme.timeout", "10") == ["process", "scan"]
    assert enabled.memory["acme"] == {"timeout": 10}
    assert saved_of(enabled) == {"timeout": 10}
    assert not (enabled.home / "setup.json").exists()
