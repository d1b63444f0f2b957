"""`hermes-plugins memory pending`, `approve`, `reject` and `allow`: only a person decides."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from hermes_builtin.notes import (
    Author,
    Notes,
    NotesError,
    OperationPlan,
    PendingWrite,
    Person,
    RefusalError,
    entry_id,
)
from hermes_builtin.notes.command_notes import (
    PENDING_HINT,
    RejectedError,
    json_option,
    notes_of,
    writable,
)
from hermes_builtin.provider import BuiltinProvider
from hermes_core import HermesError
from hermes_core.cli.output import paint, plain, print_json, say, say_text

_names = click.argument("names", nargs=-1, required=True, metavar="ID|all")


@click.command()
@click.argument("name", metavar="ID")
@json_option
@click.pass_context
def allow(ctx: click.Context, name: str, json_wanted: bool) -> None:
    """Allow a text that the guard blocks.

    No tool of the model can do this.
    """
    text = notes_of(ctx).allow(name)
    if json_wanted:
        print_json(allowed={"id": entry_id(text), "text": text})
    else:
        say(f"Allowed: {plain(text)}")


@click.command()
@json_option
@click.pass_context
def pending(ctx: click.Context, json_wanted: bool) -> None:
    """Show the writes that wait for your approval."""
    notes = notes_of(ctx)
    waiting = notes.planned()
    blocked = notes.blocked()
    if json_wanted:
        rows = [_pending_row(*each) for each in waiting]
        print_json(pending=rows, blocked=[each._asdict() for each in blocked])
        return
    for staged, planned in waiting:
        session = f"  session {plain(staged.session)}" if staged.session else ""
        say(f"{staged.id}  {plain(staged.target)}{session}")
        if staged.reason:
            say(f"    waits because {plain(staged.reason)}", indent=4)
        for each in planned:
            _print_planned(each)
    for refused in blocked:
        line = f"{refused.id}  refused by the guard ({refused.reason}): {plain(refused.text)}"
        say(paint(line, "broken"))
    if not waiting and not blocked:
        say("Nothing is pending.")


def _pending_row(staged: PendingWrite, planned: list[OperationPlan]) -> dict[str, Any]:
    operations = [
        {"action": each.action, "content": each.content, "old_text": each.old_text}
        for each in staged.operations
    ]
    changes = [
        {
            "action": each.wanted.action,
            "removed": each.goes,
            "added": each.wanted.content,
            "problem": each.problem.text if each.problem else "",
        }
        for each in planned
    ]
    row = {**staged._asdict(), "origin": staged.origin}
    return {**row, "operations": operations, "changes": changes}


def _print_planned(planned: OperationPlan) -> None:
    wanted = planned.wanted
    say(f"    {wanted.action}")
    if planned.goes:
        say_text(planned.goes, "      - ", 8)
    if wanted.action != "remove":
        say_text(wanted.content, "      + ", 8)
    if planned.problem is not None:
        line = f"      can't be applied now: {plain(planned.problem.text)}"
        say(paint(line, "broken"))


@click.command()
@_names
@json_option
@click.pass_context
def approve(ctx: click.Context, names: tuple[str, ...], json_wanted: bool) -> None:
    """Approve writes that wait.

    A write that fails does not stop the others.
    """
    approved, failed = [], []
    notes = notes_of(ctx)
    with ExitStack() as stack:
        agents: dict[Person, BuiltinProvider] = {}
        for name in _named(notes, names):
            try:
                person = notes.owner(notes.pending.get(name).target)
                if person not in agents:
                    agents[person] = stack.enter_context(writable(ctx, person))
                staged, written = agents[person].notes.approve(name, Author("tool, approved"))
            except RefusalError as refused:
                failed.append({"id": name, "error": str(RejectedError(refused))})
                continue
            except HermesError as error:
                failed.append({"id": name, "error": error.without_hint})
                continue
            # Here and not in `approve`: `Notes` knows no provider.
            target = notes.book(staged.target).target
            agents[person].mirror(target, written.steps, "command", staged.session)
            approved.append({"id": name, "target": staged.target, "summary": staged.summary})
            if not json_wanted:
                say(f"Approved: {plain(staged.summary)}")
    if json_wanted:
        print_json(approved=approved, failed=failed)
        ctx.exit(1 if failed else 0)
    if failed:
        texts = (
            f"{each['id']} is still pending: {each['error']}"
            if notes.pending.exists(each["id"])
            else each["error"]
            for each in failed
        )
        raise NotesError("; ".join(texts), hint=PENDING_HINT)


@click.command()
@_names
@json_option
@click.pass_context
def reject(ctx: click.Context, names: tuple[str, ...], json_wanted: bool) -> None:
    """Discard pending writes."""
    notes = notes_of(ctx)
    # All names are checked before the first one is discarded: a typo changes nothing.
    rejected = _named(notes, names)
    for name in rejected:
        if not notes.pending.exists(name):
            raise NotesError(f"nothing with the id {name} is pending", hint=PENDING_HINT)
    for name in rejected:
        notes.pending.discard(name)
        if not json_wanted:
            say(f"Rejected: {name}")
    if json_wanted:
        print_json(rejected=rejected)


def _named(notes: Notes, names: tuple[str, ...]) -> list[str]:
    return [each.id for each in notes.pending.all()] if names == ("all",) else list(names)
