"""What must not leave the machine: secrets are masked in whatever an external provider receives.

formats      tokens that are known by how they look
_contexts    secrets that are known by what precedes them
_known       secrets whose values are known, in every way of writing them
_redactor    `Redactor`, which masks both, and secrets whose values are known
settings     secrets in files with settings
error_text   masks secrets in errors that people read
"""

from __future__ import annotations

from hermes_core.privacy._redactor import RedactionResult, Redactor
from hermes_core.privacy.error_text import (
    mask_error,
    mask_secrets,
    remember_secrets,
    without_secrets,
)

__all__ = [
    "RedactionResult",
    "Redactor",
    "mask_error",
    "mask_secrets",
    "remember_secrets",
    "without_secrets",
]
