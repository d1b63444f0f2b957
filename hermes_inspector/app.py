"""The web application: what every page has in common, and the table of addresses."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from hermes_core import HermesError, __version__
from hermes_core.cli.output import amount, day_and_time, duration, size, span
from hermes_core.errors import describe
from hermes_inspector.actions import NoteActions
from hermes_inspector.health import Checkup, state_of
from hermes_inspector.home import Home
from hermes_inspector.jobs import Jobs
from hermes_inspector.security import MAX_BODY, Access, GuardedApp

_FOLDER: Final = Path(__file__).parent
NAVIGATION: Final = (
    ("/", "Overview"),
    ("/notes", "Notes"),
    ("/conversations", "Conversations"),
    ("/recall", "Recall"),
    ("/provider", "Provider"),
    ("/outbox", "Outbox"),
)
#: In which order the button changes them; "" is the system's.
_THEMES: Final = ("", "dark", "light")
#: Addresses whose answers are no pages, and do not update themselves.
_NO_PAGES: Final = ("/live", "/export", "/forget/receipt", "/conversations/{name:path}/export")
_UNEXPECTED: Final = "an unexpected error"
#: Messages that are remembered for the page that follows a form.
_MESSAGES: Final = 100


@dataclass(frozen=True, slots=True)
class PageMessage:
    """What the page that follows a form says about it."""

    text: str
    kind: str = "done"
    hint: str = ""


class Site:
    """What all pages share: the home, its jobs, the templates and messages.

    Args:
        home: The home.
        access: Who may use the page.
    """

    def __init__(self, home: Home, access: Access) -> None:
        self.home = home
        self.access = access
        self.jobs = Jobs()
        self.checkup = Checkup(home, self.jobs)
        self.notes = NoteActions(home, self.jobs)
        self._messages: dict[str, PageMessage] = {}
        self._environment = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=self._finalized,
        )
        self._environment.filters |= {
            "ago": lambda at: f"{span(time.time() - at)} ago",
            "amount": amount,
            "diff": lambda change: change.diff(home.masked),
            "duration": duration,
            "hidden": self._hidden,
            "size": size,
            "when": day_and_time,
        }
        self._environment.globals |= {"navigation": NAVIGATION, "version": __version__}

    def _finalized(self, value: Any) -> Any:
        """No value of a stored secret reaches the page, whichever text it is in."""
        if isinstance(value, str) and not isinstance(value, Markup):
            return self.home.masked(value, known_only=True)
        return value

    def _hidden(self, text: str) -> str:
        """A text of a conversation or a plugin, in which anything may look like a secret."""
        return self.home.masked(text)

    # -- answers ------------------------------------------------------------------------------

    def page(
        self,
        request: Request,
        template: str,
        *,
        live: str = "jobs",
        status: int = 200,
        **values: Any,
    ) -> Response:
        """A page.

        Args:
            request: What it answers.
            template: Its template.
            live: The parts of the memory that it shows: it is loaded again when one changes.
            status: The status.
            **values: What the template needs.
        """
        theme = request.cookies.get("hermes-ui-theme", "")
        shown = {
            "path": request.url.path,
            "here": str(request.url.path) + (f"?{request.url.query}" if request.url.query else ""),
            "csrf": self.access.csrf,
            "theme": theme if theme in _THEMES else "",
            "live": live,
            "seen": json.dumps(getattr(request.state, "seen", {})),
            "message": self._messages.get(request.query_params.get("said", "")),
            **values,
        }
        text = self._environment.get_template(template).render(shown)
        return HTMLResponse(text, status)

    def rendered(self, template: str, **values: Any) -> bytes:
        """A page outside of the application."""
        return self._environment.get_template(template).render(values).encode()

    def say(self, path: str, text: str, kind: str = "done", hint: str = "") -> Response:
        """Go to a page that says something."""
        name = secrets.token_hex(8)
        self._messages[name] = PageMessage(text, kind, hint)
        for old in list(self._messages)[:-_MESSAGES]:
            del self._messages[old]
        path, hash_sign, place = path.partition("#")
        joint = "&" if "?" in path else "?"
        return RedirectResponse(f"{path}{joint}said={name}{hash_sign}{place}", 303)

    def failed(self, request: Request, error: HermesError, status: int = 400) -> Response:
        """A page with an error: what, where, and what to do."""
        return self.page(request, "error.html", status=status, error=error, unexpected=_UNEXPECTED)

    def close(self) -> None:
        """End what runs, and close the stores."""
        self.jobs.close()
        self.home.close()


def whole_number(text: str) -> int | None:
    """A number that a database can store; None if it is not one."""
    # Not isdigit alone: "²" is a digit.
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


class Form:
    """The fields of a form."""

    def __init__(self, body: bytes) -> None:
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        self._fields: dict[str, list[str]] = {}
        for name, value in pairs:
            # A browser sends CR LF for the end of a line.
            self._fields.setdefault(name, []).append(value.replace("\r\n", "\n"))

    def text(self, name: str) -> str:
        """A field; "" if it is missing."""
        return self._fields.get(name, [""])[0]

    def all(self, name: str) -> tuple[str, ...]:
        """All values of a field."""
        return tuple(self._fields.get(name, ()))

    def number(self, name: str) -> int:
        """A field with a number.

        Raises:
            HermesError: It is not one.
        """
        found = whole_number(self.text(name))
        if found is None:
            raise HermesError(f"{name} is not a number")
        return found


Reader = Callable[[Site, Request], Response]
Writer = Callable[[Site, Request, Form], Response]


def _reading(site: Site, path: str, answer: Reader) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:  # on a thread, since it is not a coroutine
        # Before the page is made: what changes meanwhile must not look as if the page had it.
        request.state.seen = state_of(site.home, site.jobs) if path not in _NO_PAGES else {}
        try:
            return answer(site, request)
        except HermesError as error:
            return site.failed(request, error)

    return endpoint


def _writing(site: Site, answer: Writer) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY:
                return site.failed(request, HermesError("that is too much text"), 413)
        form = Form(body)
        if not site.access.accepts_csrf(form.text("csrf")):
            hint = "load the page again"
            error = HermesError("this form is from another run of the page", hint=hint)
            return site.failed(request, error, 403)
        return await run_in_threadpool(_written, site, answer, request, form)

    return endpoint


def _written(site: Site, answer: Writer, request: Request, form: Form) -> Response:
    try:
        return answer(site, request, form)
    except HermesError as error:
        return site.failed(request, error)


def build(site: Site, readers: dict[str, Reader], writers: dict[str, Writer]) -> GuardedApp:
    """The application, behind its checks."""
    routes: list[Any] = [Route(path, _reading(site, path, each)) for path, each in readers.items()]
    routes += [
        Route(path, _writing(site, each), methods=["POST"]) for path, each in writers.items()
    ]
    routes.append(Mount("/static", StaticFiles(directory=_FOLDER / "static")))
    nowhere = HermesError("there is no such page", hint="use the links above")
    application = Starlette(
        routes=routes,
        exception_handlers={
            404: lambda request, _: site.failed(request, nowhere, 404),
            Exception: partial(_crashed, site),
        },
    )
    entrance, refusal = site.rendered("entrance.html"), site.rendered("refusal.html")
    return GuardedApp(application, site.access, entrance, refusal)


def _crashed(site: Site, request: Request, error: Exception) -> Response:
    """A bug of ours: the page says so; uvicorn logs the traceback."""
    hint = "please report it; hermes-plugins ui printed details in the terminal"
    found = HermesError(_UNEXPECTED, where=describe(error), hint=hint)
    return site.failed(request, found, 500)


def next_theme(theme: str) -> str:
    """What the button makes of a theme."""
    known = _THEMES.index(theme) if theme in _THEMES else 0
    return _THEMES[(known + 1) % len(_THEMES)]
