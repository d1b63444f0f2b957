"""`Conversation` and `Turn`: the life cycle of a conversation as two context managers.

They make the calls of `MemoryManager` in the right order, so that a loop can't get it wrong::

    with memory.conversation("session-1", platform="cli") as talk:
        with talk.turn("How do we deploy?") as turn:
            reply = model(turn.messages("You are a helpful agent."), tools=turn.tools)
            turn.finish(reply.text)

`AsyncConversation` and `AsyncTurn` are the same for an event loop.
"""

from __future__ import annotations

import json
from asyncio import CancelledError
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from hermes_core.errors import HermesError
from hermes_core.fence import StreamScrubber, defuse
from hermes_core.manager.recall import Recollection
from hermes_core.session import SessionContext

if TYPE_CHECKING:
    from hermes_core.hookspecs import Messages
    from hermes_core.manager import MemoryManager
    from hermes_core.manager.asynchronous import CallQueue

#: What a manager keeps for its whole life: providers connect with it in ``initialize``.
_FIXED: Final = ("platform", "agent_context", "agent_identity", "agent_workspace")
_NOTHING_RECALLED: Final = Recollection("", (), ())


class _Exchange:
    """One turn as text: what is sent to the model, and what is stored. It calls nobody."""

    def __init__(self, text: str, number: int, history: Messages, prompt: str) -> None:
        self.text = text
        self.number = number
        self.recalled = _NOTHING_RECALLED
        self.nudge = ""
        self.is_open = True
        self.tools: list[dict[str, Any]] = []
        self._history = history
        self._prompt = prompt
        self._scrubber = StreamScrubber()
        self._shown: list[str] = []

    def set_recall(self, recalled: Recollection, nudge: str, schemas: list[dict[str, Any]]) -> None:
        """Set what the memory adds to this turn."""
        self.recalled, self.nudge = recalled, nudge
        self.tools = [{"type": "function", "function": schema} for schema in schemas]

    def request(self, system: str, history: Messages | None) -> Messages:
        """Return the messages for the model: a copy, with recalled text at the end."""
        prompt = "\n\n".join(filter(None, (system, self._prompt)))
        before = self._history if history is None else history
        return [
            *([{"role": "system", "content": prompt}] if prompt else []),
            *map(_defused, before),
            {"role": "user", "content": self._sent()},
        ]

    def _sent(self) -> str:
        """The user's message, as the model gets it."""
        return "\n\n".join(filter(None, (defuse(self.text), self.context)))

    @property
    def context(self) -> str:
        """What is sent behind the user's message."""
        return "\n\n".join(filter(None, (self.recalled.text, self.nudge)))

    def new_answer(self) -> None:
        """Forget what was shown: a model that called tools starts its answer again."""
        self._scrubber.reset()
        self._shown.clear()

    def show(self, chunk: str) -> str:
        """Return what of a chunk can be shown now, and remember it."""
        return self._keep(self._scrubber.feed(chunk))

    def show_rest(self) -> str:
        """Return what was held back at the end of the stream."""
        return self._keep(self._scrubber.flush())

    def _keep(self, text: str) -> str:
        self._shown.append(text)
        return text

    def answer(self, given: str | None) -> str:
        """Return the agent's answer: what was passed, without an echoed block, or streamed."""
        if given is None:
            return "".join(self._shown)
        scrubber = StreamScrubber()
        return scrubber.feed(given) + scrubber.flush()

    def stored(self, answer: str, messages: Messages | None) -> Messages:
        """Return the messages of this turn as they were said, without anything recalled.

        ``messages`` may be the whole request with what followed it: what precedes the turn, and
        what this object added to it, is removed.
        """
        mine = {"role": "user", "content": self.text}
        given = [dict(each) for each in messages or ()]
        sent = self._sent()
        starts = [at for at, each in enumerate(given) if _says(each, "user", sent, self.text)]
        turn = [mine, *given[starts[-1] + 1 :]] if starts else [mine, *given]
        if turn[-1].get("role") != "assistant" or turn[-1].get("tool_calls"):
            turn.append({"role": "assistant", "content": answer})
        else:
            turn[-1]["content"] = answer
        return turn

    def end(self) -> None:
        """From now on nothing belongs to this turn."""
        self.is_open = False

    def check_open(self) -> None:
        """Raise `HermesError` after the end."""
        if not self.is_open:
            raise HermesError(
                f"turn {self.number} has ended", hint="start another: with talk.turn(text) as turn"
            )


def _says(message: Mapping[str, Any], role: str, *texts: str) -> bool:
    return message.get("role") == role and message.get("content") in texts


def _defused(message: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a message; what a user wrote must not look like recalled text."""
    copy = dict(message)
    if copy.get("role") == "user" and isinstance(copy.get("content"), str):
        copy["content"] = defuse(copy["content"])
    return copy


def _arguments(args: Mapping[str, Any] | str) -> dict[str, Any] | None:
    """Return the arguments of a tool call, which model APIs pass as JSON; None if they are not."""
    if not isinstance(args, str):
        return dict(args)
    try:
        found = json.loads(args or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _not_json(args: Any) -> str:
    """The answer to a tool call whose arguments can't be read; the model can try again."""
    error = f"the arguments are not a JSON object: {str(args)[:80]}"
    return json.dumps({"success": False, "error": error})


class ConversationSlot:
    """The place of a manager's open conversation: there is at most one."""

    def __init__(self) -> None:
        self.current: Conversation | None = None
        self.before: SessionContext | None = None

    def enter(self, memory: MemoryManager, talk: Conversation, who: Mapping[str, Any]) -> None:
        """Start a session, or change to it behind the writes of the one before.

        Raises:
            HermesError: Another conversation is open, or it differs in something that a manager
                can't change.
        """
        if self.current is not None:
            raise HermesError(
                f"this manager is in the conversation {self.current.session_id!r}",
                hint="leave it first, or use another manager: MemoryManager.from_config()",
            )
        if self.before is None:
            memory.initialize_all(talk.session_id, **who)
        else:
            changes = _changes(self.before, who)
            memory.on_session_switch(talk.session_id, reset=True, reason="new_session", **changes)
        self.current = talk
        self.before = self.before or SessionContext.from_keywords(talk.session_id, who)


def _changes(before: SessionContext, who: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords with which a conversation follows another of its manager."""
    for name in _FIXED:
        if name in who and who[name] != getattr(before, name):
            raise HermesError(
                f"{name} of this manager is {getattr(before, name)!r}, not {who[name]!r}",
                hint="use another manager: MemoryManager.from_config()",
            )
    given = {name: each for name, each in who.items() if name not in _FIXED}
    # What the conversation before it knew is not known of this one.
    return {"user_id": "", "chat_id": "", "session_title": "", **given}


class Conversation:
    """One conversation of a manager; `MemoryManager.conversation` returns it.

    Entering it starts the session at every provider, leaving it ends the session. The manager stays
    open: it can have one conversation after the other, and `MemoryManager.shutdown_all` ends it.

    Attributes:
        session_id: The session.
        history: What was said in finished turns, without anything recalled. You can put earlier
            messages of a resumed session here.
    """

    def __init__(
        self,
        memory: MemoryManager,
        slot: ConversationSlot,
        session_id: str,
        who: Mapping[str, Any],
        *,
        end_session: bool,
    ) -> None:
        if not session_id or not isinstance(session_id, str):
            raise HermesError("a conversation needs a session id", hint='for example "session-1"')
        self.session_id = session_id
        self.history: list[dict[str, Any]] = []
        self._memory = memory
        self._slot = slot
        self._who = dict(who)
        self._end_session = end_session
        self._prompt = ""
        self._turns = 0
        self._exchange: _Exchange | None = None

    def __enter__(self) -> Self:
        self._slot.enter(self._memory, self, self._who)
        self._prompt = self._memory.build_system_prompt()
        return self

    @property
    def prompt(self) -> str:
        """The memory's part of the system prompt, which stays the same for the conversation."""
        return self._prompt

    def turn(self, text: str, **about: Any) -> Turn:
        """Return the next turn, to be used in a ``with`` statement.

        Args:
            text: What the user said.
            **about: Passed to `MemoryManager.on_turn_start`, such as ``model`` or ``author_id``.
        """
        return Turn(self._memory, self, self._begin_turn, text, about)

    def _begin_turn(self, text: str) -> _Exchange:
        """Start the next turn.

        Raises:
            HermesError: The turn before it is still open, the conversation is not, or ``text`` is
                not text.
        """
        if self._slot.current is not self:
            raise HermesError(
                "this conversation is not open",
                hint="use: with memory.conversation(session_id) as talk",
            )
        if not isinstance(text, str):
            raise HermesError(f"a turn begins with text, not with {type(text).__name__}")
        if self._exchange is not None and self._exchange.is_open:
            raise HermesError(
                f"turn {self._turns} is still open", hint="leave its `with` block first"
            )
        self._turns += 1
        self._exchange = _Exchange(text, self._turns, self.history, self._prompt)
        return self._exchange

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._slot.current = None
        if self._exchange is not None:
            self._exchange.end()
        if self._end_session and self.history:
            self._memory.on_session_end(self.history)


class Turn:
    """One turn: recall before the model, tools, and storing it afterwards.

    If you leave it without `finish`, for example by an exception, it counts as interrupted and is
    not stored.
    """

    def __init__(
        self,
        memory: MemoryManager,
        talk: Conversation,
        begin: Callable[[str], _Exchange],
        text: str,
        about: Mapping[str, Any],
    ) -> None:
        self._memory = memory
        self._talk = talk
        self._begin_turn = begin
        self._given = (text, about)
        self._exchange: _Exchange | None = None

    def __enter__(self) -> Self:
        text, about = self._given
        exchange = self._exchange = self._begin_turn(text)
        memory = self._memory
        try:
            memory.on_turn_start(exchange.number, text, **about)
            recalled, nudge = memory.recall(text), memory.pending_nudge()
            exchange.set_recall(recalled, nudge, memory.get_all_tool_schemas())
        except BaseException:  # Ctrl-C: `__exit__` is not called, and the next turn must begin
            exchange.end()
            raise
        return self

    @property
    def _now(self) -> _Exchange:
        if self._exchange is None:
            raise HermesError("this turn has not begun", hint="use: with talk.turn(text) as turn")
        return self._exchange

    @property
    def recalled(self) -> Recollection:
        """What was recalled for this turn, from whom, and what was left out."""
        return self._now.recalled

    @property
    def context(self) -> str:
        """What `messages` appends to the user's message: recalled text, and a reminder at times."""
        return self._now.context

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The memory's tools, in the form that OpenAI-compatible APIs take."""
        return self._now.tools

    def messages(self, system: str = "", history: Messages | None = None) -> Messages:
        """Return the messages to send to the model.

        Args:
            system: Your own system prompt; the memory's part is appended.
            history: The messages before this turn; by default those of this conversation.

        Returns:
            A new list: system prompt, history, and the user's message with the recalled text.
            Append the model's tool calls and their results to it, and pass it to `finish`.
        """
        return self._now.request(system, history)

    def call_tool(self, name: str, args: Mapping[str, Any] | str, **about: Any) -> str:
        """Run one of `tools`; always returns a JSON string.

        Args:
            name: The tool.
            args: Its arguments, or the JSON text that the model wrote.
            **about: Passed to `MemoryManager.handle_tool_call`, such as ``tool_call_id``.
        """
        self._now.check_open()
        arguments = _arguments(args)
        if arguments is None:
            return _not_json(args)
        return self._memory.handle_tool_call(name, arguments, **about)

    def stream(self, chunks: Iterable[str]) -> Iterator[str]:
        """Yield what can be shown of an answer, without recalled text that the model repeats.

        Call it once per reply of the model. `finish` without a text takes the last one.
        """
        self.new_answer()
        for chunk in chunks:
            if shown := self.show(chunk):
                yield shown
        if rest := self.show_rest():
            yield rest

    def new_answer(self) -> None:
        """Start an answer; `stream` calls it."""
        self._now.new_answer()

    def show(self, chunk: str) -> str:
        """Return what can be shown of the next chunk of an answer; `stream` calls it."""
        return self._now.show(chunk)

    def show_rest(self) -> str:
        """Return what was held back when the stream ends; `stream` calls it."""
        return self._now.show_rest()

    def finish(self, answer: str | None = None, *, messages: Messages | None = None) -> None:
        """Store the turn.

        Args:
            answer: What the agent answered; by default what `stream` yielded.
            messages: The list of `messages` with what followed, or the messages after the user's.
        """
        self._now.check_open()
        text = self._now.answer(answer)
        said = self._now.stored(text, messages)
        self._now.end()
        self._memory.sync_all(self._now.text, text, messages=said)
        self._memory.queue_prefetch_all(self._now.text)
        self._talk.history.extend(said)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.interrupt()

    def interrupt(self) -> None:
        """End the turn without storing it, unless it is finished."""
        if self._exchange is not None and self._exchange.is_open:
            self._exchange.end()
            answer = self._exchange.answer(None)
            self._memory.sync_all(self._exchange.text, answer, interrupted=True)


class AsyncConversation:
    """A `Conversation` of an `AsyncMemoryManager`, for ``async with``."""

    def __init__(self, conversation: Conversation, calls: CallQueue) -> None:
        self._conversation = conversation
        self._calls = calls

    @property
    def session_id(self) -> str:
        """The session."""
        return self._conversation.session_id

    @property
    def history(self) -> list[dict[str, Any]]:
        """What was said in finished turns, without anything recalled."""
        return self._conversation.history

    @property
    def prompt(self) -> str:
        """The memory's part of the system prompt, which stays the same for the conversation."""
        return self._conversation.prompt

    async def __aenter__(self) -> Self:
        try:
            await self._calls.run_always(self._conversation.__enter__)
        except CancelledError:  # the session has begun or is about to: it ends right after that
            self._calls.submit(partial(self._conversation.__exit__, None, None, None))
            raise
        return self

    def turn(self, text: str, **about: Any) -> AsyncTurn:
        """Return the next turn, to be used in an ``async with`` statement."""
        return AsyncTurn(self._conversation.turn(text, **about), self._calls)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        leave = partial(self._conversation.__exit__, None, None, None)
        await self._calls.run_always(leave)


class AsyncTurn:
    """A `Turn` whose methods are awaited. If its task is cancelled, it counts as interrupted."""

    def __init__(self, turn: Turn, calls: CallQueue) -> None:
        self._turn = turn
        self._calls = calls

    async def __aenter__(self) -> Self:
        try:
            await self._calls.run_always(self._turn.__enter__)
        except CancelledError:
            self._calls.submit(self._turn.interrupt)
            raise
        return self

    @property
    def recalled(self) -> Recollection:
        """What was recalled for this turn, from whom, and what was left out."""
        return self._turn.recalled

    @property
    def context(self) -> str:
        """What `messages` appends to the user's message: recalled text, and a reminder at times."""
        return self._turn.context

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The memory's tools, in the form that OpenAI-compatible APIs take."""
        return self._turn.tools

    def messages(self, system: str = "", history: Messages | None = None) -> Messages:
        """Return the messages to send to the model; see `Turn.messages`."""
        return self._turn.messages(system, history)

    async def call_tool(self, name: str, args: Mapping[str, Any] | str, **about: Any) -> str:
        """Run one of `tools`; always returns a JSON string. See `Turn.call_tool`."""
        return await self._calls.run(partial(self._turn.call_tool, name, args, **about))

    async def stream(self, chunks: AsyncIterable[str]) -> AsyncIterator[str]:
        """Yield what can be shown of an answer; see `Turn.stream`."""
        self._turn.new_answer()
        async for chunk in chunks:
            if shown := self._turn.show(chunk):
                yield shown
        if rest := self._turn.show_rest():
            yield rest

    async def finish(self, answer: str | None = None, *, messages: Messages | None = None) -> None:
        """Store the turn; when this returns, it is on disk. See `Turn.finish`."""
        copy = None if messages is None else [*messages]  # the host may change its own meanwhile
        await self._calls.run_always(partial(self._turn.finish, answer, messages=copy))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._calls.run_always(self._turn.interrupt)
