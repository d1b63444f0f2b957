"""Damages an archive in many ways, one after the other, and asks it everything each time.

Arguments: a folder, the sound archive. Standard input: a JSON list of [kind, place, value].
Prints a JSON list of what went wrong, each case with its reason.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from hermes_builtin import BuiltinProvider
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core.errors import HermesError
from support.archives import rare_word

SECONDS = 5
SESSIONS, TURNS = 3, 2
QUESTIONS: list[dict[str, Any]] = [
    *({"query": rare_word(s, t)} for s in range(SESSIONS) for t in range(TURNS)),
    *({"session_id": f"talk-{number}"} for number in range(SESSIONS)),
    {"query": "日本"},
    {"query": "thing", "limit": 10},
    {"query": "weath*", "role_filter": "tool"},
    {"limit": 10},
]

TIMES = ("timestamp", "when", "started_at", "last_active")
REMARKS = ("approximate", "message")


def damaged(content: bytes, kind: str, place: int, value: int) -> bytes:
    """Bit pattern `value` flipped at a byte; or cut off there; or zeroes from there on."""
    if kind == "cut":
        return content[:place]
    if kind == "zeroes":
        return content[:place] + bytes(value) + content[place + value :]
    return content[:place] + bytes([content[place] ^ value]) + content[place + 1 :]


def answers(home: Path) -> list[Any]:
    """What the tool says to every question."""
    provider = BuiltinProvider()
    provider.initialize("asking", hermes_home=str(home), platform="cli", user_id="ann")
    try:
        return [json.loads(provider.handle_tool_call("session_search", q)) for q in QUESTIONS]
    finally:
        provider.shutdown()


def take_a_turn(home: Path) -> None:
    """A turn that is taken can be read, or reading is an error; it is not just gone."""
    provider = BuiltinProvider()
    provider.initialize("later", hermes_home=str(home), platform="cli")
    try:
        with suppress(HermesError):
            provider.sync_turn("Is it still there?", "It is.")
            answer = json.loads(
                provider.handle_tool_call("session_search", {"session_id": "later"})
            )
            if answer["success"]:
                said = [each["content"] for each in answer["messages"]]
                assert said[-2:] == ["Is it still there?", "It is."], answer
            else:
                assert "not found" not in answer["error"], answer
    finally:
        provider.shutdown()


def checked(path: Path) -> list[str]:
    with closing(SqliteArchive(path)) as archive:
        try:
            return [problem.what for problem in archive.check()]
        except HermesError as error:
            return [str(error)]


def without(value: Any, keys: tuple[str, ...]) -> Any:
    """The same without some keys, and without an order."""
    if isinstance(value, dict):
        return {key: without(each, keys) for key, each in value.items() if key not in keys}
    if isinstance(value, list):
        return sorted((without(each, keys) for each in value), key=json.dumps)
    return value


def change(got: dict[str, Any], right: dict[str, Any]) -> str:
    """What an answer lies about: hits, text or times; "" if it does not."""
    named = [
        sorted(each["session_id"] for each in answer.get("results", ())) for answer in (got, right)
    ]
    if named[0] != named[1]:
        return "hits"
    if without(got, (*TIMES, *REMARKS)) != without(right, (*TIMES, *REMARKS)):
        return "text"
    return "" if without(got, REMARKS) == without(right, REMARKS) else "times"


def one(home: Path, expected: list[Any]) -> str:
    """What is wrong with the archive's behaviour, or ""."""
    problems = checked(home / "state.db")
    told = answers(home)
    for question, got, right in zip(QUESTIONS, told, expected, strict=True):
        if not got["success"]:
            assert got["error"], got
        elif not problems and (what := change(got, right)):
            return f"unreported {what}: {question} is answered with {got}"
    take_a_turn(home)
    return ""


def in_a_child(home: Path, expected: list[Any]) -> str:
    """The same in a process of its own, which may crash or hang."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)  # ends it, wherever it is
        try:
            problem = one(home, expected)
        except BaseException:
            problem = traceback.format_exc(limit=-4)
        os.write(send, problem.encode("utf-8", "replace")[:4000])
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        problem = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        hung = os.WTERMSIG(status) == signal.SIGALRM
        return "it hangs" if hung else f"it crashes: signal {os.WTERMSIG(status)}"
    return problem


def main() -> None:
    folder, template = Path(sys.argv[1]), Path(sys.argv[2])
    content = template.read_bytes()
    state = folder / "state.db"
    state.write_bytes(content)
    expected = answers(folder)
    assert all(answer["success"] for answer in expected), expected
    wrong = []
    for kind, place, value in json.load(sys.stdin):
        shutil.rmtree(folder / "spool", ignore_errors=True)  # turns for the last case's archive
        for name in folder.iterdir():
            name.unlink()
        state.write_bytes(damaged(content, kind, place, value))
        problem = in_a_child(folder, expected)
        if problem:
            wrong.append([kind, place, value, problem])
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
