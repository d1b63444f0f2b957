"""`backup` and `restore`: the whole home in one file, and back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import click

from hermes_core.backup.backup import create_backup
from hermes_core.backup.format import Manifest
from hermes_core.backup.restore import RestoreResult, read_manifest, restore
from hermes_core.cli.output import amount, note, plain, print_json, progress, say, size
from hermes_core.cli.usage import HintedUsageError
from hermes_core.errors import SecretsError
from hermes_core.secrets.encryption import SHORTEST_PASSPHRASE
from hermes_core.storage.home import resolve_home

_VARIABLE: Final = "HERMES_BACKUP_PASSPHRASE"

_file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
_json_option = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
_passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Read the passphrase from this file.",
)


@click.command("backup")
@_file_argument
@click.option("--with-secrets", is_flag=True, help="Include API keys, encrypted.")
@_passphrase_option
@_json_option
@click.pass_context
def backup_command(ctx: click.Context, /, file: Path, **given: Any) -> None:
    """Write the whole home to one file.

    Agents can keep running. Secrets are left out unless you add --with-secrets; then they are
    encrypted with a passphrase, which is asked for, or read from HERMES_BACKUP_PASSPHRASE or a
    file. Exit code 1 if something could not be copied.
    """
    home = resolve_home(ctx.obj)
    passphrase = ""
    if given["with_secrets"]:
        passphrase = _passphrase(given["passphrase_file"], confirm=True)
    elif given["passphrase_file"]:
        raise HintedUsageError(
            "--passphrase-file is for secrets only", hint="add --with-secrets, or leave it out"
        )
    with progress("Copying the home", 1) as shown:
        made = create_backup(
            home, file.absolute(), passphrase=passphrase, progress=_in_kilobytes(shown.update)
        )
    if given["json_wanted"]:
        print_json(file=str(file), **_facts(made), bytes_written=file.stat().st_size)
    else:
        _print_backup(made, file)
    if made.problems:
        ctx.exit(1)


@click.command("restore")
@_file_argument
@click.option(
    "--into",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    help="Restore into this folder instead of the home.",
)
@click.option("--without-secrets", is_flag=True, help="Do not ask for the passphrase.")
@_passphrase_option
@_json_option
@click.pass_context
def restore_command(ctx: click.Context, /, file: Path, into: Path | None, **given: Any) -> None:
    """Restore a home from a backup.

    Checks the whole backup first. The home must not exist, or be empty.
    """
    home = into.absolute() if into is not None else resolve_home(ctx.obj)
    known = read_manifest(file)
    passphrase = ""
    if known.secrets is not None and not given["without_secrets"]:
        passphrase = _passphrase(given["passphrase_file"], confirm=False)
    with progress("Restoring", 1) as shown:
        done = restore(file, home, passphrase, progress=_in_kilobytes(shown.update))
    if given["json_wanted"]:
        outside = [{"path": str(path), "original": original} for path, original in done.outside]
        facts = {**_facts(done.manifest), "outside": outside, "secrets": done.secrets}
        print_json(restored_to=str(done.home), **facts)
        return
    _print_restored(done)


def _in_kilobytes(update: Any) -> Any:
    return lambda done, total: update(done // 1000, max(total // 1000, 1))


def _passphrase(file: Path | None, *, confirm: bool) -> str:
    """From a file, from the environment, or from the person; never from the command line."""
    if file is not None:
        lines = file.read_text("utf-8").splitlines()
        return _checked(lines[0] if lines else "", confirm=confirm)
    if found := os.environ.get(_VARIABLE):
        return _checked(found, confirm=confirm)
    if not sys.stdin.isatty():
        raise SecretsError(
            "a passphrase is needed, and there is no terminal to ask for it",
            hint=f"set {_VARIABLE}, or use --passphrase-file FILE"
            + ("" if confirm else ", or --without-secrets"),
        )
    asked: str = click.prompt(
        "Passphrase for the secrets", hide_input=True, confirmation_prompt=confirm, err=True
    )
    return _checked(asked, confirm=confirm)


def _checked(passphrase: str, *, confirm: bool) -> str:
    if confirm and len(passphrase) < SHORTEST_PASSPHRASE:
        what = f"a passphrase needs at least {SHORTEST_PASSPHRASE} characters"
        raise SecretsError(what, hint="run it again with a longer one")
    if not passphrase:
        raise SecretsError("the passphrase is empty", hint="run it again and type it")
    return passphrase


# -- output -----------------------------------------------------------------------------------


def _facts(made: Manifest) -> dict[str, Any]:
    return {
        "created": made.created,
        "program": made.program,
        "home": made.home,
        "storage": made.storage,
        "provider": made.provider,
        "files": len(made.files),
        "bytes": made.size,
        "secrets": made.secrets,
        "outside": [each.original for each in made.outside],
        "left_out": list(made.left_out),
        "problems": list(made.problems),
    }


def _print_backup(made: Manifest, file: Path) -> None:
    written = size(file.stat().st_size)
    say(f"Wrote {amount(len(made.files), 'file')} ({size(made.size)}) to {file} ({written}).")
    if made.secrets is not None:
        say(
            f"Secrets: {made.secrets:,}, encrypted. Nobody can restore them without the passphrase."
        )
    for each in made.outside:
        say(f"outside the home: {plain(each.original)}", indent=2)
    _print_gaps(made)
    if made.storage != "files":
        note(
            f"Conversations, notes and the outbox are in {plain(made.storage)} and are not part of"
            " this file.\nhint: back them up with pg_dump, or with `hermes-plugins export FILE`"
        )


def _print_gaps(made: Manifest) -> None:
    for each in made.left_out:
        note(f"left out: {plain(each)}")
    for each in made.problems:
        note(f"problem: {plain(each)}")


def _print_restored(done: RestoreResult) -> None:
    made = done.manifest
    say(f"Restored {amount(len(made.files), 'file')} ({size(made.size)}) to {done.home}.")
    say(f"The backup is of {made.created}, from {plain(made.home)}.")
    if done.secrets:
        say(f"Secrets: {done.secrets:,}, all in .env now.")
        note("hint: run: hermes-plugins secrets move --to keyring")
    elif made.secrets is not None:
        note("The secrets were not restored.")
    for path, original in done.outside:
        note(
            f"{plain(str(path))} was at {plain(original)}. Move it there if the provider needs it."
        )
    _print_gaps(made)
    if made.storage != "files":
        note(f"Conversations, notes and the outbox are in {plain(made.storage)}.")
