"""Generates pages from the code: one page per family of checks, and the reference.

`python docs/generate.py` writes the pages of the checks. They are in the repository because the
kit's output links to them. mkdocs runs this file as a hook, which adds the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

import hermes_core
from hermes_core import conformance, service
from hermes_core.cli.app import cli
from hermes_core.conformance.checks import FAMILIES
from hermes_core.conformance.grades import tier_of

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

FOLDER = Path(__file__).parent
PLUGINS = ("honcho", "mem0", "hindsight")

_INDEX = """# Checks

`hermes-plugins check` runs these checks. Hosts rely on every *must*. Users notice a missing
*should*. The third column is the lowest [grade](../grades.md) that needs the check.
"""


def check_pages() -> dict[str, str]:
    """Return one page per family and an index, by path."""
    rows = ["| check | level | grade | |", "|---|---|---|---|"]
    pages = {}
    for family in FAMILIES:
        module = import_module(f"hermes_core.conformance.checks.{family}")
        summary = _first_line(module.__doc__)
        parts = [f"# {summary.rstrip('.')}"]
        for each in [check for check in conformance.all_checks() if check.family == family]:
            link = f"[{each.id}]({family}.md#{each.id.lower()})"
            grade = tier_of(each.id, each.level)
            rows.append(f"| {link} | {each.level} | {grade} | {each.title} |")
            parts += [
                f"## {each.id}: {each.title} {{#{each.id.lower()}}}",
                f"Level: **{each.level}**. Grade: [{grade}](../grades.md).",
                " ".join(each.why.split()),
                f"**Fix.** {each.fix}",
            ]
        pages[f"checks/{family}.md"] = "\n\n".join(parts) + "\n"
    pages["checks/index.md"] = "\n".join([_INDEX, *rows, ""])
    return pages


def reference_pages() -> dict[str, str]:
    """Return the pages of the Python names and of the commands, by path."""
    return {
        "reference/python.md": "\n\n".join(_python()) + "\n",
        "reference/commands.md": "\n\n".join(_commands()) + "\n",
    }


def plugin_pages() -> dict[str, str]:
    """Return the READMEs of our plugins, by path."""
    readmes = {name: FOLDER.parent / "plugins" / name / "README.md" for name in PLUGINS}
    return {f"plugins/{name}.md": path.read_text("utf-8") for name, path in readmes.items()}


def _python() -> Iterator[str]:
    """Yield directives for mkdocstrings, which reads signatures and docstrings."""
    yield "# Python"
    for module in (hermes_core, service, conformance):
        yield f"## {module.__name__}"
        for name in module.__all__:
            if not name.startswith("_"):
                yield f"::: {module.__name__}.{name}"


def _commands() -> Iterator[str]:
    yield "# Commands"
    context = click.Context(cli, info_name="hermes-plugins")
    yield from _command(cli, context)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {context.command_path}"
    yield f"```text\n{command.get_help(context)}\n```"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _command(inner, click.Context(inner, context, info_name=name))


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages; mkdocs calls this after it found the others."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only mkdocs calls this

    for path, text in {**reference_pages(), **plugin_pages()}.items():
        files.append(File.generated(config, path, content=text))
    return files


if __name__ == "__main__":
    for path, text in check_pages().items():
        target = FOLDER / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, "utf-8", newline="\n")
