"""What stands behind each mode, in a process; and the real engine in the agents."""

import httpx
import pytest
from support.mem0_places import KEY, MODES, Place, without_settings
from support.mem0_processes import Served, configure
from support.our_plugins import install_plugin


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch):
    without_settings(monkeypatch)


@pytest.fixture
def installed(site, monkeypatch):
    """The plugin, for this process and those that it starts."""
    install_plugin("mem0", site.folder)
    monkeypatch.setenv("PYTHONPATH", str(site.folder))


@pytest.fixture(params=MODES)
def served(request, home, tmp_path, installed):
    made = Served(request.param, tmp_path)
    made.start()
    configure(home, made)
    yield made
    made.kill()


@pytest.fixture
def stored(home, served):
    """The texts of all that is stored, asked for over another connection."""

    def look():
        if served.mode == "oss":
            return Place(home, served.settings, None).texts()
        assert served.problems() == []
        scheme = "Token " if served.mode == "platform" else ""
        header = "Authorization" if served.mode == "platform" else "X-API-Key"
        with httpx.Client(base_url=served.url, headers={header: f"{scheme}{KEY}"}) as client:
            if served.mode == "platform":
                answer = client.post("/v3/memories/", json={"filters": {"user_id": "hermes-user"}})
            else:
                answer = client.get("/memories", params={"user_id": "hermes-user", "top_k": 200})
        return sorted(row["memory"] for row in answer.json()["results"])

    return look
