"""A report in the forms in which people and programs read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Final
from xml.sax.saxutils import quoteattr

from hermes_core.conformance._model import (
    FAILED,
    MUST,
    PASSED,
    SKIPPED,
    UNAVAILABLE,
    Report,
    Result,
)
from hermes_core.errors import one_line

#: How a line begins; a fault that does not count at the level is a warning.
WARNING: Final = "warning"

_GREEN: Final = "#2f7d32"
_RED: Final = "#b3261e"


def mark(result: Result, level: str) -> str:
    """A result in one word."""
    if result.state == FAILED and result.level != MUST and level == MUST:
        return WARNING
    return result.state


def details(result: Result) -> Iterator[tuple[str, str]]:
    """What there is to say about a fault: a label and a text each."""
    rows = (
        ("expected", "" if result.expected == result.title else result.expected),
        ("happened", result.happened),
        ("where", result.where),
        ("to fix", result.fix),
        ("more", result.docs),
    )
    yield from ((label, text) for label, text in rows if text)


def subject(report: Report) -> str:
    """What was checked, with what."""
    owner = f"{report.distribution} {report.version}" if report.distribution else report.version
    owned = f" ({owner})" if owner else f" ({report.source})"
    live = ", live" if report.live else ""
    return f"{report.name}{owned}, contract {report.contract}, kit {report.kit}{live}"


def verdict(report: Report, level: str) -> str:
    """The counts, and what they come to."""
    failed = len(report.failures(level))
    warnings = report.count(FAILED) - failed
    counts = [f"{report.count(PASSED)} passed", f"{failed} failed"]
    counts += [f"{warnings} {'warning' if warnings == 1 else 'warnings'}"] if warnings else []
    counts += [f"{report.count(SKIPPED)} skipped"]
    word = "FAILED" if failed else "NOT FINISHED" if report.unfinished(level) else "passed"
    return f"{', '.join(counts)} in {report.seconds:.1f} s: {word} at level {level}"


def summary(report: Report, level: str) -> list[str]:
    """What was checked, what was not and why, and what came of it."""
    skipped: dict[str, list[str]] = {}
    for each in report.results:
        if each.state == SKIPPED:
            skipped.setdefault(each.reason, []).append(each.id)
    reasons = [f"skipped {', '.join(ids)}: {one_line(reason)}" for reason, ids in skipped.items()]
    return [subject(report), *reasons, verdict(report, level)]


def plain(report: Report, level: str, paint: Callable[[str, str], str]) -> Iterator[str]:
    """Lines for a terminal or a log; ``paint`` colours a text by its mark."""
    reasons: dict[str, str] = {}
    for result in report.results:
        word = mark(result, level)
        shown = "FAILED" if word == FAILED else "ok" if word == PASSED else word
        first = reasons.setdefault(result.reason, result.id)
        said = result.reason if first == result.id else f"as {first}"
        reason = f": {one_line(said)}" if result.reason else ""
        yield f"{paint(f'{shown:7}', word)} {result.id}  {result.title}{reason}"
        if result.state == FAILED:
            yield from (f"{'':15}{label:9} {one_line(text)}" for label, text in details(result))
    yield ""
    if any(each.startswith(UNAVAILABLE) for each in reasons):
        yield "More can be checked if you give it what it needs: --env NAME=VALUE, --config FILE."
    yield subject(report)
    yield paint(verdict(report, level), PASSED if report.passes(level) else FAILED)


def markdown(report: Report, level: str) -> str:
    """A report for a pull request or a README."""
    lines = [f"# Conformance of {_cell(report.name)}", "", f"{subject(report)}  "]
    lines += [verdict(report, level), "", "| check | level | | |", "|---|---|---|---|"]
    for each in report.results:
        said = each.reason or each.happened
        row = (each.id, each.level, mark(each, level), f"{each.title}{f': {said}' if said else ''}")
        lines.append(f"| {' | '.join(_cell(cell) for cell in row)} |")
    for each in report.results:
        if each.state == FAILED:
            lines += ["", f"## {each.id} {_cell(each.title)}", ""]
            lines += [f"- **{label}**: {one_line(text)}" for label, text in details(each)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")


def junit(report: Report, level: str) -> str:
    """A report for a CI server."""
    failed, skipped = len(report.failures(level)), report.count(SKIPPED)
    counts = f'tests="{len(report.results)}" failures="{failed}" skipped="{skipped}"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites {counts} errors="0">',
        f'<testsuite name={quoteattr(one_line(subject(report)))} {counts} errors="0">',
    ]
    for each in report.results:
        name = quoteattr(f"{each.id} {each.title}")
        kind = quoteattr(f"{report.name}.{each.family}")
        lines.append(f'<testcase classname={kind} name={name} time="{each.seconds:.3f}">')
        lines.append(_outcome(each, level) + "</testcase>")
    return "\n".join([*lines, "</testsuite>", "</testsuites>"]) + "\n"


def _outcome(result: Result, level: str) -> str:
    word = mark(result, level)
    said = "\n".join(f"{label}: {_xml(text)}" for label, text in details(result))
    if word == FAILED:
        return f"<failure message={quoteattr(_xml(result.happened))}>{escape(said)}</failure>"
    if word == SKIPPED:
        return f"<skipped message={quoteattr(_xml(result.reason))}/>"
    return f"<system-out>warning: {escape(said)}</system-out>" if word == WARNING else ""


def _xml(text: str) -> str:
    """Text without the characters that XML can't have."""
    return "".join(each if each.isprintable() else " " for each in text)


def badge(report: Report, level: str) -> str:
    """A picture for a README."""
    passed = report.passes(level)
    left = f"hermes conformance {report.contract}"
    # The number tells a whole run from a few chosen checks.
    good, bad = report.count(PASSED), len(report.failures(level))
    right = f"{good} passed ({level})" if passed else f"{bad} failed"
    wide, more = 7 * len(left) + 10, 7 * len(right) + 10
    colour = _GREEN if passed else _RED
    text = 'font-family="Verdana,sans-serif" font-size="11" fill="#fff" text-anchor="middle"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide + more}" height="20" role="img" '
        f'aria-label="{left}: {right}">\n'
        f"<title>{escape(subject(report))}</title>\n"
        f'<rect width="{wide}" height="20" rx="3" fill="#444"/>\n'
        f'<rect x="{wide}" width="{more}" height="20" rx="3" fill="{colour}"/>\n'
        f'<g {text}><text x="{wide / 2:g}" y="14">{left}</text>'
        f'<text x="{wide + more / 2:g}" y="14">{right}</text></g>\n'
        "</svg>\n"
    )
