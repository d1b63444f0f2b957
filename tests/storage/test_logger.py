"""The log of this package."""

from __future__ import annotations

import logging
import time

import pytest

from hermes_core.storage.logger import logger


def test_it_names_the_line_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    logger.warning("%s of %d", "one", 2)
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("failed")
    assert [(each.filename, each.getMessage()) for each in caplog.records] == [
        ("test_logger.py", "one of 2"),
        ("test_logger.py", "failed"),
    ]
    assert "ValueError: no" in caplog.text


def test_what_breaks_it_breaks_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> float:
        raise RuntimeError("replaced")

    with monkeypatch.context() as patch:
        patch.setattr(time, "time", broken)
        patch.setattr(time, "time_ns", broken)
        logger.error("lost")
    caplog.handler.addFilter(broken)
    logger.error("lost")
    caplog.handler.removeFilter(broken)
    logger.error("kept")
    assert [each.getMessage() for each in caplog.records] == ["kept"]
    assert logger.isEnabledFor(logging.ERROR)
