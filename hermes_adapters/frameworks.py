"""What the adapters share: the check of a framework's version, and one session of one person."""

from __future__ import annotations

import logging
import os
import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from packaging.specifiers import SpecifierSet

from hermes_core import (
    AsyncConversation,
    AsyncMemoryManager,
    AsyncTurn,
    HermesError,
    Messages,
    StreamScrubber,
)

logger = logging.getLogger("hermes_adapters")


class FrameworkMissing(HermesError, ImportError):  # noqa: N818 - reads as what happened
    """The framework of an adapter is not installed."""


def require(distribution: str, *, extra: str, tested: str) -> None:
    """Check that a framework is there; call it before the adapter imports the framework.

    Args:
        distribution: Its name on the package index, such as "openai-agents".
        extra: The extra of hermes-plugins that installs it.
        tested: The versions with which the adapter's tests pass, such as ">=0.24,<0.25".

    Raises:
        FrameworkMissing: It is not installed; the hint has the command that installs it.
    """
    try:
        found = version(distribution)
    except PackageNotFoundError as error:
        raise FrameworkMissing(
            f"{distribution} is not installed", hint=f"run: pip install 'hermes-plugins[{extra}]'"
        ) from error
    if not SpecifierSet(tested).contains(found, prereleases=True):
        # Python shows a warning once per place, and a module is imported once.
        warnings.warn(
            f"{distribution} {found} is not tested with hermes-plugins (tested: {tested})",
            stacklevel=2,
        )


def scrubbed(text: str) -> str:
    """Return a text without recalled text that the model repeats."""
    scrubber = StreamScrubber()
    return scrubber.feed(text) + scrubber.flush()


class SessionMemory:
    """The memory of one session of one person, for a framework that runs the loop itself.

    It opens on first use, because frameworks create their objects outside of an event loop.

    Args:
        session_id: The session.
        memory: Your own manager, which you shut down yourself; by default one is created for
            this session.
        home: HERMES_HOME of the manager that is created.
        end_session: Whether `close` ends the session.
        **who: Who talks, as for `MemoryManager.conversation`: ``platform``, ``user_id``, ...
    """

    def __init__(
        self,
        session_id: str,
        *,
        memory: AsyncMemoryManager | None = None,
        home: str | os.PathLike[str] | None = None,
        end_session: bool = True,
        **who: Any,
    ) -> None:
        self.session_id = session_id
        self.schemas: list[dict[str, Any]] = []
        self.turn: AsyncTurn | None = None
        self._given = memory
        self._home = home
        self._end_session = end_session
        self._who = who
        self._memory: AsyncMemoryManager | None = None
        self._talk: AsyncConversation | None = None

    @property
    def memory(self) -> AsyncMemoryManager:
        """The manager, after `open`."""
        if self._memory is None:
            raise HermesError("this session is not open", hint="use: async with ... as session")
        return self._memory

    @property
    def prompt(self) -> str:
        """The memory's part of the system prompt, after `open`."""
        return self._talk.prompt if self._talk is not None else ""

    @property
    def is_open(self) -> bool:
        """Whether `open` was called, and `close` was not called since."""
        return self._talk is not None

    async def open(self) -> None:
        """Start the session, unless it is open."""
        if self._talk is None:
            self._memory = self._given or await AsyncMemoryManager.from_config(self._home)
            await self.switch(self.session_id)
            self.schemas = await self._memory.get_all_tool_schemas()

    async def switch(self, session_id: str) -> None:
        """Leave the session for another one of the same person."""
        await self._leave()
        talk = self.memory.conversation(session_id, end_session=self._end_session, **self._who)
        self._talk = await talk.__aenter__()

    async def begin(self, text: str) -> AsyncTurn:
        """Start a turn and recall for it; one that is still open counts as interrupted."""
        await self.open()
        await self.interrupt()
        assert self._talk is not None  # noqa: S101 - `open` has set it
        self.turn = await self._talk.turn(text).__aenter__()
        return self.turn

    async def finish(self, answer: str, messages: Messages) -> None:
        """Store the open turn; ``messages`` are those behind the user's."""
        turn, self.turn = self.turn, None
        if turn is not None:
            await turn.finish(answer, messages=messages)

    async def interrupt(self) -> None:
        """End the open turn, if there is one, without storing it."""
        turn, self.turn = self.turn, None
        if turn is not None:
            await turn.__aexit__(None, None, None)

    async def report(self, tool: str, content: Any) -> None:
        """Report what another tool than the memory's returned: its words are not the user's."""
        if tool not in {each["name"] for each in self.schemas}:
            await self.memory.on_tool_result(tool, content)

    async def earlier(self, session_id: str = "") -> list[dict[str, str]]:
        """Return what user and assistant said in a session before, without tools."""
        await self.open()
        try:
            stored = await self.memory.session_messages(session_id or self.session_id)
        except HermesError as error:
            # A conversation without its past is better than none; its turns wait in the spool.
            logger.warning("the history of %s can't be read: %s", self.session_id, error)
            return []
        return [
            {"role": each["role"], "content": each["content"]}
            for each in stored
            if each["role"] in ("user", "assistant") and each["content"]
        ]

    async def _leave(self) -> None:
        await self.interrupt()
        talk, self._talk = self._talk, None
        if talk is not None:
            await talk.__aexit__(None, None, None)

    async def close(self) -> None:
        """End the session, and shut the manager down if it was created here."""
        await self._leave()
        memory, self._memory = self._memory, None
        if memory is not None and memory is not self._given:
            await memory.shutdown_all()
