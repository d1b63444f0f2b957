"""A secret lives in one store, is found again, and says where it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import keyrings

from hermes_core.errors import SecretsError
from hermes_core.secrets import Secrets, _keyring

NO_KEYRING = "no keyring is available; .env is plain text, readable only by you"


@pytest.fixture
def keyring(use):
    return use(keyrings.InMemory())


def env(home: Path) -> str:
    return (home / ".env").read_text() if (home / ".env").exists() else ""


def index(home: Path) -> dict[str, dict[str, str]]:
    return json.loads((home / "secrets.json").read_text())["secrets"]


def test_auto_takes_the_keyring_where_one_answers(home, secrets, keyring):
    assert secrets.where() == ("keyring", "the OS keyring answers", "")
    assert secrets.set("KEY", "v", "honcho") == ("keyring", "the OS keyring answers", False)
    assert list(keyring.kept.values()) == ["v"]
    assert env(home) == ""
    assert secrets.get("KEY") == ("v", "keyring")
    assert secrets.state("KEY") == "set (keyring)"
    assert secrets.names() == [("KEY", "honcho", "keyring", "set (keyring)")]


def test_auto_takes_dotenv_where_none_does_and_says_why(home, secrets):
    assert secrets.where() == ("dotenv", NO_KEYRING, "")
    assert secrets.set("KEY", "v") == ("dotenv", NO_KEYRING, False)
    assert env(home) == "KEY=v\n"
    assert secrets.get("KEY", "honcho") == ("v", "dotenv")
    assert secrets.state("KEY") == "set (.env)"


@pytest.mark.parametrize("kind", [keyrings.RaisesOnSecondSet, keyrings.Changing])
def test_auto_falls_to_dotenv_where_the_value_itself_is_not_kept(home, secrets, use, kind):
    use(kind())
    stored = secrets.set("KEY", "canary-value-longer-than-ten")
    assert stored.store == "dotenv"
    assert ".env is plain text" in stored.reason
    assert "canary" not in stored.reason
    assert secrets.get("KEY") == ("canary-value-longer-than-ten", "dotenv")


def test_dotenv_does_not_ask_the_keyring(home, use):
    backend = use(keyrings.Hanging())
    secrets = Secrets(home, "dotenv")
    assert secrets.where() == ("dotenv", "secrets.backend is dotenv", "")
    assert secrets.set("KEY", "v").store == "dotenv"
    assert secrets.state("KEY") == "set (.env)"
    assert backend.kept == {}


def test_keyring_never_falls_to_plain_text(home):
    secrets = Secrets(home, "keyring")
    assert secrets.where() == ("keyring", "secrets.backend is keyring", "no keyring is available")
    with pytest.raises(SecretsError, match=r"no keyring is available, and secrets\.backend is"):
        secrets.set("KEY", "canary-value")
    assert env(home) == ""
    assert secrets.state("KEY") == "not set"


def test_an_unknown_backend_is_refused(home):
    with pytest.raises(
        SecretsError, match=r"'vault' is not a store of secrets \(use one of auto, key"
    ):
        Secrets(home, "vault")


def test_setting_removes_it_from_the_other_store(home, keyring):
    Secrets(home, "dotenv").set("KEY", "1", "honcho")
    assert Secrets(home, "keyring").set("KEY", "2").store == "keyring"
    assert (env(home), list(keyring.kept.values())) == ("", ["2"])
    Secrets(home, "dotenv").set("KEY", "3")
    assert (env(home), keyring.kept) == ("KEY=3\n", {})
    assert index(home) == {"KEY": {"store": "dotenv", "provider": "honcho"}}


def test_a_new_provider_leaves_no_copy_under_the_old(home, secrets, keyring):
    secrets.set("KEY", "1", "honcho")
    secrets.set("KEY", "2", "mem0")
    assert list(keyring.kept.values()) == ["2"]
    assert secrets.get("KEY") == ("2", "keyring")


def test_an_old_value_that_can_not_be_removed_is_told(home, secrets, keyring, use):
    secrets.set("KEY", "1", "honcho")
    use(keyrings.Locked())
    stored = Secrets(home, "dotenv").set("KEY", "2")
    assert "an older value is still in the keyring: the keyring is locked" in stored.reason
    assert Secrets(home).get("KEY") == ("2", "dotenv")


@pytest.mark.parametrize(("there", "shadowed"), [("other", True), ("v", False), ("", False)])
def test_a_variable_of_the_process_that_shadows_it_is_told(secrets, monkeypatch, there, shadowed):
    monkeypatch.setenv("KEY", there)
    assert secrets.set("KEY", "v").shadowed is shadowed


def test_dotenv_goes_before_the_keyring(home, secrets, keyring):
    secrets.set("KEY", "keyring")
    (home / ".env").write_text("KEY=by-hand\n")
    assert secrets.get("KEY") == ("by-hand", "dotenv")
    (home / ".env").write_text("KEY=\n")
    assert secrets.get("KEY") == ("keyring", "keyring")


def test_not_set_is_told_from_a_keyring_that_does_not_answer(home, secrets, keyring, use):
    secrets.set("KEY", "v", "honcho")
    use(keyrings.Hanging())
    other = Secrets(home, seconds=0.1)
    assert other.state("KEY") == "in the keyring, which does not answer"
    assert other.state("OTHER") == "not set"
    assert [each.state for each in other.names()] == ["in the keyring, which does not answer"]
    with pytest.raises(SecretsError) as caught:
        other.get("KEY", "honcho")
    assert str(caught.value) == (
        "KEY of honcho: in the keyring, which does not answer here (cron, ssh): the keyring does "
        "not answer within 0.1 s (run hermes-plugins secrets move --to dotenv where it does)"
    )
    for call in (lambda: other.delete("KEY"), lambda: other.move("dotenv")):
        with pytest.raises(SecretsError, match="does not answer"):
            call()
    assert index(home)["KEY"]["store"] == "keyring"


def test_what_was_never_set_does_not_wake_the_keyring(home, secrets, use):
    use(keyrings.Hanging())
    assert secrets.get("KEY") is None
    assert secrets.names() == []
    assert secrets.delete("KEY") is False
    assert secrets.move("keyring") == []


def test_names_are_those_of_the_index_and_of_dotenv(home, secrets, keyring):
    secrets.set("B_KEY", "1", "honcho")
    Secrets(home, "dotenv").set("C_KEY", "2", "mem0")
    with (home / ".env").open("a") as file:
        file.write("A_KEY=3\nEMPTY=\n")
    assert secrets.names() == [
        ("A_KEY", "", "dotenv", "set (.env)"),
        ("B_KEY", "honcho", "keyring", "set (keyring)"),
        ("C_KEY", "mem0", "dotenv", "set (.env)"),
    ]


def test_what_somebody_else_has_removed_is_not_set(home, secrets, keyring):
    secrets.set("A_KEY", "1")
    keyring.kept.clear()
    Secrets(home, "dotenv").set("B_KEY", "2")
    (home / ".env").unlink()
    assert [secrets.state("A_KEY"), secrets.state("B_KEY")] == ["not set", "not set"]
    assert [each.state for each in secrets.names()] == ["not set", "not set"]


@pytest.mark.parametrize("backend", ["keyring", "dotenv"])
def test_a_deleted_secret_is_gone(home, keyring, backend):
    secrets = Secrets(home, backend)
    secrets.set("KEY", "v")
    assert secrets.delete("KEY") is True
    assert secrets.get("KEY") is None
    assert (env(home), keyring.kept, index(home)) == ("", {}, {})
    assert secrets.delete("KEY") is False


def test_all_that_is_ours_moves_and_nothing_else(home, keyring):
    (home / ".env").write_text("# mine\nFOREIGN=x\n")
    secrets = Secrets(home, "dotenv")
    secrets.set("A_KEY", "1", "honcho")
    secrets.set("B_KEY", "it's", "mem0")
    assert secrets.move("keyring") == ["A_KEY", "B_KEY"]
    assert env(home) == "# mine\nFOREIGN=x\n"
    assert sorted(keyring.kept.values()) == ["1", "it's"]
    assert secrets.move("keyring") == []
    assert secrets.move("dotenv") == ["A_KEY", "B_KEY"]
    assert env(home) == '# mine\nFOREIGN=x\nA_KEY=1\nB_KEY="it\'s"\n'
    assert keyring.kept == {}
    assert secrets.move("dotenv") == []


def test_one_that_can_not_be_moved_stays_and_does_not_keep_the_others(home, secrets, keyring):
    secrets.set("A_KEY", "1")
    secrets.set("B_KEY", "canary")
    secrets.set("C_KEY", "3")
    (place,) = [each for each, value in keyring.kept.items() if value == "canary"]
    keyring.kept[place] = "canary\0"  # another program wrote what no variable can hold
    with pytest.raises(SecretsError, match=r"moved: A_KEY, C_KEY; not moved.*: B_KEY: the value"):
        secrets.move("dotenv")
    assert [secrets.get(each).store for each in ("A_KEY", "B_KEY", "C_KEY")] == [
        "dotenv",
        "keyring",
        "dotenv",
    ]


def test_what_is_left_in_the_keyring_after_a_move_is_told(home, secrets, use):
    use(keyrings.KeepsForEver())
    secrets.set("KEY", "v")
    with pytest.raises(SecretsError, match=r"KEY: it is in \.env now; an older value is still in"):
        secrets.move("dotenv")
    assert Secrets(home).get("KEY") == ("v", "dotenv")


@pytest.mark.parametrize(("value", "told"), [("${HOME}", True), ("$HOME {}", False)])
def test_a_value_that_hermes_agent_would_interpolate_is_told(secrets, value, told):
    assert ("hermes-agent puts something else" in secrets.set("KEY", value).reason) is told


def test_moving_to_a_keyring_that_is_not_there_changes_nothing(home, secrets):
    secrets.set("KEY", "v")
    with pytest.raises(SecretsError, match="no keyring is available; nothing was moved"):
        secrets.move("keyring")
    assert secrets.get("KEY") == ("v", "dotenv")
    with pytest.raises(SecretsError, match="is not a store"):
        secrets.move("auto")


@pytest.mark.parametrize("value", ["", "a\0b", "a\ud800"])
@pytest.mark.parametrize("backend", ["keyring", "dotenv"])
def test_a_value_that_one_store_can_not_hold_no_store_takes(home, keyring, backend, value):
    with pytest.raises(SecretsError, match="KEY: the value "):
        Secrets(home, backend).set("KEY", value)
    assert keyring.kept == {}


def test_a_secret_shows_no_value(secrets):
    secrets.set("KEY", "canary-value")
    found = secrets.get("KEY")
    assert "canary" not in f"{found} {found!r} {[found]}"


def test_two_homes_do_not_mix(tmp_path, keyring):
    one, other = Secrets(tmp_path / "one"), Secrets(tmp_path / "other")
    one.set("KEY", "1", "honcho")
    other.set("KEY", "2", "honcho")
    assert (one.get("KEY").value, other.get("KEY").value) == ("1", "2")
    one.delete("KEY")
    assert other.get("KEY") == ("2", "keyring")


def test_a_long_value_goes_to_dotenv_on_windows(home, secrets, keyring, monkeypatch):
    monkeypatch.setattr(_keyring, "_too_long", lambda value: len(value) > 1024)
    stored = secrets.set("KEY", "x" * 2000)
    assert stored.store == "dotenv"
    assert "2,000 characters; a Windows credential holds" in stored.reason
