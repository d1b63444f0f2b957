"""Runs a part of a test as a user without rights: root may read and write everything."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


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
