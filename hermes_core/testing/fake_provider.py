"""A memory provider for the tests of a host: it records calls, and fails on demand.

::

    provider = FakeProvider(prefetch="- Drinks green tea.")
    manager = MemoryManager(home=tmp_path)
    manager.add_provider(provider)
    ...                                             # run your agent's turn
    assert provider.turns[0].user == "Tea or coffee?"

    provider.go_down()                              # every call raises ConnectionError
    ...                                             # the turn goes on; what it wrote waits
    provider.come_up()
    assert manager.flush_pending(5)
    assert len(provider.turns) == 2
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hermes_core.hookspecs import HOOKS, Messages
from hermes_core.provider import (
    ForgetReport,
    ForgetRequest,
    MemoryPage,
    MemoryProvider,
    ProbeResult,
    RecallStatus,
)

__all__ = ["Call", "FakeProvider", "StoredTurn"]

#: Hooks that work without the backend; all others fail while it is down.
_WITHOUT_BACKEND: Final = frozenset(
    {
        "is_available",
        "unavailable_reason",
        "system_prompt_block",
        "get_tool_schemas",
        "shutdown",
        "get_config_schema",
        "save_config",
        "backup_paths",
        "own_settings",
        "get_status_config",
        "post_setup",
    }
)


class Call(NamedTuple):
    """One call as it arrived: ``arguments`` by name, ``at`` in seconds of `time.monotonic`."""

    hook: str
    arguments: Mapping[str, Any]
    at: float


class StoredTurn(NamedTuple):
    """A turn that was stored."""

    user: str
    assistant: str
    session_id: str
    turn_id: str
    messages: Messages | None
    turn_author: Mapping[str, Any] | None = None


class _Trouble:
    """How one hook misbehaves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.gate: threading.Event | None = None
        self.error: BaseException | None = None
        self.times: int | None = 0
        self.after = False
        self._counting = threading.Lock()  # several workers may fail at the same time

    def delay(self) -> None:
        if self.seconds:
            sleep(self.seconds)
        # A fake that hangs waits for an event, not for a time: a test decides when it continues,
        # and is not slower on a busy machine.
        gate = self.gate  # `release` may remove it meanwhile
        if gate is not None:
            gate.wait()

    def fail(self, *, after: bool) -> None:
        """Raise, if it is time to."""
        if self.error is None or self.after is not after:
            return
        with self._counting:
            if self.times == 0:
                return
            if self.times is not None:
                self.times -= 1
        raise self.error.with_traceback(None)  # or it would grow with each raise


class FakeProvider(MemoryProvider):
    """Implements the whole contract in memory. Thread-safe.

    It is not a mock: the manager calls it through workers, deadlines and the outbox like any
    other provider, so your tests run what your users run.

    Args:
        name: Its name.
        tools: Schemas of the tools that it offers.
        confirms_delivery: Whether it promises that a write which returned was stored.
        **answers: What a hook returns: a value, or a function of the hook's arguments,
            which have the names of the contract. The default is the neutral value.
    """

    def __init__(
        self,
        name: str = "fake",
        *,
        tools: Iterable[dict[str, Any]] = (),
        confirms_delivery: bool = True,
        **answers: Any,
    ) -> None:
        self._name = name
        self.confirms_delivery = confirms_delivery
        # Guards `_calls` and `_turns`, which the provider's worker threads change while the test
        # reads. A condition and not a lock: `wait_for` sleeps until a call arrives.
        self._changed = threading.Condition()
        self._calls: list[Call] = []
        self._turns: dict[str, StoredTurn] = {}
        self._down = False
        self._trouble: dict[str, _Trouble] = {}
        # Only where the neutral value of a failed call would mean "unavailable" or "no answer".
        self._answers: dict[str, Any] = {
            "is_available": True,
            "get_tool_schemas": [*tools],
            "handle_tool_call": "{}",
            "probe": ProbeResult(ok=True, detail="the fake backend works"),
            "get_status_config": {},
            "forget": ForgetReport(),
            "list_memories": MemoryPage(),
        }
        for hook, answer in answers.items():
            self.answer(hook, answer)

    # -- what it received ------------------------------------------------------------------

    @property
    def calls(self) -> list[Call]:
        """Every call in the order of arrival, including those that failed."""
        with self._changed:
            return [*self._calls]

    def of(self, hook: str) -> list[Call]:
        """Return the calls of one hook."""
        return [call for call in self.calls if call.hook == hook]

    @property
    def turns(self) -> list[StoredTurn]:
        """The stored turns: one for each id, however often it was delivered."""
        with self._changed:
            return [*self._turns.values()]

    def wait_for(self, hook: str, count: int = 1, timeout: float = 5.0) -> bool:
        """Wait for calls of a hook; return whether there were ``count`` within ``timeout``."""
        _known(hook)
        with self._changed:
            return self._changed.wait_for(
                lambda: sum(call.hook == hook for call in self._calls) >= count, timeout
            )

    # -- how it behaves -------------------------------------------------------------------

    def answer(self, hook: str, value: Any) -> None:
        """Set what a hook returns from now on: a value, or a function of its arguments."""
        self._answers[_known(hook)] = value

    def slow(self, hook: str, seconds: float) -> None:
        """Delay a hook from now on; 0 for no delay."""
        self._trouble_of(hook).seconds = seconds

    def hang(self, hook: str) -> None:
        """Block a hook from now on, until `release`."""
        trouble = self._trouble_of(hook)
        trouble.gate = trouble.gate or threading.Event()

    def release(self) -> None:
        """Unblock every hook, and the calls that wait."""
        for trouble in self._trouble.values():
            gate, trouble.gate = trouble.gate, None
            if gate is not None:
                gate.set()

    def fail(
        self,
        hook: str,
        error: BaseException | None = None,
        *,
        times: int | None = None,
        after: bool = False,
    ) -> None:
        """Let a hook raise from now on.

        Args:
            hook: The hook.
            error: What it raises; by default a ConnectionError.
            times: How often; by default always. 0 stops it.
            after: Whether it does its work first, as if the answer got lost.
        """
        trouble = self._trouble_of(hook)
        trouble.error = error or ConnectionError(f"the fake backend failed in {hook}")
        trouble.times, trouble.after = times, after

    def go_down(self) -> None:
        """Let every hook that needs the backend raise a ConnectionError from now on."""
        self._down = True

    def come_up(self) -> None:
        """End `go_down`. What `fail`, `slow` and `hang` set stays as it is."""
        self._down = False

    def _trouble_of(self, hook: str) -> _Trouble:
        return self._trouble.setdefault(_known(hook), _Trouble())

    def _called(self, hook: str, /, **arguments: Any) -> Any:
        """Record a call, delay or fail as configured, do the work and return the answer."""
        with self._changed:
            # Recorded before the delay and the failure, so that a test can wait for a call that
            # hangs. The proxy prevents a test from changing what another assertion reads later.
            self._calls.append(Call(hook, MappingProxyType(arguments), monotonic()))
            self._changed.notify_all()
        trouble = self._trouble.get(hook) or _Trouble()
        trouble.delay()
        if self._down and hook not in _WITHOUT_BACKEND:
            # A ConnectionError, because the outbox classifies it as trouble of the backend and
            # retries.
            raise ConnectionError("the fake backend is down")
        trouble.fail(after=False)
        if hook == "sync_turn":
            self._store(arguments)
        # After the work: the turn is stored, and the caller gets an error. The outbox delivers it
        # again, and `turns` must still have it once.
        trouble.fail(after=True)
        answer = self._answers.get(hook, HOOKS[hook].neutral)
        return answer(**arguments) if callable(answer) else answer

    def _store(self, arguments: Mapping[str, Any]) -> None:
        contents = (arguments["user_content"], arguments["assistant_content"])
        names = ("session_id", "turn_id", "messages", "turn_author")
        turn = StoredTurn(*contents, *(arguments[name] for name in names))
        with self._changed:
            # A second delivery of one `turn_id` is the same turn. A host without an outbox passes
            # no id; then every call is a turn.
            self._turns.setdefault(turn.turn_id or f"unnamed {len(self._turns)}", turn)

    # -- the contract ---------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name that the constructor received."""
        return self._name

    def is_available(self) -> bool:
        """Return True by default."""
        # Every method below is written out, although most only record: dispatch calls just the
        # methods that a provider overrides, and a test compares their signatures with the contract.
        available: bool = self._called("is_available")
        return available

    def unavailable_reason(self) -> str:
        """Return "" by default; see `answer`."""
        reason: str = self._called("unavailable_reason")
        return reason

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Record all keywords."""
        self._called("initialize", session_id=session_id, **kwargs)

    def initialize_for_inspection(self, session_id: str, **kwargs: Any) -> None:
        """Record all keywords."""
        self._called("initialize_for_inspection", session_id=session_id, **kwargs)

    def system_prompt_block(self) -> str:
        """Return "" by default."""
        text: str = self._called("system_prompt_block")
        return text

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return "" by default."""
        text: str = self._called("prefetch", query=query, session_id=session_id)
        return text

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Record the call."""
        self._called("queue_prefetch", query=query, session_id=session_id)

    def recall_status(self) -> RecallStatus | None:
        """Return nothing by default."""
        status: RecallStatus | None = self._called("recall_status")
        return status

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Messages | None = None,
        turn_author: dict[str, Any] | None = None,
        # The keywords that identify a write are passed only to a method that names them.
        turn_id: str = "",
        attempt: int = 1,
    ) -> None:
        """Store the turn, once for each ``turn_id``."""
        self._called(
            "sync_turn",
            user_content=user_content,
            assistant_content=assistant_content,
            session_id=session_id,
            messages=messages,
            turn_author=turn_author,
            turn_id=turn_id,
            attempt=attempt,
        )

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the schemas that the constructor received."""
        schemas: list[dict[str, Any]] = self._called("get_tool_schemas")
        return schemas

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Return an empty JSON object by default."""
        answer: str = self._called("handle_tool_call", tool_name=tool_name, args=args, **kwargs)
        return answer

    def shutdown(self) -> None:
        """Record the call."""
        self._called("shutdown")

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Record the call."""
        self._called("on_turn_start", turn_number=turn_number, message=message, **kwargs)

    def on_session_end(self, messages: Messages, *, event_id: str = "", attempt: int = 1) -> None:
        """Record the call."""
        self._called("on_session_end", messages=messages, event_id=event_id, attempt=attempt)

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """Record the call."""
        self._called(
            "on_session_switch",
            new_session_id=new_session_id,
            parent_session_id=parent_session_id,
            reset=reset,
            rewound=rewound,
            **kwargs,
        )

    def on_pre_compress(self, messages: Messages, *, require_checkpoint: bool = False) -> str:
        """Return "" by default."""
        text: str = self._called(
            "on_pre_compress", messages=messages, require_checkpoint=require_checkpoint
        )
        return text

    def on_delegation(
        self,
        task: str,
        result: str,
        *,
        child_session_id: str = "",
        event_id: str = "",
        attempt: int = 1,
        **kwargs: Any,
    ) -> None:
        """Record the call."""
        self._called(
            "on_delegation",
            task=task,
            result=result,
            child_session_id=child_session_id,
            event_id=event_id,
            attempt=attempt,
            **kwargs,
        )

    def on_memory_write(
        self,
        action: str,
        target: str,
        content: str,
        metadata: dict[str, Any] | None = None,
        *,
        event_id: str = "",
        attempt: int = 1,
    ) -> None:
        """Record the call."""
        self._called(
            "on_memory_write",
            action=action,
            target=target,
            content=content,
            metadata=metadata,
            event_id=event_id,
            attempt=attempt,
        )

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return no fields by default."""
        fields: list[dict[str, Any]] = self._called("get_config_schema")
        return fields

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Record the call; nothing is written."""
        self._called("save_config", values=values, hermes_home=hermes_home)

    def backup_paths(self) -> list[str]:
        """Return nothing by default."""
        paths: list[str] = self._called("backup_paths")
        return paths

    # -- the optional capabilities --------------------------------------------------------

    def probe(self, write: bool) -> ProbeResult:
        """Return success by default."""
        result: ProbeResult = self._called("probe", write=write)
        return result

    def own_settings(self, hermes_home: str) -> list[tuple[str, dict[str, Any]]]:
        """Return nothing by default."""
        settings: list[tuple[str, dict[str, Any]]] = self._called(
            "own_settings", hermes_home=hermes_home
        )
        return settings

    def get_status_config(self, provider_config: dict[str, Any]) -> dict[str, str]:
        """Return no lines by default."""
        lines: dict[str, str] = self._called("get_status_config", provider_config=provider_config)
        return lines

    def post_setup(self, hermes_home: str, config: dict[str, Any]) -> None:
        """Record the call; nothing is asked."""
        self._called("post_setup", hermes_home=hermes_home, config=config)

    def forget(self, request: ForgetRequest) -> ForgetReport:
        """Find nothing by default."""
        report: ForgetReport = self._called("forget", request=request)
        return report

    def list_memories(self, cursor: str) -> MemoryPage:
        """Know nothing by default."""
        page: MemoryPage = self._called("list_memories", cursor=cursor)
        return page


def _known(hook: str) -> str:
    """Return the name of a hook; a typo in a test must not go unnoticed."""
    if hook not in HOOKS:
        raise ValueError(f"{hook!r} is not a method of a provider: {', '.join(HOOKS)}")
    return hook
