"""Runs a part of a test without the rights of root, who may read and write everything."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
#: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: with them, the modes of a file mean nothing.
_OVERRIDE_MODES = 0b110
_CAPABILITY_VERSION = 0x20080522


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A new folder that belongs to the other user, if we are root, and that others may enter."""
    folder = Path(tempfile.mkdtemp(prefix="hermes-other-user-"))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    try:
        yield folder
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def as_other_user(work: Callable[[], object]) -> str:
    """What the work returns, or the error that it raises, as a text; run without root's rights."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b""
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            answer = str(work()).encode()
        except BaseException as error:  # the child must never go on with the test
            answer = f"{type(error).__name__}: {error}".encode()
        finally:
            os.write(send, answer)
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer.decode()


@contextmanager
def bound_by_modes() -> Iterator[None]:
    """The modes of files bind this thread and the threads that it starts, root's as well."""
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("root may read and write everything")
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # Effective, permitted and inheritable; first the low 32 of each, then the high ones.
    before = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, before) == 0
    bound = (ctypes.c_uint32 * 6)(*before)
    bound[0] &= ~_OVERRIDE_MODES
    assert libc.capset(header, bound) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0
