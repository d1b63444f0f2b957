"""The command in a fork of this process, which has imported everything already.

An interpreter takes most of a second of CPU to start and import; a fork takes none. The command
has its own process, environment, streams and, if wanted, terminal. What a fork does not show is
how an interpreter starts and ends: `Machine.run_process` does.
"""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import runpy
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TextIO, cast


class ForkedCommand:
    """A running command, with the methods of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str | None],
        streams: tuple[int, int, int],
        *,
        terminal: bool = False,
        venv: Path | None = None,
    ) -> None:
        importlib.import_module("hermes_core.cli")
        self.returncode: int | None = None
        sys.stdout.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # our threads only wait
            self.pid = os.fork()
        if not self.pid:
            _be_the_command(arguments, environment, streams, terminal, venv)

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = 60) -> int:
        """Wait for its end."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("hermes-plugins", timeout)
            time.sleep(0.005)
        return code

    def kill(self) -> None:
        """Kill it, and what it started."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)


def run_forked_command(
    arguments: Sequence[str],
    environment: Mapping[str, str | None],
    stdin: bytes = b"",
    *,
    venv: Path | None = None,
) -> tuple[int, bytes, bytes]:
    """Run it to its end; returns exit code, output and errors.

    With ``venv`` it takes itself for the command of that virtual environment.
    """
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin)
        given.seek(0)
        streams = (given.fileno(), out.fileno(), err.fileno())
        process = ForkedCommand(arguments, environment, streams, venv=venv)
        try:
            code = process.wait()
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def _be_the_command(
    arguments: Sequence[str],
    environment: Mapping[str, str | None],
    streams: tuple[int, int, int],
    terminal: bool,
    venv: Path | None,
) -> NoReturn:
    code = 1
    try:
        if venv is not None:
            _move_to(venv)
        _start_afresh(arguments, environment, streams, terminal)
        from hermes_core.cli import main

        main()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:  # --debug: the interpreter would print it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _start_afresh(
    arguments: Sequence[str],
    environment: Mapping[str, str | None],
    streams: tuple[int, int, int],
    terminal: bool,
) -> None:
    """Put back what an interpreter starts with and this process has changed."""
    faulthandler.disable()  # pytest's
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    if terminal:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update({key: value for key, value in environment.items() if value is not None})
    sys.stdin, sys.stdout = _stream(0, "r"), _stream(1, "w")
    sys.stderr = _stream(2, "w", "backslashreplace")
    sys.argv = ["hermes-plugins", *arguments]
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*filter(None, path), *sys.path]
    for name in [each for each in sys.modules if each.startswith("_hermes_plugin_")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    logging.getLogger().handlers.clear()  # pytest's
    import keyring.core

    keyring.core._keyring_backend = None  # type: ignore[attr-defined]
    for folder in filter(None, path):
        if Path(folder, "sitecustomize.py").exists():
            runpy.run_path(str(Path(folder, "sitecustomize.py")))


def _move_to(venv: Path) -> None:
    """What an interpreter of a virtual environment finds out when it starts."""
    sys.prefix = sys.exec_prefix = str(venv)
    importlib.reload(sysconfig)  # knows where it is since its import
    sys.executable = str(Path(sysconfig.get_path("scripts"), "python"))
    sys.path.insert(0, sysconfig.get_path("purelib"))


def _stream(number: int, mode: str, errors: str = "strict") -> TextIO:
    buffering = 1 if mode == "w" else -1
    stream = open(number, mode, buffering, "utf-8", errors, closefd=False)  # noqa: SIM115 - stays
    return cast("TextIO", stream)
