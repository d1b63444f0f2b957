"""What the external provider finds and deletes for `forget`, in a child process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from hermes_core.checkup.child_process import run_plugin_code
from hermes_core.checkup.survey import Subject, counted, needle_problem, subject_of
from hermes_core.config import Config, load_config
from hermes_core.dispatch import SingleProvider
from hermes_core.errors import HermesError, describe
from hermes_core.loading.activation import Activation, activate, activate_builtin, deadlines_of
from hermes_core.provider import ArchivedSession, ForgetReport, ForgetRequest
from hermes_core.session import SessionContext


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


def _people(subject: Subject) -> list[ArchivedSession]:
    """The sessions to start the provider with: one of each person, or those to be deleted."""
    request = subject.request
    of_user = {"platform": request.platform, "user_id": request.user_id}
    asked = ArchivedSession(request.session_id, of_user if request.user_id else {})
    sessions = [*subject.sessions, *([] if subject.sessions and not request.text else [asked])]
    if request.session_id:
        return sessions
    by_person = {SessionContext.from_keywords("", s.keywords).identity: s for s in sessions}
    return list(by_person.values())


def forget_at_provider(
    home: Path, request: ForgetRequest, people: Sequence[ArchivedSession]
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
    config: Config, activation: Activation, request: ForgetRequest, person: ArchivedSession
) -> ProviderAnswer:
    name = config.selection.name
    session = person.session
    context = SessionContext.from_keywords(session, person.keywords)
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
    return ProviderAnswer(dict(counted(report.items)), reasons)


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


@dataclass(frozen=True, slots=True)
class ProviderDeletion:
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


def forget_text_at_provider(config: Config, text: str) -> ProviderDeletion:
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
    return ProviderDeletion(found - remaining, remaining, tuple(unreachable), tuple(problems))
