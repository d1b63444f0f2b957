"""Runs the kit on one plugin, in child processes that may hang or crash as they like."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, Final

from hermes_core import __version__
from hermes_core.children import run_child
from hermes_core.conformance._child import ANSWER, STUCK, info_as_json
from hermes_core.conformance._model import (
    PASSED,
    SKIPPED,
    Check,
    Failed,
    Options,
    Report,
    Result,
)
from hermes_core.conformance._stage import OUTPUT
from hermes_core.conformance.checks import all_checks
from hermes_core.discovery import ProviderInfo
from hermes_core.errors import HermesError, ProviderLoadError
from hermes_core.provider import CONTRACT_VERSION

_LOOK_SECONDS: Final = 0.3
_PATIENCE: Final = 0.5
_CHILD: Final = "hermes_core.conformance._child"
#: What a program needs to run at all; everything else of our environment stays ours.
_KEPT: Final = (
    "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC",
    "PATHEXT", "WINDIR", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
)  # fmt: skip
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
        info: The plugin, as `discover` gave it.
        options: What its author says, and which checks are wanted.
        begun: Told of each check that begins, by its id; on a thread of ours.

    Raises:
        ProviderLoadError: It could not be loaded.
        HermesError: The options name a check that there is not.
    """
    options = options or Options()
    begin = time.monotonic()
    wanted = _wanted(options)
    left_out = [
        Result.of(each, SKIPPED, reason=options.skip[each.id])
        for each in wanted
        if each.id in options.skip
    ]
    batches = _batches([each for each in wanted if each.id not in options.skip])
    run = _Run(info, options, begun)
    with ThreadPoolExecutor(max(len(batches), 1)) as pool:
        try:
            done = list(chain.from_iterable(pool.map(run.batch, batches)))
        except BaseException:  # it can't be loaded, or somebody has no more patience
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
            f"there is no check {', '.join(sorted(unknown))}",
            hint="hermes-plugins check --list shows them",
        )
    for name, reason in options.skip.items():
        if not reason.strip():
            raise HermesError(f"{name} is skipped without a reason", hint="say why")
    return [each for each in checks if not options.only or each.id in options.only]


def _batches(checks: Sequence[Check]) -> list[list[Check]]:
    """What runs side by side: each of these in a process of its own."""
    together = [each for each in checks if not each.alone]
    alone = [[each] for each in checks if each.alone]
    return [batch for batch in (together, *alone) if batch]


class _Run:
    """One run of the kit."""

    def __init__(
        self, info: ProviderInfo, options: Options, begun: Callable[[str], None] | None
    ) -> None:
        self._begun = begun
        self._info = info
        self._options = options
        self._end = time.monotonic() + options.deadline

    def stop(self) -> None:
        """End what is under way."""
        self._end = 0.0

    def _is_over(self) -> bool:
        return time.monotonic() >= self._end

    def batch(self, checks: list[Check]) -> list[Result]:
        """Run checks in one process, and in another what a crash has left undone."""
        done: list[Result] = []
        left = list(checks)
        while left:
            if self._is_over():
                done += map(self._late, left)
                break
            new = list(self._process(left))
            if not new:  # it ended between two checks: the next one has to answer for it
                new = [Result.failure(left[0], Failed("its process ended before this check"))]
            done += new
            ids = {each.id for each in new}
            left = [each for each in left if each.id not in ids]
        return done

    def _late(self, check: Check) -> Result:
        reason = f"the kit's {self._options.deadline:g} s were over"
        return Result.of(check, SKIPPED, reason=reason, unfinished=True)

    def _process(self, checks: list[Check]) -> Iterator[Result]:
        """The results of one process."""
        with tempfile.TemporaryDirectory(prefix="hermes-kit-", ignore_cleanup_errors=True) as name:
            scratch = Path(name).resolve()
            code = self._asked(checks, scratch)
            lines, stuck = _lines(scratch / ANSWER), _is_stuck(scratch / STUCK)
        by_id = {each.id: each for each in checks}
        begun: Check | None = None
        loaded = False
        for line in lines:
            if "unloadable" in line:
                raise self._unloadable(**line["unloadable"])
            loaded |= "loaded" in line
            if "begun" in line:
                begun = by_id[line["begun"]]
            if "result" in line:
                begun = None
                yield Result(**line["result"])
        how = f"it ended its process (exit code {code})"
        if stuck or code is None:
            how = "it did not end"
        if not loaded:
            raise self._unloadable(how, "load")
        if begun is not None and begun.alone and stuck:
            how = f"{self._options.limits.settle:g} s after shutdown its process had not ended"
        if begun is not None and code is None:  # ours, not the check's
            yield self._late(begun)
        elif begun is not None:
            yield _ended(begun, code, how)

    def _unloadable(self, what: str, step: str, hint: str = "") -> ProviderLoadError:
        name, owner = self._info.name, self._info.distribution
        return ProviderLoadError(what, plugin=name, distribution=owner, step=step, hint=hint)

    def _asked(self, checks: list[Check], scratch: Path) -> int | None:
        """Run the child; gives its exit code."""
        options = self._options
        request = {
            "info": info_as_json(self._info),
            "options": {**asdict(options), "limits": options.limits._asdict()},
            "checks": [each.id for each in checks],
            "scratch": str(scratch),
        }
        with (scratch / OUTPUT).open("wb") as output, _followed(scratch / ANSWER, self._begun):
            return run_child(
                _CHILD,
                request,
                _environment(scratch, options),
                _PATIENCE,
                output=output,
                cwd=_folder(scratch, "work"),
                progress=lambda: self._is_over() or time.monotonic(),
            )


@contextmanager
def _followed(answer: Path, begun: Callable[[str], None] | None) -> Iterator[None]:
    """Tell what the child is at, while it is at it."""
    done = threading.Event()

    def follow() -> None:
        seen = 0
        while begun is not None and not done.wait(_LOOK_SECONDS):
            lines = _lines(answer)
            for line in lines[seen:]:
                if "begun" in line:
                    begun(line["begun"])
            seen = len(lines)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _lines(answer: Path) -> list[dict[str, Any]]:
    """What the child told; its last line may be cut off."""
    lines = []
    try:
        text = answer.read_text("utf-8")
    except OSError:
        return []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def _environment(scratch: Path, options: Options) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    folders = {name: str(_folder(scratch, folder)) for name, folder in _FOLDERS.items()}
    return {
        **kept,
        **folders,
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        **options.env,
    }


def _folder(scratch: Path, name: str) -> Path:
    folder = scratch / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _is_stuck(file: Path) -> bool:
    """Whether the child was ended because it did not come to an end."""
    return file.exists() and file.stat().st_size > 0


def _ended(check: Check, code: int | None, how: str) -> Result:
    """What it means that the process ended in the middle of a check."""
    if check.alone and code == 0:
        return Result.of(check, PASSED)
    return Result.failure(check, Failed(how))
