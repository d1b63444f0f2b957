"""Life cycle: any valid order of calls, and a clean shutdown."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any, Final

from hermes_core.conformance._context import CheckContext, conversation
from hermes_core.conformance._driver import Answer, Driver
from hermes_core.conformance._watch import LoggingState, ProcessState, printed_since
from hermes_core.conformance.model import MUST, SHOULD, CheckFailure, CheckSkip, check
from hermes_core.dispatch import method_of

_MESSAGES: Final = conversation("Where is the key?", "Under the mat.")

#: Calls that a host may make during a session, in an unusual but valid order.
_ANY_ORDER: Final[tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...]] = (
    ("on_session_end", ([],), {}),
    ("queue_prefetch", ("",), {"session_id": "session-1"}),
    ("recall_status", (), {}),
    ("on_pre_compress", ([],), {}),
    ("prefetch", ("Where is the key?",), {"session_id": "session-1"}),
    ("on_delegation", ("Find it.", "Found."), {"child_session_id": "child-1"}),
    ("on_session_switch", ("session-2",), {"parent_session_id": "session-1", "reset": True}),
    ("sync_turn", ("Where?", "There."), {"session_id": "session-2", "messages": None}),
    ("on_turn_start", (7, "Where is the key?"), {}),
    ("system_prompt_block", (), {}),
    ("on_session_end", (_MESSAGES,), {}),
    ("get_tool_schemas", (), {}),
    ("backup_paths", (), {}),
)

#: Hooks that must not raise without a session. Writes and checkpoints may raise, because the
#: host has to know what was not stored.
_WITHOUT_START: Final[tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...]] = (
    ("get_tool_schemas", (), {}),
    ("system_prompt_block", (), {}),
    ("on_turn_start", (1, "Where is the key?"), {}),
    ("prefetch", ("Where is the key?",), {"session_id": "session-1"}),
    ("queue_prefetch", ("Where is the key?",), {"session_id": "session-1"}),
    ("recall_status", (), {}),
)

# The methods of the contract that have **kwargs.
_OPEN: Final = (
    "initialize", "handle_tool_call", "on_turn_start", "on_session_switch", "on_delegation",
)  # fmt: skip


@check(
    "HP301",
    MUST,
    "`shutdown` works without `initialize`",
    fix="Set attributes to None in `__init__`, and close only what is open.",
)
def shutdown_without_start(context: CheckContext) -> None:
    """Hosts shut down every provider that they loaded, including those that they never started."""
    driver = context.driver()
    driver.sound("shutdown", driver.shut(), " without initialize")


@check(
    "HP302",
    MUST,
    "`shutdown` can be called twice",
    fix="Clear what you close: `self._db, db = None, self._db`.",
)
def shutdown_twice(context: CheckContext) -> None:
    """A host that ends in two ways at once (a signal, an exit handler) calls `shutdown` twice."""
    driver = context.started()
    driver.sound("shutdown", driver.shut())
    driver.sound("shutdown", driver.shut(), " a second time")


@check(
    "HP303",
    MUST,
    "`initialize` can be called again, with and without `shutdown` in between",
    fix="At the start of `initialize`, close what an earlier call opened.",
)
def start_twice(context: CheckContext) -> None:
    """A long-running host (a gateway, a shell) starts several sessions on one provider, one after
    the other.
    """
    driver = context.started()
    driver.sound("initialize", context.initialize(driver, "session-2"), " a second time")
    driver.sound("shutdown", driver.shut())
    driver.sound("initialize", context.initialize(driver, "session-3"), " after a shutdown")
    driver.call("prefetch", "Where is the key?", session_id="session-3")


@check(
    "HP304",
    MUST,
    "Hooks work in any valid order",
    fix="Rely only on `initialize`, never on another hook having been called first.",
)
def any_order(context: CheckContext) -> None:
    """A session can end before its first turn, switch before its first recall, or be compressed
    while it is empty. Real hosts make each of these calls.
    """
    driver = context.started()
    skipped: CheckSkip | None = None
    for hook, arguments, keywords in _ANY_ORDER:
        try:
            driver.call(hook, *arguments, **keywords)
        except CheckSkip as reason:  # the other hooks are still checked
            skipped = reason
    if skipped is not None:
        raise skipped


@check(
    "HP305",
    MUST,
    "After a failed `initialize`, hooks return neutral values",
    fix="In each hook, check whether the session started, and return '' or an error as JSON. "
    "Writes may raise: a turn that was not stored must not look stored.",
)
def after_a_failed_start(context: CheckContext) -> None:
    """When the backend is unreachable or the disk is full, `initialize` fails and the agent
    continues. It must not get an AttributeError in every later turn. The kit starts the plugin in a
    home that can't be created.
    """
    blocked = context.home / "a-file"
    # A folder below a file can't be created by anybody, not even by root, for whom modes do not
    # count.
    blocked.write_text("not a folder")
    driver = context.driver()
    # Its outcome does not matter: it may raise, or start without storage.
    context.initialize(driver, "session-1", hermes_home=str(blocked / "home"))
    for hook, arguments, keywords in _WITHOUT_START:
        driver.sound(
            hook, driver.ask(hook, *arguments, **keywords), " in a home that can't be used"
        )
    for schema in driver.ask("get_tool_schemas").value or ():
        # With or without the wrapper: HP503 is about that.
        name = (schema.get("function") or schema).get("name", "")
        answer = driver.ask("handle_tool_call", name, {})
        driver.sound("handle_tool_call", answer, f"({name!r}) in a home that can't be used")
    driver.sound("shutdown", driver.shut(), " in a home that can't be used")


@check(
    "HP306",
    MUST,
    "Methods with `**kwargs` in the contract accept unknown keywords",
    fix="Add `**kwargs` to the method.",
)
def takes_unknown_keywords(context: CheckContext) -> None:
    """New versions of a host pass more keywords. A signature without `**kwargs` then raises a
    TypeError.
    """
    driver = context.driver()
    methods = {hook: method_of(driver.provider, hook) for hook in _OPEN}
    closed = {hook: each for hook, each in methods.items() if each and not _open(each)}
    if closed:
        shown = ", ".join(f"{hook}{signature(each)}" for hook, each in closed.items())
        where = driver.where(next(iter(closed)))
        raise CheckFailure(f"no **kwargs: {shown}", where=where)


def _open(method: Any) -> bool:
    try:
        parameters = signature(method).parameters.values()
    except (TypeError, ValueError):  # written in C
        return True
    return any(each.kind is Parameter.VAR_KEYWORD for each in parameters)


@check(
    "HP307",
    MUST,
    "The plugin does not print",
    fix="Use `logging`: `logging.getLogger(__name__)`.",
)
def prints_nothing(context: CheckContext) -> None:
    """The terminal and standard output belong to the agent. Other programs may parse it."""
    _silent(context.plugin.loading.printed, "while loading")
    before = context.plugin.output.stat().st_size
    driver = context.driver()
    if driver.has("save_config"):
        driver.ask("save_config", context.likely_settings(), str(context.home))
    context.start(driver)
    context.live_through(driver)
    driver.shut()
    _silent(printed_since(context.plugin.output, before), "during a session")


def _silent(printed: str, moment: str) -> None:
    if printed:
        first = printed.splitlines()[0][:120]
        raise CheckFailure(f"it printed {len(printed)} characters {moment}, first: {first}")


@check(
    "HP308",
    MUST,
    "The plugin does not change the working directory, environment, signal handlers or standard "
    "streams",
    fix="Use absolute paths, pass settings as arguments, and leave signals to the host.",
)
def leaves_the_process_alone(context: CheckContext) -> None:
    """They belong to the whole process, which other plugins and agents share."""
    if context.plugin.loading.changes:
        raise CheckFailure(f"while loading: {'; '.join(context.plugin.loading.changes)}")
    driver = context.driver()
    # After loading, whose changes are reported above.
    before = ProcessState()
    context.start(driver)
    context.live_through(driver)
    driver.shut()
    changes = before.changes()
    if changes:
        raise CheckFailure("; ".join(changes))


@check(
    "HP309",
    MUST,
    "No threads remain after `shutdown`",
    fix="Signal the threads to stop and `join` them with a timeout. For an executor, call "
    "`shutdown(wait=True)`.",
)
def threads_end(context: CheckContext) -> None:
    """A gateway starts and ends sessions all day, so a thread that remains after each of them is a
    leak. A thread that is not a daemon also keeps the process from exiting.
    """
    driver = context.started()
    context.live_through(driver)
    driver.close()
    # Compared with the state before loading: the first session starts threads that all share.
    left = context.plugin.before.new_threads
    if not context.until(lambda: not left()):
        raise CheckFailure(
            f"threads still running: {', '.join(sorted(set(left())))}",
            expected=f"no threads {context.options.limits.wait:g} s after shutdown",
            where=driver.where("shutdown"),
        )


@check(
    "HP310",
    MUST,
    "No processes remain after `shutdown`",
    fix="Keep the Popen object. In `shutdown`, terminate the process, wait, and kill it if it "
    "does not exit.",
)
def processes_end(context: CheckContext) -> None:
    """A server that the plugin leaves running keeps its port and its database, and the next session
    collides with it.
    """
    driver = context.started("session-processes")
    context.live_through(driver)
    driver.close()
    left = context.plugin.before.new_processes
    if not context.until(lambda: not left()):
        numbers = ", ".join(map(str, left()))
        raise CheckFailure(f"processes still running: {numbers}", where=driver.where("shutdown"))


@check(
    "HP311",
    MUST,
    "The plugin does not delay process exit",
    fix="Make threads daemons and stop them in `shutdown`. Do no work in `atexit` handlers.",
    alone=True,
)
def lets_the_process_end(context: CheckContext) -> None:
    """When the user closes the agent, it has to exit. Python waits without a limit for exit
    handlers and for threads that are not daemons.
    """
    driver = context.started()
    context.live_through(driver)
    driver.shut()


@check(
    "HP312",
    SHOULD,
    "`initialize` returns within 5 seconds",
    fix="Connect in the background, and return neutral values until the connection is ready.",
)
def starts_fast(context: CheckContext) -> None:
    """The user has typed a message and waits. Run downloads, migrations and server starts in the
    background.
    """
    driver = context.driver()
    if driver.ask("is_available").value is False:
        context.start(driver)  # skips, with the reason
    _in_time(
        driver,
        "initialize",
        context.initialize(driver, "session-timed"),
        context.options.limits.initialize,
    )


@check(
    "HP313",
    MUST,
    "`shutdown` returns within 5 seconds",
    fix="Flush with a timeout. The host delivers again what was not delivered by then.",
)
def ends_fast(context: CheckContext) -> None:
    """Hosts wait 5 seconds. Work that takes longer is cut off when the process exits."""
    driver = context.started("session-timed")
    context.live_through(driver)
    _in_time(driver, "shutdown", driver.shut(), context.options.limits.shutdown)


def _in_time(driver: Driver, hook: str, answer: Answer, limit: float) -> None:
    if answer.seconds > limit:
        raise CheckFailure(
            f"it took {answer.seconds:.1f} s",
            expected=f"a return within {limit:g} s",
            where=driver.where(hook),
        )


@check(
    "HP314",
    SHOULD,
    "The plugin does not change the agent's logging",
    fix="Log to `logging.getLogger(__name__)` and add handlers only to that logger. Leave "
    "`logging.basicConfig`, `dictConfig`, `disable` and the root logger to the agent.",
)
def leaves_logging_alone(context: CheckContext) -> None:
    """`logging.basicConfig(force=True)` closes the handlers of the agent: from then on its log file
    gets nothing. A handler on the root logger prints every line of every library a second time.
    """
    if context.plugin.loading.logging:
        raise CheckFailure(f"while loading: {'; '.join(context.plugin.loading.logging)}")
    driver = context.driver()
    # After loading, whose changes are reported above.
    before = LoggingState()
    context.start(driver)
    context.live_through(driver)
    driver.shut()
    changes = before.changes()
    if changes:
        raise CheckFailure("; ".join(changes))
