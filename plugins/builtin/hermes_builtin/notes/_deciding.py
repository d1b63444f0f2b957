"""`hermes-plugins memory pending`, `approve`, `reject` and `allow`: only a person decides."""

from __future__ import annotations

from typing import Any

import click

from hermes_builtin.notes import Notes, NotesError, Origin, Planned, Refused, Staged, entry_id
from hermes_builtin.notes._commands import (
    RejectedError,
    indented,
    json_option,
    notes_of,
    writable,
)
from hermes_core import HermesError
from hermes_core.cli._output import paint, plain, print_json, say

_names = click.argument("names", nargs=-1, required=True, metavar="ID|all")


@click.command()
@click.argument("name", metavar="ID")
@json_option
@click.pass_context
def allow(ctx: click.Context, name: str, json_wanted: bool) -> None:
    """Vouch for a text that the guard objects to. Only you can: no tool of the model does."""
    text = notes_of(ctx).allow(name)
    if json_wanted:
        print_json(allowed={"id": entry_id(text), "text": text})
    else:
        say(f"Allowed: {plain(text)}")


@click.command()
@json_option
@click.pass_context
def pending(ctx: click.Context, json_wanted: bool) -> None:
    """Show the writes that wait for your approval: all that they would do."""
    notes = notes_of(ctx)
    waiting = notes.planned()
    blocked = notes.blocked()
    if json_wanted:
        rows = [_row(*each) for each in waiting]
        print_json(pending=rows, blocked=[each._asdict() for each in blocked])
        return
    for staged, planned in waiting:
        session = f"  session {plain(staged.session)}" if staged.session else ""
        say(f"{staged.id}  {plain(staged.target)}{session}")
        for each in planned:
            _print_planned(each)
    for refused in blocked:
        told = f"{refused.id}  refused by the guard ({refused.reason}): {plain(refused.text)}"
        say(paint(told, "broken"))
    if not waiting and not blocked:
        say("Nothing is pending.")


def _row(staged: Staged, planned: list[Planned]) -> dict[str, Any]:
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
    return {**staged._asdict(), "operations": operations, "changes": changes}


def _print_planned(planned: Planned) -> None:
    wanted = planned.wanted
    say(f"    {wanted.action}")
    if planned.goes:
        say(indented(planned.goes, "      - ", 8))
    if wanted.action != "remove":
        say(indented(wanted.content, "      + ", 8))
    if planned.problem is not None:
        told = f"      can't be carried out as things are: {plain(planned.problem.text)}"
        say(paint(told, "broken"))


@click.command()
@_names
@json_option
@click.pass_context
def approve(ctx: click.Context, names: tuple[str, ...], json_wanted: bool) -> None:
    """Carry out writes that wait; one that can't be carried out stops no other."""
    approved, failed = [], []
    with writable(ctx) as builtin:
        for name in _named(builtin.notes, names):
            try:
                staged, written = builtin.notes.approve(name, Origin("tool, approved"))
            except Refused as refused:
                failed.append({"id": name, "error": str(RejectedError(refused))})
                continue
            except HermesError as error:
                failed.append({"id": name, "error": str(error)})
                continue
            builtin.mirror(staged.target, written.steps, "command", staged.session)
            approved.append({"id": name, "target": staged.target, "summary": staged.summary})
            if not json_wanted:
                say(f"Approved: {plain(staged.summary)}")
    if json_wanted:
        print_json(approved=approved, failed=failed)
        ctx.exit(1 if failed else 0)
    if failed:
        raise NotesError("; ".join(f"{each['id']} still waits: {each['error']}" for each in failed))


@click.command()
@_names
@json_option
@click.pass_context
def reject(ctx: click.Context, names: tuple[str, ...], json_wanted: bool) -> None:
    """Throw writes away that wait."""
    notes = notes_of(ctx)
    rejected = _named(notes, names)
    for name in rejected:
        if not notes.pending.exists(name):
            raise NotesError(f"nothing with the id {name} is pending", hint="nothing was changed")
    for name in rejected:
        notes.pending.discard(name)
        if not json_wanted:
            say(f"Rejected: {name}")
    if json_wanted:
        print_json(rejected=rejected)


def _named(notes: Notes, names: tuple[str, ...]) -> list[str]:
    return [each.id for each in notes.pending.all()] if names == ("all",) else list(names)
