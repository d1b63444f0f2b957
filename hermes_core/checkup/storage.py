"""`storage`: where a home stores what, whether that works, and moving it to another storage.

A migration copies the conversations first, while agents may run. Then it freezes the source
(`storage.migration`), copies the rest, compares counts and checksums of both sides, changes
``memory.storage`` and hands the spool over. A journal in the home says how far it is; every step
may be repeated, so the same command goes on after a crash at any point. The content of the source
is never changed.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_core.checkup.forget import exclusive, note_left
from hermes_core.checkup.migration import (
    CONTINUE,
    Migration,
    Phase,
    exclusive_migration,
    remove_migration,
    save_migration,
    unfinished_migration,
)
from hermes_core.config import Config, load_config
from hermes_core.config.config_file import FILES
from hermes_core.config.editor import change_config
from hermes_core.config.storage import database_at
from hermes_core.dispatch import as_builtin
from hermes_core.errors import HermesError
from hermes_core.loading.activation import activate_builtin
from hermes_core.outbox.part import OutboxPart
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.provider import BuiltinMethods
from hermes_core.storage.address import address_problem, shown_address
from hermes_core.storage.migration import MOVED_HINT, Progress, StoragePart, counted, no_progress
from hermes_core.storage.processes import users_of

if TYPE_CHECKING:
    from hermes_core.storage.inspection import ServerReport
    from hermes_core.storage.postgres import Database

#: How long the spool may be handed over. Afterwards agents that still run add to it, and do that.
_BEFORE_SECONDS: Final = 600.0
_AFTER_SECONDS: Final = 5.0

#: Called with what is being done, and for each step of it.
Report = Callable[[str], Progress]


def silent(what: str) -> Progress:  # noqa: ARG001 - see `Report`
    """Report nothing."""
    return no_progress


# -- what there is ------------------------------------------------------------------------------


class Storage:
    """All that a home stores, at one place: in its files, or in a namespace of a database.

    Args:
        config: What config.yaml says.
        address: The address of the database; "" for files.
        builtin: The built-in, which has the conversations and the notes.
        namespace: The home's name in the database; "" for that in config.yaml.
    """

    def __init__(
        self, config: Config, address: str, builtin: BuiltinMethods, namespace: str = ""
    ) -> None:
        self.address = address
        self.database: Database | None = None
        if address:
            self.database = database_at(
                config.home,
                address,
                namespace or config.storage_namespace,
                is_default=not (namespace or config.memory.get("storage_namespace")),
            )
        self.parts: list[StoragePart] = builtin.storage_parts(config.home, self.database)
        self.outbox = OutboxPart(config.home, self.database)
        self.parts.append(self.outbox)

    @property
    def shown(self) -> str:
        """Where it is, for people."""
        if self.database is None:
            return FILES
        return f"{self.database.where} ({self.database.namespace})"

    @property
    def conversations(self) -> Any:
        """The part that says whether all of this is an unfinished copy."""
        return self.parts[0]

    def inspect(self) -> ServerReport | None:
        """What the server says, without changing anything; None for files."""
        if self.database is None:
            return None
        from hermes_core.storage.inspection import inspect_server  # noqa: PLC0415 - imports psycopg

        return inspect_server(
            self.database, [each.component for each in self.parts if each.component]
        )

    def counts(self) -> dict[str, Mapping[str, int]]:
        """How much there is of what, by part."""
        return {each.name: each.counts() for each in self.parts}

    def close(self) -> None:
        """Close what is open."""
        for each in self.parts:
            each.close()


@contextmanager
def _opened(config: Config, address: str, namespace: str = "") -> Iterator[Storage]:
    storage = Storage(config, address, _builtin(config), namespace)
    try:
        yield storage
    finally:
        storage.close()


def _builtin(config: Config) -> BuiltinMethods:
    builtin = as_builtin(activate_builtin(config))
    assert builtin is not None  # noqa: S101 - it is ours
    return builtin


@dataclass(frozen=True, slots=True)
class PartReport:
    """One part of what a home stores; ``problem`` says why there is no more to say."""

    name: str
    place: str
    counts: Mapping[str, int]
    bytes: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StorageReport:
    """Where a home stores what.

    Attributes:
        storage: "files", or the address of the database without its password.
        namespace: The home's name in the database; "" for files.
        server: What the server says; None for files, or if it can't be used.
        parts: The conversations, the notes and the outbox.
        items: The file with the items of frameworks, which is local in any case; "" if none.
        spooled: How many turns wait in the spool.
        spooled_writes: How many writes for the outbox wait there.
        spooled_because: Why.
        migration: Where to, if a migration was interrupted; else "".
        problem: Why the storage can't be used.
        hint: What to do about it.
    """

    storage: str
    namespace: str = ""
    server: ServerReport | None = None
    parts: tuple[PartReport, ...] = ()
    items: str = ""
    spooled: int = 0
    spooled_writes: int = 0
    spooled_because: str = ""
    migration: str = ""
    problem: str = ""
    hint: str = ""

    @property
    def ok(self) -> bool:
        """Whether everything can be used, and nothing was interrupted."""
        return not (self.problem or self.migration or any(each.problem for each in self.parts))

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {"ok": self.ok, **asdict(self)}


def storage_status(config: Config) -> StorageReport:
    """Where a home stores what, and whether it can be used now."""
    shown = shown_address(config.storage) if config.storage else FILES
    namespace = config.storage_namespace if config.storage else ""
    builtin = _builtin(config)
    turns, why = builtin.spooled(config.home)
    writes, why_writes = OutboxSpool(config.home).waiting()
    unfinished = unfinished_migration(config.home)
    items = config.home / "items.db"
    report = StorageReport(
        shown, namespace, items=str(items) if items.exists() else "",
        spooled=turns, spooled_writes=writes, spooled_because=why or why_writes,
        migration=unfinished.target if unfinished else "",
    )  # fmt: skip
    try:
        with _opened(config, config.storage) as storage:
            server = storage.inspect()
            parts = () if server and server.is_new else tuple(map(_part, storage.parts))
            if storage.database is not None:
                namespace = storage.database.namespace  # that of the login, if it is bound
            report = replace(report, namespace=namespace, server=server, parts=parts)
            if parts and not unfinished and (why := storage.conversations.frozen()):
                return replace(report, problem=why, hint=MOVED_HINT)
            return report
    except HermesError as error:
        return replace(report, problem=error.what, hint=error.hint)


def _part(part: StoragePart) -> PartReport:
    try:
        return PartReport(part.name, part.place, part.counts(), part.size())
    except (HermesError, OSError) as error:
        return PartReport(part.name, part.place, {}, problem=str(error))


def check_storage(config: Config, report: Report = silent) -> list[str]:
    """Look at everything in the storage in use; returns what is wrong, a line each."""
    problems: list[str] = []
    try:
        with _opened(config, config.storage) as storage:
            server = storage.inspect()
            if server is not None:
                problems += server.problems
                if not server.role:
                    problems.append(
                        "connections use the owner of the tables: create the role hermes_tenant "
                        f"and grant it to {server.user}"
                    )
            parts = [] if server and server.is_new else storage.parts
            for part in parts:
                problems += _problems(part, report)
            if parts and (why := storage.conversations.frozen()):
                problems.append(f"{why}: {MOVED_HINT}")
    except HermesError as error:
        problems.append(str(error))
    if (unfinished := unfinished_migration(config.home)) is not None:
        problems.append(f"a migration to {unfinished.target} was interrupted: {CONTINUE}")
    turns, why = _builtin(config).spooled(config.home)
    if turns:
        waiting = "1 turn waits" if turns == 1 else f"{turns:,} turns wait"
        problems.append(f"{waiting} in the spool, because {why}")
    if writes := OutboxSpool(config.home).text():
        problems.append(writes)
    return problems


def _problems(part: StoragePart, report: Report) -> list[str]:
    try:
        return [f"{part.name}: {each}" for each in part.check(report(f"Checking the {part.name}"))]
    except (HermesError, OSError) as error:
        return [f"{part.name}: {error}"]


# -- moving -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What a migration moves.

    Attributes:
        source: Where it is, for people.
        target: Where it goes, for people.
        counts: How much there is of what, by part.
        bytes: How much room it takes at the source.
        resumed: Whether an interrupted one goes on.
        agents: Processes that still run with the old setting.
        spooled: How many turns wait in the spool, which stays in the home.
        spooled_writes: How many writes for the outbox wait there.
    """

    source: str
    target: str
    counts: Mapping[str, Mapping[str, int]]
    bytes: int = 0
    resumed: bool = False
    agents: tuple[str, ...] = ()
    spooled: int = 0
    spooled_writes: int = 0


def migrate(
    config: Config, to: str, *, dry_run: bool = False, report: Report = silent
) -> MigrationPlan:
    """Move everything that a home stores, or go on with it.

    Args:
        config: What config.yaml says.
        to: "files", or the address of a database.
        dry_run: Only look, and change nothing.
        report: Called with what is being done; returns what is called for each step of it.

    Raises:
        HermesError: It can't be done. The setting, and what the source has, are as before.
    """
    address = "" if to == FILES else to
    if address and (problem := address_problem(address)):
        todo = "to move to files: hermes-plugins storage migrate --to files"
        raise HermesError(f"--to: {problem}", hint=todo)
    with _exclusively(config.home):
        config = load_config(config.home)  # under the lock: it may have been switched just now
        migration = unfinished_migration(config.home)
        _refuse_other(config, migration, address)
        is_copied = migration is not None and migration.phase is Phase.SWITCHED
        if migration is not None and is_copied and not dry_run:
            return _finish(config, migration, report)
        origin = config.storage if migration is None else migration.source
        with ExitStack() as stack:
            source = stack.enter_context(_opened(config, origin))
            target = stack.enter_context(_opened(config, address))
            if is_copied:
                return _planned(config, source, target, resumed=True)
            for each in (source, target):
                _refuse_login(config, each)
            _refuse_target(source, target, resumed=migration is not None)
            _refuse_nothing(source)
            _refuse_agents(config, source)
            if dry_run:
                return _planned(config, source, target, resumed=migration is not None)
            return _moved(config, source, target, report, resumed=migration is not None)


@contextmanager
def _exclusively(home: Path) -> Iterator[None]:
    """One migration at a time, and no `forget` meanwhile."""
    with exclusive(home), exclusive_migration(home):
        yield


def _refuse_other(config: Config, migration: Migration | None, address: str) -> None:
    if migration is not None and migration.target != (address or FILES):
        raise HermesError(
            f"a migration to {shown(migration.target)} was interrupted",
            hint="continue it with the same --to, or end it with --cancel",
        )
    if migration is not None and migration.namespace != config.storage_namespace:
        raise HermesError(
            f"the interrupted migration is of the namespace {migration.namespace}",
            hint="set memory.storage_namespace back to it, or end the migration with --cancel",
        )
    if migration is not None and config.storage not in (migration.source, address):
        source = shown(migration.source or FILES)
        raise HermesError(
            f"the interrupted migration is from {source}, and the home stores to "
            f"{shown(config.storage or FILES)}",
            hint=f"set memory.storage back to {source}, or end the migration with --cancel",
        )
    if migration is None and config.storage == address:
        what = f"the home already stores to {shown(address or FILES)}"
        raise HermesError(what, hint="see: hermes-plugins storage status")


def shown(address: str) -> str:
    """An address without anything secret."""
    return address if address == FILES else shown_address(address)


def _refuse_login(config: Config, storage: Storage) -> None:
    """Refuse a user who may not freeze or create tables, before anything is changed."""
    server = storage.inspect()  # also raises if it is not ours
    if storage.database is not None and storage.database.namespace != config.storage_namespace:
        raise HermesError(
            f"the login in the address is bound to the namespace {storage.database.namespace}",
            where=storage.database.where,
            hint="name the user who created the tables in the address, for this command",
        )
    if server is not None and not server.is_owner:
        raise HermesError(
            f"{server.user} can't move a memory: it does not own our tables in the database",
            where=storage.shown,
            hint="name the user who created them in the address, for this command",
        )


def _refuse_nothing(source: Storage) -> None:
    """Refuse a namespace without content: its name is probably not that of the memory."""
    if source.database is None or any(any(each.values()) for each in source.counts().values()):
        return
    raise HermesError(
        f"there is nothing to move: {source.shown} has no content",
        hint="check memory.storage_namespace; to start empty elsewhere, run: "
        "hermes-plugins config set memory.storage URL",
    )


def _refuse_target(source: Storage, target: Storage, *, resumed: bool) -> None:
    """Refuse a target that has content which is not an unfinished copy."""
    server = target.inspect()
    if server is not None and server.is_new:
        return
    counts = target.counts()
    found = {
        counted(count, what) for each in counts.values() for what, count in each.items() if count
    }
    if not found or target.conversations.is_incomplete:
        return
    what = f"{target.shown} already has content ({', '.join(sorted(found))})"
    if source.database is not None and target.database is not None:
        # Another name would be that of the source, too.
        hint = "use another database; to add this memory to it, see `hermes-plugins export --help`"
    elif target.database is not None:
        hint = (
            "choose another name with: hermes-plugins config set memory.storage_namespace NAME; "
            "to add this memory to it, see `hermes-plugins export --help`"
        )
    else:
        hint = (
            "move state.db, sessions.db, outbox.db, memories and pending away, with -wal and -shm"
        )
    if resumed:
        hint = "somebody uses it; end this migration with --cancel, then choose another name"
    raise HermesError(what, hint=hint)


def _refuse_agents(config: Config, source: Storage) -> None:
    found = [*users_of(config.home), *source.outbox.claims()]
    if found:
        raise HermesError(
            f"agents still use this home: {', '.join(found)}", hint="stop them, and try again"
        )


def _planned(config: Config, source: Storage, target: Storage, *, resumed: bool) -> MigrationPlan:
    turns, _ = _builtin(config).spooled(config.home)
    writes, _ = OutboxSpool(config.home).waiting()
    size = sum(each.size() for each in source.parts)
    return MigrationPlan(
        source.shown, target.shown, source.counts(), size, resumed=resumed,
        spooled=turns, spooled_writes=writes,
    )  # fmt: skip


def _moved(
    config: Config, source: Storage, target: Storage, report: Report, *, resumed: bool
) -> MigrationPlan:
    home = config.home
    # What waits for the old storage goes there first, if that is possible; else it goes to the new
    # one at the end: it is in the home, and is not part of either.
    if config.storage == source.address:
        _builtin(config).spooled(home, seconds=_BEFORE_SECONDS)
    with suppress(HermesError):
        OutboxSpool(home).hand_over(source.outbox.store)
    migration = Migration(source.address, target.address or FILES, config.storage_namespace)
    save_migration(home, migration)
    target.conversations.begin_copy()
    for part in target.parts:
        part.thaw()
    # Most of it, while whoever came back may still write.
    target.conversations.copy_from(source.conversations, report("Copying the conversations"))
    save_migration(home, replace(migration, phase=Phase.FROZEN))
    try:
        counts = _copied(source, target, report)
    except BaseException:
        # Also Ctrl-C: agents go on with the source. The next attempt starts from what is there.
        with suppress(HermesError, OSError):
            _thaw(source)
            save_migration(home, migration)
        raise
    save_migration(home, replace(migration, phase=Phase.SWITCHED))
    done = _finish(config, migration, report)
    return replace(done, counts=counts, resumed=resumed)


def _copied(source: Storage, target: Storage, report: Report) -> dict[str, Mapping[str, int]]:
    """Freeze the source, copy the rest, and compare; returns how much there is."""
    where = target.shown if target.address else f"files on {platform.node() or 'another machine'}"
    why = f"this memory has moved, or moves now, to {where}"
    for part in source.parts:
        part.freeze(why)
    for new, old in zip(target.parts, source.parts, strict=True):
        new.copy_from(old, report(f"Copying the {new.name}"))
    for new, old in zip(target.parts, source.parts, strict=True):
        problem = _difference(new, old, report)
        if problem is not None and new is target.parts[0]:
            # Somebody has deleted or replaced something at the source after it was copied.
            target.conversations.correct(old, report(f"Correcting the {new.name}"))
            problem = _difference(new, old, report)
        if problem is not None:
            raise problem
    return source.counts()


def _difference(new: StoragePart, old: StoragePart, report: Report) -> HermesError | None:
    before, after = old.counts(), new.counts()
    if before != after:
        return HermesError(
            f"the copy of the {new.name} is not complete: {_listed(before)} at the source, "
            f"{_listed(after)} at the target", hint="run it again; nothing was switched",
        )  # fmt: skip
    checked = report(f"Comparing the {new.name}")
    if old.digest(checked) != new.digest(checked):
        return HermesError(
            f"the copy of the {new.name} has another checksum than the source",
            hint="run it again, or report this; nothing was switched",
        )
    return None


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(counted(count, what) for what, count in counts.items())


def _thaw(storage: Storage) -> None:
    for part in storage.parts:
        part.thaw()


def _finish(config: Config, migration: Migration, report: Report) -> MigrationPlan:
    """Use the copy, which is complete; hand over what agents kept meanwhile."""
    change_config(config.home, {("memory", "storage"): migration.target}, valid=True)
    config = load_config(config.home)
    report("Handing over what waits")
    with _opened(config, config.storage) as storage:
        storage.conversations.end_copy()
        turns, _ = _builtin(config).spooled(config.home, seconds=_AFTER_SECONDS)
        with suppress(HermesError):  # the next agent does it
            OutboxSpool(config.home).hand_over(storage.outbox.store)
        writes, _ = OutboxSpool(config.home).waiting()
        counts = storage.counts()
        where = storage.shown
    source = shown(migration.source or FILES)
    if migration.source:
        note_left(config.home, f"{source} ({migration.namespace})")
    note_left(config.home, where, in_use=True)
    remove_migration(config.home)
    agents = tuple(users_of(config.home))
    return MigrationPlan(
        source, where, counts, resumed=True, agents=agents, spooled=turns, spooled_writes=writes
    )


def cancel(config: Config) -> str:
    """End a migration that was interrupted, and let the source be used again; returns its target.

    Raises:
        HermesError: There is none, or the source can't be used now.
    """
    with _exclusively(config.home):
        migration = unfinished_migration(config.home)
        if migration is None:
            return _unfreeze(config)
        if migration.phase is Phase.SWITCHED and config.storage == _address(migration.target):
            raise HermesError(
                "the migration has switched memory.storage already",
                hint="run the same command without --cancel to finish it",
            )
        # The setting may have been changed since; what is frozen has the name of then.
        with _opened(config, migration.source, migration.namespace) as source:
            _thaw(source)
        remove_migration(config.home)
        return shown(migration.target)


def _unfreeze(config: Config) -> str:
    """Let the storage in use be changed again: a person has gone back to an old one by hand."""
    with _opened(config, config.storage) as storage:
        _thaw(storage)
        note_left(config.home, storage.shown, in_use=True)
    return ""


def _address(target: str) -> str:
    return "" if target == FILES else target
