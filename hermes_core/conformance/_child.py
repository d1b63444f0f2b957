"""The child's side: loads the plugin, runs the checks, tells each result as it comes."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
import time
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from hermes_core.conformance._belongings import Belongings
from hermes_core.conformance._bench import Bench
from hermes_core.conformance._driver import Driver, Places
from hermes_core.conformance._files import printed_since
from hermes_core.conformance._model import (
    PASSED,
    SKIPPED,
    Check,
    Failed,
    Limits,
    Options,
    Result,
    Skipped,
)
from hermes_core.conformance._running import Running
from hermes_core.conformance._stage import OUTPUT, Loading, Stage, fields_of, root_of
from hermes_core.conformance._watch import Watch, leave_network
from hermes_core.conformance.checks import all_checks
from hermes_core.discovery import ProviderInfo
from hermes_core.errors import HermesError, describe
from hermes_core.loading import load_provider

#: Files of the scratch folder: what is told, and where the process was when it was ended.
ANSWER: Final = "answer"
STUCK: Final = "stuck"

_UMASK: Final = 0o022  # what most people have: modes must not depend on it


def child(request: dict[str, Any]) -> None:
    """Run what is asked for. Returns only where the end of the process is what is checked."""
    os.umask(_UMASK)
    sys.dont_write_bytecode = True  # the plugin's folder is not ours
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
    options = _options(request)
    checks = [each for each in all_checks() if each.id in request["checks"]]
    scratch = Path(request["scratch"])
    stuck = os.open(scratch / STUCK, os.O_CREAT | os.O_WRONLY, 0o600)  # open till the very end
    with (scratch / ANSWER).open("a", encoding="utf-8") as answer:

        def tell(**line: Any) -> None:
            answer.write(json.dumps(line) + "\n")
            answer.flush()

        def end_after(seconds: float) -> None:
            """End the process then, whatever it does; a plugin may hold the interpreter."""
            faulthandler.dump_traceback_later(seconds, exit=True, file=stuck)

        walled = not options.live and leave_network()
        watch = Watch(live=options.live, walled=walled)
        watch.install()
        end_after(options.limits.check)
        try:
            stage = _stage(request, options, watch)
        except HermesError as error:
            tell(unloadable=_cause(error))
            os._exit(0)
        tell(loaded=stage.first.name)
        for each in checks:
            tell(begun=each.id)
            end_after(options.limits.check)
            result = run(each, stage)
            if each.alone and result.state == PASSED:
                end_after(options.limits.settle)  # its end is what is checked
                return
            tell(result=asdict(result))
        tell(ended=True)
    os._exit(0)  # a plugin's threads must not hold us up


def _cause(error: HermesError) -> dict[str, str]:
    step = getattr(error, "step", "find")
    what = error.what.removeprefix(f"{step} failed: ")
    return {"what": what, "step": step, "hint": error.hint}


def run(check: Check, stage: Stage) -> Result:
    """Run one check; what goes wrong in it is its result."""
    begin = time.perf_counter()
    before = Belongings()
    bench = Bench(stage)
    os.environ["HERMES_HOME"] = str(bench.home)
    try:
        check.run(bench)
        result = Result.of(check, PASSED)
    except Skipped as reason:
        result = Result.of(check, SKIPPED, reason=str(reason))
    except Failed as failed:
        result = Result.failure(check, failed)
    except Exception as error:  # noqa: BLE001 - the plugin's objects may do anything
        where = stage.places.of_error(error)
        result = Result.failure(check, Failed(describe(error), where=where))
    finally:
        bench.close()
        before.restore()
    return replace(result, seconds=round(time.perf_counter() - begin, 4))


def _options(request: dict[str, Any]) -> Options:
    given = request["options"]
    return Options(**{**given, "limits": Limits(**given["limits"])})


def _stage(request: dict[str, Any], options: Options, watch: Watch) -> Stage:
    info = info_from(request["info"])
    scratch = Path(request["scratch"])
    running, belongings, output = Running.now(), Belongings(), scratch / OUTPUT
    already = output.stat().st_size
    cpu = time.process_time()
    with watch.during() as events:
        provider = load_provider(info, deadline=options.limits.load)
    loading = Loading(
        time.process_time() - cpu,
        tuple(events),
        tuple(running.new_threads()),
        printed_since(output, already),
        tuple(belongings.changes()),
    )
    places = Places(root_of(info, provider))
    stage = Stage(info, options, scratch, watch, loading, provider, places)
    driver = Driver(provider, places, options.limits)
    stage.fields = fields_of(info, driver)
    driver.close()
    return stage


def info_as_json(info: ProviderInfo) -> dict[str, Any]:
    """What is known of a plugin, on its way to the child."""
    paths = {
        "directory": info.directory and str(info.directory),
        "location": info.location and str(info.location),
    }
    return {**info._asdict(), **paths}


def info_from(told: dict[str, Any]) -> ProviderInfo:
    """The same, arrived."""
    paths = {key: Path(told[key]) if told[key] else None for key in ("directory", "location")}
    return ProviderInfo(**{**told, **paths, "files": tuple(told["files"])})
