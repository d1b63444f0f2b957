"""Many threads load at once: each gets its provider, and our streams stay ours."""

from __future__ import annotations

import os
import sys
import threading

import pytest
from support.modules import run_python
from support.sites import add_directory, provider_source

from hermes_core import discover, load_provider


def together(number, call):
    """Run a call in several threads at once; gives what they returned or raised."""
    results = []
    barrier = threading.Barrier(number)

    def run():
        barrier.wait(10)
        try:
            results.append(call())
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(number)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    return results


@pytest.fixture
def switching(monkeypatch):
    """Threads take turns as often as they can, so that a race is seen."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # whatever a race does to it ends here
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.scaled
def test_a_directory_that_many_threads_load_is_imported_once(home, tmp_path, switching):
    for number in range(15 if os.environ.get("HERMES_STRESS") else 5):
        log = tmp_path / f"p{number}"
        source = f"with open({str(log)!r}, 'a') as file:\n    file.write('x')\n"
        source += "from .impl import register  # register_memory_provider\n"
        folder = add_directory(home, log.name, source)
        (folder / "impl.py").write_text(provider_source(log.name), "utf-8")
    for info in [each for each in discover(home) if each.source == "directory"]:
        results = together(8, lambda info=info: load_provider(info).name)
        assert results == [info.name] * 8
        assert (tmp_path / info.name).read_text("utf-8") == "x"


def test_a_package_that_many_threads_load_is_loaded_by_each(home, site):
    site.add_provider("acme")
    assert together(8, lambda: load_provider("acme", home).name) == ["acme"] * 8


@pytest.mark.stress
def test_the_streams_are_ours_after_many_loads_at_once(home):
    for number in range(4):
        source = f"import time\ntime.sleep(0.0{number})\nprint('chatter')\n"
        add_directory(home, f"p{number}", source + provider_source(f"p{number}"))
    code = """
        import sys, threading
        from hermes_core import load_provider
        real = sys.stdout
        for _ in range(2):
            threads = [
                threading.Thread(target=load_provider, args=(f"p{number % 4}",))
                for number in range(8)
            ]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            assert sys.stdout is real, sys.stdout
            load_provider("p0")
            print("ours", flush=True)
    """
    done = run_python(code, home=home)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "ours\n" * 2


@pytest.mark.stress
def test_a_hanging_plugin_costs_no_processor_time_however_often_it_is_tried(home):
    add_directory(home, "slow", "import time\ntime.sleep(600)\n" + provider_source("slow"))
    code = """
        import time
        from hermes_core import ProviderLoadError, load_provider
        for _ in range(10):
            try:
                load_provider("slow", deadline=0.02)
            except ProviderLoadError:
                pass
        before = time.process_time()
        time.sleep(0.25)
        print(time.process_time() - before)
    """
    done = run_python(code, home=home)
    assert done.returncode == 0, done.stderr[-2000:]
    # Processor time, not elapsed time: threads that spin would take all of it.
    assert float(done.stdout) < 0.1
