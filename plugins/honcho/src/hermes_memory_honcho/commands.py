"""`hermes-plugins honcho`: who and what is in Honcho, and what of the past goes there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from hermes_core import HermesError, MemoryManager, Redactor, load_config, redactor_for
from hermes_core.service import make_id, resolve_home
from hermes_memory_honcho.names import ALPHABET, SearchFilter, SessionAddress
from hermes_memory_honcho.provider import HonchoProvider
from hermes_memory_honcho.texts import storable

if TYPE_CHECKING:  # it imports the SDK
    from hermes_memory_honcho.service import HonchoService

# A workspace may have any number of peers; nobody reads a longer list.
_MOST: Final = 1_000
_NOTES: Final = ("MEMORY.md", "USER.md")
_SHOWN: Final = 60
#: What a conversation has that was not held at the terminal, and where those come from that were.
_SOMEBODY: Final = ("user_id", "user", "chat_id")
_OWN: Final = ("", "cli", "tui", "acp", "desktop", "import", "chatgpt", "claude")
_PROFILES: Final = ("", "default")
_ROLES: Final = {"user": "They", "assistant": "The agent"}

_UPLOAD_SECONDS: Final = 100.0  # a long text takes the server longer than a turn

_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
_file = click.Path(path_type=Path, exists=True, dir_okay=False)


class Upload(NamedTuple):
    """A text that is to go to Honcho.

    Attributes:
        name: What a person calls it.
        text: All of it, without secrets.
        at: When it was said, in ISO 8601; "" if that is not known.
        conversation: The id of the session that it was, if it was one.
    """

    name: str
    text: str
    at: str = ""
    conversation: str = ""

    @property
    def mark(self) -> str:
        """Identifies it, to find out whether it is there already."""
        # Of the redacted text: a second run with the same files finds what the first one has sent.
        return hashlib.sha256(f"{self.name}\0{self.text}".encode()).hexdigest()[:16]


@click.group("honcho")
def honcho() -> None:
    """Show what Honcho stores; upload old memories."""


@contextmanager
def _running(ctx: click.Context) -> Iterator[HonchoProvider]:
    """Honcho as an agent in this folder would use it."""
    manager = MemoryManager.from_config(resolve_home(ctx.obj))
    # Through a manager: settings, secrets and names are those that an agent gets.
    manager.initialize_all("hermes-plugins", platform="cli", agent_context="primary")
    try:
        found = [each for each in manager.providers if isinstance(each, HonchoProvider)]
        if not found:
            why = "; ".join(map(str, manager.problems)) or "honcho is not the provider in use"
            raise HermesError(why, hint="run: hermes-plugins setup honcho")
        with found[0].explaining():
            yield found[0]
    finally:
        manager.shutdown_all()


@honcho.command("peers")
@click.pass_context
def peers(ctx: click.Context) -> None:
    """List the peers of the workspace: people and agents."""
    with _running(ctx) as provider:
        service = provider.service
        known = {service.names.user: "you, at this terminal", service.names.ai: "the agent"}
        for each in islice(service.honcho.peers(size=100), _MOST):
            role = known.get(each.id, "")
            click.echo(f"{each.id}  {role}".rstrip())


@honcho.command("sessions")
@click.option("--all", "everybody", is_flag=True, help="Those of all people, not only yours.")
@click.pass_context
def sessions(ctx: click.Context, everybody: bool) -> None:
    """List the sessions of Honcho that you take part in."""
    with _running(ctx) as provider:
        service = provider.service
        here = service.names.place(provider.session_id).session
        found = service.sessions()
        if everybody:
            found = [each.id for each in islice(service.honcho.sessions(size=100), _MOST)]
        for each in found:
            click.echo(f"{each}  the one of this folder" if each == here else each)


@honcho.command("identity")
@click.argument("file", required=False, type=_file)
@_yes
@click.pass_context
def identity(ctx: click.Context, file: Path | None, yes: bool) -> None:
    """Show the names and what is known; with FILE, tell the agent who it is."""
    redactor = _redactor(resolve_home(ctx.obj))
    uploads = [_upload(redactor, file.name, _read(file))] if file else []
    with _running(ctx) as provider:
        if not uploads:
            _show_identity(provider)
            return
        service = provider.service
        place = service.names.place(provider.session_id)
        _bring(service, place.ai, place, uploads, yes=yes)


def _show_identity(provider: HonchoProvider) -> None:
    service = provider.service
    names, place = service.names, service.names.place(provider.session_id)
    click.echo(f"workspace  {names.workspace}\nyou        {names.user}\nthe agent  {names.ai}")
    click.echo(f"session    {place.session}")
    for title, peer in (("You", names.user), ("The agent, as you have met it", names.ai)):
        known = service.portrait(peer)
        card = "\n".join(f"- {each}" for each in service.card(peer))
        text = "\n".join(filter(None, (card, known.representation)))
        click.echo(f"\n{title}:\n{text or 'nothing is known yet'}")


@honcho.command("migrate")
@click.option(
    "--history",
    multiple=True,
    type=_file,
    help="Conversations as JSONL, as `hermes-plugins sessions export` writes them.",
)
@click.option("--session", default="", help="The session of Honcho that gets it; by default yours.")
@_yes
@click.pass_context
def migrate(ctx: click.Context, history: tuple[Path, ...], session: str, yes: bool) -> None:
    """Upload MEMORY.md, USER.md and old conversations. What would go is shown first.

    Conversations of a gateway, of another profile and of cron jobs are left out.
    """
    home = resolve_home(ctx.obj)
    conversations = [each for path in history for each in _conversations(path)]
    own = [each for each in conversations if _is_own(each)]
    redactor = _redactor(home)
    found = [*_notes(redactor, home), *(each for one in own for each in _uploads(redactor, one))]
    if len(conversations) > len(own):
        click.echo(
            f"Skipped conversations of other users or of jobs: {len(conversations) - len(own)}."
        )
    if not found:
        click.echo("Nothing to send: there are no notes, and no --history was passed.")
        return
    with _running(ctx) as provider:
        service = provider.service
        place = service.names.place(provider.session_id)
        place = place._replace(session=make_id(session, ALPHABET) if session else place.session)
        _bring(service, place.user, place, found, yes=yes)


def _notes(redactor: Redactor, home: Path) -> Iterator[Upload]:
    for name in _NOTES:
        path = home / "memories" / name
        text = _read(path).strip() if path.exists() else ""
        if text:
            yield _upload(redactor, name, text)


def _conversations(path: Path) -> Iterator[dict[str, Any]]:
    """The conversations of a file, a line each. Only a newline ends one."""
    for number, line in enumerate(_read(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            conversation = json.loads(line)
            messages = [each for each in conversation["messages"] if each.get("role") in _ROLES]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise HermesError("not a conversation", where=f"{path}:{number}") from None
        yield {"session_id": f"line {number}", **conversation, "messages": messages}


def _is_own(conversation: dict[str, Any]) -> bool:
    """Whether it was held by the person at the terminal, in this profile."""
    names = ("source", "platform", "profile")  # an export has a platform where it is not the source
    source, platform, profile = (str(conversation.get(name) or "") for name in names)
    somebody = any(conversation.get(each) for each in _SOMEBODY)
    # Only what is certainly the person's own: a message of somebody else under their name can't be
    # taken back out of Honcho's conclusions.
    return {source, platform} <= set(_OWN) and profile in _PROFILES and not somebody


def _uploads(redactor: Redactor, conversation: dict[str, Any]) -> Iterator[Upload]:
    """A conversation, if anything was said in it."""
    said = [each for each in conversation["messages"] if _words(each)]
    if said:
        name = str(conversation.get("title") or conversation["session_id"])
        text = "\n\n".join(f"{_ROLES[each['role']]}: {_words(each)}" for each in said)
        made = _upload(redactor, f"conversation {name}", text)
        yield made._replace(
            at=_moment(said[0].get("timestamp")), conversation=str(conversation["session_id"])
        )


def _words(message: dict[str, Any]) -> str:
    """What a message says: a text, or the texts among its parts."""
    content = message.get("content") or ""
    # OpenAI's form: text parts beside images and files.
    if isinstance(content, list):
        parts = (each.get("text") for each in content if isinstance(each, dict))
        content = "\n".join(each for each in parts if isinstance(each, str))
    return str(content).strip()


def _moment(at: object) -> str:
    """When, as the server takes it; "" if unknown. Exports have Unix seconds."""
    try:
        return datetime.fromtimestamp(float(str(at)), UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        made = datetime.fromisoformat(str(at))
    except ValueError:
        return ""
    return (made if made.tzinfo else made.replace(tzinfo=UTC)).isoformat()


def _read(path: Path) -> str:
    return path.read_text("utf-8", "replace")


def _redactor(home: Path) -> Redactor:
    """What an agent's turns go through, too."""
    return redactor_for(load_config(home), ())


def _upload(redactor: Redactor, name: str, text: str) -> Upload:
    """A text and its name, without secrets, as the server takes them."""
    name, text = (str(storable(redactor.redact(each).value)) for each in (name, text))
    return Upload(name, text)


def _bring(
    service: HonchoService, peer: str, place: SessionAddress, uploads: list[Upload], *, yes: bool
) -> None:
    """Show what would be sent, ask, and send what is not there yet."""
    for each in uploads:
        first = " ".join(each.text.split())[:_SHOWN]
        click.echo(f"{each.name}: {len(each.text):,} characters: {first}")
    click.echo(
        f"They go to {service.honcho.base_url}, session {place.session}, as words of {peer}."
    )
    if not yes and not _agreed():
        click.echo("Nothing was sent.")
        return
    # After the question: opening a session creates it on the server.
    service.open(place)
    sent = 0
    for number, each in enumerate(uploads):
        try:
            sent += _sent(service, peer, place.session, each)
        except Exception:
            there = f"{number} of {len(uploads)} are there."
            click.echo(f"{there} Run the command again for the rest.", err=True)
            raise
    click.echo(f"{sent} sent, {len(uploads) - sent} were there already.")


def _agreed() -> bool:
    """Whether the person says yes.

    Raises:
        HermesError: Nobody answers.
    """
    try:
        return click.confirm("Send them?")
    except click.Abort:  # else it would be taken for a failure of the server
        click.echo()
        raise HermesError("nothing was sent", hint="--yes sends without asking") from None


def _sent(service: HonchoService, peer: str, session: str, upload: Upload) -> bool:
    """Whether it was sent now; it is there already if one with its mark is, or its turns are."""
    from hermes_memory_honcho.client import Session  # noqa: PLC0415 - with the SDK

    there = Session(session, service.honcho)
    if there.messages(filters={"metadata": {"migrated": upload.mark}}, size=1).items:
        return False
    # A conversation that was held with this plugin is there turn by turn; uploading it again would
    # make Honcho conclude everything twice.
    turns = SearchFilter(metadata={"session_id": upload.conversation})
    if upload.conversation and service.search(upload.name, peer, 1, turns):
        return False
    facts: dict[str, Any] = {"migrated": upload.mark, "source": upload.name}
    file = (f"{upload.mark}.txt", upload.text.encode(), "text/plain")
    with service.wire.request_timeout(_UPLOAD_SECONDS):
        there.upload_file(file, peer, metadata=facts, created_at=upload.at or None)
    return True
