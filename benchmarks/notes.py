"""The notes beside hermes-agent's MemoryStore: add, replace, and the snapshot."""

from __future__ import annotations

import json
from statistics import median

from _report import Report
from _venvs import ours, peer

ROUNDS = 7
TIMES = 100

# Runs in either venv, with a store that has the same four functions.
WORK = """
import json, os, tempfile, time
home = tempfile.mkdtemp(prefix="notes-bench-")
os.environ["HERMES_HOME"] = home
{imports}

def note(number):
    return f"Fact number {{number}}: the service listens on port {{8000 + number}}, see the wiki."

def bare():  # a file of 20 entries put in place so that it survives a power cut, no more
    content = "\\n".join(map(note, range(20))).encode()
    handle = os.open(home + "/bare.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(handle, content); os.fsync(handle); os.close(handle)
    os.replace(home + "/bare.tmp", home + "/bare")
    handle = os.open(home, os.O_RDONLY); os.fsync(handle); os.close(handle)

def measured(call, numbers):
    cpu, wall = time.process_time(), time.perf_counter()
    for number in numbers:
        call(number)
    count = len(numbers)
    spent = time.process_time() - cpu
    return {{"cpu": spent / count, "wall": (time.perf_counter() - wall) / count}}

result = {{}}
for size in (20, 200):
    fill(size)
    for number in range(size):
        add(note(number))
    numbers = range(1000, 1000 + {times})
    cpu = wall = 0.0
    for number in numbers:  # each add is taken away again, unmeasured
        one = measured(lambda each: add(note(each)), [number])
        cpu += one["cpu"]; wall += one["wall"]
        remove(note(number))
    result[f"add, {{size}} entries"] = {{"cpu": cpu / {times}, "wall": wall / {times}}}
    state = [5]
    def swap(number):
        replace(f"number {{state[0]}}:", note(number)); state[0] = number
    result[f"replace, {{size}} entries"] = measured(swap, [2000 + n for n in range({times})])
result["snapshot, 200 entries"] = measured(lambda each: load(), range({times}))
result["system calls alone"] = measured(lambda each: bare(), range({times}))
print(json.dumps(result))
"""

OURS = """
from pathlib import Path
from hermes_builtin.notes import Notes, Operation, Author, NotesSettings, snapshot
import shutil
def fill(size):
    global notes
    shutil.rmtree(home, ignore_errors=True)
    notes = Notes(Path(home), NotesSettings(memory_char_limit=100_000))
def change(*operation):
    notes.notebooks["memory"].change([Operation(*operation)], Author())
def add(text): change("add", text)
def remove(text): change("remove", "", text)
def replace(old, new): change("replace", new, old)
def load():
    fresh = Notes(Path(home), NotesSettings(memory_char_limit=100_000))
    block = snapshot(fresh.enabled())
    fresh.close()
    assert "Fact number" in block
"""

THEIRS = """
from tools.memory_tool import MemoryStore
import shutil
def fill(size):
    global store
    shutil.rmtree(home + "/memories", ignore_errors=True)
    store = MemoryStore(memory_char_limit=100_000)
    store.load_from_disk()
def checked(answer):
    assert answer["success"], answer
def add(text): checked(store.add("memory", text))
def remove(text): checked(store.remove("memory", text))
def replace(old, new): checked(store.replace("memory", old, new))
def load():
    fresh = MemoryStore(memory_char_limit=100_000)
    fresh.load_from_disk()
    assert "Fact number" in fresh.format_for_system_prompt("memory")
"""


def main() -> None:
    venvs = {"ours": (ours(), OURS), "hermes-agent": (peer(), THEIRS)}
    results: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in venvs}
    for _ in range(ROUNDS):
        for name, (venv, imports) in venvs.items():
            code = WORK.format(imports=imports, times=TIMES)
            results[name].append(json.loads(venv.run("-c", code)))
    report = Report(
        f"Notes, {TIMES} times x {ROUNDS}; ours also keeps history and syncs the folder"
    )
    for what in results["ours"][0]:
        ratios = {}
        for kind in ("cpu", "wall"):
            seconds = {name: [each[what][kind] for each in r] for name, r in results.items()}
            report.samples({f"{what}, {kind}, {name}": values for name, values in seconds.items()})
            ratios[kind] = median(seconds["ours"]) / median(seconds["hermes-agent"])
        if what == "system calls alone":
            share = median([each[what]["cpu"] for each in results["ours"]]) / median(
                [each["add, 20 entries"]["cpu"] for each in results["hermes-agent"]]
            )
            print(f"  {what} / hermes-agent's add, cpu: {share:.2f}")
        elif what.startswith("snapshot"):
            report.at_most(f"{what}, wall", ratios["wall"], 0.25)
        else:
            report.at_most(f"{what}, cpu", ratios["cpu"], 0.5)
            report.at_most(f"{what}, wall", ratios["wall"], 1.3)
    report.close()


if __name__ == "__main__":
    main()
