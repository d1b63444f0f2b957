"""Anthropic's Messages API on the server of `fake_model`: the same answerers, other messages."""

from __future__ import annotations

import json
from typing import Any

from support.fake_model import Answer, FakeModel, Prompt


class FakeClaude(FakeModel):
    """A model for clients with ``base_url=model.root``. It does not stream."""

    @property
    def root(self) -> str:
        """What Anthropic's client calls the base URL."""
        return self.url.removesuffix("/v1")

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        if "/messages" not in path:
            return None
        prompt = Prompt(str(body.get("system") or ""), _said(body["messages"]), body)
        answers = (answerer(prompt) for answerer in self._answerers)
        answer = next((each for each in answers if each is not None), Answer("other", "Hm."))
        self._count(chat=1, **{answer.kind: 1})
        return _message(answer, body)


def _said(messages: list[dict[str, Any]]) -> str:
    texts = [each["content"] for each in messages if isinstance(each["content"], str)]
    return texts[-1] if texts else ""


def results(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool results in the newest message."""
    last = body["messages"][-1]["content"]
    return [each for each in last if isinstance(each, dict) and each["type"] == "tool_result"]


def _message(answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [
        {
            "type": "tool_use",
            "id": f"toolu_{len(body['messages'])}_{at}",
            "name": name,
            "input": arguments,
        }
        for at, (name, arguments) in enumerate(answer.calls)
    ] or [{"type": "text", "text": answer.content}]
    return json.loads(
        json.dumps(
            {
                "id": "msg_stand_in",
                "type": "message",
                "role": "assistant",
                "model": body.get("model", ""),
                "content": content,
                "stop_reason": "tool_use" if answer.calls else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
        )
    )
