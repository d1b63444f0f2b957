"""What it costs to look for secrets in a text that has none."""

from __future__ import annotations

from statistics import median
from time import process_time

from _report import Report

from hermes_core.privacy import Redactor

ROUNDS = 25
PROSE = (
    "The agent reads the report and writes a summary; nothing in it is confidential.\n"
    "See the wiki at https://example.org/a/b for more: it lists 12 steps, and who does them.\n"
)
CODE = (
    "def load(path: Path, *, key: str = '') -> dict[str, Any]:  # see 4080415d2c1f7e6a9b8c0d\n"
    "    tokens = count_tokens(path.read_text()); return {'max_tokens': tokens, key: path.name}\n"
)
BLOB = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg\n"


def of_size(text: str, size: int) -> str:
    return (text * (size // len(text) + 1))[:size]


def cost(redactor: Redactor, value: object, times: int) -> list[float]:
    redactor.redact(value)
    seconds = []
    for _ in range(ROUNDS):
        begin = process_time()
        for _ in range(times):
            redactor.redact(value)
        seconds.append((process_time() - begin) / times)
    return seconds


def main() -> None:
    report = Report("Looking for secrets where there are none, three known secrets; CPU time")
    redactor = Redactor([f"known-secret-number-{number}" for number in range(3)])
    small = {name: of_size(text, 1024) for name, text in (("prose", PROSE), ("code", CODE))}
    large = {name: of_size(text, 1 << 20) for name, text in (("prose", PROSE), ("code", CODE))}
    large["base64"] = of_size(BLOB, 1 << 20)
    kilobytes = {f"1 KB of {name}": cost(redactor, text, 200) for name, text in small.items()}
    megabytes = {f"1 MB of {name}": cost(redactor, text, 1) for name, text in large.items()}
    report.samples(kilobytes | megabytes)
    off = cost(Redactor(formats=False), large["prose"], 200)
    report.samples({"1 MB, switched off, nothing known": off})
    report.at_most("1 KB of prose, us", median(kilobytes["1 KB of prose"]) * 1e6, 10)
    report.at_most("1 MB of prose, ms", median(megabytes["1 MB of prose"]) * 1e3, 20)
    report.close()


if __name__ == "__main__":
    main()
