"""Imports what Claude Code and Codex store: one JSON line per event, a file per session.

The files are read line by line, and messages are stored in small batches, so the size of a file
does not matter. An agent may be writing to its file: a line that is not JSON is skipped and
counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hermes_builtin.sessions.archive import (
    SUBAGENT,
    Archive,
    NewMessage,
    SessionFacts,
    content_text,
)
from hermes_builtin.sessions.session_merge import SessionMerge

CLAUDE_CODE: Final = "claude-code"
CODEX: Final = "codex"

#: A longer line has an image or a whole file in it; it is skipped and counted.
_LONGEST_LINE: Final = 32_000_000
#: Lines at the beginning of a file that are looked at to recognise it.
_LOOKED_AT: Final = 20
_CLAUDE_TYPES: Final = frozenset(
    ("user", "assistant", "system", "summary", "file-history-snapshot")
)
_CODEX_TYPES: Final = frozenset(("session_meta", "response_item", "event_msg", "turn_context"))
#: What Codex tells the model about the machine, in the name of the user.
_CODEX_CONTEXT: Final = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions")
#: Sessions of one file that are collected at the same time.
_MOST_OPEN: Final = 8

Adapt = Callable[[SessionFacts], SessionFacts]
AsImported = Callable[[NewMessage], NewMessage]
Bytes = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class AgentMessage:
    """A message of a file, and the session that it belongs to."""

    session: SessionFacts
    message: NewMessage


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was imported from a file."""

    sessions: int = 0
    messages: int = 0
    known: int = 0
    skipped: int = 0


def kind_of(path: Path) -> str:
    """Which agent wrote a file: "claude-code", "codex", or "" for neither."""
    with path.open("rb") as file:
        for _ in range(_LOOKED_AT):
            line = file.readline(_LONGEST_LINE)
            if not line or line.lstrip().startswith(b"["):  # an export, all of it in one line
                break
            entry = _parsed(line)
            if not isinstance(entry, dict):
                continue
            kind = entry.get("type")
            if kind in _CODEX_TYPES and isinstance(entry.get("payload"), dict):
                return CODEX
            if kind in _CLAUDE_TYPES and _is_claude(entry):
                return CLAUDE_CODE
    return ""


def _is_claude(entry: Mapping[str, Any]) -> bool:
    return any(key in entry for key in ("sessionId", "leafUuid", "parentUuid", "messageId"))


def import_transcript(
    archive: Archive,
    path: Path,
    kind: str,
    *,
    adapt: Adapt,
    as_imported: AsImported,
    progress: Bytes | None = None,
) -> Transcript:
    """Store the messages of a file that are not stored yet.

    Args:
        archive: Where they go.
        path: The file.
        kind: From `kind_of`.
        adapt: Says whose a session is.
        as_imported: Marks a message as imported.
        progress: Called with the place in the file.
    """
    reader = _Claude(path) if kind == CLAUDE_CODE else _Codex(path)
    done = _OpenSessions(archive, adapt)
    skipped = 0
    with path.open("rb") as file:
        for entry in _entries(file, progress):
            if entry is None:
                skipped += 1
                continue
            for said in reader.read(entry):
                done.of(said.session).add(as_imported(said.message))
    done.close(reader.title)
    return Transcript(done.sessions, done.messages, done.known, skipped)


class _OpenSessions:
    """The sessions that are being collected."""

    def __init__(self, archive: Archive, adapt: Adapt) -> None:
        self._archive = archive
        self._adapt = adapt
        self._merges: dict[str, SessionMerge] = {}
        self.sessions = self.messages = self.known = 0

    def of(self, facts: SessionFacts) -> SessionMerge:
        if facts.id not in self._merges:
            if len(self._merges) >= _MOST_OPEN:
                self._finish(next(iter(self._merges)), "")
            self._merges[facts.id] = SessionMerge(self._archive, self._adapt(facts))
        return self._merges[facts.id]

    def close(self, title: str) -> None:
        for name in list(self._merges):
            self._finish(name, title)

    def _finish(self, name: str, title: str) -> None:
        merge = self._merges.pop(name)
        merge.store()
        if title:
            merge.facts = merge.facts._replace(title=title)
            merge.store_facts()
        self.sessions += bool(merge.messages)
        self.messages += merge.messages
        self.known += merge.known


def _entries(file: Any, progress: Bytes | None) -> Iterator[dict[str, Any] | None]:
    """What each line has; None for one that can't be used."""
    while line := file.readline(_LONGEST_LINE):
        if not line.endswith(b"\n") and len(line) >= _LONGEST_LINE:
            _skip_line(file)
            yield None
        elif line.strip():
            entry = _parsed(line)
            yield entry if isinstance(entry, dict) else None
        if progress is not None:
            progress(file.tell())


def _skip_line(file: Any) -> None:
    while (rest := file.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
        pass


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _time(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _call(name: Any, call_id: Any, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    function = {"name": str(name or ""), "arguments": text}
    return {"id": str(call_id or ""), "type": "function", "function": function}


# -- Claude Code --------------------------------------------------------------------------------


class _Claude:
    """Reads lines of Claude Code: an envelope around a message in the form of Anthropic's API."""

    def __init__(self, path: Path) -> None:
        self._fallback = path.stem
        self.title = ""

    def read(self, entry: Mapping[str, Any]) -> Iterator[AgentMessage]:
        """The messages of a line."""
        kind = entry.get("type")
        if kind == "summary" and isinstance(entry.get("summary"), str):
            self.title = entry["summary"]
        said = entry.get("message")
        # Meta lines are what the program tells the model in the name of the user.
        if kind not in ("user", "assistant") or not isinstance(said, dict) or entry.get("isMeta"):
            return
        session = self._session(entry)
        at = _time(entry.get("timestamp"))
        for message in _blocks(str(said.get("role") or kind), said.get("content"), at):
            yield AgentMessage(session, message)

    def _session(self, entry: Mapping[str, Any]) -> SessionFacts:
        name = f"{CLAUDE_CODE}-{entry.get('sessionId') or self._fallback}"
        if not entry.get("isSidechain"):
            return SessionFacts(name, source=CLAUDE_CODE)
        agent = entry.get("agentId") or "subagent"
        return SessionFacts(f"{name}-{agent}", source=SUBAGENT, parent=name)


def _blocks(role: str, content: Any, at: float) -> Iterator[NewMessage]:
    """The messages that the blocks of one message are here: results of tools have their own."""
    if not isinstance(content, list):
        content = [{"type": "text", "text": content_text(content)}]
    texts, calls = [], []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else "text"
        if kind == "tool_result":
            text = content_text(block.get("content"))
            yield NewMessage(
                "tool", text, at, {"tool_call_id": str(block.get("tool_use_id") or "")}
            )
        elif kind == "tool_use":
            calls.append(_call(block.get("name"), block.get("id"), block.get("input")))
        elif kind not in ("thinking", "redacted_thinking"):
            texts.append(block)
    text = content_text(texts)
    if text.strip() or calls:
        yield NewMessage(role, text, at, {"tool_calls": calls} if calls else None)


# -- Codex ----------------------------------------------------------------------------------------


class _Codex:
    """Reads lines of Codex: what the model saw. What the screen showed is the same again."""

    title = ""

    def __init__(self, path: Path) -> None:
        self._session = SessionFacts(f"{CODEX}-{path.stem}", source=CODEX)

    def read(self, entry: Mapping[str, Any]) -> Iterator[AgentMessage]:
        """The messages of a line."""
        kind, payload = entry.get("type"), entry.get("payload")
        if not isinstance(payload, dict):
            return
        at = _time(entry.get("timestamp"))
        if kind == "session_meta" and payload.get("id"):
            name = f"{CODEX}-{payload['id']}"
            self._session = SessionFacts(
                name, source=CODEX, started=_time(payload.get("timestamp"))
            )
        elif kind == "response_item":
            message = _item(payload, at)
            if message is not None:
                yield AgentMessage(self._session, message)


def _item(item: Mapping[str, Any], at: float) -> NewMessage | None:
    match item.get("type"):
        case "message":
            role, text = str(item.get("role") or "other"), content_text(item.get("content"))
            is_context = role == "user" and text.startswith(_CODEX_CONTEXT)
            if role in ("developer", "system") or is_context or not text.strip():
                return None
            return NewMessage(role, text, at)
        case "function_call" | "custom_tool_call" as kind:
            given = item.get("arguments" if kind == "function_call" else "input") or ""
            call = _call(item.get("name"), item.get("call_id"), given)
            return NewMessage("assistant", "", at, {"tool_calls": [call]})
        case "function_call_output" | "custom_tool_call_output":
            text = content_text(item.get("output"))
            return NewMessage("tool", text, at, {"tool_call_id": str(item.get("call_id") or "")})
    return None
