"""Storage: where a plugin keeps what it knows."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_core.conformance._bench import Bench
from hermes_core.conformance._driver import Driver
from hermes_core.conformance._files import files, shared_with_others
from hermes_core.conformance._model import MUST, SHOULD, Failed, check
from hermes_core.conformance._watch import WRITE, Event


@check(
    "HP811",
    MUST,
    "Everything is kept below `hermes_home`, or named by `backup_paths`",
    fix="Use `Path(kwargs['hermes_home']) / name` for all files; list in `backup_paths` what has "
    "to lie elsewhere.",
)
def stays_at_home(bench: Bench) -> None:
    """The home is what people back up, move to another machine and delete. What lies elsewhere is
    forgotten, and two profiles share it without knowing.
    """
    driver = bench.driver()
    before = set(files(bench.stage.user)) | set(files(Path.cwd()))
    with bench.watch.during() as events:
        if driver.has("save_config"):
            driver.ask("save_config", bench.likely_settings(), str(bench.home))
        bench.start(driver)
        bench.live_through(driver)
        driver.shut()
    new = (set(files(bench.stage.user)) | set(files(Path.cwd()))) - before
    written = {*new, *_written(events)}
    allowed = [bench.stage.scratch / "homes", bench.stage.scratch / "temporary", *_declared(driver)]
    outside = sorted(
        str(path) for path in written if not any(path.is_relative_to(each) for each in allowed)
    )
    if outside:
        shown = [each.replace(str(bench.stage.user), "~") for each in outside[:3]]
        raise Failed(f"it wrote {', '.join(shown)}", where=driver.where("initialize"))


def _written(events: list[Event]) -> list[Path]:
    """The files that Python saw opened; a database by its name, if it is one."""
    paths = [
        each.what.removeprefix("file:").partition("?")[0] for each in events if each.kind == WRITE
    ]
    return [Path(os.path.realpath(path)) for path in paths]


def _declared(driver: Driver) -> list[Path]:
    declared = driver.ask("backup_paths").value
    paths = declared if isinstance(declared, list | tuple) else ()
    return [Path(path).expanduser().resolve() for path in paths if isinstance(path, str)]


@check(
    "HP812",
    SHOULD,
    "Its files are for their owner alone",
    fix="Create folders with mode 0700 and files with 0600; for SQLite, create the file before you "
    "connect: `os.close(os.open(path, os.O_CREAT, 0o600))`.",
)
def files_are_private(bench: Bench) -> None:
    """It is a record of what a person said. With the usual umask a new file can be read by
    everybody on the machine.
    """
    driver = bench.started()
    bench.live_through(driver)
    driver.shut()
    exposed = shared_with_others(bench.home)
    if exposed:
        raise Failed("; ".join(exposed[:3]), expected="mode 0600", where=driver.where("initialize"))


@check(
    "HP813",
    MUST,
    "`backup_paths` gives a list of paths, also without `initialize`",
    fix="Return a list of absolute paths as str; [] if everything is below the home.",
)
def says_what_to_back_up(bench: Bench) -> None:
    """A backup asks every installed plugin, whether it runs or not."""
    driver = bench.driver()
    value = driver.call("backup_paths")
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        where = driver.where("backup_paths")
        raise Failed(f"it returned {value!r:.80}", expected="a list of str", where=where)
