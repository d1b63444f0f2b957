"""Life cycle: any legal order of calls, and nothing left behind."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any, Final

from hermes_core.conformance._belongings import Belongings
from hermes_core.conformance._bench import Bench, conversation
from hermes_core.conformance._driver import Answer, Driver
from hermes_core.conformance._files import printed_since
from hermes_core.conformance._model import MUST, SHOULD, Failed, Skipped, check

_MESSAGES: Final = conversation("Where is the key?", "Under the mat.")

#: What a host may call when a session runs, in an order that no author thinks of.
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

#: What must not raise without a session. Writes may, and checkpoints: what is not stored has to
#: be told.
_WITHOUT_START: Final[tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...]] = (
    ("get_tool_schemas", (), {}),
    ("system_prompt_block", (), {}),
    ("on_turn_start", (1, "Where is the key?"), {}),
    ("prefetch", ("Where is the key?",), {"session_id": "session-1"}),
    ("queue_prefetch", ("Where is the key?",), {"session_id": "session-1"}),
    ("recall_status", (), {}),
)

_OPEN: Final = (
    "initialize", "handle_tool_call", "on_turn_start", "on_session_switch", "on_delegation",
)  # fmt: skip


@check(
    "HP301",
    MUST,
    "`shutdown` works without `initialize`",
    fix="Set attributes to None in `__init__`, and close only what is there.",
)
def shutdown_without_start(bench: Bench) -> None:
    """Hosts shut everything down that they have loaded, also what was never started."""
    driver = bench.driver()
    driver.sound("shutdown", driver.shut(), " without initialize")


@check(
    "HP302",
    MUST,
    "`shutdown` may be called twice",
    fix="Forget what you have closed: `self._db, db = None, self._db`.",
)
def shutdown_twice(bench: Bench) -> None:
    """A host that ends in several ways at once (a signal, an exit handler) shuts down twice."""
    driver = bench.started()
    driver.sound("shutdown", driver.shut())
    driver.sound("shutdown", driver.shut(), " a second time")


@check(
    "HP303",
    MUST,
    "`initialize` may be called again, with and without `shutdown` between",
    fix="Begin `initialize` with closing what an earlier one has opened.",
)
def start_twice(bench: Bench) -> None:
    """A host that stays (a gateway, a shell) starts one session after the other on one provider."""
    driver = bench.started()
    driver.sound("initialize", bench.initialize(driver, "session-2"), " a second time")
    driver.sound("shutdown", driver.shut())
    driver.sound("initialize", bench.initialize(driver, "session-3"), " after a shutdown")
    driver.call("prefetch", "Where is the key?", session_id="session-3")


@check(
    "HP304",
    MUST,
    "Hooks work in any legal order",
    fix="Let no hook rely on another one having been called; only on `initialize`.",
)
def any_order(bench: Bench) -> None:
    """Sessions end before their first turn, are switched before their first recall, are compressed
    when they are empty. Each of these calls came from a real host.
    """
    driver = bench.started()
    skipped: Skipped | None = None
    for hook, arguments, keywords in _ANY_ORDER:
        try:
            driver.call(hook, *arguments, **keywords)
        except Skipped as reason:  # the other hooks are looked at all the same
            skipped = reason
    if skipped is not None:
        raise skipped


@check(
    "HP305",
    MUST,
    "After a failed `initialize` hooks answer neutrally",
    fix="Look in each hook whether the session was started, and return '' or an error as JSON. "
    "Writes may raise: a turn that is not stored must not look stored.",
)
def after_a_failed_start(bench: Bench) -> None:
    """The backend is away, the disk is full: `initialize` fails, and the agent goes on. It must not
    meet an AttributeError in every turn from then on. The kit starts the plugin in a home that
    can't be created.
    """
    blocked = bench.home / "a-file"
    blocked.write_text("not a folder")
    driver = bench.driver()
    bench.initialize(driver, "session-1", hermes_home=str(blocked / "home"))
    for hook, arguments, keywords in _WITHOUT_START:
        driver.sound(
            hook, driver.ask(hook, *arguments, **keywords), " in a home that can't be used"
        )
    for schema in driver.ask("get_tool_schemas").value or ():
        name = (schema.get("function") or schema).get("name", "")
        answer = driver.ask("handle_tool_call", name, {})
        driver.sound("handle_tool_call", answer, f"({name!r}) in a home that can't be used")
    driver.sound("shutdown", driver.shut(), " in a home that can't be used")


@check(
    "HP306",
    MUST,
    "Methods that the contract shows with `**kwargs` accept unknown keywords",
    fix="Add `**kwargs` to the method.",
)
def takes_unknown_keywords(bench: Bench) -> None:
    """Hosts pass more over time: another fact about the chat, the model of the turn. A signature
    without `**kwargs` breaks with the next version of the host.
    """
    driver = bench.driver()
    methods = {hook: getattr(driver.provider, hook, None) for hook in _OPEN}
    closed = {hook: each for hook, each in methods.items() if each and not _open(each)}
    if closed:
        shown = ", ".join(f"{hook}{signature(each)}" for hook, each in closed.items())
        where = driver.where(next(iter(closed)))
        raise Failed(f"{shown} {'does' if len(closed) == 1 else 'do'} not", where=where)


def _open(method: Any) -> bool:
    try:
        parameters = signature(method).parameters.values()
    except (TypeError, ValueError):  # written in C
        return True
    return any(each.kind is Parameter.VAR_KEYWORD for each in parameters)


@check(
    "HP307",
    MUST,
    "Nothing is printed",
    fix="Use `logging`: `logging.getLogger(__name__)`.",
)
def prints_nothing(bench: Bench) -> None:
    """The terminal belongs to the agent, and so does standard output: programs read it."""
    _silent(bench.stage.loading.printed, "while it was loaded")
    before = bench.stage.output.stat().st_size
    driver = bench.driver()
    if driver.has("save_config"):
        driver.ask("save_config", bench.likely_settings(), str(bench.home))
    bench.start(driver)
    bench.live_through(driver)
    driver.shut()
    _silent(printed_since(bench.stage.output, before), "in a session")


def _silent(printed: str, moment: str) -> None:
    if printed:
        first = printed.splitlines()[0][:120]
        raise Failed(f"{moment} it printed {len(printed)} characters, first: {first}")


@check(
    "HP308",
    MUST,
    "Working folder, environment, signal handlers and streams are left alone",
    fix="Use absolute paths, pass settings as arguments, and leave signals to the host.",
)
def leaves_the_process_alone(bench: Bench) -> None:
    """They belong to the process, in which other plugins and other agents live too."""
    if bench.stage.loading.changes:
        raise Failed(f"while it was loaded: {'; '.join(bench.stage.loading.changes)}")
    driver = bench.driver()
    before = Belongings()
    bench.start(driver)
    bench.live_through(driver)
    driver.shut()
    changes = before.changes()
    if changes:
        raise Failed("; ".join(changes))


@check(
    "HP309",
    MUST,
    "Its threads are gone after `shutdown`",
    fix="Tell them to stop, and `join` them with a timeout; `shutdown(wait=True)` for an executor.",
)
def threads_end(bench: Bench) -> None:
    """A gateway starts and ends sessions all day: a thread that stays with each of them is a leak,
    and one that is no daemon keeps the process from ending.
    """
    driver = bench.started()
    bench.live_through(driver)
    driver.close()
    # Since the very beginning: a thread that all sessions share is started by the first.
    left = bench.stage.before.new_threads
    if not bench.until(lambda: not left()):
        raise Failed(
            f"there are still {', '.join(sorted(set(left())))}",
            expected=f"no thread of it {bench.options.limits.settle:g} s after shutdown",
            where=driver.where("shutdown"),
        )


@check(
    "HP310",
    MUST,
    "Its processes are gone after `shutdown`",
    fix="Keep the Popen object; in `shutdown` terminate it, wait, and kill what does not end.",
)
def processes_end(bench: Bench) -> None:
    """A server that a plugin starts and leaves behind holds its port and its database, and the next
    session meets it.
    """
    driver = bench.started("session-processes")
    bench.live_through(driver)
    driver.close()
    left = bench.stage.before.new_processes
    if not bench.until(lambda: not left()):
        numbers = ", ".join(map(str, left()))
        raise Failed(f"still running: process {numbers}", where=driver.where("shutdown"))


@check(
    "HP311",
    MUST,
    "It does not hold up the end of the process",
    fix="Make threads daemons and end them in `shutdown`; no work in `atexit` handlers.",
    alone=True,
)
def lets_the_process_end(bench: Bench) -> None:
    """When a person closes the agent, it has to close. Python waits for threads that are no
    daemons, and for exit handlers, for ever.
    """
    driver = bench.started()
    bench.live_through(driver)
    driver.shut()


@check(
    "HP312",
    SHOULD,
    "`initialize` returns within 5 seconds",
    fix="Connect in the background, and answer neutrally until it is there.",
)
def starts_fast(bench: Bench) -> None:
    """The person has typed a message and waits. Downloads, migrations and servers that boot have to
    do it behind the scenes.
    """
    driver = bench.driver()
    if driver.ask("is_available").value is False:
        bench.start(driver)  # skips, with the reason
    _in_time(
        driver,
        "initialize",
        bench.initialize(driver, "session-timed"),
        bench.options.limits.initialize,
    )


@check(
    "HP313",
    MUST,
    "`shutdown` returns within 5 seconds",
    fix="Flush with a timeout: what is not delivered by then is delivered again by the host.",
)
def ends_fast(bench: Bench) -> None:
    """That is how long a host waits. What a plugin does later is cut off by the process's end."""
    driver = bench.started("session-timed")
    bench.live_through(driver)
    _in_time(driver, "shutdown", driver.shut(), bench.options.limits.shutdown)


def _in_time(driver: Driver, hook: str, answer: Answer, limit: float) -> None:
    if answer.seconds > limit:
        raise Failed(
            f"it took {answer.seconds:.1f} s",
            expected=f"an end within {limit:g} s",
            where=driver.where(hook),
        )
