"""`switch`: use another external provider, and copy the history to it."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Any, Final

import click

from hermes_core.checkup.deliveries import writes
from hermes_core.checkup.doctor import PROBLEM
from hermes_core.checkup.replayed_turns import Replay, replays
from hermes_core.checkup.selection import TestedProvider, enable, find_choice
from hermes_core.checkup.switch import (
    Estimate,
    ReplayRequest,
    ReplayResult,
    crowded_by,
    estimate,
    has_more,
    prove,
    run_replay,
)
from hermes_core.cli.outbox import past_time
from hermes_core.cli.output import (
    amount,
    note,
    paint,
    plain,
    print_json,
    progress,
    say,
    say_field,
    span,
    warn,
)
from hermes_core.cli.providers import complete_name, grant_option, recovered_config, tried
from hermes_core.cli.setup import setup_command
from hermes_core.cli.usage import HintedUsageError
from hermes_core.config import Config
from hermes_core.config.names import normalise
from hermes_core.discovery import ProviderInfo
from hermes_core.errors import HermesError
from hermes_core.outbox.records import ProviderKey
from hermes_core.provider import BUILTIN
from hermes_core.storage.processes import users_of

_WIDTH: Final = 9


@click.command("switch")
@click.argument("name", shell_complete=complete_name)
@click.option("--replay", is_flag=True, help="Send past turns and notes to it.")
@click.option(
    "--since", metavar="DATE", callback=past_time, help="Only turns since, for example, 2026-03-31."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be sent.")
@grant_option
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def switch_command(ctx: click.Context, /, name: str, **given: Any) -> None:
    """Switch to another provider and copy your history to it.

    Sets NAME up if needed, tests it and enables it. With --replay, it first gets every past turn
    and note from the archive, while the previous provider stays active. Run the same command
    again after an interruption. Exit code 1 if something did not arrive, or is not recalled.
    """
    if given["since"] is not None and not given["replay"]:
        raise HintedUsageError("--since needs --replay", hint="run `hermes-plugins switch --help`")
    config = recovered_config(ctx)
    info = find_choice(config, name)
    if info.source == BUILTIN:
        raise HermesError("builtin is always active", hint="name another provider to switch to")
    switch = _Switch(config, info, given)
    if given["dry_run"]:
        switch.show_estimate()
        return
    tested = _ready(ctx, switch, name, given["grants"])
    if not switch.run(tested):
        ctx.exit(1)


def _ready(
    ctx: click.Context, switch: _Switch, name: str, grants: tuple[str, ...]
) -> TestedProvider:
    """Try the provider; on a terminal, set it up if that is needed."""
    tested = tried(switch.config, name, switch.info, grants)
    if tested.check.problems and sys.stdin.isatty():
        note(f"{plain(switch.info.name)} is not set up yet.")
        ctx.invoke(setup_command, name=name, grants=grants)
        switch.config = recovered_config(ctx)
        tested = tried(switch.config, name, switch.info, grants)
    if tested.check.problems:
        todo = f"run: hermes-plugins setup {switch.info.name}; nothing was changed"
        raise HermesError(tested.check.what, hint=todo)
    return tested


class _Switch:
    """One run of the command: what it does, and what it prints."""

    def __init__(self, config: Config, info: ProviderInfo, given: dict[str, Any]) -> None:
        self.config = config
        self.info = info
        self._given = given
        self._target = ProviderKey(info.name, info.owner)
        self._proof = ""

    @property
    def _before(self) -> str:
        """The provider that is active, if it is another one."""
        now = self.config.selection
        return "" if normalise(now.name) == self.info.key else now.choice

    @property
    def _continue(self) -> str:
        """The command to run again; the journal of a replay has its date."""
        since = self._given["since"]
        if Replay(*self._target).key in replays(self.config.home):
            since = None
        day = (
            f" --since {time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(since))}" if since else ""
        )
        return f"hermes-plugins switch {self.info.name} --replay{day}"

    # -- the estimate -----------------------------------------------------------------------

    def show_estimate(self) -> None:
        found = self._estimate()
        if self._given["json_wanted"]:
            print_json(switched=False, provider=self.info.name, **asdict(found))
            return
        active = f" (in place of {plain(self._before)})" if self._before else ""
        say_field("provider", plain(self.info.name) + active, _WIDTH)
        if self._given["replay"]:
            _print_estimate(found)
        say("Nothing was changed.")

    def _estimate(self) -> Estimate:
        if not self._given["replay"]:
            return Estimate()
        with progress("Reading the archive"):
            return estimate(self.config, self._target, self._given["since"])

    # -- the switch -------------------------------------------------------------------------

    def run(self, tested: TestedProvider) -> bool:
        """Prove it, hand over the past, and enable it; whether all of it worked."""
        self._prove(tested)
        result = self._replayed(tested) if self._given["replay"] else ReplayResult()
        before, agents = self._before, users_of(self.config.home)
        if before or not self.config.selection.name:
            enable(self.config, tested)
        # What an agent said through the old provider while this one was enabled.
        if self._given["replay"] and has_more(self.config, self._target):
            result = self._replayed(tested, result)
        works = not (result.undelivered or (result.sampled and not result.recalled))
        if self._given["json_wanted"]:
            print_json(
                switched=True, provider=self.info.name, before=before, proof=self._proof,
                agents=agents, **asdict(result),
            )  # fmt: skip
            return works
        self._print(result, before)
        if crowd := crowded_by(self.config, self._target):
            what = f"the outbox is full of writes for {plain(crowd)}"
            warn(f"{what}: new turns may not reach {plain(self.info.name)}")
            note("hint: raise memory.outbox.max_mb in config.yaml")
        if before:
            for each in agents:
                hint = f"restart it, then run `{self._continue}`"
                warn(f"{each} still runs with {plain(before)}: {hint}")
        return works

    def _prove(self, tested: TestedProvider) -> None:
        with progress(f"Testing {self.info.name}"):
            done = prove(self.config, tested.choice, tested.grants)
        problems = [each.detail for each in done.results if each.state == PROBLEM]
        if problems or done.problem:
            text = f"{self.info.name} does not work: {problems[0] if problems else done.problem}"
            raise HermesError(text, hint=f"nothing was changed; see its settings: {self._setup}")
        self._proof = done.results[-1].detail if done.results else ""
        if not self._given["json_wanted"]:
            say(f"{plain(self.info.name)} works: {plain(self._proof)}")

    @property
    def _setup(self) -> str:
        return f"hermes-plugins setup {self.info.name}"

    def _replayed(
        self, tested: TestedProvider, earlier: ReplayResult | None = None
    ) -> ReplayResult:
        """Hand over the past.

        Raises:
            HermesError: It did not reach its end.
        """
        found = self._estimate() if earlier is None else Estimate()
        if earlier is None and not self._given["json_wanted"]:
            _print_estimate(found)
        total = found.turns + found.notes + found.waiting
        began = time.monotonic()
        wanted = ReplayRequest(
            tested.choice, tested.grants, self._given["since"] if not earlier else None
        )
        with progress(f"Handing over to {self.info.name}", total) as step:
            first: list[int] = []

            def show(arrived: int) -> None:
                first.append(arrived)
                done = arrived - first[0]
                step.update(done, total)
                left = (total - done) * (time.monotonic() - began) / done if done else found.seconds
                step.show(f"Handing over to {self.info.name}, {span(left)} left")

            result = run_replay(self.config, self._target, wanted, show)
        if result.reason:
            self._fail(result, found.turns + found.notes + found.handed)
        return result

    def _fail(self, result: ReplayResult, total: int) -> None:
        # More may have failed: what agents wrote to it when it was active before.
        arrived = max(result.turns + result.notes - result.undelivered, 0)
        text = (
            f"{self.info.name}: {arrived:,} of {max(total, arrived):,} turns and notes arrived, "
            f"{writes(result.waiting)} waiting in the outbox: {result.reason}"
        )
        if self._given["json_wanted"]:
            print_json(
                switched=False, provider=self.info.name, before=self._before, proof=self._proof,
                **asdict(result),
            )  # fmt: skip
            raise click.exceptions.Exit(1)
        stays = f"{self._before} stays active; " if self._before else ""
        first = f"{result.hint}; then run" if result.hint else "to continue, run"
        raise HermesError(text, hint=f"{stays}{first}: {self._continue}")

    # -- output -----------------------------------------------------------------------------

    def _print(self, result: ReplayResult, before: str) -> None:
        name = plain(self.info.name)
        if self._given["replay"]:
            handed = f"{amount(result.turns, 'turn')} and {amount(result.notes, 'note')}"
            say(f"{handed} handed to {name}.")
        if result.undelivered:
            bad = paint(f"{writes(result.undelivered)} did not arrive", "broken")
            say(f"{bad} (see: hermes-plugins outbox list)")
        if result.sampled:
            count = f"{result.recalled} of {result.sampled} sample turns recalled"
            say(paint(count, "active" if result.recalled else "broken") + ".")
            if not result.recalled:
                note("hint: some services index for minutes; see `hermes-plugins explain QUESTION`")
        if result.unjudged:
            count = amount(result.unjudged, "sample turn")
            reason = "too few rare words, or the same answer to every question"
            say(f"Whether {name} recalls {count} can't be judged: {reason}.")
        if before:
            say(f"{name} replaces {plain(before)}, whose data was not changed.")
        else:
            say(f"{name} is enabled.")


def _print_estimate(found: Estimate) -> None:
    turns = f"{amount(found.turns, 'turn')} in {amount(found.sessions, 'session')}"
    imported = f", {found.imported:,} of them imported" if found.imported else ""
    say_field("turns", f"{turns}, {found.characters:,} characters{imported}", _WIDTH)
    say_field("notes", f"{found.notes:,}", _WIDTH)
    if found.waiting:
        say_field("waiting", f"{writes(found.waiting)} in the outbox", _WIDTH)
    left_out = [
        *([f"{amount(found.left_out, 'turn')} of cron jobs and subagents"] * bool(found.left_out)),
        *([f"{amount(found.unanswered, 'message')} without an answer"] * bool(found.unanswered)),
    ]
    if left_out:
        say_field("left out", ", ".join(left_out), _WIDTH)
    if not (found.turns or found.notes or found.waiting):
        say_field("time", "nothing to send", _WIDTH)
        return
    pace = "by its calls so far" if found.measured else "a guess: it was never called here"
    say_field("time", f"about {span(found.seconds)} ({pace})", _WIDTH)
    if found.looks_up:
        say_field("look-up", "it was used here before, so it looks each turn up", _WIDTH)
