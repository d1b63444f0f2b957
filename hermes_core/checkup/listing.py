"""All memories of the external provider, for an export.

A child process starts the provider once for each person and writes what it lists to a file. The
parent reads that file in an order that does not depend on the backend.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from hermes_core.checkup.child_process import run_plugin_code
from hermes_core.config import Config, load_config
from hermes_core.dispatch import SingleProvider
from hermes_core.errors import HermesError, describe
from hermes_core.loading.activation import Activation, activate, deadlines_of
from hermes_core.privacy import without_secrets
from hermes_core.provider import MEMORY_ORDER, MemoryItem, MemoryPage
from hermes_core.session import SessionContext
from hermes_core.storage.child import map_texts

_DEFAULT_PROFILE: Final = SessionContext("").agent_identity


@dataclass(frozen=True, slots=True)
class Listing:
    """What a provider listed.

    Attributes:
        provider: Its name.
        can_list: Whether the plugin implements `list_memories`.
        memories: How many there are.
        problems: Why some or all of them are missing.
    """

    provider: str = ""
    can_list: bool = True
    memories: int = 0
    problems: tuple[str, ...] = ()


def list_memories(config: Config, people: Sequence[Mapping[str, Any]], file: Path) -> Listing:
    """Have the external provider list its memories, in a child process.

    Args:
        config: What config.yaml says.
        people: The keywords of ``initialize`` of each person.
        file: A new file, which gets the memories, one JSON object per line. See `read_memories`.
    """
    deadlines = deadlines_of(config)
    # Of one person and one page: the child may go on as long as the file grows.
    seconds = deadlines.initialize + deadlines.tool + deadlines.shutdown
    file.touch(mode=0o600)
    call = partial(write_memories, config.home, list(people), file)
    done = run_plugin_code(config, call, seconds=seconds, progress=lambda: file.stat().st_size)
    problems = [done.problem] if done.problem else []
    for each in done.results:
        problems += each.problems
    return Listing(
        config.selection.name,
        all(each.can_list for each in done.results),
        sum(each.memories for each in done.results),
        tuple(dict.fromkeys(problems)),
    )


def read_memories(file: Path) -> Iterator[dict[str, Any]]:
    """What was listed, by person and id. Only ids and places are in memory."""
    places: list[tuple[tuple[str, ...], int]] = []
    with file.open("rb") as lines:
        at = 0
        for line in lines:
            with suppress(ValueError):  # the last one, of a child that was ended
                record = json.loads(line)
                places.append((tuple(str(record.get(key, "")) for key in MEMORY_ORDER), at))
            at += len(line)
        for _, place in sorted(places):
            lines.seek(place)
            yield json.loads(lines.readline())


# -- in the child process -----------------------------------------------------------------------


def write_memories(
    home: Path, people: Sequence[Mapping[str, Any]], file: Path
) -> Iterator[Listing]:
    """In the child process: start the provider for each person, and write what it lists."""
    config = load_config(home)
    known: set[str] = set()
    with file.open("a", encoding="utf-8") as target:
        for number, person in enumerate(people, 1):
            activation = activate(config)
            try:
                pages = _pages(config, activation, person)
                yield _written(pages, _owner(person), known, target)
            except _CannotListError:
                yield Listing(can_list=False)
                return
            except Exception as error:  # noqa: BLE001 - whatever the plugin raises
                # The next person would wait as long, for the same error.
                yield Listing(problems=(_failure(config, error, len(people) - number),))
                return
            finally:
                activation.lease.release()


class _CannotListError(HermesError):
    """The plugin does not implement `list_memories`."""


def _failure(config: Config, error: Exception, left: int) -> str:
    more = f"; {left:,} more people were not asked for" if left else ""
    return f"{config.selection.name}: {describe(error)}{more}"


def _owner(person: Mapping[str, Any]) -> dict[str, str]:
    """Whose memories they are, without what is empty."""
    platform, user, chat, profile = SessionContext.from_keywords("", person).identity
    profile = "" if profile == _DEFAULT_PROFILE else profile
    found = {"platform": platform, "user_id": user, "chat_id": chat, "profile": profile}
    return {key: value for key, value in found.items() if value}


def _pages(
    config: Config, activation: Activation, person: Mapping[str, Any]
) -> Iterator[MemoryPage]:
    context = SessionContext.from_keywords("", person)
    keywords = replace(context, hermes_home=str(config.home)).keywords()
    values = activation.settings.values if activation.settings else None
    if activation.provider is None:
        raise activation.error or HermesError("it is not available")
    name = config.selection.name
    with SingleProvider(
        activation.provider, name, deadlines=deadlines_of(config), config=values
    ) as single:
        if not single.overrides("list_memories"):
            raise _CannotListError("can't list its memories")
        _called(single, "initialize", session_id="export", extra=keywords)
        cursors = {""}
        cursor = ""
        while True:
            page: MemoryPage = _called(single, "list_memories", cursor=cursor) or MemoryPage()
            yield page
            cursor = page.cursor
            if not cursor:
                break
            if cursor in cursors:
                raise HermesError("list_memories returned a cursor a second time")
            cursors.add(cursor)
        single.call("shutdown")


def _called(single: SingleProvider, hook: str, **arguments: Any) -> Any:
    outcome = single.call(hook, **arguments)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def _written(
    pages: Iterator[MemoryPage], owner: Mapping[str, str], known: set[str], target: IO[str]
) -> Listing:
    count = 0
    missing: list[str] = []
    for page in pages:
        missing += [page.missing] if page.missing else []
        for item in page.items:
            if item.id in known:  # several people may share what a backend knows
                continue
            known.add(item.id)
            count += 1
            record = map_texts(_record(item, owner), without_secrets)
            target.write(json.dumps(record) + "\n")
        target.flush()
    return Listing(memories=count, problems=tuple(dict.fromkeys(missing)))


def _record(item: MemoryItem, owner: Mapping[str, str]) -> dict[str, Any]:
    return {
        **owner,
        "id": item.id,
        **({"created": item.created} if item.created else {}),
        "text": item.text,
        **({"metadata": dict(item.metadata)} if item.metadata else {}),
    }
