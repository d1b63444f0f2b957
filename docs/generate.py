"""Pages that are made of the code: a page for each family of checks, and the reference.

`python docs/generate.py` writes the pages of the checks, which are in the repository since the
kit's output names them. mkdocs runs this file as a hook, and gets the reference from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import hermes_core
from hermes_core import backends, conformance
from hermes_core.cli._commands import cli
from hermes_core.conformance.checks import FAMILIES

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

FOLDER = Path(__file__).parent
PLUGINS = ("honcho", "mem0", "hindsight")

_INDEX = """# Checks

What `hermes-plugins check` looks at. *must* is what hosts rely on; *should* is what their users
notice.
"""


def check_pages() -> dict[str, str]:
    """A page for each family, and one that lists them all; by path."""
    rows = ["| check | level | |", "|---|---|---|"]
    pages = {}
    for family in FAMILIES:
        module = import_module(f"hermes_core.conformance.checks.{family}")
        summary = _first_line(module.__doc__)
        parts = [f"# {summary.rstrip('.')}"]
        for each in [check for check in conformance.all_checks() if check.family == family]:
            link = f"[{each.id}]({family}.md#{each.id.lower()})"
            rows.append(f"| {link} | {each.level} | {each.title} |")
            parts += [
                f"## {each.id}: {each.title} {{#{each.id.lower()}}}",
                f"Level: **{each.level}**.",
                " ".join(each.why.split()),
                f"**How to fix it.** {each.fix}",
            ]
        pages[f"checks/{family}.md"] = "\n\n".join(parts) + "\n"
    pages["checks/index.md"] = "\n".join([_INDEX, *rows, ""])
    return pages


def reference_pages() -> dict[str, str]:
    """The public names, and the commands; by path."""
    return {
        "reference/python.md": "\n\n".join(_python()) + "\n",
        "reference/commands.md": "\n\n".join(_commands()) + "\n",
    }


def plugin_pages() -> dict[str, str]:
    """What our plugins say of themselves; by path."""
    readmes = {name: FOLDER.parent / "plugins" / name / "README.md" for name in PLUGINS}
    return {f"plugins/{name}.md": path.read_text("utf-8") for name, path in readmes.items()}


def _python() -> Iterator[str]:
    yield "# Python"
    for module in (hermes_core, backends, conformance):
        yield f"## {module.__name__}"
        for name in module.__all__:
            if not name.startswith("_"):
                yield from _object(name, getattr(module, name))


def _object(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}"
    if not callable(value):
        yield f"`{value!r}`"
        return
    if not inspect.isclass(value) or is_dataclass(value) or hasattr(value, "_fields"):
        yield f"```python\n{name}{_signature(value)}\n```"
    yield _text(value)
    if inspect.isclass(value):
        for key, member in vars(value).items():
            inner = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if not key.startswith("_") and inspect.isfunction(inner):
                yield f"```python\n{key}{_signature(inner)}\n```"
                yield _text(inner)


class _Bare(str):
    """An annotation, which is a text already, without quotes around it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(value: Any) -> str:
    known = inspect.signature(value)
    parameters = [
        each.replace(annotation=_bare(each.annotation)) for each in known.parameters.values()
    ]
    bare = known.replace(parameters=parameters, return_annotation=_bare(known.return_annotation))
    return str(bare)


def _bare(annotation: Any) -> Any:
    annotation = getattr(annotation, "__forward_arg__", annotation)  # as NamedTuples have them
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _text(value: Any) -> str:
    """A docstring; what is indented in it is shown as it stands."""
    text = inspect.getdoc(value) or ""
    parts = text.split("\n\n")
    return "\n\n".join(
        f"```text\n{part}\n```" if "\n  " in part or part.startswith(" ") else part
        for part in parts
    )


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
    """Called by mkdocs when it has found the pages that are there."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only mkdocs calls this

    for path, text in {**reference_pages(), **plugin_pages()}.items():
        files.append(File.generated(config, path, content=text))
    return files


if __name__ == "__main__":
    for path, text in check_pages().items():
        target = FOLDER / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, "utf-8", newline="\n")
