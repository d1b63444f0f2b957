"""The examples of docs/adapters.md run, and print what the page says."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import NoReturn

import pytest
from support.fake_claude import FakeClaude, results
from support.fake_model import Answer, FakeModel, Prompt

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
PAGE = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text("utf-8")
_LONGEST = 30


def example(title: str) -> tuple[str, str]:
    """The program that a section begins with, and its output."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    found = re.search(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL
    )
    assert found, title
    return found[1], found[2]


def helpful(prompt: Prompt) -> Answer:
    """Saves what it is asked to remember, with whichever tool it has, and answers from notes."""
    if '"role": "tool"' in str(prompt.body["messages"][-1]).replace("'", '"') or (
        isinstance(prompt.body["messages"][-1]["content"], list) and results(prompt.body)
    ):
        return Answer("helpful", "I saved that.\n")
    if "remember" in prompt.user:
        text = "Drinks green tea."
        claude = {"command": "create", "path": "/memories/USER.md", "file_text": text}
        note = {"action": "add", "target": "user", "content": text}
        is_claude = any(each.get("type") == "memory_20250818" for each in prompt.body["tools"])
        return Answer("helpful", calls=[("memory", claude if is_claude else note)])
    known = "Drinks green tea." in prompt.system
    return Answer("helpful", "You drink green tea.\n" if known else "I don't know.\n")


#: The stand-in has no Responses API, and nobody reads the traces.
_CHAT_API = """
import agents
agents.set_default_openai_api("chat_completions")
agents.set_tracing_disabled(True)
"""


def run(program: str, home: Path, before: str = "", **environment: str) -> str:
    """What a program prints, in a process of its own: its clients are never closed.

    The process is a fork. The tests of the adapters have imported the frameworks, which takes
    seconds for each.
    """
    assert len(program.splitlines()) <= _LONGEST
    keys = {"HERMES_HOME": str(home), "OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # our threads only wait
            child = os.fork()
        if not child:
            _be_the_program(before + program, {**keys, **environment}, out.fileno(), err.fileno())
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        assert status == 0, err.read().decode()
        lines = out.read().decode().splitlines()
    return "\n".join(line for line in lines if line) + "\n"


def _be_the_program(text: str, environment: dict[str, str], out: int, err: int) -> NoReturn:
    code = 1
    try:
        warnings.resetwarnings()  # pytest's
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = (open(each, "w", closefd=False) for each in (1, 2))  # noqa: SIM115
        os.environ.update(environment)
        exec(compile(text, "example", "exec"), {"__name__": "__main__"})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def test_the_example_of_the_openai_agents_sdk(tmp_path: Path) -> None:
    program, output = example("OpenAI Agents SDK")
    with FakeModel(answerers=[helpful]) as model:
        assert run(program, tmp_path, _CHAT_API, OPENAI_BASE_URL=model.url) == output


def test_the_example_of_pydantic_ai(tmp_path: Path) -> None:
    program, output = example("Pydantic AI")
    with FakeModel(answerers=[helpful]) as model:
        assert run(program, tmp_path, OPENAI_BASE_URL=model.url) == output


def test_the_example_of_the_anthropic_sdk(tmp_path: Path) -> None:
    program, output = example("Anthropic SDK")
    with FakeClaude(answerers=[helpful]) as model:
        assert run(program, tmp_path, ANTHROPIC_BASE_URL=model.root) == output
    assert (tmp_path / "memories" / "USER.md").read_text("utf-8") == "Drinks green tea."


def test_the_example_of_langgraph(tmp_path: Path) -> None:
    program, output = example("LangGraph")
    with FakeModel(answerers=[helpful]) as model:
        assert run(program, tmp_path, OPENAI_BASE_URL=model.url) == output


#: Gemini, as far as the example needs it.
_GEMINI = """
import json
from google.adk.models import BaseLlm, LlmResponse
from google.adk.models.registry import LLMRegistry
from google.genai import types as t
class StandIn(BaseLlm):
    @classmethod
    def supported_models(cls):
        return ["gemini-.*"]
    async def generate_content_async(self, request, stream=False):
        last = request.contents[-1].parts[-1]
        if last.function_response:
            known = "I drink green tea" in str(last.function_response.response)
            said = t.Part(text="You drink green tea." if known else "I don't know.")
        elif "remember" in last.text:
            said = t.Part(text="I saved that.")
        else:
            said = t.Part.from_function_call(name="load_memory", args={"query": "drink"})
        yield LlmResponse(content=t.Content(role="model", parts=[said]))
LLMRegistry.register(StandIn)
"""


def test_the_example_of_the_agent_development_kit(tmp_path: Path) -> None:
    program, output = example("Agent Development Kit")
    assert run(program, tmp_path, _GEMINI) == output
