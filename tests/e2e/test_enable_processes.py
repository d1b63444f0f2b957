"""What a plugin does to its process while it is tried reaches nobody else."""

from __future__ import annotations

import signal

import pytest
from support.commands import posix_only, wait_until
from support.sites import provider_source

from hermes_core.checkup import child_process

GOOD = provider_source("alpha")
HANG = "import time; time.sleep(600)  # MemoryProvider\n"
SHORT = "memory:\n  deadlines: {load: 0.3}\n"

pytestmark = posix_only


def test_a_plugin_that_hangs_at_import_is_given_up_at_its_deadline(machine):
    machine.install("alpha", HANG)
    machine.write_config(SHORT)
    with machine.unchanged():
        line = machine.run("enable", "alpha", timeout=120).failed()
    assert "plugin alpha of memory-alpha: import failed: not finished after 0.3 s" in line


def test_what_a_hanging_plugin_has_started_ends_with_it(machine, holder):
    machine.install("alpha", holder.spawn() + HANG)
    machine.write_config("memory:\n  deadlines: {load: 2}\n")
    machine.run("enable", "alpha").failed()
    assert wait_until(holder.is_gone)


@pytest.mark.stress  # the next one has all of it
def test_what_a_working_plugin_has_started_ends_with_the_trial(machine, holder):
    machine.install("alpha", holder.spawn() + GOOD)
    machine.run("enable", "alpha").done()
    assert wait_until(holder.is_gone)


def test_what_a_plugin_has_started_in_a_session_of_its_own_ends_too(machine, holder):
    machine.install("alpha", holder.spawn("start_new_session=True") + GOOD)
    machine.run("enable", "alpha").done()
    assert wait_until(holder.is_gone)


def test_a_plugin_that_forks_a_worker_is_not_waited_for(machine, holder):
    fork = f"import os\nif os.fork() == 0:\n    exec({holder.source()!r})\n    os._exit(0)\n"
    machine.install("alpha", fork + GOOD)
    process = machine.start("enable", "alpha")
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
        holder.end()
    assert (process.returncode, out, err) == (0, "alpha is enabled.\n", "")


def test_a_plugin_that_never_gives_the_interpreter_back_is_killed_from_outside(
    machine, holder, monkeypatch
):
    monkeypatch.setattr(child_process, "_START_SECONDS", 1.5)
    stop = "import ctypes; ctypes.PyDLL(None).sleep(600)  # MemoryProvider\n"
    machine.install("alpha", holder.spawn() + stop)
    machine.write_config("memory:\n  deadlines: {load: 2, available: 0.1}\n")
    with machine.unchanged():
        line = machine.run("enable", "alpha").failed()
    assert "plugin alpha: no result after" in line  # the child could not say so itself
    assert wait_until(holder.is_gone)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param("os._exit(0)", "0", marks=pytest.mark.stress),
        ("os._exit(3)", "3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "-9"),
        pytest.param("os.abort()", "-6", marks=pytest.mark.stress),
    ],
)
def test_a_plugin_that_ends_its_process_is_told_as_such(machine, end, code):
    machine.install("alpha", f"import os, signal; {end}  # MemoryProvider\n")
    with machine.unchanged():
        line = machine.run("enable", "alpha").failed()
    assert "plugin alpha: ended the process that loaded it" in line
    assert code in line


@pytest.mark.parametrize(
    "deed",
    [
        "print('noise'); print('{}')",
        'import os; os.write(1, b\'{"provider_name": "fake"}\')',
        "import os; os.close(1); os.close(2)",
        *(
            pytest.param(each, marks=pytest.mark.stress)
            for each in (
                "import sys; sys.stdout.close(); sys.stderr.close()",
                "import os; os.close(0)",
                "import io, sys; sys.stdout = io.StringIO(); sys.__stdout__ = None",
                "import os, sys; os.system('echo noise')",
            )
        ),
    ],
)
def test_a_plugin_that_tampers_with_the_streams_is_enabled_without_its_noise(machine, deed):
    machine.install("alpha", f"{deed}\n{GOOD}")
    result = machine.run("enable", "alpha").done()
    assert result.out == "alpha is enabled.\n"


def test_a_plugin_that_asks_at_a_prompt_gets_no_answer(machine):
    machine.install("alpha", f"input('password: ')\n{GOOD}")
    line = machine.run("enable", "alpha", timeout=120).failed()
    assert "EOFError" in line


def test_a_plugin_that_leaves_threads_running_does_not_hold_the_command_up(machine):
    thread = "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()\n"
    machine.install("alpha", thread + GOOD)
    machine.run("enable", "alpha", timeout=120).done()


def hanging(machine, holder):
    machine.install("alpha", holder.spawn() + HANG)
    process = machine.start("enable", "alpha")
    assert wait_until(lambda: holder.started)
    return process


def test_ctrl_c_ends_the_trial_and_all_that_it_started(machine, holder):
    process = hanging(machine, holder)
    with machine.unchanged():
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=15)
    assert process.returncode not in (0, 2)
    assert "Traceback" not in out + err
    assert wait_until(holder.is_gone)


def test_a_command_that_is_terminated_leaves_nothing_running(machine, holder):
    process = hanging(machine, holder)
    process.terminate()
    process.communicate(timeout=15)
    assert wait_until(holder.is_gone)


@pytest.mark.parametrize(
    "module",
    [
        pytest.param("json", marks=pytest.mark.stress),
        "hermes_core",
    ],
)
def test_files_in_the_current_folder_are_not_imported(machine, tmp_path, module):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    trace = tmp_path / "imported"
    (folder / f"{module}.py").write_text(f"open({str(trace)!r}, 'w'); raise SystemExit(9)\n")
    machine.install("alpha")
    result = machine.run("enable", "alpha", cwd=folder)
    assert not trace.exists()
    result.done()
