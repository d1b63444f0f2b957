"""What adapters for many users share: a manager per session, and a framework that is missing."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hermes_adapters.people import MemoryOwner, SessionManagers, change_note, matching_notes, notes

ANN = MemoryOwner("shop", "ann")

MISSING = """
import importlib.metadata, sys, warnings
real = importlib.metadata.version
def version(name):
    if name in {hidden!r}:
        raise importlib.metadata.PackageNotFoundError(name)
    return {versions!r}.get(name) or real(name)
importlib.metadata.version = version
import hermes_adapters
assert not {{"langgraph", "langchain", "google.adk", "mcp"}} & set(sys.modules)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    try:
        import hermes_adapters.{module}
        import hermes_adapters.{module}
    except ImportError as error:
        print(error)
    print(*(str(each.message) for each in seen if "hermes-plugins" in str(each.message)), sep="\\n")
"""


def imported(module: str, hidden: tuple[str, ...] = (), **versions: str) -> str:
    code = MISSING.format(module=module, hidden=hidden, versions=versions)
    return subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("module", "package"),
    [("langgraph", "langgraph"), ("langgraph", "langchain"), ("adk", "google-adk")],
)
def test_a_missing_framework_names_the_command(module: str, package: str) -> None:
    said = imported(module, (package,))
    assert f"{package} is not installed" in said
    assert f"pip install 'hermes-plugins[{module}]'" in said


def test_another_version_warns_once() -> None:
    assert imported("langgraph", langgraph="9.1.0").count("langgraph 9.1.0 is not tested") == 1


def test_a_session_is_lent_to_one_at_a_time(tmp_path: Path) -> None:
    memories = SessionManagers(tmp_path)
    order: list[str] = []

    def second() -> None:
        with memories.session("s", ANN):
            order.append("second")

    with memories.session("s", ANN):
        waiting = threading.Thread(target=second)
        waiting.start()
        with memories.session("other", ANN):  # another session does not wait
            order.append("first")
    waiting.join()
    assert order == ["first", "second"]
    memories.close()


def test_sessions_that_nobody_uses_are_shut_down(tmp_path: Path) -> None:
    memories = SessionManagers(tmp_path, most=2)
    seen = []
    for number in range(4):
        with memories.session(f"s{number}", ANN) as manager:
            seen.append(manager)
    states = [each.shutdown_drain_state["status"] for each in seen]
    assert states == ["drained", "drained", "not_started", "not_started"]
    with memories.session("s3", ANN) as manager:
        assert manager is seen[3]
    memories.close()
    assert seen[3].shutdown_drain_state["status"] == "drained"


def test_who_it_is() -> None:
    assert MemoryOwner.of("", "", "x") == MemoryOwner("cli", "")
    assert MemoryOwner.of("", "ann", "x") == MemoryOwner("x", "ann")
    assert MemoryOwner.of("shop", "ann", "x") == ANN
    with pytest.raises(ValueError, match="user_id is needed"):
        MemoryOwner.of("shop", "", "x")
    with pytest.raises(TypeError):
        MemoryOwner.of("shop", 5, "x")  # type: ignore[arg-type]


def test_notes_are_changed_by_their_ids(tmp_path: Path) -> None:
    memories = SessionManagers(tmp_path)
    with memories.session("s", MemoryOwner()) as manager:
        change_note(manager, "memory", "", "The server is stage-1.")
        change_note(manager, "user", "", "Likes green tea.")
        [note] = notes(manager, "memory")
        change_note(manager, "memory", note.text, "The server is stage-2.")
        assert [each.text for each in matching_notes(manager, "which servers?")] == [
            "The server is stage-2."
        ]
        change_note(manager, "user", "Likes green tea.", "")
        assert notes(manager, "user") == []
        with pytest.raises(ValueError):
            change_note(manager, "memory", "", "x" * 5000)
    memories.close()
