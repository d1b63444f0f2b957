"""hermes-plugins: the memory layer of a Hermes-style AI agent.

The names below are the public API: everything that the documentation teaches, and every type in a
public signature. Three packages have more public names: `hermes_core.service` (for a plugin whose
memories are in a service), `hermes_core.testing` and `hermes_core.conformance`.

A name is imported when it is first used, so that importing one costs no more than it must.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

# A name is written in three places: here for type checkers and editors, in `__all__` for `import *`
# and the documentation, and in `_MODULES` for the import at run time. Tests compare them.
# Adding a name is a promise to support it.
if TYPE_CHECKING:
    from hermes_core.call_log import HookReport, LoggedCall, hook_health, read_calls
    from hermes_core.config import Config, Pin, PluginFacts, Selection, load_config
    from hermes_core.discovery import ProviderInfo, discover
    from hermes_core.dispatch import Deadlines, HookHealth, Outcome
    from hermes_core.errors import (
        AgentEnded,
        AnswerLate,
        CheckpointError,
        ConfigError,
        DatabaseError,
        DeadlineExceeded,
        ForeignDatabase,
        HermesError,
        HomeError,
        ProviderCallError,
        ProviderConflictError,
        ProviderLoadError,
        ProviderPaused,
        ProviderUnavailableError,
        SecretsError,
        UnknownProviderError,
        WriteRefused,
        WrongReturnType,
    )
    from hermes_core.fence import (
        Block,
        RecalledText,
        StreamScrubber,
        build_block,
        defuse,
        without_fences,
    )
    from hermes_core.hookspecs import Messages, hookimpl
    from hermes_core.loading import (
        PlatformActions,
        PluginContext,
        PluginManifest,
        PluginRegistration,
        PluginState,
        load_provider,
    )
    from hermes_core.loading.compat import offer_hermes_agent_modules
    from hermes_core.manager import MemoryManager, Recollection
    from hermes_core.manager.asynchronous import AsyncMemoryManager
    from hermes_core.manager.conversation import (
        AsyncConversation,
        AsyncTurn,
        Conversation,
        Turn,
    )
    from hermes_core.manager.from_config import redactor_for
    from hermes_core.manager.prompts import TRIVIAL_PROMPT_RE, is_trivial_prompt
    from hermes_core.privacy import RedactionResult, Redactor
    from hermes_core.provider import (
        ForgetItem,
        ForgetReport,
        ForgetRequest,
        MemoryItem,
        MemoryPage,
        MemoryProvider,
        ProbeResult,
        RecallStatus,
        SupportsForget,
        SupportsListing,
        SupportsOwnSettings,
        SupportsPostSetup,
        SupportsProbe,
        SupportsStatusConfig,
        hand_over,
    )
    from hermes_core.service import ServiceProvider
    from hermes_core.session import SessionContext
    from hermes_core.storage.files import LockTimeoutError, file_lock, replace_file
    from hermes_core.storage.home import resolve_home
    from hermes_core.testing import FakeProvider

__all__ = [
    "TRIVIAL_PROMPT_RE",
    "AgentEnded",
    "AnswerLate",
    "AsyncConversation",
    "AsyncMemoryManager",
    "AsyncTurn",
    "Block",
    "CheckpointError",
    "Config",
    "ConfigError",
    "Conversation",
    "DatabaseError",
    "DeadlineExceeded",
    "Deadlines",
    "FakeProvider",
    "ForeignDatabase",
    "ForgetItem",
    "ForgetReport",
    "ForgetRequest",
    "HermesError",
    "HomeError",
    "HookHealth",
    "HookReport",
    "LockTimeoutError",
    "LoggedCall",
    "MemoryItem",
    "MemoryManager",
    "MemoryPage",
    "MemoryProvider",
    "Messages",
    "Outcome",
    "Pin",
    "PlatformActions",
    "PluginContext",
    "PluginFacts",
    "PluginManifest",
    "PluginRegistration",
    "PluginState",
    "ProbeResult",
    "ProviderCallError",
    "ProviderConflictError",
    "ProviderInfo",
    "ProviderLoadError",
    "ProviderPaused",
    "ProviderUnavailableError",
    "RecallStatus",
    "RecalledText",
    "Recollection",
    "RedactionResult",
    "Redactor",
    "SecretsError",
    "Selection",
    "ServiceProvider",
    "SessionContext",
    "StreamScrubber",
    "SupportsForget",
    "SupportsListing",
    "SupportsOwnSettings",
    "SupportsPostSetup",
    "SupportsProbe",
    "SupportsStatusConfig",
    "Turn",
    "UnknownProviderError",
    "WriteRefused",
    "WrongReturnType",
    "__version__",
    "build_block",
    "defuse",
    "discover",
    "file_lock",
    "hand_over",
    "hook_health",
    "hookimpl",
    "is_trivial_prompt",
    "load_config",
    "load_provider",
    "offer_hermes_agent_modules",
    "read_calls",
    "redactor_for",
    "replace_file",
    "resolve_home",
    "without_fences",
]

# The only place of the version: the build reads it from this line.
__version__ = "0.2.0"

#: Where each name is defined. A plain dictionary of text, so that `import hermes_core` imports
#: nothing else: the command line uses it before it knows which packages it needs.
_MODULES: Final = {
    # For hosts that show what the providers did.
    "HookReport": "call_log",
    "LoggedCall": "call_log",
    "hook_health": "call_log",
    "read_calls": "call_log",
    # Configuration and discovery: neither imports a plugin.
    "Config": "config",
    "PluginFacts": "config",
    "Pin": "config",
    "Selection": "config",
    "load_config": "config",
    "ProviderInfo": "discovery",
    "discover": "discovery",
    # Results and figures of hook calls.
    "Deadlines": "dispatch",
    "HookHealth": "dispatch",
    "Outcome": "dispatch",
    # Errors; `hermes_core.errors` draws the tree.
    "AgentEnded": "errors",
    "AnswerLate": "errors",
    "CheckpointError": "errors",
    "ConfigError": "errors",
    "DatabaseError": "errors",
    "DeadlineExceeded": "errors",
    "ForeignDatabase": "errors",
    "HermesError": "errors",
    "HomeError": "errors",
    "ProviderCallError": "errors",
    "ProviderConflictError": "errors",
    "ProviderLoadError": "errors",
    "ProviderPaused": "errors",
    "ProviderUnavailableError": "errors",
    "SecretsError": "errors",
    "UnknownProviderError": "errors",
    "WriteRefused": "errors",
    "WrongReturnType": "errors",
    # For hosts that build or scrub the recalled block themselves.
    "Block": "fence",
    "RecalledText": "fence",
    "StreamScrubber": "fence",
    "defuse": "fence",
    "build_block": "fence",
    "without_fences": "fence",
    # For observers and for type annotations of providers.
    "Messages": "hookspecs",
    "hookimpl": "hookspecs",
    # These import pluggy and, as soon as a provider is loaded, the plugin's packages.
    "PlatformActions": "loading",
    "PluginContext": "loading",
    "PluginManifest": "loading",
    "PluginRegistration": "loading",
    "PluginState": "loading",
    "load_provider": "loading",
    "offer_hermes_agent_modules": "loading.compat",
    "MemoryManager": "manager",
    "Recollection": "manager",
    "AsyncMemoryManager": "manager.asynchronous",
    "AsyncConversation": "manager.conversation",
    "AsyncTurn": "manager.conversation",
    "Conversation": "manager.conversation",
    "Turn": "manager.conversation",
    "redactor_for": "manager.from_config",
    "TRIVIAL_PROMPT_RE": "manager.prompts",
    "is_trivial_prompt": "manager.prompts",
    # For plugins and hosts that send text elsewhere.
    "RedactionResult": "privacy",
    "Redactor": "privacy",
    # What the author of a plugin implements.
    "ForgetItem": "provider",
    "ForgetReport": "provider",
    "ForgetRequest": "provider",
    "MemoryItem": "provider",
    "MemoryPage": "provider",
    "MemoryProvider": "provider",
    "ProbeResult": "provider",
    "RecallStatus": "provider",
    "SupportsForget": "provider",
    "SupportsListing": "provider",
    "SupportsOwnSettings": "provider",
    "SupportsPostSetup": "provider",
    "SupportsProbe": "provider",
    "SupportsStatusConfig": "provider",
    "hand_over": "provider",
    "ServiceProvider": "service",
    "SessionContext": "session",
    # hermes-agent locks and replaces the same files; a host that edits them uses the same
    # functions.
    "LockTimeoutError": "storage.files",
    "file_lock": "storage.files",
    "replace_file": "storage.files",
    "resolve_home": "storage.home",
    "FakeProvider": "testing",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Stored in the module's namespace: Python calls `__getattr__` only for names that are missing,
    # so the second use costs a plain attribute look-up.
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
