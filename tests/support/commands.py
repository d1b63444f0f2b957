"""The installed command, run as a person runs it: in a process, from a shell's environment."""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from hermes_core.privacy import error_text
from support.forked_commands import ForkedCommand
from support.sites import MEMORY, Site, add_directory, provider_source

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX processes and terminals")

_SUFFIX = ".exe" if os.name == "nt" else ""
#: What decides how the command behaves must come from the test, not from who runs it.
_FOREIGN = ("PYTHON", "HERMES", "_HERMES", "COMP_", "LC_", "PIP_")
_FOREIGN_NAMES = {"NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "LINES", "LANG", "LANGUAGE"}


def script_of(python: str | Path, name: str = "hermes-plugins") -> Path:
    """The console script that lies beside an interpreter."""
    return Path(python).with_name(name + _SUFFIX)


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of its output."""
        return self.out.splitlines()

    @property
    def rows(self) -> dict[str, list[str]]:
        """The fields of a piped listing, by provider name."""
        return {line.split("\t")[0]: line.split("\t") for line in self.lines}

    def done(self) -> Result:
        """Exit code 0 and a clean stderr."""
        assert (self.code, self.err) == (0, ""), self
        return self

    def failed(self) -> str:
        """Return the error and its hint, after asserting that there is nothing else on stderr."""
        assert self.code == 1, self
        assert "Traceback" not in self.out + self.err, self
        error, *hints = self.err.splitlines()
        assert error.startswith("hermes-plugins: "), self
        assert "unexpected" not in error, self
        assert len(hints) <= 1, self
        assert all(each.startswith("hint: ") for each in hints), self
        return " ".join([error, *hints])

    def misused(self) -> str:
        """Exit code 2: return the error and its hint, after asserting that there is no more."""
        assert self.code == 2, self
        assert self.out == "", self
        error, hint = self.err.splitlines()
        assert error.startswith("hermes-plugins: "), self
        assert hint.startswith("hint: "), self
        return self.err


class Machine:
    """A home, a site and an environment, and the command `hermes-plugins` on them.

    ``run`` starts the installed command as a process. ``Machine(..., in_process=True)`` calls its
    entry point in this process instead, which takes a tenth of the time: use it where the process
    itself is not the point. ``run_process`` always starts one.
    """

    def __init__(
        self, folder: Path, python: str | Path = sys.executable, *, in_process: bool = False
    ) -> None:
        self.in_process = in_process
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.site = Site(folder / "site")
        self.user = folder / "user"
        self.user.mkdir()
        self.script = script_of(python)
        self.environment = {
            **_own_environment(),
            "HOME": str(self.user),
            "HERMES_HOME": str(self.home),
            "PYTHONPATH": str(self.site.folder),
            "LANG": "C.UTF-8",
        }

    def command(self, *arguments: str) -> list[str]:
        """The whole command line."""
        return [str(self.script), *arguments]

    def run(self, *arguments: str, **options: Any) -> Result:
        """Run the command with its output piped."""
        if self.in_process and options.keys() <= {"env", "input", "timeout", "cwd"}:
            env = {**self.environment, **options.get("env", {})}
            return call_main(arguments, env, options.get("input", ""), options.get("cwd"))
        return self.run_process(*arguments, **options)

    def run_process(self, *arguments: str, timeout: float = 60, **options: Any) -> Result:
        """Run the command in a process, with its output piped."""
        env = {**self.environment, **options.pop("env", {})}
        done = subprocess.run(
            self.command(*arguments),
            env={key: value for key, value in env.items() if value is not None},
            stdin=options.pop("stdin", subprocess.DEVNULL),
            capture_output=True,
            check=False,
            timeout=timeout,
            encoding="utf-8",
            errors="surrogateescape",
            **options,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def json(self, *arguments: str, code: int = 0, **options: Any) -> dict[str, Any]:
        """Run a command with --json; gives its one object, of schema 1."""
        result = self.run(*arguments, "--json", **options)
        assert result.code == code, result
        data: dict[str, Any] = json.loads(result.out)
        assert data["schema"] == 1
        return data

    def providers(self, *arguments: str, code: int = 0, **options: Any) -> dict[str, Any]:
        """What `list --json` says, by name."""
        listed = self.json("list", *arguments, code=code, **options)["providers"]
        return {each["name"]: each for each in listed}

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start the command and go on."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=options.pop("stderr", subprocess.PIPE),
            text=True,
            **options,
        )

    def install(
        self, name: str, source: str = "", *, distribution: str = "", version: str = "1.0"
    ) -> Path:
        """Install a distribution with one provider; another version of it goes first."""
        distribution = distribution or f"memory-{name}"
        self.uninstall(distribution)
        module = distribution.replace("-", "_")
        return self.site.add(
            distribution,
            version,
            groups={MEMORY: {name: f"{module}:register"}},
            files={f"{module}/__init__.py": source or provider_source(name)},
            summary=f"Memory by {distribution}",
        )

    def uninstall(self, distribution: str) -> None:
        """Remove a distribution and its module."""
        module = distribution.replace("-", "_")
        for info in self.site.folder.glob(f"{module}-*.dist-info"):
            shutil.rmtree(info)
        shutil.rmtree(self.site.folder / module, ignore_errors=True)

    def module(self, distribution: str) -> Path:
        """The one source file of an installed distribution."""
        return self.site.folder / distribution.replace("-", "_") / "__init__.py"

    def add_directory(self, name: str, source: str = "", manifest: str | None = None) -> Path:
        """Put a directory plugin into the home."""
        return add_directory(self.home, name, source, manifest)

    @property
    def config_file(self) -> Path:
        """Where config.yaml is, or would be."""
        return self.home / "config.yaml"

    def write_config(self, text: str) -> None:
        """Write config.yaml."""
        self.config_file.write_text(text, "utf-8")

    @property
    def memory(self) -> dict[str, Any]:
        """The section ``memory`` of config.yaml, as any YAML parser reads it."""
        memory: dict[str, Any] = yaml.safe_load(self.config_file.read_text("utf-8"))["memory"]
        return memory

    @property
    def pins(self) -> dict[str, Any]:
        """The entries of plugins.lock.json."""
        path = self.home / "plugins.lock.json"
        return json.loads(path.read_text("utf-8"))["plugins"] if path.exists() else {}

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Asserts that nothing below the home changes, in name, kind or content."""
        before = snapshot(self.home)
        yield
        assert snapshot(self.home) == before


def call_main(
    arguments: Sequence[str],
    env: Mapping[str, str | None],
    stdin: str = "",
    cwd: Path | None = None,
) -> Result:
    """Call the entry point of the command in this process, as a shell would start it."""
    from hermes_core.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    environment = {key: value for key, value in env.items() if value is not None}
    modules = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch, _process_state():
        for key in os.environ.keys() - environment.keys():
            patch.delenv(key)
        for key, value in environment.items():
            patch.setenv(key, value)
        if cwd is not None:
            patch.chdir(cwd)
        patch.setattr(sys, "argv", ["hermes-plugins", *arguments])
        for name, stream in (("stdin", given), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        path = environment.get("PYTHONPATH", "").split(os.pathsep)
        patch.setattr(sys, "path", [*filter(None, path), *sys.path])
        importlib.invalidate_caches()
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:  # --debug: the interpreter would print it
            traceback.print_exc()
            code = 1
        _forget(set(sys.modules) - modules, path)
        out.flush()
        err.flush()
        shown, errors = (stream.buffer.getvalue().decode("utf-8") for stream in (out, err))
    return Result(code, shown, errors)


@contextmanager
def _process_state() -> Iterator[None]:
    """Put back what a command sets for its process."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        signal.signal(signal.SIGTERM, handler)
        error_text._IN_USE.clear()


def _forget(names: set[str], path: list[str]) -> None:
    """Unload modules of the site: another test has another module of that name."""
    for name in names:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if name.startswith("_hermes_plugin_") or any(each and each in file for each in path):
            del sys.modules[name]


def _own_environment() -> dict[str, str]:
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(_FOREIGN) and key not in _FOREIGN_NAMES
    }


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every file with its bytes, every folder with None; bytecode does not count."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Holder:
    """Source of a process that holds a lock while it lives, and the look at that lock.

    A lock tells more than a process id: it is free as soon as its holder is dead, be it
    reaped or not, and no other process can take it over by chance.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.pid_file = file.with_suffix(".pid")

    def source(self) -> str:
        """Statements that take the lock, say so, and sleep."""
        return (
            "import fcntl, os, time\n"
            f"lock = open({str(self.file)!r}, 'w')\n"
            "fcntl.flock(lock, fcntl.LOCK_EX)\n"
            f"open({str(self.pid_file)!r}, 'w').write(str(os.getpid()) + '.')\n"
            "time.sleep(600)\n"
        )

    def spawn(self, options: str = "") -> str:
        """Statements that start such a process and wait until it holds the lock."""
        return (
            "import pathlib, subprocess, sys, time\n"
            f"subprocess.Popen([sys.executable, '-S', '-c', {self.source()!r}], {options})\n"
            f"while not pathlib.Path({str(self.pid_file)!r}).exists():\n"
            "    time.sleep(0.01)\n"
        )

    @property
    def started(self) -> bool:
        """Whether it ever ran."""
        return self.pid_file.exists() and self.pid_file.read_text().endswith(".")

    def is_gone(self) -> bool:
        """Whether it has run, and runs no more."""
        import fcntl

        assert self.started
        with self.file.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def end(self) -> None:
        """End it, if it is still there."""
        if self.started and not self.is_gone():
            os.kill(int(self.pid_file.read_text().rstrip(".")), 9)


def run_on_terminal(
    machine: Machine, *arguments: str, columns: int = 120, env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run the command on a terminal of that width; gives its exit code and what it showed."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**machine.environment, "TERM": "xterm", **(env or {})}
    process: subprocess.Popen[bytes] | ForkedCommand
    if machine.in_process:
        process = ForkedCommand(arguments, environment, (theirs,) * 3, terminal=True)
    else:
        process = subprocess.Popen(
            machine.command(*arguments),
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
    os.close(theirs)
    shown = b""
    try:
        while chunk := _read(ours):
            shown += chunk
    finally:
        os.close(ours)
        process.wait(60)
    return process.wait(60), shown.decode("utf-8").replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side has closed: Linux says so with an error
        return b""
