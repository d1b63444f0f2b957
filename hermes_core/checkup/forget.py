"""`forget`: finds a fact, a conversation or a person in all stores of a home, and deletes it.

The order covers every crash. What is wanted and what was found goes to a journal first; from then
on the next `forget` finishes it. Every step finds what it deletes by itself, so that it may be
repeated: the built-in's stores, the outbox, the call log, files that were set aside, and the
external provider. Then the bytes of all files are searched, a receipt is written, and the journal,
which has the text, is removed last.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from hermes_core.checkup.forget_provider import ask_provider
from hermes_core.checkup.journal import Journal
from hermes_core.checkup.receipt import (
    ProviderReceipt,
    Receipt,
    SearchedFiles,
    moment,
    salted_hash,
    write_receipt,
)
from hermes_core.checkup.survey import (
    ASIDE_PLACES,
    JOURNAL,
    Step,
    Subject,
    Survey,
    counted,
    in_stores,
    left_over,
    survey,
)
from hermes_core.config import Config
from hermes_core.config.setup_journal import recover
from hermes_core.errors import HermesError
from hermes_core.loading.activation import activate_builtin
from hermes_core.provider import ArchivedSession, ForgetRequest, fold_text
from hermes_core.storage.files import read_regular, replace_file
from hermes_core.storage.processes import users_of
from hermes_core.storage.search import ENCODINGS, FileSearchResult

_JOURNAL: Final = Journal(
    JOURNAL, "an unfinished `forget`", "remove the file and run `hermes-plugins forget` again"
)
RECEIPTS: Final = "receipts"
_DELETING: Final = "docs/fleet.md, Delete a namespace; then remove its line from storage-left.txt"
INTERRUPTED: Final = "a `forget` was interrupted; not everything is deleted"

#: Where the memory was before, a line each: no search of the home's files finds it there.
LEFT: Final = "storage-left.txt"
_MOVED_FILES: Final = ("state.db", "sessions.db", "outbox.db", "memories/", "pending/")
_MOST_LEFT_BYTES: Final = 10_000_000

#: An agent may store more of it meanwhile; whoever stores all the time is named instead.
_PASSES: Final = 3
#: A temporary file of a write that is being made is younger.
_WRITE_SECONDS: Final = 5.0


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
    values = asdict(journal)
    # By their names: `asdict` does not look into named tuples.
    values["subject"]["sessions"] = [each._asdict() for each in journal.subject.sessions]
    _JOURNAL.write(home, values)


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
    sessions = tuple(ArchivedSession(**each) for each in said["sessions"])
    subject = Subject(request, sessions, tuple(said["passages"]))
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
        items, problems = in_stores(config, subject, builtin, delete=True, step=note)
        done += counted(items)
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


def _residue(search: FileSearchResult, subject: Subject) -> list[Path]:
    """The files that still contain it, and should not.

    What a deleted conversation said may stand in another conversation or in a note as well: that
    stays. But it must not be left in the free space of a file.
    """
    if subject.request.text:
        return list(search.hits)
    return [each for each in search.hits if each not in search.stored]


def _delete_files(home: Path, search: FileSearchResult, step: Step) -> Counter[str]:
    """Delete files that were set aside, and those that a killed process left."""
    done: Counter[str] = Counter()
    for place in ASIDE_PLACES:
        for path in left_over(home, search, place):
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
        subject=salted_hash(journal.salt, fold_text(subject.value)),
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
    config: Config, journal: ForgetJournal, search: FileSearchResult, residue: Sequence[Path]
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
    if not Path("/proc").is_dir():  # the system does not show who has a file open
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


# -- Where the memory of a home was before it moved: no search of its files finds it there --------


def left_at(home: Path) -> list[str]:
    """The namespaces of databases from which the memory of a home was moved away."""
    try:
        return read_regular(home / LEFT, _MOST_LEFT_BYTES).decode("utf-8", "replace").splitlines()
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
