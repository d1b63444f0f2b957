"""The scrubber of model output beside hermes-agent's, on streams as models give them."""

from __future__ import annotations

import json
from statistics import median

from _report import Report
from _venvs import ours, peer

ROUNDS = 7
TARGET = 2

# Runs in either venv: the two scrubbers have the same methods.
WORK = """
import json, time
{imports}

PROSE = "The service listens on port 8000, and the wiki says why it was chosen. " * 200
CODE = "for (int i = 0; i < n; i++) {{ std::vector<int> m; out << m[i] << '<'; }}\\n" * 200
LEAK = PROSE + "\\n<memory-context>\\n[a note]\\n\\n" + PROSE + "\\n</memory-context>\\n" + PROSE

def tokens(text, size=4):
    return [text[start : start + size] for start in range(0, len(text), size)]

STREAMS = {{
    "prose in tokens": tokens(PROSE),
    "code in tokens": tokens(CODE),
    "a leaked block in tokens": tokens(LEAK),
    "prose in one chunk": [PROSE],
    "code in one chunk": [CODE],
    "code with an accent in one chunk": [CODE + chr(233)],
}}

def seconds_a_chunk(chunks):
    scrubber, times = Scrubber(), max(1, 5000 // len(chunks))
    begin = time.process_time()
    for _ in range(times):
        scrubber.reset()
        for chunk in chunks:
            scrubber.feed(chunk)
        scrubber.flush()
    return (time.process_time() - begin) / times / len(chunks)

print(json.dumps({{name: seconds_a_chunk(chunks) for name, chunks in STREAMS.items()}}))
"""
OURS = "from hermes_core import StreamScrubber as Scrubber"
THEIRS = "from agent.memory_manager import StreamingContextScrubber as Scrubber"


def main() -> None:
    venvs = {"ours": (ours(), OURS), "hermes-agent": (peer(), THEIRS)}
    results: dict[str, list[dict[str, float]]] = {name: [] for name in venvs}
    for _ in range(ROUNDS):
        for name, (venv, imports) in venvs.items():
            results[name].append(json.loads(venv.run("-c", WORK.format(imports=imports))))
    report = Report(f"The scrubber, CPU for a chunk, {ROUNDS} rounds")
    for stream in results["ours"][0]:
        seconds = {name: [each[stream] for each in result] for name, result in results.items()}
        report.samples({f"{stream}, {name}": values for name, values in seconds.items()})
        ratio = median(seconds["ours"]) / median(seconds["hermes-agent"])
        report.at_most(f"{stream}, ours / hermes-agent", ratio, TARGET)
    report.close()


if __name__ == "__main__":
    main()
