"""What a plugin does to the process that checks it never reaches the kit."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import posix_only, wait_until
from support.forked_children import run_forked
from support.kit import QUICK, happened, only, states

from hermes_core import HermesError, ProviderLoadError
from hermes_core.conformance import Limits, Options, _runner, check_plugin
from hermes_core.conformance.model import verdict

#: Holds the interpreter, so that no thread of ours can notice. Without CPU, where that is possible.
HOLD = (
    "import ctypes; ctypes.PyDLL(None).sleep(60)"
    if os.name == "posix"
    else "import re; re.match('(a+)+$', 'a' * 60 + 'b')"
)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process itself is not what the test is about."""
    if os.name == "posix":
        monkeypatch.setattr(_runner, "run_child", run_forked)


@pytest.mark.usefixtures("forked")
def test_a_call_that_hangs_is_a_failed_check_and_the_kit_ends(plugin):
    info = plugin("def initialize(self, session_id, **kwargs): time.sleep(600)")
    report = check_plugin(info, only("HP201", "HP206", "HP609", "HP831"))
    assert states(report) == {
        "HP201": "passed", "HP206": "failed", "HP609": "skipped", "HP831": "skipped",
    }  # fmt: skip
    assert "did not return" in happened(report, "HP206")


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("os._exit(7)", id="exit"),
        pytest.param("__import__('ctypes').string_at(0)", id="crash", marks=pytest.mark.stress),
    ],
)
def test_a_check_in_which_the_process_ends_has_failed_and_the_others_are_run(plugin, end):
    info = plugin(f"def on_pre_compress(self, messages): {end}")
    report = check_plugin(info, only("HP610", "HP611", "HP612"))
    assert states(report) == {"HP610": "passed", "HP611": "failed", "HP612": "passed"}
    assert "ended its process" in happened(report, "HP611")


def test_a_plugin_that_holds_the_interpreter_is_ended(plugin):
    info = plugin(f"def on_pre_compress(self, messages): {HOLD}")
    limits = QUICK._replace(check=3.0)
    report = check_plugin(info, Options(only=("HP610", "HP611", "HP612"), limits=limits))
    assert states(report) == {"HP610": "passed", "HP611": "failed", "HP612": "passed"}
    assert happened(report, "HP611") == "it did not end"


@pytest.mark.usefixtures("forked")
def test_sys_exit_in_a_plugin_is_an_exception_like_any_other(plugin):
    info = plugin("def on_pre_compress(self, messages): raise SystemExit(3)")
    report = check_plugin(info, only("HP611"))
    assert "SystemExit" in happened(report, "HP611")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("top", "said"),
    [
        ("raise ValueError('broken')", "ValueError: broken"),
        ("import os; os._exit(7)", "exit code 7"),
        ("import time; time.sleep(60)", "not finished after 1 s"),
        (HOLD, "it did not end"),
        ("import no_such_module_x", "usually: pip install no_such_module_x"),
    ],
)
def test_a_plugin_that_can_not_be_loaded_is_told_with_its_cause(plugin, top, said):
    limits = QUICK._replace(load=1.0, check=2.0) if "sleep" in top or top == HOLD else QUICK
    with pytest.raises(ProviderLoadError, match="acme") as caught:
        check_plugin(plugin("pass", top), Options(only=("HP201",), limits=limits))
    assert said in str(caught.value)


def test_the_plugin_sees_nothing_of_our_environment(plugin, monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET_OF_OURS", "hunter2")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    info = plugin(
        """
        def is_available(self):
            import json, keyring
            seen = {**os.environ, "backend": type(keyring.get_keyring()).__module__}
            raise RuntimeError(json.dumps(seen))
        """
    )
    report = check_plugin(info, only("HP201", env={"ACME_KEY": "k"}))
    text = happened(report, "HP201")
    seen = json.loads(text[text.index("{") :])
    assert seen["ACME_KEY"] == "k"
    assert "SECRET_OF_OURS" not in seen
    assert seen["backend"] == "keyring.backends.null"
    for name in ("HOME", "HERMES_HOME", "TMPDIR"):
        assert str(tmp_path) not in seen[name]
        assert not Path(seen[name]).exists()  # gone with the run


CONNECTING = """
def initialize(self, session_id, **kwargs):
    import socket
    socket.create_connection(("127.0.0.1", {port}), timeout=2).close()
    super().initialize(session_id, **kwargs)
"""


@pytest.mark.usefixtures("forked")
def test_the_network_of_this_machine_is_there_only_with_live(plugin):
    with socket.create_server(("127.0.0.1", 0)) as server:
        info = plugin(CONNECTING.format(port=server.getsockname()[1]))
        assert states(check_plugin(info, only("HP206", live=True))) == {"HP206": "passed"}
        assert "allows no network" in happened(check_plugin(info, only("HP206")), "HP206")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("live", [True, False])
def test_other_machines_are_never_reached(plugin, live):
    info = plugin(
        """
        def initialize(self, session_id, **kwargs):
            import socket
            socket.create_connection(("192.0.2.1", 80), timeout=0.2)
        """
    )
    assert "allows no network" in happened(check_plugin(info, only("HP206", live=live)), "HP206")


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_a_library_in_c_does_not_reach_this_machine_either(plugin):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        # Behind Python's back: connect(2) by ctypes, as a database driver would.
        info = plugin(
            f"""
            def initialize(self, session_id, **kwargs):
                import ctypes, socket, struct
                libc = ctypes.CDLL(None, use_errno=True)
                address = struct.pack("=H", socket.AF_INET) + struct.pack(">H", {port})
                address += socket.inet_aton("127.0.0.1") + bytes(8)
                handle = libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
                if libc.connect(handle, address, len(address)) != 0:
                    raise ConnectionError(os.strerror(ctypes.get_errno()))
                super().initialize(session_id, **kwargs)
            """
        )
        assert states(check_plugin(info, only("HP206", live=True))) == {"HP206": "passed"}
        if subprocess.run(["unshare", "-rn", "true"], check=False).returncode == 0:
            assert "unreachable" in happened(check_plugin(info, only("HP206")), "HP206")


BEHIND_PYTHON = """
def is_available(self):
    import ctypes, socket
    libc = ctypes.CDLL(None)
    address = bytes([socket.AF_INET, 0, 0, 80, 192, 0, 2, 1]) + bytes(8)
    libc.connect(libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0), address, len(address))
    return True

def prefetch(self, query, *, session_id=""):
    return ""
"""


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_what_a_library_in_c_tries_is_seen_all_the_same(plugin):
    if subprocess.run(["unshare", "-rn", "true"], check=False).returncode != 0:
        pytest.skip("this system gives no namespaces")
    report = check_plugin(plugin(BEHIND_PYTHON), only("HP202", "HP609"))
    assert "not Python" in happened(report, "HP202")
    assert states(report) == {"HP202": "failed", "HP609": "skipped"}


@pytest.mark.usefixtures("forked")
def test_whoever_waits_is_told_what_is_being_checked(plugin):
    told = []
    info = plugin("def on_pre_compress(self, messages): time.sleep(0.45)")
    check_plugin(info, Options(only=("HP610", "HP611")), told.append)
    assert told == ["HP610", "HP611"]


@posix_only
def test_a_process_that_a_plugin_leaves_behind_ends_with_the_run(plugin, tmp_path):
    mark = tmp_path / "pid"
    info = plugin(
        f"""
        def initialize(self, session_id, **kwargs):
            import subprocess, sys
            left = subprocess.Popen(
                [sys.executable, "-S", "-c", "import time; time.sleep(600)"],
                start_new_session=True,
            )
            open({str(mark)!r}, "w").write(str(left.pid))
            super().initialize(session_id, **kwargs)
        """
    )
    report = check_plugin(info, only("HP310"))
    assert "still running" in happened(report, "HP310")
    pid = int(mark.read_text())
    if sys.platform == "linux":
        assert wait_until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return "(python" in Path(f"/proc/{pid}/stat").read_text() and _state(pid) != "Z"
    except OSError:
        return False


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.usefixtures("forked")
def test_a_fault_is_told_with_its_place_in_the_plugin(plugin):
    info = plugin("def on_pre_compress(self, messages):\n    return messages[0]['text']")
    report = check_plugin(info, only("HP611"))
    (result,) = report.results
    assert "IndexError" in result.happened
    assert result.where == "checked_plugin.py:7 (on_pre_compress)"
    assert result.fix
    assert result.docs == "docs/checks/turns.md#hp611"


@pytest.mark.usefixtures("forked")
def test_a_check_that_does_not_apply_is_skipped_with_its_reason(good):
    report = check_plugin(good, only("HP201", "HP202", skip={"HP202": "it is a network card"}))
    (skipped,) = [each for each in report.results if each.state == "skipped"]
    assert (skipped.id, skipped.reason) == ("HP202", "it is a network card")


@pytest.mark.parametrize("skip", [{"HP999": "no such"}, {"HP202": " "}])
def test_skipping_needs_a_check_and_a_reason(good, skip):
    with pytest.raises(HermesError):
        check_plugin(good, Options(skip=skip))


@pytest.mark.usefixtures("forked")
def test_what_the_kit_has_no_time_for_is_skipped_and_says_so(good):
    report = check_plugin(good, Options(only=("HP201", "HP202"), deadline=0.0))
    assert set(states(report).values()) == {"skipped"}
    assert "0 s were over" in report.results[0].reason
    assert not report.passes("must")
    assert verdict(report, "must").endswith("NOT FINISHED at level must")


@pytest.mark.usefixtures("forked")
def test_a_check_that_the_kit_s_own_end_interrupts_has_not_failed(plugin):
    info = plugin("def on_pre_compress(self, messages): time.sleep(600)")
    report = check_plugin(info, Options(only=("HP610", "HP611", "HP612"), deadline=3.0))
    assert states(report) == {"HP610": "passed", "HP611": "skipped", "HP612": "skipped"}


@posix_only
def test_whoever_interrupts_the_kit_does_not_wait_for_the_plugin(plugin):
    info = plugin("def on_pre_compress(self, messages): time.sleep(600)")

    def interrupt(_number: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        check_plugin(info, Options(only=("HP611",), limits=Limits(call=600.0)), interrupt)


@pytest.mark.usefixtures("forked")
def test_a_plugin_that_is_not_available_is_not_said_to_work(plugin):
    info = plugin(
        """
        def is_available(self): return "ACME_KEY" in os.environ
        def unavailable_reason(self): return "set ACME_KEY"
        """
    )
    report = check_plugin(info, only("HP206", "HP609", "HP831"))
    assert set(states(report).values()) == {"skipped"}
    assert "set ACME_KEY" in report.results[0].reason
    given = check_plugin(info, only("HP206", "HP609", "HP831", env={"ACME_KEY": "x"}))
    assert set(states(given).values()) == {"passed"}


@pytest.mark.usefixtures("forked")
def test_settings_of_the_author_reach_initialize(plugin):
    info = plugin(
        """
        def initialize(self, session_id, **kwargs):
            assert kwargs["provider_config"] == {"recall_limit": 5, "heading": "Look:"}
            super().initialize(session_id, **kwargs)
        """
    )
    assert states(check_plugin(info, only("HP206", config={"heading": "Look:"}))) == {
        "HP206": "passed"
    }


@pytest.mark.usefixtures("forked")
def test_a_plugin_with_one_object_for_all_is_not_told_to_mix_them(plugin, tmp_path):
    info = plugin("pass")
    module = Path(sys.path[0]) / "checked_plugin.py"
    module.write_text(module.read_text() + "\n\nINSTANCE = Plugin()\n")
    shared = info._replace(entry_point="checked_plugin:INSTANCE")
    report = check_plugin(shared, only("HP609", "HP701", "HP821"))
    assert states(report) == {"HP609": "passed", "HP701": "skipped", "HP821": "passed"}


@pytest.mark.usefixtures("forked")
def test_nothing_is_written_beside_the_plugin(plugin):
    info = plugin("pass")
    folder = Path(sys.path[0])
    check_plugin(info, only("HP609"))
    assert [each.name for each in folder.iterdir()] == ["checked_plugin.py"]
    assert os.environ.get("HERMES_HOME") is None


def test_a_busy_machine_gets_more_time_and_nothing_else():
    limits = Limits()
    assert limits.for_load(0.2) == limits
    busy = limits.for_load(2.5)
    assert (busy.call, busy.wait, busy.sync) == (25.0, 25.0, 1.25)
    assert (busy.recalled, busy.prompt) == (limits.recalled, limits.prompt)
    assert limits.for_load(50.0) == limits.for_load(4.0)
