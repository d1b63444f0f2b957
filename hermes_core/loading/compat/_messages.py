"""Messages: agent.message_content, context_compressor, turn_author and redact."""

from __future__ import annotations

import json
import os
import socket
import unicodedata
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final

from hermes_core.config import load_config
from hermes_core.errors import HermesError
from hermes_core.loading.compat._files import is_truthy_value
from hermes_core.loading.compat.home import get_hermes_home
from hermes_core.privacy import Redactor
from hermes_core.secrets import Secrets

#: By hermes-agent's module: the names that can be imported from it.
OFFERS: Final[dict[str, tuple[str, ...]]] = {
    "agent.context_compressor": (
        "COMPRESSED_SUMMARY_METADATA_KEY",
        "_MERGED_PRIOR_CONTEXT_HEADER",
        "_MERGED_SUMMARY_DELIMITER",
        "is_compaction_summary_message",
    ),
    "agent.message_content": ("flatten_message_text",),
    "agent.redact": ("REDACTION_UNAVAILABLE", "redact_for_egress", "redact_sensitive_text"),
    "agent.turn_author": (
        "TURN_AUTHOR_ENV",
        "a2a_key",
        "bot_author_id",
        "local_origin",
        "parse_turn_author",
        "plugin_author_for_event",
        "plugin_author_id",
        "plugin_turn_author",
        "take_turn_author_from_env",
        "turn_author_env",
        "turn_author_from_env",
    ),
}


# -- agent.message_content: the text of a message, whatever shape it has

_NOT_TEXT: Final = frozenset({"audio", "image", "image_url", "input_audio", "input_image"})
_KEYS: Final = ("text", "content", "input_text", "output_text", "summary_text")


def flatten_message_text(content: Any, *, sep: str = "\n") -> str:
    """Return the visible text of a message's content.

    Args:
        content: A text, a list of parts, one part, or None.
        sep: What stands between the texts of two parts.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return sep.join(filter(None, map(_text, content)))
    return _text(content) or _shown(content)


def _text(part: Any) -> str:
    if part is None or isinstance(part, str):
        return part or ""
    if str(_field(part, "type") or "").strip().lower() in _NOT_TEXT:
        return ""
    # By key and not by type: APIs name the same part "text", "input_text" or "output_text".
    return next((text for text in (_field(part, key) for key in _KEYS) if _is_text(text)), "")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _field(part: Any, key: str) -> Any:
    return part.get(key) if isinstance(part, Mapping) else getattr(part, key, None)


def _shown(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the caller's object may do anything
        return ""


# -- agent.context_compressor: how to tell a summary of hermes-agent from what people said
# The texts are those with which hermes-agent marks a summary: they must be the same to be found.

COMPRESSED_SUMMARY_METADATA_KEY: Final = "_compressed_summary"
_MERGED_PRIOR_CONTEXT_HEADER: Final = "[PRIOR CONTEXT — for reference only; not a new message]"
_MERGED_SUMMARY_DELIMITER: Final = "[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]"

#: All releases begin a summary with one of these.
_BEGINNINGS: Final = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")


def is_compaction_summary_message(message: Any) -> bool:
    """Return whether a message is, or ends with, a summary of earlier turns."""
    content = message
    if isinstance(message, dict):
        if message.get(COMPRESSED_SUMMARY_METADATA_KEY):
            return True
        content = message.get("content")
    text = flatten_message_text(content)
    # A summary that was merged into a user's message stands after the delimiter.
    _, merged, after = text.partition(_MERGED_SUMMARY_DELIMITER)
    return (after if merged else text).lstrip().startswith(_BEGINNINGS)


# -- agent.turn_author: who wrote the user's side of a turn

TURN_AUTHOR_ENV: Final = "HERMES_TURN_AUTHOR"

_BOT: Final = "bot:"
_LONGEST: Final = 200
#: Control characters, surrogates, unassigned and private-use code points.
_NOT_PRINTED: Final = frozenset({"Cc", "Cs", "Cn", "Co"})


def _cleaned(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    kept = "".join(char for char in value if unicodedata.category(char) not in _NOT_PRINTED)
    # Names come from chat platforms and go into prompts: no control characters, and bounded.
    return kept.strip()[:_LONGEST] or None


def _is_bot(value: Any) -> bool:
    if isinstance(value, str):
        # A text too, since the author may come from an environment variable.
        return value.strip().lower() in ("1", "true", "yes")
    return isinstance(value, int) and is_truthy_value(value)


def bot_author_id(profile: str, origin: str | None = None) -> str:
    """Return the id of a bot: of this installation, or of the one that ``origin`` names."""
    place = (origin or "").strip()
    return f"{_BOT}{place}/{profile}" if place else f"{_BOT}{profile}"


def plugin_author_id(plugin_id: str) -> str:
    """Return the id of a plugin that writes turns."""
    return f"plugin:{(plugin_id or '').strip()}"


def plugin_turn_author(plugin_id: str, name: str = "") -> dict[str, Any] | None:
    """Return the author of a turn that a plugin wrote; None without the plugin's id."""
    cleaned = _cleaned(plugin_id)
    if cleaned is None:
        return None
    return {"id": plugin_author_id(cleaned), "name": _cleaned(name) or cleaned, "is_bot": True}


def plugin_author_for_event(event: Any) -> dict[str, Any] | None:
    """Return the author of an event that a plugin put into the conversation; None for any other."""
    metadata = getattr(event, "metadata", None)
    if not isinstance(metadata, Mapping) or not metadata.get("hermes_plugin_injection"):
        return None
    named = parse_turn_author(metadata.get("hermes_plugin_author"))
    return named or plugin_turn_author(str(metadata.get("hermes_plugin_id") or ""))


def local_origin() -> str:
    """Return this machine's name, as the origin in a bot's id; "" if it is not known."""
    with suppress(OSError):
        # "/" separates origin and profile in the id.
        return (_cleaned(socket.gethostname()) or "").replace("/", "")
    return ""


def parse_turn_author(raw: Any) -> dict[str, Any] | None:
    """Return an author as ``{"id", "name", "is_bot"}``.

    Args:
        raw: A mapping, or a JSON text of one. An ``origin`` in it completes a bot's id.

    Returns:
        The author; None if there is neither an id nor a name in it.
    """
    if isinstance(raw, str | bytes):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            return None
    if not isinstance(raw, Mapping):
        return None
    identity, name = _cleaned(raw.get("id")), _cleaned(raw.get("name"))
    if identity is None and name is None:
        return None
    origin = _cleaned(raw.get("origin"))
    # Only an id without an origin is completed: one that has its origin is from elsewhere.
    if origin and identity and identity.startswith(_BOT) and "/" not in identity:
        identity = _cleaned(bot_author_id(identity.removeprefix(_BOT), origin))
    return {"id": identity, "name": name, "is_bot": _is_bot(raw.get("is_bot"))}


def turn_author_from_env(environ: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """Return the author that ``HERMES_TURN_AUTHOR`` names, if any."""
    return parse_turn_author(environ.get(TURN_AUTHOR_ENV))


def take_turn_author_from_env(
    environ: MutableMapping[str, str] = os.environ,
) -> dict[str, Any] | None:
    """Like `turn_author_from_env`; the variable is removed, so that no child inherits it."""
    return parse_turn_author(environ.pop(TURN_AUTHOR_ENV, None))


def turn_author_env(author: dict[str, Any]) -> dict[str, str]:
    """Return the variable that passes the author of a turn to a child process."""
    return {TURN_AUTHOR_ENV: json.dumps(author, separators=(",", ":"))}


def a2a_key(author: dict[str, Any] | None) -> str | None:
    """Return the name under which the turns of one bot belong together; None for a person."""
    if not isinstance(author, dict) or not author.get("is_bot") or not author.get("id"):
        return None
    return f"a2a:{author['id']}"


# -- agent.redact: our redactor under hermes-agent's names

REDACTION_UNAVAILABLE: Final = "[redaction-unavailable]"


def redact_sensitive_text(
    text: Any,
    *,
    force: bool = False,
    code_file: bool = False,  # noqa: ARG001 - we mask the same in every kind of text
    file_read: bool = False,  # noqa: ARG001
    redact_url_credentials: bool = False,  # noqa: ARG001 - we always do
) -> Any:
    """Return a text without secrets.

    Args:
        text: The text; None stays None, another value is made a text.
        force: Mask even where config.yaml says that nothing is to be masked.
        code_file: Makes no difference here.
        file_read: Makes no difference here.
        redact_url_credentials: Makes no difference here.
    """
    if text is None:
        return None
    return _redactor(force=force).redact(str(text)).value


def redact_for_egress(text: str) -> str:
    """Return a text that may leave the machine; a placeholder if it can't be redacted."""
    try:
        return str(redact_sensitive_text(str(text or ""), force=True))
    except Exception:  # noqa: BLE001 - the text itself must not leave, whatever went wrong
        return REDACTION_UNAVAILABLE


def _redactor(*, force: bool) -> Redactor:
    home = get_hermes_home()
    try:
        config = load_config(home)
    # Redact with the defaults: an invalid file must never turn redaction off.
    except HermesError:  # no config.yaml that says otherwise
        return Redactor(Secrets(home).values())
    if not (force or config.redacts):
        return Redactor(formats=False)
    return Redactor(Secrets(home, config.secrets_backend).values())
