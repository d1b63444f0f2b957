"""The errors this package raises, each with what happened, where, and what to do.

    HermesError
     ├ HomeError              HERMES_HOME can't be used as it is
     ├ ConfigError            config.yaml can't be read, is invalid, or can't be changed safely
     ├ SecretsError           a secret can't be stored, read or removed; never with its value
     ├ UnknownProviderError   no installed provider has that name
     ├ ProviderConflictError  two owners claim one name, or a pin names another owner
     ├ ProviderLoadError      a plugin could not be turned into a provider
     ├ ProviderUnavailableError  a plugin loads, but says that it can't work
     ├ DatabaseError          a database can't be opened, read or written
     │  └ ForeignDatabase     it belongs to another program, or to a newer version
     ├ CheckpointError        a required pre-compression checkpoint failed
     └ ProviderCallError      a provider's method failed
        ├ DeadlineExceeded    it did not return in time
        │  └ AnswerLate       recall did not; what it finds may serve the next turn
        ├ ProviderPaused      it was not called: it has failed too often, or is stuck
        └ WrongReturnType     it returned what the contract does not allow

``str(error)`` is one line for a person. The traceback of what caused it, where there is
one, is in ``__cause__``.
"""

from __future__ import annotations

from typing import Any


class HermesError(Exception):
    """Base of all our errors: ``what`` happened, ``where``, and a ``hint`` what to do."""

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process, whatever arguments a child class wants."""
        return _rebuilt, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return one_line(f"{text} ({self.hint})" if self.hint else text)


def _rebuilt(kind: type[HermesError], args: tuple[Any, ...], state: dict[str, Any]) -> HermesError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class HomeError(HermesError):
    """HERMES_HOME can't be used as it is."""


class ConfigError(HermesError):
    """config.yaml can't be read, is invalid, or can't be changed safely.

    ``problems`` has one line for each thing that is wrong; ``what`` joins them.
    """

    def __init__(
        self, what: str, *, where: str = "", hint: str = "", problems: tuple[str, ...] = ()
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.problems = problems or (str(self),)


class SecretsError(HermesError):
    """A secret can't be stored, read or removed. Its value is never part of the text."""


class UnknownProviderError(HermesError):
    """No installed provider has that name."""


class ProviderConflictError(HermesError):
    """Two owners claim one name, or the pin names another owner than the one found."""


class ProviderLoadError(HermesError):
    """A plugin could not be turned into a provider.

    ``step`` says how far it came: find, import, register, construct or check.
    """

    def __init__(
        self, what: str, *, plugin: str, distribution: str = "", step: str, hint: str = ""
    ) -> None:
        owner = f" of {distribution}" if distribution else ""
        super().__init__(f"{step} failed: {what}", where=f"plugin {plugin}{owner}", hint=hint)
        self.plugin = plugin
        self.distribution = distribution
        self.step = step


class ProviderUnavailableError(HermesError):
    """The provider loads, but says that it can't work as it is configured."""


class DatabaseError(HermesError):
    """A database can't be opened, read or written."""


class ForeignDatabase(DatabaseError):  # noqa: N818 - reads as what was found
    """The file belongs to another program, or to a newer version of this one."""


class CheckpointError(HermesError):
    """A provider that promises durable checkpoints could not make one."""


class ProviderCallError(HermesError):
    """A provider's method failed."""


class DeadlineExceeded(ProviderCallError):  # noqa: N818 - reads as what happened
    """A provider's method did not return in time."""


class AnswerLate(DeadlineExceeded):
    """Recall did not return in time, and goes on; its answer may serve the next turn."""


class ProviderPaused(ProviderCallError):  # noqa: N818 - reads as what happened
    """A provider was not called: it has failed too often, or an earlier call is stuck."""


class WrongReturnType(ProviderCallError):  # noqa: N818 - reads as what happened
    """A provider's method returned what the contract does not allow."""


def describe(error: BaseException) -> str:
    """Any exception as one line: its type, unless it is ours, and its text."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a plugin's exception; its type has to do
        text = ""
    if isinstance(error, HermesError):
        return text
    text = " ".join(text.split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(text: str) -> str:
    """Text with blanks for its line breaks and control characters."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    return text.strip()
