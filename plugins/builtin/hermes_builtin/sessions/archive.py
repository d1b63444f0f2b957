"""The archive of conversations as a protocol, and the data that it stores and returns."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from json import dumps, loads
from os import urandom
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from hermes_builtin.sessions.numbers import bounds, place_of
from hermes_builtin.sessions.words import words
from hermes_core.errors import DatabaseError
from hermes_core.privacy.origin import ASSISTANT, DELEGATION, USER, of_message
from hermes_core.session import LOCAL, TERMINAL

if TYPE_CHECKING:
    from uuid import UUID

    from hermes_builtin.sessions.query import Query  # it imports this module


# -- What the archive keeps, and what it is asked: plain data, no database ----------------------

ROLES: Final = ("user", "assistant", "tool")
TALK: Final = frozenset(("user", "assistant"))

#: Conversations of machines with machines: not shown unless asked for.
HIDDEN_SOURCES: Final = frozenset(("kanban", "subagent", "tool"))
CRON: Final = "cron"
#: Sources that are no platform: somebody of some platform started it, or imported it.
NO_PLATFORMS: Final = frozenset(
    ("chatgpt", "claude", "cron", "flush", "import", "kanban", "subagent", "tool")
)
SUBAGENT: Final = "subagent"
#: Where no person spoke.
NOBODY: Final = HIDDEN_SOURCES | {CRON, "flush"}


# In a gateway, one archive has the conversations of many people. Every read takes a scope, so that
# a missing check shows up as a missing argument.
class Scope(NamedTuple):
    """Whose conversations may be seen: what is given must be equal, and None means any.

    "" is a value like any other: the conversations of nobody in particular. So an empty id never
    opens the conversations of everybody.
    """

    user_id: str | None = None
    chat_id: str | None = None
    profile: str | None = None
    platform: str | None = None

    @classmethod
    def of(cls, platform: str, user_id: str, chat_id: str, profile: str) -> Scope:
        """What a person may see, by the full identity that the host gave.

        Ids of two platforms have nothing to do with each other, so the platform is part of who
        somebody is. Somebody with an id sees their own conversations: of one chat if the host
        names it, else of all. Without an id,

        - the person at an interface on the machine (see `LOCAL`) owns it, and sees all
          conversations without a user: their own, imported ones, those of cron jobs, and those
          from before platforms were kept;
        - anybody else is identified by the chat alone, which must be the same, also if it is "".
        """
        own = profile or None
        if user_id:
            return cls(user_id, chat_id or None, own, platform)
        if platform in LOCAL:
            return cls("", chat_id or None, own, None)
        return cls("", chat_id, own, platform)


EVERYBODY: Final = Scope()


class SessionFacts(NamedTuple):
    """What is known of a conversation when it begins.

    ``id`` is what the host calls it; ``platform`` is "" if it is the source, and ``name`` what
    the host called it if the id is not that (in an export).
    """

    id: str
    source: str = ""
    user_id: str = ""
    chat_id: str = ""
    profile: str = ""
    title: str = ""
    parent: str = ""
    started: float = 0.0
    ended: float | None = None
    platform: str = ""
    name: str = ""


class Session(NamedTuple):
    """A conversation in the archive.

    Attributes:
        number: The archive's own name for it.
        id: What people and models call it: no two conversations have the same.
        platform: Where it took place; "" if that is what ``source`` says.
        name: What the host calls it, if a conversation of somebody else has that id; else "".
    """

    number: int
    id: str
    source: str
    user_id: str
    chat_id: str
    profile: str
    title: str
    parent: str
    started: float
    ended: float | None
    active: float
    messages: int
    platform: str
    name: str

    @property
    def place(self) -> str:
        """The platform that is part of its owner's identity."""
        return self.platform or self.source or TERMINAL

    @property
    def owner(self) -> Scope:
        """Whose it is, to the letter."""
        return Scope(self.user_id, self.chat_id, self.profile, self.place)

    def is_in(self, scope: Scope) -> bool:
        """Whether it may be seen."""
        return all(
            wanted is None or wanted == own for wanted, own in zip(scope, self.owner, strict=True)
        )

    @property
    def key(self) -> str:
        """What stands for it in every home, and does not say whose it is."""
        exact = (self.name or self.id, *map(str, self.owner))
        text = "\0".join(f"{len(each)}:{each}" for each in exact)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def has(self, message_id: int) -> bool:
        """Whether the number of a message is one of this session's."""
        low, high = bounds(self.number)
        return low <= message_id <= high

    def is_of_the_same_person(self, other: Session) -> bool:
        """Whether two conversations can be of one lineage."""
        chat = "" if self.user_id else self.chat_id
        person = Scope.of(self.place, self.user_id, chat, self.profile)
        return other.is_in(person._replace(profile=self.profile))


class NewMessage(NamedTuple):
    """A message to store. ``extra`` has the tool's name, its calls, and what else there is."""

    role: str
    content: str
    at: float
    extra: Mapping[str, Any] | None = None


class Message(NamedTuple):
    """A message in the archive."""

    id: int
    role: str
    content: str
    at: float
    extra: Mapping[str, Any]


class Hit(NamedTuple):
    """A conversation that was found, by its best message."""

    session: Session
    message_id: int
    score: float


class TitleMatch(NamedTuple):
    """A conversation whose title has the words of a query, or is the query (``exact``)."""

    session: Session
    exact: bool


class SearchAnswer(NamedTuple):
    """The answer to a search.

    Attributes:
        hits: The best first.
        words: The index words that were looked for, to show them in the texts.
        approximate: A word was so frequent that not all of its messages were looked at.
        behind: Why the newest messages could not be looked at.
    """

    hits: list[Hit]
    words: frozenset[str]
    approximate: bool = False
    behind: str = ""


# -- What a message says, whatever form its content has -----------------------------------------

_FAR: Final = 1e12  # seconds; nobody talks in the year 30,000


def content_text(content: Any) -> str:
    """Text, or the texts of its parts, with a word for parts of another kind."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        # Whatever a host passes is stored in some form: a turn is never lost because of its type.
        return dumps(content, ensure_ascii=False, default=str, skipkeys=True)
    return "\n".join(filter(None, map(_part, content)))


#: Of a part without text: what says how to read it, and what no one reads.
_NO_TEXT: Final = frozenset(
    (
        *("type", "id", "tool_use_id", "call_id", "file_id", "name", "input", "status", "is_error"),
        *("url", "uri", "image_url", "mimeType", "media_type", "blob", "input_audio", "file_data"),
        *("signature", "encrypted_content", "cache_control", "annotations", "_meta"),
    )
)
_DEEPEST: Final = 20


def _part(part: Any, depth: int = 0) -> str:
    if isinstance(part, str):
        return part
    if depth > _DEEPEST:
        return ""
    if isinstance(part, list | tuple):
        return "\n".join(filter(None, (_part(each, depth + 1) for each in part)))
    if not isinstance(part, dict):
        return ""
    text = part.get("text")
    if isinstance(text, str) and text:
        return text
    # "data" is an image or a sound, except in a document that is plain text.
    unread = _NO_TEXT if part.get("type") == "text" else _NO_TEXT | {"data"}
    inner = [_part(value, depth + 1) for key, value in part.items() if key not in unread]
    found = "\n".join(filter(None, inner))
    is_other = depth == 0 and text is None
    return found or (f"[{part.get('type') or 'attachment'}]" if is_other else "")


def new_message(given: Mapping[str, Any], now: float) -> NewMessage:
    """A message as hosts have it (OpenAI's form) as the archive takes it."""
    extra = {
        key: given[key] for key in ("tool_calls", "tool_call_id", "tool_name") if given.get(key)
    }
    role = str(given.get("role") or "other")
    if role == "tool" and given.get("name"):
        extra.setdefault("tool_name", given["name"])
    # Stored only where it can't be derived.
    if given.get("origin") and (origin := of_message(given)) != of_message({**extra, "role": role}):
        extra["origin"] = origin
    content = given.get("content")
    if content is None and not given.get("role"):  # an item of another API, whatever it says
        content = [given]
    return NewMessage(role, content_text(content), _time(given, now), extra)


def message_origin(source: str, message: Message | NewMessage) -> str:
    """Where a message comes from. ``source`` is its session's: in some, no person speaks."""
    origin = of_message({**(message.extra or {}), "role": message.role})
    if origin == USER and source == SUBAGENT:  # the agent that gave it its task
        return DELEGATION
    return ASSISTANT if origin == USER and source in NOBODY else origin


def _time(given: Mapping[str, Any], now: float) -> float:
    at = given.get("timestamp")
    # Hosts pass milliseconds, text and None; a wrong time would sort the session into another
    # century.
    if isinstance(at, bool) or not isinstance(at, int | float) or not -_FAR < at < _FAR:
        return now
    return float(at)


def searchable(content: str, extra: Mapping[str, Any]) -> str:
    """What of a message can be found: what it says, and what tools it calls with what."""
    parts = [content, str(extra.get("tool_name") or "")]
    calls = extra.get("tool_calls") or ()
    for call in calls if isinstance(calls, list | tuple) else (calls,):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            parts += [str(function.get("name") or ""), str(function.get("arguments") or "")]
        else:
            parts.append(str(call))
    return "\n".join(filter(None, parts))


def indexed_words(content: str, extra: str | None) -> list[str]:
    """The words by which a message can be found, in order."""
    return words(searchable(content, facts_of(extra)) if extra else content)


def facts_of(extra: str | None) -> dict[str, Any]:
    """What else is known of a message; {} if it is no longer what was stored."""
    try:
        facts = loads(extra) if extra else {}
    except (ValueError, TypeError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


# -- What an archive of conversations can do, whatever it is made of ----------------------------
#
# The tool and the commands know this and nothing of SQLite.

Progress = Callable[[int, int], None]


class SearchOptions(NamedTuple):
    """How to search: for whom, how much, in which order, and what to leave out."""

    scope: Scope
    roles: frozenset[str]
    limit: int
    newest: bool | None = None
    without: tuple[str, ...] = ()
    hidden: bool = False
    profiles: frozenset[str] = frozenset()  # empty: any


class StoredTurn(NamedTuple):
    """A turn that was stored under a key: when, and the ids of its messages."""

    key: UUID
    at: float
    ids: list[int]


class Period(NamedTuple):
    """Which sessions to browse, by time.

    Attributes:
        after: Only those that were going on at this time or later.
        before: Only those that began before this time.
        older: Only those that follow the session with this ``active`` and ``number``, to go on
            where a page ended.
    """

    after: float | None = None
    before: float | None = None
    older: tuple[float, int] | None = None

    @property
    def conditions(self) -> dict[str, tuple[float, ...]]:
        """The same in SQL, with a question mark for each value."""
        given: dict[str, tuple[float, ...] | None] = {
            "active >= ?": None if self.after is None else (self.after,),
            "started < ?": None if self.before is None else (self.before,),
            "(active, number) < (?, ?)": self.older,
        }
        return {text: values for text, values in given.items() if values is not None}


ALWAYS: Final = Period()


class Window(NamedTuple):
    """A stretch of a conversation, and how much there is on either side of it."""

    messages: list[Message]
    before: int
    after: int

    def shown_before(self, message_id: int) -> int:
        """How many of its messages are before one of them."""
        return sum(each.id < message_id for each in self.messages)


class Span(NamedTuple):
    """Messages to read: those with numbers from ``low`` to ``high``, at most ``most`` of them.

    Attributes:
        roles: Only of these; of any, if empty.
        last: The last of them, if there are more; else the first.
    """

    low: int
    high: int
    most: int
    roles: Iterable[str] = ()
    last: bool = False

    @classmethod
    def first_of(cls, session: Session, most: int, roles: Iterable[str] = ()) -> Span:
        """How a session begins."""
        return cls(*bounds(session.number), most, roles)

    @classmethod
    def last_of(cls, session: Session, most: int, roles: Iterable[str] = ()) -> Span:
        """How a session ends."""
        return cls(*bounds(session.number), most, roles, last=True)

    @classmethod
    def around(
        cls, session: Session, message_id: int, window: int, roles: Iterable[str]
    ) -> tuple[Span, Span, Span]:
        """The messages before one, that one, and those after it; see `window_of`."""
        low, high = bounds(session.number)
        message_id = min(max(message_id, low - 1), high + 1)
        return (
            cls(low, message_id - 1, window, roles, last=True),
            cls(message_id, message_id, 1),
            cls(message_id + 1, high, window, roles),
        )


def window_of(
    session: Session, before: list[Message], here: list[Message], after: list[Message]
) -> Window:
    """What was read of the three spans around a message; empty, if the session does not have it."""
    if not here or not session.has(here[0].id):
        return Window([], 0, 0)
    messages = [*before, *here, *after]
    # By places, which include messages of other roles: "remaining" counts everything beyond.
    left = session.messages - 1 - place_of(messages[-1].id)
    return Window(messages, place_of(messages[0].id), max(left, 0))


class Stats(NamedTuple):
    """How much an archive holds."""

    sessions: int
    messages: int
    oldest: float | None
    newest: float | None
    bytes: int
    by_source: dict[str, int]


#: Stands for the text of a message that a person had forgotten.
FORGOTTEN: Final = "[forgotten]"
_OTHER_MARKERS: Final = ("[removed]", "[...]")

Matches = Callable[[str], bool]


def marker(matches: Matches) -> str:
    """What stands for a text that was forgotten; it must not be found itself."""
    return next(each for each in (FORGOTTEN, *_OTHER_MARKERS) if not matches(each))


class TextOccurrences(NamedTuple):
    """The messages and the sessions (by title) that have a text, and how the first of them go."""

    messages: list[int]
    titles: list[int]
    previews: list[str]


class Unused(NamedTuple):
    """How many words of the vocabulary, and ids of a person, no conversation has any more."""

    words: int = 0
    people: int = 0


#: How the marks begin that a deletion and a replacement of texts leave: see `Archive.marked`.
DELETED: Final = "deleted:"
REPLACED: Final = "replaced:"
#: How the name begins under which an unfinished copy notes up to which place a session, by its
#: number, is a copy and nothing else.
COPIED: Final = "copied:"
#: Under which name an archive has the id of the migration that copies to it.
INCOMPLETE: Final = "incomplete copy"


def deletion_mark(session: Session) -> str:
    """A new mark of a deleted session: its key, which says nothing, a random number, its size."""
    return f"{DELETED}{session.key}:{urandom(8).hex()}:{session.messages}"


def deleted_session(mark: str) -> tuple[str, int]:
    """The key of a deleted session, and how many messages it had."""
    _, key, _, size = mark.split(":")
    return key, int(size)


class ArchiveProblem(NamedTuple):
    """Something that is wrong. ``index_only`` if the conversations themselves are whole."""

    what: str
    index_only: bool = False


class Reader(Protocol):
    """What an archive answers: several reads of one call may share a connection.

    The last methods follow from the others.
    """

    def session(self, session_id: str, scope: Scope) -> Session | None:
        """One session, if it may be seen."""

    def browse(
        self,
        scope: Scope,
        limit: int,
        *,
        hidden: bool = False,
        profiles: Container[str] = (),
        within: Period = ALWAYS,
    ) -> list[Session]:
        """The sessions with the newest messages; of these profiles only, if any is named."""

    def search(self, query: Query, options: SearchOptions) -> SearchAnswer:
        """The sessions that say most of what a query asks for."""

    def titled(self, query: Query, options: SearchOptions) -> list[TitleMatch]:
        """The sessions whose titles a query asks for, those that it names exactly first."""

    def owner(self, message_id: int, scope: Scope) -> Session | None:
        """The session that a message belongs to, if it may be seen."""

    def has_profile(self, profiles: Iterable[str]) -> bool:
        """Whether there is a session of one of these profiles."""

    # Whoever has a session may see it: it came from a read with a scope. PostgreSQL compares each
    # message with a scope as well: with the one that is given, or else with that of the reader.

    def lineages(self, sessions: Sequence[Session]) -> list[list[str]]:
        """For each session its id and the ids of those that it continues, up to the first."""

    def read(self, spans: Sequence[Span], scope: Scope | None = None) -> list[list[Message]]:
        """For each span its messages, in their order."""

    def lineage(self, session: Session) -> list[str]:
        """The ids of a session and of those that it continues, up to the first."""
        return self.lineages([session])[0]

    def around(
        self,
        session: Session,
        message_id: int,
        window: int,
        roles: Iterable[str],
        scope: Scope | None = None,
    ) -> Window:
        """The messages on either side of one, and that one."""
        spans = Span.around(session, message_id, window, roles)
        return window_of(session, *self.read(spans, scope))

    def first(
        self,
        session: Session,
        count: int,
        roles: Iterable[str] = (),
        scope: Scope | None = None,
    ) -> list[Message]:
        """How a session begins."""
        return self.read([Span.first_of(session, count, roles)], scope)[0]

    def last(
        self,
        session: Session,
        count: int,
        roles: Iterable[str] = (),
        scope: Scope | None = None,
    ) -> list[Message]:
        """How a session ends, in order."""
        return self.read([Span.last_of(session, count, roles)], scope)[0]


class Archive(Reader, Protocol):
    """Every conversation, in the order in which it was said."""

    def reading(self, scope: Scope) -> AbstractContextManager[Reader]:
        """Several reads of one call, of which most have this scope.

        A search in it finds what was stored before it began.
        """

    def prepare(self) -> None:
        """Make it, if need be, so that others can read it before the first message."""

    def once(self, what: str) -> bool:
        """Whether this is the first time that somebody asks, so that a thing is said once."""

    def marked(self, prefix: str) -> list[str]:
        """Everything that `once` was asked with this beginning, and the marks of deletions."""

    def append(
        self, facts: SessionFacts, messages: Sequence[NewMessage], key: UUID | None = None
    ) -> list[int]:
        """Store messages, all or none, and begin the session if it is new; return their ids.

        Args:
            facts: What is known of the session.
            messages: What was said.
            key: What the writer calls this turn. After an error it may be unknown whether a server
                has stored the turn; stored again under the same key, it is there once.
        """

    def end(self, session_id: str, at: float, scope: Scope) -> None:
        """Record when a session ended, if it may be seen."""

    def people(self, user_id: str | None = None) -> list[tuple[str, str]]:
        """The platform and the id of each user with a conversation, or of those with this id."""

    def messages(self, session: Session) -> Iterator[Message]:
        """All that was said in a session."""

    def sessions(self, scope: Scope) -> Iterator[Session]:
        """All sessions, the oldest first."""

    def imported(self, origin: str, session: str) -> int:
        """How much of a session of somebody else was taken over before; of anybody for "".

        What our own spool handed over does not count as somebody's.
        """

    def take_over(
        self,
        origin: str,
        position: int,
        facts: SessionFacts,
        messages: Sequence[NewMessage],
        key: UUID | None = None,
    ) -> None:
        """Store imported messages, and that this was done up to ``position``.

        With a ``key``, the messages of a turn that `append` has stored are not stored again.
        """

    def set_title(self, session: Session, title: str) -> None:
        """Give a session another title, or none."""

    def delete(self, sessions: Sequence[Session], progress: Progress | None = None) -> int:
        """Delete sessions; returns the number of deleted messages.

        Each leaves a mark, by which `hermes-plugins sync` knows that it was not lost.
        """

    def remove(self, session: Session, numbers: Sequence[int]) -> None:
        """Delete some messages of a session, and the session if none is left."""

    def replace_message(self, number: int, message: NewMessage) -> None:
        """Put another text in the place of a message."""

    def texts(self, matches: Matches) -> TextOccurrences:
        """The messages and titles that have a text."""

    def replace_texts(self, matches: Matches) -> TextOccurrences:
        """Put `FORGOTTEN` in the place of messages that have a text, and remove such titles."""

    def unused(
        self, text: str = "", user_id: str | None = None, platform: str = "", *, delete: bool
    ) -> Unused:
        """What is left of a text or a person that no conversation has; it can be deleted."""

    def erase_deleted(self) -> bool:
        """Leave no trace of what was deleted or replaced; returns whether that could be done."""

    def index_pending(self, step: Callable[[], object] | None = None) -> DatabaseError | None:
        """Index all that is not yet; why not, if it can't be done.

        A search does so itself. ``step`` is called after each batch of messages.
        """

    def stats(self) -> Stats:
        """How much there is."""

    def check(
        self, progress: Progress | None = None, *, newest: int | None = None
    ) -> list[ArchiveProblem]:
        """Look at everything, also with the queries that the tool uses.

        Looking up every word of every message takes minutes for 100,000 of them; ``newest``
        limits that to so many messages.
        """

    def repair(self, progress: Progress | None = None) -> dict[str, Any]:
        """Make it whole again, from a verified copy; says what was done."""

    def close(self) -> None:
        """Close it."""
