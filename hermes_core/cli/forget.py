"""`forget`: delete a fact, a conversation or a person everywhere, and prove it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from hermes_core.checkup.forget import (
    always_unreachable,
    begin,
    exclusive,
    finish,
    is_from_before,
    is_gone,
    resume,
    unfinished,
)
from hermes_core.checkup.forget_provider import ProviderAnswer, ask_provider
from hermes_core.checkup.receipt import Receipt
from hermes_core.checkup.survey import Subject, Survey, needle_problem, subject_of, survey
from hermes_core.cli.output import (
    amount,
    note,
    paint,
    plain,
    print_json,
    print_table,
    progress,
    say,
    size,
)
from hermes_core.cli.usage import HintedUsageError
from hermes_core.config import Config, load_config
from hermes_core.errors import ConfigError, HermesError
from hermes_core.loading.activation import activate_builtin
from hermes_core.provider import ForgetRequest
from hermes_core.storage.home import resolve_home

_SHOWN: Final = 10
#: What the built-in calls conversations that can't be emptied without being deleted.
_IDS: Final = "ids of conversations"


@click.command("forget")
@click.argument("text", required=False)
@click.option("--session", "session_id", metavar="ID", default="", help="Delete this conversation.")
@click.option("--user", "user_id", metavar="ID", default="", help="Delete everything of this user.")
@click.option("--platform", default="", help="The platform of that user.")
@click.option("--provider", is_flag=True, help="Also delete it at the external provider.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option(
    "--receipt",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the receipt to this file.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def forget_command(ctx: click.Context, /, **given: Any) -> None:
    """Delete a fact, a conversation or a person.

    Searches notes, conversations, the outbox, the log and every file of the home, deletes, searches
    again, and writes a receipt. Everything that contains TEXT is deleted; "-" reads it from
    standard input. Without arguments, finishes what was interrupted. Exit code 1 if something is
    left.
    """
    home = resolve_home(ctx.obj)
    config = _config(home)
    request = _request(home, given)
    with exclusive(home):
        complete = _resumed(config, given) if not given["dry_run"] else True
        if request is not None:
            complete = _forgotten(config, request, given) and complete
    if not complete:
        ctx.exit(1)


def _config(home: Path) -> Config:
    try:
        return load_config(home)
    except ConfigError as error:
        # Whatever config.yaml says, what is stored can be deleted.
        note(f"warning: {error.problems[0]}; the external provider can't be asked")
        return Config(home)


def _request(home: Path, given: dict[str, Any]) -> ForgetRequest | None:
    """What the arguments ask for; None if they only finish what was interrupted."""
    text = given["text"]
    if text == "-":
        text = sys.stdin.read().strip()
    asked = [each for each in (text, given["session_id"], given["user_id"]) if each]
    if len(asked) > 1:
        raise HintedUsageError(
            "use only one of TEXT, --session and --user",
            hint="run `hermes-plugins forget --help`",
        )
    if not asked:
        if given["text"] is None and unfinished(home) is not None:
            return None
        raise HintedUsageError(
            "nothing to forget: pass TEXT, --session or --user",
            hint="run `hermes-plugins forget --help`",
        )
    if text and (problem := needle_problem(text)):
        raise HintedUsageError(problem, hint="use more words of it")
    return ForgetRequest(
        str(home), text or "", given["session_id"], given["user_id"], given["platform"]
    )


def _resumed(config: Config, given: dict[str, Any]) -> bool:
    """Finish what was interrupted; whether nothing is left of it."""
    journal = unfinished(config.home)
    if journal is None:
        return True
    note("Finishing what was interrupted.")
    with progress("Deleting") as shown:
        receipt = resume(config, journal, shown.show)
    _print_receipt(config, receipt, journal.receipt, given)
    return receipt.complete


def _forgotten(config: Config, request: ForgetRequest, given: dict[str, Any]) -> bool:
    """Look, ask, delete; whether nothing is left."""
    with progress("Searching"):
        builtin = activate_builtin(config)
        subject = subject_of(config, request, builtin)
        found = survey(config, subject, builtin)
        asks = given["provider"] and bool(config.selection.name)
        theirs = ask_provider(config, subject, delete=False) if asks else ProviderAnswer()
    if given["dry_run"] or not given["json_wanted"]:
        _print_survey(config, subject, found, theirs, given)
    # What can't be read may have it: then there is a receipt that says so.
    problems = (*found.problems, *theirs.problems)
    nothing = is_gone(found, subject) and not theirs.found and not problems
    if nothing and given["json_wanted"] and not given["dry_run"]:
        print_json(found={}, deleted={}, complete=True)
    if nothing or given["dry_run"]:
        return True
    # Without a terminal nobody can answer: then nothing is deleted.
    question = "Delete all of this? It can't be undone."
    if not given["yes"] and not (sys.stdin.isatty() and click.confirm(question, err=True)):
        raise HermesError("nothing was deleted", hint="use --yes to delete it")
    receipt = given["receipt"].absolute() if given["receipt"] else None
    with progress("Deleting") as shown:
        journal = begin(config.home, subject, found, provider=asks, receipt=receipt)
        done = finish(config, journal, shown.show)
    _print_receipt(config, done, journal.receipt, given)
    return done.complete


# -- output -----------------------------------------------------------------------------------


def _print_survey(
    config: Config,
    subject: Subject,
    found: Survey,
    theirs: ProviderAnswer,
    given: dict[str, Any],
) -> None:
    files = [str(each.relative_to(config.home)) for each in found.search.hits]
    problems = [*found.problems, *theirs.problems]
    unreachable = [*theirs.unreachable]
    unreachable += always_unreachable(config, subject, asked=given["provider"])
    if given["json_wanted"]:
        print_json(
            items=[each._asdict() for each in found.items],
            provider=dict(theirs.found),
            files=files,
            unreachable=unreachable,
            problems=problems,
        )
        return
    rows = [(each.place, f"{each.count:,}", _preview(each.previews)) for each in found.items]
    name = plain(config.selection.name)
    rows += [(f"{name}: {place}", f"{count:,}", "") for place, count in theirs.found.items()]
    if rows:
        print_table(("PLACE", "COUNT", "WHAT"), rows, [""] * len(rows))
    if files:
        say(f"Files that contain it: {_listed(files)}")
    for each in problems:
        say(f"problem: {paint(plain(each), 'broken')}", indent=2)
    if not rows and not files:
        say("Nothing was found.")
    elif given["dry_run"]:  # else the receipt's part of the output says so
        for each in unreachable:
            say(f"not reached: {plain(each)}", indent=2)


def _preview(previews: tuple[str, ...]) -> str:
    shown = [plain(each) for each in previews if each.strip()]
    return " | ".join([*shown[:3], *(["..."] if len(shown) > 3 else [])])  # noqa: PLR2004


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(plain, names[:_SHOWN]))
    more = len(names) - _SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def _print_receipt(config: Config, receipt: Receipt, path: str, given: dict[str, Any]) -> None:
    if given["json_wanted"]:
        print_json(receipt=path, **receipt.as_json())
        return
    deleted = {**receipt.deleted}
    if theirs := receipt.provider:
        deleted |= {f"{theirs.name}: {key}": each for key, each in theirs.deleted.items()}
    places = ", ".join(f"{place} {count:,}" for place, count in deleted.items())
    say(f"Deleted: {plain(places) or 'nothing'}.")
    searched = receipt.searched
    files = f"{amount(searched.files, 'file')} ({size(searched.bytes)})"
    if searched.files_after:
        left = _listed(searched.files_after)
        say(f"Searched {files} again: {paint('still in', 'broken')} {left}.")
    else:
        say(f"Searched {files} again: {paint('not found', 'active')}.")
    _print_remaining(config, receipt)
    say(f"Receipt: {path}")


def _print_remaining(config: Config, receipt: Receipt) -> None:
    theirs = receipt.provider
    rows = {**receipt.remaining, **(theirs.remaining if theirs else {})}
    for place, count in rows.items():
        say(paint(f"remaining: {plain(place)} {count:,}", "broken"))
    for each in (*receipt.problems, *(theirs.problems if theirs else ())):
        say(f"problem: {paint(plain(each), 'broken')}", indent=2)
    for each in (*(theirs.unreachable if theirs else ()), *receipt.unreachable):
        say(f"not reached: {plain(each)}", indent=2)
    if _IDS in rows:
        note(
            "hint: the text is part of the id of a conversation, a user or a chat; see\n"
            "      `hermes-plugins forget TEXT --dry-run`, then use --session ID or --user ID"
        )
    elif old := [each for each in receipt.searched.files_after if is_from_before(config, each)]:
        note(
            "hint: the home stores to a database now, and these files are from before; delete\n"
            f"      them if you won't go back, with -wal and -shm: {_listed(old)}"
        )
    elif receipt.searched.files_after:
        note("hint: change these files yourself, or run the same command when no agent runs")
