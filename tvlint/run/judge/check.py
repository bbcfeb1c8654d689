"""Check files: read each, judge its configurations, plan or schedule, then prove the pairs of the project."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from tvlint.cache.remember import MANY
from tvlint.checkout.opening import is_empty, recording
from tvlint.checks import findings_of_plan, load_check
from tvlint.findings import Finding, NotEvaluated, Problem, Recognised, Related, Report, Severity, Silenced
from tvlint.frameworks.kin import DISTINCT
from tvlint.ir.configuration import Configuration, Setting
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass, field, replace
from tvlint.readers.document import NOTHING, Document, ReadError
from tvlint.readers.sources.resource_limits import without_collection
from tvlint.rule import Rule, RuleKind
from tvlint.run.process.aside import Aside
from tvlint.run.process.session import Session
from tvlint.run.project.discovery import Candidates, matches, pairings
from tvlint.run.project.nested import folder_of, judged_by, judging, projects
from tvlint.run.project.project_file import Project
from tvlint.run.project.sources import at_sources
from tvlint.run.project.unjudged import unjudged
from tvlint.run.project.world_size import Stated, lacks_world_size, nearest, stated
from tvlint.run.silence.ignores import RULE as UNUSED
from tvlint.run.silence.ignores import silence

if TYPE_CHECKING:
    from tvlint.cache.files import Book, Page, Writer
    from tvlint.cache.remember import Cache
    from tvlint.ir.outline import Outline
    from tvlint.ir.plan import Plan
    from tvlint.ir.schedule import Schedule

T = TypeVar("T")

LARGE = 64 << 10
"""Bytes of the smallest file of which is kept what is found in it, however few are checked."""

MOST_REPAIRED = 20
"""After so many errors of a file no more repairs are looked for: nobody reads them, and each takes a search."""

NEIGHBOURS = 16
"""Files one after the other that one process checks: they often lie beside each other, and read the same."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that apply, all that exist, and the project that they are applied for."""

    applied: Mapping[str, Rule]
    known: Mapping[str, Rule]
    project: Project


@dataclass(slots=True)
class _Said:
    """The findings so far, in order."""

    findings: list[Finding] = field(default_factory=list)
    not_evaluated: list[NotEvaluated] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    outlines: list[Outline] = field(default_factory=list)
    checked: dict[str, set[RuleKind]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    recognised: dict[tuple[str, str], tuple[int, bool]] = field(default_factory=dict)
    """Framework and file -> how many of all rules about configurations hold for it, and whether its ranks are not known."""
    repairs: int = MOST_REPAIRED
    """How many more errors of one file have the nearest settings that repair them searched."""

    def add(self, other: _Said) -> None:
        """Add what was said of the next file."""
        self.findings += other.findings
        self.not_evaluated += other.not_evaluated
        self.problems += other.problems
        self.outlines += other.outlines
        self.checked |= other.checked
        self.skipped += other.skipped
        self.recognised |= other.recognised


@dataclass(frozen=True, slots=True)
class _Result:
    """What was said of one file, as values that are remembered."""

    findings: tuple[Finding, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    problems: tuple[Problem, ...]
    outlines: tuple[Outline, ...]
    checked: tuple[tuple[str, tuple[RuleKind, ...]], ...]
    skipped: tuple[str, ...]
    recognised: tuple[tuple[tuple[str, str], tuple[int, bool]], ...]

    @staticmethod
    def of(said: _Said) -> _Result:
        """Return what was said."""
        checked = tuple((path, tuple(kind for kind in RuleKind if kind in kinds)) for path, kinds in said.checked.items())
        return _Result(
            tuple(said.findings),
            tuple(said.not_evaluated),
            tuple(said.problems),
            tuple(said.outlines),
            checked,
            tuple(said.skipped),
            tuple(said.recognised.items()),
        )

    def said(self) -> _Said:
        """Return it again."""
        return _Said(
            list(self.findings),
            list(self.not_evaluated),
            list(self.problems),
            list(self.outlines),
            {path: set(rule_kinds) for path, rule_kinds in self.checked},
            list(self.skipped),
            dict(self.recognised),
        )


class _Remembered:
    """What earlier runs said of large files, and of many that were found in folders, and this one will have said; of others
    nothing, since they are checked sooner than looked up."""

    def __init__(
        self, cache: Cache | None, candidates: Candidates, rules: Mapping[str, Rule], project: Project, repairs: int
    ) -> None:
        self._cache, self._shelf = cache, ""
        self._named = candidates.named
        many = len(candidates.files) - len(candidates.named) >= MANY
        self._files = frozenset(path for path in candidates.files if (many and path not in self._named) or _is_large(path))
        if cache is not None and self._files:
            severities = tuple((name, rule.severity) for name, rule in rules.items())
            self._shelf = cache.shelf((os.getcwd(), severities, _of_files(project), repairs)) or ""
        self._old: Book | None = None
        """What holds still, or was not asked for."""
        self._writers: dict[int, Writer] = {}

    def unchanged(self) -> dict[str, _Said]:
        """Return what was said of the files for which nothing has changed that it rests on."""
        if self._cache is None or not self._shelf:
            return {}
        from tvlint.cache.files import EMPTY, answering
        from tvlint.cache.values import decode

        book = self._cache.book(self._shelf) or EMPTY
        others = (file for file in book.files if file.path not in self._files and os.path.lexists(file.path))
        try:
            holding = book.holding(self._files, answering())
            said = {file.path: decode(file.text.encode(), _Result).said() for file in holding}
            self._old = replace(book, files=(*holding, *others))
        except (ValueError, TypeError, KeyError, IndexError):
            self._old, said = EMPTY, {}
        return {path: each_said for path, each_said in said.items() if self._is_kept(path, each_said)}

    def looked(self, path: str, check_one: Callable[[str], _Said]) -> tuple[_Said, Page | None]:
        """Return what is said of the file, with what it rests on."""
        if not self._shelf or path not in self._files:
            return check_one(path), None
        from tvlint.cache.files import Writer, digest
        from tvlint.cache.values import encode

        with recording(digest) as asked:
            said = check_one(path)
        if not self._is_kept(path, said):
            return said, None
        writer = self._writers.setdefault(os.getpid(), Writer(os.getpid()))
        return said, writer.page(path, asked, encode(_Result.of(said)).decode())

    def _is_kept(self, path: str, said: _Said) -> bool:
        """Return whether the same is said of the file whether it is named or found: it was judged."""
        return path not in self._named or path in said.checked

    def keep(self, pages: Sequence[Page]) -> None:
        """Keep what was said of the files that were looked at, of those that are unchanged, and of those not asked for."""
        if self._cache is None or self._old is None or not pages:
            return
        from tvlint.cache.files import bound

        again = {page.found.path for page in pages}
        left = replace(self._old, files=tuple(file for file in self._old.files if file.path not in again))
        book = bound(pages, (left,))
        self._cache.bind(self._shelf, book)
        if len(pages) >= MANY:
            from tvlint.run.project.dependents import remember

            remember(self._cache, book)


def _is_large(path: str) -> bool:
    """Return whether a file is not quickly checked anyway."""
    try:
        return os.path.isdir(path) or os.path.getsize(path) >= LARGE
    except OSError:
        return False


def _of_files(project: Project) -> Project:
    """Return the project without what decides nothing but which files are checked and what of their findings is reported."""
    return replace(
        project,
        path=project.path if project.world_size is not None else "",
        paths=(),
        exclude=(),
        select=(),
        ignore=(),
        per_file_ignores={},
        pattern_locations={},
        fail_on=Severity.ERROR,
        baseline="",
        names=(),
        nested={folder: _of_files(each_project) for folder, each_project in project.nested.items()},
    )


def check(
    candidates: Candidates,
    rules: Mapping[str, Rule],
    known: Mapping[str, Rule],
    project: Project,
    session: Session | None = None,
    plans: dict[str, Plan] | None = None,
    repairs: int = MOST_REPAIRED,
) -> tuple[Report, tuple[str, ...]]:
    """Return the report of the rules over the files, and the named files that hold nothing that tvlint reads.

    `rules` are those that apply, `known` all that exist. Plans that the project's proofs need are left in `plans`, where
    they were read; what is found in large files, and in many, is kept in the cache. Until a file has `repairs` errors, the
    nearest settings that repair them are searched.
    """
    session = session or Session()
    said = _Said(problems=list(candidates.problems), findings=list(candidates.findings))
    needed = {pairing.path for each_project in projects(project) for pairing in pairings(each_project)}
    severities = {folder: _with_severities(rules, known, each_project) for folder, each_project in project.nested.items()}

    remembered = _Remembered(session.cache, candidates, rules, project, repairs)

    @without_collection()
    def check_one(path: str) -> _Said:
        said = _Said(repairs=repairs)
        if session.cache is not None and path in needed:
            session.cache.look(path)
        applied = severities.get(folder_of(path, project), rules)
        plan = _check_file(path, path in candidates.named, applied, judging(path, project), said)
        said.findings = [_found_in(path, finding) for finding in said.findings]
        if plan is not None and plans is not None and path in needed:
            plans[path] = plan
        return said

    look = partial(remembered.looked, check_one=check_one)
    found = session.steps.do(os.curdir, remembered.unchanged, "what is remembered")
    unchanged = {} if isinstance(found, Problem) else found
    pages: list[Page] = []
    with ExitStack() as stack:
        aside: dict[str, tuple[Aside[tuple[_Said, Page | None]], int]] = {}
        alone = session.jobs == 1 or len(candidates.files) - len(unchanged) < MANY or not hasattr(os, "fork")

        def checked(index: int) -> tuple[_Said, Page | None]:
            path = candidates.files[index]
            if alone or path in needed:
                return look(path)
            if not aside:
                others = [other for other in candidates.files[index:] if other not in needed and other not in unchanged]
                aside.update(_shared_out(others, look, session.jobs, stack))
            share, place = aside[path]
            return share.value(place)

        for index, path in enumerate(candidates.files):
            if session.progress is not None:
                session.progress(f"checking {path}", index / len(candidates.files))
            if path in unchanged:
                said.add(unchanged[path])
                continue
            looked = session.steps.do(path, partial(checked, index))
            if isinstance(looked, Problem):
                said.problems.append(looked)
            else:
                said.add(looked[0])
                pages += filter(None, looked[1:])
    session.steps.do(os.curdir, partial(remembered.keep, pages), "what is remembered")
    if candidates.is_whole:
        paths = {*candidates.files, *(finding.location.path for finding in said.findings)}
        said.findings += [finding for each_project in projects(project) for finding in _unused_patterns(each_project, paths)]
    report = session.steps.conclude(project.path or os.curdir, lambda: _reported(said, rules, known, project))
    if isinstance(report, Problem):
        report = Report(problems=(*said.problems, report), checked=tuple(said.checked))
    return report, tuple(said.skipped)


def _shared_out(
    paths: Sequence[str], check_one: Callable[[str], T], jobs: int, stack: ExitStack
) -> dict[str, tuple[Aside[T], int]]:
    """Return the process that checks each file from now on, and the file's place among those that it checks."""
    shares: list[list[str]] = [[] for _ in range(jobs)]
    for index, path in enumerate(paths):
        shares[index // NEIGHBOURS % jobs].append(path)
    found = {}
    for share in filter(None, shares):
        aside = stack.enter_context(Aside(*(partial(check_one, path) for path in share)))
        found.update({path: (aside, place) for place, path in enumerate(share)})
    return found


def _reported(said: _Said, rules: Mapping[str, Rule], known: Mapping[str, Rule], project: Project) -> Report:
    """Return what was said without what comments and the project silence."""

    def judged(path: str, rule: str) -> bool:
        return rule in rules and rules[rule].kind in said.checked.get(path, ())

    hidden: tuple[Finding, ...] = ()
    findings = _firsts(said.findings, lambda reported: (reported.found_in, _said_by(reported, known)))
    for one in projects(project):
        findings = at_sources(findings, one)
    if project.heeds_comments:
        findings, hidden = silence(findings, said.checked, judged, known)
    silenced = [Silenced(finding, by_comment=True) for finding in hidden if finding.rule in rules]
    kept: list[Finding] = []
    for finding in findings:
        this_project = judging(finding.found_in or finding.location.path, project)
        if finding.rule in rules and _is_ignored(finding, this_project):
            silenced.append(Silenced(finding, by_comment=False))
        elif finding.rule in rules:
            severity = this_project.severity.get(finding.rule)
            kept.append(finding if severity is None else replace(finding, severity=severity))
    return Report(
        findings=tuple(_once_a_run(_once(kept, known), known)),
        silenced=_firsts(silenced, lambda reported: _said_by(reported.finding, known)),
        not_evaluated=tuple(each for each in said.not_evaluated if _applies(each.rule, judging(each.location.path, project))),
        problems=tuple(said.problems),
        checked=tuple(said.checked),
        outlines=tuple(said.outlines),
        pairings=tuple(pairing for one in projects(project) for pairing in pairings(one)),
        judged_by=tuple(judged_by(project, said.checked)),
        recognised=_recognised(said, known),
    )


def _with_severities(rules: Mapping[str, Rule], known: Mapping[str, Rule], project: Project) -> Mapping[str, Rule]:
    """Return the rules with the severities of another project."""
    return {name: replace(known[name], severity=project.severity.get(name, known[name].severity)) for name in rules}


def _firsts(items: Iterable[T], key: Callable[[T], object]) -> tuple[T, ...]:
    """Return the first of all items that have the same key."""
    found: dict[object, T] = {}
    for item in items:
        found.setdefault(key(item), item)
    return tuple(found.values())


def _said_by(finding: Finding, rules: Mapping[str, Rule]) -> tuple[object, ...]:
    """Return what the finding says of which place, however its file is named: configurations, and files, may share a place."""
    path = os.path.abspath(finding.location.path)
    once = finding.rule in rules and rules[finding.rule].once != ""
    return (finding.rule, path) if once else (finding.rule, replace(finding.location, path=path), finding.message)


def _once(findings: Iterable[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """Return the findings without those that say the same again, or the same of one place with a condition added.

    The condition is that of a file that is judged alone, which a file that sources it decides.
    """
    kept = _firsts(findings, lambda reported: _said_by(reported, rules))
    said: dict[object, list[str]] = {}
    for each_finding in kept:
        said.setdefault(_said_by(each_finding, rules)[:2], []).append(f"{each_finding.message}, unless ")
    return [finding for finding in kept if not finding.message.startswith(tuple(said[_said_by(finding, rules)[:2]]))]


def _once_a_run(findings: list[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """Return the findings, with one in the place of all that say of a run the same: the first, which counts the others."""
    reported = Counter(finding.rule for finding in findings if finding.rule in rules and rules[finding.rule].once == "run")
    kept: list[Finding] = []
    for finding in findings:
        others = reported.pop(finding.rule, 0) - 1
        if others > 0:
            said = f"the same in {others} other file{'s' if others > 1 else ''}"
            kept.append(replace(finding, help=f"{finding.help}; {said}" if finding.help else said))
        elif others == 0 or finding.rule not in rules or rules[finding.rule].once != "run":
            kept.append(finding)
    return kept


def _found_in(path: str, finding: Finding) -> Finding:
    """The finding, with the checked file where it stands elsewhere."""
    return finding if finding.location.path == path else replace(finding, found_in=path)


def _check_file(path: str, is_named: bool, rules: Mapping[str, Rule], project: Project, said: _Said) -> Plan | None:
    from tvlint.readers.read import read

    try:
        document = read(path, operators=project.operators)
    except ReadError as error:
        said.problems.append(error.problem)
        return None
    except OSError as error:
        said.problems.append(Problem(f"cannot be read: {(error.strerror or 'unknown reason').lower()}", Location(path)))
        return None
    if document is None:
        if is_named and is_empty(path):
            said.problems.append(Problem("the file is empty", Location(path)))
            return None
        problem = _malformed(path, is_named)
        if problem is not None and is_named:
            said.problems.append(problem)
        elif problem is not None:
            said.findings.append(unjudged(path, problem.message, problem.location))
        elif is_named:
            said.skipped.append(path)
            said.findings.append(unjudged(path, "no configuration or plan that tvlint knows"))
        return None
    if document.format == NOTHING:
        said.findings += document.findings
        return None
    said.checked[path] = _kinds(document)
    if document.configurations:
        from tvlint.readers.megatron.invalid_options import still_refused

        comments = stated(path)
        said.problems += comments.problems
        reported = as_known(document, comments, project)
        said.findings += still_refused(document.findings, reported)
        for configuration in reported:
            _check_configuration(configuration, rules, said)
        if not _recognise(reported, said) and not said.findings:
            said.checked.pop(path)
    else:
        said.findings += document.findings
    if document.plan is not None:
        _check_plan(document.plan, rules, project, said)
    if document.schedule is not None:
        _check_schedule(document.schedule, rules, project, said)
    return document.plan


def _malformed(path: str, is_named: bool) -> Problem | None:
    """Return what keeps the file from being what its name says; None where nothing does."""
    from tvlint.readers.malformed import NAMED, refuse_found, refuse_named
    from tvlint.readers.read import unpacked

    if not path.lower().endswith(NAMED):
        return None
    try:
        (refuse_named if is_named else refuse_found)(path, unpacked(path))
    except ReadError as error:
        return error.problem
    return None


def _kinds(document: Document) -> set[RuleKind]:
    kinds = {RuleKind.INPUT}
    if document.configurations:
        kinds.add(RuleKind.CONFIG)
    if document.plan is not None:
        kinds.add(RuleKind.PLAN)
    if document.schedule is not None:
        kinds.add(RuleKind.SCHEDULE)
    return kinds


@cache
def applicable(framework: str, version: str) -> int:
    """Return how many of all rules about configurations hold for a framework in a version."""
    from tvlint.rulebook.judge import is_applicable
    from tvlint.rulebook.pages import load_rules

    bare = Configuration("", "", framework, {}, version=version)
    return sum(rule.kind is RuleKind.CONFIG and is_applicable(rule, bare) for rule in load_rules().values())


def _recognise(configurations: Sequence[Configuration], said: _Said) -> bool:
    """Note which frameworks the configurations of a file are of; return whether a rule holds for one of them."""
    counts = [applicable(configuration.framework, configuration.version) for configuration in configurations]
    for each, count in zip(configurations, counts, strict=True):
        known = said.recognised.get((each.framework, each.path), (count, False))
        said.recognised[each.framework, each.path] = (count, known[1] or lacks_world_size(each))
    return any(counts)


def _recognised(said: _Said, known: Mapping[str, Rule]) -> tuple[Recognised, ...]:
    every = sum(rule.kind is RuleKind.CONFIG for rule in known.values())
    by_framework: dict[str, list[tuple[int, bool]]] = {}
    for (framework, _), value in said.recognised.items():
        by_framework.setdefault(framework, []).append(value)
    found = (
        Recognised(name, len(files), max(count for count, _ in files), every, sum(unsized for _, unsized in files))
        for name, files in by_framework.items()
    )
    return tuple(sorted(found, key=lambda each: (-each.files, each.framework)))


def _check_configuration(configuration: Configuration, rules: Mapping[str, Rule], said: _Said) -> None:
    from tvlint.rulebook.evaluate import evaluate

    for result in evaluate(configuration, rules, repairs=said.repairs > 0):
        if isinstance(result, Finding):
            said.findings.append(result)
            said.repairs -= result.severity is Severity.ERROR
        else:
            said.not_evaluated.append(result)


def _check_plan(plan: Plan, rules: Mapping[str, Rule], project: Project, said: _Said) -> None:
    from tvlint.analyses.dataflow.facts import Facts
    from tvlint.analyses.relations.derivation.localisation.coverage import coverage_of
    from tvlint.analyses.relations.findings import relations
    from tvlint.analyses.schedule.from_plan import PLAN_RULES, schedule_of
    from tvlint.ir.outline import outline
    from tvlint.rulebook.pages import load_rules

    facts = Facts(plan)
    said.findings += [_with_origin(finding) for finding in findings_of_plan(facts, load_rules()) if finding.rule in rules]
    alone = relations(facts)
    said.outlines.append(outline(plan, coverage=None if alone is None else coverage_of(alone.plan, alone.derived)))
    schedule = schedule_of(plan)
    if schedule is not None:
        this_said = _Said()
        _check_schedule(schedule, {name: rule for name, rule in rules.items() if name in PLAN_RULES}, project, this_said)
        said.findings += [replace(finding, ranks=()) for finding in this_said.findings]


def _with_origin(finding: Finding) -> Finding:
    """Return the finding, with the place that its place was generated from."""
    origin = finding.location.origin
    if origin is None:
        return finding
    return replace(finding, related=(*finding.related, Related("generated from this line of the model", origin)))


def _check_schedule(schedule: Schedule, rules: Mapping[str, Rule], project: Project, said: _Said) -> None:
    from tvlint.analyses.schedule.facts import ScheduleFacts

    facts = ScheduleFacts(schedule, project.activation_budget)
    for name, rule in rules.items():
        if rule.kind is not RuleKind.SCHEDULE:
            continue
        if schedule.unreadable:
            reason = f"{schedule.unreadable} cells of the schedule are no actions"
            said.not_evaluated.append(NotEvaluated(name, Location(schedule.path), reason))
            continue
        said.findings += load_check(rule)(facts)


def as_known(document: Document, comments: Stated, project: Project) -> list[Configuration]:
    """Return the configurations of a file with what its comments and the project say of them."""
    return [as_project_says(as_stated(configuration, comments), project) for configuration in document.configurations]


def as_stated(configuration: Configuration, comments: Stated) -> Configuration:
    """Return the configuration with the world size that a comment states, where it does not itself say one."""
    comment = nearest(comments.settings, configuration)
    if comment is None or not lacks_world_size(configuration):
        return configuration
    return replace(configuration, settings={**configuration.settings, "world_size": comment})


def as_project_says(configuration: Configuration, project: Project) -> Configuration:
    """Return the configuration with what only the project knows: its framework and, where the file does not say, the world
    size.
    """
    distinct = bool({project.framework, configuration.framework} & DISTINCT) or configuration.format == "python-recipe"
    meant = not project.framework or not distinct or project.framework == configuration.framework
    framework = project.framework if project.framework and meant else configuration.framework
    version = project.version if project.version and meant else configuration.version
    settings = configuration.settings
    if project.world_size is not None and lacks_world_size(configuration):
        location = project.world_size_location or Location(project.path)
        given = Setting("world_size", project.world_size, "world-size", location, location)
        settings = {**settings, "world_size": given}
    return replace(configuration, framework=framework, version=version, settings=settings)


def _unused_patterns(project: Project, paths: Collection[str]) -> Iterator[Finding]:
    """Yield the patterns of the project file's `per-file-ignores` that match none of the paths."""
    for pattern, place in project.pattern_locations.items():
        if not any(matches(path, project, (pattern,)) for path in paths):
            message = f"the pattern `{pattern}` of `per-file-ignores` matches no file"
            help = "delete it, or write it from the folder of the project file"
            yield Finding(UNUSED, Severity.WARNING, message, place, help)


def _is_ignored(finding: Finding, project: Project) -> bool:
    """Return whether the project file says that the rule does not apply, or not to the file."""
    patterns = [pattern for pattern, ignored in project.per_file_ignores.items() if finding.rule in ignored]
    return not _applies(finding.rule, project) or matches(finding.location.path, project, patterns)


def _applies(rule: str, project: Project) -> bool:
    return rule not in project.ignore and (not project.select or rule in project.select)
