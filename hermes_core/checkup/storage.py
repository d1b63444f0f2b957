"""`storage`: where a home stores what, whether that works, and moving it to another storage.

A migration copies the conversations first, while agents may run. Then it freezes the source
(`storage.migration`), copies the rest, compares counts and checksums of both sides, changes
``memory.storage`` and hands the spool over. A journal in the home says how far it is; every step
may be repeated, so the same command goes on after a crash at any point. The content of the source
is never changed.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes_core.checkup.deliveries import Problem
from hermes_core.checkup.forget import exclusive, note_left
from hermes_core.checkup.migration import (
    CONTINUE,
    Migration,
    Phase,
    exclusive_migration,
    last_migration,
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
from hermes_core.storage.migration import (
    Progress,
    StoragePart,
    copied_by,
    counted,
    frozen_hint,
    incomplete_copy,
    moved_to,
    moving_to,
    no_progress,
)
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
        self._is_copying = False
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

    def inspect(self, *, thorough: bool = False) -> ServerReport | None:
        """What the server says; None for files. See `inspect_server`."""
        if self.database is None:
            return None
        from hermes_core.storage.inspection import inspect_server  # noqa: PLC0415 - imports psycopg

        return inspect_server(
            self.database,
            [each.component for each in self.parts if each.component],
            thorough=thorough,
        )

    def counts(self) -> dict[str, Mapping[str, int]]:
        """How much there is of what, by part."""
        return {each.name: each.counts() for each in self.parts}

    def begin_copy(self, migration: str) -> None:
        """Take all of this for the copy of a migration, so that nobody else stores to it.

        Raises:
            HermesError: Another migration copies to here.
        """
        why = copied_by(platform.node() or "another machine")
        for each in self.parts:
            each.freeze(why, migration)
        for each in self.parts:
            each.copy_as(migration)
        self._is_copying = True

    def end_copy(self, migration: str) -> None:
        """Let everybody use it."""
        for each in self.parts:
            each.copy_as("")
        for each in self.parts:
            each.thaw(migration)

    def close(self) -> None:
        """Close what is open."""
        for each in self.parts:
            if self._is_copying:
                each.copy_as("")
            each.close()


@contextmanager
def opened_storage(config: Config, address: str, namespace: str = "") -> Iterator[Storage]:
    """What is stored at an address, or in the files of the home; closed afterwards."""
    storage = Storage(config, address, _builtin(config), namespace)
    try:
        yield storage
    except HermesError as error:
        if address and address != config.storage:  # a person named it on the command line
            error.hint = re.sub(r"memory\.storage\b(?!_)", "--to", error.hint)
        raise
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
        """Whether everything can be used and is protected, and nothing was interrupted."""
        problems = [self.problem, self.migration, *(each.problem for each in self.parts)]
        return not any([*problems, *(self.server.problems if self.server else ())])

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
        with opened_storage(config, config.storage) as storage:
            server = storage.inspect()
            parts = () if server and server.is_new else tuple(map(_part, storage.parts))
            if storage.database is not None:
                namespace = storage.database.namespace  # that of the login, if it is bound
            report = replace(report, namespace=namespace, server=server, parts=parts)
            if parts and not unfinished and (why := storage.conversations.frozen()):
                return replace(report, problem=why, hint=frozen_hint(why))
            return report
    except HermesError as error:
        return replace(report, problem=error.what, hint=error.hint)


def _part(part: StoragePart) -> PartReport:
    try:
        return PartReport(part.name, part.place, part.counts(), part.size())
    except (HermesError, OSError) as error:
        return PartReport(part.name, part.place, {}, problem=str(error))


def check_storage(config: Config, report: Report = silent) -> list[Problem]:
    """Look at everything in the storage in use; returns what is wrong, and what to do."""
    problems: list[Problem] = []
    unfinished = unfinished_migration(config.home)
    try:
        with opened_storage(config, config.storage) as storage:
            server = storage.inspect(thorough=True)
            if server is not None:
                problems += map(Problem, server.problems)
                if not server.role and server.is_owner and not server.is_new:
                    problems.append(
                        Problem(
                            "connections use the owner of the tables",
                            f"create the role hermes_tenant and grant it to {server.user}",
                        )
                    )
            parts = [] if server and server.is_new else storage.parts
            for part in parts:
                problems += _problems(part, report)
            if parts and not unfinished and (why := storage.conversations.frozen()):
                problems.append(Problem(why, frozen_hint(why)))
    except HermesError as error:
        problems.append(Problem.of(error))
    if unfinished is not None:
        problems.append(Problem(f"a migration to {unfinished.target} was interrupted", CONTINUE))
    turns, why = _builtin(config).spooled(config.home)
    if turns:
        waiting = "1 turn waits" if turns == 1 else f"{turns:,} turns wait"
        problems.append(Problem(f"{waiting} in the spool, because {why}"))
    if writes := OutboxSpool(config.home).text():
        problems.append(Problem(writes))
    return problems


def _problems(part: StoragePart, report: Report) -> list[Problem]:
    try:
        found = [Problem(each) for each in part.check(report(f"Checking the {part.name}"))]
    except (HermesError, OSError) as error:
        found = [Problem.of(error)]
    return [each._replace(what=f"{part.name}: {each.what}") for each in found]


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
        known = migration or _cancelled(config, address)
        is_copied = migration is not None and migration.phase is Phase.SWITCHED
        if migration is not None and is_copied and not dry_run:
            return _finish(config, migration, report)
        origin = config.storage if migration is None else migration.source
        with ExitStack() as stack:
            source = stack.enter_context(opened_storage(config, origin))
            target = stack.enter_context(opened_storage(config, address))
            if is_copied:
                return _planned(config, source, target, resumed=True)
            for each in (source, target):
                _refuse_login(config, each)
            if not dry_run:
                _release(target, known)
            _refuse_target(source, target, known)
            _refuse_nothing(source)
            _refuse_agents(config, source)
            if dry_run:
                return _planned(config, source, target, resumed=migration is not None)
            done = _moved(config, source, target, known, report)
            return replace(done, resumed=migration is not None)


@contextmanager
def _exclusively(home: Path) -> Iterator[None]:
    """One migration at a time, and no `forget` meanwhile."""
    with exclusive(home), exclusive_migration(home):
        yield


def _cancelled(config: Config, address: str) -> Migration | None:
    """The last migration, if it was from here to there and was cancelled: its copy is still there.

    Nobody else could change the copy, so it may be replaced.
    """
    last = last_migration(config.home)
    wanted = (config.storage, address or FILES, config.storage_namespace)
    if last is None or (last.source, last.target, last.namespace) != wanted:
        return None
    return last


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
        owns = "it does not own our tables in the database"
        raise HermesError(
            server.problems[-1] if server.is_new else f"{server.user} can't move a memory: {owns}",
            where=storage.shown,
            hint="name a user who may, for example the one who created the tables",
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


def _release(target: Storage, known: Migration | None) -> None:
    """Let others use a target to which nothing was copied yet."""
    is_begun = known is not None and known.phase is Phase.BEGUN and bool(known.id)
    if known is not None and is_begun and target.conversations.copier() == known.id:
        target.end_copy(known.id)


def _refuse_target(source: Storage, target: Storage, known: Migration | None) -> None:
    """Refuse a target that is the copy of another migration, or has content of others."""
    server = target.inspect()
    if (server is not None and server.is_new) or _is_copy(target, known):
        return
    copier = target.conversations.copier()
    if copier and (known is None or copier != known.id):
        raise incomplete_copy(target.shown)
    _refuse_content(source, target)


def _is_copy(target: Storage, known: Migration | None) -> bool:
    """Whether all that a target has was copied by this migration."""
    if known is None or known.phase is Phase.BEGUN or not known.id:
        return False
    return bool(target.conversations.copier() == known.id)


def _refuse_content(source: Storage, target: Storage) -> None:
    counts = target.counts()
    found = {
        counted(count, what) for each in counts.values() for what, count in each.items() if count
    }
    deleted = target.conversations.deletions()
    if deleted:  # another home in the namespace still has to pass them on
        found.add(counted(deleted, "deletions"))
    if not found:
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


def _begun(config: Config, source: Storage, target: Storage, known: Migration | None) -> Migration:
    """Take the target for this migration; returns it as it is from now on."""
    home = config.home
    migration = Migration(source.address, target.address or FILES, config.storage_namespace)
    if known is not None and known.id:
        migration = replace(migration, id=known.id)
    is_copy = _is_copy(target, known)
    migration = replace(migration, phase=Phase.COPYING if is_copy else Phase.BEGUN)
    save_migration(home, migration)
    try:
        target.begin_copy(migration.id)
        if not is_copy:
            _refuse_content(source, target)  # nobody can add anything now
    except BaseException:  # also Ctrl-C
        if not is_copy:
            with suppress(HermesError, OSError):
                _release(target, migration)
                if known is None:
                    remove_migration(home)
        raise
    migration = replace(migration, phase=Phase.COPYING)
    save_migration(home, migration)
    return migration


def _moved(
    config: Config, source: Storage, target: Storage, known: Migration | None, report: Report
) -> MigrationPlan:
    home = config.home
    # What waits for the old storage goes there first, if that is possible; else it goes to the new
    # one at the end: it is in the home, and is not part of either.
    if config.storage == source.address:
        _builtin(config).spooled(home, seconds=_BEFORE_SECONDS)
    with suppress(HermesError):
        OutboxSpool(home).hand_over(source.outbox.store)
    migration = _begun(config, source, target, known)
    if target.address:
        note_left(home, target.shown)  # until it is complete and in use
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
    migration = replace(migration, phase=Phase.SWITCHED)
    save_migration(home, migration)
    return replace(_finish(config, migration, report), counts=counts)


def _copied(source: Storage, target: Storage, report: Report) -> dict[str, Mapping[str, int]]:
    """Freeze the source, copy the rest, and compare; returns how much there is."""
    for part in source.parts:
        part.freeze(moving_to(_place(target)))
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


def _place(target: Storage) -> str:
    """Where it is, for people on other machines."""
    return target.shown if target.address else f"files on {platform.node() or 'another machine'}"


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
    with opened_storage(config, _address(migration.target)) as target:
        target.end_copy(migration.id)
        target.conversations.forget_copied()
        place = _place(target)
    _say_moved(config, migration, place)
    change_config(config.home, {("memory", "storage"): migration.target}, valid=True)
    config = load_config(config.home)
    report("Handing over what waits")
    with opened_storage(config, config.storage) as storage:
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


def _say_moved(config: Config, migration: Migration, where: str) -> None:
    """Tell those who still use the source, if that is possible, that it is done."""
    with (
        suppress(HermesError, OSError),
        opened_storage(config, migration.source, migration.namespace) as source,
    ):
        if source.conversations.frozen():
            for part in source.parts:
                part.freeze(moved_to(where))


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
        with opened_storage(config, migration.source, migration.namespace) as source:
            _thaw(source)
        if migration.phase is Phase.BEGUN:
            with opened_storage(config, _address(migration.target), migration.namespace) as target:
                _release(target, migration)
        save_migration(config.home, replace(migration, is_cancelled=True))
        return shown(migration.target)


def _unfreeze(config: Config) -> str:
    """Let the storage in use be changed again: a person has gone back to an old one by hand."""
    with opened_storage(config, config.storage) as storage:
        _thaw(storage)
        note_left(config.home, storage.shown, in_use=True)
    return ""


def _address(target: str) -> str:
    return "" if target == FILES else target
