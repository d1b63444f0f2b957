"""`forget`: finds a fact, a conversation or a person in all stores of a home, and deletes it.

The order covers every crash. What is wanted and what was found goes to a journal first; from then
on the next `forget` finishes it. Every step finds what it deletes by itself, so that it may be
repeated: the built-in's stores, the outbox, the call log, files that were set aside, and the
external provider. Then the bytes of all files are searched, a receipt is written, and the journal,
which has the text, is removed last.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from hermes_core.call_log import forget_calls
from hermes_core.checkup.child_process import LineWriter, read_lines, run_child, run_plugin_code
from hermes_core.checkup.journal import Journal
from hermes_core.checkup.receipt import (
    ProviderReceipt,
    Receipt,
    SearchedFiles,
    moment,
    salted_hash,
    write_receipt,
)
from hermes_core.config import Config, load_config
from hermes_core.config.setup_journal import recover
from hermes_core.dispatch import SingleProvider, as_builtin
from hermes_core.errors import HermesError, describe
from hermes_core.loading.activation import Activation, activate, activate_builtin, deadlines_of
from hermes_core.outbox import StreamKey, admin
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.provider import (
    BUILTIN,
    ForgetItem,
    ForgetReport,
    ForgetRequest,
    MemoryProvider,
    folded,
)
from hermes_core.session import SessionContext
from hermes_core.storage.files import read_regular, replace_file
from hermes_core.storage.processes import users_of
from hermes_core.storage.search import (
    ENCODINGS,
    Needles,
    SearchResult,
    search_files,
)

JOURNAL: Final = "forget.json"
_JOURNAL: Final = Journal(
    JOURNAL, "an unfinished `forget`", "remove the file and run `hermes-plugins forget` again"
)
RECEIPTS: Final = "receipts"
#: Where the memory was before, a line each: no search of the home's files finds it there.
LEFT: Final = "storage-left.txt"
_DELETING: Final = "docs/fleet.md, Delete a namespace; then remove its line from storage-left.txt"
_MOVED_FILES: Final = ("state.db", "sessions.db", "outbox.db", "memories/", "pending/")
INTERRUPTED: Final = "a `forget` was interrupted; not everything is deleted"

_MOST_BYTES: Final = 10_000_000
#: An agent may store more of it meanwhile; whoever stores all the time is named instead.
_PASSES: Final = 3
# A large archive takes minutes; nobody but the person at the terminal waits for it.
_BUILTIN_SECONDS: Final = 3600.0
#: An id that is shorter is found in too many bytes by chance.
_SHORTEST_ID: Final = 8
#: A temporary file of a write that is being made is younger.
_WRITE_SECONDS: Final = 5.0

#: What our own stores leave: a database that was set aside, and a file that was not yet renamed.
_SET_ASIDE: Final = r"(?:{})\.damaged(?:-\d{{8}}-\d{{6}}(?:-\d+)?)?(?:-wal|-shm|-journal)?"
_TEMPORARY: Final = r"\.(?:{})\.[0-9a-f]{{8}}\.tmp(?:-wal|-shm|-journal)?"
_ASIDE_PLACES: Final = {"files set aside": _SET_ASIDE, "temporary files": _TEMPORARY}
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


# -- what there is ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be forgotten, and who may know of it.

    Attributes:
        request: The text, the session or the person.
        sessions: The sessions to be deleted, or for a text one of each person.
        passages: Texts from the sessions, by which the files are searched.
    """

    request: ForgetRequest
    sessions: tuple[Mapping[str, Any], ...] = ()
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
            (each["session"], SessionContext.from_keywords("", each["keywords"]).identity)
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
    search: SearchResult = field(default_factory=SearchResult)
    problems: tuple[str, ...] = ()

    @property
    def counts(self) -> Counter[str]:
        """How much there is in each place."""
        return _counted(self.items)


def _counted(items: Sequence[ForgetItem]) -> Counter[str]:
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
    known = builtin.sessions_meant(request) if builtin is not None else {}
    if request.user_id and not request.platform:
        request = request._replace(platform=_platform(config, request.user_id, known))
        known = builtin.sessions_meant(request) if builtin is not None else {}
    return Subject(request, tuple(known.get("sessions", ())), tuple(known.get("passages", ())))


def _platform(config: Config, user: str, known: Mapping[str, Any]) -> str:
    """The platform of a user."""
    hint = "say which one you mean with --platform"
    try:
        platforms = {*known.get("platforms", ()), *_platforms_in_outbox(config, user)}
        problem = known.get("problem", "")
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
    items, problems = _in_stores(config, subject, builtin, delete=False)
    try:
        search = _search_in_child(config.home, subject.needles)
    except HermesError as error:
        search = SearchResult()
        problems = [*problems, str(error)]
    items += _set_aside(config.home, search)
    return Survey(tuple(items), search, tuple(problems))


def _search_in_child(home: Path, needles: Needles) -> SearchResult:
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
    result: SearchResult = found[0]
    return result


def _write_search(answer: Path, home: Path, needles: Needles) -> None:
    found = search_files(home, needles, [home / JOURNAL], sorted(_MAY_BE_LINKS))
    with answer.open("w", encoding="utf-8") as file:
        LineWriter(file).write(found)


def _set_aside(home: Path, search: SearchResult) -> list[ForgetItem]:
    """Files that no program uses any more, which are deleted as a whole."""
    return [
        ForgetItem(place, len(paths), tuple(each.name for each in paths))
        for place in _ASIDE_PLACES
        if (paths := _left_over(home, search, place))
    ]


def _left_over(home: Path, search: SearchResult, place: str) -> list[Path]:
    return [each for each in search.hits if _is_left_over(home, each, _ASIDE_PLACES[place])]


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


def _in_stores(
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
        sessions = {str(each["session"]) for each in subject.sessions}
        sessions |= {subject.request.session_id} - {""}
    count = forget_calls(config.home, matches, sessions, delete=delete)
    return ForgetReport((ForgetItem("call log", count),))


# -- where the memory was ---------------------------------------------------------------------


def left_at(home: Path) -> list[str]:
    """The namespaces of databases from which the memory of a home was moved away."""
    try:
        return read_regular(home / LEFT, _MOST_BYTES).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{LEFT}, which can't be read ({error.strerror or error})"]


def note_left(home: Path, where: str, *, in_use: bool = False) -> None:
    """Remember that a namespace keeps what it has, or that it is in use again."""
    known = left_at(home)
    others = [each for each in known if each != where]
    lines = others if in_use else [*others, where]
    if lines != known:
        replace_file(home / LEFT, "".join(f"{each}\n" for each in lines).encode(), mode=0o600)


def is_from_before(config: Config, name: str) -> bool:
    """Whether a file of the home has what it remembered before it moved to a database."""
    return bool(config.storage) and name.startswith(_MOVED_FILES)


# -- the journal ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ForgetJournal:
    """A `forget` that was begun. It has the text, and exists until the receipt is written.

    Attributes:
        id: Its number.
        subject: What is to be forgotten.
        salt: For the hash in the receipt.
        started: When it began.
        receipt: Where the receipt goes.
        provider: Whether to ask the external provider.
        found: What was found in our stores.
        files: How many files contained it.
        asked: What was found at the provider.
        resumed: How often it was interrupted.
    """

    id: str
    subject: Subject
    salt: str
    started: float
    receipt: str
    provider: bool = False
    found: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    asked: Mapping[str, int] = field(default_factory=dict)
    resumed: int = 0


def begin(
    home: Path, subject: Subject, found: Survey, *, provider: bool, receipt: Path | None = None
) -> ForgetJournal:
    """Write the journal: from now on the subject will be forgotten.

    Raises:
        HermesError: It can't be written.
    """
    number = secrets.token_hex(4)
    now = time.time()
    name = f"forget-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{number}.json"
    place = receipt or home / RECEIPTS / name
    journal = ForgetJournal(
        number,
        subject,
        secrets.token_hex(16),
        now,
        str(place),
        provider,
        dict(found.counts),
        len(found.search.hits),
    )
    _save(home, journal)
    return journal


def _save(home: Path, journal: ForgetJournal) -> None:
    _JOURNAL.write(home, asdict(journal))


def unfinished(home: Path) -> ForgetJournal | None:
    """Return the `forget` that was interrupted, or None.

    Raises:
        HermesError: Its journal can't be read.
    """
    return _JOURNAL.read(home, partial(_parsed, home))


def _parsed(home: Path, data: dict[str, Any]) -> ForgetJournal:
    del data["schema"]
    said = data.pop("subject")
    # `_asdict` is not called for a named tuple within a dataclass: JSON has a list of it.
    request = ForgetRequest(*said["request"])._replace(home=str(home))
    subject = Subject(request, tuple(said["sessions"]), tuple(said["passages"]))
    return ForgetJournal(subject=subject, **data)


def exclusive(home: Path) -> AbstractContextManager[None]:
    """Hold the lock that lets one `forget` run at a time; a home that is not there has none."""
    return _JOURNAL.exclusive(home)


# -- deleting ---------------------------------------------------------------------------------


def finish(config: Config, journal: ForgetJournal, step: Step | None = None) -> Receipt:
    """Carry out what a journal says, from wherever it was interrupted; returns the receipt.

    Args:
        config: What config.yaml says.
        journal: From `begin`, or from `unfinished`.
        step: Called with a few words after each step.
    """
    note = step or (lambda _: None)
    with suppress(HermesError):  # a setup that was interrupted has its own file
        recover(config.home)
    note("journal")
    subject = journal.subject
    builtin = activate_builtin(config)
    done: Counter[str] = Counter()
    left = Survey()
    problems: list[str] = []
    provider = None
    for number in range(_PASSES):
        before = left
        left = survey(config, subject, builtin)
        note("search")
        # Twice the same: what is left can't be deleted by us.
        if number and (is_gone(left, subject) or left == before):
            break
        items, problems = _in_stores(config, subject, builtin, delete=True, step=note)
        done += _counted(items)
        done += _delete_files(config.home, left.search, note)
        # After the outbox, which could deliver it again, and before the files are searched again:
        # a provider may have its own.
        if not number and journal.provider:
            provider = _at_provider(config, journal, note)
    left = replace(left, problems=tuple(dict.fromkeys((*left.problems, *problems))))
    receipt = _receipt(config, journal, left, done, provider)
    write_receipt(Path(journal.receipt), receipt)
    note("receipt")
    _JOURNAL.remove(config.home)
    return receipt


def resume(config: Config, journal: ForgetJournal, step: Step | None = None) -> Receipt:
    """Finish a `forget` that was interrupted."""
    again = replace(journal, resumed=journal.resumed + 1)
    _save(config.home, again)
    return finish(config, again, step)


def is_gone(found: Survey, subject: Subject) -> bool:
    """Whether there is nothing to delete: not in a store, and not in a file."""
    return not found.items and not _residue(found.search, subject)


def _residue(search: SearchResult, subject: Subject) -> list[Path]:
    """The files that still contain it, and should not.

    What a deleted conversation said may stand in another conversation or in a note as well: that
    stays. But it must not be left in the free space of a file.
    """
    if subject.request.text:
        return list(search.hits)
    return [each for each in search.hits if each not in search.stored]


def _delete_files(home: Path, search: SearchResult, step: Step) -> Counter[str]:
    """Delete files that were set aside, and those that a killed process left."""
    done: Counter[str] = Counter()
    for place in _ASIDE_PLACES:
        for path in _left_over(home, search, place):
            if _is_abandoned(path):
                with suppress(OSError):
                    path.unlink()
                    done[place] += 1
    step("files")
    return done


def _is_abandoned(path: Path) -> bool:
    """Whether no process is writing a file; waits until that is clear."""
    while True:
        try:
            age = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            return False  # it has just taken its place, where the next look finds it
        if not 0 <= age < _WRITE_SECONDS:
            return True
        time.sleep(min(_WRITE_SECONDS - age, 0.2))


# -- the external provider --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProviderAnswer:
    """What the external provider found or deleted, for one person or for all."""

    found: Mapping[str, int] = field(default_factory=dict)
    unreachable: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def ask_provider(config: Config, subject: Subject, *, delete: bool) -> ProviderAnswer:
    """Have the external provider look for a subject, or delete it, in a child process."""
    people = _people(subject)
    deadlines = deadlines_of(config)
    each = deadlines.initialize + deadlines.write + deadlines.shutdown
    request = subject.request._replace(delete=delete)
    call = partial(forget_at_provider, config.home, request, people)
    done = run_plugin_code(config, call, seconds=each * len(people))
    found: Counter[str] = Counter()
    unreachable: list[str] = []
    problems = [done.problem] if done.problem else []
    for answer in done.results:
        found.update(answer.found)
        unreachable += answer.unreachable
        problems += answer.problems
    reasons, failures = (tuple(dict.fromkeys(each)) for each in (unreachable, problems))
    return ProviderAnswer(dict(found), reasons, failures)


def _people(subject: Subject) -> list[Mapping[str, Any]]:
    """The sessions to start the provider with: one of each person, or those to be deleted."""
    request = subject.request
    asked = {"session": request.session_id, "keywords": {}}
    if request.user_id:
        asked["keywords"] = {"platform": request.platform, "user_id": request.user_id}
    sessions = [*subject.sessions, *([] if subject.sessions and not request.text else [asked])]
    if request.session_id:
        return sessions
    by_person = {SessionContext.from_keywords("", s["keywords"]).identity: s for s in sessions}
    return list(by_person.values())


def forget_at_provider(
    home: Path, request: ForgetRequest, people: Sequence[Mapping[str, Any]]
) -> Iterator[ProviderAnswer]:
    """In the child process: start the provider for each person, and have it forget."""
    config = load_config(home)
    name = config.selection.name
    for person in people:
        activation = activate(config)
        try:
            if activation.error is not None:
                raise activation.error
            yield _forget_as(config, activation, request, person)
        finally:
            activation.lease.release()
    yield ProviderAnswer(unreachable=_backups(config, name))


def _forget_as(
    config: Config, activation: Activation, request: ForgetRequest, person: Mapping[str, Any]
) -> ProviderAnswer:
    name = config.selection.name
    session = str(person["session"])
    context = SessionContext.from_keywords(session, person["keywords"])
    keywords = replace(context, hermes_home=str(config.home)).keywords()
    values = activation.settings.values if activation.settings else None
    assert activation.provider is not None  # noqa: S101 - there was no error
    single = SingleProvider(
        activation.provider, name, deadlines=deadlines_of(config), config=values
    )
    with single:
        if not single.overrides("forget"):
            return ProviderAnswer(
                problems=(
                    f"{name}: the plugin does not implement `forget`; delete it in the service",
                )
            )
        started = single.call("initialize", session_id=session, extra=keywords)
        if started.error is not None:
            return ProviderAnswer(problems=(f"{name}: {describe(started.error)}",))
        wanted = request._replace(session_id=session) if request.session_id else request
        outcome = single.call("forget", request=wanted)
        single.call("shutdown")
    if outcome.error is not None:
        return ProviderAnswer(problems=(f"{name}: {describe(outcome.error)}",))
    report: ForgetReport = outcome.value
    reasons = tuple(f"{name}: {each}" for each in report.unreachable)
    return ProviderAnswer(dict(_counted(report.items)), reasons)


def _backups(config: Config, name: str) -> tuple[str, ...]:
    """What the provider keeps outside the home."""
    activation = activate(config)
    if activation.provider is None:
        return ()
    try:
        with SingleProvider(activation.provider, name, deadlines=deadlines_of(config)) as single:
            paths = single.call("backup_paths").value
    finally:
        activation.lease.release()
    return tuple(f"{name}: its files outside the home: {each}" for each in paths)


def _at_provider(config: Config, journal: ForgetJournal, step: Step) -> ProviderReceipt | None:
    """Look, delete, look again; the receipt's part about the provider."""
    name = config.selection.name
    if not name:
        return None
    subject = journal.subject
    first = ask_provider(config, subject, delete=False)
    known = Counter(journal.asked) | Counter(first.found)
    _save(config.home, replace(journal, asked=dict(known)))
    step("provider: search")
    done = ask_provider(config, subject, delete=True)
    step("provider: delete")
    left = ask_provider(config, subject, delete=False)
    step("provider: search again")
    remaining = Counter(left.found)
    found = known | (Counter(done.found) + remaining)
    answers = (first, done, left)
    unreachable = [reason for each in answers for reason in each.unreachable]
    # An error of the first look does not matter if it was over when we deleted and looked again.
    problems = [*done.problems, *left.problems]
    return ProviderReceipt(
        name,
        found=dict(found),
        deleted=dict(found - remaining),
        remaining=dict(remaining),
        unreachable=tuple(_safe(each, subject) for each in dict.fromkeys(unreachable)),
        problems=tuple(_safe(each, subject) for each in dict.fromkeys(problems)),
    )


@dataclass(frozen=True, slots=True)
class ProviderForgot:
    """What became of a text at the external provider.

    Attributes:
        deleted: How much was deleted, by place.
        remaining: What is still there.
        unreachable: What the plugin can't reach.
        problems: What went wrong.
    """

    deleted: Mapping[str, int]
    remaining: Mapping[str, int]
    unreachable: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def forget_text_at_provider(config: Config, text: str) -> ProviderForgot:
    """Have the external provider look for a text, delete it, and look again.

    Nothing else is changed: notes and conversations keep it.

    Raises:
        HermesError: The text is too short, or no external provider is active.
    """
    if problem := needle_problem(text):
        raise HermesError(problem, hint="use more words of it")
    if not config.selection.name:
        raise HermesError("no external provider is active", hint="leave out --provider")
    request = ForgetRequest(str(config.home), text)
    subject = subject_of(config, request, activate_builtin(config))
    first = ask_provider(config, subject, delete=False)
    done = ask_provider(config, subject, delete=True)
    left = ask_provider(config, subject, delete=False)
    remaining = Counter(left.found)
    found = Counter(first.found) | (Counter(done.found) + remaining)
    answers = (first, done, left)
    unreachable = dict.fromkeys(reason for each in answers for reason in each.unreachable)
    problems = dict.fromkeys((*done.problems, *left.problems))
    return ProviderForgot(found - remaining, remaining, tuple(unreachable), tuple(problems))


# -- the receipt ------------------------------------------------------------------------------


def _receipt(
    config: Config,
    journal: ForgetJournal,
    left: Survey,
    done: Counter[str],
    provider: ProviderReceipt | None,
) -> Receipt:
    """What was found, deleted and not reached, without what it was."""
    subject = journal.subject
    remaining = left.counts
    found = Counter(journal.found) | (done + remaining)
    residue = _residue(left.search, subject)
    clean = provider is None or provider.is_clean
    return Receipt(
        journal.id,
        kind=subject.kind,
        subject=salted_hash(journal.salt, folded(subject.value)),
        salt=journal.salt,
        started=moment(journal.started),
        finished=moment(time.time()),
        resumed=journal.resumed,
        found=dict(sorted(found.items())),
        deleted=dict(sorted((found - remaining).items())),
        remaining=dict(sorted(remaining.items())),
        searched=_searched(config, journal, left.search, residue),
        provider=provider,
        unreachable=_unreachable(config, subject, left, asked=provider is not None),
        problems=tuple(_safe(each, subject) for each in left.problems),
        complete=not (remaining or residue or left.problems) and clean,
    )


def _searched(
    config: Config, journal: ForgetJournal, search: SearchResult, residue: Sequence[Path]
) -> SearchedFiles:
    named = partial(_named, config.home, subject=journal.subject)
    return SearchedFiles(
        search.files,
        search.bytes,
        encodings=tuple(ENCODINGS),
        files_before=journal.files,
        files_after=tuple(named(each) for each in residue),
        also_elsewhere=tuple(named(each) for each in search.hits if each not in residue),
    )


def _unreachable(config: Config, subject: Subject, left: Survey, *, asked: bool) -> tuple[str, ...]:
    found = always_unreachable(config, subject, asked=asked)
    found += [
        f"{_named(config.home, each, subject)}: compressed or not readable, so not searched"
        for each in left.search.unread
    ]
    return tuple(_safe(each, subject) for each in found)


def always_unreachable(config: Config, subject: Subject, *, asked: bool) -> list[str]:
    """What no command can delete, or was not asked to."""
    found = [f"{each}: what it has in memory, until it ends" for each in users_of(config.home)]
    if not Path("/proc").is_dir():  # the system does not tell who has a file open
        found.append("agents that run now: what they have in memory, until they end")
    name = config.selection.name
    if name and not asked:
        found.append(f"{name}: not asked; add --provider")
    if subject.request.user_id:
        found.append("MEMORY.md and a shared USER.md: run `hermes-plugins forget TEXT` for a fact")
    found += [
        f"{each}: the memory before a migration; see {_DELETING}" for each in left_at(config.home)
    ]
    if any((config.home / "sync").glob("*.db")):
        found.append("shared folders: the next `hermes-plugins sync` of each machine removes it")
    found.append("backups, exports and copies outside the home; snapshots of the disk")
    found.append("logs of the model's vendor and of the chat platform")
    if subject.request.text:
        found.append("the history of your shell, if you typed the text there")
    return found


def _named(home: Path, path: Path, subject: Subject) -> str:
    return _safe(str(path.relative_to(home)), subject)


def _safe(text: str, subject: Subject) -> str:
    """A text for the receipt; its own words if it contains what is to be forgotten."""
    return "(not shown: it contains what was forgotten)" if subject.names.found_in(text) else text


def needle_problem(text: str) -> str:
    """Why a text is too short to be searched for in bytes; "" if it is not."""
    wanted = folded(text)
    # Two characters are a name in Chinese, three letters are one in English.
    if len(wanted) < 3 and len(wanted.encode("utf-8", "replace")) < 4:  # noqa: PLR2004
        return "the text is too short: it would be found nearly everywhere"
    return ""
