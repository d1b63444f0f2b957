"""What the adapters share: a framework that is missing, and one in a version nobody has tried."""

from __future__ import annotations

import warnings
from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import SpecifierSet

from hermes_core import HermesError


class FrameworkMissing(HermesError, ImportError):
    """The framework of an adapter is not installed."""


def require(distribution: str, *, extra: str, tested: str) -> None:
    """Check that a framework is there; call it before the adapter imports the framework.

    Args:
        distribution: Its name on the package index, such as "openai-agents".
        extra: The extra of hermes-plugins that installs it.
        tested: The versions with which the adapter's tests pass, such as ">=0.24,<0.25".

    Raises:
        FrameworkMissing: It is not installed; the hint has the command that installs it.
    """
    try:
        found = version(distribution)
    except PackageNotFoundError as error:
        raise FrameworkMissing(
            f"{distribution} is not installed", hint=f"run: pip install 'hermes-plugins[{extra}]'"
        ) from error
    if not SpecifierSet(tested).contains(found, prereleases=True):
        # Python shows a warning once per place, and a module is imported once.
        warnings.warn(
            f"{distribution} {found} is not tested with hermes-plugins (tested: {tested})",
            stacklevel=2,
        )
