"""`install`, `uninstall` and `bridge`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from hermes_core.checkup.selection import disable
from hermes_core.cli.consent import (
    InstallOptions,
    agree_to_build,
    agree_to_risks,
    planned,
    show_risks,
)
from hermes_core.cli.output import plain, print_json, progress, say, warn
from hermes_core.cli.plugin_search import entry_as_json, entry_details
from hermes_core.cli.provider_list import as_json
from hermes_core.cli.providers import complete_known, complete_name, recovered_config
from hermes_core.config import Config, Selection
from hermes_core.config.names import nearest, normalise, split_choice
from hermes_core.discovery import (
    ProviderInfo,
    content_hash,
    describe_directory,
    find_distribution,
    find_provider,
    manifest_of,
    providers_in,
    read_record,
    scan,
)
from hermes_core.errors import HermesError
from hermes_core.install import (
    OURSELVES,
    Download,
    Folder,
    InstallError,
    NeedsBuild,
    NoSuchPackage,
    Package,
    PackageChange,
    Plan,
    Repository,
    StagedPlugin,
    build_bridge,
    check_wheel,
    installer,
    plugins_folder,
    put,
    read_source,
    remove_bridge,
    remove_folder,
    stage,
)
from hermes_core.install.index import (
    IndexEntry,
    PluginIndex,
    meant_by,
    read_index,
    refuse_stranger,
    suggestion,
)
from hermes_core.outbox import admin
from hermes_core.provider import BUILTIN
from hermes_core.storage.home import resolve_home


@click.command("install")
@click.argument("spec", shell_complete=complete_known)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--build", is_flag=True, help="Allow source packages to run their build.")
@click.option("--allow-risky", is_flag=True, help="Accept files that affect other programs.")
@click.option("--replace", is_flag=True, help="Replace a directory plugin of that name.")
@click.option("--dry-run", is_flag=True, help="Show what would be installed, and stop.")
@click.option("--json", is_flag=True, help="Print JSON.")
@click.pass_context
def install_command(ctx: click.Context, /, spec: str, **options: Any) -> None:
    """Install a memory plugin.

    SPEC is the name of a known plugin (see `search`), a package as for pip (name,
    name==1.2, a wheel), a folder with a plugin.yaml, or a git URL:
    https://host/repository, git+URL@REVISION#subdirectory=FOLDER.
    Shows what will be installed and asks first. Runs no code of the plugin and enables
    nothing.
    """
    manner = InstallOptions(resolve_home(ctx.obj), **options)
    index = read_index(manner.home)
    # First, so that nobody gets a stranger's package that has the name of a known plugin.
    known = meant_by(index, spec.strip())
    source = read_source(spec) if known is None else Package(known.distribution)
    if known is None and isinstance(source, Package) and not source.direct:
        refuse_stranger(index, source.project, source.spec)
        # The package of a known plugin, by its own name.
        known = next(iter(index.packaged(source.project)), None)
    manner = manner._replace(known=known)
    if known is not None:
        _show_known(spec.strip(), known, manner)
    elif isinstance(source, Package) and not source.direct:
        _show_unknown(source, index, manner)
    if not isinstance(source, Package):
        _install_folder(source, manner)
        return
    try:
        _install_package(source, manner)
    except NoSuchPackage as error:
        spelling = "check the spelling, or see: hermes-plugins search"
        # `_show_unknown` has asked.
        error.hint = suggestion(index, source.project, asked=not manner.json) or spelling
        if known is not None:  # the spelling is right
            error.hint = (
                "the plugin is known, but not in this package index; see PIP_INDEX_URL"
                if known.published
                else index.install_steps(known)
            )
        raise


def _show_known(spec: str, known: IndexEntry, manner: InstallOptions) -> None:
    """Show which package a name stands for, and what is known about it."""
    manner.say(f"{plain(known.name)} is a known plugin:")
    if not manner.json:
        for label, value in entry_details(known).items():
            if value:
                say(f"  {label}: {plain(value)}", indent=4)
    if not known.is_project(spec) and Path(spec).is_dir():
        manner.say(f"The folder {plain(spec)} is not used; to install it: "
                   f"hermes-plugins install ./{plain(spec)}")  # fmt: skip


def _show_unknown(source: Package, index: PluginIndex, manner: InstallOptions) -> None:
    """Say that nobody has tried a package, and what comes near: it may be a typo."""
    near = " or ".join(index.near(source.project)[:2])
    manner.say(f"{plain(source.shown)} is not in the index of known plugins."
               f"{near and f' Did you mean {near}?'}")  # fmt: skip


# -- packages ---------------------------------------------------------------------------------


def _install_package(package: Package, manner: InstallOptions) -> None:
    # First of all: it refuses an environment that pipx, uv or the system manages.
    program = installer("install", package.shown)
    # A path or URL: that it needs a build is known without asking pip.
    if package.builds:
        agree_to_build(NeedsBuild(package.shown), manner)
    if package.direct and (local := Path(package.spec)).suffix == ".whl" and local.is_file():
        check_wheel(local)  # pip reads all of its metadata, however much that is
    plan = planned(program, package, manner)
    if not plan.changes:
        _already_there(package, manner)
        return
    with tempfile.TemporaryDirectory(prefix="hermes-install-") as name:
        folder = Path(name)
        with progress(f"Downloading {package.shown}") as step:
            fetched = program.fetch(plan, folder, step.show)
        # Read from the unpacked files. Nothing is installed or imported before the person agrees.
        brought = [each for each in providers_in(fetched.site) if each.distribution]
        _show_plan(plan, brought, manner)
        # Also protects from a typo: a package of that name that is something else.
        _refuse_useless(plan, brought)
        show_risks(fetched, manner)
        if manner.dry_run:
            _print_json(manner, plan.changes, brought, changed=False, risks=fetched.risks)
            return
        agree_to_risks(fetched, manner)
        manner.agree("Install this?", "use --yes to install without a question")
        with progress(f"Installing {package.shown}"):
            program.install(plan, folder)
    # A new package can't break others; only a replaced version can.
    conflicts = program.conflicts() if any(each.replaces for each in plan.changes) else []
    for line in conflicts:
        warn(f"dependency conflict: {line}")
    _finish(brought, plan, manner, fetched)


def _show_plan(plan: Plan, brought: list[ProviderInfo], manner: InstallOptions) -> None:
    manner.say()
    manner.say("To be installed:")
    for each in plan.changes:
        instead = f"(replaces {each.replaces})" if each.replaces else ""
        manner.say(f"  {each.name} {each.version}  {instead}".rstrip())
    _show_brought(brought, manner)


def _show_brought(brought: Iterable[ProviderInfo], manner: InstallOptions) -> None:
    brought = list(brought)
    if not brought:
        return
    rivals = scan(manner.home, Selection())
    manner.say()
    manner.say("Memory providers in it:")
    for each in brought:
        manner.say(f"  {plain(each.name)}  {plain(each.problem or each.description)}")
        for other in rivals:
            # A bridge of that name leads to the package itself.
            if other.key == each.key and not each.owned_by(other.owner) and not other.bridge:
                manner.say(f"    {other.label} has a provider of that name too: enable this one as "
                           f"{each.name}@{each.owner}")  # fmt: skip
    manner.say()


def _refuse_useless(plan: Plan, brought: list[ProviderInfo]) -> None:
    if any(each.loadable for each in brought):
        return
    reasons = "; ".join(f"{each.name}: {each.problem}" for each in brought)
    raise InstallError(
        f"contains no memory provider{reasons and f' ({reasons})'}",
        where=plan.package.shown,
        hint=f"nothing was installed; to install it anyway: pip install {plan.package.shown}",
    )


def _already_there(package: Package, manner: InstallOptions) -> None:
    mine = [
        each
        for each in scan(manner.home, Selection(), everything=True)
        if each.distribution and normalise(each.distribution) == normalise(package.project)
    ]
    manner.say(f"{package.shown} is already installed. Nothing was changed.")
    _print_json(manner, (), mine, changed=False)
    if mine and not manner.json:
        say(f"Next: hermes-plugins setup {mine[0].name}")


def _finish(
    brought: list[ProviderInfo], plan: Plan, manner: InstallOptions, fetched: Download
) -> None:
    # Scanned again in the real environment: what was shown is compared with what is there.
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
            where=plan.package.shown,
            hint="run `hermes-plugins list --all` to see what is installed",
        )
    versions = ", ".join(f"{each.name} {each.version}".strip() for each in plan.changes)
    manner.say(f"Installed: {versions}")
    _print_json(manner, plan.changes, there, changed=True, risks=fetched.risks)
    _offer_setup(there, manner)


# -- directory plugins ------------------------------------------------------------------------


def _install_folder(source: Folder | Repository, manner: InstallOptions) -> None:
    where = source.shown if isinstance(source, Repository) else source.path
    # The lock is held while the person reads and answers: nobody else can install meanwhile, and
    # the staged folder can't be cleared.
    with plugins_folder(manner.home) as plugins:
        with progress(f"Fetching {where}"):
            staged = stage(source, plugins)
        target = plugins / staged.name
        _show_staged(staged, target, manner)
        if not staged.info.loadable or staged.info.state == "no-provider":
            raise InstallError(
                f"it {staged.info.problem}",
                where=str(where),
                hint="name the folder of a memory plugin; to see how one looks: hermes-plugins new",
            )
        if manner.dry_run:
            _print_json(manner, (), [staged.info], changed=False)
            return
        _agree_to_replace(target, manner)
        manner.agree("Install this?", "use --yes to install without a question")
        put(staged.folder, target, staged.record)
    info = staged.info._replace(directory=target)
    manner.say(f"Installed: {info.name} in {target}")
    _print_json(manner, (), [info], changed=True)
    _offer_setup([info], manner)


def _show_staged(staged: StagedPlugin, target: Path, manner: InstallOptions) -> None:
    manner.say()
    manner.say(f"To be installed in {target}:")
    commit = f", commit {staged.record.commit}" if staged.record.commit else ""
    manner.say(f"  {plain(f'{staged.name} {staged.info.version}')}{commit}")
    _show_brought([staged.info], manner)
    needed = manifest_of(staged.info).get("pip_dependencies")
    if isinstance(needed, list) and needed:
        manner.say(f"It requires: {plain(', '.join(map(str, needed)))}")
        manner.say()


def _agree_to_replace(target: Path, manner: InstallOptions) -> None:
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
        state = f"is already installed{record.commit and f', at commit {record.commit}'}"
    if not manner.asking:
        raise InstallError(
            state, where=str(target), hint="nothing was changed; use --replace to replace it"
        )
    manner.say(f"{target} {state}.")
    if not click.confirm("Replace it?", default=False, err=True):
        raise click.Abort


# -- afterwards -------------------------------------------------------------------------------


def _print_json(
    manner: InstallOptions,
    changes: Iterable[PackageChange],
    providers: Iterable[ProviderInfo],
    *,
    changed: bool,
    risks: Iterable[str] = (),
) -> None:
    if manner.json:
        packages: list[dict[str, Any]] = [
            {"name": each.name, "version": each.version, "replaces": each.replaces}
            for each in changes
        ]
        print_json(
            changed=changed,
            packages=packages,
            providers=[as_json(each) for each in providers],
            risks=list(risks),
            known=_known_json(manner),
        )


def _known_json(manner: InstallOptions) -> dict[str, Any] | None:
    if manner.known is None:
        return None
    return entry_as_json(read_index(manner.home), manner.known)


def _offer_setup(providers: list[ProviderInfo], manner: InstallOptions) -> None:
    """Offer to set up what was installed; enable nothing otherwise."""
    usable = [each for each in providers if each.loadable and each.state != "no-provider"]
    for each in usable:
        manner.say(f"Next: hermes-plugins setup {plain(each.name)}")
    # With two providers the person has to choose, which "Next:" lists.
    if len(usable) != 1 or not manner.asking:
        return
    if click.confirm(f"Set {usable[0].name} up now?", default=True, err=True):
        # In a new process: this one may have imported what was just replaced.
        home = ["--home", str(manner.home)]
        command = [sys.executable, "-m", "hermes_core", *home, "setup", usable[0].name]
        # The child writes to the same stream, and our buffer would come after it.
        sys.stdout.flush()
        sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603


# -- uninstall ---------------------------------------------------------------------------------


@click.command("uninstall")
@click.argument("name", shell_complete=complete_name)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_context
def uninstall_command(ctx: click.Context, name: str, yes: bool) -> None:
    """Disable and uninstall a memory plugin.

    NAME is a provider or its package. Keeps settings, secrets and stored data.
    """
    config = recovered_config(ctx)
    # The selection is empty, since a broken or changed provider has to be removable, too.
    found = _meant(name, scan(config.home, Selection(), everything=True))
    first = found[0]
    if first.directory is not None and not first.distribution:
        _remove_directory(config, first, yes)
        return
    _refuse_ours(first.distribution)
    program = installer("uninstall", first.distribution)
    others = [each.name for each in found if normalise(each.name) != normalise(name)]
    brings = f", which brings {', '.join(map(plain, others))}" if others else ""
    _agree(f"Uninstall the package {first.distribution} {first.version}{brings}?", yes)
    # After the question and before the removal: a crash leaves a disabled plugin, not a broken
    # one.
    _disable_first(config, found)
    for each in found:
        _drop_bridge(config, each)
    with progress(f"Uninstalling {first.distribution}"):
        program.remove(first.distribution)
    # pip exits with 0 if the package is outside of its environment (a system site, PYTHONPATH).
    if find_distribution(first.distribution) is not None:
        raise InstallError(
            "is still installed: it belongs to another environment",
            where=first.distribution,
            hint=f"this environment is {sys.prefix}",
        )
    say(f"Uninstalled: {first.distribution} {first.version}. Its dependencies stay installed.")
    _print_remaining(found)


def _meant(name: str, listed: list[ProviderInfo]) -> list[ProviderInfo]:
    """Return all providers of the named package, or the named directory plugin."""
    wanted, owner = split_choice(name)
    key = normalise(wanted)
    if key in (BUILTIN, OURSELVES):
        _refuse_ours(OURSELVES)
    same = [each for each in listed if each.key == key and (not owner or each.owned_by(owner))]
    # Two directories, or a directory and a package. Two providers of one package are one owner.
    owners = {(normalise(each.distribution), each.directory) for each in same}
    distributions = {normalise(each.distribution) for each in same if each.distribution}
    if len(owners) > 1 and len(distributions) != 1:
        choices = " or ".join(f"{wanted}@{each.owner}" for each in same)
        raise InstallError(f"{name} is the name of two plugins", hint=f"choose one: {choices}")
    project = next(iter(distributions), key)
    # A package is removed as a whole, with all its providers.
    brought = [each for each in listed if normalise(each.distribution) == project]
    found = brought or same
    if not found:
        known = [each.name for each in listed if each.source != BUILTIN]
        close = nearest(wanted, known) or nearest(wanted, (each.distribution for each in listed))
        raise InstallError(
            f"no memory plugin {name!r} is installed",
            hint=f"did you mean {' or '.join(close)}?"
            if close
            else "run `hermes-plugins list --all` to see what is installed",
        )
    return found


def _refuse_ours(distribution: str) -> None:
    if normalise(distribution) == OURSELVES:
        raise InstallError(
            f"{distribution} is part of this program, not a plugin",
            hint=f"nothing was changed; to remove it: pip uninstall {OURSELVES}",
        )


def _agree(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InstallError("nothing was changed", hint="use --yes to uninstall without a question")
    if not click.confirm(question, default=True, err=True):
        raise click.Abort


def _remove_directory(config: Config, info: ProviderInfo, yes: bool) -> None:
    folder = info.directory
    assert folder is not None  # noqa: S101 - by whom we are called
    record = read_record(folder)
    if record is None:
        raise InstallError(
            "was not installed by hermes-plugins",
            where=str(folder),
            hint=f"run `hermes-plugins disable {info.name}`, then delete the folder",
        )
    # Some plugins store data beside their code.
    if content_hash(describe_directory(folder)) != record.hash:
        raise InstallError(
            "has changed since it was installed",
            where=str(folder),
            hint="it may contain your edits or stored data; delete the folder yourself",
        )
    _agree(f"Delete {folder}?", yes)
    _disable_first(config, [info])
    with plugins_folder(config.home):
        remove_folder(folder)
    say(f"Uninstalled: {info.name}, which was in {folder}")
    _print_remaining([info])


def _disable_first(config: Config, found: Iterable[ProviderInfo]) -> None:
    """Disable first, so that no agent starts with a half-removed provider."""
    active = normalise(config.selection.name)
    for each in found:
        if active and each.key == active:
            disable(config)
            waiting = _waiting(config, active)
            writes = "1 write stays" if waiting == 1 else f"{waiting} writes stay"
            say(f"{each.name} is disabled." + (
                f" {writes} in the outbox until it is enabled again." if waiting else ""
            ))  # fmt: skip


def _waiting(config: Config, key: str) -> int:
    store = admin.open_store(config, set_aside=False)
    try:
        return sum(
            each.writes for each in store.waiting_streams() if normalise(each.key.provider) == key
        )
    except HermesError as error:
        warn(f"the outbox can't be read: {error}")
        return 0
    finally:
        store.close()


def _drop_bridge(config: Config, info: ProviderInfo) -> None:
    """Remove its bridge: a dead one would block the next plugin of that name."""
    record = read_record(config.home / "plugins" / info.name)
    # Another package's bridge of that name stays.
    if record is None or normalise(record.bridge) != normalise(info.distribution):
        return
    try:
        folder = remove_bridge(config.home, info.name)
    except HermesError as error:
        warn(f"its bridge to hermes-agent was not removed: {error}")
    else:
        say(f"Removed its bridge to hermes-agent: {folder}")


def _print_remaining(found: Iterable[ProviderInfo]) -> None:
    names = ", ".join(f"memory.{each.name}" for each in found)
    say(f"Kept: its settings ({names} in config.yaml), secrets and stored data.")


# -- bridge ------------------------------------------------------------------------------------


@click.command("bridge")
@click.argument("name", shell_complete=complete_name)
@click.option("--as", "alias", metavar="OTHER", default="", help="Use this name in hermes-agent.")
@click.option("--remove", is_flag=True, help="Remove the bridge.")
@click.pass_context
def bridge_command(ctx: click.Context, name: str, alias: str, remove: bool) -> None:
    """Let hermes-agent find a plugin that is a package.

    hermes-agent 0.19 searches for memory plugins in folders only. This command writes a
    small folder plugins/NAME to the Hermes home, which imports the package. If
    hermes-agent has a plugin of that name, choose another one with --as.
    """
    home = resolve_home(ctx.obj)
    if remove:
        folder = remove_bridge(home, alias or name)
        if folder is None:
            raise InstallError(
                f"there is no bridge named {alias or name!r}",
                hint=f"see the folders in {home / 'plugins'}",
            )
        say(f"Removed the bridge: {folder}")
        return
    info = find_provider(name, scan(home, Selection(), everything=True))
    bridge = build_bridge(home, info, alias)
    called = bridge.folder.name
    say(f"hermes-agent finds {called} through {plain(str(bridge.folder))}")
    if bridge.agent:
        say(f"hermes-agent {bridge.agent} is installed here. Next: hermes memory setup {called}")
    else:
        say(_elsewhere(info))


def _elsewhere(info: ProviderInfo) -> str:
    return (
        "hermes-agent is not installed here. In its environment, run: "
        f"pip install {info.distribution}=={info.version}"
    )
