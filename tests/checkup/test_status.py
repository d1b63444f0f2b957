"""`status`: one deadline for a service that hangs, and what is known however the child ends."""

from __future__ import annotations

import time

import pytest
from support.fielded import add_plugin

from hermes_core.checkup import doctor, status
from hermes_core.checkup.child_process import ChildResults
from hermes_core.checkup.status import ProbeFailure, ProviderCheck, check_configured
from hermes_core.config import load_config

CHOSEN = "memory:\n  provider: acme\n"
#: It would wait for as long as a request to a server that accepts the connection and is silent.
FROZEN = "def probe(self, write):\n    import threading; threading.Event().wait()\n"
OK = (
    "def probe(self, write):\n"
    "    import types; return types.SimpleNamespace(ok={}, detail='the key was refused')\n"
)


@pytest.fixture
def configured(home):
    def configure(source):
        add_plugin(home, (), source)
        (home / "config.yaml").write_text(CHOSEN)
        return load_config(home)

    return configure


def test_a_service_that_never_answers_is_reported_and_the_rest_is_known(configured, monkeypatch):
    monkeypatch.setattr(status, "_ENDING_SECONDS", 0.0)
    checked = check_configured(configured(FROZEN), probe=True, seconds=0.5)
    assert "its service did not answer within" in checked.refused
    assert (checked.provider_name, checked.probes, checked.problems) == ("acme", True, ())


def test_everything_that_asks_the_service_shares_what_is_left_of_the_deadline(
    home, configured, monkeypatch
):
    made = []

    class Noting(doctor.SingleProvider):
        def __init__(self, *args, **kwargs):
            made.append(kwargs["deadlines"])
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(doctor, "SingleProvider", Noting)
    configured(OK.format(True))
    results = list(status.activate_configured(home, probe=True, until=time.time() + 7.5))
    (given,) = made
    assert 2.0 <= given.tool <= 7.5
    assert given.initialize <= status.STATUS_SECONDS
    assert given.shutdown <= 0.5
    assert [type(each) for each in results] == [status.Inventory, ProviderCheck]


def test_status_has_ten_seconds_in_all(configured, monkeypatch):
    calls = []

    def run(config, call, **_):
        calls.append(call.keywords)
        return ChildResults((ProviderCheck("acme"),))

    monkeypatch.setattr(status, "run_plugin_code", run)
    config = configured(OK.format(True))
    before = time.time()
    assert check_configured(config, probe=True).provider_name == "acme"
    assert status.STATUS_SECONDS == 10.0
    assert before < calls[0]["until"] < time.time() + 10.0


@pytest.mark.parametrize(("works", "refused"), [(True, ()), (False, ("the key was refused",))])
def test_what_the_service_says_is_known_from_the_same_process(home, configured, works, refused):
    configured(OK.format(works))
    _, check, *failures = status.activate_configured(home, probe=True, until=0)
    assert check.probes
    assert failures == [ProbeFailure(each) for each in refused]


def test_a_probe_that_ends_its_process_is_reported(configured):
    source = "def probe(self, write):\n    import os; os._exit(3)\n"
    checked = check_configured(configured(source), probe=True)
    assert "exit code 3" in checked.refused
    assert checked.installed.active.provider == "acme"


#: An SDK that takes its time to import, or a plugin that asks its service when it starts.
STARTING = (
    "def initialize(self, session_id, **kwargs):\n"
    "    import threading; threading.Event().wait()\n" + OK.format(True)
)


def test_a_start_that_takes_too_long_does_not_prolong_the_deadline(home, configured, monkeypatch):
    configured(STARTING)
    monkeypatch.setattr(status, "_LEAST_SECONDS", 0.1)
    monkeypatch.setattr(doctor, "_GRACE_SECONDS", 0.1)
    _, check, *failures = status.activate_configured(home, probe=True, until=time.time())
    assert check.provider_name == "acme"
    assert failures == [
        ProbeFailure("its service did not answer within 0.2 s, with the start of its provider")
    ]


def test_a_plugin_that_ends_the_process_at_import_leaves_what_is_installed(home, configured):
    config = configured("")
    add_plugin(home, (), module="import os; os._exit(3)")
    checked = check_configured(config)
    assert checked.what == "plugin acme: ended the process that loaded it (exit code 3)"
    assert checked.installed.provider.name == "acme"
    assert checked.installed.builtin.active
