"""`hermes-plugins chat`: a small terminal agent on any OpenAI-compatible endpoint.

Its loop, `answer`, is the example of docs/agents.md: the shortest agent with memory, tools and
streaming.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import click

from hermes_core import (
    Conversation,
    HermesError,
    MemoryManager,
    Turn,
    load_config,
    resolve_home,
)
from hermes_core.cli.output import amount, bold, note, paint, say, say_text, warn
from hermes_core.secrets import Secrets

if TYPE_CHECKING:
    from openai import OpenAI

_SYSTEM: Final = "You are a helpful assistant in a terminal. Answer in plain text."
_KEY: Final = "OPENAI_API_KEY"
#: How often the model may call tools in one turn. A model that never stops costs money.
_MOST_STEPS: Final = 20
#: Messages of a resumed conversation that the model gets. The others can be searched.
_MOST_RESUMED: Final = 200
_HELP: Final = """\
/new           end this conversation and start another
/resume [ID]   continue an earlier conversation; without ID, list the newest
/memory        show the notes
/why           show what was recalled for the last message, and from where
/quit          leave (or Ctrl-D)
Ctrl-C stops an answer; it is not stored then."""


class Reply:
    """One reply of the model while it streams. Iterate over it for its text."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._text: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def __iter__(self) -> Iterator[str]:
        for chunk in self._stream:
            delta = chunk.choices[0].delta if chunk.choices else None
            for part in (delta and delta.tool_calls) or ():
                self._add_call(part)
            if delta and delta.content:
                self._text.append(delta.content)
                yield delta.content

    def _add_call(self, part: Any) -> None:
        """Append a part of a tool call: a server sends its arguments in pieces."""
        call = self._calls.setdefault(part.index, {"name": "", "arguments": ""})
        call["id"] = part.id or call.get("id") or f"call-{part.index}"
        call["name"] += part.function.name or ""
        call["arguments"] += part.function.arguments or ""

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The tools that it calls, after the text has been read."""
        return list(self._calls.values())

    def message(self) -> dict[str, Any]:
        """The reply, for the next request."""
        functions = [
            {"id": each["id"], "type": "function", "function": _function(each)}
            for each in self.calls
        ]
        text: dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        return {**text, "tool_calls": functions} if functions else text


def _function(call: dict[str, Any]) -> dict[str, str]:
    return {"name": call["name"], "arguments": call["arguments"]}


def answer(client: OpenAI, model: str, turn: Turn) -> Iterator[str]:
    """Answer one turn: recall is in ``messages``, tools are called, and the turn is stored."""
    messages: Any = turn.messages(_SYSTEM)
    tools: Any = turn.tools
    for _ in range(_MOST_STEPS):
        request = client.chat.completions.create
        reply = Reply(request(model=model, messages=messages, tools=tools, stream=True))
        yield from turn.stream(reply)
        messages.append(reply.message())
        if not reply.calls:
            break
        for call in reply.calls:
            result = turn.call_tool(call["name"], call["arguments"], tool_call_id=call["id"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    turn.finish(messages=messages)


class _Chat:
    """The dialogue with the person at the terminal."""

    def __init__(self, memory: MemoryManager, client: OpenAI, model: str) -> None:
        self._memory = memory
        self._client = client
        self._model = model
        self._last: Turn | None = None

    def run(self, session_id: str) -> None:
        """Talk until the person leaves."""
        following: str | None = session_id
        while following:
            with self._memory.conversation(following, platform="cli") as talk:
                self._load(talk)
                following = self._talk(talk)

    def _load(self, talk: Conversation) -> None:
        """Continue where an earlier process, also one that crashed, left the conversation."""
        try:
            found = self._memory.session_messages(talk.session_id)
        except HermesError as error:
            warn(str(error))
            return
        said = [
            {"role": each["role"], "content": each["content"]}
            for each in found
            if each["role"] in ("user", "assistant") and each["content"]
        ]
        talk.history.extend(said[-_MOST_RESUMED:])
        if talk.history:
            note(f"resumed {talk.session_id}: {amount(len(talk.history), 'message')}")
            say_text(talk.history[-1]["content"])

    def _search(self, **arguments: Any) -> dict[str, Any]:
        found = json.loads(self._memory.handle_tool_call("session_search", arguments))
        return found if isinstance(found, dict) else {}

    def _talk(self, talk: Conversation) -> str | None:
        """Read and answer lines; return the session that follows, None at the end."""
        while (line := _typed()) is not None:
            word, _, rest = line.strip().partition(" ")
            if word == "/quit":
                return None
            if word == "/new":
                return _new_session()
            if word == "/resume":
                if following := self._resume(rest.strip()):
                    return following
            elif word.startswith("/"):
                self._command(word)
            elif word:
                self._answer(talk, line.strip())
        return None

    def _answer(self, talk: Conversation, text: str) -> None:
        import openai  # noqa: PLC0415 - an extra

        try:
            with talk.turn(text, model=self._model) as turn:
                self._last = turn
                for piece in answer(self._client, self._model, turn):
                    sys.stdout.write(piece)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            say()
            note("interrupted; this turn is not stored")
        except openai.OpenAIError as error:
            say()
            # Only the first line: some servers answer with a page.
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            warn(f"the model at {self._client.base_url} did not answer: {reason}")
        else:
            say()

    def _command(self, word: str) -> None:
        if word == "/memory":
            for target in ("memory", "user"):
                found = json.loads(
                    self._memory.handle_tool_call("memory", {"action": "read", "target": target})
                )
                say(bold(f"{target} ({found.get('usage', '')})"))
                for entry in found.get("entries", ()):
                    say_text(str(entry), "  - ", 4)
        elif word == "/why":
            self._why()
        else:
            if word != "/help":
                warn(f"no such command: {word}")
            say_text(_HELP)

    def _why(self) -> None:
        if self._last is None:
            say("Nothing was asked yet.")
            return
        recalled = self._last.recalled
        for outcome in recalled.outcomes:
            state = "" if outcome.error is None else f", failed: {outcome.error}"
            say(bold(f"{outcome.provider}") + f" ({outcome.seconds * 1000:.0f} ms{state})")
        say_text(
            recalled.text
            or "Nothing was recalled for the last message. The notes are in the prompt."
        )
        for each in recalled.left_out:
            say(f"left out: {each}")

    def _resume(self, session_id: str) -> str:
        """The session to continue; "" after a list of those that there are."""
        if session_id:
            if self._search(session_id=session_id).get("success"):
                return session_id
            warn(f"no such conversation: {session_id}")
        for each in self._search(limit=10).get("results", ()):
            say(f"{paint(each['session_id'], 'ok')}  {each.get('preview', '')[:60]}")
        return ""


def _typed() -> str | None:
    """A line of the person; None at the end of the input."""
    try:
        return input("> ")
    except EOFError:
        say()
        return None
    except KeyboardInterrupt:
        say()
        note("to leave, press Ctrl-D or type /quit")
        return ""


def _new_session() -> str:
    return f"chat-{time.strftime('%Y%m%d-%H%M%S')}-{uuid4().hex[:4]}"


def _client(home: str | None, base_url: str | None, key_name: str) -> OpenAI:
    try:
        from openai import OpenAI  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise HermesError(
            "chat needs the package openai", hint="run: pip install 'hermes-plugins[chat]'"
        ) from error
    config = load_config(resolve_home(home))
    stored = Secrets(config.home, config.secrets_backend).get(key_name)
    key = os.environ.get(key_name) or (stored.value if stored else "")
    if not key and not base_url:
        raise HermesError(
            f"{key_name} is not set",
            hint=f"run: hermes-plugins secrets set {key_name}, or name a local server: --base-url",
        )
    # The library wants some key; servers on your own machine ignore it.
    return OpenAI(base_url=base_url, api_key=key or "none")


@click.command("chat")
@click.option("--model", required=True, help="Name of the model on the server.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server; by default OpenAI's.")
@click.option(
    "--key", "key_name", default=_KEY, show_default=True, metavar="NAME",
    help="The secret with the API key.",
)  # fmt: skip
@click.option("--resume", "session_id", metavar="ID", help="Continue this conversation.")
@click.pass_obj
def chat(
    home: str | None, model: str, base_url: str | None, key_name: str, session_id: str | None
) -> None:
    """Talk with a model that has your memory."""
    client = _client(home, base_url, key_name)
    memory = MemoryManager.from_config(home)
    try:
        for each in (*memory.problems, *memory.warnings):
            warn(str(each))
        say("Type /help for commands.")
        _Chat(memory, client, model).run(session_id or _new_session())
    finally:
        memory.shutdown_all()
