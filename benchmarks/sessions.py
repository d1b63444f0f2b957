"""The archive beside hermes-agent's: appending, size, and every kind of search.

``--messages N`` for the comparison (100,000), ``--large N`` for ours alone (1,000,000).
hermes-agent takes some minutes to store its part.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from _report import Report
from _venvs import Venv, ours, peer

WORK = str(Path(__file__).with_name("_archive_work.py"))
LOOKS = ("browse", "scroll")


def run(venv: Venv, kind: str, messages: int, singly: bool) -> dict[str, Any]:
    return json.loads(venv.run(WORK, kind, str(messages), str(int(singly))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    given = parser.parse_args()
    mine, its = ours(), peer()
    met = compare(
        run(mine, "ours", given.messages, singly=True),
        run(its, "theirs", given.messages, singly=True),
        given.messages,
    )
    if given.large:
        met &= alone(run(mine, "ours", given.large, singly=False), given.large)
    raise SystemExit(0 if met else 1)


def compare(mine: dict[str, Any], its: dict[str, Any], messages: int) -> bool:
    report = Report(f"Archive, {messages:,} messages of about 190 characters, beside hermes-agent")
    for name, result in (("ours", mine), ("hermes-agent", its)):
        appends, last = result["appends"], result["last appends"]
        print(
            f"  append, {name:13} {appends['rate']:8,.0f}/s  p50 {ms(appends['p50'])}"
            f"  p99.9 {ms(appends['p99.9'])}  max {ms(appends['max'])};"
            f" last tenth p99.9 {ms(last['p99.9'])}  max {ms(last['max'])}"
        )
        print(
            f"  size over text, {name:13} {result['size']:.2f}    memory {result['memory']:.0f} MB"
        )
    report.at_least("append, rate", mine["appends"]["rate"] / its["appends"]["rate"], 10)
    report.at_most("append, p99.9 in ms", mine["appends"]["p99.9"] * 1e3, 50)
    report.at_most("size over text", mine["size"], 2.5)
    turns = mine["turns"]
    print(
        f"  a turn of two messages: p50 {us(turns['p50'])}, with its share of the index"
        f" {us(1 / turns['rate'])}, CPU {us(turns['cpu'])}"
    )
    report.at_most("a turn, p50 in us", turns["p50"] * 1e6, 100)
    for kind, times in mine["searches"].items():
        other = its["searches"][kind]
        found = f"  (found {mine['found'].get(kind, '-')} : {its['found'].get(kind, '-')})"
        print(f"  {kind:20} p95 {ms(times['p95'])} : {ms(other['p95'])}{found}")
        if kind not in LOOKS:
            report.at_most(f"{kind}, p95", times["p95"] / other["p95"], 0.5)
            report.at_most(f"{kind}, p95 in ms", times["p95"] * 1e3, 50)
    return report.met


def alone(mine: dict[str, Any], messages: int) -> bool:
    report = Report(f"Archive, {messages:,} messages, ours alone")
    for kind, times in mine["searches"].items():
        report.at_most(f"{kind}, p95 in ms", times["p95"] * 1e3, 5 if kind in LOOKS else 150)
    report.at_most("memory in MB", mine["memory"], 250)
    report.at_most("size over text", mine["size"], 2.5)
    return report.met


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us"


if __name__ == "__main__":
    main()
