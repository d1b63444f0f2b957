"""The pages, and what their forms do."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from hermes_core import Config, HermesError
from hermes_inspector import actions, conversations, health
from hermes_inspector.actions import (
    ActionResult,
    Conflict,
    Correction,
    ForgetPreview,
    RecallPreview,
)
from hermes_inspector.app import Form, Reader, Site, Writer, build, next_theme, whole_number
from hermes_inspector.conversations import Filter
from hermes_inspector.home import Home
from hermes_inspector.jobs import BackgroundJob
from hermes_inspector.notes import Book, notes_on, notes_view, timeline
from hermes_inspector.security import Access, GuardedApp

_YEAR: Final = 365 * 86_400


def _or_problem(look: Callable[[], Any]) -> tuple[Any, str]:
    """What a part of the overview shows, or why it can't."""
    try:
        return look(), ""
    except (HermesError, OSError) as error:
        return None, str(error)


# -- overview -----------------------------------------------------------------------------------


def overview(site: Site, request: Request) -> Response:
    home = site.home
    if request.headers.get("x-live") is None:  # a page that updates itself starts no checks
        site.checkup.refresh()
    config = home.config_or_defaults()
    notes, notes_problem = _or_problem(lambda: _notes_summary(home))
    sessions, sessions_problem = _or_problem(lambda: health.sessions_per_day(home.archive()))
    return site.page(
        request,
        "overview.html",
        live="notes conversations outbox calls jobs",
        verdict=site.checkup.verdict(),
        provider=config.selection.name,
        calls=health.daily(home, config.selection.name),
        hooks=health.hook_rows(home),
        outbox=health.outbox_view(home, limit=0),
        notes=notes,
        notes_problem=notes_problem,
        sessions=sessions,
        sessions_problem=sessions_problem,
        turns=home.waiting_turns(),
        folder=str(home.folder),
    )


def _notes_summary(home: Home) -> Any:
    with home.notes() as notes:
        return notes_view(notes), timeline(notes, limit=5)


def check_now(site: Site, _request: Request, _form: Form) -> Response:
    site.checkup.refresh(now=True)
    return RedirectResponse("/", 303)


# -- notes --------------------------------------------------------------------------------------


def notes_page(site: Site, request: Request) -> Response:
    day = request.query_params.get("day", "")
    with site.home.notes() as notes:
        view = notes_on(notes, day) if day else notes_view(notes)
        newest = timeline(notes, limit=5)
    return site.page(
        request, "notes.html", live="" if day else "notes jobs", view=view, newest=newest
    )


def history_page(site: Site, request: Request) -> Response:
    key = request.query_params.get("book", "")
    before = request.query_params.get("before", "")
    with site.home.notes() as notes:
        shown = timeline(notes, key, whole_number(before) or 0)
    return site.page(request, "history.html", live="notes", shown=shown, book=key)


def _after(site: Site, request: Request, form: Form, outcome: ActionResult | Conflict) -> Response:
    """The page that follows a change of notes: recall again, if it was corrected from there."""
    if isinstance(outcome, Conflict):
        return _conflict(site, request, outcome)
    text = " ".join((outcome.text, *outcome.warnings))
    kind = "warning" if outcome.warnings else "done"
    asked = site.jobs.get(form.text("again"), "recall")
    if asked is not None:
        try:
            job = _ask(site, asked.about)
        except HermesError as error:  # the change is stored nevertheless
            return site.say("/recall", f"{text} {error}", "warning")
        return site.say(f"/recall?job={job.id}", text, kind)
    back = form.text("back")
    return site.say(back if back in ("/notes", "/notes/history") else "/notes", text, kind)


def _conflict(site: Site, request: Request, found: Conflict) -> Response:
    with site.home.notes() as notes:
        books: tuple[Book, ...] = notes_view(notes).books
    entries = next((each.entries for each in books if each.key == found.book), ())
    theirs = found.theirs.added if found.theirs else ()
    current = [each for each in entries if each.text in theirs]
    return site.page(request, "conflict.html", status=409, found=found, current=current)


def note_add(site: Site, request: Request, form: Form) -> Response:
    return _after(site, request, form, site.notes.add(form.text("book"), form.text("text")))


def note_edit(site: Site, request: Request, form: Form) -> Response:
    done = site.notes.edit(form.text("book"), form.text("version"), form.text("text"))
    return _after(site, request, form, done)


def note_remove(site: Site, request: Request, form: Form) -> Response:
    done = site.notes.remove(form.text("book"), form.text("version"))
    return _after(site, request, form, done)


def note_undo(site: Site, request: Request, form: Form) -> Response:
    return _after(site, request, form, site.notes.undo(form.number("change")))


def note_allow(site: Site, request: Request, form: Form) -> Response:
    return _after(site, request, form, site.notes.allow(form.text("id")))


def note_approve(site: Site, request: Request, form: Form) -> Response:
    return _after(site, request, form, site.notes.approve(form.text("id")))


def note_reject(site: Site, request: Request, form: Form) -> Response:
    return _after(site, request, form, site.notes.reject(form.text("id")))


# -- conversations ------------------------------------------------------------------------------


def conversations_page(site: Site, request: Request) -> Response:
    given = request.query_params
    names = ("query", "since", "until", "platform", "user", "older")
    wanted = Filter(
        **{name: given.get(name, "").strip() for name in names}, hidden=bool(given.get("hidden"))
    )
    archive = site.home.archive()
    found = conversations.conversation_list(archive, wanted, site.home.masked)
    kept = {name: value for name in names[:-1] if (value := getattr(wanted, name))}
    kept |= {"hidden": "1"} if wanted.hidden else {}
    older = f"/conversations?{urlencode({**kept, 'older': found.older})}" if found.older else ""
    return site.page(
        request,
        "conversations.html",
        live="" if wanted.query or wanted.older else "conversations",
        found=found,
        wanted=wanted,
        older=older,
        turns=site.home.waiting_turns(),
    )


def conversation_page(site: Site, request: Request) -> Response:
    name = request.path_params["name"]
    given = request.query_params
    found = conversations.conversation(
        site.home.archive(),
        name,
        site.home.masked,
        at=whole_number(given.get("at", "")) or 0,
        query=given.get("query", ""),
        like=given.get("like", ""),
    )
    return site.page(
        request,
        "conversation.html",
        live="conversations",
        talk=found,
        address=f"/conversations/{quote(name, safe='')}",
        query=given.get("query", ""),
    )


def export(site: Site, request: Request) -> Response:
    name = request.path_params.get("name", "")
    lines = conversations.export_lines(site.home.archive(), name)
    # A stored secret that somebody said is masked here as well.
    masked = (site.home.masked(each, known_only=True) for each in lines)
    headers = {"content-disposition": 'attachment; filename="conversations.jsonl"'}
    return StreamingResponse(masked, media_type="application/jsonl", headers=headers)


# -- forget -------------------------------------------------------------------------------------


def forget_page(site: Site, request: Request) -> Response:
    job = site.jobs.get(request.query_params.get("job", ""))
    job = job if job is not None and job.kind in ("look", "forget") else None
    receipt = job.result if actions.job_done(job) and job and job.kind == "forget" else None
    unfinished, problem = _or_problem(lambda: actions.has_unfinished(site.home))
    return site.page(
        request,
        "forget.html",
        job=job,
        found=job.result if actions.job_done(job) and job and job.kind == "look" else None,
        receipt=receipt,
        receipt_json=json.dumps(receipt.content.as_json(), indent=2) if receipt else "",
        given={
            name: request.query_params.get(name, "")
            for name in ("text", "session", "user", "platform")
        },
        unfinished=unfinished,
        problem=problem,
        provider=site.home.config_or_defaults().selection.name,
    )


def forget_look(site: Site, _request: Request, form: Form) -> Response:
    request = actions.forget_request(
        site.home,
        form.text("text").strip(),
        form.text("session").strip(),
        form.text("user").strip(),
        form.text("platform").strip(),
    )
    call = partial(actions.look_for, site.home, request, provider=bool(form.text("provider")))
    job = site.jobs.start("look", "Searching notes, conversations, outbox, log and files", call)
    return RedirectResponse(f"/forget?job={job.id}", 303)


def forget_delete(site: Site, _request: Request, form: Form) -> Response:
    looked = site.jobs.get(form.text("job"), "look")
    if not isinstance(looked.result if looked else None, ForgetPreview):
        raise HermesError("nothing was deleted: search for it first", hint="see Forget")
    assert looked is not None  # noqa: S101 - it has a result
    call = partial(actions.forget, site.home, looked.result)
    job = site.jobs.start("forget", "Deleting, and searching again", call)
    return RedirectResponse(f"/forget?job={job.id}", 303)


def forget_finish(site: Site, _request: Request, _form: Form) -> Response:
    call = partial(actions.finish_forget, site.home)
    job = site.jobs.start("forget", "Finishing what was interrupted", call)
    return RedirectResponse(f"/forget?job={job.id}", 303)


def receipt_download(site: Site, request: Request) -> Response:
    job = site.jobs.get(request.query_params.get("job", ""), "forget")
    if job is None or job.result is None:
        raise HermesError("there is no such receipt", hint="it is in the folder receipts")
    name = Path(job.result.path).name
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    text = actions.receipt_text(job.result.path)
    return Response(text, media_type="application/json", headers=headers)


# -- recall -------------------------------------------------------------------------------------


def recall_page(site: Site, request: Request) -> Response:
    job = site.jobs.get(request.query_params.get("job", ""), "recall")
    with site.home.notes() as notes:
        view = notes_view(notes)
    entries = {entry.text: (book, entry) for book in view.books for entry in book.entries}
    result: RecallPreview | None = job.result if job is not None else None
    return site.page(
        request,
        "recall.html",
        job=job,
        question=job.about if job is not None else request.query_params.get("question", ""),
        result=result,
        lines=_lines(result),
        entries=entries,
        objected=[each for each in entries.values() if each[1].objection],
        provider=site.home.config_or_defaults().selection.name,
    )


def _lines(result: RecallPreview | None) -> dict[str, list[str]]:
    """The lines of what each provider recalled, without bullets and headings."""
    if result is None or result.explanation is None:
        return {}
    return {
        each.provider: [
            line
            for raw in each.text.splitlines()
            if (line := raw.strip().lstrip("-*•").strip()) and not line.startswith("#")
        ]
        for each in result.explanation.providers
    }


def _ask(site: Site, question: str) -> BackgroundJob:
    call = partial(actions.ask, site.home, question)
    return site.jobs.start("recall", "Asking the memory providers", call, question)


def recall_ask(site: Site, _request: Request, form: Form) -> Response:
    question = form.text("question").strip()
    if not question:
        raise HermesError("the message is empty", hint="type what you would say to the agent")
    return RedirectResponse(f"/recall?job={_ask(site, question).id}", 303)


def recall_correct(site: Site, _request: Request, form: Form) -> Response:
    wanted = Correction(
        form.text("question"), form.text("wrong").strip(), form.text("right"), form.text("book")
    )
    if not wanted.wrong:
        raise HermesError("the wrong text is empty")
    call = partial(actions.correct, site.home, site.notes, wanted)
    name = site.home.config().selection.name
    job = site.jobs.start("recall", f"Correcting it at {name}", call, wanted.question)
    return RedirectResponse(f"/recall?job={job.id}", 303)


# -- provider -----------------------------------------------------------------------------------


def provider_page(site: Site, request: Request) -> Response:
    home = site.home
    if request.headers.get("x-live") is None:
        site.checkup.refresh()
    config = home.config_or_defaults()
    given = request.query_params
    name = config.selection.name
    hook, failed = given.get("hook", ""), bool(given.get("failed"))
    calls, calls_problem = _or_problem(
        lambda: health.call_rows(home, provider=given.get("of", name), hook=hook, failed=failed)
    )
    return site.page(
        request,
        "provider.html",
        live="calls jobs",
        name=name,
        verdict=site.checkup.verdict(),
        checked=site.checkup.status(),
        installed=_installed(config),
        job=site.jobs.get(given.get("job", "")),
        tools=site.jobs.newest("tools"),
        conformance=site.jobs.newest("conformance"),
        hooks=health.hook_rows(home),
        calls=calls or (),
        calls_problem=calls_problem,
        hook=hook,
        failed=failed,
        of=given.get("of", name),
    )


def _installed(config: Config) -> Any:
    return _or_problem(lambda: health.installed(config))[0] or ()


def _provider_job(site: Site, kind: str, title: str, call: Callable[[], Any]) -> Response:
    job = site.jobs.start(kind, title, call)
    return RedirectResponse(f"/provider?job={job.id}#result", 303)


def provider_enable(site: Site, _request: Request, form: Form) -> Response:
    name = form.text("name")

    def call() -> Any:
        done = actions.enable_provider(site.home, name, form.all("grant"))
        site.checkup.refresh(now=True)
        return done

    return _provider_job(site, "enable", f"Testing {name}", call)


def provider_disable(site: Site, _request: Request, _form: Form) -> Response:
    done = actions.disable_provider(site.home)
    site.checkup.refresh(now=True)
    return site.say("/provider", done.text)


def provider_tools(site: Site, _request: Request, _form: Form) -> Response:
    call = partial(actions.list_provider_tools, site.home)
    return _provider_job(site, "tools", "Asking for the tools", call)


def provider_check(site: Site, _request: Request, form: Form) -> Response:
    name = form.text("name")
    call = partial(actions.run_conformance, site.home, name)
    return _provider_job(site, "conformance", f"Checking {name}", call)


# -- outbox -------------------------------------------------------------------------------------


def outbox_page(site: Site, request: Request) -> Response:
    state = request.query_params.get("state", "")
    job = site.jobs.get(request.query_params.get("job", ""), "retry")
    view = health.outbox_view(site.home, state)
    return site.page(request, "outbox.html", live="outbox jobs", view=view, state=state, job=job)


def write_page(site: Site, request: Request) -> Response:
    number = whole_number(request.path_params["number"])
    if number is None:
        raise HTTPException(404)
    shown = health.write_view(site.home, number)
    return site.page(request, "write.html", live="", shown=shown)


def outbox_retry(site: Site, _request: Request, form: Form) -> Response:
    number = form.number("write") if form.text("write") else 0
    call = partial(actions.retry_writes, site.home, number)
    job = site.jobs.start("retry", "Delivering pending writes", call)
    return RedirectResponse(f"/outbox?job={job.id}", 303)


def outbox_drop(site: Site, _request: Request, form: Form) -> Response:
    return site.say("/outbox", actions.drop_write(site.home, form.number("write")).text)


# -- what all pages have ------------------------------------------------------------------------


def live(site: Site, _request: Request) -> Response:
    return JSONResponse(health.state_of(site.home, site.jobs))


def theme(_site: Site, request: Request, form: Form) -> Response:
    back = form.text("back")
    # Only to a page of ours: "//elsewhere" is an address of another server.
    safe = back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/"
    answer = RedirectResponse(safe, 303)
    value = next_theme(request.cookies.get("hermes-ui-theme", ""))
    answer.set_cookie("hermes-ui-theme", value, max_age=_YEAR, httponly=True, samesite="strict")
    return answer


READERS: Final[dict[str, Reader]] = {
    "/": overview,
    "/notes": notes_page,
    "/notes/history": history_page,
    "/conversations": conversations_page,
    "/conversations/{name:path}/export": export,
    "/conversations/{name:path}": conversation_page,
    "/export": export,
    "/forget": forget_page,
    "/forget/receipt": receipt_download,
    "/recall": recall_page,
    "/provider": provider_page,
    "/outbox": outbox_page,
    "/outbox/{number}": write_page,
    "/live": live,
}
WRITERS: Final[dict[str, Writer]] = {
    "/check": check_now,
    "/notes/add": note_add,
    "/notes/edit": note_edit,
    "/notes/remove": note_remove,
    "/notes/undo": note_undo,
    "/notes/allow": note_allow,
    "/notes/approve": note_approve,
    "/notes/reject": note_reject,
    "/forget/look": forget_look,
    "/forget/delete": forget_delete,
    "/forget/finish": forget_finish,
    "/recall/ask": recall_ask,
    "/recall/correct": recall_correct,
    "/provider/enable": provider_enable,
    "/provider/disable": provider_disable,
    "/provider/tools": provider_tools,
    "/provider/check": provider_check,
    "/outbox/retry": outbox_retry,
    "/outbox/drop": outbox_drop,
    "/theme": theme,
}


def application(folder: Path, access: Access) -> tuple[GuardedApp, Site]:
    """The page of a home, and what has to be closed at its end."""
    site = Site(Home(folder), access)
    return build(site, READERS, WRITERS), site
