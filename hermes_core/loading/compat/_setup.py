"""What a provider's own setup uses: questions, secrets, packages.

``hermes_cli.memory_setup``, ``curses_ui``, ``secret_prompt`` and ``tools_config``, and
``tools.lazy_deps``.
"""

from __future__ import annotations

import getpass
import logging
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement

from hermes_core.errors import HermesError, one_line
from hermes_core.loading.compat._config import save_env_value
from hermes_core.loading.compat.home import get_env_path, get_hermes_home
from hermes_core.secrets import EnvFile

#: By hermes-agent's module: the names that can be imported from it.
OFFERS: Final[dict[str, tuple[str, ...]]] = {
    "hermes_cli.curses_ui": ("curses_radiolist",),
    "hermes_cli.memory_setup": (
        "_CANCELLED",
        "_curses_select",
        "_print_cancelled_setup",
        "_prompt",
        "_write_env_vars",
        "cmd_setup_provider",
    ),
    "hermes_cli.secret_prompt": ("masked_secret_prompt",),
    "hermes_cli.tools_config": ("_pip_install",),
    "tools.lazy_deps": (
        "LAZY_DEPS",
        "FeatureUnavailable",
        "InstallSpecsResult",
        "ensure",
        "ensure_and_bind",
        "feature_install_command",
        "feature_missing",
        "feature_specs",
        "install_specs",
        "is_available",
    ),
}


# -- tools.lazy_deps: which packages a provider still needs. Nothing is installed from here
# hermes-agent runs pip when a package is missing. We only say what is missing and which command
# installs it: what is installed in an environment is the decision of the person who owns it.

#: The packages of the providers. Without versions: the provider declares which ones work.
LAZY_DEPS: Final[dict[str, tuple[str, ...]]] = {
    "memory.hindsight": ("hindsight-client",),
    "memory.honcho": ("honcho-ai",),
    "memory.mem0": ("mem0ai",),
    "memory.supermemory": ("supermemory",),
}


class FeatureUnavailable(RuntimeError):  # noqa: N818 - hermes-agent's name
    """A feature lacks packages; the text has the command that installs them."""

    def __init__(self, feature: str, missing: tuple[str, ...], reason: str) -> None:
        self.feature = feature
        self.missing = missing
        self.reason = reason
        advice = f". Run: {_command(missing)}" if missing else ""
        super().__init__(f"Feature {feature!r} unavailable: {reason}{advice}")


@dataclass
class InstallSpecsResult:
    """What came of `install_specs`; ``blocked`` if nothing was tried, and ``reason`` says why."""

    ok: bool
    blocked: bool = False
    reason: str = ""
    command: str = ""
    stdout: str = ""
    stderr: str = ""


def feature_specs(feature: str) -> tuple[str, ...]:
    """Return the packages of a feature.

    Raises:
        KeyError: There is no such feature.
    """
    return LAZY_DEPS[feature]


def feature_missing(feature: str) -> tuple[str, ...]:
    """Return the packages of a feature that are not installed."""
    return _missing(feature_specs(feature))


def is_available(feature: str) -> bool:
    """Return whether the packages of a feature are installed."""
    return feature in LAZY_DEPS and not feature_missing(feature)


def feature_install_command(feature: str, *, venv_pip: bool = False) -> str | None:
    """Return the command that installs a feature's packages.

    Args:
        feature: The feature.
        venv_pip: Name this interpreter, for a plugin that runs the command itself.
    """
    if feature not in LAZY_DEPS:
        return None
    pip = [sys.executable, "-m", "pip"] if venv_pip else ["pip"]
    return shlex.join([*pip, "install", *LAZY_DEPS[feature]])


@cache
def _print_command(feature: str, command: str) -> None:
    """Warn once: providers often catch the error and do not report it."""
    logging.getLogger("hermes_core").warning("%s lacks packages; run: %s", feature, command)


def ensure(feature: str, *, prompt: bool = True) -> None:  # noqa: ARG001 - nothing to agree to
    """Check that the packages of a feature are installed.

    Raises:
        FeatureUnavailable: They are not.
    """
    if feature not in LAZY_DEPS:
        raise FeatureUnavailable(feature, (), "no such feature is known")
    missing = feature_missing(feature)
    if missing:
        _print_command(feature, _command(missing))
        raise FeatureUnavailable(feature, missing, f"{', '.join(missing)} not installed")


def ensure_and_bind(
    feature: str,
    importer: Callable[[], dict[str, Any]],
    target_globals: dict[str, Any],
    *,
    prompt: bool = False,
) -> bool:
    """Put what ``importer`` imports into ``target_globals``; False if it can't be imported."""
    try:
        ensure(feature, prompt=prompt)
        target_globals.update(importer())
    except (FeatureUnavailable, ImportError):
        return False
    return True


def install_specs(
    specs: list[str] | tuple[str, ...],
    *,
    timeout: int = 300,  # noqa: ARG001 - nothing runs
) -> InstallSpecsResult:
    """Say whether packages are installed, and how a person installs those that are not."""
    missing = _missing(tuple(str(spec).strip() for spec in specs if str(spec).strip()))
    if not missing:
        return InstallSpecsResult(ok=True)
    command = _command(missing)
    reason = f"a plugin installs no packages; run: {command}"
    return InstallSpecsResult(ok=False, blocked=True, reason=reason, command=command)


def _missing(specs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(spec for spec in specs if not _is_installed(spec))


def _is_installed(spec: str) -> bool:
    try:
        wanted = Requirement(spec)
        # Pre-releases count: somebody installed it on purpose.
        return wanted.specifier.contains(version(wanted.name), prereleases=True)
    except (InvalidRequirement, PackageNotFoundError):
        return False


def _command(specs: tuple[str, ...]) -> str:
    return shlex.join(["pip", "install", *specs])


# -- hermes_cli.curses_ui: a choice among several, by its number


def curses_radiolist(
    title: str,
    items: Sequence[Any],
    selected: int = 0,
    *,
    cancel_returns: int | None = None,
    description: str | None = None,
    searchable: bool = False,  # noqa: ARG001 - a list with numbers needs no search
    search_labels: Sequence[str] | None = None,  # noqa: ARG001
) -> int:
    """Show a numbered list and ask which one.

    Args:
        title: What is asked.
        items: The choices: texts, or sequences of ``(text, style)``.
        selected: The choice if the person only presses Enter.
        cancel_returns: What to return for q, or without a terminal; by default ``selected``.
        description: Shown below the title.
        searchable: Makes no difference here.
        search_labels: Makes no difference here.

    Returns:
        The position of the choice in ``items``.
    """
    cancelled = selected if cancel_returns is None else cancel_returns
    # A service without a terminal must not wait for an answer that never comes.
    if not sys.stdin.isatty():
        return cancelled
    _show("", title, *(description or "").splitlines())
    _show(*(f"  {number}. {_label(item)}" for number, item in enumerate(items, 1)))
    while True:
        try:
            answer = input(f"  Number [{selected + 1}], or q to cancel: ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            return cancelled
        if not answer:
            return selected
        if answer in {"q", "quit"}:
            return cancelled
        if answer.isdecimal() and 1 <= int(answer) <= len(items):
            return int(answer) - 1


def _label(item: Any) -> str:
    return item if isinstance(item, str) else "".join(str(segment[0]) for segment in item)


def _show(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


# -- hermes_cli.secret_prompt: asks for a secret


def masked_secret_prompt(prompt: str, *, mask: str = "*") -> str:  # noqa: ARG001 - nothing is shown
    """Ask for a secret; nothing is shown while it is typed.

    Raises:
        EOFError: There is no terminal to ask on.
    """
    return getpass.getpass(prompt)


# -- hermes_cli.memory_setup: what a provider's own setup asks and writes with

_CANCELLED: Final = -1


def _curses_select(
    title: str,
    items: list[tuple[str, str]],
    default: int = 0,
    *,
    cancel_returns: int | None = None,
) -> int:
    """Ask which of several; each has a label and a description."""
    shown = [f"{label} - {about}" if about else label for label, about in items]
    return curses_radiolist(title, shown, selected=default, cancel_returns=cancel_returns)


def _print_cancelled_setup() -> None:
    """Say that nothing was changed."""
    sys.stdout.write("\n  Cancelled. Nothing was saved.\n\n")


def _prompt(label: str, default: str | None = None, secret: bool = False) -> str:
    """Ask for a value; the default, or "", if there is no answer."""
    question = f"  {label}{f' [{default}]' if default else ''}: "
    if secret:
        return masked_secret_prompt(question) or default or ""
    sys.stdout.write(question)
    sys.stdout.flush()
    return sys.stdin.readline().strip() or default or ""


def _write_env_vars(env_path: Path, env_writes: dict[str, Any]) -> None:
    """Store variables: those of the home with its secrets, others in the file that is named."""
    values = {name: _one_line(value) for name, value in env_writes.items()}
    if Path(env_path) != get_env_path():
        EnvFile(Path(env_path)).change(values)
        return
    for name, value in values.items():
        save_env_value(name, value)


def _one_line(value: Any) -> str:
    return "".join(str(value).replace("\0", "").splitlines())


def cmd_setup_provider(provider_name: str) -> None:
    """Set a provider up, as ``hermes-plugins setup NAME`` does; failures are one line."""
    import click  # noqa: PLC0415 - only for who sets up

    from hermes_core.cli.setup import setup_command  # noqa: PLC0415

    try:
        # standalone_mode=False: click must not end the process of the plugin that called us.
        setup_command.main([provider_name], obj=str(get_hermes_home()), standalone_mode=False)
    except (click.Abort, EOFError):
        _print_cancelled_setup()
    except (click.ClickException, HermesError) as error:
        sys.stdout.write(f"\n  {one_line(str(error))}\n\n")


# -- hermes_cli.tools_config: what a setup of 0.19 asks of pip


def _pip_install(
    args: list[str],
    *,
    timeout: int = 300,
    capture_output: bool = True,  # noqa: ARG001 - nothing runs
) -> subprocess.CompletedProcess[str]:
    """Fails with the command that a person can run, unless all is installed already."""
    # Options of pip are left out: only the requirements are looked at.
    result = install_specs([each for each in args if not each.startswith("-")], timeout=timeout)
    return subprocess.CompletedProcess(args, 0 if result.ok else 1, "", result.reason)
