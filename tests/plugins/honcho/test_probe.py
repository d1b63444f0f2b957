"""The probe proves that it works, and leaves nothing."""


def test_it_asks_the_server_and_writes_nothing_unless_told(server, agent):
    result = agent().provider.probe(write=False)
    assert result.ok
    assert server.url in result.detail
    assert server.store.messages("hermes") == []


def test_it_writes_finds_and_removes_in_a_workspace_of_its_own(server, agent):
    result = agent().provider.probe(write=True)
    assert result.ok, result.detail
    assert "written, found and removed" in result.detail
    assert "could not" not in result.detail
    assert [each["id"] for each in server.store.workspaces()] == ["hermes"]
    assert any("hermes-probe-" in path for _, path in server.requests)


def test_a_wrong_key_is_a_bad_result(server, agent, monkeypatch):
    server.behaviour.key = "right"
    result = agent().provider.probe(write=True)
    assert not result.ok
    assert "the key was refused" in result.detail


def test_a_key_for_one_workspace_is_no_problem(server, agent):
    server.behaviour.workspace = "hermes"
    result = agent().provider.probe(write=True)
    assert result.ok
    assert "nothing was written: the key is for this workspace alone" in result.detail
    server.behaviour.workspace = "another"
    assert not agent().provider.probe(write=False).ok
