"""A plugin that hangs while it loads hits the deadline, and nobody else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from support.commands import wait_until
from support.modules import provider_class, run_python, waits_for
from support.sites import MEMORY, add_directory, provider_source

from hermes_core import ProviderLoadError, load_provider
from hermes_core.loading.modules import package_name

CLASS = provider_class("acme")


@pytest.fixture
def let_go(tmp_path):
    """The file that ends the wait of all plugins of a test."""
    signal = tmp_path / "let-go"
    yield signal
    signal.touch()
    for each in threading.enumerate():
        if each.name.startswith("load-"):
            each.join(60)


def hanging(signal, where):
    wait = waits_for(signal)
    inner = "".join(f"    {line}\n" for line in wait.splitlines())
    if where == "import":
        return wait + provider_source("slow")
    if where == "register":
        return CLASS + f"\ndef register(ctx):\n{inner}"
    body = {"construct": "def __init__(self):\n" + inner, "check": ""}[where]
    source = provider_class("slow", body=body)
    if where == "check":
        nested = "".join(f"    {line}\n" for line in inner.splitlines())
        source = source.replace("        return 'slow'\n", nested + "        return 'slow'\n")
    return source


@pytest.mark.parametrize("where", ["import", "register", "construct", "check"])
def test_the_error_names_the_step_that_hangs_and_the_time(home, site, let_go, where):
    site.add(
        "slow-memory",
        groups={MEMORY: {"slow": f"slow_{where}"}},
        files={f"slow_{where}.py": hanging(let_go, where)},
    )
    with pytest.raises(ProviderLoadError) as caught:
        load_provider("slow", home, deadline=0.2)
    assert caught.value.step == where
    assert (caught.value.plugin, caught.value.distribution) == ("slow", "slow-memory")
    assert "0.2 s" in str(caught.value)


def test_others_load_while_one_hangs_on(home, let_go):
    add_directory(home, "slow", hanging(let_go, "import"))
    add_directory(home, "quick")
    with pytest.raises(ProviderLoadError):
        load_provider("slow", home, deadline=0.1)
    assert load_provider("quick", home, deadline=60).name == "quick"


def test_a_plugin_that_is_slow_but_in_time_loads(home):
    add_directory(home, "slow", "import time\ntime.sleep(0.05)\n" + provider_source("slow"))
    assert load_provider("slow", home, deadline=60).name == "slow"


def test_our_streams_are_back_while_the_plugin_hangs_on(home, let_go, capsys):
    add_directory(home, "slow", "import sys\nsys.stdout = None\n" + hanging(let_go, "import"))
    with pytest.raises(ProviderLoadError):
        load_provider("slow", home, deadline=0.1)
    print("ours")
    assert "ours" in capsys.readouterr().out


def test_a_process_with_a_hanging_plugin_ends_at_once(home):
    add_directory(home, "slow", "import time\ntime.sleep(600)\n" + provider_source("slow"))
    done = run_python(
        """
        from hermes_core import ProviderLoadError, load_provider
        try:
            load_provider("slow", deadline=0.2)
        except ProviderLoadError as error:
            print(error)
        """,
        home=home,
        timeout=60,  # the plugin sleeps for ten minutes
    )
    assert done.returncode == 0, done.stderr
    assert "import failed: not finished after 0.2 s" in done.stdout


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_ends_the_wait_for_a_hanging_plugin(home, tmp_path):
    begun = tmp_path / "begun"
    source = f"open({str(begun)!r}, 'w').close()\nimport time\ntime.sleep(600)\n"
    add_directory(home, "slow", source + provider_source("slow"))
    code = "from hermes_core import load_provider; load_provider('slow', deadline=300)"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        while not begun.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert b"KeyboardInterrupt" in errors
    assert b"ProviderLoadError" not in errors


def test_the_default_deadline_is_ten_seconds():
    import inspect

    assert inspect.signature(load_provider).parameters["deadline"].default == 10


def test_a_second_attempt_while_the_first_hangs_on_does_not_take_half_a_plugin(home, let_go):
    add_directory(home, "slow", hanging(let_go, "import"))
    with pytest.raises(ProviderLoadError, match=r"not finished after 0\.1 s"):
        load_provider("slow", home, deadline=0.1)
    with pytest.raises(ProviderLoadError, match=r"not finished after 0\.2 s"):
        load_provider("slow", home, deadline=0.2)


def test_others_load_in_other_threads_while_one_hangs(home, let_go):
    slow = add_directory(home, "slow", hanging(let_go, "import"))
    add_directory(home, "quick")
    thread = threading.Thread(target=load_provider, args=("slow", home), kwargs={"deadline": 60})
    thread.start()
    assert wait_until(lambda: package_name(slow) in sys.modules)
    load_provider("quick", home, deadline=30)
    hung = thread.is_alive()
    let_go.touch()
    thread.join(60)
    assert hung


def test_a_plugin_may_load_another_one(home, site):
    site.add_provider("inner")
    add_directory(
        home,
        "outer",
        "from hermes_core import load_provider\n"
        "def register(ctx):\n"
        f"    ctx.register_memory_provider(load_provider('inner', {str(home)!r}))\n",
    )
    assert load_provider("outer", home, deadline=1).name == "inner"


def test_what_a_plugin_prints_after_its_deadline_does_not_reach_stdout(home, tmp_path):
    signal = tmp_path / "let-go"
    source = waits_for(signal) + "print('chatter', flush=True)\n" + provider_source("slow")
    add_directory(home, "slow", source)
    done = run_python(
        f"""
        import threading
        from hermes_core import ProviderLoadError, load_provider
        try:
            load_provider("slow", deadline=0.2)
        except ProviderLoadError:
            open({str(signal)!r}, "w").close()
        for each in threading.enumerate():
            if each.name.startswith("load-"):
                each.join(10)
        """,
        home=home,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_who_waits_for_a_hanging_import_does_not_poll(home, let_go, monkeypatch):
    add_directory(home, "slow", hanging(let_go, "import"))
    with pytest.raises(ProviderLoadError, match="not finished"):
        load_provider("slow", home, deadline=0.1)
    slept, sleep = [], time.sleep

    def noted(seconds):
        slept.append(sys._getframe(1).f_code.co_name)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", noted)
    with pytest.raises(ProviderLoadError, match="not finished"):
        load_provider("slow", home, deadline=0.1)
    assert "import_directory" not in slept
