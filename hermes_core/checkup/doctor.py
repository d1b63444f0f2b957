"""`doctor`: checks the home, its configuration and its providers by using them.

`examine_files` and `examine_deliveries` run in the command's process. `examine_providers` runs
plugin code, so it runs in a sandboxed child process; see `run_doctor`.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_core.call_log import hook_health
from hermes_core.checkup.child_process import run_plugin_code
from hermes_core.checkup.deliveries import (
    RETRY,
    SEE_FAILED,
    ActiveProvider,
    Problem,
    active_provider,
    is_refuted,
    outbox_warnings,
    stuck,
    writes,
    writes_fail,
)
from hermes_core.checkup.forget import INTERRUPTED
from hermes_core.checkup.migration import CONTINUE, unfinished_migration
from hermes_core.checkup.storage import opened_storage
from hermes_core.checkup.survey import JOURNAL
from hermes_core.config import Config, load_config
from hermes_core.config.lock_file import FILE_NAME as LOCK_FILE
from hermes_core.config.lock_file import read_lock_file, unreadable_file
from hermes_core.config.settings import ProviderConfigError
from hermes_core.discovery import ProviderInfo, hook_problems, manifest_of, pin_problem, scan
from hermes_core.dispatch import SingleProvider, as_builtin
from hermes_core.errors import (
    ConfigError,
    DatabaseError,
    DeadlineExceeded,
    HermesError,
    SecretsError,
    describe,
)
from hermes_core.loading.activation import (
    Activation,
    activate,
    activate_builtin,
    deadlines_of,
)
from hermes_core.loading.requirements import applicable_requirements
from hermes_core.outbox import admin
from hermes_core.outbox.admin import OutboxBacklog
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.privacy import mask_secrets
from hermes_core.secrets import Secrets
from hermes_core.secrets.store import NO_ANSWER, NOT_SET
from hermes_core.storage.files import LockTimeoutError, file_lock, network_file_system
from hermes_core.storage.outages import known_outage

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"

#: The user and the session under which `doctor` writes.
SCRATCH: Final = "hermes-doctor"
# Not a budget for each check, but the limit after which the child counts as hanging.
_DOCTOR_SECONDS: Final = 120.0
_RECALL_SECONDS: Final = 10.0
_RECALL_PAUSE: Final = 0.5
#: Beyond its time, for a provider to report itself that its service did not answer.
_GRACE_SECONDS: Final = 1.0
_END_SECONDS: Final = 0.5
_DAY: Final = 86_400.0
# 100 MB: below that, a database of a few sessions and its write-ahead log may not fit.
_ROOM: Final = 100_000_000
# 1 MB: below that, the next turn may not fit.
_LEAST_ROOM: Final = 1_000_000
_MAKE_WRITABLE: Final = "change its permissions, or mount its file system for writing"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_PRIVATE: Final = (".env", "secrets.json")
_DATABASES: Final = ("state.db", "sessions.db", "outbox.db", "items.db", "imported.db")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and what to do about it.

    Attributes:
        check: What was checked.
        state: `OK`, `WARNING` or `PROBLEM`.
        detail: What was found.
        todo: What a person can do about it.
        fix: Fixes it where that is safe, and returns a sentence about what it did. It stays in
            the process that made it.
    """

    check: str
    state: str = OK
    detail: str = ""
    todo: str = ""
    fix: Callable[[], str] | None = None

    def as_json(self) -> dict[str, Any]:
        """The finding for `doctor --json`."""
        return {
            "check": self.check,
            "state": self.state,
            "detail": self.detail,
            "todo": self.todo,
            "fixable": self.fix is not None,
        }


def run_doctor(
    config: Config, *, write: bool = False, fix: bool = False, before: Iterable[Finding] = ()
) -> list[Finding]:
    """Check everything.

    Args:
        config: What config.yaml says.
        write: Whether to write to the external provider, too.
        fix: Whether to fix what can be fixed safely.
        before: Findings of the caller, which come first.
    """
    # First, because the probe's answer decides whether old failures are still a problem.
    used, active = _examine_in_child(config, write=write, fix=fix)
    answers = any(each.check == "probe" and each.state == OK for each in used)
    own = [*before, *examine_files(config), *examine_deliveries(config, active, answers=answers)]
    return [*(_fixed(each) if fix else each for each in own), *used]


# Only file modes and an index that is rebuilt from a verified copy are fixed automatically. A
# program that repairs what it does not understand makes two problems out of one.
def _fixed(finding: Finding) -> Finding:
    if finding.fix is None:
        return finding
    try:
        done = finding.fix()
    except (OSError, HermesError) as error:  # the other findings are still reported
        detail = f"{finding.detail}; can't be fixed: {describe(error)}"
        return replace(finding, detail=detail, fix=None)
    return Finding(finding.check, OK, f"{finding.detail}; fixed: {done}")


def _examine_in_child(
    config: Config, *, write: bool, fix: bool
) -> tuple[list[Finding], ActiveProvider]:
    """The findings about providers; incomplete if their code ends the child process.

    Also returns the active provider, which the child's scan found: one scan is enough.
    """
    seconds = deadlines_of(config).initialize + _DOCTOR_SECONDS
    call = partial(examine_providers, config.home, write=write, fix=fix)
    done = run_plugin_code(config, call, seconds=seconds)
    findings = [each for each in done.results if isinstance(each, Finding)]
    known = [each for each in done.results if isinstance(each, ActiveProvider)]
    if done.problem:
        what, _, detail = done.problem.partition(": ")
        todo = "look at its log, or run: hermes-plugins disable"
        findings.append(Finding(what, PROBLEM, detail, todo))
    return findings, known[0] if known else active_provider(config)


# -- the home, in the command's process -------------------------------------------------------


def examine_files(config: Config) -> Iterator[Finding]:
    """The home itself, config.yaml, locks, import hooks and secrets."""
    yield from examine_home(config.home)
    if (config.home / JOURNAL).exists():
        yield Finding("forget", PROBLEM, INTERRUPTED, "run: hermes-plugins forget")
    yield from _migration(config.home)
    yield from _server(config)
    yield from examine_config(config.home)
    yield from examine_hooks()
    yield from examine_secrets(config.home, config.secrets_backend)


def _migration(home: Path) -> Iterator[Finding]:
    """A migration that was interrupted, or whose journal can't be read."""
    try:
        migration = unfinished_migration(home)
    except HermesError as error:
        yield Finding("migration", PROBLEM, error.what, error.hint)
        return
    if migration is not None:
        detail = f"to {migration.shown_target}: it was interrupted"
        yield Finding("migration", PROBLEM, detail, CONTINUE)


def _server(config: Config) -> Iterator[Finding]:
    """What a server says about the protection of our tables, and about the rights to them."""
    # A server that does not answer was waited for once, and other checks report it.
    if not config.storage or known_outage(config.storage) is not None:
        return
    try:
        with opened_storage(config, config.storage) as storage:
            server = storage.inspect()
    except HermesError:
        return
    for problem in server.problems if server is not None else ():
        yield Finding("storage", PROBLEM, problem, "see: hermes-plugins storage check")


def examine_hooks() -> Iterator[Finding]:
    """The import hooks of others: what they can't list is missing in `list`."""
    for problem in hook_problems():
        yield Finding("import hook", WARNING, problem, "report it to the author of the hook")


def examine_home(home: Path) -> Iterator[Finding]:
    """Whether the folder can be used, is private, and has room."""
    if not home.exists():
        yield Finding("home", OK, f"{home} does not exist yet; it is created when needed")
        return
    if not _is_writable(home):
        what = f"{home} is read-only: nothing can be stored"
        yield Finding("home", PROBLEM, what, _MAKE_WRITABLE)
        return
    free = shutil.disk_usage(home).free
    room = f"{home}, {_size(free)} free"
    if free < _ROOM:
        fails = "nothing can be stored" if free < _LEAST_ROOM else "writes will fail soon"
        yield Finding("home", PROBLEM, room, f"free some space: {fails}")
    else:
        yield Finding("home", OK, room)
    if kind := network_file_system(home):
        detail = f"{kind}: writes are slower there"
        yield Finding("file system", WARNING, detail, "use a local folder")
    yield from _modes(home)


def home_limits(home: Path) -> tuple[list[Problem], list[Problem]]:
    """The problems and the warnings of `status` about the disk of a home."""
    if not home.exists():
        return [], []
    if not _is_writable(home):
        what = f"{home} is read-only: an agent can store nothing there"
        return [], [Problem(what, _MAKE_WRITABLE)]
    free = shutil.disk_usage(home).free
    if free < _LEAST_ROOM:
        what = f"the disk of {home} is full ({_size(free)} free): nothing can be stored"
        return [Problem(what, "free some space")], []
    few = Problem(f"the disk of {home} is nearly full: {_size(free)} free", "free some space")
    return [], [few] if free < _ROOM else []


def _is_writable(home: Path) -> bool:
    # As the effective user, where the system can tell: that is who writes.
    effective = os.access in os.supports_effective_ids
    return os.access(home, os.W_OK | os.X_OK, effective_ids=effective)


def _size(count: int) -> str:
    """A number of bytes, for people."""
    return f"{count / 1e9:,.1f} GB" if count >= _ROOM else f"{count / 1e6:,.1f} MB"


def _modes(home: Path) -> Iterator[Finding]:
    if os.name != "posix":
        return
    for name in (*_PRIVATE, *_DATABASES):
        path = home / name
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if not mode & _OTHERS:
            continue
        detail = f"others can read it (mode {mode:04o})"
        if name in _DATABASES:
            # SQLite copies the mode of a database to the files beside it while it is open, so
            # changing it under a running agent would leave them different.
            todo = f"when no agent runs: chmod 600 {path}*"
            yield Finding(name, WARNING, detail, todo)
        else:
            fix = partial(_make_private, path)
            yield Finding(name, WARNING, detail, f"chmod 600 {path}", fix)


def _make_private(path: Path) -> str:
    path.chmod(0o600)
    return f"{path.name} is private now"


def examine_config(home: Path) -> Iterator[Finding]:
    """config.yaml, plugins.lock.json, and whether another process holds a lock."""
    try:
        config = load_config(home, plugins=False)
    except ConfigError as error:
        for problem in error.problems:
            detail = problem.replace("config.yaml:", "line ", 1)
            yield Finding("config.yaml", PROBLEM, detail, error.hint)
        return
    detail = "valid" if config.path.exists() else "not found, using defaults"
    yield Finding("config.yaml", OK, detail)
    try:
        read_lock_file(home)
    except ConfigError as error:
        detail = str(error.problems[0]).removeprefix(f"{home / LOCK_FILE}:").strip()
        line = "line " if detail[:1].isdigit() else ""
        yield Finding(LOCK_FILE, PROBLEM, f"{line}{detail}", error.hint)
    # 0.2 s: a lock that is held for a normal write is free by then.
    for lock in ("config.yaml.lock", ".env.lock"):
        if (home / lock).exists():
            try:
                with file_lock(home / lock, 0.2):
                    pass
            except LockTimeoutError as error:
                yield Finding(lock, WARNING, f"held by {error.holder}", "wait until it is done")
            except OSError as error:
                todo = f"check its permissions: ls -l {home / lock}"
                yield Finding(lock, PROBLEM, f"can't be locked: {error.strerror}", todo)


def examine_secrets(home: Path, backend: str) -> Iterator[Finding]:
    """Whether the stores of secrets answer, and have the secrets that we know of."""
    try:
        secrets = Secrets(home, backend)
        where = secrets.where()
        if where.problem:
            todo = "set secrets.backend to auto or dotenv, or unlock the keyring"
            yield Finding("secrets", PROBLEM, where.problem, todo)
        else:
            place = ".env" if where.store == "dotenv" else "the OS keyring"
            yield Finding("secrets", OK, f"new ones are stored in {place}: {where.reason}")
        for each in secrets.names():
            if each.state in (NO_ANSWER, NOT_SET):
                yield Finding(
                    each.variable,
                    PROBLEM,
                    each.state,
                    "run where the keyring answers: hermes-plugins secrets move --to dotenv"
                    if each.state == NO_ANSWER
                    else f"run: hermes-plugins secrets set {each.variable}",
                )
            else:
                yield Finding(each.variable, OK, each.state)
    except SecretsError as error:
        yield Finding("secrets", PROBLEM, error.what, error.hint)


# -- deliveries, in the command's process -----------------------------------------------------


def examine_deliveries(
    config: Config, active: ActiveProvider, *, answers: bool = False
) -> Iterator[Finding]:
    """The outbox and the call log; ``answers``: the service has just answered a probe."""
    yield from _outbox(config, active, answers=answers)
    yield from _calls(config, active, answers=answers)


def _outbox(config: Config, active: ActiveProvider, *, answers: bool) -> Iterator[Finding]:
    try:
        with closing(admin.open_store(config, set_aside=False)) as store:
            # SQLite's own integrity check, since a damaged page may not be read by the report.
            whole = store.database.is_whole()
            report = admin.report(store)
    except DatabaseError as error:
        todo = error.hint or "the next agent that runs sets a damaged file aside"
        yield Finding("outbox", PROBLEM, error.what, todo)
        if spooled := OutboxSpool(config.home).text():
            yield Finding("outbox", WARNING, spooled, "they are handed over when it works again")
        return
    if not whole:
        todo = "the next agent that runs sets it aside; then: hermes-plugins outbox backfill"
        yield Finding("outbox", PROBLEM, "outbox.db is damaged", todo)
        return
    fails = stuck(report, active, time.time())
    if fails:
        state = _state(fails, answers=answers)
        yield Finding("outbox", state, fails, RETRY)
    for each in outbox_warnings(report):
        yield Finding("outbox", WARNING, each.what, each.hint)
    waiting = [_waiting(each, active) for each in report.backlogs if each.waiting]
    if not fails:
        yield Finding("outbox", OK, "; ".join(waiting) or "readable, nothing is waiting")


def _state(fails: str, *, answers: bool) -> str:
    """A failure is only a warning if the service's answer shows that it is over."""
    return WARNING if answers and is_refuted(fails) else PROBLEM


def _waiting(backlog: OutboxBacklog, active: ActiveProvider) -> str:
    text = f"{writes(backlog.waiting)} waiting for {backlog.provider}"
    return text if active.owns(backlog) else f"{text}, which is not active"


def _calls(config: Config, active: ActiveProvider, *, answers: bool) -> Iterator[Finding]:
    now = time.time()
    try:
        calls = sum(each.calls for each in hook_health(config.home, since=now - _DAY))
        fails = writes_fail(config, active, now)
    except DatabaseError as error:
        yield Finding("call log", WARNING, error.what, error.hint)
        return
    if fails:
        state = _state(fails, answers=answers)
        yield Finding("writes", state, fails, SEE_FAILED)
    yield Finding("call log", OK, f"{calls:,} calls in the last 24 hours")


# -- providers, in the child process ----------------------------------------------------------


def examine_providers(home: Path, *, write: bool, fix: bool) -> Iterator[Finding | ActiveProvider]:
    """Everything that runs the code of providers, the built-in's first."""
    try:
        yield from _examine_providers(home, write=write, fix=fix)
    except HermesError as error:
        found = Problem.of(error)
        yield Finding("doctor", PROBLEM, found.what, found.hint)
    except Exception as error:  # noqa: BLE001 - a plugin's, or ours; the findings so far stay
        yield Finding("doctor", PROBLEM, describe(error), "please report it")


def _examine_providers(home: Path, *, write: bool, fix: bool) -> Iterator[Finding | ActiveProvider]:
    try:
        config = load_config(home)
    except ConfigError as error:
        # The built-in works without config.yaml, and its files are what most needs a check.
        yield from _builtin(Config(home), fix=fix)
        detail = f"not known while {unreadable_file(error)} can't be read"
        yield Finding("external provider", WARNING, detail, error.hint)
        return
    installed = scan(home, config.selection, everything=True)
    yield active_provider(config, installed)
    yield from _builtin(config, installed, fix=fix)
    yield from _conflicts(installed)
    yield from _external(config, installed, write=write)


def _builtin(
    config: Config, installed: list[ProviderInfo] | None = None, *, fix: bool
) -> Iterator[Finding]:
    """What the built-in reports about its files."""
    builtin = as_builtin(activate_builtin(config, installed))
    if builtin is not None:
        for row in builtin.diagnose(config.home, fix=fix):
            yield Finding(*row)


def _conflicts(installed: list[ProviderInfo]) -> Iterator[Finding]:
    """Names that two owners claim, and plugins that are broken."""
    for each in installed:
        if each.state == "conflict":
            todo = f"choose one: hermes-plugins enable {each.name}@OWNER"
            yield Finding(f"plugin {each.name}", PROBLEM, each.problem, todo)
        # An invalid plugin.yaml of a plugin that loads is shown by `list`.
        elif each.state == "broken" and not each.loadable:
            todo = "report it to its author"
            yield Finding(f"plugin {each.name}", WARNING, each.problem, todo)


def _external(config: Config, installed: list[ProviderInfo], *, write: bool) -> Iterator[Finding]:
    """The provider that config.yaml names."""
    name = config.selection.name
    if not name:
        yield Finding("external provider", OK, "none is configured")
        return
    activation = activate(config, installed=installed)
    if activation.info is not None:
        yield _pin(config, activation.info)
        yield from _dependencies(activation.info)
    if activation.provider is None:
        yield from _not_active(name, activation)
        return
    yield Finding(f"plugin {name}", OK, "loads, is set up and available")
    for warning in activation.warnings:
        detail = warning.removeprefix(f"plugin {name}: ")
        if activation.info is None or detail != activation.info.problem:  # `_pin` reported it
            yield Finding(f"plugin {name}", WARNING, detail)
    yield _backup_paths(config, activation)
    # The details may quote a service's answer, which may quote the key.
    for finding in start_provider(config, activation, write=write):
        yield replace(finding, detail=mask_secrets(finding.detail, activation.secrets))


def _pin(config: Config, info: ProviderInfo) -> Finding:
    """Whether the provider is the one that was enabled."""
    name = config.selection.name
    if config.selection.pin is None:
        return Finding("pin", OK, f"not pinned; to pin it: hermes-plugins enable {name}")
    changed = pin_problem(info, config.selection)
    if changed:
        todo = f"if you changed it yourself: hermes-plugins enable {name}"
        return Finding("pin", WARNING, changed.partition("; run: ")[0], todo)
    return Finding("pin", OK, "unchanged since it was enabled")


def _not_active(name: str, activation: Activation) -> Iterator[Finding]:
    error = activation.error
    if isinstance(error, ProviderConfigError):
        for problem in error.problems:
            yield Finding("setting", PROBLEM, problem, f"run: hermes-plugins setup {name}")
    elif error is not None:
        todo = error.hint or "report it to its author, or run: hermes-plugins disable"
        # A file with secrets that can't be read is not the plugin's fault: name the file.
        is_file = isinstance(error, SecretsError) and error.where
        what = f"{error.where}: {error.what}" if is_file else error.what
        yield Finding(f"plugin {name}", PROBLEM, what, todo)


def start_provider(
    config: Config, activation: Activation, *, write: bool, seconds: float = 0.0
) -> Iterator[Finding]:
    """Start the activated provider, have it probe its service, and shut it down.

    Args:
        config: What config.yaml says.
        activation: Has the provider.
        write: Whether to write something, too.
        seconds: The time for all of it, if not 0.
    """
    deadlines = deadlines_of(config)
    if seconds:
        # A start may import an SDK, which takes its time on a busy machine and does not mean
        # that the service is down: what it takes beyond its share is left to the probe again.
        start = min(deadlines.initialize, seconds + _GRACE_SECONDS)
        deadlines = deadlines._replace(initialize=start, tool=seconds, shutdown=_END_SECONDS)
    end = time.monotonic() + (seconds or deadlines.initialize + deadlines.tool)
    assert activation.provider is not None  # noqa: S101 - the caller looked
    values = activation.settings.values if activation.settings else None
    single = SingleProvider(
        activation.provider, config.selection.name, deadlines=deadlines, config=values
    )
    try:
        probes = single.overrides("probe")
        # A probe cleans up after itself, so it uses the profile of an agent: a key may be valid
        # for that one only.
        profile = "default" if probes else SCRATCH
        session = scratch_session(config.home, profile)
        outcome = single.call("initialize", session_id=SCRATCH, extra=session)
        if outcome.error is not None:
            yield _not_started(outcome.error, deadlines.initialize if seconds else 0.0)
            return
        yield Finding("initialize", OK, f"{outcome.seconds:.2f} s")
        if probes:
            # A probe removes what it wrote; a marker of ours might stay in the service.
            left = min(deadlines.tool, max(end - time.monotonic(), _GRACE_SECONDS))
            single.deadlines = deadlines._replace(tool=left)
            yield _probe(single, left, write=write)
        elif write:
            yield _write(single)
        single.call("shutdown")
    # Bounded: a provider that hangs at its end must not use up the time of the report.
    finally:
        single.close(_END_SECONDS)


def scratch_session(home: Path, profile: str) -> dict[str, Any]:
    """The session of a provider that is started for a check."""
    return {
        "hermes_home": str(home), "platform": "cli", "agent_context": "primary",
        "agent_identity": profile, "agent_workspace": "hermes", "user_id": SCRATCH,
    }  # fmt: skip


def _not_started(error: Exception, limit: float) -> Finding:
    detail = describe(error)
    if limit and isinstance(error, DeadlineExceeded):
        detail = f"its service did not answer within {limit:.1f} s, with the start of its provider"
    return Finding("initialize", PROBLEM, detail, "see its documentation")


def _probe(single: SingleProvider, deadline: float, *, write: bool) -> Finding:
    outcome = single.call("probe", write=write)
    if isinstance(outcome.error, DeadlineExceeded):
        ok, detail = False, f"its service did not answer within {deadline:.1f} s"
    elif outcome.error is not None:
        ok, detail = False, describe(outcome.error)
    elif outcome.value is None:
        ok, detail = False, "its probe returned nothing"
    else:
        ok, detail = outcome.value.ok, outcome.value.detail
    return Finding("probe", OK if ok else PROBLEM, detail, "" if ok else "see its documentation")


def _write(single: SingleProvider) -> Finding:
    """Write a marker and recall it by another word: a provider may repeat the question."""
    # Unique per run, so that an older run's marker can't be recalled instead.
    number = f"{time.time_ns():x}"
    asked, marker = f"question-{number}", f"answer-{number[::-1]}"
    text = f"This is a test entry of hermes-plugins doctor: {asked} has the {marker}"
    outcome = single.call(
        "sync_turn", user_content=text, assistant_content="Understood.", session_id=SCRATCH,
        messages=None, turn_author=None,
    )  # fmt: skip
    if outcome.error is not None:
        todo = "see its documentation: its backend rejects turns"
        return Finding("write", PROBLEM, describe(outcome.error), todo)
    end = time.monotonic() + _RECALL_SECONDS
    # Many services index a write some seconds after they accept it.
    while time.monotonic() < end:
        recalled = single.call("prefetch", query=asked, session_id=SCRATCH)
        if marker in str(recalled.value or ""):
            return Finding("write", OK, "a marker was written and recalled")
        time.sleep(_RECALL_PAUSE)
    todo = "try again later; some backends take minutes"
    return Finding("write", WARNING, "accepted, not yet recallable", todo)


def _backup_paths(config: Config, activation: Activation) -> Finding:
    """What a backup has to include besides the home."""
    assert activation.provider is not None  # noqa: S101 - the caller looked
    name = config.selection.name
    with SingleProvider(activation.provider, name, deadlines=deadlines_of(config)) as single:
        outcome = single.call("backup_paths")
    if outcome.error is not None:
        detail = f"backup_paths failed: {describe(outcome.error)}"
        return Finding("backup", WARNING, detail, "report it to its author")
    paths = ", ".join(str(each) for each in outcome.value or ())
    return Finding("backup", OK, f"besides the home: {paths}" if paths else "the home is enough")


# -- what a plugin requires -------------------------------------------------------------------


def _dependencies(info: ProviderInfo) -> Iterator[Finding]:
    """A finding for each requirement that is not met, or one if all are."""
    wanted, invalid = applicable_requirements(_declared(info))
    findings = [
        Finding("dependencies", WARNING, f"not a valid requirement: {text}") for text in invalid
    ]
    findings += filter(None, map(_unmet, wanted))
    yield from findings
    if wanted and not findings:
        yield Finding("dependencies", OK, f"{len(wanted)} declared, none missing")


def _declared(info: ProviderInfo) -> list[str]:
    """The requirements of its distribution and of its plugin.yaml."""
    from importlib_metadata import PackageNotFoundError, requires  # noqa: PLC0415 - slow

    wanted: list[str] = []
    if info.distribution:
        # Found by its files, but its metadata is damaged.
        with suppress(PackageNotFoundError):
            wanted += requires(info.distribution) or []
    listed = manifest_of(info).get("pip_dependencies")
    return wanted + [
        each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, str)
    ]


def _unmet(requirement: Requirement) -> Finding | None:
    """What is wrong with a required package, if anything is."""
    from importlib_metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow
    from packaging.version import InvalidVersion  # noqa: PLC0415 - slow

    name = requirement.name
    clauses = str(requirement.specifier)
    install = f"pip install '{name}{clauses}'"
    try:
        installed = version(name)
        # A pre-release that somebody installed counts: pip accepts it, too.
        met = requirement.specifier.contains(installed, prereleases=True)
    except PackageNotFoundError:
        return Finding(f"needs {name}", PROBLEM, "not installed", install)
    except (KeyError, TypeError, InvalidVersion):
        detail = "its metadata has no valid version"
        return Finding(f"needs {name}", PROBLEM, detail, f"{install} --force-reinstall")
    if met:
        return None
    detail = f"{installed} is installed, but {clauses} is required"
    return Finding(f"needs {name}", WARNING, detail, install)
