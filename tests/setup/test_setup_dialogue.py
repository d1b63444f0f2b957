"""`hermes-plugins setup` with a person at the terminal."""

from __future__ import annotations

import re
import subprocess

import pytest
from support.commands import posix_only
from support.fielded import API_KEY, FIELDS, MODE, TIMEOUT, add_plugin, env_of, saved_of
from support.terminals import Dialogue

pytestmark = posix_only

CANARY = "canary-4711"
VALUE = r"  value[^\n]*: "
WRITE = r"Write this\?[^\n]*: "


def leave(talk: Dialogue, keys: str) -> int:
    """Press a key until the command has ended: one that comes before it reads may be lost."""
    for _ in range(40):
        talk.type(keys)
        try:
            talk.process.wait(0.5)
            break
        except subprocess.TimeoutExpired:
            continue
    return talk.end()


def test_every_question_comes_with_what_a_person_needs_to_answer_it(machine, dialogue):
    talk = dialogue("setup", "acme")
    talk.answer((r"mode.*one of cloud, local\n  value \[cloud\]: ".replace(".*", "(?s:.*)"), ""))
    shown = talk.wait_for(r"(?s)timeout.*value \[30\]: ")
    assert "(optional)" in shown
    assert "\\n" not in talk.shown
    assert "a whole number, at least 1, at most 60" in shown
    talk.type("\n")
    shown = talk.wait_for(r"(?s)api_key.*value[^\n]*: ")
    assert "The key to your memories." in shown
    assert "get it at https://acme.example/keys" in shown
    assert "(optional)" not in shown
    talk.type(f"{CANARY}\n")
    shown = talk.wait_for(rf"(?s).*{WRITE}")
    assert "path" not in shown  # local only
    assert ".env:  ACME_API_KEY" in shown
    assert "memory.provider = acme" in shown
    talk.type("\n")
    assert talk.end() == 0
    assert talk.shown.endswith("acme is enabled and works.\n")
    assert CANARY not in talk.shown
    assert env_of(machine) == f"ACME_API_KEY={CANARY}\n"
    assert saved_of(machine) == {"mode": "cloud", "timeout": 30}


def test_a_wrong_answer_is_asked_again_at_once(machine, dialogue):
    talk = dialogue("setup", "acme")
    talk.answer((VALUE, "moon"))
    shown = talk.wait_for(rf"(?s)moon.*{VALUE}")
    assert "(one of cloud, local)" in shown  # and not that it came from an argument
    talk.type("cloud\n")
    for answer, said in (("ten", "is not a whole number"), ("0", "too small"), ("61", "too large")):
        talk.answer((VALUE, answer))
        talk.wait_for(said)
    talk.answer((VALUE, " 60 "), (VALUE, ""))
    talk.answer((rf"(?s)A value is required\..*{VALUE}", "k"), (WRITE, "y"))
    assert talk.end() == 0
    assert machine.memory["acme"]["timeout"] == 60


def test_an_arrow_key_is_no_secret(machine, dialogue):
    add_plugin(machine.home, (API_KEY | {"when": {}},))
    talk = dialogue("setup", "acme")
    talk.answer((VALUE, "\x1b[C"))
    talk.answer((rf"(?s)has a control character.*{VALUE}", CANARY), (WRITE, "y"))
    assert talk.end() == 0
    assert env_of(machine) == f"ACME_API_KEY={CANARY}\n"


def test_a_wrong_secret_is_asked_again_without_being_shown(machine, dialogue):
    pin = {"key": "pin", "secret": True, "required": True, "type": "integer"}
    add_plugin(machine.home, (pin,))
    talk = dialogue("setup", "acme")
    talk.answer((VALUE, CANARY))
    talk.answer((rf"(?s)is not a whole number.*{VALUE}", "471100"), (WRITE, "y"))
    assert talk.end() == 0
    assert CANARY not in talk.shown
    assert "471100" not in talk.shown
    assert env_of(machine) == "ACME_PIN=471100\n"


def test_an_answer_decides_which_questions_follow(machine, dialogue):
    talk = dialogue("setup", "acme")
    talk.answer((VALUE, "local"), (r"(?s)timeout.*value \[30\]: ", ""))
    talk.answer((r"(?s)path.*value: ", "/x"), (WRITE, "y"))
    assert talk.end() == 0
    assert "api_key" not in talk.shown
    assert saved_of(machine) == {"mode": "local", "timeout": 30, "path": "/x"}
    assert env_of(machine) == ""


def test_questions_come_in_the_order_of_their_author(machine, dialogue):
    add_plugin(machine.home, (MODE, API_KEY, TIMEOUT))
    talk = dialogue("setup", "acme")
    talk.answer((VALUE, ""))
    assert "api_key" in talk.wait_for(rf"(?s).*?{VALUE}")


def test_a_default_may_follow_from_another_answer(machine, dialogue):
    derived = {"cloud": "https://c.example", "local": "http://localhost"}
    url = {"key": "base", "default_from": {"field": "mode", "map": derived}}
    add_plugin(machine.home, (url, MODE))
    talk = dialogue("setup", "acme")
    talk.answer((VALUE, "local"), (r"value \[http://localhost\]: ", ""), (WRITE, ""))
    assert talk.end() == 0
    assert saved_of(machine) == {"mode": "local", "base": "http://localhost"}


def test_return_keeps_what_is_set(machine, dialogue):
    machine.write_config("memory: {acme: {timeout: 7}}\n")
    (machine.home / ".env").write_text("ACME_API_KEY=old\n")
    talk = dialogue("setup", "acme")
    talk.answer((VALUE, ""), (r"value \[7\]: ", ""))
    talk.answer((r"value \(Enter keeps the one in the \.env[^\n]*\): ", ""), (WRITE, ""))
    assert talk.end() == 0
    assert env_of(machine) == "ACME_API_KEY=old\n"
    assert machine.memory["acme"]["timeout"] == 7


def test_a_stored_secret_is_kept_when_the_mode_that_needs_it_is_chosen_again(machine, dialogue):
    machine.write_config("memory: {acme: {mode: local, path: x}}\n")
    (machine.home / ".env").write_text("ACME_API_KEY=old\n")
    talk = dialogue("setup", "acme")
    talk.answer((VALUE, "cloud"), (VALUE, ""))
    assert "Enter keeps" in talk.wait_for(VALUE)


def test_a_person_who_says_no_has_changed_nothing(machine, dialogue):
    with machine.unchanged():
        talk = dialogue("setup", "acme")
        talk.answer((VALUE, ""), (VALUE, "7"), (VALUE, CANARY), (WRITE, "n"))
        assert talk.end() == 1
    assert "Traceback" not in talk.shown


@pytest.mark.parametrize("keys", ["\x03", "\x04"], ids=["ctrl_c", "ctrl_d"])
@pytest.mark.parametrize("answers", [[], ["", "7"], ["", "7", CANARY]])
def test_who_leaves_at_a_question_has_changed_nothing(machine, dialogue, keys, answers):
    (machine.home / ".env").write_text("# mine\n")
    with machine.unchanged():
        talk = dialogue("setup", "acme")
        for answer in answers:
            talk.answer((VALUE, answer))
        talk.wait_for(WRITE if len(answers) == 3 else VALUE)
        assert leave(talk, keys) == 1
    assert re.search(r"Aborted!\n$", talk.shown)
    assert CANARY not in talk.shown


@pytest.mark.parametrize("keys", ["\x03", "\x04"], ids=["ctrl_c", "ctrl_d"])
def test_who_leaves_at_the_choice_has_changed_nothing(machine, dialogue, keys):
    with machine.unchanged():
        talk = dialogue("setup")
        talk.wait_for(r"Which one[^\n]*: ")
        assert leave(talk, keys) == 1


def test_without_a_name_one_chooses_from_what_is_installed(machine, dialogue):
    add_plugin(machine.home, (TIMEOUT,), name="beta")
    talk = dialogue("setup")
    shown = talk.wait_for(r"(?s).*Which one[^\n]*: ")
    numbers = dict(re.findall(r"(\d)\. (\w+)", shown))
    assert set(numbers.values()) == {"acme", "beta"}
    assert "hermes-plugins install ./plugins/honcho --build" in " ".join(shown.split())
    assert "builtin" not in shown
    talk.type("7\n")
    talk.wait_for(r"Which one[^\n]*: ")
    talk.type("x\n")
    (number,) = [number for number, name in numbers.items() if name == "beta"]
    talk.answer((r"Which one[^\n]*: ", number), (VALUE, "5"), (WRITE, ""))
    assert talk.end() == 0
    assert (machine.memory["provider"], machine.memory["beta"]) == ("beta", {"timeout": 5})


def test_one_of_two_owners_of_a_name_can_be_chosen(machine, dialogue):
    machine.install("twice", distribution="first-owner")
    machine.install("twice", distribution="second-owner")
    talk = dialogue("setup")
    shown = talk.wait_for(r"(?s).*Which one[^\n]*: ")
    number = re.findall(r"(\d)\. twice", shown)[0]
    talk.type(f"{number}\n")
    talk.wait_for(WRITE, 5)
    talk.type("\n")
    assert talk.end() == 0
    assert machine.memory["provider"] in ("twice@first-owner", "twice@second-owner")


def test_what_is_given_as_an_argument_is_not_asked(machine, dialogue):
    talk = dialogue("setup", "acme", "--set", "mode=local", "--set", "timeout=5")
    talk.answer((r"(?s)path.*value: ", "x"), (WRITE, ""))
    assert talk.end() == 0
    assert saved_of(machine) == {"mode": "local", "timeout": 5, "path": "x"}


def test_a_secret_that_the_terminal_has_cut_is_not_stored(machine, dialogue):
    add_plugin(machine.home, ({**API_KEY, "when": None},))
    talk = dialogue("setup", "acme")
    talk.answer((VALUE, CANARY * 1000))
    talk.wait_for("a terminal cuts lines off", 5)
    leave(talk, "\x03")
    assert env_of(machine) == ""


def test_standard_input_that_is_a_terminal_is_asked_without_showing_the_answer(machine, dialogue):
    talk = dialogue("setup", "acme", "--secret-stdin", "api_key")
    talk.answer((r"api_key \(hidden\): ", CANARY))
    assert talk.end() == 0
    assert CANARY not in talk.shown
    assert env_of(machine) == f"ACME_API_KEY={CANARY}\n"


def test_an_own_set_up_of_the_plugin_follows_the_common_one(machine, dialogue):
    own = """
    def post_setup(self, hermes_home, config):
        before = pathlib.Path(hermes_home, "config.yaml").read_text()
        answer = input("And the colour? ")
        text = json.dumps([answer, "provider: acme" in before, config["memory"]["acme"]["timeout"]])
        pathlib.Path(hermes_home, "own.json").write_text(text)
    """
    add_plugin(machine.home, (TIMEOUT,), own)
    talk = dialogue("setup", "acme")
    talk.answer((VALUE, "5"), (WRITE, ""), (r"And the colour\? ", "blue"))
    assert talk.end() == 0
    assert (machine.home / "own.json").read_text() == '["blue", true, 5]'


def own_failure(machine, dialogue, how: str) -> None:
    add_plugin(machine.home, (), f"def post_setup(self, hermes_home, config):\n    {how}\n")
    talk = dialogue("setup", "acme")
    talk.answer((WRITE, ""))
    talk.end()
    assert "boom" in talk.shown
    assert "Traceback" not in talk.shown
    assert talk.shown.endswith("acme is enabled and works.\n")
    assert machine.memory["provider"] == "acme"


def test_an_own_set_up_that_fails_is_told_and_the_common_one_stays(machine, dialogue):
    own_failure(machine, dialogue, "raise RuntimeError('boom')")


def test_an_own_set_up_that_exits_is_told_and_the_common_one_stays(machine, dialogue):
    own_failure(machine, dialogue, "raise SystemExit('boom')")


def test_a_script_is_told_of_an_own_set_up(machine):
    add_plugin(machine.home, (), "def post_setup(self, hermes_home, config):\n    raise OSError\n")
    result = machine.run("setup", "acme", "--no-input").done()
    assert "acme has more questions" in result.out


def test_texts_of_a_plugin_do_not_steer_the_terminal(machine, dialogue):
    field = {"key": "mode", "description": "a\x1b[31mred\x1b]0;title\x07\nline", "url": "u\x1b[2J"}
    add_plugin(machine.home, (field, *FIELDS[2:3]))
    talk = dialogue("setup", "acme")
    talk.wait_for(VALUE)
    leave(talk, "\x03")
    assert "\x1b" not in talk.shown
    assert "\x07" not in talk.shown


def test_what_is_not_to_be_asked_is_not_asked(machine, dialogue):
    rare = {"key": "rare", "default": "x", "ask": False}
    url = {"key": "url", "default": "u", "ask": {"mode": "local"}}
    add_plugin(machine.home, (MODE, rare, url))
    talk = dialogue("setup", "acme")
    talk.answer((VALUE, "local"), (VALUE, ""), (WRITE, ""))
    assert talk.end() == 0
    assert "url" in talk.shown
    assert "rare" not in talk.shown
    assert saved_of(machine) == {"mode": "local", "rare": "x", "url": "u"}
