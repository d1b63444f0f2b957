"""Homes and pages for the tests of `hermes-plugins ui`: a filled home, and a browser's session."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from hermes_core import MemoryManager
from hermes_inspector.pages import application
from hermes_inspector.security import Access
from support.sites import add_directory
from support.storages import Storage

WRONG = "The staging server is stage-1."
RIGHT = "The staging server is stage-2."
PORT = 8123

#: A provider with a store of its own, which recalls, mirrors notes and forgets.
PROVIDER = """
import json
from pathlib import Path
from hermes_core import ForgetItem, ForgetReport, MemoryProvider

class Provider(MemoryProvider):
    name = "{name}"
    confirms_delivery = True

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        {before}
        self._file = Path(kwargs["hermes_home"]) / "{name}.json"

    def _facts(self):
        return json.loads(self._file.read_text("utf-8")) if self._file.exists() else []

    def _store(self, facts):
        self._file.write_text(json.dumps(facts), "utf-8")

    def get_tool_schemas(self):
        query = {{"type": "object", "properties": {{"query": {{"type": "string"}}}}}}
        text = "Search the facts."
        return [{{"name": "{name}_search", "description": text, "parameters": query}}]

    def handle_tool_call(self, tool_name, args, **kwargs):
        return json.dumps(self._facts())

    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        {on_turn}

    def on_memory_write(self, action, target, content, metadata=None):
        old = (metadata or {{}}).get("old_text", "")
        facts = [each for each in self._facts() if each != old]
        self._store(facts if action == "remove" else [*facts, content])

    def prefetch(self, query, *, session_id=""):
        {on_recall}
        return "\\n".join("- " + each for each in self._facts())

    def forget(self, request):
        facts = self._facts()
        gone = [each for each in facts if request.text and request.text.lower() in each.lower()]
        if request.delete:
            self._store([each for each in facts if each not in gone])
        return ForgetReport((ForgetItem("facts", len(gone)),))

def register(ctx):
    ctx.register_memory_provider(Provider())
"""


def add_provider(
    home: Path,
    name: str = "facts",
    *,
    before: str = "pass",
    on_turn: str = "pass",
    on_recall: str = "pass",
    facts: tuple[str, ...] = (),
) -> None:
    """Install the provider in a home, with some facts; it is not enabled."""
    import json

    source = PROVIDER.format(name=name, before=before, on_turn=on_turn, on_recall=on_recall)
    add_directory(home, name, source)
    (home / f"{name}.json").write_text(json.dumps(list(facts)), "utf-8")


def configure(home: Path, memory: str = "") -> None:
    """Write config.yaml, with the storage of the running test."""
    home.mkdir(exist_ok=True)
    text = f"memory:\n{Storage.current.config}{memory}"
    (home / "config.yaml").write_text(text if text.strip() != "memory:" else "", "utf-8")


def fill(home: Path) -> None:
    """Some conversations and notes, as an agent leaves them."""
    manager = MemoryManager.from_config(home)
    manager.initialize_all("monday", platform="cli")
    manager.on_turn_start(1, f"Remember: {WRONG}")
    manager.handle_tool_call("memory", {"action": "add", "target": "memory", "content": WRONG})
    manager.sync_all(f"Remember: {WRONG}", "Saved. I will deploy to stage-1.", session_id="monday")
    manager.sync_all("How do we deploy billing?", "With make release.", session_id="monday")
    user = {"action": "add", "target": "user", "content": "Prefers short answers."}
    manager.handle_tool_call("memory", user)
    manager.shutdown_all()


class Browser:
    """A browser without JavaScript, on a page in this process."""

    def __init__(self, folder: Path) -> None:
        self.access = Access("127.0.0.1", PORT)
        self._page, self.site = application(folder, self.access)
        self.client = TestClient(
            self._page, base_url=self.access.origin, follow_redirects=True, headers={"origin": ""}
        )
        del self.client.headers["origin"]
        self.home = folder

    def enter(self) -> Browser:
        """Open the first address."""
        answer = self.client.get(f"/?token={self.access.token}")
        assert answer.status_code == 200
        return self

    def get(self, path: str, status: int = 200) -> str:
        answer = self.client.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer.text

    def post(self, path: str, status: int = 200, **fields: Any) -> str:
        """Send a form as the page's own does; gives the page that follows."""
        answer = self.client.post(
            path,
            data={"csrf": self.access.csrf, **fields},
            headers={"origin": self.access.origin},
        )
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        self.address = str(answer.url)
        return answer.text

    def finished(self, path: str = "", seconds: float = 120.0) -> str:
        """Load the last page again until nothing runs in the background."""
        path = path or self.address.removeprefix(self.access.origin)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            text = self.get(path)
            if 'class="working"' not in text and "Checking now" not in text:
                return text
            time.sleep(0.1)
        raise AssertionError(f"it still runs: {path}")

    def idle(self, seconds: float = 120.0) -> None:
        """Wait until no job runs."""
        wait(lambda: not any(each.running for each in self.site.jobs._jobs.values()), seconds)

    def close(self) -> None:
        self.site.close()
        self.client.close()


def wait(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait for a condition; fails after a time that no healthy machine needs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def field(text: str, name: str) -> str:
    """The value of the first hidden field of this name."""
    found = re.search(rf'name="{name}" value="([^"]*)"', text)
    assert found, name
    return found[1]


def version_of(text: str, note: str) -> str:
    """The version of a note on a page."""
    part = text[text.index(note) :]
    return field(part, "version")
