"""The contract: `MemoryProvider`, the class that plugin authors implement.

A minimal provider has four members (`name`, `is_available`, `initialize`,
`get_tool_schemas`); everything else has a neutral default. The host calls a provider in
this order::

    initialize -> [on_turn_start -> prefetch -> tool calls -> sync_turn -> queue_prefetch]*
               -> on_session_end -> shutdown

Every call is isolated and has a deadline: a method that raises or hangs costs the agent
that one answer, never the turn. ``initialize``, tool calls, hooks and ``shutdown`` always
run on the same thread; recall and writes have another thread each.

Optional capabilities (`SupportsProbe` and the other protocols at the end) add what not every
backend has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from hermes_core.errors import HermesError

#: The name of the built-in provider. No other provider may have it.
BUILTIN: Final = "builtin"

#: Increases when a host may require more of a provider; conformance reports show it.
CONTRACT_VERSION: Final = "1.0"

#: The version of checkpoints before a compression that a host may require.
PRE_COMPRESS_CHECKPOINT_API_VERSION: Final = 2

#: The start of a status line, unless the provider sets another mark.
INDICATOR_GLYPH: Final = "\N{BRAIN}"

#: More of a text that a provider returns is cut off, in characters.
LONGEST_TEXT: Final = 1_000_000

#: The parts of the recall that runs in this context; None outside of one.
PARTS: Final[ContextVar[list[str] | None]] = ContextVar("recall_parts", default=None)


def hand_over(text: str) -> None:
    """Inside `MemoryProvider.prefetch`: return a part of the answer early.

    If the rest does not arrive within the recall budget, or fails, the turn uses the parts that
    were handed over, joined by blank lines. If ``prefetch`` returns in time, only its return value
    counts, so return the whole answer, including these parts. Outside of a recall this does
    nothing.
    """
    parts = PARTS.get()
    if parts is not None and text.strip() and sum(map(len, parts)) < LONGEST_TEXT:
        # A plain copy: the turn that uses it must not run code of a subclass.
        parts.append(str.__getitem__(text, slice(0, LONGEST_TEXT)))


class RecallStatus(NamedTuple):
    """What the last `MemoryProvider.prefetch` added to the prompt, for a status line.

    ``count`` is the number of memories; 0 if there is text that can't be counted.
    """

    # Not a dataclass: `list` imports this module, and dataclasses would cost it 10 ms.
    provider_label: str
    count: int  # type: ignore[assignment]  # hides the method of tuple, which nobody needs
    glyph: str = INDICATOR_GLYPH


class ProbeResult(NamedTuple):
    """What `SupportsProbe.probe` returns: whether the backend works, and one line of detail."""

    ok: bool
    detail: str


class ForgetRequest(NamedTuple):
    """What `SupportsForget.forget` is asked for: a text, one conversation, or a person.

    Attributes:
        home: The home's path.
        text: Whatever contains this text; `matches` compares.
        session_id: Everything of this session.
        user_id: Everything of this person; an external provider is initialised as them.
        platform: Where the person talks.
        delete: Delete what is found. If False, only look.
    """

    home: str
    text: str = ""
    session_id: str = ""
    user_id: str = ""
    platform: str = ""
    delete: bool = False

    def matches(self, text: str) -> bool:
        """Return whether a text contains the one to be forgotten.

        Upper and lower case are the same, and so are the ways to write one character. Invisible
        characters and the kind and number of blanks do not count. A text of three letters has to
        be a whole word.
        """
        return bool(self.text) and has_folded(fold_text(text), fold_text(self.text))


def fold_text(text: str) -> str:
    """Return a text in the form in which texts to be forgotten are compared."""
    if text.isascii():
        text = text.lower()
    else:
        import re  # noqa: PLC0415 - `list` imports this module
        from unicodedata import normalize  # noqa: PLC0415 - as above

        text = re.sub(_INVISIBLE, "", text)
        text = normalize("NFKC", normalize("NFKC", text).casefold())
    return " ".join(text.split())


#: Soft hyphens, joiners, marks of direction, variation selectors, tags: a person sees none of them.
_INVISIBLE: Final = (
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]+"
)
#: Shorter texts must match a whole word.
_SHORTEST_PART: Final = 4


def has_folded(text: str, wanted: str) -> bool:
    """Return whether a text has what is wanted; both are folded."""
    if not wanted or wanted not in text:
        return False
    if len(wanted.encode("utf-8", "replace")) >= _SHORTEST_PART:
        return True
    import re  # noqa: PLC0415 - as above

    return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text) is not None


class ForgetItem(NamedTuple):
    """How much of one kind was found or deleted, for example 3 of "memories".

    ``previews`` show a person what it is, before they agree; they are not stored.
    """

    place: str
    count: int  # type: ignore[assignment]  # hides the method of tuple, which nobody needs
    previews: tuple[str, ...] = ()


class ForgetReport(NamedTuple):
    """What `SupportsForget.forget` returns.

    Attributes:
        items: What was found, or deleted.
        unreachable: What stays because the backend can't delete it, a sentence each. It must not
            contain the text that is to be forgotten.
    """

    items: tuple[ForgetItem, ...] = ()
    unreachable: tuple[str, ...] = ()


class MemoryItem(NamedTuple):
    """One memory of a backend, as `SupportsListing.list_memories` returns it.

    Attributes:
        id: The backend's name for it.
        text: What it says.
        created: When it was stored, in Unix seconds; 0.0 if that is not known.
        metadata: What else the backend knows of it, as JSON can hold it.
    """

    id: str
    text: str
    created: float = 0.0
    metadata: Mapping[str, Any] = {}


#: The order of memories in an export, by the fields of its lines: by person, then by id.
MEMORY_ORDER: Final = ("platform", "user_id", "chat_id", "profile", "id")


class MemoryPage(NamedTuple):
    """Some memories of a backend.

    Attributes:
        items: At most 1,000 of them.
        cursor: What to pass for the next page; "" if this is the last one.
        missing: What the backend has but can't list, in one sentence; "" if that is nothing.
    """

    items: tuple[MemoryItem, ...] = ()
    cursor: str = ""
    missing: str = ""


def describe_recalls(statuses: Iterable[Any]) -> str:
    """Return one line for a person about what was recalled; "" if nothing was."""
    return "  ".join(_line(each) for each in statuses if hasattr(each, "provider_label"))


def _line(status: Any) -> str:
    count = getattr(status, "count", 0)
    if not isinstance(count, int) or count <= 0:
        detail = "recalled relevant memory"
    else:
        detail = f"recalled {count} {'memory' if count == 1 else 'memories'}"
    return f"{getattr(status, 'glyph', INDICATOR_GLYPH)} {status.provider_label} — {detail}"


class MemoryProvider(ABC):
    """One memory backend. Subclass it and declare an entry point for it.

    Accept unknown keywords (``**kwargs``) where a signature shows them: hosts pass more
    over time. Keep all files below ``hermes_home``.
    """

    #: Set to 2 to promise that text returned by `on_pre_compress` is durable, and that it
    #: raises when called with ``require_checkpoint=True`` and the checkpoint failed. It is
    #: called with the text of what the user and the assistant said, without tools' messages.
    pre_compress_checkpoint_api_version: int = 1

    #: Set to True to promise that a write which returned has reached the backend, and that
    #: it raises otherwise. Without it the host counts a write as delivered when it returned.
    confirms_delivery: bool = False

    @property
    @abstractmethod
    def name(self) -> str:
        """Short identifier, the same as the entry point's. ``builtin`` is reserved."""

    @abstractmethod
    def is_available(self) -> bool:
        """Return whether it is configured, installed and has its credentials.

        Called before activation. Must not use the network or write.
        """

    def unavailable_reason(self) -> str:
        """Return what to do about it, in one line, when `is_available` is False."""
        return ""

    @abstractmethod
    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Connect, create, warm up. Called once per session start.

        Args:
            session_id: The session that begins.
            **kwargs: Always ``hermes_home``, ``platform`` ("cli", "telegram", "cron", ...),
                ``agent_context`` ("primary", "subagent", "cron", "flush"),
                ``agent_identity`` (the profile) and ``agent_workspace``. When known:
                ``parent_session_id``, ``user_id``, ``user_id_alt``, ``user_name``,
                ``chat_id``, ``chat_name``, ``chat_type``, ``thread_id``,
                ``session_title`` and ``provider_config``. Ignore what you don't know.
        """

    def initialize_for_inspection(self, session_id: str, **kwargs: Any) -> None:
        """Like `initialize`, for inspection only: no network, no workers."""
        self.initialize(session_id, **kwargs)

    def system_prompt_block(self) -> str:
        """Return static text for the system prompt: the same bytes for the whole session."""
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return what helps with ``query``, within the turn's budget; "" if nothing does."""
        return ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """After a turn: start the recall for the next one."""

    def recall_status(self) -> RecallStatus | None:
        """Return what the last `prefetch` added to the prompt."""
        return None

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """Store a completed turn. Delivered at least once.

        Name ``turn_id: str`` (stable over retries), ``attempt: int`` (from 1) or
        ``said_at: float`` (Unix seconds: when the turn was said, stable over retries) as
        parameters to receive them too. Accept ``turn_author: dict | None = None`` to learn who
        wrote ``user_content``, where the host knows: ``{"id", "name", "is_bot"}``.

        Raise `WriteRefused` if the backend rejects the content permanently. After any other
        exception the host retries.
        """

    @abstractmethod
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools for the model, as OpenAI function schemas; [] for none."""

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run one of its tools. Return a JSON string, also for invalid arguments."""
        return '{"error": "this provider has no tools"}'

    def shutdown(self) -> None:
        """Flush and close. May be called twice, and without `initialize`."""

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Called when a turn begins.

        Keywords may be remaining_tokens, model, platform, tool_count, and who wrote the
        message: author_id, author_name, author_is_bot.
        """

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """Called when the session ends; ``messages`` is the whole conversation."""

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """Called when the session id changes in a running process (/new, /resume, ...)."""

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """Called before old messages are discarded. Return text for the summary, or ""."""
        return ""

    def on_delegation(
        self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any
    ) -> None:
        """Called on the parent when a subagent has completed its task."""

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None
    ) -> None:
        """Called after the built-in notes changed.

        ``action`` is add, replace or remove; ``target`` is memory or user.

        ``metadata`` is a mapping, empty if nothing is known. It may have write_origin (who wrote
        it), origin (where the words come from: user, assistant, web, ...), execution_context,
        session_id, parent_session_id, platform, tool_name, task_id and tool_call_id; for replace
        and remove old_text (what the model searched for) and previous_content (the whole entry
        as it was).
        """

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return the fields for `setup`: key, description, secret, required, default, ..."""
        return []

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Write the non-secret values to the provider's own file; atomic, mode 0600."""

    def backup_paths(self) -> list[str]:
        """Return paths of its state outside ``hermes_home``, for backups.

        ``doctor`` lists them. Called without `initialize`.
        """
        return []


#: What an object needs to be used as a provider, in the order in which messages name it.
REQUIRED_MEMBERS: Final = tuple(
    each for each in vars(MemoryProvider) if each in MemoryProvider.__abstractmethods__
)


# -- optional capabilities --------------------------------------------------------------------
#
# These are protocols, not methods of MemoryProvider: hermes-agent asks `hasattr(provider,
# "post_setup")` and skips its own setup if that is true, and shows what `get_status_config`
# returns instead of the settings. A neutral default in the base class would change both. To
# implement a capability, write the method; there is nothing to inherit. The host calls it
# through `hermes_core.dispatch`, like every other method, and rows in `hookspecs.HOOKS` say how.


class SupportsProbe(Protocol):
    """A provider that can test its backend."""

    def probe(self, write: bool) -> ProbeResult:
        """Test the backend with real requests, after `MemoryProvider.initialize`.

        ``status`` calls it with ``write=False``, ``doctor --write`` with ``write=True``.

        Args:
            write: Whether to store something, too. Remove it again. If False, only read.

        Returns:
            Anything with the attributes ``ok`` and ``detail``, for example a `ProbeResult`.
        """


class SupportsOwnSettings(Protocol):
    """A provider that reads settings from files that the host does not know.

    The host has to know them before it applies defaults and validates. It can't guess the path:
    ``~/.mem0/config.json``, for example, has a telemetry id under the name of a setting.
    """

    def own_settings(self, hermes_home: str) -> list[tuple[str, dict[str, Any]]]:
        """Return settings of older versions, or from outside the home, by their current names.

        Called before the settings are validated, without `MemoryProvider.initialize`. Every
        other source (config.yaml, the environment) takes precedence.

        Returns:
            Pairs of a file's path and the values in it. If two files set the same field, the
            first one wins.
        """


class SupportsStatusConfig(Protocol):
    """A provider that adds lines to ``status``."""

    def get_status_config(self, provider_config: dict[str, Any]) -> dict[str, str]:
        """Return what ``status`` shows: a label and a text for each line.

        Called without `MemoryProvider.initialize`.

        Args:
            provider_config: The provider's settings, without secrets.
        """


class SupportsPostSetup(Protocol):
    """A provider with setup steps that go beyond the fields of its schema."""

    def post_setup(self, hermes_home: str, config: dict[str, Any]) -> None:
        """Ask what only a dialogue can ask, for example to log in with a browser.

        Called by ``setup`` on a terminal, on the main thread and without a deadline, after
        the settings have been written. It may read standard input.

        Args:
            hermes_home: The home's path.
            config: A copy of all of config.yaml.
        """


class SupportsForget(Protocol):
    """A provider that can delete what it knows, when a person asks for it."""

    def forget(self, request: ForgetRequest) -> ForgetReport:
        """Find everything that a request means, and delete it if the request says so.

        ``hermes-plugins forget --provider`` calls it after `MemoryProvider.initialize`, once for
        each person whose memories may contain it. It looks first, then deletes, then looks again,
        so a second look must not find what was deleted. A call may be repeated.
        """


class SupportsListing(Protocol):
    """A provider that can list all that it knows."""

    def list_memories(self, cursor: str) -> MemoryPage:
        """Return a page of everything that the backend knows of the current person.

        ``hermes-plugins export`` calls it after `MemoryProvider.initialize`, once for each person.
        It must not change anything. Leave out what the host has itself: its messages and notes.

        Args:
            cursor: "" for the first page, then `MemoryPage.cursor` of the page before. It means
                whatever you want: a page's number, or the backend's own cursor.
        """


class ArchivedSession(NamedTuple):
    """A session of the archive.

    Attributes:
        session: Its id, as the host called it.
        keywords: Those of ``initialize``, as far as they are known.
        id: Its id in the archive.
    """

    session: str
    keywords: Mapping[str, Any]
    id: str = ""


class PastSession(NamedTuple):
    """A session of the archive, with its turns.

    Attributes:
        session: Its id, as the host called it.
        keywords: Those of ``initialize``, as far as they are known.
        turns: Reads its turns: for each the arguments of ``sync_turn``, and ``at``, its time.
            A message without an answer is part of the next question.
        place: Its start and its id, the order of sessions.
        is_primary: Whether it is of the agent itself, not of a job or a subagent.
        is_imported: Whether it was imported.
        unanswered: Counts the messages at its end that got no answer, which are in no turn.
    """

    session: str
    keywords: Mapping[str, Any]
    turns: Callable[[], Iterable[dict[str, Any]]]
    place: tuple[float, str] = (0.0, "")
    is_primary: bool = True
    is_imported: bool = False
    unanswered: Callable[[], int] = int


class PastNote(NamedTuple):
    """A note that is there now.

    Attributes:
        session: The session to which it is assigned.
        keywords: The keywords of ``initialize`` for the person whose note it is.
        at: Since when it has been there; 0.0 if that is not known.
        change: The arguments of ``on_memory_write`` that add it.
    """

    session: str
    keywords: Mapping[str, Any]
    at: float
    change: Mapping[str, Any]


class RequestSessions(NamedTuple):
    """Whose memories a `ForgetRequest` is about.

    Attributes:
        sessions: Those to be deleted; for a text, one of each person.
        passages: Texts from sessions to be deleted, to search files for.
        platforms: Those on which the user is known.
        problem: Why the conversations can't be read; "" if they can.
    """

    sessions: tuple[ArchivedSession, ...] = ()
    passages: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    problem: str = ""


@runtime_checkable
class BuiltinMethods(Protocol):
    """What the host uses of the built-in provider beyond the contract.

    These are not hooks: no other provider is asked for them, and observers don't see them.
    """

    def mirror_to(self, mirror: Callable[[str, str, str, dict[str, Any]], None], /) -> None:
        """Call ``mirror`` with action, target, content and metadata after each change of notes."""

    def report_to(
        self, report: Callable[[HermesError], None], spooled: Callable[[HermesError], None], /
    ) -> None:
        """Call ``report`` if a change of notes is not stored, ``spooled`` if a turn has to wait."""

    def waiting(self) -> str:
        """Return how many turns wait until they can be stored, and why; "" if none does."""

    def prepare(self) -> None:
        """From now on, open in ``initialize`` the files that turns need."""

    def objections(self, text: str, /) -> list[str]:
        """Return what the guard for recalled text finds in ``text``."""

    def read_external(self, content: Any, origin: str, session_id: str = "", /) -> None:
        """Note that the session has read a text that strangers may have written."""

    def origin_of(self, text: str, /) -> str:
        """Return where a text comes from, by what was said and read in the session."""

    def note_origins(self) -> list[tuple[str, str]]:
        """Return the notes in the prompt, each with where it comes from."""

    def pending_nudge(self) -> str:
        """Return the reminder to save memories if one is due, else ""."""

    def session_messages(self, session_id: str, /) -> list[dict[str, Any]]:
        """Return what the archive has of a session that the agent's person may see."""

    def review_prompt(self, messages: list[dict[str, Any]], /) -> str:
        """Return the prompt with which a model reviews a conversation for memories."""

    def warnings(self, home: Path, /) -> list[str]:
        """Return what ``status`` should warn about."""

    def problems(self, home: Path, /) -> list[HermesError]:
        """Return which files of the notes and conversations can't be used, for ``status``."""

    def diagnose(self, home: Path, /, *, fix: bool) -> Iterator[tuple[str, str, str, str]]:
        """Yield ``doctor``'s findings: subject, state, detail, what to do."""

    def archived_turns(
        self, home: Path, session_id: str, facts: Mapping[str, Any], /
    ) -> list[dict[str, Any]]:
        """Return the turns of one archived session, for ``outbox backfill``."""

    def sessions_since(self, home: Path, since: float, /) -> Iterator[PastSession]:
        """Yield the sessions in which a person spoke since then, each with its turns."""

    def past_sessions(
        self, home: Path, since: float, until: float, oldest: float, /
    ) -> Iterator[PastSession]:
        """Yield the sessions with turns in a period, in the order in which they began.

        A turn has the messages before it that got no answer, if they are not from before
        ``oldest``.
        """

    def past_notes(self, home: Path, memory: Mapping[str, Any], /) -> Iterator[PastNote]:
        """Yield the notes that are there now, the oldest first."""

    def storage_parts(self, home: Path, database: Any, /) -> list[Any]:
        """Return the conversations, then the notes, as `storage.migration.StoragePart`.

        ``database`` is a `storage.postgres.Database`, or None for the files of the home.
        """

    def spooled(self, home: Path, /, *, seconds: float = 0) -> tuple[int, str]:
        """Return how many turns wait in the spool, and why; store them first, for so long."""

    def sessions_of_request(self, request: ForgetRequest, /) -> RequestSessions:
        """Return whose memories a request is about."""


#: The protocols whose methods are hooks, too.
CAPABILITIES: Final = (
    SupportsProbe,
    SupportsOwnSettings,
    SupportsStatusConfig,
    SupportsPostSetup,
    SupportsForget,
    SupportsListing,
)
