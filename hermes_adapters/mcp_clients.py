"""`hermes-plugins mcp install`: the entry of this server in the configuration of an MCP client.

A file changes only by the lines of the entry, which `--undo` removes again. The new text must parse
to exactly the old data with the entry, otherwise nothing is written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from hermes_core import HermesError, replace_file
from hermes_core.cli.output import note, say, say_text

NAME: Final = "hermes-memory"


class _Client(NamedTuple):
    """Where a client has its servers: the file, and the key of the table in it."""

    file: Callable[[], Path]
    table: str


def _application_folder(*parts: str) -> Path:
    """The folder of a desktop program's settings."""
    if sys.platform == "darwin":
        return Path.home().joinpath("Library", "Application Support", *parts)
    if os.name == "nt":
        return Path(os.environ.get("APPDATA") or Path.home()).joinpath(*parts)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config").joinpath(*parts)


_CLIENTS: Final = {
    "claude-code": _Client(lambda: Path.home() / ".claude.json", "mcpServers"),
    "claude-desktop": _Client(
        lambda: _application_folder("Claude", "claude_desktop_config.json"), "mcpServers"
    ),
    "codex": _Client(lambda: Path.home() / ".codex" / "config.toml", "mcp_servers"),
    "cursor": _Client(lambda: Path.home() / ".cursor" / "mcp.json", "mcpServers"),
    "vscode": _Client(lambda: _application_folder("Code", "User", "mcp.json"), "servers"),
}


class _ConfigChange(NamedTuple):
    """A new text of a file, and the lines that make the difference."""

    text: str
    lines: str


def _entry(home: str | None, read_only: bool, user: str) -> dict[str, Any]:
    """How a client starts this server."""
    # The whole path: desktop programs do not have the PATH of your shell. First that of the
    # installation that runs this: the first one on PATH may be another.
    beside = str(Path(sys.executable).parent)
    command = shutil.which("hermes-plugins", path=beside) or shutil.which("hermes-plugins")
    command = str(Path(command or sys.argv[0]).absolute())
    flags = [*(["--read-only"] if read_only else []), *(["--user", user] if user else [])]
    place = ["--home", str(Path(home).absolute())] if home else []
    return {"command": command, "args": [*place, "mcp", *flags]}


def _in_json(text: str, table: str, entry: dict[str, Any]) -> _ConfigChange:
    given = _parsed_json(text)
    servers = _servers(given, table)
    wanted = {**given, table: {**servers, NAME: entry}}
    lines = f'\n    "{NAME}": {json.dumps(entry)}'
    # Behind the opening brace of the table, or of the file: what follows stays as it is. Other
    # objects may have a table of this name, too, such as the projects of Claude Code.
    places = [each.end() for each in re.finditer(rf'"{table}"\s*:\s*\{{', text)]
    after = "," if servers else "\n  "
    if table not in given:
        places = [text.index("{") + 1]
        # Closed on the same line: so `--undo` knows that the table is ours, too.
        lines = f'\n  "{table}": {{{lines}}}'
        after = "," if given else "\n"
    for at in places:
        new = text[:at] + lines + after + text[at:]
        if _is_same(new, wanted):
            return _ConfigChange(new, lines + after)
    raise HermesError(
        "the entry can't be added without changing something else",
        hint="add it by hand: see --print",
    )


def _servers(given: dict[str, Any], table: str) -> dict[str, Any]:
    """The servers that a file has, which must not have ours."""
    servers = given.get(table, {})
    if not isinstance(servers, dict):
        raise HermesError(f"{table} is not an object", hint="correct it first: see --print")
    if NAME in servers:
        raise HermesError(
            f"{NAME} is already configured", hint="to change it, run the command with --undo first"
        )
    return servers


def _is_same(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(text) == wanted)
    except ValueError:
        return False


def _parsed_json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise HermesError(
            f"the file is not plain JSON: {error}", hint="add the entry by hand: see --print"
        ) from error
    if not isinstance(found, dict):
        raise HermesError(
            "the file is not a JSON object", hint="add the entry by hand: see --print"
        )
    return found


def _parsed_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise HermesError(f"the file is not TOML: {error}", hint="correct it first") from error


def _in_toml(text: str, table: str, entry: dict[str, Any]) -> _ConfigChange:
    given = _parsed_toml(text)
    servers = _servers(given, table)
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in entry.items())
    added = f"{'' if text.endswith(chr(10)) or not text else chr(10)}\n[{table}.{NAME}]\n{lines}\n"
    try:
        same = tomllib.loads(text + added) == {**given, table: {**servers, NAME: entry}}
    except tomllib.TOMLDecodeError:  # for example a table in one line, which can't grow
        same = False
    if not same:
        raise HermesError(
            "the entry can't be added without changing something else",
            hint="add it by hand: see --print",
        )
    return _ConfigChange(text + added, added)


def _undone(text: str, client: _Client) -> str:
    """The text without our entry, to the byte as it was before."""
    is_toml = client.file().suffix == ".toml"
    given = _parsed_toml(text) if is_toml else _parsed_json(text)
    servers = given.get(client.table)
    servers = servers if isinstance(servers, dict) else {}
    entry = servers.get(NAME)
    if entry is None:
        raise HermesError(f"{NAME} is not configured", hint="to add it, leave out --undo")
    for lines in _toml_forms(client.table, entry) if is_toml else _json_forms(client.table, entry):
        if text.count(lines) == 1:
            return text.replace(lines, "")
    # A client that writes its file itself, such as Claude Code, has reformatted the entry.
    rest = {name: each for name, each in servers.items() if name != NAME}
    for new in () if is_toml else _cut_from_json(text):
        if _is_same(new, {**given, client.table: rest}):
            return new
    raise HermesError(f"the entry {NAME} was changed", hint="remove it by hand")


def _cut_from_json(text: str) -> Iterator[str]:
    """The text without each member of our name, and without the comma that it leaves over."""
    for found in re.finditer(rf'"{NAME}"\s*:\s*', text):
        with suppress(ValueError):
            _, end = json.JSONDecoder().raw_decode(text, found.end())
            before, after = text[: found.start()].rstrip(), text[end:]
            if after.lstrip().startswith(","):
                yield before + after.lstrip()[1:]
            yield before.removesuffix(",") + after


def _json_forms(table: str, entry: dict[str, Any]) -> list[str]:
    """Every form in which `_in_json` writes the entry: with its table or alone, last or not."""
    bare = f'\n    "{NAME}": {json.dumps(entry)}'
    whole = f'\n  "{table}": {{{bare}}}'
    return [whole + ",", whole + "\n", bare + ",", bare + "\n  "]


def _toml_forms(table: str, entry: dict[str, Any]) -> list[str]:
    return [_in_toml(before, table, entry).lines for before in ("x = 1", "")]


def _content(path: Path) -> str:
    try:
        # As bytes: text would change line ends.
        return path.read_bytes().decode("utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        what = f"can't be read: {error}"
        raise HermesError(what, where=str(path), hint="correct it first") from error


@click.command("install")
@click.argument("client", metavar="CLIENT", type=click.Choice(sorted(_CLIENTS)))
@click.option("--print", "print_only", is_flag=True, help="Show the entry and change nothing.")
@click.option("--undo", is_flag=True, help="Remove the entry.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--read-only", is_flag=True, help="Offer nothing that changes the memory.")
@click.option("--user", default="", metavar="ID", help="Serve the memory of this user.")
@click.pass_obj
def install_command(
    home: str | None, *, client: str, print_only: bool, undo: bool, yes: bool, read_only: bool,
    user: str,
) -> None:  # fmt: skip
    """Add this server to the configuration of an MCP client."""
    chosen = _CLIENTS[client]
    entry = _entry(home, read_only, user)
    path = chosen.file()
    if print_only:
        say(f"in {path}:")
        is_toml = path.suffix == ".toml"
        shown = _in_toml("", chosen.table, entry).lines.strip() if is_toml else ""
        say_text(shown or json.dumps({chosen.table: {NAME: entry}}, indent=2))
        return
    before = _content(path)
    if undo and not before:
        raise HermesError(
            f"{NAME} is not configured", where=str(path), hint="to add it, leave out --undo"
        )
    if undo:
        after, shown = _undone(before, chosen), f"remove {NAME} from {path}"
    else:
        is_toml = path.suffix == ".toml"
        add = _in_toml if is_toml else _in_json
        # A file without content is one without entries.
        given = before if before.strip() or is_toml else "{}\n"
        change = add(given, chosen.table, entry)
        after, shown = change.text, f"add to {path}:\n{change.lines.strip()}"
    say_text(shown)
    if not yes and not click.confirm("Change the file?", default=True):
        return
    if _content(path) != before:
        raise HermesError("the file has changed since", where=str(path), hint="run it again")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, after.encode("utf-8"))
    note(f"restart {client} to use it" if not undo else f"restart {client}")
