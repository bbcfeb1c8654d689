"""Comments that silence the findings of a report, each tried before it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from tvlint.edits.apply import Text
from tvlint.findings import Edit, Finding, Problem, Report
from tvlint.identity import fingerprint
from tvlint.ir.location import Location
from tvlint.readers.shell.command_tree import quoted_lines
from tvlint.run.judge.check import Rules
from tvlint.run.process.session import Session
from tvlint.run.repair.fixes import File, Mentions, checked_in
from tvlint.run.silence.ignores import first_line


@dataclass(frozen=True, slots=True)
class Ignored:
    """The new contents of files, how many findings their comments silence, and the findings that no comment can."""

    contents: Mapping[str, bytes]
    count: int
    left: tuple[Finding, ...]


def with_ignores(report: Report, rules: Rules, reason: str, session: Session) -> Ignored:
    """Return the files with a comment above each statement that a finding of the report stands in."""
    contents: dict[str, bytes] = {}
    left = [finding for finding in report.findings if rules.known[finding.rule].once == "run"]
    """A comment in the first of many files leaves the next one to say the same."""
    silenced = [finding for finding in report.findings if finding not in left]
    mentions = Mentions(report.checked)
    for path in dict.fromkeys(map(checked_in, silenced)):
        findings = tuple(finding for finding in silenced if checked_in(finding) == path)
        found = session.steps.do(path, partial(_silenced, File(path, mentions, rules), findings, reason), "the comments")
        if isinstance(found, Problem):
            left += findings
        else:
            contents |= found.contents
            left += found.left
    return Ignored(contents, len(report.findings) - len(left), tuple(left))


def _silenced(file: File, findings: tuple[Finding, ...], reason: str) -> Ignored:
    """Return the file with comments about all the findings, else about those that one by one can be silenced."""
    if all(finding.location.path == file.path for finding in findings):
        edits = silencing(file, findings, reason)
        if edits:
            return Ignored(file.edited(edits) or {}, len(findings), ())
    kept: list[Finding] = []
    edits = ()
    for finding in findings:
        new = silencing(file, (*kept, finding), reason) if finding.location.path == file.path else ()
        if new:
            kept.append(finding)
            edits = new
    return Ignored(file.edited(edits) or {}, len(kept), tuple(finding for finding in findings if finding not in kept))


def silencing(file: File, findings: tuple[Finding, ...], reason: str) -> tuple[Edit, ...]:
    """Return the edits that write comments about the findings; none where these would not be all that changes."""
    text = file.text(file.path)
    edits = tuple(_comments(text, findings, reason)) if text is not None else ()
    contents = file.edited(edits) if edits else None
    trial = file.trial(contents) if contents else None
    if trial is None or trial.after.problems:
        return ()
    gone = Counter(map(fingerprint, trial.before.findings)) - Counter(map(fingerprint, trial.after.findings))
    new = Counter(map(fingerprint, trial.after.findings)) - Counter(map(fingerprint, trial.before.findings))
    return edits if gone == Counter(map(fingerprint, findings)) and not new and trial.changes_only(()) else ()


def _comments(text: Text, findings: tuple[Finding, ...], reason: str) -> Iterator[Edit]:
    lines = text.text.split("\n")
    path = findings[0].location.path
    at: dict[tuple[int, bool], dict[str, None]] = {}
    places = [(finding, finding.location.line or 0) for finding in findings]
    if any(not 0 < number <= len(lines) for _, number in places):
        return
    statements = {number: first_line(lines, number) for _, number in places}
    quoted = quoted_lines(path, text.text, statements.values())
    for finding, number in places:
        is_quoted = statements[number] in quoted
        at.setdefault((1 if is_quoted else statements[number], is_quoted), {})[finding.rule] = None
    for (number, is_quoted), rules in at.items():
        line = lines[number - 1].removeprefix("\ufeff")
        is_whole = is_quoted or line.lstrip().startswith("#")  # where no statement stands, it is about the file
        about = "ignore-file" if is_whole else "ignore"
        place = number + line.startswith("#!")
        comment = f"{line[: len(line) - len(line.lstrip())]}# tvlint: {about}[{', '.join(rules)}] {reason}\n"
        yield Edit(Location(path, place, 1, place, 1), comment)
