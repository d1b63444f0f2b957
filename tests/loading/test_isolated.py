"""A plugin in its own process: everything works as in one process, and nothing of it gets out."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from support.commands import Machine, posix_only, wait_until
from support.isolated import (
    LOADED,
    Children,
    add_plugin,
    message,
    run,
    started,
    turns,
)
from support.scripts import run_script

from hermes_core import MemoryManager
from hermes_core.config import load_config
from hermes_core.dispatch import SingleProvider, isolation, isolation_messages
from hermes_core.errors import ConfigError, DeadlineExceeded, ProviderCallError, ProviderPaused
from hermes_core.outbox.failures import Fault, fault_of

pytestmark = [pytest.mark.usefixtures("few_distributions"), posix_only]

WHOLE = """
def own_settings(self, hermes_home):
    return [("/a/file", {"colour": "blue"})]

def get_config_schema(self):
    return [{"key": "colour", "description": "A colour."}, {"key": "size", "choices": ("a", "b")}]

def get_status_config(self, provider_config):
    return {"colour": provider_config["colour"]}

def probe(self, write):
    import types
    return types.SimpleNamespace(ok=True, detail=f"wrote: {write}")

def backup_paths(self):
    import pathlib
    return [pathlib.Path("/elsewhere")]

pre_compress_checkpoint_api_version = 2

def on_pre_compress(self, messages, *, require_checkpoint=False):
    return f"{len(messages)} {require_checkpoint}"

def system_prompt_block(self):
    self.confirms_delivery = True
    print("this must not reach the host")
    return "static \\ud800 text"

async def prefetch(self, query, *, session_id=""):
    from hermes_core import hand_over
    hand_over("a part")
    if query == "slow":
        import asyncio
        await asyncio.sleep(3600)
    return f"{query} of {session_id}"

def recall_status(self):
    from hermes_core import RecallStatus
    return RecallStatus("acme", 3, "*")

def on_session_switch(self, new_session_id, **kwargs):
    self.session = new_session_id

def shutdown(self):
    open(os.path.join(self.facts["hermes_home"], "shut-down"), "w").close()
"""


def test_every_capability_works_through_the_pipe(home: Path, capfd) -> None:
    add_plugin(home, WHOLE, more="  prefetch_budget: 20\n")
    manager = started(home, user_id="u1", platform="cli", host_object=threading.Lock())
    provider = manager.get_provider("acme")
    assert [row["value"] for row in manager.setting_rows] == ["blue", None]
    assert manager.build_system_prompt().endswith("static \ud800 text")
    assert (provider.confirms_delivery, provider.pre_compress_checkpoint_api_version) == (True, 2)
    assert "what of s1" in manager.recall_block("what")
    assert manager.recall_status_all()[-1] == ("acme", 3, "*")
    assert manager.on_pre_compress([{"role": "user", "content": "x"}], require_checkpoint=True) == (
        "1 True"
    )
    facts = run(manager, "answer = {key: self.facts[key] for key in ('user_id', 'platform')}")
    assert (facts["session"], facts["answer"]) == ("s1", {"user_id": "u1", "platform": "cli"})
    assert run(manager, "answer = 'host_object' in self.facts")["answer"] is False
    assert facts["pid"] != os.getpid()
    manager.sync_all("a turn", "an answer")
    manager.on_session_switch("s2")
    assert manager.flush_pending(60)
    assert run(manager)["session"] == "s2"
    assert turns(home) == ["a turn 1"]
    with SingleProvider(provider, "acme") as single:
        assert single.call("probe", write=False).value == (True, "wrote: False")
        assert single.call("backup_paths").value == ["/elsewhere"]
        assert single.call("get_status_config", provider_config={"colour": "red"}).value == {
            "colour": "red"
        }
        assert not single.overrides("on_delegation")
        assert not single.overrides("post_setup")
    manager.shutdown_all()
    assert (home / "shut-down").exists()
    assert wait_until(lambda: not is_running(facts["pid"]))
    assert capfd.readouterr().out == ""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text()


def test_a_part_of_an_answer_arrives_before_the_rest(home: Path) -> None:
    add_plugin(home, WHOLE, more="  prefetch_budget: 1\n")
    manager = started(home)
    run(manager)
    assert "a part" in manager.recall_block("slow")
    manager.shutdown_all()


DEATHS = {
    "exit": ("os._exit(3)", "ended (exit code 3)"),
    "kill": ("os.kill(pid, 9)", "ended (SIGKILL)"),
    "segfault": ("import ctypes; ctypes.string_at(0)", "ended (SIGSEGV)"),
    # Its main thread may notice first, and end the process.
    "closed": ("os.closerange(3, 100); time.sleep(60)", "its process"),
    "print": ("write(b'hello, world')", "not an answer"),
    "gigabyte": ("write(bytes([64, 0, 0, 0]) + b'x' * 4000)", "1,073,741,824 bytes"),
}
PIPE = """
import os, time
def write(data):
    for number in range(3, 20):
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith("pipe:"):
                os.write(number, data)
        except OSError:
            pass
    time.sleep(60)
"""


@pytest.mark.stress
def test_a_child_that_dies_is_started_again_for_the_session(home: Path, monkeypatch) -> None:
    monkeypatch.setattr(isolation, "_LONGEST_WAIT", 0.0)
    add_plugin(home)
    manager = started(home)
    manager.on_session_switch("s2", user_id="u2")
    manager.flush_pending(60)
    before = {run(manager)["pid"]}
    for code, reason in DEATHS.values():
        assert reason in run(manager, PIPE + code)["error"]
        after = run(manager, "answer = self.facts.get('user_id')")
        assert (after["session"], after["answer"]) == ("s2", "u2")
        before.add(after["pid"])
    assert len(before) == len(DEATHS) + 1
    manager.shutdown_all()
    assert wait_until(lambda: not any(map(is_running, before)))


def test_a_write_that_kills_the_child_stays_in_the_outbox(home: Path) -> None:
    add_plugin(home)
    manager = started(home)
    manager.sync_all("!import os; os._exit(1)", "an answer")
    manager.sync_all("the next", "an answer")
    assert manager.flush_pending(60)
    assert turns(home) == ["!import os; os._exit(1) 2", "the next 1"]
    assert "exit code 1" in manager.health()["acme"]["sync_turn"].last_error
    manager.shutdown_all()


def test_a_copy_that_a_plugin_forks_does_not_answer(home: Path) -> None:
    """It ends when it comes back from the plugin; the host sees one answer."""
    add_plugin(home)
    manager = started(home)
    first = run(manager, "import os; answer = os.fork()")
    assert first["answer"] > 0
    assert wait_until(lambda: not is_running(first["answer"]))
    assert run(manager)["pid"] == first["pid"]
    manager.shutdown_all()


def test_a_call_that_hangs_ends_with_its_process(home: Path) -> None:
    add_plugin(home, more="  prefetch_budget: 0.2\n", body="""
        def prefetch(self, query, *, session_id=""):
            time.sleep(3600 if query == "hang" else 0)
            return query
    """)  # fmt: skip
    manager = started(home)
    provider = manager.get_provider("acme")
    with SingleProvider(provider, "acme") as single:
        pid = run(manager)["pid"]
        outcome = single.call("prefetch", query="hang", session_id="s1")
        assert isinstance(outcome.error, DeadlineExceeded)
        assert provider.prefetch("again", session_id="s1") == "again"
    assert run(manager)["pid"] != pid
    manager.shutdown_all()


def test_lanes_run_side_by_side(home: Path, tmp_path: Path) -> None:
    """A write that waits holds up neither a tool nor the recall."""
    gate = tmp_path / "gate"
    add_plugin(home, more="  prefetch_budget: 60\n", body=f"""
        def prefetch(self, query, *, session_id=""):
            return query
        def sync_turn(self, user_content, assistant_content):
            while not os.path.exists({str(gate)!r}):
                time.sleep(0.01)
    """)  # fmt: skip
    manager = started(home)
    manager.sync_all("u", "a")
    assert "a question" in manager.recall_block("a question")
    assert run(manager)["session"] == "s1"
    gate.touch()
    assert manager.flush_pending(60)
    manager.shutdown_all()


# -- what the child gets ---------------------------------------------------------------------------


def test_the_child_gets_its_own_variables_and_no_others(home: Path, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the agent's")
    monkeypatch.setenv("ACME_URL", "its own")
    (home / ".env").write_text("ACME_TOKEN=stored\nOTHER_TOKEN=foreign\n")
    add_plugin(home, at_import="AT_IMPORT = dict(os.environ)", body="""
        def get_config_schema(self):
            return [{"key": "token", "secret": True}]
    """)  # fmt: skip
    manager = started(home)
    seen = run(manager, "import os; answer = dict(os.environ)")["answer"]
    assert (seen["ACME_URL"], seen["ACME_TOKEN"]) == ("its own", "stored")
    assert seen["HERMES_HOME"] == str(home)
    assert not {"OPENAI_API_KEY", "OTHER_TOKEN"} & {*seen}
    assert "ACME_TOKEN" not in os.environ
    manager.shutdown_all()


def test_what_a_plugin_logs_reaches_the_hosts_log_without_secrets(home: Path, caplog) -> None:
    (home / ".env").write_text("ACME_TOKEN=canary-123456\n")
    add_plugin(home)
    manager = started(home)
    run(manager, "import logging; logging.getLogger('acme').error('bad\\x1b: canary-123456')")
    assert "logged: acme: bad : [redacted: secret]" in caplog.text
    manager.shutdown_all()


def test_a_strict_pin_holds_in_the_child_too(home: Path) -> None:
    """Also for a child that is started again."""
    from hermes_core.config import Selection
    from hermes_core.config.editor import change_plugins
    from hermes_core.config.lock_file import LockEntry, PluginFacts
    from hermes_core.discovery import find_provider, pin_of, scan

    add_plugin(home, more="  pin: strict\n")
    info = find_provider("acme", scan(home, Selection()))
    change_plugins(home, {}, [LockEntry("acme", pin_of(info), PluginFacts(), ())])
    manager = started(home)
    file = home / "plugins/acme/__init__.py"
    file.write_text(file.read_text() + "\n# changed\n")
    run(manager, "import os; os._exit(0)")
    assert "differ from those that were enabled" in run(manager)["error"]
    manager.shutdown_all()


@pytest.mark.parametrize(
    ("raised", "fault", "text"),
    [
        ("raise ValueError('no')", Fault.WRITE, "ValueError: no"),
        ("raise ConnectionRefusedError('down')", Fault.BACKEND, "ConnectionRefusedError: down"),
        ("from hermes_core import WriteRefused; raise WriteRefused('bad')", Fault.REFUSED, "bad"),
        (
            "class Odd(Exception): status_code = 422\nraise Odd('no')",
            Fault.REFUSED,
            "Odd: no",
        ),
        (
            (
                "class Own(Exception): pass\ntry:\n    raise TimeoutError\n"
                "except TimeoutError as error:\n    raise Own('x') from error"
            ),
            Fault.BACKEND,
            "Own: x",
        ),
        (
            (
                "from hermes_core.service import failure, Cause\n"
                "raise failure(Cause.WRONG_KEY, service='acme')"
            ),
            Fault.BACKEND,
            "the key was refused",
        ),
        ("raise SystemExit(3)", Fault.WRITE, "SystemExit"),
    ],
)
def test_errors_arrive_as_what_they_were(raised, fault, text) -> None:
    """The outbox decides by them what happens to a write."""
    from hermes_core.dispatch.worker import as_exception
    from hermes_core.loading.isolated import KNOWN_ERRORS

    try:
        exec(raised, {})
    except BaseException as error:
        sent = json.loads(json.dumps(isolation_messages.error_message(as_exception(error))))
    arrived = isolation_messages.error_from(sent, KNOWN_ERRORS)
    assert fault_of(arrived) is fault
    from hermes_core.errors import describe

    assert text in describe(arrived)


# -- a hostile child -------------------------------------------------------------------------------

HOSTILE = {
    "text": 'send(b"Traceback (most recent call last):")',
    "gigabyte": 'send(struct.pack(">I", 1 << 30)); time.sleep(60)',
    "no JSON": 'send(struct.pack(">I", 4) + b"\\xff{]}")',
    "no mapping": f"send({message([1])!r})",
    "another call": f"send({message({'id': 7, 'value': True})!r})",
    "no value": f"send({message({'id': 1})!r})",
    "a bad error": f"send({message({'id': 1, 'error': [1]})!r})",
    "deep": 'send(struct.pack(">I", 200000) + b"[" * 200000)',
    "many": 'send(struct.pack(">I", 3000001) + b"[" + b"[]," * 1000000)',
    "many parts": f"[send({message({'id': 1, 'part': 'x'})!r}) for _ in range(20000)]",
    "leaves": "sys.exit(3)",
    "closes": "os.close(1); time.sleep(60)",
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_ends_the_child_and_not_the_host(answer: str) -> None:
    children = Children(answer)
    provider = children.provider()
    provider.load()
    with pytest.raises(ProviderCallError, match="its process"):
        provider.is_available()
    provider.close()


def test_a_second_answer_to_one_question_ends_the_child() -> None:
    children = Children(f"send({message({'id': 1, 'value': True})!r} * 2)")
    provider = children.provider()
    provider.load()
    assert provider.is_available() is True
    assert wait_until(lambda: provider.is_available() is True and children.count == 2)
    provider.close()


def test_a_child_that_ends_before_it_is_asked_is_to_blame_and_not_the_request() -> None:
    provider = Children("time.sleep(60)").provider()
    provider.load()
    writer = provider._child._writer
    writer.file.close()  # as its end does, on another thread
    with pytest.raises(BrokenPipeError):  # and no ValueError, which would blame the message
        writer.send({})
    provider.close()


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"hello",
        message({}),
        message({**LOADED, "methods": {"prefetch": [["not a name", 1, True]]}}),
        message({**LOADED, "methods": 5}),
        message({"error": {"types": ["hermes_core.errors.HermesError"], "text": 5}}),
    ],
)
def test_a_child_that_loads_nothing_is_an_error(first: bytes) -> None:
    provider = Children("", first).provider()
    if not first:
        provider = Children("sys.exit()", first).provider()
        provider._deadlines = provider._deadlines._replace(load=-19.5)
    with pytest.raises((ProviderCallError, isolation_messages.MessageError)):
        provider.load()
    provider.close()


def test_a_child_that_dies_at_once_is_started_less_and_less_often() -> None:
    now = [0.0]
    children = Children("sys.exit(3)")
    provider = children.provider(lambda: now[0])
    provider.load()
    waits = []
    for _ in range(9):
        with pytest.raises(ProviderCallError, match="exit code 3"):
            provider.is_available()
        begun, count = now[0], children.count
        while True:  # until it is started again
            with pytest.raises(ProviderCallError) as raised:
                provider.is_available()
            if children.count > count:
                break
            assert isinstance(raised.value, ProviderPaused)
            now[0] += 0.5
        waits.append(now[0] - begun)
    assert waits[0] == 0
    assert sorted(waits) == waits
    assert waits[-1] == 60
    provider.close()


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.stress
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(0)", "pass"])
def test_the_child_ends_with_its_host(home: Path, end: str) -> None:
    # What has left the process group is found by its environment, where the system shows it.
    daemons = (False, True) if sys.platform == "linux" else (False,)
    add_plugin(home)
    done = run_script(f"""
        import json, os
        manager = MemoryManager.from_config({str(home)!r})
        manager.initialize_all("s1")
        code = "from subprocess import Popen; sleep = ['sleep', '600']\\n"
        code += "answer = [Popen(sleep, start_new_session=each).pid for each in {daemons}]"
        found = json.loads(manager.handle_tool_call("run", {{"code": code}}))
        print(found["pid"], *found["answer"], flush=True)
        {end}
    """)  # fmt: skip
    begun = [int(each) for each in done.stdout.split()]
    assert len(begun) == 1 + len(daemons)
    assert wait_until(lambda: not any(map(is_running, begun)))


# -- the setting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["proces", "true", "[process]", "5"])
def test_a_wrong_value_loads_nothing(home: Path, value: str) -> None:
    add_plugin(home)
    file = home / "config.yaml"
    file.write_text(file.read_text().replace("isolation: process", f"isolation: {value}"))
    with pytest.raises(ConfigError, match=r"config.yaml:\d+: memory.acme.isolation: expected one"):
        load_config(home)
    manager = MemoryManager.from_config(home)
    assert len(manager.providers) == 1
    assert "memory.acme.isolation" in str(manager.problems[0])
    manager.shutdown_all()


def test_a_wrong_value_below_its_own_name_loads_nothing(home: Path) -> None:
    from hermes_core.config import Selection

    selection = Selection("acme", isolation={"acme-memory": "proces"})
    with pytest.raises(ConfigError, match="expected one of none, process"):
        selection.is_isolated("acme", "acme-memory")


def test_no_field_of_a_plugin_can_be_called_like_the_setting(home: Path) -> None:
    add_plugin(home, body="""
        def get_config_schema(self):
            return [{"key": "isolation"}]
    """)  # fmt: skip
    manager = MemoryManager.from_config(home)
    assert "isolation: is a key of the host" in str(manager.problems[0])
    manager.shutdown_all()


def test_nothing_of_the_plugin_is_imported_by_the_host(home: Path) -> None:
    add_plugin(home, at_import="import sys; sys.modules['canary'] = sys")
    manager = started(home)
    assert run(manager, "import sys; answer = 'canary' in sys.modules")["answer"] is True
    assert "canary" not in sys.modules
    manager.shutdown_all()


@pytest.mark.stress
def test_no_turn_is_lost_while_the_child_is_killed_again_and_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_LONGEST_WAIT", 0.0)
    add_plugin(home)
    manager = started(home)
    for number in range(30):
        manager.sync_all(f"turn {number}", "an answer")
        found = run(manager)
        while "pid" not in found:  # the one before was killed while the tool ran
            found = run(manager)
        os.kill(found["pid"], signal.SIGKILL)
        # A write that fails three times while others succeed would be skipped, and come later.
        if number % 2:
            assert manager.flush_pending(60)
    delivered = [each.rpartition(" ")[0] for each in turns(home)]
    # At least once, and in order.
    assert list(dict.fromkeys(delivered)) == [f"turn {number}" for number in range(30)]
    manager.shutdown_all()


@pytest.mark.stress
def test_a_provider_in_its_own_process_can_forget(tmp_path: Path) -> None:
    machine = Machine(tmp_path, in_process=True)
    body = """
    facts_of_ann = ["Ann drinks tea", "Ann lives in Bonn"]

    def forget(self, request):
        from hermes_core import ForgetItem, ForgetReport
        found = [each for each in self.facts_of_ann if request.matches(each)]
        if request.delete:
            with open(os.path.join(request.home, "asked.txt"), "a") as file:
                file.write("deleted\\n")
        is_gone = os.path.exists(os.path.join(request.home, "asked.txt"))
        count = 0 if is_gone and not request.delete else len(found)
        return ForgetReport((ForgetItem("memories", count),), ("nothing else",))
    """
    add_plugin(machine.home, body)
    done = machine.run("forget", "lives in bonn", "--provider", "--yes", "--json")
    provider = json.loads(done.out)["provider"]
    assert (provider["found"], provider["deleted"]) == ({"memories": 1}, {"memories": 1})
    assert (machine.home / "asked.txt").read_text() == "deleted\n"
