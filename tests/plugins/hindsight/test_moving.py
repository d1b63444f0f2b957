"""Who comes from hermes-agent brings files and variables along, and sets nothing up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import Machine
from support.our_plugins import install_plugin

from hermes_core import ConfigError
from hermes_memory_hindsight.settings import in_files, own_file, shared_file

CLOUD_URL = "https://api.hindsight.vectorize.io"


@pytest.fixture
def machine(tmp_path) -> Machine:
    """Our host, with the plugin chosen and nothing set up."""
    made = Machine(tmp_path / "machine", in_process=True)
    made.environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    install_plugin("hindsight", made.site.folder)
    made.write_config("memory: {provider: hindsight}")
    return made


def write(path: Path, **values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), "utf-8")


def shared(machine: Machine) -> Path:
    return machine.user / ".hindsight" / "config.json"


def rows(machine: Machine) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in machine.json("status")["provider"]["settings"]}


def probe(machine: Machine) -> str:
    return next(each for each in machine.run("doctor").lines if " probe: " in each)


def test_the_file_for_all_homes_is_enough_in_our_host(machine, server):
    server.key = "right"
    write(
        shared(machine), mode="local_external", api_url=server.url, apiKey="right", budget="high",
        banks={"hermes": {"bankId": "mine"}}, observation_scopes=[["a"], ["b", "c"]],
    )  # fmt: skip
    found = rows(machine)
    assert found["recall_budget"]["value"] == "high"
    assert found["observation_scopes"]["value"] == [["a"], ["b", "c"]]
    assert found["bank_id"]["origin"] == found["server_key"]["origin"] == str(shared(machine))
    assert f"Hindsight 1.1.0 at {server.url}, bank mine" in probe(machine)


def test_the_key_in_that_file_still_counts_when_set_up_has_moved_the_rest(
    machine, server, monkeypatch
):
    server.key = "right"
    write(shared(machine), mode="local_external", api_url=server.url, api_key="right", bank_id="b")
    result = machine.run("setup", "hindsight", "--no-input")
    assert result.code == 0, result
    own = machine.home / "hindsight" / "config.json"
    assert "right" not in own.read_text("utf-8")
    monkeypatch.setenv("HOME", str(machine.user))
    (first, moved), (second, left) = in_files(machine.home)
    assert (first, moved["bank_id"]) == (str(own), "b")
    assert (second, left) == (str(shared(machine)), {"server_key": "right"})


def test_an_older_name_of_the_key_is_the_key(home):
    write(own_file(home), mode="cloud", apiKey="k", api_url=CLOUD_URL)
    ((_, found),) = in_files(home)
    assert found["api_key"] == "k"


def test_an_address_alone_is_a_self_hosted_server(machine, server, home):
    machine.environment["HINDSIGHT_API_URL"] = server.url
    assert "bank hermes" in probe(machine)
    write(own_file(home), api_url=server.url)
    ((_, found),) = in_files(home)
    assert found == {"mode": "local_external", "api_url": server.url}


def test_a_home_with_a_file_takes_nothing_else_from_the_one_for_all(home):
    write(shared_file(), mode="cloud", apiKey="k", bank_id="old")
    write(own_file(home), mode="cloud")
    assert in_files(home) == [(str(own_file(home)), {"mode": "cloud"}),
                              (str(shared_file()), {"api_key": "k"})]  # fmt: skip


@pytest.mark.parametrize(
    "own",
    [
        {"mode": "local_external"},
        {"mode": "cloud", "api_url": "https://elsewhere.example"},
        {"api_url": "http://box:8888"},
    ],
)
def test_a_key_goes_to_no_other_place_than_the_one_it_was_for(home, own):
    write(shared_file(), mode="cloud", apiKey="k", api_url=CLOUD_URL)
    write(own_file(home), **own)
    assert not any({"api_key", "server_key"} & told.keys() for _, told in in_files(home))


@pytest.mark.parametrize(("mode", "key"), [("cloud", "api_key"), ("local_external", "server_key")])
def test_a_files_key_is_for_the_mode_that_it_names(home, mode, key):
    write(own_file(home), mode=mode, api_key="k")
    ((_, told),) = in_files(home)
    assert told == {"mode": mode, key: "k"}


def test_a_broken_file_for_all_is_told_only_where_it_counts(home):
    shared_file().parent.mkdir(parents=True)
    shared_file().write_text("{", "utf-8")
    with pytest.raises(ConfigError, match=r"\.hindsight"):
        in_files(home)
    write(own_file(home), mode="cloud")
    assert [path for path, _ in in_files(home)] == [str(own_file(home))]


def test_a_file_of_an_odd_form_is_no_reason_to_fail(home):
    write(own_file(home), mode="cloud", banks=["hermes"])
    assert in_files(home) == [(str(own_file(home)), {"mode": "cloud", "banks": ["hermes"]})]
