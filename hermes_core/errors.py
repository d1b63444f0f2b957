"""The exceptions of this package. Each says what happened, where, and what to do about it.

The tree::

    HermesError
      x HomeError                 HERMES_HOME can't be used as it is
      x ConfigError               config.yaml can't be read, is invalid, or can't be changed safely
      x SecretsError              a secret can't be stored, read or removed
      x UnknownProviderError      no installed provider has that name
      x ProviderConflictError     two owners claim one name, or a pin names another owner
      x ProviderLoadError         a plugin could not be turned into a provider
      x ProviderUnavailableError  a plugin loads, but reports that it can't work
      + DatabaseError             a database can't be opened, read or written
        x ForeignDatabase         the file belongs to another program, or to a newer version
      x CheckpointError           a required checkpoint before a compression failed
      x WriteRefused              the backend refuses the content of a write, permanently
      + ProviderCallError         a provider's method failed
        + DeadlineExceeded        it did not return in time
          x AnswerLate            recall did not return in time; its answer may serve the next turn
          x AgentEnded            the agent ended, and closed the provider, while the call ran
        x ProviderPaused          it was not called: it failed too often, or an earlier call hangs
        x WrongReturnType         it returned a type that the contract does not allow

``str(error)`` is one line for a person. The exception that caused it, if there is one, is
``__cause__``. Packages add subclasses for their own subjects, such as `LockTimeoutError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

#: The hint where a file can't be written.
CHECK_FOLDER: Final = "check that the folder exists and is writable, and the free space"


class HermesError(Exception):
    """Base of all our errors.

    Args:
        what: What happened, in one line.
        where: The file, setting, plugin or provider that it happened to.
        hint: What a person can do about it. The command line prints it on a separate line.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without calling ``__init__``: subclasses have other arguments."""
        # A host may send an error to another process. By default, pickle calls the class with
        # `args`, which fails for subclasses with required keywords.
        return _rebuilt, (type(self), self.args, self.__dict__)

    @property
    def without_hint(self) -> str:
        """What went wrong and where, on one line."""
        return one_line(f"{self.where}: {self.what}" if self.where else self.what)

    def __str__(self) -> str:
        # One line always: logs, the outbox and the call log store this text in a single column.
        return one_line(f"{self.without_hint} ({self.hint})" if self.hint else self.without_hint)


def _rebuilt(kind: type[HermesError], args: tuple[Any, ...], state: dict[str, Any]) -> HermesError:
    # Not `kind(...)`: the parameters of a subclass differ from `args`.
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class HomeError(HermesError):
    """HERMES_HOME can't be used as it is."""


class ConfigError(HermesError):
    """config.yaml can't be read, is invalid, or can't be changed safely.

    ``problems`` has one line for each mistake, without the hint; ``what`` joins them.
    """

    def __init__(
        self, what: str, *, where: str = "", hint: str = "", problems: tuple[str, ...] = ()
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.problems = problems or (str(HermesError(what, where=where)),)


class SecretsError(HermesError):
    """A secret can't be stored, read or removed. Its value is never part of the text."""


class UnknownProviderError(HermesError):
    """No installed provider has that name.

    ``name`` is what was asked for, if a plugin of that name may exist elsewhere; ``close`` are the
    installed providers that look like it.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        hint: str = "",
        name: str = "",
        close: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.name = name
        self.close = close


class ProviderConflictError(HermesError):
    """Two owners claim one name, or the pin names another owner than the one found."""


class ProviderLoadError(HermesError):
    """A plugin could not be turned into a provider.

    ``step`` is the step that failed: find, import, register, construct or check.
    """

    def __init__(
        self, what: str, *, plugin: str, distribution: str = "", step: str, hint: str = ""
    ) -> None:
        owner = f" of {distribution}" if distribution else ""
        # "find" is not a step to a person: what is missing says enough.
        text = what if step == "find" else f"{step} failed: {what}"
        super().__init__(text, where=f"plugin {plugin}{owner}", hint=hint)
        self.plugin = plugin
        self.distribution = distribution
        self.step = step


class ProviderUnavailableError(HermesError):
    """The provider loads, but reports that it can't work as it is configured."""


class DatabaseError(HermesError):
    """A database can't be opened, read or written."""


class ForeignDatabase(DatabaseError):  # noqa: N818 - reads as what was found
    """The file belongs to another program, or to a newer version of this one."""


class CheckpointError(HermesError, RuntimeError):
    """A provider that promises durable checkpoints could not make one.

    A RuntimeError too, which is what hosts written for hermes-agent expect.
    """


class WriteRefused(HermesError):  # noqa: N818 - reads as what happened
    """The backend refuses the content of this write, so sending it again unchanged can't work.

    Raise it in ``sync_turn``, ``on_memory_write``, ``on_delegation`` or ``on_session_end``. The
    write is stored as failed permanently until a person retries it; later writes are delivered.
    """


class ProviderCallError(HermesError):
    """A provider's method failed."""


class DeadlineExceeded(ProviderCallError):  # noqa: N818 - reads as what happened
    """A provider's method did not return in time."""


class AnswerLate(DeadlineExceeded):
    """Recall did not return in time but continues; its answer may serve the next turn."""


class AgentEnded(DeadlineExceeded):
    """The agent ended, and closed the provider, while the call ran.

    Whatever the call raised then is a consequence of that, and not the reason for the delay.
    """

    TEXT = "no answer before the agent ended"


class ProviderPaused(ProviderCallError):  # noqa: N818 - reads as what happened
    """A provider was not called: it failed too often, or an earlier call hangs."""


class WrongReturnType(ProviderCallError):  # noqa: N818 - reads as what happened
    """A provider's method returned a type that the contract does not allow."""


def describe(error: BaseException) -> str:
    """Return any exception as one line: its type, unless it is ours, and its text."""
    text = vars(error).get(_REMEMBERED)
    if text is None:
        text = _text_of(error)
    # Our texts are written for people and are one line already. Others need their type: the text of
    # a KeyError is only the key.
    if isinstance(error, HermesError):
        return text
    text = " ".join(text.split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


#: Where an exception of a plugin carries its text.
_REMEMBERED = "_hermes_text"
_LONGEST_TEXT = 100_000


def remember_text(error: BaseException) -> None:
    """Ask an exception for its text now, so that `describe` needs no code of a plugin's later."""
    if type(error).__str__ not in (BaseException.__str__, HermesError.__str__):
        vars(error)[_REMEMBERED] = _text_of(error)


def change_remembered_text(error: BaseException, change: Callable[[str], str]) -> None:
    """Change the text that an exception carries, if it carries one."""
    text = vars(error).get(_REMEMBERED)
    if text is not None:
        vars(error)[_REMEMBERED] = change(text)


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)[:_LONGEST_TEXT]
    except Exception:  # noqa: BLE001 - a plugin's exception; its type must do
        return ""
    return text.encode("utf-8", "replace").decode()  # it may quote a lone surrogate


def one_line(text: str) -> str:
    """Return text with blanks in place of line breaks and control characters."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    return text.strip()
