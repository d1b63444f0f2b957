"""What Honcho knows already is handed over before the dialectic is asked, which may be slow."""

from __future__ import annotations

from hermes_core.provider import PARTS


def test_what_is_known_is_handed_over_before_the_dialectic_answers(server, agent, monkeypatch):
    from hermes_memory_honcho.recall import Dialectic

    one = agent()
    one.say("I have moved to Lisbon.")
    parts: list[str] = []
    seen: list[str] = []
    monkeypatch.setattr(Dialectic, "answer", lambda *_: seen.extend(parts) or "He lives there.")
    token = PARTS.set(parts)
    try:
        recalled = one.provider.prefetch("Which city have I moved to?", session_id="s1")
    finally:
        PARTS.reset(token)
    assert seen
    assert recalled == f"{seen[0]}\n\n## Honcho's answer\nHe lives there."
