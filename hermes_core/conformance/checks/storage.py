"""Storage: where a plugin stores its files."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_core.conformance._context import CheckContext
from hermes_core.conformance._driver import Driver
from hermes_core.conformance._watch import WRITE, Event, files, shared_with_others
from hermes_core.conformance.model import MUST, SHOULD, CheckFailure, check


@check(
    "HP811",
    MUST,
    "All files are below `hermes_home` or listed by `backup_paths`",
    fix="Use `Path(kwargs['hermes_home']) / name` for all files. List in `backup_paths` what has"
    " to be elsewhere.",
)
def stays_at_home(context: CheckContext) -> None:
    """The home is what users back up, move to another machine and delete. They forget files in
    other places, and two profiles share such files by accident.
    """
    driver = context.driver()
    # Compared with the files afterwards: a library in C writes without an audit event.
    before = set(files(context.plugin.user)) | set(files(Path.cwd()))
    with context.watch.during() as events:
        if driver.has("save_config"):
            driver.ask("save_config", context.likely_settings(), str(context.home))
        context.start(driver)
        context.live_through(driver)
        driver.shut()
    new = (set(files(context.plugin.user)) | set(files(Path.cwd()))) - before
    written = {*new, *_written(events)}
    # Temporary files are allowed: the system removes them.
    allowed = [
        context.plugin.scratch / "homes",
        context.plugin.scratch / "temporary",
        *_declared(driver),
    ]
    outside = sorted(
        str(path) for path in written if not any(path.is_relative_to(each) for each in allowed)
    )
    if outside:
        shown = [each.replace(str(context.plugin.user), "~") for each in outside[:3]]
        raise CheckFailure(f"it wrote {', '.join(shown)}", where=driver.where("initialize"))


def _written(events: list[Event]) -> list[Path]:
    """Return the files that were opened for writing; for a database, the file of its URI."""
    paths = [
        each.what.removeprefix("file:").partition("?")[0] for each in events if each.kind == WRITE
    ]
    # Links resolved, as `scratch` is.
    return [Path(os.path.realpath(path)) for path in paths]


def _declared(driver: Driver) -> list[Path]:
    declared = driver.ask("backup_paths").value
    paths = declared if isinstance(declared, list | tuple) else ()
    return [Path(path).expanduser().resolve() for path in paths if isinstance(path, str)]


@check(
    "HP812",
    SHOULD,
    "Only the owner can read the plugin's files",
    fix="Create folders with mode 0700 and files with mode 0600. For SQLite, create the file "
    "before you connect: `os.close(os.open(path, os.O_CREAT, 0o600))`.",
)
def files_are_private(context: CheckContext) -> None:
    """They contain what the user said. With the usual umask, everybody on the machine can read a
    new file.
    """
    driver = context.started()
    context.live_through(driver)
    driver.shut()
    exposed = shared_with_others(context.home)
    if exposed:
        raise CheckFailure(
            "; ".join(exposed[:3]), expected="mode 0600", where=driver.where("initialize")
        )


@check(
    "HP813",
    MUST,
    "`backup_paths` returns a list of paths, also without `initialize`",
    fix="Return a list of absolute paths as str, or [] if everything is below the home.",
)
def says_what_to_back_up(context: CheckContext) -> None:
    """A backup asks every installed plugin, including those that do not run."""
    driver = context.driver()
    value = driver.call("backup_paths")
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        where = driver.where("backup_paths")
        raise CheckFailure(f"it returned {value!r:.80}", expected="a list of str", where=where)
