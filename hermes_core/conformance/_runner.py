"""Runs the kit on one plugin, in child processes that may hang or crash."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from hermes_core import __version__
from hermes_core.checkup.child_process import LineWriter, read_lines, run_child
from hermes_core.conformance._context import (
    OUTPUT,
    CheckContext,
    LoadedPlugin,
    LoadRecord,
    fields_of,
    root_of,
)
from hermes_core.conformance._driver import Driver, Places
from hermes_core.conformance._watch import (
    ProcessState,
    ThreadsAndProcesses,
    Watch,
    leave_network,
    printed_since,
)
from hermes_core.conformance.checks import all_checks
from hermes_core.conformance.model import (
    PASSED,
    SKIPPED,
    Check,
    CheckFailure,
    CheckSkip,
    Options,
    Report,
    Result,
)
from hermes_core.discovery import ProviderInfo
from hermes_core.errors import HermesError, ProviderLoadError, describe
from hermes_core.loading import load_provider
from hermes_core.provider import CONTRACT_VERSION
from hermes_core.storage.child import SYSTEM_VARIABLES

# How often the results are read for the progress display; then how often a running child is asked
# whether the time is over.
_LOOK_SECONDS: Final = 0.3
_PATIENCE: Final = 0.5
# Every place that a plugin may take for the user's: nothing of the real ones can be changed.
_FOLDERS: Final = {
    "HOME": "user", "USERPROFILE": "user", "APPDATA": "user/AppData/Roaming",
    "LOCALAPPDATA": "user/AppData/Local", "HERMES_HOME": "home", "TMPDIR": "temporary",
    "TEMP": "temporary", "TMP": "temporary",
}  # fmt: skip


def check_plugin(
    info: ProviderInfo,
    options: Options | None = None,
    begun: Callable[[str], None] | None = None,
) -> Report:
    """Run the checks on a plugin.

    Args:
        info: The plugin, as `discover` returned it.
        options: What its author says, and which checks are wanted.
        begun: Called with the id of each check that begins, on another thread.

    Raises:
        ProviderLoadError: It could not be loaded.
        HermesError: The options name an unknown check.
    """
    options = options or Options()
    begin = time.monotonic()
    wanted = _wanted(options)
    left_out = [
        Result.of(each, SKIPPED, reason=options.skip[each.id], waived=True)
        for each in wanted
        if each.id in options.skip
    ]
    batches = _batches([each for each in wanted if each.id not in options.skip])
    run = _KitRun(info, options, begun)
    # The threads only wait: each batch runs in its own process.
    with ThreadPoolExecutor(max(len(batches), 1)) as pool:
        try:
            done = list(chain.from_iterable(pool.map(run.batch, batches)))
        except BaseException:  # it can't be loaded, or the user interrupted
            # Leaving the pool waits for all threads, which end as soon as their processes do.
            run.stop()
            raise
    return Report(
        info.name,
        info.distribution,
        info.version,
        info.source,
        CONTRACT_VERSION,
        __version__,
        options.live,
        time.monotonic() - begin,
        tuple(sorted([*done, *left_out], key=lambda each: each.id)),
    )


def _wanted(options: Options) -> list[Check]:
    checks = all_checks()
    unknown = {*options.only, *options.skip} - {each.id for each in checks}
    if unknown:
        raise HermesError(
            f"unknown check {', '.join(sorted(unknown))}",
            hint="run: hermes-plugins check --list",
        )
    for name, reason in options.skip.items():
        if not reason.strip():
            raise HermesError(f"{name} is skipped without a reason", hint="say why")
    return [each for each in checks if not options.only or each.id in options.only]


def _batches(checks: Sequence[Check]) -> list[list[Check]]:
    """Return groups of checks; each group runs in a separate process."""
    # One process for nearly all, since loading some plugins takes seconds.
    together = [each for each in checks if not each.alone]
    alone = [[each] for each in checks if each.alone]
    return [batch for batch in (together, *alone) if batch]


class _KitRun:
    """One run of the kit."""

    def __init__(
        self, info: ProviderInfo, options: Options, begun: Callable[[str], None] | None
    ) -> None:
        self._begun = begun
        self._info = info
        self._options = options
        self._end = time.monotonic() + options.deadline

    def stop(self) -> None:
        """Stop the running processes."""
        self._end = 0.0

    def _is_over(self) -> bool:
        return time.monotonic() >= self._end

    def batch(self, checks: list[Check]) -> list[Result]:
        """Run checks in one process; after a crash, run the rest in another one."""
        done: list[Result] = []
        left = list(checks)
        while left:
            if self._is_over():
                done += map(self._late, left)
                break
            # The child stops at a check that ends its process, so this loop starts it again for
            # the rest.
            new = list(self._process(left))
            if not new:  # it ended between two checks: counts as a failure of the next one
                new = [Result.failure(left[0], CheckFailure("its process ended before this check"))]
            done += new
            ids = {each.id for each in new}
            left = [each for each in left if each.id not in ids]
        return done

    def _late(self, check: Check) -> Result:
        reason = f"the kit's {self._options.deadline:g} s were over"
        return Result.of(check, SKIPPED, reason=reason, unfinished=True)

    def _process(self, checks: list[Check]) -> Iterator[Result]:
        """Return the results of one process."""
        with tempfile.TemporaryDirectory(prefix="hermes-kit-", ignore_cleanup_errors=True) as name:
            # Resolved: on macOS the temporary folder is behind a link, and paths are compared as
            # text.
            scratch = Path(name).resolve()
            code = self._ask_child(checks, scratch)
            lines, stuck = list(read_lines(scratch / ANSWER)), _is_stuck(scratch / STUCK)
        for line in lines:
            if isinstance(line, LoadFailure):
                raise self._unloadable(line.what, line.step, line.hint)
        how = (
            "it did not end"
            if stuck or code is None
            else f"it ended its process (exit code {code})"
        )
        # The first line of a child that could load it. Without it no check has run.
        if LoadSuccess() not in lines:
            raise self._unloadable(how, "load")
        yield from (line for line in lines if isinstance(line, Result))
        # What ended the process is the result of the check that was running.
        if isinstance(lines[-1], CheckStart):
            begun = next(each for each in checks if each.id == lines[-1].check)
            if begun.alone and stuck:
                how = f"{self._options.limits.wait:g} s after shutdown its process had not ended"
            yield self._late(begun) if code is None else _ended(begun, code, how)

    def _unloadable(self, what: str, step: str, hint: str = "") -> ProviderLoadError:
        name, owner = self._info.name, self._info.distribution
        return ProviderLoadError(what, plugin=name, distribution=owner, step=step, hint=hint)

    def _ask_child(self, checks: list[Check], scratch: Path) -> int | None:
        """Run the child and return its exit code."""
        options = self._options
        call = partial(run_checks, self._info, options, tuple(each.id for each in checks), scratch)
        with (scratch / OUTPUT).open("wb") as output, _followed(scratch / ANSWER, self._begun):
            return run_child(
                call,
                _environment(scratch, options),
                _PATIENCE,
                output=output,
                cwd=_folder(scratch, "work"),
                # A new value each time, so the child may go on; once the time is over it is always
                # True, and `run_child` ends a child without progress.
                progress=lambda: self._is_over() or time.monotonic(),
            )


@contextmanager
def _followed(answer: Path, begun: Callable[[str], None] | None) -> Iterator[None]:
    """Report the check that the child is running."""
    done = threading.Event()

    def follow() -> None:
        seen = 0
        while begun is not None and not done.wait(_LOOK_SECONDS):
            lines = list(read_lines(answer))
            for line in lines[seen:]:
                if isinstance(line, CheckStart):
                    begun(line.check)
            seen = len(lines)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _environment(scratch: Path, options: Options) -> dict[str, str]:
    kept = {name: os.environ[name] for name in SYSTEM_VARIABLES if name in os.environ}
    folders = {name: str(_folder(scratch, folder)) for name, folder in _FOLDERS.items()}
    return {
        **kept,
        **folders,
        "LANG": "C.UTF-8",
        # The same in every locale; and no keyring, which could ask the person for a password.
        "PYTHONUTF8": "1",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        # Last, so that an author can override everything.
        **options.env,
    }


def _folder(scratch: Path, name: str) -> Path:
    folder = scratch / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _is_stuck(file: Path) -> bool:
    """Return whether the child was killed because it did not finish."""
    return file.exists() and file.stat().st_size > 0


def _ended(check: Check, code: int | None, how: str) -> Result:
    """Return the failure for a process that ended during a check."""
    # Its process ended by itself in time, which is what the check asks for.
    if check.alone and code == 0:
        return Result.of(check, PASSED)
    return Result.failure(check, CheckFailure(how))


#: Files in the scratch folder: the results, and the stacks of a process that was killed.
ANSWER: Final = "answer"
STUCK: Final = "stuck"

_UMASK: Final = 0o022  # the usual one: a plugin has to set modes itself


@dataclass(frozen=True, slots=True)
class LoadSuccess:
    """The plugin was loaded."""


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """The plugin could not be loaded."""

    what: str
    step: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class CheckStart:
    """A check begins: if the process ends now, that is its result."""

    check: str


def run_checks(
    info: ProviderInfo, options: Options, checks: tuple[str, ...], scratch: Path
) -> None:
    """Load the plugin, run the checks, and write each result as soon as it is known.

    Returns only where the end of the process is what is checked.
    """
    os.umask(_UMASK)
    sys.dont_write_bytecode = True  # leave the plugin's folder unchanged
    warnings.simplefilter("ignore")
    # Without a handler Python prints warnings to stderr, and HP307 would report them as output of
    # the plugin.
    logging.getLogger().addHandler(logging.NullHandler())
    stuck = os.open(scratch / STUCK, os.O_CREAT | os.O_WRONLY, 0o600)  # stays open until the end

    def end_after(seconds: float) -> None:
        """End the process after this time, even if the plugin blocks the interpreter."""
        # A thread in C that needs no interpreter lock: it also ends a process in which the plugin
        # holds that lock in a C library.
        faulthandler.dump_traceback_later(seconds, exit=True, file=stuck)

    with (scratch / ANSWER).open("a", encoding="utf-8") as answer:
        writer = LineWriter(answer)
        # Before any plugin code. A live run needs loopback, which the new network does not have.
        walled = not options.live and leave_network()
        watch = Watch(live=options.live, walled=walled)
        watch.install()
        end_after(options.limits.check)
        try:
            plugin = _loaded(info, options, scratch, watch)
        except HermesError as error:
            writer.write(_cause(error))
            os._exit(0)
        writer.write(LoadSuccess())
        # In the order of ids: identity first, whose results are about the first load.
        for each in (each for each in all_checks() if each.id in checks):
            writer.write(CheckStart(each.id))
            end_after(options.limits.check)
            result = run(each, plugin)
            # Returning ends the interpreter normally, with atexit handlers and non-daemon threads:
            # that is what is checked.
            if each.alone and result.state == PASSED:
                end_after(options.limits.wait)  # the check is about the exit
                return
            writer.write(result)
    os._exit(0)  # don't wait for the plugin's threads


def _cause(error: HermesError) -> LoadFailure:
    step = getattr(error, "step", "find")
    return LoadFailure(error.what.removeprefix(f"{step} failed: "), step, error.hint)


def run(check: Check, plugin: LoadedPlugin) -> Result:
    """Run one check and return its result; an error in it is a failure."""
    begin = time.perf_counter()
    before = ProcessState()
    # The environment too, for plugins that read HERMES_HOME instead of the argument.
    context = CheckContext(plugin)
    os.environ["HERMES_HOME"] = str(context.home)
    try:
        check.run(context)
        result = Result.of(check, PASSED)
    except CheckSkip as reason:
        result = Result.of(check, SKIPPED, reason=str(reason))
    except CheckFailure as failed:
        result = Result.failure(check, failed)
    except Exception as error:  # noqa: BLE001 - the plugin's objects may do anything
        where = plugin.places.of_error(error)
        result = Result.failure(check, CheckFailure(describe(error), where=where))
    finally:
        # In every case, so that one check can't influence the next.
        context.close()
        before.restore()
    return replace(result, seconds=round(time.perf_counter() - begin, 4))


def _loaded(info: ProviderInfo, options: Options, scratch: Path, watch: Watch) -> LoadedPlugin:
    """Load the plugin for the first time, and record its side effects."""
    running, state, output = ThreadsAndProcesses.now(), ProcessState(), scratch / OUTPUT
    already = output.stat().st_size
    # CPU time and not elapsed time: the same on a busy machine.
    cpu = time.process_time()
    with watch.during() as events:
        provider = load_provider(info, deadline=options.limits.load)
    loading = LoadRecord(
        time.process_time() - cpu,
        tuple(events),
        tuple(running.new_threads()),
        printed_since(output, already),
        tuple(state.changes()),
        tuple(state.logging.changes()),
    )
    state.logging.restore()  # reported by HP314; the later checks start like the first
    places = Places(root_of(info, provider))
    plugin = LoadedPlugin(info, options, scratch, watch, loading, provider, places)
    driver = Driver(provider, places, options.limits)
    plugin.fields = fields_of(info, driver)
    driver.close()
    return plugin
