"""What goes wrong when plugins are installed, removed or bridged."""

from __future__ import annotations

from hermes_core.errors import HermesError


class InstallError(HermesError):
    """A plugin can't be installed, removed or bridged."""


class NeedsBuild(InstallError):  # noqa: N818 - reads as what was found
    """A project comes as source only: installing it runs its own build."""

    def __init__(self, project: str) -> None:
        super().__init__(
            f"{project} comes as source, and building it runs its code on this machine",
            hint="nothing was installed; --build allows it",
        )
        self.project = project
