"""Wrong usage of a command: one line, and a hint with the nearest name or the shortest help."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import click

from hermes_core.cli.output import plain, print_error
from hermes_core.config.names import nearest
from hermes_core.errors import HermesError

#: What click quotes of the command line. Its exceptions name it only in newer versions.
_NO_COMMAND: Final = re.compile(r"No such command ['\"](.+)['\"]")
_NO_CHOICE: Final = re.compile(r"['\"](.*)['\"] is not one of ")
_NO_NUMBER: Final = re.compile(r"(.*) is not (?:a valid (?:integer|float)|in the range)\b")
_SUGGESTED: Final = 2


class HintedUsageError(click.UsageError):
    """Wrong usage for which there is a better hint than the help of the command."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def did_you_mean(name: str, known: Iterable[str], *, before: str = "") -> str:
    """Return a question with the nearest of the known names; "" if none is near.

    Args:
        name: What was typed.
        known: What can be typed.
        before: The command line up to the name, to suggest a whole one.
    """
    close = nearest(name, known)[:_SUGGESTED]
    names = [f"`{before}{each}`" if before else each for each in close]
    return f"did you mean {' or '.join(names)}?" if names else ""


def print_click_error(
    error: click.ClickException, root: click.Command, arguments: Iterable[str]
) -> None:
    """Print an error of click as we print our own.

    Click would print the usage, how to get help, an empty line and then the error.

    Args:
        error: What click raised.
        root: The command of commands.
        arguments: The command line after the name of the program.
    """
    if not isinstance(error, click.UsageError):
        print_error(HermesError(_sentence(error.format_message())))
    elif type(error).__name__ == "NoArgsIsHelpError":  # a command of commands, and no command
        error.show()
    else:
        hint = _hint(error) or f"see: {_command_path(error, root, arguments)} --help"
        print_error(HermesError(_what(error), hint=hint))


def _what(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        return f"no such option: {error.option_name}"
    if match := _NO_COMMAND.match(error.message):
        return f"no such command: {match[1]}"
    if isinstance(error, click.BadParameter) and (expected := _expected_number(error)):
        return expected
    return _sentence(error.format_message())


def _expected_number(error: click.BadParameter) -> str:
    """Return which number was expected; "" if it was none. Click says "valid integer range"."""
    match = _NO_NUMBER.match(error.message)
    if match is None or error.param is None:
        return ""
    kind = error.param.type
    number = "a whole number" if isinstance(kind, click.types.IntParamType) else "a number"
    limits = ((" from ", getattr(kind, "min", None)), (" to ", getattr(kind, "max", None)))
    bounds = "".join(f"{word}{limit}" for word, limit in limits if limit is not None)
    name = error.param.get_error_hint(error.ctx)
    return f"invalid value for {name}: expected {number}{bounds}, got {match[1]}"


def _sentence(text: str) -> str:
    """Return a sentence of click in the form of ours: after a colon, without a full stop."""
    text = plain(text).removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _command_path(error: click.UsageError, root: click.Command, arguments: Iterable[str]) -> str:
    """Return the command that was used wrongly. Click does not always say which one it was."""
    if error.ctx is not None:
        return error.ctx.command_path
    ctx = click.Context(root, info_name="hermes-plugins")
    for word in arguments:
        if not isinstance(ctx.command, click.Group):
            break
        if found := ctx.command.get_command(ctx, word):
            ctx = click.Context(found, parent=ctx, info_name=word)
    return ctx.command_path


def _hint(error: click.UsageError) -> str:
    """Return what the person probably meant; "" if nothing comes near."""
    if isinstance(error, HintedUsageError):
        return error.hint
    ctx = error.ctx
    if ctx is None:
        return ""
    command = ctx.command
    if isinstance(error, click.NoSuchOption):
        options = (each for each in command.get_params(ctx) if isinstance(each, click.Option))
        names = (name for each in options for name in (*each.opts, *each.secondary_opts))
        return did_you_mean(error.option_name, (name for name in names if name.startswith("--")))
    if isinstance(command, click.Group) and (match := _NO_COMMAND.match(error.message)):
        return did_you_mean(match[1], command.list_commands(ctx), before=f"{ctx.command_path} ")
    match = _NO_CHOICE.match(error.message)
    if match and isinstance(error, click.BadParameter) and error.param is not None:
        kind = error.param.type
        if isinstance(kind, click.Choice):
            return did_you_mean(match[1], map(str, kind.choices))
    return ""
