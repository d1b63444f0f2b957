"""A memory plugin for Hermes agents."""

from .provider import AcmeProvider

__all__ = ["AcmeProvider"]
