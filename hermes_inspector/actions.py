"""What a person changes on the page, with the guard, approval, origin and history of the commands.

Notes are changed here and now. What that means for the external provider is stored in the outbox,
without loading the plugin, and delivered in the background: no page waits for a provider.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from hermes_builtin.notes import (
    PAGE,
    Author,
    Notebook,
    NoteStep,
    Operation,
    Person,
    RefusalError,
    WriteResult,
    entry_id,
    operation,
    previews,
)
from hermes_builtin.notes.entries import text_hash
from hermes_builtin.provider import BuiltinProvider
from hermes_core import Config, ForgetRequest, HermesError, SessionContext
from hermes_core.checkup.explain import Explanation, ToolInfo, explain, provider_tools
from hermes_core.checkup.forget import (
    always_unreachable,
    begin,
    exclusive,
    finish,
    is_gone,
    resume,
    unfinished,
)
from hermes_core.checkup.forget_provider import (
    ProviderAnswer,
    ProviderDeletion,
    ask_provider,
    forget_text_at_provider,
)
from hermes_core.checkup.receipt import Receipt
from hermes_core.checkup.redelivery import (
    StreamReport,
    deliver_queued,
    queue_note,
    retry,
)
from hermes_core.checkup.selection import disable, enable, find_choice, try_provider
from hermes_core.checkup.survey import Subject, Survey, needle_problem, subject_of, survey
from hermes_core.config.setup_journal import recover
from hermes_core.conformance import Options, Report, check_plugin
from hermes_core.errors import describe
from hermes_core.loading.activation import activate_builtin
from hermes_core.outbox import admin
from hermes_core.provider import BUILTIN
from hermes_inspector.home import Home
from hermes_inspector.jobs import BackgroundJob, Jobs
from hermes_inspector.notes import ChangeInfo, became

#: The session under which changes are stored, as for the commands.
_SESSION: Final = "hermes-plugins"
_AUTHOR: Final = Author(PAGE)


@dataclass(frozen=True, slots=True)
class ActionResult:
    """A change was made, or there was nothing to change.

    Attributes:
        text: What happened, in one sentence.
        warnings: What a person should know besides.
    """

    text: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Somebody else changed or removed the entry meanwhile; nothing was changed.

    Attributes:
        book: The key of the notebook.
        yours: What the person wrote; "" if they removed it.
        theirs: The change that came before; None if it is not recorded.
    """

    book: str
    yours: str
    theirs: ChangeInfo | None


class NoteActions:
    """Changes notes.

    Args:
        home: Whose notes.
        jobs: Where deliveries to the external provider run.
    """

    def __init__(self, home: Home, jobs: Jobs) -> None:
        self._home = home
        self._jobs = jobs

    def add(self, key: str, text: str) -> ActionResult:
        """Add an entry."""
        with self._writing(key) as writer:
            return writer.change(operation("add", text, None), "Saved.")

    def edit(self, key: str, version: str, text: str) -> ActionResult | Conflict:
        """Replace the entry of this version, and no other."""
        return self._change(key, version, "replace", text, "Saved.")

    def remove(self, key: str, version: str) -> ActionResult | Conflict:
        """Remove the entry of this version, and no other."""
        return self._change(key, version, "remove", "", "Removed.")

    def _change(
        self, key: str, version: str, action: str, text: str, done: str
    ) -> ActionResult | Conflict:
        with self._writing(key) as writer:
            old = writer.entry(version)
            if old is None:
                theirs = became(writer.notes, key, version)
                return Conflict(key, text, theirs)
            # With its id: another entry that has come to match is not touched.
            wanted = operation(action, text or None, old)._replace(entry=entry_id(old))
            try:
                return writer.change(wanted, done)
            except RefusalError:
                if writer.entry(version) is not None:
                    raise
                return Conflict(key, text, became(writer.notes, key, version))

    def undo(self, number: int) -> ActionResult:
        """Take one change back, and leave what came after it."""
        with self._home.notes() as notes:
            known = notes.history.change(number) if notes.history.exists else None
            if known is None:
                raise HermesError("there is no such change")
        with self._writing(known.target) as writer:
            change, written = writer.notes.undo(number, _AUTHOR)
            return writer.report(written, f"Change {change.id} was undone.")

    def allow(self, name: str) -> ActionResult:
        """Allow a text that the guard objects to."""
        with self._home.notes() as notes:
            notes.allow(name)
        return ActionResult("Allowed: the prompt gets this text from the next session on.")

    def approve(self, name: str) -> ActionResult:
        """Carry out a write that waited."""
        with self._home.notes() as notes:
            key = notes.pending.get(name).target
        with self._writing(key) as writer:
            staged, written = writer.notes.approve(name, Author("tool, approved"))
            return writer.report(written, f"Approved: {staged.summary}", staged.session)

    def reject(self, name: str) -> ActionResult:
        """Discard a write that waited."""
        with self._home.notes() as notes:
            if not notes.pending.exists(name):
                raise HermesError(f"nothing with the id {name} is pending")
            notes.pending.discard(name)
        return ActionResult("Rejected.")

    @contextmanager
    def _writing(self, key: str) -> Iterator[_NoteWriter]:
        config = self._home.config()
        with self._home.notes() as notes:
            person = notes.owner(key)
        writer = _NoteWriter(config, person, key)
        try:
            yield writer
        except RefusalError as refused:
            hint = "; ".join(previews(refused.matches))
            raise HermesError(refused.text, hint=hint) from refused
        finally:
            writer.close()
        if writer.queued:
            call = partial(deliver_queued, config, writer.session)
            # The change is stored. If too many deliveries wait, the next one takes it along.
            with suppress(HermesError):
                self._jobs.start("delivery", f"Delivering to {config.selection.name}", call)


class _NoteWriter:
    """The built-in as one person has it; its changes are stored for the external provider."""

    def __init__(self, config: Config, person: Person, key: str) -> None:
        self._config = config
        self._key = key
        who = {"user_id": person.user_id} if person.user_id else {}
        given = {"platform": person.platform, **who}
        self.session = SessionContext.from_keywords(_SESSION, given)
        # Not through a manager, as `command_notes.writable` of the commands does it: a manager
        # loads the external provider, and no page waits for that.
        self._builtin = BuiltinProvider()
        self._builtin.initialize(
            _SESSION, hermes_home=str(config.home), provider_config=config.memory, **given
        )
        self._builtin.mirror_to(self._queue)
        self.notes = self._builtin.notes
        self.queued = 0
        self._problems: list[str] = []

    @property
    def _book(self) -> Notebook:
        return self.notes.book(self._key)

    def entry(self, version: str) -> str | None:
        """The entry with this hash; None if there is none any more."""
        entries = self._book.read().entries
        return next((each for each in entries if text_hash(each) == version), None)

    def change(self, wanted: Operation, done: str) -> ActionResult:
        return self.report(self._book.change([wanted], _AUTHOR), done)

    def report(self, written: WriteResult, done: str, session: str = "") -> ActionResult:
        """Pass a change on to the external provider, and say what happened."""
        steps: list[NoteStep] = written.steps
        self._builtin.mirror(self._book.target, steps, "command", session)
        warnings = list(self._problems)
        if not written.durable:
            warnings.append("The disk did not confirm it: a power cut could undo it.")
        return ActionResult(done if written.changed else "Nothing to change.", tuple(warnings))

    def _queue(self, action: str, target: str, content: str, metadata: dict[str, Any]) -> None:
        change = {"action": action, "target": target, "content": content, "metadata": metadata}
        try:
            self.queued += queue_note(self._config, self.session, change)
        except (HermesError, OSError) as error:
            # The note itself is saved. The command says the same.
            self._problems.append(f"The external provider did not receive it: {describe(error)}")

    def close(self) -> None:
        self._builtin.shutdown()


# -- recall -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecallPreview:
    """What an agent would recall for a question.

    Attributes:
        question: The question.
        explanation: What each provider returned; None if nothing came back.
        problem: Why it is not complete.
        forgot: What became of a text that was corrected at the provider just before.
        saved: What was saved instead of it.
    """

    question: str
    explanation: Explanation | None
    problem: str = ""
    forgot: ProviderDeletion | None = None
    saved: ActionResult | None = None


def ask(home: Home, question: str, user: str = "") -> RecallPreview:
    """A turn of an agent up to the model's call, in a child process."""
    recover(home.folder)
    done = explain(home.config(), question, session="", user=user)
    return RecallPreview(question, done.results[0] if done.results else None, done.problem)


@dataclass(frozen=True, slots=True)
class Correction:
    """A wrong text of the external provider, and what is right instead.

    Attributes:
        question: The question for which it was recalled.
        wrong: The text.
        right: What to save instead; "" for nothing.
        book: The notebook that gets it, from which the provider gets it, too.
    """

    question: str
    wrong: str
    right: str = ""
    book: str = "memory"


def correct(home: Home, notes: NoteActions, wanted: Correction) -> RecallPreview:
    """Have the external provider forget a text, save the right one, and ask again."""
    forgot = forget_text_at_provider(home.config(), wanted.wrong)
    saved = notes.add(wanted.book, wanted.right) if wanted.right.strip() else None
    again = ask(home, wanted.question)
    return RecallPreview(again.question, again.explanation, again.problem, forgot, saved)


# -- forget -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ForgetPreview:
    """What there is of a subject, before anything is deleted.

    Attributes:
        subject: What is to be forgotten.
        survey: What our stores and files have.
        provider: Whether the external provider was asked, and is to delete it.
        theirs: What it has.
        unreachable: What nobody can delete from here.
        files: The names of the files that contain it.
    """

    subject: Subject
    survey: Survey
    provider: bool = False
    theirs: ProviderAnswer = field(default_factory=ProviderAnswer)
    unreachable: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to delete."""
        problems = (*self.survey.problems, *self.theirs.problems)
        return is_gone(self.survey, self.subject) and not self.theirs.found and not problems


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """What was deleted, and the file that proves it."""

    path: str
    content: Receipt


def forget_request(home: Home, text: str, session: str, user: str, platform: str) -> ForgetRequest:
    """What is to be forgotten.

    Raises:
        HermesError: It is not clear, or too short.
    """
    if sum(map(bool, (text, session, user))) != 1:
        raise HermesError("nothing to forget: enter a text, a conversation or a user")
    if text and (problem := needle_problem(text)):
        raise HermesError(problem, hint="use more words of it")
    return ForgetRequest(str(home.folder), text, session, user, platform)


def look_for(home: Home, request: ForgetRequest, *, provider: bool) -> ForgetPreview:
    """Look for a subject in all stores and files. Deletes nothing."""
    config = home.config_or_defaults()
    builtin = activate_builtin(config)
    subject = subject_of(config, request, builtin)
    found = survey(config, subject, builtin)
    asks = provider and bool(config.selection.name)
    theirs = ask_provider(config, subject, delete=False) if asks else ProviderAnswer()
    unreachable = (*theirs.unreachable, *always_unreachable(config, subject, asked=asks))
    files = tuple(str(each.relative_to(home.folder)) for each in found.search.hits)
    return ForgetPreview(subject, found, asks, theirs, unreachable, files)


def forget(home: Home, found: ForgetPreview) -> StoredReceipt:
    """Delete what was found, search again, and write the receipt."""
    config = home.config_or_defaults()
    with exclusive(home.folder):
        journal = begin(home.folder, found.subject, found.survey, provider=found.provider)
        return StoredReceipt(journal.receipt, finish(config, journal))


def has_unfinished(home: Home) -> bool:
    """Whether a `forget` was interrupted."""
    return unfinished(home.folder) is not None


def finish_forget(home: Home) -> StoredReceipt:
    """Finish a `forget` that was interrupted.

    Raises:
        HermesError: None was.
    """
    with exclusive(home.folder):
        journal = unfinished(home.folder)
        if journal is None:
            raise HermesError("no `forget` was interrupted")
        return StoredReceipt(journal.receipt, resume(home.config_or_defaults(), journal))


def receipt_text(path: str) -> str:
    """The receipt as it is on the disk."""
    return Path(path).read_text("utf-8")


# -- outbox -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RetryResult:
    """What a retry did, by session."""

    streams: tuple[StreamReport, ...]
    problem: str = ""


def retry_writes(home: Home, number: int = 0) -> RetryResult:
    """Deliver what waits, failed or was skipped: of one write's session, or all."""
    done = retry(home.config(), number)
    return RetryResult(done.results, done.problem)


def drop_write(home: Home, number: int) -> ActionResult:
    """Remove a write; it will not be delivered.

    Raises:
        HermesError: There is no such write.
    """
    with home.outbox() as store:
        admin.entry(store, number)
        admin.drop(store, number)
    return ActionResult(f"Removed write {number}.")


# -- the provider -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnableResult:
    """What came of enabling a provider.

    Attributes:
        name: The provider.
        enabled: Whether it is active now.
        problems: Why it does not work.
        hint: What to do about it.
        warnings: What a person should look at.
        withheld: Variables of others that it asks for; the person may grant them.
    """

    name: str
    enabled: bool
    problems: tuple[str, ...] = ()
    hint: str = ""
    warnings: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


def enable_provider(home: Home, name: str, grants: tuple[str, ...] = ()) -> EnableResult:
    """Load a provider in a child process; if it works, make it the active one."""
    recover(home.folder)
    config = home.config()
    info = find_choice(config, name)
    if info.source == BUILTIN:
        raise HermesError("the built-in is always active")
    tested = try_provider(config, name, info, grants)
    check = tested.check
    if not check.problems:
        enable(config, tested)
    return EnableResult(
        info.name,
        not check.problems,
        tuple(map(str, check.problems)),
        check.hint,
        check.warnings,
        check.withheld,
    )


def disable_provider(home: Home) -> ActionResult:
    """Stop using the external provider; its data stays."""
    recover(home.folder)
    config = home.config()
    if not config.selection.choice:
        raise HermesError("no external provider is active")
    disable(config)
    return ActionResult(f"{config.selection.name} is disabled. Its data was not changed.")


def run_conformance(home: Home, name: str) -> Report:
    """Run the checks of the conformance kit, in child processes with an empty home."""
    return check_plugin(find_choice(home.config(), name), Options())


def list_provider_tools(home: Home) -> tuple[ToolInfo, ...]:
    """The tools that a model gets.

    Raises:
        HermesError: A plugin ended the child process.
    """
    done = provider_tools(home.config())
    if done.problem and not done.results:
        raise HermesError(done.problem)
    return done.results


def job_done(job: BackgroundJob | None) -> bool:
    """Whether a job has a result."""
    return job is not None and not job.running and not job.problem
