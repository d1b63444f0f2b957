"""Takes the pictures of `hermes-plugins ui`: `python docs/ui_screenshots.py`.

It writes docs/images/ui-*.png: it fills a temporary home as agents would, starts the command, and
drives the chromium of the system with Playwright, which is in the extra ``dev``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_builtin.sessions.location import locate
from hermes_core import MemoryManager
from hermes_core.cli import sample

IMAGES: Final = Path(__file__).parent / "images"
FLAGS: Final = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP: Final = (1100, 760)
PHONE: Final = (390, 760)
_DAY: Final = 86_400.0
QUESTION: Final = "Which server is staging?"

#: What was said on earlier days: days ago, title, question, answer.
TALKS: Final = (
    (
        12,
        "Release process",
        "Which branch is the release cut from?",
        "From main, every second Monday.",
    ),
    (9, "Billing", "How do we deploy billing?", "With make release, never by hand."),
    (9, "", "Who approves a release?", "Two people of the platform team."),
    (6, "Backups", "Where do the backups go?", "To the second data centre, every night."),
    (3, "On call", "Who is on call this week?", "Ann until Friday, then Kim."),
    (2, "", "Is the staging server stage-1?", "Yes, staging runs on stage-1."),
    (1, "Migration", "When do we migrate the staging server?", "On Tuesday, to stage-2."),
)


#: The temporary folder is nobody's home.
_SHORT_PATHS: Final = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    text.data = text.data.replace(/\\S*\\/hermes(?=\\/|$)/, "~/.hermes");
  }
}"""


def fill(home: Path) -> None:
    """Conversations of two weeks, notes, a provider with some calls, and a write that waits."""
    plugin = home / "plugins" / "sample"
    shutil.copytree(
        Path(sample.__file__).parent, plugin, ignore=shutil.ignore_patterns("__pycache__")
    )
    run(home, "enable", "sample")
    archive = locate(home).open()
    for number, (days, title, question, answer) in enumerate(TALKS):
        at = time.time() - days * _DAY - 3600
        facts = SessionFacts(f"chat-{number + 1}", "cli", title=title, started=at)
        said = [NewMessage("user", question, at), NewMessage("assistant", answer, at + 20)]
        archive.append(facts, said)
    archive.close()
    agent(home)
    run(home, "memory", "add", "--target", "user", "Prefers short answers, in German.")
    run(home, "memory", "add", "Billing is deployed with make release.")
    (home / "config.yaml").open("a", encoding="utf-8").write("  write_approval: true\n")
    waiting(home)


def agent(home: Path) -> None:
    """A conversation in which the agent takes a note."""
    manager = MemoryManager.from_config(home)
    manager.initialize_all("monday", platform="cli")
    note = "The staging server is stage-1."
    for question, answer in (
        (f"Remember: {note}", "I noted it."),
        ("Who is responsible for the server?", "Kim is, since March."),
    ):
        manager.on_turn_start(1, question)
        manager.recall_block(question)
        if answer == "I noted it.":
            call = {"action": "add", "target": "memory", "content": note}
            manager.handle_tool_call("memory", call)
        manager.sync_all(question, answer, session_id="monday")
    manager.shutdown_all()


def waiting(home: Path) -> None:
    """A note that waits for approval."""
    manager = MemoryManager.from_config(home)
    manager.initialize_all("tuesday", platform="cli")
    manager.on_turn_start(1, "The office moved to Linz.")
    call = {"action": "add", "target": "user", "content": "Works in the office in Linz."}
    manager.handle_tool_call("memory", call)
    manager.shutdown_all()


def run(home: Path, *arguments: str) -> None:
    """Run a command."""
    command = [sys.executable, "-P", "-m", "hermes_core", "--home", str(home), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own


@contextmanager
def served(home: Path) -> Iterator[str]:
    """The address of the page."""
    command = [
        sys.executable,
        "-P",
        "-u",
        "-m",
        "hermes_core",
        "ui",
        "--no-open",
        "--home",
        str(home),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def page_of(browser: Browser, address: str, size: tuple[int, int], theme: str) -> Page:
    """A new window in one of the themes."""
    scheme: Any = theme
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("h1")
    return page


def take(page: Page, name: str, folder: Path, *, full: bool = True) -> None:
    """One picture, as small as it gets without another library."""
    path = folder / f"ui-{name}.png"
    page.wait_for_load_state()
    page.evaluate(_SHORT_PATHS)
    page.screenshot(path=path, full_page=full)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")  # noqa: T201


def pictures(browser: Browser, address: str, folder: Path, *, everything: bool) -> None:
    """The main pages; with ``everything``, all of them at all sizes."""
    for theme in ("light", "dark"):
        page = page_of(browser, address, DESKTOP, theme)
        page.wait_for_selector(".verdict:not(.checking)", timeout=60_000)
        take(page, f"overview-{theme}", folder)
        page.click("text=Notes")
        take(page, f"notes-{theme}", folder)
        if theme == "light" or everything:
            page.goto(f"{page.url.split('/notes')[0]}/conversations?query=staging+server")
            take(page, f"conversations-{theme}", folder)
            ask(page)
            take(page, f"recall-{theme}", folder)
        if everything:
            rest(page, theme, folder)
        page.context.close()
    phone = page_of(browser, address, PHONE, "light")
    phone.wait_for_selector(".verdict:not(.checking)", timeout=60_000)
    phone.click("text=Notes")
    take(phone, "phone", folder, full=False)
    if everything:
        for theme in ("light", "dark"):
            narrow = page_of(browser, address, PHONE, theme)
            take(narrow, f"phone-overview-{theme}", folder)
            ask(narrow)
            take(narrow, f"phone-recall-{theme}", folder)
            rest(narrow, f"phone-{theme}", folder)


def ask(page: Page) -> None:
    """Ask on the page Recall, and wait for the answer."""
    page.click("nav >> text=Recall")
    page.fill("#question", QUESTION)
    page.click("main >> text=Ask")
    page.wait_for_selector("#h-prompt", timeout=60_000)


def rest(page: Page, theme: str, folder: Path) -> None:
    """The pages that the documentation does not show."""
    for name in ("Provider", "Outbox", "Conversations"):
        page.click(f"nav >> text={name}")
        take(page, f"{name.lower()}-{theme}", folder)
    page.click(".talks a >> nth=0")
    take(page, f"conversation-{theme}", folder)
    page.click("nav >> text=Notes")
    page.click("text=History >> nth=0")
    take(page, f"history-{theme}", folder)


def main() -> None:
    """Write the pictures."""
    options = argparse.ArgumentParser(description="Write docs/images/ui-*.png.")
    options.add_argument("--everything", action="store_true", help="all pages, both themes, phone")
    options.add_argument("--folder", type=Path, default=IMAGES)
    given = options.parse_args()
    chromium = shutil.which("chromium") or "/usr/bin/chromium"
    os.environ.pop("HERMES_HOME", None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder) / "hermes"
        home.mkdir()
        fill(home)
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        with served(home) as address:
            pictures(browser, address, given.folder, everything=given.everything)
        browser.close()


if __name__ == "__main__":
    main()
