"""Order and totals that every format shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tvlint.findings import Finding, NotEvaluated, Outcome, Report, Severity, StageCounts, Verdict
from tvlint.plurals import counted

SEVERITIES = tuple(Severity)


def by_place(findings: tuple[Finding, ...]) -> list[Finding]:
    """Findings in the order in which a person goes through the files."""
    return sorted(findings, key=lambda f: (f.location.path, f.location.line or 0, f.location.column or 0, _badness(f), f.rule))


def by_severity(findings: tuple[Finding, ...]) -> list[Finding]:
    """Findings from the worst to the mildest, each kind by place."""
    return sorted(by_place(findings), key=_badness)


def _badness(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def published(severity: Severity, fail_on: Severity) -> Severity:
    """Return the severity for a service, which fails for errors only: an error where the run fails for it."""
    return Severity.ERROR if SEVERITIES.index(severity) <= SEVERITIES.index(fail_on) else severity


def stage_counts(stages: StageCounts) -> str:
    """`16 proof stages in 4 classes: 15 proved, 1 refuted`."""
    if not stages.total:
        return "nothing was derived"
    counts = ((stages.proved, "proved"), (stages.refuted, "refuted"), (stages.unknown, "unknown"))
    parts = ", ".join(f"{number:,} {name}" for number, name in counts if number)
    text = f"{counted(stages.total, 'proof stage')} in {counted(stages.classes, 'class')}"
    return f"{text}: {parts}" if parts else text


def summary(report: Report) -> str:
    """One line that says it all: `2 errors, 1 warning in 3 files; 1 proof proved`."""
    severities = Counter(finding.severity for finding in report.findings)
    found = ", ".join(counted(severities[severity], severity.value) for severity in Severity if severities[severity])
    parts = []
    if report.problems:
        parts.append(counted(len(report.problems), "problem"))
    if found or report.checked:
        where = f" in {counted(len(report.checked), 'file')}" if report.checked else ""
        parts.append(f"{found or 'no findings'}{where}")
    outcomes = Counter(verdict.outcome for verdict in report.verdicts)
    parts += [f"{counted(outcomes[outcome], 'proof')} {outcome.value}" for outcome in Outcome if outcomes[outcome]]
    parts += set_aside(report)
    if report.not_evaluated:
        parts.append(unevaluated(report.not_evaluated))
    return "; ".join(parts) or "nothing was checked"


def unevaluated(items: Sequence[NotEvaluated], how: str = "not evaluated") -> str:
    """`5 rules not evaluated`; `rules not evaluated in 186 files, up to 254 in one`."""
    rules = [len({rule for names in missing.values() for rule in names}) for missing in needs(items).values()]
    if len(rules) < 2:
        return f"{counted(sum(rules), 'rule')} {how}"
    return f"rules {how} in {counted(len(rules), 'file')}, up to {max(rules):,} in one"


def needs(items: Sequence[NotEvaluated]) -> dict[str, dict[str, list[str]]]:
    """Return the rules that could not be evaluated, by file and by what they would need, each once."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for item in items:
        found.setdefault(item.location.path, {}).setdefault(item.reason, {})[item.rule] = None
    return {path: {reason: list(rules) for reason, rules in value.items()} for path, value in found.items()}


def files_by_need(items: Sequence[NotEvaluated]) -> list[tuple[str, list[str], list[str]]]:
    """Return what is needed, with the rules that need it and the files that lack it, for most files first."""
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for item in items:
        rules, paths = found.setdefault(item.reason, ({}, {}))
        rules[item.rule] = paths[item.location.path] = None
    return sorted(((reason, [*rules], [*paths]) for reason, (rules, paths) in found.items()), key=lambda each: -len(each[2]))


def rules_by_need(items: Sequence[NotEvaluated]) -> list[str]:
    """Return a line for what is needed: by file and rule, they would be most of what a large run writes."""
    return [f"{reason}, in {counted(len(paths), 'file')}: {', '.join(rules)}" for reason, rules, paths in files_by_need(items)]


def recognised_text(report: Report) -> str:
    """`recognised 12 files as megatron-lm (262 of 315 rules apply), 1 as verl (98)`; empty where none is a configuration."""
    parts = []
    for number, recognised in enumerate(report.recognised):
        rules = f"{recognised.applicable} of {recognised.rules} rules apply" if not number else f"{recognised.applicable}"
        files = f"{counted(recognised.files, 'file')}" if not number else f"{recognised.files:,}"
        parts.append(f"{files} as {recognised.framework} ({rules if recognised.applicable else 'no rule applies'})")
    return f"recognised {', '.join(parts)}" if parts else ""


def coverage_text(report: Report) -> str:
    """`understood 118 of 140 operators of 2 plans; the others ...`; empty where none is left, or none that a proof needs."""
    open_paths = {verdict.parallel for verdict in report.verdicts if verdict.outcome is not Outcome.PROVED}
    proved = {verdict.parallel for verdict in report.verdicts} - open_paths
    found = [(outline.path, outline.coverage) for outline in report.outlines if outline.coverage is not None]
    if all(path in proved or coverage.understood == coverage.operators for path, coverage in found):
        return ""
    understood, operators = sum(each.understood for _, each in found), sum(each.operators for _, each in found)
    all_of_them = f"{counted(operators, 'operator')} of {counted(len(found), 'plan')}"
    return f"understood {understood:,} of {all_of_them}; the others are wrong, unknown, or use what such an operator gives"


def judged_text(report: Report) -> str:
    """`judged by nemo/tvlint.toml: 3 files`; empty where the run has one project file."""
    return ", ".join(f"judged by {path}: {counted(files, 'file')}" for path, files in report.judged_by)


def set_aside(report: Report) -> list[str]:
    """Return how many findings are silenced, and how many are in a baseline or older than the change; nothing for none."""
    silenced = [silenced_text(report)] if report.silenced else []
    return [*silenced, f"{counted(report.known, 'finding')} already known"] if report.known else silenced


def silenced_text(report: Report) -> str:
    """`3 findings silenced (2 by comments, 1 by the project file)`."""
    by_comment = sum(silenced.by_comment for silenced in report.silenced)
    ways = [(by_comment, "by comments"), (len(report.silenced) - by_comment, "by the project file")]
    ways_text = ", ".join(f"{number:,} {way}" for number, way in ways if number)
    return f"{counted(len(report.silenced), 'finding')} silenced ({ways_text})"


def assumed(verdict: Verdict) -> str:
    """Return what the verdict takes for granted, on one line; empty where that is nothing."""
    return f"assumed: {'; '.join(verdict.assumptions)}" if verdict.assumptions else ""


def bytes_text(count: int) -> str:
    """`210 MiB`, `1.4 GiB`."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{max(1, round(count / (1 << 20)))} MiB"


def seconds_text(seconds: float) -> str:
    """`12 ms`, `1.24 s`, `75 s`."""
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
