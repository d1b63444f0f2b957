"""What a bad plugin does is named, bounded and cleaned up; the agent's turn goes on."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from support.providers import SLACK
from support.sites import add_directory
from support.theirs import their_source

from hermes_core import MemoryManager, ProviderLoadError, load_provider
from hermes_core.hookspecs import HOOKS

SERVER = "import subprocess, sys\nSERVER = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
NESTED = (
    "import subprocess, sys\nSERVER = [sys.executable, '-c', 'import subprocess, sys, time; "
    'subprocess.Popen([sys.executable, "-c", "import time; time.sleep(61)"]); '
    'open(sys.argv[1], "w").close(); time.sleep(60)\', {mark!r}]\n'
)


@pytest.fixture
def manager(home: Path):
    """A manager of the configuration whose provider is a directory plugin."""
    made = []

    def make(source: str, **deadlines: float) -> MemoryManager:
        add_directory(home, "theirs", source)
        limits = "".join(f", {name}: {value}" for name, value in deadlines.items())
        text = f"memory: {{provider: theirs, deadlines: {{load: 5{limits}}}}}\n"
        (home / "config.yaml").write_text(text, "utf-8")
        made.append(MemoryManager.from_config(home))
        return made[-1]

    yield make
    for each in made:
        each.shutdown_all()


def talks_on(manager: MemoryManager) -> None:
    """A whole turn, which has what the built-in has."""
    manager.on_turn_start(1, "hello")
    manager.recall_block("hello")
    manager.sync_all("hello", "hi")
    manager.queue_prefetch_all("hello")
    assert "memory" in manager.get_all_tool_names()
    assert "success" in manager.handle_tool_call("session_search", {})


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def ended(pid: int) -> bool:
    end = monotonic() + 5
    while is_running(pid) and monotonic() < end:
        sleep(0.02)
    return not is_running(pid)


def test_one_that_blocks_in_register_is_named_at_the_deadline_and_what_it_ran_ends(home, tmp_path):
    mark = tmp_path / "pid"
    registers = f"""
    process = subprocess.Popen(SERVER)
    with open({str(mark)!r}, "w") as file:
        file.write(str(process.pid))
    process.wait()
    """
    add_directory(home, "theirs", SERVER + their_source(registers=registers))
    began = monotonic()
    with pytest.raises(ProviderLoadError) as caught:
        load_provider("theirs", home, deadline=1)
    assert monotonic() - began < 1 + SLACK
    assert "plugin theirs" in str(caught.value)
    assert "register" in str(caught.value)
    assert "time.sleep(60)" in str(caught.value)
    assert ended(int(mark.read_text()))


@pytest.mark.skipif(os.name != "posix", reason="looks at POSIX processes")
def test_a_server_that_is_left_behind_ends_with_all_that_came_of_it(manager, caplog, tmp_path):
    mark = tmp_path / "ready"
    methods = f"""
    def initialize(self, session_id, **kwargs):
        import os, time
        self.process = subprocess.Popen(SERVER, start_new_session=True)
        while not os.path.exists({str(mark)!r}):
            time.sleep(0.01)
    """
    made = manager(NESTED.format(mark=str(mark)) + their_source(methods=methods))
    made.initialize_all("s")
    talks_on(made)
    from hermes_core.processes import _descendants

    server = made.get_provider("theirs").process.pid
    (child,) = _descendants(server)
    with caplog.at_level(logging.WARNING, "hermes_core"):
        made.shutdown_all()
    assert ended(server)
    assert ended(child)
    assert "provider theirs left processes, now ended" in caplog.text


def test_a_worker_of_multiprocessing_ends_too_and_does_not_keep_the_host_from_its_end(
    manager, caplog
):
    methods = """
    def initialize(self, session_id, **kwargs):
        import multiprocessing, time
        context = multiprocessing.get_context("spawn")
        self.closed = context.Process(target=time.sleep, args=(0,))
        self.closed.start()
        self.closed.join()
        self.closed.close()
        self.worker = context.Process(target=time.sleep, args=(60,), name="index")
        self.worker.start()
    """
    made = manager(their_source(methods=methods))
    made.initialize_all("s")
    talks_on(made)
    worker = made.get_provider("theirs").worker
    assert worker.is_alive()
    with caplog.at_level(logging.WARNING, "hermes_core"):
        made.shutdown_all()
    assert not worker.is_alive()
    assert "provider theirs left processes, now ended: multiprocessing index" in caplog.text


def test_what_the_host_itself_runs_is_not_ended(manager):
    import subprocess

    made = manager(their_source())
    made.initialize_all("s")
    own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        made.shutdown_all()
        assert own.poll() is None
    finally:
        own.kill()
        own.wait()


@pytest.mark.parametrize("when", ["register", "initialize"])
def test_streams_and_environment_that_are_taken_over_are_put_back(manager, monkeypatch, when):
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("ALSO_MINE", "2")
    deed = """
    import io, os, sys
    sys.stdout = sys.stderr = io.StringIO()
    os.environ["MINE"] = "theirs"
    os.environ["HERMES_HOME"] = "/elsewhere"
    os.environ["THEIR_LIBRARY_OPTION"] = "1"
    del os.environ["ALSO_MINE"]
    """
    home = os.environ["HERMES_HOME"]
    streams = sys.stdout, sys.stderr
    body = "def initialize(self, session_id, **kwargs):\n" + deed
    source = their_source(registers=deed) if when == "register" else their_source(methods=body)
    made = manager(source)
    made.initialize_all("s")
    assert (sys.stdout, sys.stderr) == streams
    assert (os.environ["MINE"], os.environ["ALSO_MINE"], os.environ["HERMES_HOME"]) == (
        "1",
        "2",
        home,
    )
    assert os.environ.pop("THEIR_LIBRARY_OPTION") == "1"
    (warning,) = made.warnings
    assert "theirs changed the environment; put back: ALSO_MINE, HERMES_HOME, MINE" in warning
    talks_on(made)


def test_one_that_demands_what_is_optional_gets_it_or_is_told_of(manager):
    methods = """
    def initialize(self, session_id, hermes_home, platform, user_id, agent_identity, agent_context,
                   agent_workspace, chat_id, parent_session_id):
        self.started = (session_id, user_id, chat_id)

    def sync_turn(self, user_content, assistant_content, session_id, messages):
        self.turn = (user_content, session_id)

    def on_turn_start(self, turn_number, message, moon_phase):
        raise AssertionError("nobody knows the phase of the moon")
    """
    made = manager(their_source(methods=methods))
    made.initialize_all("s")
    talks_on(made)
    assert made.flush_pending(5)
    provider = made.get_provider("theirs")
    assert provider.started == ("s", "", "")
    assert provider.turn == ("hello", "s")
    assert "moon_phase" in made.health()["theirs"]["on_turn_start"].last_error


def test_one_that_raises_in_every_hook_costs_no_turn(manager):
    raising = "".join(
        f"def {hook}(self, *args, **kwargs):\n    raise RuntimeError('boom in {hook}')\n"
        for hook in HOOKS
        if hook not in ("is_available", "get_config_schema", "save_config")
    )
    made = manager(their_source(methods=raising))
    assert made.problems == ()
    made.initialize_all("s")
    talks_on(made)
    made.on_session_end([])
    health: Any = made.health()["theirs"]
    assert "boom in initialize" in health["initialize"].last_error
    assert any("initialize failed" in each for each in made.warnings)


def test_one_that_hangs_in_initialize_is_left_behind(manager):
    methods = """
    def initialize(self, session_id, **kwargs):
        import time
        time.sleep(30)
    """
    made = manager(their_source(methods=methods), initialize=0.3, shutdown=0.3)
    began = monotonic()
    made.initialize_all("s")
    assert monotonic() - began < 0.3 + SLACK
    talks_on(made)
    assert "0.3 s" in made.health()["theirs"]["initialize"].last_error
