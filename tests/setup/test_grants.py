"""A plugin gets variables that are not its own only if a person agrees."""

from __future__ import annotations

import json

import pytest
from support.fielded import add_plugin, env_of, run_with

from hermes_core.config import load_config
from hermes_core.secrets import Secrets

OPENAI = {"key": "llm_key", "secret": True, "env_var": "OPENAI_API_KEY"}
NEEDED = {**OPENAI, "required": True}
CANARY = "canary-4711-0815"
#: Tells what reached it: at the import, in its environment and in its settings.
TELLS = """
def get_status_config(self, provider_config):
    return {"at import": AT_IMPORT.get("OPENAI_API_KEY", "nothing"), "now": WANTED()}

def initialize(self, session_id, provider_config=None, **kwargs):
    seen = {"environment": WANTED(), "settings": (provider_config or {}).get("llm_key")}
    pathlib.Path(kwargs["hermes_home"], "seen.json").write_text(json.dumps(seen))
"""
WANTED = "def WANTED():\n    return os.environ.get('OPENAI_API_KEY', 'nothing')\n"


def add_greedy(home, fields=(OPENAI,), **options):
    add_plugin(home, fields, TELLS, WANTED, **options)


def seen_by(home, configured):
    """What the plugin finds when an agent starts it."""
    manager = configured(home)
    manager.initialize_all("s")
    manager.shutdown_all()
    return json.loads((home / "seen.json").read_text())


def provider_of(machine, code=0):
    return machine.json("status", code=code)["provider"]


@pytest.mark.parametrize("place", [".env", "process"])
def test_a_plugin_does_not_get_a_key_that_it_only_declares(machine, configured, monkeypatch, place):
    add_greedy(machine.home)
    if place == ".env":
        (machine.home / ".env").write_text(f"OPENAI_API_KEY={CANARY}\n")
    else:
        machine.environment["OPENAI_API_KEY"] = CANARY
        monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    assert "not granted" in machine.run("enable", "acme").err
    assert machine.pins["acme"]["grants"] == []
    seen = seen_by(machine.home, configured)
    assert seen["settings"] is None
    # What the process itself has can't be hidden from code that runs in it.
    assert place == "process" or seen["environment"] == "nothing"
    report = provider_of(machine)
    assert report["withheld"] == ["OPENAI_API_KEY"]
    assert report["grants"] == []
    assert "enable acme --grant OPENAI_API_KEY" in machine.run("status").out


def test_a_required_key_that_is_not_granted_is_said_with_the_command(machine):
    add_greedy(machine.home, (NEEDED,))
    (machine.home / ".env").write_text(f"OPENAI_API_KEY={CANARY}\n")
    done = machine.run("enable", "acme")
    assert done.code == 1
    assert "OPENAI_API_KEY is set, but not granted to acme" in done.err
    assert "hermes-plugins enable acme --grant OPENAI_API_KEY" in done.err
    assert CANARY not in done.err
    done = run_with(machine, "", "setup", "acme", "--no-input")
    assert done.code == 1
    assert "enable acme --grant OPENAI_API_KEY" in done.err


@pytest.mark.parametrize("command", [("enable", "acme"), ("setup", "acme", "--no-input")])
def test_a_grant_in_a_script_is_stored_and_shown_and_ends_with_disable(
    machine, configured, command
):
    add_greedy(machine.home, (NEEDED,))
    (machine.home / ".env").write_text(f"OPENAI_API_KEY={CANARY}\nOTHER=x\n")
    done = machine.run(*command, "--grant", "OPENAI_API_KEY", "--grant", "OTHER")
    assert done.code == 0, done.err
    assert machine.pins["acme"]["grants"] == ["OPENAI_API_KEY", "OTHER"]
    assert seen_by(machine.home, configured) == {"environment": CANARY, "settings": CANARY}
    report = provider_of(machine)
    assert (report["grants"], report["withheld"]) == (["OPENAI_API_KEY", "OTHER"], [])
    assert "OPENAI_API_KEY, OTHER" in machine.run("status").out
    assert machine.json("info", "acme")["provider"]["grants"] == ["OPENAI_API_KEY", "OTHER"]
    assert "OPENAI_API_KEY, OTHER" in machine.run("info", "acme").out
    # Given once: the next `enable` keeps them.
    assert machine.run("enable", "acme").code == 0
    assert machine.pins["acme"]["grants"] == ["OPENAI_API_KEY", "OTHER"]
    machine.run("disable")
    assert machine.run("enable", "acme").code == 1
    assert machine.json("info", "acme")["provider"]["grants"] == []


def test_uninstall_removes_the_grants(machine, tmp_path):
    add_greedy(tmp_path / "source")
    folder = tmp_path / "source" / "plugins" / "acme"
    assert machine.run("install", str(folder), "--yes", "--replace").code == 0
    machine.run("enable", "acme", "--grant", "OPENAI_API_KEY")
    assert machine.run("uninstall", "acme", "--yes").code == 0
    assert machine.pins == {}


def test_setup_asks_once_with_a_plain_question(machine, dialogue, configured):
    add_greedy(machine.home, (NEEDED,))
    (machine.home / ".env").write_text(f"OPENAI_API_KEY={CANARY}\n")
    talk = dialogue("setup", "acme")
    talk.answer(
        (r"acme asks for OPENAI_API_KEY, which is set here. May it have the value\?", "y"),
        (r"Enter keeps the one in the .env", ""),
        (r"plugins.lock.json:  acme may have OPENAI_API_KEY(.|\n)*Write this\?", "y"),
    )
    assert talk.end() == 0
    assert seen_by(machine.home, configured)["settings"] == CANARY
    again = dialogue("enable", "acme")
    assert again.end() == 0
    assert "asks for" not in again.shown


def test_a_person_may_decline_and_the_key_is_not_replaced(machine, dialogue, configured):
    add_greedy(machine.home)
    (machine.home / ".env").write_text(f"OPENAI_API_KEY={CANARY}\n")
    talk = dialogue("setup", "acme")
    talk.answer((r"May it have the value\?", ""), (r"Write this\?", "y"))  # Enter is no
    talk.end()
    assert env_of(machine) == f"OPENAI_API_KEY={CANARY}\n"
    assert seen_by(machine.home, configured) == {"environment": "nothing", "settings": None}


def test_enable_asks_on_a_terminal(machine, dialogue):
    add_greedy(machine.home, (NEEDED,))
    (machine.home / ".env").write_text(f"OPENAI_API_KEY={CANARY}\n")
    talk = dialogue("enable", "acme")
    talk.answer(("acme asks for OPENAI_API_KEY", "y"))
    assert talk.end() == 0
    assert machine.pins["acme"]["grants"] == ["OPENAI_API_KEY"]


def test_a_key_that_a_person_types_for_the_plugin_is_its_own(machine, configured):
    add_greedy(machine.home, (NEEDED,))
    done = run_with(machine, f"{CANARY}\n", "setup", "acme", "--secret-stdin", "llm_key")
    assert done.code == 0, done.err
    assert machine.pins["acme"]["grants"] == []
    assert seen_by(machine.home, configured) == {"environment": CANARY, "settings": CANARY}


def test_a_plugin_called_like_a_vendor_does_not_get_the_vendors_keys(machine, configured):
    names = ("AWS_SECRET_ACCESS_KEY", "AWS_DECLARED")
    fields = ({"key": "declared", "secret": True, "env_var": "AWS_DECLARED"},)
    tells = (
        "def initialize(self, session_id, **kwargs):\n"
        f"    seen = [each for each in {names!r} if each in os.environ]\n"
        "    pathlib.Path(kwargs['hermes_home'], 'seen.json').write_text(json.dumps(seen))\n"
    )
    add_plugin(machine.home, fields, tells, name="aws")
    (machine.home / ".env").write_text("".join(f"{each}={CANARY}\n" for each in names))
    assert machine.run("enable", "aws").code == 0
    assert seen_by(machine.home, configured) == []
    assert provider_of(machine)["withheld"] == sorted(names)
    machine.run("enable", "aws", "--grant", "AWS_DECLARED")
    assert seen_by(machine.home, configured) == ["AWS_DECLARED"]


def test_another_plugins_key_is_not_its_own_even_below_its_name(machine, configured):
    add_greedy(machine.home, ({**OPENAI, "env_var": "ACME_LABS_KEY"},))
    Secrets(machine.home, "dotenv").set("ACME_LABS_KEY", CANARY, "acme-labs")
    machine.run("enable", "acme")
    assert seen_by(machine.home, configured)["settings"] is None
    assert provider_of(machine)["withheld"] == ["ACME_LABS_KEY"]


def test_a_plugin_does_not_get_the_secrets_of_the_name_that_it_gives_itself(machine, configured):
    Secrets(machine.home, "dotenv").set("MEM0_API_KEY", CANARY, "mem0")
    fields = ({**OPENAI, "env_var": "MEM0_API_KEY"},)
    add_greedy(machine.home, fields)
    source = machine.home / "plugins" / "acme" / "__init__.py"
    source.write_text(source.read_text().replace("name = 'acme'", "name = 'mem0'"))
    machine.run("enable", "acme")
    assert machine.pins["acme"]["provider"] == "mem0"
    assert seen_by(machine.home, configured)["settings"] is None


def test_an_entry_from_before_there_were_grants_keeps_what_it_had(machine, configured):
    add_greedy(machine.home)
    (machine.home / ".env").write_text(f"OPENAI_API_KEY={CANARY}\nACME_EXTRA=x\n")
    machine.run("enable", "acme", "--grant", "OPENAI_API_KEY")
    lock = machine.home / "plugins.lock.json"
    data = json.loads(lock.read_text())
    del data["plugins"]["acme"]["grants"]
    data["plugins"]["acme"]["env"] = ["OPENAI_API_KEY"]
    lock.write_text(json.dumps(data))
    assert seen_by(machine.home, configured) == {"environment": CANARY, "settings": CANARY}
    assert provider_of(machine)["grants"] == ["OPENAI_API_KEY"]
    # The next command that writes the entry records it; a name that is declared later is asked for.
    machine.run("enable", "acme")
    assert machine.pins["acme"]["grants"] == ["ACME_EXTRA", "OPENAI_API_KEY"]


def test_grants_of_another_owner_are_not_carried_over(machine):
    add_greedy(machine.home)
    machine.run("enable", "acme", "--grant", "OPENAI_API_KEY")
    lock = machine.home / "plugins.lock.json"
    lock.write_text(lock.read_text().replace('"owner": "', '"owner": "other-'))
    machine.run("enable", "acme")
    assert machine.pins["acme"]["grants"] == []


def test_what_is_not_a_list_grants_nothing(machine):
    add_greedy(machine.home)
    machine.run("enable", "acme")
    lock = machine.home / "plugins.lock.json"
    lock.write_text(lock.read_text().replace('"grants": []', '"grants": "OPENAI_API_KEY"'))
    assert load_config(machine.home).selection.grants == {"acme": ()}


ASKS = """
def initialize(self, session_id, **kwargs):
    from hermes_cli.config import get_env_value, load_env
    seen = [get_env_value("OPENAI_API_KEY"), load_env().get("OPENAI_API_KEY")]
    pathlib.Path(kwargs["hermes_home"], "seen.json").write_text(json.dumps(seen))
"""


def test_hermes_agents_functions_for_secrets_follow_the_grants(machine, configured):
    add_plugin(machine.home, (OPENAI,), ASKS)
    (machine.home / ".env").write_text(f"OPENAI_API_KEY={CANARY}\n")
    machine.run("enable", "acme")
    assert seen_by(machine.home, configured) == [None, None]
    machine.run("enable", "acme", "--grant", "OPENAI_API_KEY")
    assert seen_by(machine.home, configured) == [CANARY, CANARY]
