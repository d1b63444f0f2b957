"""What a search reads from a database: the messages and the index of an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from hermes_builtin.sessions.archive import Scope, Session
from hermes_builtin.sessions.ranking import Spread

#: Words of which a message has one. ``word*`` stands for all words that begin so: no index word
#: has an asterisk in it.
Group = tuple[str, ...]


#: Groups of each of which a message has a word.
Match = Sequence[Group]


class Source(Protocol):
    """The messages and the index of an archive, as one search sees them.

    It knows which roles are looked for and which words must not be in a message; `newest`,
    `within` and `sessions_with` leave out what is not to be found.
    """

    def counts(self, words: Iterable[str]) -> Mapping[str, int]:
        """In about how many messages words are; those that are in none are left out."""

    def terms(self, prefix: str, limit: int) -> list[tuple[str, int]]:
        """Words that begin like this, and in about how many messages they are."""

    def newest(self, match: Match, limit: int, below: int | None = None) -> list[int]:
        """The messages that match, at most so many, those with the largest numbers."""

    def spread(self, groups: Sequence[Group], most: int) -> list[Spread | None] | None:
        """In how many messages and sessions of all people a word of each group is, about.

        Args:
            groups: What is looked up, the rarest first.
            most: How many messages are counted in all. For groups behind that, it is None.

        Returns:
            None if `newest` returns the messages of all people, too: then they can be counted.
        """

    def within(
        self, groups: Sequence[Group], sessions: Sequence[int], limit: int | None
    ) -> list[list[int]]:
        """For each group the messages of these sessions, the first so many of each session."""

    def sessions_with(self, group: Group) -> list[int]:
        """The sessions that have a message that matches. Takes time where there are many."""

    def containing(self, text: str, sessions: Sequence[int], limit: int) -> list[int]:
        """The last messages of each of these sessions that have a text in them as it stands."""

    def texts(self, numbers: Iterable[int]) -> Iterable[tuple[int, str, str | None]]:
        """Numbers, contents and extras of messages."""

    def sizes(self, numbers: Iterable[int]) -> Mapping[int, int]:
        """The lengths of messages."""

    def in_time(
        self, numbers: Iterable[int], after: float | None, before: float | None
    ) -> set[int]:
        """Those messages that are not older than one time, and older than the other."""

    def by_number(self, numbers: Iterable[int]) -> Iterable[Session]:
        """Sessions by their numbers, the largest first."""

    def named(self, name: str) -> Iterable[Session]:
        """The session of this id, then those that hosts call so, the last active first."""

    def parents(self, sessions: Sequence[Session]) -> Sequence[Iterable[Session]]:
        """For each session those that its ``parent`` names, as in `named`.

        Sessions of other users may be left out.
        """

    def newest_sessions(
        self,
        scope: Scope,
        limit: int,
        *,
        oldest: bool = False,
        after: float | None = None,
        before: float | None = None,
    ) -> Iterable[Session]:
        """The sessions that may be seen, those with the newest messages first, or the oldest.

        With ``after`` and ``before`` only those that were going on in that time.
        """

    def in_times(self, times: Iterable[tuple[float, float]], limit: int) -> Iterable[Session]:
        """Sessions that were going on in one of these times, at most so many of each."""

    def titles(self) -> Iterable[tuple[int, str]]:
        """The title of each session that has one, by its number."""

    def times(self, numbers: Iterable[int]) -> Iterable[tuple[int, float]]:
        """When sessions had their last message."""


class Lineages:
    """Which session continues which.

    Args:
        parents: For each of some sessions those that its parent names; see `Source`.
    """

    def __init__(self, parents: Callable[[Sequence[Session]], Sequence[Iterable[Session]]]) -> None:
        self._candidates = parents
        self._parents: dict[tuple[str, Scope], Session | None] = {}

    def load(self, sessions: Iterable[Session]) -> None:
        """Look up what sessions continue: one question for all of a generation."""
        following: Iterable[Session | None] = sessions
        while some := self._unknown(following):
            found = self._candidates(list(some.values()))
            for (key, session), candidates in zip(some.items(), found, strict=True):
                # A host may name any session as the parent: one of somebody else is not looked at.
                theirs = (each for each in candidates if each.is_of_the_same_person(session))
                self._parents[key] = next(theirs, None)
            following = [self._parents[key] for key in some]

    def _unknown(self, sessions: Iterable[Session | None]) -> dict[tuple[str, Scope], Session]:
        """Sessions whose parents were not looked up yet. Many may share a lineage."""
        wanted = {(each.parent, each.owner): each for each in sessions if each and each.parent}
        return {key: each for key, each in wanted.items() if key not in self._parents}

    def of(self, session: Session) -> list[str]:
        """The ids of a session and of those that it continues."""
        self.load([session])
        # A dict has an order and notices a cycle, which an import can create.
        found = dict.fromkeys([session.id])
        following: Session | None = session
        while following is not None and following.parent:
            parent = self._parents[following.parent, following.owner]
            name = following.parent if parent is None else parent.id
            if name in found:
                break
            found[name] = None
            following = parent
        return list(found)

    def root(self, session: Session) -> str:
        """The first session of a lineage."""
        return self.of(session)[-1] if session.parent else session.id
