"""A real chromium on a page that the real command serves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from support.inspected import configure, fill

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)
# A busy machine takes its time.
expect.set_options(timeout=60_000)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""


class Served:
    """The command, and windows on its page."""

    def __init__(self, home: Path, browser: Browser) -> None:
        self.home = home
        self._browser = browser
        self.process: subprocess.Popen[str] | None = None
        self.address = ""
        self.foreign: list[str] = []
        self.errors: list[str] = []

    def start(self) -> Served:
        command = [sys.executable, "-P", "-u", "-m", "hermes_core", "ui", "--no-open"]
        self.process = subprocess.Popen(
            [*command, "--home", str(self.home)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HERMES_HOME": str(self.home)},
        )
        self.address = self.process.stdout.readline().split()[-1]
        return self

    @property
    def origin(self) -> str:
        return self.address.partition("/?")[0]

    def window(self, *, width: int = 1100, javascript: bool = True, scheme: str = "light") -> Page:
        """A window that has opened the first address, with a new profile."""
        context = self._browser.new_context(
            viewport={"width": width, "height": 800},
            java_script_enabled=javascript,
            color_scheme=scheme,
        )
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("request", lambda each: self._seen(each.url))
        page.on("console", lambda each: each.type == "error" and self._failed(each.text))
        page.on("pageerror", lambda each: self.errors.append(str(each)))
        page.goto(self.address)
        page.wait_for_selector("h1")
        return page

    def _failed(self, text: str) -> None:
        # A refused change and a conflict are answers, and the browser logs them.
        if not re.search("status of (400|409)", text):
            self.errors.append(text)

    def _seen(self, url: str) -> None:
        if not url.startswith((self.origin, "data:", "about:")):
            self.foreign.append(url)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process.stdout.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if not CHROMIUM:
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    configure(folder)
    fill(folder)
    return folder


@pytest.fixture
def served(home: Path, chromium: Browser) -> Iterator[Served]:
    """The page of a filled home. No request leaves the machine, and no script fails."""
    page = Served(home, chromium).start()
    yield page
    page.stop()
    assert page.foreign == []
    assert page.errors == []
