"""`upgrade`: newer versions of the installed plugins, with a way back."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click

from hermes_core.backup.format import work_folder
from hermes_core.cli.consent import InstallOptions, agree_to_risks, planned, show_risks
from hermes_core.cli.output import amount, plain, print_json, progress, say, warn
from hermes_core.cli.providers import complete_name, recovered_config
from hermes_core.config import Config, Selection
from hermes_core.config.names import normalise
from hermes_core.discovery import scan
from hermes_core.errors import HermesError
from hermes_core.install import (
    Folder,
    InstallError,
    Package,
    PackageChange,
    Plan,
    Repository,
    StagedPlugin,
    installer,
    plugins_folder,
    put,
    stage,
)
from hermes_core.install.rollback import (
    prepare_folder,
    prepare_packages,
    undo_interrupted,
    undone_on_failure,
    upgrading,
)
from hermes_core.install.upgrade import (
    Difference,
    Target,
    check_source,
    difference_of,
    folder_difference,
    newest,
    prove,
    source_of,
    starts,
    targets,
)

#: How many changed files are listed; --json has all of them.
_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A plugin, and what came of its upgrade.

    Attributes:
        target: What is installed.
        state: up to date, available, upgraded, skipped or failed.
        new: The newer version.
        plan: What would be installed, for a package.
        source: Where it comes from, for a directory plugin.
        difference: What is different in it.
        risks: Files that affect more than this plugin.
        problem: Why it failed, or does not work yet.
    """

    target: Target
    state: str = "up to date"
    new: str = ""
    plan: Plan | None = None
    source: Folder | Repository | None = None
    difference: Difference = field(default_factory=Difference)
    risks: tuple[str, ...] = ()
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it for `upgrade --json`."""
        changes: tuple[PackageChange, ...] = () if self.plan is None else self.plan.changes
        return {
            "name": self.target.name,
            "providers": [each.name for each in self.target.providers],
            "state": self.state,
            "version": self.target.version,
            "new_version": self.new,
            **self.difference.as_json(),
            "packages": [
                {"name": each.name, "version": each.version, "replaces": each.replaces}
                for each in changes
            ],
            "risks": list(self.risks),
            "problem": self.problem,
        }


@click.command("upgrade")
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--build", is_flag=True, help="Allow source packages to run their build.")
@click.option("--allow-risky", is_flag=True, help="Accept files that affect other programs.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and stop.")
@click.option("--rollback", is_flag=True, help="Undo an upgrade that was interrupted.")
@click.option("--json", is_flag=True, help="Print JSON.")
@click.pass_context
def upgrade_command(
    ctx: click.Context, /, name: str | None, *, rollback: bool, **options: Any
) -> None:
    """Upgrade memory plugins; roll back if they fail.

    Shows the new version, changed files, new entry points, variables and dependencies,
    and asks first. If the new version does not load, the old one is restored. Without
    NAME, upgrades each installed plugin that has a newer version.
    """
    config = recovered_config(ctx)
    manner = InstallOptions(config.home, **options)
    if rollback:
        _roll_back(manner)
        return
    with upgrading(config.home, dry_run=manner.dry_run):
        listed = scan(config.home, Selection(), everything=True)
        found = targets(listed, name or "")
        done = [_upgrade_one(config, found[0], manner)] if name else _all(config, found, manner)
    if manner.json:
        changed = any(each.state == "upgraded" for each in done)
        print_json(changed=changed, upgrades=[each.as_json() for each in done])
    if any(each.state == "failed" for each in done):
        ctx.exit(1)


def _roll_back(manner: InstallOptions) -> None:
    with progress("Restoring the previous version"):
        journal = undo_interrupted(manner.home)
    if manner.json:
        name, version = ("", "") if journal is None else (journal.name, journal.old)
        print_json(changed=journal is not None, name=name, version=version)
    elif journal is None:
        say("No upgrade was interrupted. Nothing was changed.")
    else:
        say(f"Restored: {plain(f'{journal.name} {journal.old}')}")


def _upgrade_one(config: Config, target: Target, manner: InstallOptions) -> Upgrade:
    found = _look(target, manner)
    if found.state == "up to date":
        manner.say(f"{plain(target.name)} {plain(target.version)} is up to date.")
        return found
    return _carry_out(config, found, manner)


def _all(config: Config, found: list[Target], manner: InstallOptions) -> list[Upgrade]:
    """Look at each plugin, list those that have a newer version, then upgrade one by one."""
    looked = [_looked(each, manner) for each in found]
    available = [each for each in looked if each.state == "available"]
    _print_overview(looked, manner)
    if available and not manner.dry_run and not manner.yes and not manner.asking:
        raise InstallError(
            "nothing was installed", hint="use --yes to upgrade without a question, or name one"
        )
    return [
        _carried_out(config, each, manner) if each.state == "available" else each for each in looked
    ]


def _looked(target: Target, manner: InstallOptions) -> Upgrade:
    try:
        return _look(target, manner)
    except HermesError as error:
        # What came from elsewhere is not a failure: nobody asked for this plugin.
        return Upgrade(target, "skipped", problem=str(error))


def _carried_out(config: Config, found: Upgrade, manner: InstallOptions) -> Upgrade:
    """Upgrade one of several: the others go on if it fails, or if the person says no."""
    try:
        return _carry_out(config, found, manner)
    except click.Abort:
        return replace(found, state="skipped")
    except HermesError as error:
        warn(str(error))
        return replace(found, state="failed", problem=str(error))


def _print_overview(looked: list[Upgrade], manner: InstallOptions) -> None:
    if not looked:
        manner.say("No memory plugin is installed besides the built-in. See: hermes-plugins search")
    for each in looked:
        version = f"{each.target.name} {each.target.version}".strip()
        problem = each.problem.removeprefix(f"{each.target.name}: ")  # the line begins with it
        state = f"-> {each.new}" if each.new else problem or "is up to date"
        manner.say(f"{plain(version)} {plain(state)}")


# -- what is newer ------------------------------------------------------------------------------


def _look(target: Target, manner: InstallOptions) -> Upgrade:
    """Find out whether there is a newer version. Installs nothing."""
    if target.directory is not None:
        source = source_of(target)
        with progress(f"Checking {target.name}"):
            new = newest(target, source)
        return Upgrade(target, "available" if new else "up to date", new, source=source)
    check_source(target)
    program = installer("upgrade", target.name)
    plan = planned(program, Package(target.name), manner, upgrade=True)
    own = [each for each in plan.changes if normalise(each.name) == normalise(target.name)]
    if not own:
        return Upgrade(target)
    return Upgrade(target, "available", own[0].version, plan=plan)


# -- one upgrade --------------------------------------------------------------------------------


def _carry_out(config: Config, found: Upgrade, manner: InstallOptions) -> Upgrade:
    if found.source is not None:
        return _upgrade_folder(config, found, found.source, manner)
    assert found.plan is not None  # noqa: S101 - see _look
    return _upgrade_package(config, found, found.plan, manner)


def _upgrade_package(config: Config, found: Upgrade, plan: Plan, manner: InstallOptions) -> Upgrade:
    target = found.target
    program = installer("upgrade", target.name)
    with work_folder(Path(tempfile.gettempdir(), "plugins"), "upgrade") as folder:
        with progress(f"Downloading {target.name} {found.new}") as step:
            fetched = program.fetch(plan, folder, step.show)
        found = replace(found, difference=difference_of(target, fetched), risks=fetched.risks)
        _show(found, manner)
        show_risks(fetched, manner)
        if manner.dry_run:
            return found
        agree_to_risks(fetched, manner)
        manner.agree("Upgrade this?", "use --yes to upgrade without a question")
        started = starts(config, target)
        with undone_on_failure(config.home):
            prepare_packages(config.home, target, plan, fetched)
            with progress(f"Installing {target.name} {found.new}"):
                program.install(plan, folder)
            problems = _proven(config, found, started=started)
    for line in program.conflicts():
        warn(f"dependency conflict: {line}")
    return _finished(found, problems, manner)


def _upgrade_folder(
    config: Config, found: Upgrade, source: Folder | Repository, manner: InstallOptions
) -> Upgrade:
    target = found.target
    assert target.directory is not None  # noqa: S101 - see _look
    started = starts(config, target) if not manner.dry_run else False
    with undone_on_failure(config.home):
        with plugins_folder(config.home) as plugins:
            with progress(f"Fetching {target.name}"):
                staged = stage(source, plugins)
            _refuse_other(target, staged)
            new = f"{staged.info.version} {staged.record.commit[:7]}".strip() or found.new
            difference = folder_difference(target, staged.folder)
            found = replace(found, new=new, difference=difference)
            _show(found, manner)
            if manner.dry_run:
                return found
            manner.agree("Upgrade this?", "use --yes to upgrade without a question")
            prepare_folder(config.home, target, new)
            put(staged.folder, target.directory, staged.record)
        # Outside of the lock of the folder, which a rollback takes as well.
        problems = _proven(config, found, started=started)
    return _finished(found, problems, manner)


def _refuse_other(target: Target, staged: StagedPlugin) -> None:
    if normalise(staged.name) != normalise(target.name) or not staged.info.loadable:
        problem = staged.info.problem or f"its source is now called {staged.name}"
        raise InstallError(problem, where=target.name, hint="nothing was changed")


def _proven(config: Config, found: Upgrade, *, started: bool) -> tuple[str, ...]:
    with progress(f"Testing {found.target.name} {found.new}"):
        return prove(config, found.target, found.new, started=started)


def _finished(found: Upgrade, problems: tuple[str, ...], manner: InstallOptions) -> Upgrade:
    target = found.target
    manner.say(f"Upgraded: {plain(f'{target.name} {target.version} -> {found.new}')}")
    for each in problems:
        manner.say(f"It does not work yet: {plain(each)}")
    return replace(found, state="upgraded", problem="; ".join(problems))


# -- what is shown ------------------------------------------------------------------------------


def _show(found: Upgrade, manner: InstallOptions) -> None:
    """Show what is different, before anything is installed."""
    target, difference = found.target, found.difference
    manner.say()
    manner.say(plain(f"{target.name} {target.version} -> {found.new}"))
    for change in found.plan.changes if found.plan is not None else ():
        if normalise(change.name) != normalise(target.name):
            instead = f"replaces {change.replaces}" if change.replaces else "new"
            manner.say(f"  also installs {change.name} {change.version} ({instead})")
    _show_files(difference, manner)
    for label, values in (
        ("new entry points", difference.entry_points),
        ("new environment variables", difference.variables),
        ("new dependencies", difference.dependencies),
    ):
        if values:
            manner.say(f"  {label}: {plain(', '.join(values))}")
    manner.say()


def _show_files(difference: Difference, manner: InstallOptions) -> None:
    marked = [
        *(f"+ {each}" for each in difference.added),
        *(f"~ {each}" for each in difference.changed),
        *(f"- {each}" for each in difference.removed),
    ]
    manner.say(
        f"  {amount(len(marked), 'file')}: {len(difference.added)} new, "
        f"{len(difference.changed)} changed, {len(difference.removed)} removed"
    )
    for each in marked[:_LISTED]:
        manner.say(f"    {plain(each)}")
    if len(marked) > _LISTED:
        manner.say(f"    and {len(marked) - _LISTED} more (--json lists all)")
