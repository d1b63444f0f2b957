"""Which keyrings are trusted with a secret, and what a bad one gets to do: nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from keyring.backends import chainer, fail, null
from support import keyrings

from hermes_core.errors import SecretsError
from hermes_core.secrets import _keyring
from hermes_core.secrets._keyring import Keyring

CANARY = "canary-4711-value"


def chain(*backends):
    class Chain(chainer.ChainerBackend):
        pass

    Chain.backends = list(backends)
    return Chain()


def test_a_real_one_is_usable_and_nothing_of_the_proof_is_left(home, use):
    backend = use(keyrings.InMemory())
    assert Keyring(home).problem() == ""
    assert backend.kept == {}


@pytest.mark.parametrize(
    ("backend", "problem"),
    [
        (fail.Keyring(), "no keyring is available"),
        (null.Keyring(), "the keyring is disabled (null backend)"),
        (keyrings.Forgetful(), "the keyring does not return what was written to it"),
        (keyrings.Locked(), "the keyring is locked"),
        (keyrings.ReadOnly(), "the keyring can only be read"),
        (
            keyrings.Plaintext(),
            "the keyring support.keyrings.Plaintext is not a safe one (its priority is below 1)",
        ),
        (chain(), "no keyring is available"),
        (chain(null.Keyring(), fail.Keyring()), "the keyring is disabled"),
        (chain(keyrings.Plaintext(), null.Keyring()), "is not a safe one"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_one_that_keeps_nothing_or_is_not_safe_is_not_usable(home, use, backend, problem):
    use(backend)
    assert problem in Keyring(home).problem()


def test_a_chain_is_looked_into(home, use):
    plain, real = keyrings.Plaintext(), keyrings.InMemory()
    use(chain(keyrings.ReadOnly(), plain, real))
    keyring = Keyring(home)
    assert keyring.problem() == ""
    keyring.set("KEY", "v", "honcho")
    assert keyring.get("KEY", "honcho") == "v"
    assert len(real.kept) == 1
    assert plain.kept == {}


def test_one_that_can_not_be_loaded_says_why(home, monkeypatch):
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "no_such_module.Keyring")
    assert Keyring(home).problem() == (
        "the keyring can't be loaded: ModuleNotFoundError: No module named 'no_such_module'"
    )


def test_one_that_hangs_costs_its_deadline_once(home, use):
    asked = []

    class Hanging(keyrings.Hanging):
        def get_password(self, *args):
            asked.append(args)
            super().get_password(*args)

        set_password = delete_password = get_password

    use(Hanging())
    keyring = Keyring(home, seconds=0.2)
    assert keyring.problem() == "the keyring does not answer within 0.2 s"
    for call in (keyring.get, keyring.delete):
        with pytest.raises(SecretsError, match=r"does not answer within 0\.2 s"):
            call("KEY", "honcho")
    assert len(asked) == 1


@pytest.mark.parametrize("kind", [keyrings.RaisesOnSet, keyrings.Changing, keyrings.Locked])
def test_an_error_never_has_the_value(home, use, kind):
    use(kind())
    with pytest.raises(SecretsError) as caught:
        Keyring(home).set("KEY", CANARY, "honcho")
    error: BaseException | None = caught.value
    while error is not None:
        assert "canary" not in str(error)
        error = error.__cause__ or error.__context__
    assert "secrets.backend" in caught.value.hint


def test_the_name_has_the_provider_and_the_home(home, tmp_path, use):
    backend = use(keyrings.InMemory())
    one, other = Keyring(home), Keyring(tmp_path / "other")
    one.set("KEY", "1", "honcho")
    one.set("KEY", "2", "mem0")
    other.set("KEY", "3", "honcho")
    assert [one.get("KEY", "honcho"), one.get("KEY", "mem0")] == ["1", "2"]
    assert other.get("KEY", "honcho") == "3"
    services = {service for service, username in backend.kept if username == "KEY"}
    assert len(services) == 3
    assert all(service.startswith("hermes-plugins:") for service in services)
    assert all(len(service.split(":")[2]) == 12 for service in services)


def test_a_link_to_a_home_is_that_home(home, tmp_path):
    link = tmp_path / "link"
    try:
        link.symlink_to(home)
    except OSError:
        pytest.skip("no links here")
    assert Keyring(link).service("a") == Keyring(home).service("a")


def test_deleting_what_is_not_there_is_no_error(home, use):
    use(keyrings.InMemory())
    keyring = Keyring(home)
    assert keyring.delete("KEY", "honcho") is False
    keyring.set("KEY", "v", "honcho")
    assert keyring.delete("KEY", "honcho") is True
    assert keyring.get("KEY", "honcho") is None


def test_a_long_value_is_refused_on_windows_only(home, use, monkeypatch):
    use(keyrings.InMemory())
    keyring = Keyring(home)
    keyring.set("KEY", "x" * 5000, "honcho")
    monkeypatch.setattr(_keyring, "os", SimpleNamespace(name="nt"))
    keyring.set("KEY", "x" * 1024, "honcho")
    with pytest.raises(SecretsError, match=r"1,025 characters; a Windows credential holds at most"):
        keyring.set("KEY", "x" * 1025, "honcho")
