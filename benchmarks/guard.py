"""How much of the corpus the guard finds, what it objects to wrongly, and how long it takes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from _report import Report

from hermes_builtin.notes.guard import scan

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
#: The parts of the corpus: texts that rules and weights were made from, and two that they weren't.
PARTS = {"": "tuning", "held-out/": "held out", "fresh/": "fresh"}
FOUND, FALSE_ALARMS = 80, 0.5
ROUNDS = 50
STARTS = 7

#: Run in a new process: the rules are read by the first scan.
FIRST_SCAN = """
import time
from hermes_builtin.notes.guard import scan
begin = time.perf_counter()
scan("likes tea")
print(time.perf_counter() - begin)
"""


class Sample(NamedTuple):
    """A text of the corpus."""

    text: str
    kind: str
    language: str


def corpus(name: str) -> list[Sample]:
    lines = (CORPUS / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [Sample(**json.loads(line)) for line in lines]


def notes(size: int) -> str:
    """Harmless notes of so many characters, as the snapshot joins them."""
    entries = (
        f"Fact number {number}: the service listens on port {8000 + number}, see the wiki."
        for number in range(size)
    )
    return "\n\n".join(entries)[:size]


def percent(part: int, whole: int) -> float:
    return 100 * part / whole


def rates(report: Report, part: str, *, verbose: bool) -> None:
    attacks, harmless = corpus(f"{part}attacks"), corpus(f"{part}harmless")
    missed = [sample for sample in attacks if scan(sample.text) is None]
    alarms = [(sample, found) for sample in harmless if (found := scan(sample.text))]
    kinds, missed_kinds = Counter(s.kind for s in attacks), Counter(s.kind for s in missed)
    found = percent(len(attacks) - len(missed), len(attacks))
    name = PARTS[part]
    report.at_least(f"{name}: attacks found, % of {len(attacks)}", found, FOUND)
    for kind, count in kinds.most_common():
        share = percent(count - missed_kinds[kind], count)
        print(f"    {f'{kind}, % of {count}':42} {share:6.2f}")
    false = percent(len(alarms), len(harmless))
    report.at_most(f"{name}: false alarms, % of {len(harmless)}", false, FALSE_ALARMS)
    flagged = len(attacks) - len(missed) + len(alarms)
    print(f"    {'precision, %':42} {percent(len(attacks) - len(missed), flagged):6.2f}")
    if verbose:
        for sample in missed:
            print(f"  missed, {sample.kind}: {sample.text!r}")
        for sample, finding in alarms:
            print(f"  false alarm, {sample.kind}: {sample.text!r}\n    {finding}")


def times(report: Report) -> None:
    for size in (2_000, 12_000):
        text = notes(size)
        seconds = []
        for _ in range(ROUNDS):
            begin = perf_counter()
            scan(text)
            seconds.append(perf_counter() - begin)
        report.samples({f"a scan of {size:,} characters": seconds})
    command = [sys.executable, "-c", FIRST_SCAN]
    report.samples(
        {
            "the first scan of a process": [
                float(subprocess.run(command, check=True, capture_output=True).stdout)
                for _ in range(STARTS)
            ]
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verbose", action="store_true", help="list what was missed or wrong")
    arguments = parser.parse_args()
    report = Report("The guard of the notes, over tests/corpus")
    for part in PARTS:
        rates(report, part, verbose=arguments.verbose)
    times(report)
    report.close()


if __name__ == "__main__":
    main()
