"""Loads a plugin in its own process, for plugins that a person does not trust.

``memory.<provider>.isolation: process`` leads here. The host imports nothing of the plugin: the
child process loads it, with the same code and the same pin, and `IsolatedProvider` stands for it.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from hermes_core import errors
from hermes_core.config import Config
from hermes_core.config.environment import Lease, is_ours
from hermes_core.config.names import name_problem
from hermes_core.config.settings import Sources
from hermes_core.discovery import ProviderInfo
from hermes_core.dispatch.call import Deadlines
from hermes_core.dispatch.caller import ProviderInstance, register_instance
from hermes_core.dispatch.isolation import ISOLATED, ChildProcess, IsolatedProvider
from hermes_core.dispatch.isolation_server import ProviderServer, refuse
from hermes_core.dispatch.worker import Worker
from hermes_core.errors import HermesError, ProviderLoadError
from hermes_core.loading.loader import LoadResult, load
from hermes_core.privacy import without_secrets
from hermes_core.service import BackendError, RefusedError
from hermes_core.storage.child import SYSTEM_VARIABLES, TOKEN, processes_with, start_child
from hermes_core.storage.logger import logger

#: What a program needs to know about its user, its language and its network.
_USER_VARIABLES: Final = (
    "HOME", "USER", "LOGNAME", "USERPROFILE", "USERNAME", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA",
    "TMPDIR", "TEMP", "TMP", "TZ", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TERM", "NO_COLOR",
    "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "VIRTUAL_ENV", "PYTHONUTF8",
    "PYTHONIOENCODING", "PYTHONWARNINGS", "PYTHONDONTWRITEBYTECODE", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    TOKEN,  # of a command's own child process, which ends all that has it
)  # fmt: skip

#: Exceptions whose class says whose fault an error is. Of the plugin's own only the name is kept.
KNOWN_ERRORS: Final[dict[str, type[Exception]]] = {
    f"{each.__module__}.{each.__qualname__}": each
    for each in (*vars(errors).values(), BackendError, RefusedError, OSError, NotImplementedError)
    if isinstance(each, type) and issubclass(each, Exception)
}

#: How long a child may take to end after its host has closed the pipe.
_LEAVE_SECONDS: Final = 2.0
#: How often a child looks whether its host still lives, in case a copy of it holds the pipe open.
_LOOK_SECONDS: Final = 5.0


def load_isolated(
    config: Config,
    info: ProviderInfo,
    sources: Sources,
    lease: Lease,
    *,
    deadlines: Deadlines,
    pin: str,
) -> LoadResult:
    """Load a plugin in its own process, which ends when the lease is released.

    Raises:
        HermesError: It can't be loaded, as in the host's own process.
    """
    launch = _Launch(config, info, sources, deadlines=deadlines, pin=pin)
    provider = IsolatedProvider(
        info.name, launch, deadlines, KNOWN_ERRORS, partial(_report, info.name)
    )
    lease.when_released(provider.close)
    provider.set_environment(sources.environment())
    try:
        loaded = provider.load()
        return _checked(provider, info, loaded, config.home)
    except HermesError as error:
        provider.close()
        if isinstance(error, errors.ProviderCallError):  # it ended, or sent an invalid answer
            raise _failure(info, str(error)) from error
        raise


class _Launch:
    """Starts a child for a plugin, with the variables that it may have."""

    def __init__(
        self,
        config: Config,
        info: ProviderInfo,
        sources: Sources,
        *,
        deadlines: Deadlines,
        pin: str,
    ) -> None:
        self._serve = partial(
            serve,
            config.home,
            info,
            pin=pin,
            deadlines=deadlines,
            readable=tuple(sorted(sources.grants.readable())),
        )
        self._sources = sources
        self._home = config.home

    def __call__(self, variables: Mapping[str, str]) -> ChildProcess:
        # What the process itself has wins over .env and the keyring, as in one process.
        environment = {**variables, **_inherited(self._sources), "HERMES_HOME": str(self._home)}
        process, token = start_child(
            self._serve,
            environment,
            output=subprocess.PIPE,
            errors=subprocess.DEVNULL,
            mark=ISOLATED,
        )
        return ChildProcess(process, token)


def _inherited(sources: Sources) -> dict[str, str]:
    """What of the process's environment the plugin gets: its own, and what every program needs."""
    ours = (*SYSTEM_VARIABLES, *_USER_VARIABLES)
    return {
        name: value
        for name, value in os.environ.items()
        if name.upper() in ours
        or name.lower().endswith("_proxy")
        or (sources.grants.allows(name) and not is_ours(name))
    }


def _checked(
    provider: IsolatedProvider, info: ProviderInfo, loaded: dict[str, Any], home: Path
) -> LoadResult:
    """What a child says, believed only as far as it has the right form."""
    problem = name_problem(provider.name)
    if problem:
        raise _failure(info, problem)
    counts = loaded.get("registered")
    registered = counts if isinstance(counts, dict) else {}
    warnings = loaded.get("warnings")
    instance = ProviderInstance(info.name, home)
    instance.unload.append(_RemoteUnload(provider))
    register_instance(provider, instance)
    return LoadResult(
        provider,  # type: ignore[arg-type]
        provider.name,
        {str(key): each for key, each in registered.items() if isinstance(each, int)},
        tuple(map(str, warnings if isinstance(warnings, list) else ())),
    )


def _failure(info: ProviderInfo, what: str) -> ProviderLoadError:
    return ProviderLoadError(what, plugin=info.name, distribution=info.distribution, step="import")


class _RemoteUnload:
    """Has the child call what the plugin registered with ``ctx.on_unload``."""

    def __init__(self, provider: IsolatedProvider) -> None:
        self._provider = provider

    def dispose(self) -> None:
        self._provider.unload()


def _report(name: str, level: int, text: str) -> None:
    logger.log(level, "memory provider %s: logged: %s", name, without_secrets(text))


# -- in the child ----------------------------------------------------------------------------------


def serve(
    home: Path, info: ProviderInfo, *, pin: str, deadlines: Deadlines, readable: tuple[str, ...]
) -> None:
    """Load a plugin, and make the calls that the host asks for until it closes the pipe."""
    incoming, outgoing = _own_pipes()
    leave = partial(_leave, os.environ.get(ISOLATED, ""))  # the plugin may change it later
    atexit.register(leave)  # first, so that it comes last
    parent = os.getppid()
    watch = Worker("host", step=lambda: _look(parent, leave))
    watch.wake()
    instance = ProviderInstance(
        info.name, home, may_read=lambda name: name in readable or name in os.environ
    )
    try:
        loaded = load(info, home, deadline=deadlines.load, pin=pin, instance=instance)
    except HermesError as error:
        refuse(outgoing, error)
        leave()
    server = ProviderServer(loaded.provider, instance, incoming, outgoing, deadlines)
    server.serve(
        name=loaded.name, registered=dict(loaded.registered), warnings=list(loaded.warnings)
    )
    # The interpreter ends now, and runs what the plugin registered with `atexit`, if that is quick.
    Worker("end").submit(partial(_leave_soon, leave))


def _own_pipes() -> tuple[Any, Any]:
    """The pipes to the host, where no ``print`` reaches them; the standard streams lead nowhere."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    os.close(nowhere)
    return incoming, outgoing


def _look(parent: int, leave: Callable[[], NoReturn]) -> float | None:
    if os.getppid() != parent:
        leave()
    return _LOOK_SECONDS


def _leave_soon(leave: Callable[[], NoReturn]) -> None:
    time.sleep(_LEAVE_SECONDS)
    leave()


def _leave(token: str) -> NoReturn:
    """End this process and what it started, also what has left its process group.

    Args:
        token: In the environment of this process and of all that it started.
    """
    if sys.platform != "win32":
        for each in processes_with(token, ISOLATED) if token else ():
            if each != os.getpid():
                with suppress(OSError):
                    os.kill(each, signal.SIGKILL)
        os.killpg(0, signal.SIGKILL)
    os._exit(0)
