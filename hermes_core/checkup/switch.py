"""`switch`: another external provider, and with it the past.

`replay` hands a provider what the archive and the notes have, through the outbox. It notes a batch
as begun (`replayed_turns.py`), stores it there in one transaction, notes it as done, delivers it,
and goes on with the next. So whatever is done is delivered or waits in the outbox. A process that
ends between these steps leaves one batch that is only begun. What the next run finds of it in the
outbox is done; it stores the rest again, with the same event ids and as a second attempt.

The provider that was active before stays active until the new one has everything: agents go on
with it, and what they say meanwhile is in the archive, too.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.call_log import hook_health
from hermes_core.checkup.child_process import ChildResults, run_plugin_code
from hermes_core.checkup.deliveries import ActiveProvider, active_provider, is_nearly_full
from hermes_core.checkup.doctor import Finding, start_provider
from hermes_core.checkup.past import (
    builtin_of,
    length_of,
    note_event,
    note_key,
    notes_ahead,
    sessions_of,
    turns_by_session,
    turns_of,
)
from hermes_core.checkup.recall_sample import (
    CONTROL,
    Judgement,
    Question,
    count_words,
    question_about,
)
from hermes_core.checkup.replayed_turns import (
    REPLAYS,
    Replay,
    ReplayedTurns,
    replays,
    save_replay,
)
from hermes_core.config import Config, Selection, load_config
from hermes_core.config.names import normalise, split_choice
from hermes_core.config.storage import home_database
from hermes_core.dispatch import HookCalls
from hermes_core.errors import DatabaseError, HermesError
from hermes_core.loading.activation import (
    activate,
    deadlines_of,
    installed_providers,
)
from hermes_core.manager.from_config import fresh_instance, redactor_for
from hermes_core.outbox import Outbox, Stream, StreamKey, admin, deliver_inherited, open_outbox
from hermes_core.outbox.admin import NewWrite
from hermes_core.outbox.records import ProviderKey
from hermes_core.provider import PastNote

#: A batch: small enough for any outbox, and for a progress that a person can see.
_BATCH: Final = 256
_BATCH_SHARE: Final = 8
#: A turn reaches the archive at most so long after it was said; the spool is emptied before.
_LATE_SECONDS: Final = 60.0
_SPOOL_SECONDS: Final = 60.0

#: How often everything may fail in a row, and how long to wait for the next attempt.
_TRIES: Final = 3
_LONGEST_WAIT: Final = 30.0
_PAUSE: Final = 0.5
_SLACK_SECONDS: Final = 10.0

_SAMPLE: Final = 5
#: Many services index what they have accepted some seconds later.
_RECALL_SECONDS: Final = 10.0
#: So many turns of a session are looked at for one that can be judged.
_CANDIDATES: Final = 10

_FULL: Final = "the outbox is full of writes that failed"
_FULL_HINT: Final = (
    "retry or drop them (see: hermes-plugins outbox list), or raise memory.outbox.max_mb"
)

#: Seconds for a turn at a provider that was never called here.
_GUESS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a replay would hand over.

    Attributes:
        turns: How many turns.
        sessions: In how many sessions.
        notes: How many notes.
        characters: How long turns and notes are.
        imported: How many of the turns were imported.
        left_out: Turns of cron jobs and subagents, which no provider gets.
        unanswered: Messages at the end of a session that got no answer yet; they are left out, too.
        seconds: How long it would take.
        measured: Whether that is by calls of this provider that were made before.
        looks_up: Whether the provider was used here before, so that it looks each turn up.
        handed: How many turns and notes earlier runs have handed over.
        waiting: How many of these wait in the outbox.
    """

    turns: int = 0
    sessions: int = 0
    notes: int = 0
    characters: int = 0
    imported: int = 0
    left_out: int = 0
    unanswered: int = 0
    seconds: float = 0.0
    measured: bool = False
    looks_up: bool = False
    handed: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay did.

    Attributes:
        turns: How many turns were handed over in all, with earlier runs.
        notes: How many notes.
        characters: How long they are.
        waiting: How many writes still wait in the outbox.
        skipped: How many were skipped after repeated failures.
        failed: How many failed permanently.
        reason: Why it did not reach its end; "" if it did.
        sampled: How many turns were asked for as a sample; 0 if the provider does not recall.
        recalled: How many of these were recalled.
        unjudged: How many more were asked for, whose answers say nothing.
    """

    turns: int = 0
    notes: int = 0
    characters: int = 0
    waiting: int = 0
    skipped: int = 0
    failed: int = 0
    reason: str = ""
    sampled: int = 0
    recalled: int = 0
    unjudged: int = 0

    @property
    def hint(self) -> str:
        """What to do before it can go on; "" for nothing."""
        return _FULL_HINT if self.reason == _FULL else ""

    @property
    def undelivered(self) -> int:
        """How many did not arrive."""
        return self.waiting + self.skipped + self.failed


# -- which replay a run makes -------------------------------------------------------------------


def planned(config: Config, target: ProviderKey, since: float | None) -> Replay:
    """The replay that a run would make: the one that was interrupted, the next, or a new one.

    Each begins with the oldest turns: some may have been imported since the last run.
    """
    known = replays(config.home).get(Replay(*target).key)
    now = time.time()
    if known is None:
        start = since or 0.0
        return Replay(*target, now, start, start, now, looks_up=_was_used(config, target))
    asked = known.asked if since is None else since
    # An age counts from when the replay began: it may have been interrupted for days.
    if not known.finished and 0 <= asked - known.asked <= now - known.began:
        asked = known.asked
    if known.finished:
        known = replace(known, finished=0.0, looks_up=True, has_notes=False)
    return replace(known, asked=asked, since=asked, until=now)


def _was_used(config: Config, target: ProviderKey) -> bool:
    store = admin.open_store(config, set_aside=False)
    try:
        return store.database.exists and admin.was_used(store, target)
    finally:
        store.close()


def _next_pass(done: Replay) -> Replay:
    """Take what was said since the last pass began."""
    since = max(done.until - _LATE_SECONDS, done.asked)
    return replace(done, since=since, until=time.time())


# -- the command's side -------------------------------------------------------------------------


def candidate(config: Config, choice: str, grants: Sequence[str]) -> Config:
    """The configuration with another provider, unless that is the active one."""
    known = config.selection
    name, owner = split_choice(choice)
    if normalise(name) == normalise(known.name) and (not owner or owner == known.owner):
        return config
    selection = Selection(
        name,
        owner,
        facts=known.facts,
        grants={normalise(name): tuple(grants)},
        isolation=known.isolation,
    )
    return config._replace(selection=selection)


def estimate(config: Config, target: ProviderKey, since: float | None) -> Estimate:
    """What a replay would hand over; changes nothing."""
    replay = planned(config, target, since)
    found = Estimate(
        looks_up=replay.looks_up,
        handed=replay.turns + replay.notes,
        waiting=_result(config, replay).waiting,
    )
    for session, ahead in turns_by_session(config, replay):
        turns = [turn for _, turn in ahead]
        if not session.is_primary:
            found = replace(found, left_out=found.left_out + len(turns))
            continue
        found = replace(
            found,
            turns=found.turns + len(turns),
            sessions=found.sessions + bool(turns),
            characters=found.characters + sum(map(length_of, turns)),
            imported=found.imported + (len(turns) if session.is_imported else 0),
            unanswered=found.unanswered + session.unanswered(),
        )
    with closing(ReplayedTurns(config.home, replay.key, replay.began)) as handed:
        notes = [] if replay.has_notes else notes_ahead(config, replay, handed)
    length = sum(len(each.change["content"]) for each in notes)
    seconds, measured = _pace(config.home, replay.provider)
    return replace(
        found,
        notes=len(notes),
        characters=found.characters + length,
        seconds=(found.turns + len(notes) + found.waiting) * seconds,
        measured=measured,
    )


def _pace(home: Path, provider: str) -> tuple[float, bool]:
    """How long a turn takes at a provider, and whether that was measured here."""
    try:
        known = [each for each in hook_health(home, since=0.0) if each.provider == provider]
    except DatabaseError:
        known = []
    turns = [each.p50_seconds for each in known if each.hook == "sync_turn" and each.calls]
    return (turns[0], True) if turns else (_GUESS, False)


def has_more(config: Config, target: ProviderKey) -> bool:
    """Whether something was said that a finished replay did not hand over."""
    replay = _next_pass(replays(config.home)[Replay(*target).key])
    return any(turns for session, turns in turns_by_session(config, replay) if session.is_primary)


def prove(config: Config, choice: str, grants: Sequence[str]) -> ChildResults[Finding]:
    """Start a provider in a child process, and have it write something and recall it."""
    deadlines = deadlines_of(config)
    seconds = deadlines.initialize + deadlines.tool + deadlines.write + _SLACK_SECONDS
    call = partial(prove_candidate, config.home, choice, tuple(grants))
    return run_plugin_code(config, call, seconds=seconds, what=f"plugin {choice}")


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A replay that a person wants.

    Attributes:
        choice: The provider: name, or name@owner.
        grants: The variables that are not its own and that it gets.
        since: From when on; None for everything that it does not have.
        parent: The process that waits for it; 0 for none.
    """

    choice: str
    grants: tuple[str, ...] = ()
    since: float | None = None
    parent: int = field(default_factory=os.getpid)


def crowded_by(config: Config, target: ProviderKey) -> str:
    """The provider whose writes fill the outbox, so that another one gets no new turns; or ""."""
    store = admin.open_store(config, set_aside=False)
    try:
        if not store.database.exists:
            return ""
        report = admin.report(store)
    finally:
        store.close()
    most = max(
        report.backlogs, key=lambda each: each.waiting + each.skipped + each.failed, default=None
    )
    if most is None or ActiveProvider(*target).owns(most) or not is_nearly_full(report):
        return ""
    return most.provider


def run_replay(
    config: Config, target: ProviderKey, wanted: ReplayRequest, show: Callable[[int], None]
) -> ReplayResult:
    """Hand a provider its past, in a child process.

    Args:
        config: What config.yaml says.
        target: The provider.
        wanted: What the person wants.
        show: Called with the number of turns and notes that have arrived so far.
    """
    deadlines = deadlines_of(config)
    seconds = deadlines.initialize + deadlines.write + deadlines.shutdown + _SLACK_SECONDS
    store = admin.open_store(config, set_aside=True)

    def arrived() -> object:
        replay = replays(config.home).get(Replay(*target).key)
        waiting = [each.writes for each in _own_streams(store.waiting_streams(), target)]
        done = replay.turns + replay.notes if replay else 0
        show(max(done - sum(waiting), 0))
        return replay, waiting

    try:
        done: ChildResults[ReplayResult] = run_plugin_code(
            config,
            partial(replay_in_child, config.home, wanted),
            seconds=seconds + _LONGEST_WAIT,
            what=f"plugin {wanted.choice}",
            progress=arrived,
        )
    finally:
        store.close()
    if done.results:
        return done.results[-1]
    return replace(
        _result(config, replays(config.home).get(Replay(*target).key)), reason=done.problem
    )


def _own_streams(streams: Sequence[Stream], target: ProviderKey) -> list[Stream]:
    return [each for each in streams if ActiveProvider(*target).owns(each.key)]


def _result(config: Config, replay: Replay | None) -> ReplayResult:
    """What has arrived so far, by the journal and the outbox."""
    if replay is None:
        return ReplayResult()
    store = admin.open_store(config, set_aside=False)
    try:
        backlogs = admin.report(store).backlogs if store.database.exists else ()
    finally:
        store.close()
    own = [each for each in backlogs if ActiveProvider(*replay.target).owns(each)]
    return ReplayResult(
        replay.turns,
        replay.notes,
        replay.characters,
        waiting=sum(each.waiting for each in own),
        skipped=sum(each.skipped for each in own),
        failed=sum(each.failed for each in own),
        reason="" if replay.finished else "it was interrupted",
    )


# -- in the child process -----------------------------------------------------------------------


def prove_candidate(home: Path, choice: str, grants: tuple[str, ...]) -> Iterator[Finding]:
    """Start a provider as `doctor --write` does."""
    config = candidate(load_config(home), choice, grants)
    activation = activate(config)
    try:
        if activation.error is not None:
            raise activation.error
        yield from start_provider(config, activation, write=True)
    finally:
        activation.lease.release()


def replay_in_child(home: Path, wanted: ReplayRequest) -> Iterator[ReplayResult]:
    """Hand a provider its past, and recall a sample of it."""
    with REPLAYS.exclusive(home):
        config = candidate(load_config(home), wanted.choice, wanted.grants)
        worker = _Replayer(config, wanted)
        try:
            yield worker.run()
        finally:
            worker.close()


class _PastWrite(NamedTuple):
    """A turn or a note as a write.

    Attributes:
        write: The write.
        content: The hash of a turn's content; "" for a note, whose event id has it.
    """

    write: NewWrite
    content: str = ""


class _Replayer:
    """Feeds the outbox and delivers it, one batch after the other."""

    def __init__(self, config: Config, wanted: ReplayRequest) -> None:
        installed = installed_providers(config)
        activation = activate(config, installed=installed)
        # Activated only to fail early, and for its secrets: each stream has its own instance.
        activation.lease.release()
        if activation.error is not None:
            raise activation.error
        active = active_provider(config, installed)
        self._config = config
        self._parent = wanted.parent
        self._redactor = redactor_for(config, activation.secrets)
        self._fresh = partial(fresh_instance, config, installed=installed, redactor=self._redactor)
        self._builtin = builtin_of(config)
        self._outbox: Outbox = open_outbox(
            config.home,
            max_mb=admin.max_mb(config),
            durable=config.durable,
            database=home_database(config.home, config.memory),
        )
        self._store = self._outbox.store
        self._replay = planned(config, ProviderKey(active.provider, active.owner), wanted.since)
        self._handed = ReplayedTurns(config.home, self._replay.key, self._replay.began)

    def close(self) -> None:
        self._handed.close()
        self._outbox.release()

    def run(self) -> ReplayResult:
        """Hand over all there is; pass after pass, until nothing was said meanwhile."""
        self._builtin.spooled(self._config.home, seconds=_SPOOL_SECONDS)
        self._finish_stored()
        # A person asks for it, so the pause after an earlier failure ends.
        self._store.make_due([each.id for each in self._waiting()])
        save_replay(self._config.home, self._replay)
        reason = self._delivered() or self._notes()
        count = -1
        while not reason and count != self._replay.turns:
            count = self._replay.turns
            reason = self._pass()
            if not reason and count != self._replay.turns:
                self._replay = save_replay(self._config.home, _next_pass(self._replay))
        if reason:
            return replace(_result(self._config, self._replay), reason=reason)
        self._replay = save_replay(self._config.home, replace(self._replay, finished=time.time()))
        return self._recall_sample(_result(self._config, self._replay))

    # -- handing over -----------------------------------------------------------------------

    def _finish_stored(self) -> None:
        """Note what a killed run had stored in the outbox; once delivered, it is not there."""
        stored = {each.event_id for each in admin.entries(self._store)}
        self._handed.finish(self._handed.interrupted() & stored)
        replay, count = self._replay, self._handed.count()
        if replay.has_notes:
            self._replay = replace(replay, turns=max(replay.turns, count - replay.notes))
        else:  # the notes are handed over first
            self._replay = replace(replay, notes=max(replay.notes, count - replay.turns))

    def _pass(self) -> str:
        """Hand over the turns of one period; why it ended early, or ""."""
        batch: list[_PastWrite] = []
        cursor = self._replay
        present = {each.event_id for each in admin.entries(self._store)}
        for session in sessions_of(self._config, cursor):
            if not session.is_primary:
                continue
            key = admin.key_of(self._store, cursor.target, session)
            turns = turns_of(self._replay, session, self._handed)
            self._handed.add_contents(known for known, _ in turns if known.is_done)
            for known, turn in turns:
                if known.is_done or known.event in present:
                    continue
                payload = admin.turn_payload(turn, session.session, self._mask)
                write = NewWrite(key, known.event, payload, turn["at"])
                batch.append(_PastWrite(write, known.content))
                cursor = replace(
                    cursor,
                    turns=cursor.turns + 1,
                    characters=cursor.characters + length_of(turn),
                )
                if self._is_full(batch):
                    if reason := self._hand_over(batch, cursor):
                        return reason
                    batch = []
        return self._hand_over(batch, cursor)

    def _is_full(self, batch: Sequence[_PastWrite]) -> bool:
        size = sum(len(each.write.payload) for each in batch)
        return len(batch) >= _BATCH or size > self._store.max_bytes / _BATCH_SHARE

    def _hand_over(self, batch: Sequence[_PastWrite], after: Replay) -> str:
        """Store a batch, note that it is, and deliver it; why that failed, or ""."""
        contents = {each.write.event_id: each.content for each in batch}
        events = [*contents]
        # A run that was interrupted may have stored these.
        again = self._handed.begun(events)
        self._handed.begin(contents)
        writes = [
            each._replace(attempts=int(self._replay.looks_up or each.event_id in again))
            for each, _ in batch
        ]
        # Each batch is delivered before the next. So the limit is only for what failed: the backlog
        # of the previous provider must not prevent leaving it.
        if writes and not admin.add_writes(self._store, writes, only=self._replay.target):
            return _FULL
        self._handed.finish(events)
        self._replay = save_replay(self._config.home, after)
        return self._delivered() or self._all_refused(events)

    def _all_refused(self, events: Sequence[str]) -> str:
        """Why to stop, if nothing of a batch was accepted."""
        left = [each for each in admin.entries(self._store) if each.event_id in events]
        return left[-1].error if events and len(left) == len(events) else ""

    def _notes(self) -> str:
        """Hand over the notes that are there now, before the turns."""
        if self._replay.has_notes:
            return ""
        present = {each.event_id for each in admin.entries(self._store)}
        ahead = notes_ahead(self._config, self._replay, self._handed)
        notes = [each for each in ahead if note_event(self._replay, each) not in present]
        length = sum(len(each.change["content"]) for each in notes)
        cursor = replace(
            self._replay,
            has_notes=True,
            notes=self._replay.notes + len(notes),
            characters=self._replay.characters + length,
        )
        return self._hand_over([self._note(each) for each in notes], cursor)

    def _note(self, note: PastNote) -> _PastWrite:
        key, event = note_key(self._replay, note), note_event(self._replay, note)
        payload = dumps(self._mask(note.change), default=str)
        at = note.at or time.time()
        return _PastWrite(NewWrite(key, event, payload, at, "on_memory_write"))

    def _mask(self, value: Any) -> Any:
        return self._redactor.redact(value).value

    # -- delivering -------------------------------------------------------------------------

    def _delivered(self) -> str:
        """Deliver what waits for the provider; why something still waits, or ""."""
        failures, reason = 0, ""
        while streams := self._waiting():
            before = sum(each.writes for each in streams)
            reason = self._deliver(streams) or reason
            streams = self._waiting()
            if sum(each.writes for each in streams) < before:
                failures = 0
                continue
            failures += not any(map(self._store.is_claimed_elsewhere, streams))
            wait = min((each.due for each in streams), default=0.0) - self._store.clock()
            if failures >= _TRIES or wait > _LONGEST_WAIT:
                return reason or "a call is still running"
            time.sleep(max(wait, _PAUSE))
        return ""

    def _waiting(self) -> list[Stream]:
        return _own_streams(self._store.waiting_streams(), self._replay.target)

    def _deliver(self, streams: Sequence[Stream]) -> str:
        """Try each stream once; the last error."""
        error = ""
        for each in streams:
            if self._parent and os.name == "posix" and os.getppid() != self._parent:
                raise HermesError("the command that started this has ended")
            # A running agent delivers its own streams; two at once would deliver twice.
            if each.due > self._store.clock() or not self._store.claim(each.id):
                continue
            try:
                deliver_inherited(self._outbox, each, self._fresh)
            except HermesError as failure:
                error = str(failure)
            else:
                write = self._store.next_waiting(each.id)
                error = write.error if write is not None else error
        return error

    # -- recalling --------------------------------------------------------------------------

    def _recall_sample(self, result: ReplayResult) -> ReplayResult:
        """Ask about some turns; the result with how many were recalled."""
        sample = list(self._sample())
        asked = [(key, question) for key, question in sample if question is not None]
        judged: dict[int, Judgement] = {}
        end = time.monotonic() + _RECALL_SECONDS
        while asked:
            for number, (key, question) in enumerate(asked):
                if judged.get(number) is not Judgement.RECALLED:
                    answer = self._recalled(key, question.text)
                    if answer is None:
                        return result
                    judged[number] = question.judge(answer, self._recalled(key, CONTROL) or "")
            if set(judged.values()) == {Judgement.RECALLED} or time.monotonic() > end:
                break
            time.sleep(_PAUSE)
        found = Counter(judged.values())
        known = found[Judgement.RECALLED] + found[Judgement.MISSING]
        return replace(
            result,
            sampled=known,
            recalled=found[Judgement.RECALLED],
            unjudged=len(sample) - known,
        )

    def _sample(self) -> Iterator[tuple[StreamKey, Question | None]]:
        """Questions about turns from the whole time, without secrets; None if there is none."""
        whole = replace(self._replay, since=self._replay.asked)
        places = [each.place for each in sessions_of(self._config, whole) if each.is_primary]
        step = max(len(places) // _SAMPLE, 1)
        wanted = set(places[::step][:_SAMPLE])
        chosen: list[tuple[StreamKey, list[dict[str, Any]]]] = []
        for session in sessions_of(self._config, whole) if wanted else ():
            turns = list(session.turns()) if session.place in wanted else []
            if turns:
                middle = len(turns) // 2
                some = [*turns[middle:], *turns[:middle]][:_CANDIDATES]
                key = admin.key_of(self._store, whole.target, session)
                chosen.append((key, [self._mask(each) for each in some]))
        said = (
            turn
            for session in (sessions_of(self._config, whole) if chosen else ())
            for turn in session.turns()
        )
        counts, total = count_words((turn for _, turns in chosen for turn in turns), said)
        for key, turns in chosen:
            questions = (question_about(turn, counts, total) for turn in turns)
            yield key, next(filter(None, questions), None)

    def _recalled(self, key: StreamKey, query: str) -> str | None:
        """What the provider recalls in a session; None if it does not recall."""
        fresh = self._fresh(key)
        hooks = HookCalls()
        hooks.add(fresh.adapter)
        try:
            if not fresh.adapter.overrides("prefetch"):
                return None
            session = replace(key.context, hermes_home=str(self._config.home))
            start = hooks.only(fresh.adapter, "initialize")
            start(session_id=session.session_id, extra=session.keywords())
            recall = hooks.only(fresh.adapter, "prefetch")
            return str(recall(query=query, session_id=session.session_id).value or "")
        finally:
            hooks.only(fresh.adapter, "shutdown")()
            fresh.adapter.close(0)
            hooks.close()
            fresh.close()
