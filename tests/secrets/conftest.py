"""What the tests of secrets share: no real keyring by chance, and the command with one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keyring
import pytest
from support.commands import Machine, Result

from hermes_core.secrets import Secrets

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _no_real_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.setattr("keyring.core._keyring_backend", None)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Makes a backend the keyring of this process."""

    def make(backend: Any) -> Any:
        monkeypatch.setattr(keyring, "get_keyring", lambda: backend)
        return backend

    return make


@pytest.fixture
def secrets(home: Path) -> Secrets:
    return Secrets(home)


class KeyringMachine(Machine):
    """Runs the command in this process, each time with the keyring of its environment."""

    def run(self, *arguments: str, **options: Any) -> Result:
        keyring.core._keyring_backend = None
        return super().run(*arguments, **options)


@pytest.fixture
def machine(tmp_path: Path, few_distributions: None) -> Machine:
    """The installed command, with no keyring until a test names one."""
    made = KeyringMachine(tmp_path / "machine", in_process=True)
    made.environment |= {
        "PYTHONPATH": f"{made.site.folder}{os.pathsep}{TESTS}",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "TEST_KEYRING": str(tmp_path / "keyring.json"),
    }
    return made
