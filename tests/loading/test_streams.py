"""Standard output is ours, whatever a plugin does to it while it loads."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stdout
from pathlib import Path
from threading import Thread

import pytest
from support.commands import wait_until
from support.modules import provider_class, run_python, waits_for
from support.sites import add_directory, provider_source

from hermes_core import load_provider

LOAD_AND_SPEAK = """
    import os, sys
    from hermes_core import ProviderLoadError, load_provider
    print("before", flush=True)
    try:
        load_provider("mine")
        print("mine", flush=True)
    except ProviderLoadError as error:
        print("told:", error, flush=True)
    print("after", flush=True)
    os.write(1, b"by number\\n")
    print("to stderr", file=sys.stderr, flush=True)
"""
SPOKEN = "before\nmine\nafter\nby number\n"


def spoken(home, source):
    """What a process says to stdout and stderr that loads a plugin with this source."""
    add_directory(home, "mine", source + provider_source("mine"))
    done = run_python(LOAD_AND_SPEAK, home=home)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    "source",
    [
        "import sys; sys.stdout.close()",
        pytest.param("import sys; sys.stderr.close()", marks=pytest.mark.stress),
        "import os; os.close(1); os.close(2)",
        pytest.param(
            "import sys, io; sys.stdout = sys.stderr = io.StringIO()", marks=pytest.mark.stress
        ),
        "import sys; del sys.stdout",
    ],
)
def test_a_plugin_that_closes_or_replaces_the_streams_does_not_take_ours(home, source):
    stdout, stderr = spoken(home, source + "\n")
    assert stdout == SPOKEN
    assert "to stderr" in stderr


def test_a_plugin_that_closes_the_original_stdout_does_not_take_ours(home):
    assert spoken(home, "import sys; sys.__stdout__.close()\n")[0] == SPOKEN


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            "import os; os.dup2(os.open(os.devnull, os.O_WRONLY), 1)", marks=pytest.mark.stress
        ),
        "import os; os.close(1); kept = open(__file__ + '.db', 'w')",
    ],
)
def test_a_plugin_that_turns_number_1_to_a_file_of_its_own_does_not_get_our_output(home, source):
    assert spoken(home, source + "\n")[0] == SPOKEN


@pytest.mark.parametrize("where", ["import", "name"])
def test_what_a_plugin_prints_while_it_loads_goes_to_stderr(home, where):
    say = "print('chatter')"
    source = provider_class("mine").replace(
        "return 'mine'", f"{where == 'name' and say}; return 'mine'"
    )
    source += f"    def __init__(self):\n        {where == 'construct' and say}\n"
    source += f"\n{where == 'import' and say}\n"
    source += f"\ndef register(ctx):\n    {where == 'register' and say}\n"
    add_directory(home, "mine", source + "    ctx.register_memory_provider(Provider())\n")
    done = run_python(LOAD_AND_SPEAK, home=home)
    assert done.stdout == SPOKEN
    assert "chatter" in done.stderr


def test_what_a_plugin_that_fails_has_printed_goes_to_stderr_too(home):
    add_directory(home, "mine", "print('chatter')\nraise RuntimeError('x')  # MemoryProvider\n")
    done = run_python(LOAD_AND_SPEAK, home=home)
    assert "chatter" in done.stderr
    assert "chatter" not in done.stdout
    assert done.stdout.startswith("before\ntold: plugin mine")


def test_a_log_handler_made_while_loading_goes_on_working(home):
    body = "def speak(self):\n    logging.getLogger('mine').warning('still here')\n"
    source = "import logging\nlogging.getLogger('mine').addHandler(logging.StreamHandler())\n"
    add_directory(home, "mine", source + provider_class("mine", body=body))
    done = run_python(
        "from hermes_core import load_provider\nload_provider('mine').speak()\n", home=home
    )
    assert done.stderr.strip() == "still here"
    assert done.stdout == ""


def test_our_own_streams_are_back_after_each_load(home, monkeypatch):
    add_directory(home, "good")
    add_directory(home, "bad", "import sys\nsys.stdout = 3\nraise OSError  # MemoryProvider")
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    load_provider("good", home)
    with pytest.raises(Exception, match="OSError"):
        load_provider("bad", home)
    assert sys.stdout is out
    assert sys.stderr is err
    assert not out.closed


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files can't be counted here")
def test_loading_leaves_no_file_open(home):
    add_directory(home, "good")
    add_directory(home, "bad", "raise OSError  # MemoryProvider")
    load_provider("good", home)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        load_provider("good", home)
        with pytest.raises(Exception, match="OSError"):
            load_provider("bad", home)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_process_without_streams_can_load(home):
    add_directory(home, "mine", "import sys\nprint('chatter')\n" + provider_source("mine"))
    code = """
        import os, sys
        from hermes_core import load_provider
        sys.stdout = sys.stderr = None
        os.close(1)
        os.close(2)
        os._exit(len(load_provider("mine").name))
    """
    assert run_python(code, home=home).returncode == 4


def test_a_redirection_that_ends_after_the_load_leaves_the_hosts_own_stream(
    home, tmp_path, monkeypatch
):
    begun, done = tmp_path / "begun", tmp_path / "done"
    source = f"open({str(begun)!r}, 'w').close()\n" + waits_for(done)
    add_directory(home, "mine", source + provider_source("mine"))
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    load = Thread(target=load_provider, args=("mine", home))
    load.start()
    assert wait_until(begun.exists, 60)
    with redirect_stdout(io.StringIO()):
        done.touch()
        load.join(60)
    print("said")
    assert sys.stdout is out
    assert out.getvalue() == "said\n"


def test_a_host_that_wraps_stdout_while_two_plugins_load_can_print_afterwards(
    home, tmp_path, monkeypatch
):
    class Tee(io.StringIO):
        def __init__(self, stream):
            super().__init__()
            self.stream = stream

        def write(self, text):
            return self.stream.write(text)

    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    loads, ends = [], []
    for name in ("first", "second"):
        begun, done = tmp_path / f"{name} begun", tmp_path / f"{name} done"
        source = f"open({str(begun)!r}, 'w').close()\n" + waits_for(done)
        add_directory(home, name, source + provider_source(name))
        loads.append(Thread(target=load_provider, args=(name, home)))
        ends.append(done)
        loads[-1].start()
        assert wait_until(begun.exists, 60)
        sys.stdout = Tee(sys.stdout)
    for load, done in zip(loads, ends, strict=True):
        done.touch()
        load.join(60)
    print("said")
    assert out.getvalue() == "said\n"


def test_what_other_threads_print_while_a_plugin_loads_goes_where_it_always_goes(home, tmp_path):
    begun, done = tmp_path / "begun", tmp_path / "done"
    source = f"open({str(begun)!r}, 'w').close()\n" + waits_for(done)
    add_directory(home, "mine", source + provider_source("mine"))
    code = f"""
        import os, threading, time
        from hermes_core import load_provider
        thread = threading.Thread(target=load_provider, args=("mine",))
        thread.start()
        while not os.path.exists({str(begun)!r}):
            time.sleep(0.005)
        print("protocol message", flush=True)
        open({str(done)!r}, "w").close()
        thread.join()
    """
    assert run_python(code, home=home).stdout == "protocol message\n"


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("sys.stdout.reconfigure(encoding='utf-8')", marks=pytest.mark.stress),
        "sys.stdout.buffer.write(b'chatter')",
    ],
)
def test_a_plugin_may_use_stdout_as_the_text_stream_that_it_is(home, statement):
    source = f"import codecs, io, sys\n{statement}\n"
    assert spoken(home, source)[0] == SPOKEN


def test_a_line_to_stderr_is_written_at_once_after_a_plugin_has_closed_it(home):
    add_directory(home, "mine", "import sys\nsys.stderr.close()\n" + provider_source("mine"))
    code = """
        import os, sys
        from hermes_core import load_provider
        load_provider("mine")
        print("to stderr", file=sys.stderr)
        os._exit(0)
    """
    assert run_python(code, home=home).stderr == "to stderr\n"
