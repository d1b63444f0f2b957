"""Where a text, a conversation or a person is: in all stores, and in the bytes of all files."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from hermes_core.call_log import forget_calls
from hermes_core.checkup.child_process import LineWriter, read_lines, run_child
from hermes_core.config import Config
from hermes_core.dispatch import SingleProvider, as_builtin
from hermes_core.errors import HermesError, describe
from hermes_core.loading.activation import deadlines_of
from hermes_core.outbox import StreamKey, admin
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.provider import (
    BUILTIN,
    ArchivedSession,
    ForgetItem,
    ForgetReport,
    ForgetRequest,
    MemoryProvider,
    RequestSessions,
    fold_text,
)
from hermes_core.session import SessionContext
from hermes_core.storage.search import FileSearchResult, Needles, search_files

JOURNAL: Final = "forget.json"


# A large archive takes minutes; nobody but the person at the terminal waits for it.
_BUILTIN_SECONDS: Final = 3600.0


#: An id that is shorter is found in too many bytes by chance.
_SHORTEST_ID: Final = 8


#: What our own stores leave: a database that was set aside, and a file that was not yet renamed.
_SET_ASIDE: Final = r"(?:{})\.damaged(?:-\d{{8}}-\d{{6}}(?:-\d+)?)?(?:-wal|-shm|-journal)?"


_TEMPORARY: Final = r"\.(?:{})\.[0-9a-f]{{8}}\.tmp(?:-wal|-shm|-journal)?"


ASIDE_PLACES: Final = {"files set aside": _SET_ASIDE, "temporary files": _TEMPORARY}


#: The folders of these stores, and the names of their files. A file of the same name elsewhere, or
#: one that is called like it, is a person's.
_OWN_FILES: Final = {
    "": r"state\.db|sessions\.db|outbox\.db|forget\.json",
    "logs": r"memory-calls\.db",
    "memories": r"history\.db|MEMORY\.md|USER\.md",
    "memories/users/*": r"USER\.md|person\.json",
    "pending/memory": r"[0-9a-f]{8}\.json",
    "spool": r"turns-\d+-[0-9a-f]{12}\.jsonl|writes\.jsonl|damaged\.jsonl",
    "receipts": r"forget-[0-9a-f-]+\.json",
}


#: People keep them on another disk; every other link leads to what is not ours.
_MAY_BE_LINKS: Final = frozenset({"", "memories"})


Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be forgotten, and who may know of it.

    Attributes:
        request: The text, the session or the person.
        sessions: The sessions to be deleted, or for a text one of each person.
        passages: Texts from the sessions, by which the files are searched.
    """

    request: ForgetRequest
    sessions: tuple[ArchivedSession, ...] = ()
    passages: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What it is: "text", "session" or "user"."""
        return "text" if self.request.text else "user" if self.request.user_id else "session"

    @property
    def value(self) -> str:
        """The text, or the id."""
        request = self.request
        return request.text or request.session_id or f"{request.platform}\0{request.user_id}"

    @property
    def needles(self) -> Needles:
        """What to search files for."""
        request = self.request
        ids = (each for each in (request.session_id, request.user_id) if len(each) >= _SHORTEST_ID)
        return Needles.of(request.text, *ids, *self.passages)

    @property
    def names(self) -> Needles:
        """What no receipt may contain."""
        request = self.request
        return Needles.of(request.text, request.session_id, request.user_id)

    def owns(self, key: StreamKey) -> bool:
        """Whether writes in the outbox are of the session or the person."""
        request = self.request
        try:
            session = key.context
        except HermesError:  # its keywords can't be read
            return False
        if request.user_id:
            platform, user, *_ = session.identity
            return (platform, user) == (request.platform, request.user_id)
        if not request.session_id:
            return False
        known = [
            (each.session, SessionContext.from_keywords("", each.keywords).identity)
            for each in self.sessions
        ]
        # A session that the archive does not have goes by its name alone.
        if not known:
            return session.session_id == request.session_id
        return (session.session_id, session.identity) in known


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is of a subject, in stores and in files.

    Attributes:
        items: What the stores have.
        search: What a search through the bytes of all files found.
        problems: What could not be looked at.
    """

    items: tuple[ForgetItem, ...] = ()
    search: FileSearchResult = field(default_factory=FileSearchResult)
    problems: tuple[str, ...] = ()

    @property
    def counts(self) -> Counter[str]:
        """How much there is in each place."""
        return counted(self.items)


def counted(items: Sequence[ForgetItem]) -> Counter[str]:
    """How much there is in each place."""
    counts: Counter[str] = Counter()
    for each in items:
        counts[each.place] += each.count
    return +counts


def subject_of(config: Config, request: ForgetRequest, provider: MemoryProvider) -> Subject:
    """Find out whose memories a request is about; ``provider`` is the built-in.

    Raises:
        HermesError: Several platforms have a user of this id, who are different people, or nobody
            can tell.
    """
    builtin = as_builtin(provider)
    known = builtin.sessions_of_request(request) if builtin is not None else RequestSessions()
    if request.user_id and not request.platform:
        request = request._replace(platform=_platform(config, request.user_id, known))
        known = builtin.sessions_of_request(request) if builtin is not None else RequestSessions()
    return Subject(request, known.sessions, known.passages)


def _platform(config: Config, user: str, known: RequestSessions) -> str:
    """The platform of a user."""
    hint = "say which one you mean with --platform"
    try:
        platforms = {*known.platforms, *_platforms_in_outbox(config, user)}
        problem = known.problem
    except (HermesError, OSError) as error:
        platforms, problem = set(), describe(error)
    if problem:
        raise HermesError(f"the user's platform can't be found out: {problem}", hint=hint)
    if len(platforms) > 1:
        raise HermesError(
            f"there are users of this id on {', '.join(sorted(platforms))}", hint=hint
        )
    return next(iter(platforms), "cli")


def _platforms_in_outbox(config: Config, user: str) -> set[str]:
    found = set()
    with closing(admin.open_store(config, set_aside=False)) as store:
        for entry in admin.entries(store):
            with suppress(HermesError):
                platform, own, *_ = entry.key.context.identity
                found |= {platform} if own == user else set()
    return found


def survey(config: Config, subject: Subject, builtin: MemoryProvider) -> Survey:
    """Look for a subject in all stores, and in the bytes of all files."""
    items, problems = in_stores(config, subject, builtin, delete=False)
    try:
        search = _search_in_child(config.home, subject.needles)
    except HermesError as error:
        search = FileSearchResult()
        problems = [*problems, str(error)]
    items += _set_aside(config.home, search)
    return Survey(tuple(items), search, tuple(problems))


def _search_in_child(home: Path, needles: Needles) -> FileSearchResult:
    """Search the files in a child process: this one may have the databases open.

    Raises:
        HermesError: The child process did not finish.
    """
    with tempfile.TemporaryDirectory(prefix="hermes-search-", ignore_cleanup_errors=True) as folder:
        answer = Path(folder, "found.jsonl")
        call = partial(_write_search, answer, home, needles)
        code = run_child(call, os.environ, _BUILTIN_SECONDS)
        found = list(read_lines(answer))
    if not found:
        raise HermesError(
            f"the files could not be searched (exit code {code})", where=str(home), hint="try again"
        )
    result: FileSearchResult = found[0]
    return result


def _write_search(answer: Path, home: Path, needles: Needles) -> None:
    found = search_files(home, needles, [home / JOURNAL], sorted(_MAY_BE_LINKS))
    with answer.open("w", encoding="utf-8") as file:
        LineWriter(file).write(found)


def _set_aside(home: Path, search: FileSearchResult) -> list[ForgetItem]:
    """Files that no program uses any more, which are deleted as a whole."""
    return [
        ForgetItem(place, len(paths), tuple(each.name for each in paths))
        for place in ASIDE_PLACES
        if (paths := left_over(home, search, place))
    ]


def left_over(home: Path, search: FileSearchResult, place: str) -> list[Path]:
    """The files of one kind that no program uses any more."""
    return [each for each in search.hits if _is_left_over(home, each, ASIDE_PLACES[place])]


def _is_left_over(home: Path, path: Path, pattern: str) -> bool:
    """Whether a file is one that our own stores left, in its own folder, not behind a link."""
    folder = path.parent.relative_to(home)
    names = next((_OWN_FILES[each] for each in _OWN_FILES if _is_folder(folder, each)), "")
    if not names or not re.fullmatch(pattern.format(names), path.name) or path.is_symlink():
        return False
    parts = [Path(), *reversed(folder.parents[:-1]), *([folder] if folder.parts else [])]
    return not any(
        (home / each).is_symlink()
        for each in parts
        if each.as_posix().removeprefix(".") not in _MAY_BE_LINKS
    )


def _is_folder(folder: Path, wanted: str) -> bool:
    parts = Path(wanted).parts
    return len(parts) == len(folder.parts) and all(
        each in (name, "*") for name, each in zip(folder.parts, parts, strict=True)
    )


def in_stores(
    config: Config,
    subject: Subject,
    builtin: MemoryProvider,
    *,
    delete: bool,
    step: Step | None = None,
) -> tuple[list[ForgetItem], list[str]]:
    """Look into every store of ours, or delete; what was found, and what can't be used."""
    items: list[ForgetItem] = []
    problems: list[str] = []
    parts: dict[str, Callable[..., ForgetReport]] = {
        "notes and conversations": partial(_builtin, builtin),
        "outbox": _outbox,
        "spool of the outbox": _spooled,
        "call log": _calls,
    }
    for name, part in parts.items():
        # A damaged store must not keep the others from being emptied.
        try:
            report = part(config, subject, delete=delete)
        except (HermesError, OSError) as error:
            problems.append(f"{name}: {describe(error)}")
        else:
            items += report.items
            problems += report.unreachable
        if step is not None:
            step(name)
    return [each for each in items if each.count], problems


def _builtin(
    provider: MemoryProvider, config: Config, subject: Subject, *, delete: bool
) -> ForgetReport:
    deadlines = deadlines_of(config)._replace(write=_BUILTIN_SECONDS)
    with SingleProvider(provider, BUILTIN, deadlines=deadlines, home=config.home) as single:
        outcome = single.call("forget", request=subject.request._replace(delete=delete))
    if outcome.error is not None:
        raise HermesError(describe(outcome.error)) from outcome.error
    report: ForgetReport = outcome.value
    return report


def _outbox(config: Config, subject: Subject, *, delete: bool) -> ForgetReport:
    matches = Needles.of(subject.request.text).found_in
    with closing(admin.open_store(config, set_aside=False)) as store:
        counts = admin.forget(store, matches, subject.owns, delete=delete)
    items = (ForgetItem(f"outbox: {state}", count) for state, count in sorted(counts.items()))
    return ForgetReport(tuple(items))


def _spooled(config: Config, subject: Subject, *, delete: bool) -> ForgetReport:
    """Writes that the outbox can't take now."""
    matches = Needles.of(subject.request.text).found_in
    count = OutboxSpool(config.home).forget(matches, subject.owns, delete=delete)
    return ForgetReport((ForgetItem("writes in the spool", count),))


def _calls(config: Config, subject: Subject, *, delete: bool) -> ForgetReport:
    matches = Needles.of(subject.request.text).found_in
    sessions: set[str] = set()
    if not subject.request.text:
        sessions = {each.session for each in subject.sessions}
        sessions |= {subject.request.session_id} - {""}
    count = forget_calls(config.home, matches, sessions, delete=delete)
    return ForgetReport((ForgetItem("call log", count),))


def needle_problem(text: str) -> str:
    """Why a text is too short to be searched for in bytes; "" if it is not."""
    wanted = fold_text(text)
    # Two characters are a name in Chinese, three letters are one in English.
    if len(wanted) < 3 and len(wanted.encode("utf-8", "replace")) < 4:  # noqa: PLR2004
        return "the text is too short: it would be found nearly everywhere"
    return ""
