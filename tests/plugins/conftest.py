"""What the tests of all plugins share."""

from __future__ import annotations

import os
from pathlib import Path

import certifi
import pytest
from support.fielded import run_forked

from hermes_core.checkup import child_process


@pytest.fixture(autouse=True)
def _forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugin code of commands in this process runs in a fork: tests/checkup has the real child."""
    if os.name == "posix":
        monkeypatch.setattr(child_process, "run_child", run_forked)


@pytest.fixture(scope="session")
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mark = "-----END CERTIFICATE-----\n"
    first = Path(certifi.where()).read_text("utf-8").partition(mark)[0] + mark
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    file.write_text(first, "utf-8")
    return file


@pytest.fixture(autouse=True)
def _few_certificates(_one_certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client of an SDK reads all certificates, and no server of a test has one."""
    monkeypatch.setenv("SSL_CERT_FILE", str(_one_certificate))
