"""`explain`: what would be recalled for a question, from whom, and what was left out."""

from __future__ import annotations

from typing import Any

import click

from hermes_core.cli._figures import duration
from hermes_core.cli._output import bold, paint, plain, print_json, say
from hermes_core.cli.activation import recovered_config
from hermes_core.errors import HermesError
from hermes_core.explanation import explain


@click.command("explain")
@click.argument("question")
@click.option("--session", metavar="ID", default="", help="Ask in this session.")
@click.option("--user", metavar="ID", default="", help="Ask for this user.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def explain_command(
    ctx: click.Context, question: str, session: str, user: str, json_wanted: bool
) -> None:
    """Show exactly what an agent would be given with QUESTION, and why.

    Providers are asked as in a real turn, but as for a subagent, of which nothing is stored.
    Exit code 1 if a provider could not be used or did not answer.
    """
    if not question.strip():
        raise click.UsageError("QUESTION is empty.")
    done = explain(recovered_config(ctx), question, session=session, user=user)
    if not done.rows:
        raise HermesError(done.problem)
    (row,) = done.rows
    problems = [*row["problems"], *([done.problem] if done.problem else [])]
    if json_wanted:
        print_json(**{**row, "problems": problems})
    else:
        _print(row, problems)
    if problems or any(each["error"] for each in row["providers"]):
        ctx.exit(1)


def _print(row: dict[str, Any], problems: list[str]) -> None:
    if row["injected"]:
        for line in row["injected"].splitlines():
            say("".join(char if char.isprintable() else " " for char in line))
    else:
        say("Nothing would be injected.")
    say()
    say(bold("from:"))
    for each in row["providers"]:
        say(f"  {plain(each['provider'])}: {_told(each)}")
    for label, lines in (("left out", row["left_out"]), ("warning", row["warnings"])):
        for line in lines:
            say(f"{label + ':':10} {plain(line)}")
    for line in problems:
        say(f"{paint('problem:', 'broken')}   {plain(line)}")


def _told(each: dict[str, Any]) -> str:
    took = duration(each["seconds"])
    if each["error"]:
        return f"{paint(plain(each['error']), 'broken')}, after {took}"
    if each["why_nothing"]:
        return f"nothing, in {took}: {plain(each['why_nothing'])}"
    return f"{each['characters']:,} characters, in {took}"
