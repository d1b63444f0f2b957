"""The setup journal, with two processes at work: what one committed is not lost by the other."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.fielded import add_plugin

from hermes_core import MemoryManager
from hermes_core.config import load_config
from hermes_core.config import setup_journal as module
from hermes_core.config.setup_journal import (
    SetupJournal,
    commit,
    complete,
    pending,
    recover,
    unsaved,
)
from hermes_core.errors import HermesError
from hermes_core.secrets import Secrets

TIMEOUT = (("memory", "acme", "timeout"), 8)


def died_after_its_journal(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setup of which only the journal and the temporary secret are left."""

    def die(*_: object) -> SetupJournal:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_finish", die)
        with pytest.raises(KeyboardInterrupt):
            commit(home, Secrets(home), SetupJournal("acme", [TIMEOUT], ["KEY"]), {"KEY": "canary"})
    assert pending(home) is not None


@pytest.fixture(autouse=True)
def _no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.setattr("keyring.core._keyring_backend", None)


def test_a_setup_finishes_one_that_died_after_its_own_look(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recover(home)  # of the second process: there is nothing yet
    died_after_its_journal(home, monkeypatch)
    other = SetupJournal("acme", [(("memory", "acme", "mode"), "local")], ["OTHER"])
    commit(home, Secrets(home), other, {"OTHER": "x"})
    assert Secrets(home).env_file.read() == {"KEY": "canary", "OTHER": "x"}
    assert load_config(home).memory["acme"] == {"timeout": 8, "mode": "local"}


def test_only_the_journal_that_was_carried_out_is_removed(home: Path) -> None:
    first = commit(home, Secrets(home), SetupJournal("acme", [TIMEOUT], []), {})
    second = commit(home, Secrets(home), SetupJournal("acme", [TIMEOUT], []), {})
    complete(home, first)
    assert unsaved(home, "acme") == second
    complete(home, second)
    assert unsaved(home, "acme") is None


def test_a_journal_that_can_not_be_removed_is_a_warning_and_the_provider_works(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_plugin(home, ({"key": "timeout", "type": "integer"},))
    (home / "config.yaml").write_text("memory: {provider: acme}\n")
    journal = commit(home, Secrets(home), SetupJournal("acme", [TIMEOUT], []), {})
    real = Path.unlink

    def refuse(path: Path, *args: bool, **options: bool) -> None:
        if path.name == "setup.json":
            raise OSError(errno.EACCES, "Permission denied")
        real(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(HermesError, match="Permission denied"):
            complete(home, journal)
        manager = MemoryManager.from_config(home)
    assert [each.name for each in manager.providers] == ["builtin", "acme"]
    assert any("Permission denied" in each for each in manager.warnings)
    manager.shutdown_all()
