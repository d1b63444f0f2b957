"""What the tests of compatibility share: a process that offers nothing yet."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from hermes_core.loading.compat._finder import OfferedModule, OfferFinder


@pytest.fixture(autouse=True)
def _few_distributions(request: pytest.FixtureRequest) -> None:
    """A plugin is looked for in everything that is installed: these are hundreds.

    hermes-agent's plugins are available only beside their SDKs.
    """
    if request.path.stem != "test_bundled":
        request.getfixturevalue("few_distributions")


@pytest.fixture(autouse=True)
def _nothing_offered() -> Iterator[None]:
    _take_back()
    yield
    _take_back()


def _take_back() -> None:
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, OfferFinder)]
    for name, module in list(sys.modules.items()):
        # A site may have a folder `plugins`: a namespace package, which remembers its `memory`.
        if isinstance(module, OfferedModule) or name.partition(".")[0] == "plugins":
            del sys.modules[name]
