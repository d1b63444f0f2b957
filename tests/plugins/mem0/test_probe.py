"""The probe: asks, writes, recalls, and leaves nothing behind."""

from support.fake_model import FakeModel
from support.web_servers import NO_ROUTE, Answer, answering


def test_it_proves_a_write_and_its_recall_and_removes_both(place):
    provider = place.provider()
    provider.sync_turn("I have moved to Lisbon.", "Noted.", turn_id="t1")
    result = provider.probe(write=True)
    assert result.ok, result
    assert "wrote, recalled and removed" in result.detail
    assert place.texts() == ["I have moved to Lisbon."]
    assert {row["user_id"] for row in place.rows()} == {"hermes-user"}


def test_without_a_write_it_only_asks(place):
    result = place.provider().probe(write=False)
    assert result.ok
    assert result.detail.endswith("answers")
    assert place.texts() == []


def test_a_memory_that_does_not_come_back_is_a_failure_and_is_removed(server, monkeypatch):
    monkeypatch.setattr("hermes_memory_mem0.probe._WAIT", 0.3)
    monkeypatch.setattr(server.behind.store, "ranked", lambda *_: [])
    result = server.provider().probe(write=True)
    assert not result.ok
    assert "does not find it" in result.detail
    assert server.texts() == []


def test_a_model_that_does_not_answer_fails_the_probe_of_a_write(oss):
    provider = oss.provider()
    answer = oss.behind._chat
    oss.behind._chat = lambda _: {"error": {}, "choices": []}
    assert not provider.probe(write=True).ok
    oss.behind._chat = answer
    assert provider.probe(write=True).ok
    assert oss.texts() == []


def test_a_model_that_is_away_fails_the_probe_although_its_embeddings_answer(oss):
    with FakeModel() as gone:
        config = {"llm_url": gone.url, "embedder_url": oss.behind.url}
    result = oss.provider(config=config).probe(write=False)
    assert not result.ok
    assert f"{gone.url.removesuffix('/v1')}: can't be reached" in result.detail


def test_a_model_that_does_not_list_its_models_answers_all_the_same(oss):
    with answering(Answer(404, NO_ROUTE)) as url:
        config = {"llm_url": url, "embedder_url": oss.behind.url}
        assert oss.provider(config=config).probe(write=False).ok
