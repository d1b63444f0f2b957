"""`hermes-plugins ui`: start the page, and open it in a browser."""

from __future__ import annotations

import asyncio
import socket
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from hermes_core import HermesError
from hermes_core.cli.output import say, warn
from hermes_core.storage.home import resolve_home

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
#: Tabs ask for changes every few seconds. More than these would be somebody else.
_CONNECTIONS: Final = 64


@click.command("ui")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Use this port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option("--home", "own_home", metavar="FOLDER", help="Use this home.")
@click.pass_obj
def ui(home: str | None, port: int, host: str, no_open: bool, own_home: str | None) -> None:
    """Show and correct the memory in a browser.

    The address contains a token. Anyone who has it can read and change this memory. Press
    Ctrl-C to stop.
    """
    try:
        import jinja2  # noqa: F401, PLC0415 - an extra
        import starlette  # noqa: F401, PLC0415
        import uvicorn  # noqa: F401, PLC0415
    except ImportError as error:
        raise HermesError(
            f"ui needs the package {error.name}", hint="run: pip install 'hermes-plugins[ui]'"
        ) from error
    if own_home == "":
        raise click.BadParameter("the name of the folder is empty", param_hint="--home")
    if not host.strip():  # the system would listen everywhere
        raise click.BadParameter("the address is empty", param_hint="--host")
    folder = resolve_home(own_home or home)
    if host not in _LOOPBACK:
        warn(f"everybody who reaches {host} and has the address can read and change this memory")
        warn("the connection is not encrypted: use an SSH tunnel instead")
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(folder, _listening(host, port), host, open_browser=not no_open))


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HermesError(
            f"can't listen on {host}:{port}: {reason}", hint="use another --port"
        ) from error
    # Inherited by each connection. asyncio sets it only for sockets that name their protocol;
    # without it, an answer waits 40 ms for the acknowledgement of its headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


async def _serve(folder: Path, listening: socket.socket, host: str, *, open_browser: bool) -> None:
    import uvicorn  # noqa: PLC0415 - an extra

    from hermes_inspector.pages import application  # noqa: PLC0415
    from hermes_inspector.security import Access  # noqa: PLC0415

    access = Access(host, listening.getsockname()[1])
    page, site = application(folder, access)
    settings = uvicorn.Config(
        page,
        log_level="warning",
        access_log=False,  # it would have the token
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
    say(f"memory of {folder}: {access.url()}")
    say("Press Ctrl-C to stop.")
    if open_browser and not webbrowser.open(access.url(once=True)):
        say("No browser was found: open the address above.")
    try:
        await uvicorn.Server(settings).serve(sockets=[listening])
    finally:
        site.close()
