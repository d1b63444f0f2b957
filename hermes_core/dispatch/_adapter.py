"""One adapter per provider: the pluggy plugin whose hookimpls call the provider's methods.

A provider's method can't be a hookimpl itself: pluggy passes neither keyword-only arguments
nor ``**kwargs``, drops None and stops at the first exception.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from hermes_core.dispatch._calls import ProviderCalls, _paused
from hermes_core.dispatch._deadlines import Deadlines
from hermes_core.dispatch._delivery import event_identity, turn_identity
from hermes_core.dispatch._lane import Job
from hermes_core.dispatch._outcome import Outcome
from hermes_core.hookspecs import HOOKS, Messages
from hermes_core.hookspecs import Lane as LaneName
from hermes_core.provider import MemoryProvider

#: Keywords of a session that are text, and no identities: a title is often what a user said.
_WORDED: Final = ("session_title", "user_name", "chat_name")

# What `initialize` is told only when it is known; some demand it.
_SOMETIMES: Final = (
    *("user_id", "user_id_alt", "user_name", "chat_id", "chat_name", "chat_type", "thread_id"),
    *("parent_session_id", "session_title"),
)


class ProviderAdapter(ProviderCalls):
    """Answers every hook with an `Outcome`.

    Args:
        provider: A `MemoryProvider`, or anything that looks like one.
        name: Its name, read once: a property may do anything.
        deadlines: How long its calls may take.
        inline: Call it on the caller's thread. For the built-in, which is ours.
        config: Its settings, handed to ``initialize``.
        home: The home for which it is called; by default the one that it was loaded for.
    """

    def __init__(
        self,
        provider: MemoryProvider,
        name: str,
        *,
        deadlines: Deadlines | None = None,
        inline: bool = False,
        config: Mapping[str, Any] | None = None,
        home: Path | None = None,
    ) -> None:
        super().__init__(provider, name, deadlines=deadlines, inline=inline, home=home)
        self._config = {} if config is None else {"provider_config": config}
        self._session: tuple[str, Mapping[str, Any]] | None = None
        self.tools: frozenset[str] = frozenset()

    # -- the hookimpls; `HookCalls` registers those that are named in HOOKS --------------

    def is_available(self) -> Outcome:
        return self._run("is_available")

    def unavailable_reason(self) -> Outcome:
        return self._run("unavailable_reason")

    def initialize(self, session_id: str, extra: Mapping[str, Any]) -> Outcome:
        self._session = (session_id, extra)
        optional = self._start_keywords("initialize", session_id, extra)
        return self._run("initialize", session_id, optional=optional)

    def initialize_for_inspection(self, session_id: str, extra: Mapping[str, Any]) -> Outcome:
        optional = self._start_keywords("initialize_for_inspection", session_id, extra)
        return self._run("initialize_for_inspection", session_id, optional=optional)

    def _start_keywords(
        self, hook: str, session_id: str, extra: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """What a session starts with; empty for what is not known and demanded all the same."""
        invocation = self._found(hook)
        demanded = invocation.demanded(_SOMETIMES) if invocation is not None else ()
        unknown = dict.fromkeys(demanded, "")
        return {**unknown, **self.clean(extra), **self._config, "session_id": session_id}

    def system_prompt_block(self) -> Outcome:
        return self._run("system_prompt_block")

    def prefetch(self, query: str, session_id: str) -> Outcome:
        self._recall.begin()
        outcome = self._run("prefetch", query, optional={"session_id": session_id})
        late = self._recall.late(session_id)
        use_late = late is not None and not outcome.value.strip()
        return outcome._replace(value=late) if use_late else outcome

    def queue_prefetch(self, query: str, session_id: str) -> Outcome:
        return self._run("queue_prefetch", query, optional={"session_id": session_id})

    def recall_status(self) -> Outcome:
        return self._run("recall_status")

    def sync_turn(
        self, user_content: str, assistant_content: str, session_id: str, messages: Messages | None
    ) -> Outcome:
        optional = {"session_id": session_id, "messages": messages}
        return self._run(
            "sync_turn", user_content, assistant_content, optional=optional, by_name=turn_identity
        )

    def get_tool_schemas(self) -> Outcome:
        return self._run("get_tool_schemas")

    def handle_tool_call(
        self, tool_name: str, args: dict[str, Any], extra: Mapping[str, Any]
    ) -> Outcome | None:
        if tool_name not in self.tools:
            return None
        return self._run("handle_tool_call", tool_name, args, optional=extra)

    def shutdown(self) -> Outcome:
        return self._run("shutdown")

    def on_turn_start(self, turn_number: int, message: str, extra: Mapping[str, Any]) -> Outcome:
        return self._run("on_turn_start", turn_number, message, optional=extra)

    def on_session_end(self, messages: Messages) -> Outcome:
        return self._run("on_session_end", messages, by_name=event_identity)

    def on_session_switch(
        self,
        new_session_id: str,
        parent_session_id: str,
        reset: bool,
        rewound: bool,
        extra: Mapping[str, Any],
    ) -> Outcome:
        named = {**self.clean(extra), "parent_session_id": parent_session_id}
        if self._session is not None:  # if it has to be started again, it is for this one
            self._session = (new_session_id, {**self._session[1], **named})
        optional = {**named, "reset": reset, "rewound": rewound}
        return self._run("on_session_switch", new_session_id, optional=optional)

    def on_pre_compress(self, messages: Messages, extra: Mapping[str, Any]) -> Outcome:
        return self._run("on_pre_compress", messages, optional=extra)

    def on_delegation(
        self, task: str, result: str, child_session_id: str, extra: Mapping[str, Any]
    ) -> Outcome:
        optional = {**extra, "child_session_id": child_session_id}
        return self._run("on_delegation", task, result, optional=optional, by_name=event_identity)

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None
    ) -> Outcome:
        by_position = {"metadata": metadata}
        return self._run(
            "on_memory_write",
            action,
            target,
            content,
            by_position=by_position,
            by_name=event_identity,
        )

    def get_config_schema(self) -> Outcome:
        return self._run("get_config_schema")

    def save_config(self, values: dict[str, Any], hermes_home: str) -> Outcome:
        return self._run("save_config", values, hermes_home)

    def backup_paths(self) -> Outcome:
        return self._run("backup_paths")

    # -- what the manager needs besides ---------------------------------------------------

    def clean(self, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        """The keywords of a session, without secrets in those that people word themselves."""
        if self.masker is None:
            return keywords
        worded = {name: keywords[name] for name in _WORDED if name in keywords}
        return {**keywords, **self.masker.hand_off(worded).value}

    def takes(self, hook: str, keyword: str) -> bool:
        """Whether a method would be given this keyword."""
        invocation = self._found(hook)
        return invocation is not None and invocation.accepts(keyword)

    def does_something(self, hook: str) -> bool:
        """Whether calling a method may do anything at all."""
        invocation = self._found(hook)
        return invocation is not None and not invocation.instant

    def restart(self) -> bool:
        """Try the session's start again if it failed; whether it is under way now."""
        if self.start_error is not None and self._session is not None:
            self.initialize(*self._session)
        return self.ready

    def post(self, hook: str, call: Callable[[], Any]) -> Job | None:
        """Queue ``call`` on the lane of ``hook`` and return at once.

        None if there was nothing to queue: the method does nothing, or (for what is no
        write) the provider is paused.
        """
        if hook == "on_turn_start":
            self._turn_start = None
        if self._closed:
            return None
        if not self.does_something(hook):
            call()
            return None
        lane = HOOKS[hook].lane
        if lane is not LaneName.WRITE and self._is_paused(lane):
            self._record(hook, 0.0, _paused())
            return None
        job = self.submit(hook, call)
        if hook == "on_turn_start":
            self._turn_start = job
        return job

    def submit(self, hook: str, call: Callable[[], Any]) -> Job | None:
        """Queue ``call`` on the lane of ``hook``, with its deadline; None after the end."""
        rule = HOOKS[hook]
        return self._lanes[rule.lane].submit(call, getattr(self.deadlines, rule.deadline), hook)

    def on_write_lane(self) -> bool:
        """Whether this thread is the one that delivers writes; one that hung is it no more."""
        return self._lanes[LaneName.WRITE].on_thread()

    def hangs(self) -> bool:
        """Whether a write hangs past its deadline."""
        return self._lanes[LaneName.WRITE].stuck

    def rearm(self, hook: str) -> None:
        """The call that runs on the write lane goes on with another write."""
        self._lanes[LaneName.WRITE].rearm(hook)

    def flush(self, timeout: float) -> bool:
        """Whether everything queued is done, after at most ``timeout`` seconds."""
        end = perf_counter() + timeout
        lanes = self._lanes.values()
        done = [lane.flush(max(end - perf_counter(), 0)) for lane in lanes]  # each, in any case
        return all(done)

    def flush_writes(self, timeout: float) -> bool:
        """Whether every queued write is done, after at most ``timeout`` seconds."""
        return self._lanes[LaneName.WRITE].flush(timeout)

    def close(self, timeout: float) -> None:
        """Call nothing more, and let go of the threads."""
        self._closed = True
        for lane in self._lanes.values():
            lane.close()
        self._loop.close()
        end = perf_counter() + timeout
        for lane in self._lanes.values():
            lane.join(end - perf_counter())
