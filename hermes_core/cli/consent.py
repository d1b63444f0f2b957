"""What `install` and `upgrade` ask a person before they change something."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import click

from hermes_core.cli.output import plain, progress, say
from hermes_core.install import Download, Installer, InstallError, NeedsBuild, Package, Plan
from hermes_core.install.index import IndexEntry


class InstallOptions(NamedTuple):
    """The options of `install` and `upgrade`."""

    home: Path
    yes: bool
    build: bool
    dry_run: bool
    allow_risky: bool
    json: bool
    replace: bool = False
    known: IndexEntry | None = None

    @property
    def asking(self) -> bool:
        """Return whether there is a person to ask."""
        # Without a terminal a question would wait for ever, in CI for example.
        return not self.yes and not self.json and sys.stdin.isatty()

    def say(self, text: str = "") -> None:
        """Print a line, except with --json, which prints one object at the end."""
        if not self.json:
            say(text)

    def agree(self, question: str, otherwise: str) -> None:
        """Ask; raise unless the person agrees."""
        if self.asking:
            # err=True here and below: standard output is for results.
            if not click.confirm(question, default=True, err=True):
                raise click.Abort
        elif not self.yes:
            raise InstallError("nothing was installed", hint=otherwise)


def planned(
    program: Installer, package: Package, manner: InstallOptions, *, upgrade: bool = False
) -> Plan:
    """Return what would be installed; ask about each project that has to be built."""
    # Each round names one more project, since pip and uv stop at the first one.
    built: list[str] = []
    while True:
        try:
            with progress(f"Resolving {package.shown}") as step:
                return program.plan(package, built, step.show, upgrade=upgrade)
        except NeedsBuild as need:
            agree_to_build(need, manner)
            built.append(need.project)


def agree_to_build(need: NeedsBuild, manner: InstallOptions) -> None:
    """Ask whether a build may run, or refuse it: --yes answers another question."""
    if manner.build:
        return
    if not manner.asking:
        raise need
    manner.say(f"{need.what}.")
    # The default is no, unlike below: a build runs code before it can be looked at.
    if not click.confirm("Build it?", default=False, err=True):
        raise click.Abort


def show_risks(fetched: Download, manner: InstallOptions) -> None:
    """Name the files that affect more than this plugin."""
    if fetched.risks:
        manner.say("Files that affect more than this plugin:")
        for each in fetched.risks:
            manner.say(f"  {plain(each)}")
        manner.say()


def agree_to_risks(fetched: Download, manner: InstallOptions) -> None:
    """Ask about the risks, or refuse them: --yes answers another question."""
    if not fetched.risks or manner.allow_risky:
        return
    if not manner.asking:
        more = f" (and {len(fetched.risks) - 1} more)" if len(fetched.risks) > 1 else ""
        raise InstallError(
            f"{plain(fetched.risks[0])}{more}",
            hint="nothing was installed; if you trust it, add --allow-risky",
        )
    if not click.confirm("Accept these files?", default=False, err=True):
        raise click.Abort
