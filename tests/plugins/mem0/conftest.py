"""A place of each mode: the platform's and the server's stand-ins, and the real engine."""

import pytest
from support.fielded import machine_in
from support.mem0_places import MODES, opened, without_settings
from support.our_plugins import PLUGINS, install_plugin


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch):
    without_settings(monkeypatch)


@pytest.fixture(params=MODES)
def place(request, home):
    with opened(request.param, home) as made:
        yield made


@pytest.fixture
def platform(home):
    with opened("platform", home) as made:
        yield made


@pytest.fixture
def server(home):
    with opened("self-hosted", home) as made:
        yield made


@pytest.fixture
def oss(home):
    with opened("oss", home) as made:
        yield made


@pytest.fixture
def machine(tmp_path):
    """The command, with the plugin installed."""
    made = machine_in(tmp_path / "machine", in_process=True)
    install_plugin("mem0", made.site.folder)
    return made


@pytest.fixture
def importable(monkeypatch):
    """Processes that a test starts can import the plugin."""
    monkeypatch.setenv("PYTHONPATH", str(PLUGINS / "mem0" / "src"))
