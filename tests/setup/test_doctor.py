"""`hermes-plugins doctor`: each part is used before it is called sound."""

from __future__ import annotations

import stat

import pytest
from support.commands import posix_only
from support.fielded import TIMEOUT, add_plugin, rows_of, run_with

from hermes_core.checkup import doctor

CHOSEN = "memory:\n  provider: acme\n"
SHORT = "  deadlines: {load: 1, available: 1, initialize: 1, tool: 1, hook: 1, shutdown: 1}\n"


@pytest.fixture
def acme(machine):
    """A provider without fields is chosen."""
    add_plugin(machine.home, ())
    machine.write_config(CHOSEN)
    return machine


def test_an_empty_home_is_sound(machine):
    result = machine.run("doctor").done()
    assert all(line.startswith("ok  ") for line in result.lines)
    rows = rows_of(machine)
    assert rows["external provider"]["detail"] == "none is configured"
    assert {"home", "config.yaml", "secrets", "MEMORY.md", "USER.md"} <= rows.keys()


def test_a_provider_is_loaded_and_started(acme):
    rows = rows_of(acme)
    assert rows["plugin acme"]["state"] == rows["initialize"]["state"] == "ok"
    assert "write" not in rows
    assert all(set(row) >= {"check", "state", "detail", "todo", "fixable"} for row in rows.values())


def test_what_is_wrong_comes_with_what_to_do(machine):
    machine.write_config(CHOSEN + "  acme: {timeout: 99}\n")
    result = machine.run("doctor")
    assert (result.code, result.err) == (1, "")
    text = "\n".join(result.lines)
    assert "PROBLEM  setting: memory.acme.timeout: 99 is too large" in text
    assert "PROBLEM  setting: memory.acme.api_key: is missing" in text
    assert "         hint: run: hermes-plugins setup acme" in result.lines


@pytest.mark.parametrize(
    ("methods", "module", "words"),
    [
        ("def is_available(self):\n    return False", "", "is not available"),
        ("", "raise RuntimeError('boom')", "boom"),
        ("", "import os; os._exit(3)", "exit code 3"),
        ("", "import os; os.kill(os.getpid(), 11)", "exit code -11"),
        ("def initialize(self, session_id, **kwargs):\n    raise OSError('no server')", "",
         "no server"),
        ("def initialize(self, session_id, **kwargs):\n    import os; os._exit(4)", "",
         "exit code 4"),
        ("def initialize(self, session_id, **kwargs):\n    raise SystemExit(4)", "", "SystemExit"),
    ],
)  # fmt: skip
def test_a_plugin_that_fails_is_a_problem_and_not_a_crash(machine, methods, module, words):
    add_plugin(machine.home, (), methods, module)
    machine.write_config(CHOSEN)
    result = machine.run("doctor")
    assert (result.code, result.err) == (1, "")
    (line,) = [line for line in result.lines if line.startswith("PROBLEM")]
    assert words in line


def test_every_problem_comes_with_what_to_do(machine):
    add_plugin(machine.home, (), module="raise RuntimeError('boom')")
    machine.write_config(CHOSEN)
    (row,) = [row for row in rows_of(machine, code=1).values() if row["state"] == "problem"]
    assert row["todo"] != ""


def test_a_plugin_that_was_never_enabled_is_not_said_to_be_as_it_was_enabled(acme):
    assert rows_of(acme).get("pin", {}).get("detail") != "unchanged since it was enabled"


def test_a_plugin_that_ends_the_process_does_not_hide_the_notes(machine):
    add_plugin(machine.home, (), module="import os; os._exit(3)")
    machine.write_config(CHOSEN)
    assert rows_of(machine, code=1)["MEMORY.md"]["state"] == "ok"


@pytest.mark.parametrize("where", ["load", "initialize"])
def test_a_plugin_that_hangs_is_a_problem_after_its_deadline(machine, where):
    hang = "import time; time.sleep(600)"
    methods = f"def initialize(self, session_id, **kwargs):\n    {hang}"
    add_plugin(machine.home, (), methods if where == "initialize" else "",
               hang if where == "load" else "")  # fmt: skip
    machine.write_config(CHOSEN + SHORT)
    report = machine.json("doctor", code=1, timeout=20)
    (row,) = [row for row in report["checks"] if row["state"] == "problem"]
    assert "1 s" in row["detail"]


def probed(machine, body: str, *arguments: str, code: int = 0, timeout: float = 20):
    add_plugin(machine.home, (), f"def probe(self, write):\n    {body}\n")
    machine.write_config(CHOSEN + SHORT)
    return rows_of(machine, *arguments, code=code, timeout=timeout)["probe"]


RESULT = "import types; return types.SimpleNamespace(ok={}, detail=f'write is {{write}}')"


def test_a_probe_is_asked(machine):
    assert probed(machine, RESULT.format(True))["detail"] == "write is False"


def test_a_probe_is_told_whether_it_may_write(machine):
    assert probed(machine, RESULT.format(True), "--write")["detail"] == "write is True"


@pytest.mark.parametrize("body", [RESULT.format(False), "raise OSError('write is not')"])
def test_a_probe_that_fails_is_a_problem(machine, body):
    row = probed(machine, body, code=1)
    assert row["state"] == "problem"
    assert "write is" in row["detail"]


def test_a_probe_that_exits_is_a_problem(machine):
    assert probed(machine, "raise SystemExit(3)", code=1)["state"] == "problem"


def test_a_probe_that_is_a_coroutine_is_run(machine):
    add_plugin(machine.home, (), f"async def probe(self, write):\n    {RESULT.format(True)}\n")
    machine.write_config(CHOSEN)
    assert rows_of(machine)["probe"]["detail"] == "write is False"


def test_a_probe_that_hangs_has_a_deadline(machine):
    row = probed(machine, "import time; time.sleep(4); raise OSError('at last')", code=1)
    assert "at last" not in row["detail"]


def test_a_marker_is_written_and_recalled_in_a_scratch_session(acme):
    spy = """
    def shutdown(self):
        told = [self.session, self.kwargs["user_id"], self.turns]
        pathlib.Path(self.kwargs["hermes_home"], "told.json").write_text(json.dumps(told))
    """
    add_plugin(acme.home, (), spy)
    result = acme.run("doctor", "--write").done()
    assert result.lines[0].startswith("--write stores a test entry in acme")
    assert "A plugin without a probe does not remove it" in result.lines[0]
    assert "ok       write: a marker was written and recalled" in result.lines
    told = (acme.home / "told.json").read_text()
    assert told.startswith('["hermes-doctor", "hermes-doctor", ["This is a test entry')


def test_a_probe_that_writes_and_cleans_up_is_written_to_by_nobody_else(machine):
    spy = f"""
    def probe(self, write):
        {RESULT.format(True)}

    def sync_turn(self, *args, **kwargs):
        pathlib.Path(self.kwargs["hermes_home"], "marker").touch()
    """
    add_plugin(machine.home, (), spy)
    machine.write_config(CHOSEN)
    assert "write" not in rows_of(machine, "--write")
    assert not (machine.home / "marker").exists()


def test_a_write_that_fails_is_a_problem(acme):
    add_plugin(acme.home, (), "def sync_turn(self, *args, **kwargs):\n    raise OSError('full')\n")
    row = rows_of(acme, "--write", code=1)["write"]
    assert (row["state"], "full" in row["detail"]) == ("problem", True)


@posix_only  # elsewhere the check runs in a real child, which waits for longer
def test_a_marker_that_is_not_recalled_yet_is_a_warning_even_if_the_question_is_repeated(
    acme, monkeypatch
):
    monkeypatch.setattr(doctor, "_RECALL_SECONDS", 0.6)
    add_plugin(
        acme.home, (), "def prefetch(self, query, **kwargs):\n    return f'nothing on {query}'\n"
    )
    row = rows_of(acme, "--write")["write"]
    assert row["state"] == "warning"
    assert "accepted, not yet recallable" in row["detail"]


def test_a_changed_plugin_and_a_name_with_two_owners_are_told(acme):
    acme.run("enable", "acme").done()
    add_plugin(acme.home, (TIMEOUT,))
    acme.install("twice", distribution="first-owner")
    acme.install("twice", distribution="second-owner")
    report = acme.json("doctor", code=1)
    found = {row["check"]: row for row in report["checks"]}
    assert found["pin"]["state"] == "warning"
    assert "enable acme" in found["pin"]["todo"]
    assert found["plugin twice"]["state"] == "problem"
    assert "enable twice@" in found["plugin twice"]["todo"]


@posix_only
def test_an_env_file_that_others_can_read_is_mended_on_request(machine):
    path = machine.home / ".env"
    path.write_text("ACME_API_KEY=canary-4711\n")
    path.chmod(0o644)
    row = rows_of(machine)[".env"]
    assert (row["state"], row["fixable"]) == ("warning", True)
    assert row["todo"] == f"chmod 600 {path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    result = machine.run("doctor", "--fix").done()
    assert ".env is private now" in result.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "ACME_API_KEY=canary-4711\n"
    assert ".env" not in rows_of(machine)


def test_a_keyring_that_does_not_answer_is_a_problem_where_it_is_asked_for(machine):
    machine.write_config("secrets: {backend: keyring}\n")
    row = rows_of(machine, code=1)["secrets"]
    assert row["state"] == "problem"
    assert "keyring" in row["detail"]


def test_a_secret_in_a_keyring_that_is_gone_is_a_problem_with_the_way_out(machine):
    machine.environment["PYTHON_KEYRING_BACKEND"] = "support.keyrings.InFile"
    run_with(machine, "k", "secrets", "set", "ACME_API_KEY").done()
    assert rows_of(machine)["ACME_API_KEY"]["detail"] == "set (keyring)"
    machine.environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    row = rows_of(machine, code=1)["ACME_API_KEY"]
    assert "does not answer" in row["detail"]
    assert "secrets move --to dotenv" in row["todo"]


def test_an_invalid_config_is_a_problem_and_nothing_is_said_of_what_is_not_known(machine):
    machine.write_config("memory: [acme\n")
    rows = rows_of(machine, code=1)
    assert rows["config.yaml"]["state"] == "problem"
    assert rows.get("external provider", {}).get("detail") != "none is configured"


def test_a_damaged_lock_file_is_named_and_not_config_yaml(machine):
    machine.write_config("memory: {nudge_interval: 5}\n")
    lock = machine.home / "plugins.lock.json"
    lock.write_text('{\n"version": 1,')
    rows = {each["check"]: each for each in machine.json("doctor", code=1)["checks"]}
    assert rows["config.yaml"]["state"] == "ok"
    problem = rows["plugins.lock.json"]
    assert (problem["state"], problem["detail"]) == ("problem", "line 2: is not valid JSON")
    assert problem["todo"] == f"remove {lock}, then run: hermes-plugins enable NAME"
    assert rows["conversations"]["state"] == "ok"
    assert "while plugins.lock.json can't be read" in rows["external provider"]["detail"]
    for command in ("memory show", "memory history", "sessions list", "secrets list"):
        assert machine.run(*command.split()).code == 0
    lock.unlink()
    machine.run("doctor").done()
