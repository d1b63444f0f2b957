"""`install`: shows what a package brings, asks, and installs it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import click

from hermes_core.cli._list import as_json
from hermes_core.cli._output import plain, print_json, say
from hermes_core.config import Selection
from hermes_core.discovery import (
    ProviderInfo,
    content_hash,
    describe_directory,
    manifest_of,
    providers_in,
    read_record,
    scan,
)
from hermes_core.home import resolve_home
from hermes_core.installing import (
    Change,
    Folder,
    Installer,
    InstallError,
    NeedsBuild,
    Package,
    Plan,
    Repository,
    Staged,
    installer,
    plugins_folder,
    put,
    read_source,
    stage,
)
from hermes_core.names import normalise


class Manner(NamedTuple):
    """How a person wants it done."""

    home: Path
    yes: bool
    build: bool
    replace: bool
    dry_run: bool
    json: bool

    @property
    def asking(self) -> bool:
        """Whether there is somebody to ask."""
        return not self.yes and not self.json and sys.stdin.isatty()

    def say(self, text: str = "") -> None:
        """A line for a person; a machine gets one object at the end."""
        if not self.json:
            say(text)

    def tell(self, step: str) -> None:
        """A step of pip's that takes time."""
        self.say(f"  {plain(step)}")

    def agree(self, question: str, otherwise: str) -> None:
        """Go on only if a person says so."""
        if self.asking:
            if not click.confirm(question, default=True, err=True):
                raise click.Abort
        elif not self.yes:
            raise InstallError("nothing was installed", hint=otherwise)


@click.command("install")
@click.argument("spec")
@click.option("--yes", "-y", is_flag=True, help="Do not ask whether to install it.")
@click.option(
    "--build", is_flag=True, help="Allow packages that come as source to run their build."
)
@click.option("--replace", is_flag=True, help="Replace a directory plugin of the same name.")
@click.option("--dry-run", is_flag=True, help="Only show what would be installed.")
@click.option("--json", is_flag=True, help="Print JSON.")
@click.pass_context
def install_command(ctx: click.Context, /, spec: str, **options: bool) -> None:
    """Install a memory plugin, after showing what it brings.

    SPEC is a package as pip takes it (name, name==1.2, a wheel), a folder with a
    plugin.yaml, or a git URL: https://host/repository, git+URL@REVISION#subdirectory=FOLDER.
    No code of the plugin is run, and nothing is enabled.
    """
    manner = Manner(resolve_home(ctx.obj), **options)
    source = read_source(spec)
    if isinstance(source, Package):
        _install_package(source, manner)
    else:
        _install_folder(source, manner)


# -- packages ---------------------------------------------------------------------------------


def _install_package(package: Package, manner: Manner) -> None:
    program = installer("install", package.spec)
    if package.builds:
        _agree_to_build(NeedsBuild(package.spec), manner)
    manner.say(f"Looking for {package.spec} …")
    plan = _planned(program, package, manner)
    if not plan.changes:
        _already_there(package, manner)
        return
    with tempfile.TemporaryDirectory(prefix="hermes-install-") as name:
        folder = Path(name)
        site = program.fetch(plan, folder, manner.tell)
        brought = [each for each in providers_in(site) if each.distribution]
        _show_plan(plan, brought, manner)
        _refuse_useless(plan, brought)
        if manner.dry_run:
            _tell_json(manner, plan.changes, brought, changed=False)
            return
        manner.agree("Install this?", "--yes installs it without asking")
        manner.say("Installing …")
        program.install(plan, folder)
    troubles = program.troubles() if any(each.replaces for each in plan.changes) else []
    for line in troubles:
        click.echo(f"now there is a conflict: {plain(line)}", err=True)
    _finish(brought, plan, manner)


def _planned(program: Installer, package: Package, manner: Manner) -> Plan:
    """What would be installed; asks about each project that would have to be built."""
    built: list[str] = []
    while True:
        try:
            return program.plan(package, built, manner.tell)
        except NeedsBuild as need:
            _agree_to_build(need, manner)
            built.append(need.project)


def _agree_to_build(need: NeedsBuild, manner: Manner) -> None:
    if manner.build:
        return
    if not manner.asking:
        raise need
    manner.say(f"{need.what}.")
    if not click.confirm("Build it?", default=False, err=True):
        raise click.Abort


def _show_plan(plan: Plan, brought: list[ProviderInfo], manner: Manner) -> None:
    manner.say("\nTo be installed:")
    for each in plan.changes:
        instead = f"(instead of {each.replaces})" if each.replaces else ""
        manner.say(f"  {each.name} {each.version}  {instead}".rstrip())
    _show_brought(brought, manner)


def _show_brought(brought: Iterable[ProviderInfo], manner: Manner) -> None:
    brought = list(brought)
    if not brought:
        return
    rivals = scan(manner.home, Selection())
    manner.say("\nMemory providers in it, as its files say:")
    for each in brought:
        manner.say(f"  {plain(each.name)}  {plain(each.problem or each.description)}")
        for other in rivals:
            if other.key == each.key and not each.owned_by(other.owner) and not other.bridge:
                manner.say(f"    that name is {other.label}'s already: choose one later with "
                           f"{each.name}@{each.owner}")  # fmt: skip
    manner.say()


def _refuse_useless(plan: Plan, brought: list[ProviderInfo]) -> None:
    if any(each.loadable for each in brought):
        return
    reasons = "; ".join(f"{each.name}: {each.problem}" for each in brought)
    raise InstallError(
        f"it brings no memory provider{reasons and f' ({reasons})'}",
        where=plan.package.spec,
        hint=f"nothing was installed; if you want it all the same: {sys.executable} -m pip "
        f"install {plan.package.spec}",
    )


def _already_there(package: Package, manner: Manner) -> None:
    mine = [
        each
        for each in scan(manner.home, Selection(), everything=True)
        if each.distribution and normalise(each.distribution) == normalise(package.project)
    ]
    manner.say(f"{package.spec} is installed already; nothing was changed.")
    _tell_json(manner, (), mine, changed=False)
    if mine and not manner.json:
        say(f"Next: hermes-plugins setup {mine[0].name}")


def _finish(brought: list[ProviderInfo], plan: Plan, manner: Manner) -> None:
    names = {normalise(each.name) for each in plan.changes}
    there = [
        each
        for each in scan(manner.home, Selection(), everything=True)
        if normalise(each.distribution) in names
    ]
    missing = {each.key for each in brought if each.loadable} - {each.key for each in there}
    if missing:
        raise InstallError(
            f"installed, but {', '.join(sorted(missing))} can't be found here",
            where=plan.package.spec,
            hint="hermes-plugins list --all shows what there is",
        )
    versions = ", ".join(f"{each.name} {each.version}".strip() for each in plan.changes)
    manner.say(f"Installed: {versions}")
    _tell_json(manner, plan.changes, there, changed=True)
    _offer_setup(there, manner)


# -- directory plugins ------------------------------------------------------------------------


def _install_folder(source: Folder | Repository, manner: Manner) -> None:
    where = source.shown if isinstance(source, Repository) else source.path
    manner.say(f"Looking at {where} …")
    with plugins_folder(manner.home) as plugins:
        staged = stage(source, plugins)
        target = plugins / staged.name
        _show_staged(staged, target, manner)
        if not staged.info.loadable or staged.info.state == "no-provider":
            raise InstallError(
                f"it {staged.info.problem}", where=str(where), hint="nothing was installed"
            )
        if manner.dry_run:
            _tell_json(manner, (), [staged.info], changed=False)
            return
        _agree_to_replace(target, manner)
        manner.agree("Install this?", "--yes installs it without asking")
        put(staged.folder, target, staged.record)
    info = staged.info._replace(directory=target)
    manner.say(f"Installed: {info.name} in {target}")
    _tell_json(manner, (), [info], changed=True)
    _offer_setup([info], manner)


def _show_staged(staged: Staged, target: Path, manner: Manner) -> None:
    manner.say(f"\nTo be put into {target}:")
    commit = f", commit {staged.record.commit}" if staged.record.commit else ""
    manner.say(f"  {plain(f'{staged.name} {staged.info.version}')}{commit}")
    _show_brought([staged.info], manner)
    needed = manifest_of(staged.info).get("pip_dependencies")
    if isinstance(needed, list) and needed:
        manner.say(f"It says that it needs: {plain(', '.join(map(str, needed)))}\n")


def _agree_to_replace(target: Path, manner: Manner) -> None:
    if not target.exists() or manner.replace:
        return
    record = read_record(target)
    if record is None:
        state = "was not installed by hermes-plugins"
    elif record.bridge:
        state = f"is a bridge to {record.bridge}"
    elif content_hash(describe_directory(target)) != record.hash:
        state = "has been edited since it was installed"
    else:
        state = f"is there already{record.commit and f', at commit {record.commit}'}"
    if not manner.asking:
        raise InstallError(
            state, where=str(target), hint="nothing was changed; --replace replaces it"
        )
    manner.say(f"{target} {state}.")
    if not click.confirm("Replace it?", default=False, err=True):
        raise click.Abort


# -- afterwards -------------------------------------------------------------------------------


def _tell_json(
    manner: Manner, changes: Iterable[Change], providers: Iterable[ProviderInfo], *, changed: bool
) -> None:
    if manner.json:
        packages: list[dict[str, Any]] = [
            {"name": each.name, "version": each.version, "replaces": each.replaces}
            for each in changes
        ]
        print_json(
            changed=changed, packages=packages, providers=[as_json(each) for each in providers]
        )


def _offer_setup(providers: list[ProviderInfo], manner: Manner) -> None:
    """Nothing is enabled unless a person goes on with it."""
    usable = [each for each in providers if each.loadable and each.state != "no-provider"]
    for each in usable:
        manner.say(f"Next: hermes-plugins setup {plain(each.name)}")
    if len(usable) != 1 or not manner.asking:
        return
    if click.confirm(f"Set {usable[0].name} up now?", default=True, err=True):
        # A process of its own: this one may have older versions of what was just replaced.
        home = ["--home", str(manner.home)]
        command = [sys.executable, "-m", "hermes_core", *home, "setup", usable[0].name]
        sys.stdout.flush()
        sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603
