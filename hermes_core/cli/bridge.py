"""`bridge`: lets hermes-agent see a provider that is installed as a package."""

from __future__ import annotations

import click

from hermes_core.cli._output import plain, say
from hermes_core.cli.listing import complete_name
from hermes_core.config import Selection
from hermes_core.discovery import ProviderInfo, find_provider, scan
from hermes_core.home import resolve_home
from hermes_core.installing import InstallError, build_bridge, remove_bridge


@click.command("bridge")
@click.argument("name", shell_complete=complete_name)
@click.option("--as", "alias", metavar="OTHER", default="", help="What hermes-agent calls it.")
@click.option("--remove", is_flag=True, help="Take the bridge away.")
@click.pass_context
def bridge_command(ctx: click.Context, name: str, alias: str, remove: bool) -> None:
    """Let hermes-agent see NAME, which is installed as a package.

    hermes-agent 0.19 looks for memory plugins in folders only. This writes a small one to
    plugins/NAME below the Hermes home, which imports the package. hermes-agent's own plugins
    come first: one that has the name of one of these needs another with --as.
    """
    home = resolve_home(ctx.obj)
    if remove:
        folder = remove_bridge(home, alias or name)
        if folder is None:
            raise InstallError(f"there is no bridge {alias or name!r}; nothing was changed")
        say(f"The bridge is removed: {folder}")
        return
    info = find_provider(name, scan(home, Selection(), everything=True))
    bridge = build_bridge(home, info, alias)
    called = bridge.folder.name
    say(f"hermes-agent finds {called} now, through {plain(str(bridge.folder))}")
    if bridge.agent:
        say(f"hermes-agent {bridge.agent} is installed beside it. There: hermes memory setup "
            f"{called}")  # fmt: skip
    else:
        say(_elsewhere(info))


def _elsewhere(info: ProviderInfo) -> str:
    return (
        "hermes-agent is not installed beside it. In hermes-agent's own environment, run: "
        f"python -m pip install {info.distribution}=={info.version}"
    )
