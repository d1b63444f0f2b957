"""A filled home, and a browser without JavaScript that has opened its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.inspected import Browser, configure, fill

pytestmark = pytest.mark.usefixtures("few_distributions")


@pytest.fixture
def filled(tmp_path: Path, few_distributions: None) -> Path:
    home = tmp_path / "home"
    configure(home)
    fill(home)
    return home


@pytest.fixture
def page(filled: Path) -> Iterator[Browser]:
    browser = Browser(filled).enter()
    yield browser
    browser.close()
