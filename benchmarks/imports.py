"""Imports large files of other programs, and measures the peak memory of the command.

``--megabytes N`` sets the size of each file. The texts are long, so that the time is that of
reading and storing bytes, not of counting messages. Each file is imported twice: the second run
has to find everything there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

MOST_MEGABYTES = 300
#: Characters of a message, and messages of a conversation.
LENGTH = 20_000
MESSAGES = 10
CHILD = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.stdout.write(done.stdout.decode())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--folder", default=None, help="where the files are")
    parser.add_argument("--kinds", nargs="*", default=list(WRITERS), choices=list(WRITERS))
    given = parser.parse_args()
    highest = 0.0
    for kind in given.kinds:
        with tempfile.TemporaryDirectory(prefix="import-bench-", dir=given.folder) as folder:
            highest = max(highest, measured(kind, Path(folder), given.megabytes))
    if highest > MOST_MEGABYTES:
        sys.exit(f"an import needed {highest:.0f} MB; at most {MOST_MEGABYTES} are allowed")


def measured(kind: str, folder: Path, megabytes: int) -> float:
    file = folder / f"{kind}.json"
    count = megabytes * 1_000_000 // (LENGTH * MESSAGES)
    with file.open("w", encoding="utf-8") as target:
        target.writelines(WRITERS[kind](count))
    highest = 0.0
    for run in ("first", "again"):
        at = time.perf_counter()
        peak, done = imported(folder / "home", file)
        seconds = time.perf_counter() - at
        known = done["known"] * (count if kind in ONE_SESSION else 1) * MESSAGES
        found = done["messages"] if run == "first" else known
        assert found == count * MESSAGES, done
        highest = max(highest, peak)
        print(
            f"{kind} ({run}): {file.stat().st_size / 1e6:,.0f} MB in {seconds:.1f} s,"
            f" peak memory {peak:,.0f} MB",
            flush=True,
        )
    return highest


def imported(home: Path, file: Path) -> tuple[float, dict[str, Any]]:
    script = str(Path(sys.executable).with_name("hermes-plugins"))
    command = [script, "--home", str(home), "sessions", "import", str(file), "--json"]
    run = [sys.executable, "-c", CHILD, *command]
    peak, _, answer = subprocess.check_output(run, text=True).partition("\n")
    return int(peak) / 1000, json.loads(answer)


def texts(number: int) -> Iterator[str]:
    for each in range(MESSAGES):
        word = f"word{number * MESSAGES + each} "
        yield (word + "tea \N{HOT BEVERAGE} \N{CLINKING BEER MUGS} and so on " * LENGTH)[:LENGTH]


def array(count: int, conversation: Callable[[int], dict[str, Any]]) -> Iterator[str]:
    yield "["
    for number in range(count):
        yield (", " if number else "") + json.dumps(conversation(number), ensure_ascii=False)
    yield "]"


def claude(number: int) -> dict[str, Any]:
    said = [
        {"sender": "human" if each % 2 == 0 else "assistant", "text": text}
        for each, text in enumerate(texts(number))
    ]
    return {"uuid": f"u-{number}", "name": f"Talk {number}", "chat_messages": said}


def chatgpt(number: int) -> dict[str, Any]:
    mapping = {}
    for each, text in enumerate(texts(number)):
        role = "user" if each % 2 == 0 else "assistant"
        message = {"author": {"role": role}, "content": {"parts": [text]}, "create_time": 1.7e9}
        mapping[str(each)] = {"parent": str(each - 1), "message": message, "children": []}
    return {
        "conversation_id": f"c-{number}",
        "mapping": mapping,
        "current_node": str(MESSAGES - 1),
    }


def lines(count: int) -> Iterator[str]:
    """Messages of conversations that take turns, so that none of them is in one place."""
    for start in range(0, count, 100):
        numbers = range(start, min(start + 100, count))
        for each in range(MESSAGES):
            for number in numbers:
                text = f"{number} {each} " + "tea \N{HOT BEVERAGE} " * (LENGTH // 6)
                line = {"role": "user", "content": text, "session_id": f"s-{number}"}
                yield json.dumps(line, ensure_ascii=False) + "\n"


def one_session(count: int, **name: str) -> Iterator[str]:
    """Messages of one conversation."""
    for number in range(count):
        for text in texts(number):
            yield json.dumps({"role": "user", "content": text, **name}, ensure_ascii=False) + "\n"


WRITERS: dict[str, Callable[[int], Iterator[str]]] = {
    "chatgpt": lambda count: array(count, chatgpt),
    "claude": lambda count: array(count, claude),
    "jsonl": lines,
    "jsonl-session": partial(one_session, session_id="s-1"),
    "jsonl-unnamed": one_session,
}
ONE_SESSION = ("jsonl-session", "jsonl-unnamed")


if __name__ == "__main__":
    main()
