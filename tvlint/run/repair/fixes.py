"""Fixes of findings. Each is tried before it is offered: the files are read again as they would be with its edits.

A fix holds where its finding is gone and no other has come, no file became unreadable and no rule unknown, and no setting
changed but those that it is about; in the file itself and in all checked files that name it. Only what a misspelt or lost
option makes known may be more than the fix says.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from tvlint.checkout.following import may_be_shown
from tvlint.checkout.opening import content, instead
from tvlint.edits.apply import Text
from tvlint.edits.plan_text import LEFT_OPEN, REPAIRS, repairs
from tvlint.edits.settings import edits_of, together
from tvlint.findings import Edit, Finding, Fix, Problem, Report, Severity
from tvlint.frameworks.megatron import option_of
from tvlint.identity import fingerprint
from tvlint.ir.configuration import Change, Configuration, Setting, SettingValue, Unknown
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, replace
from tvlint.rule import RuleKind
from tvlint.rulebook.judge import judge
from tvlint.rulebook.language.values import Values
from tvlint.rulebook.repair.demands import proposed, words
from tvlint.rulebook.repair.nearest import nearest
from tvlint.run.judge.check import Rules, check
from tvlint.run.judge.known_settings import as_known
from tvlint.run.process.session import Session
from tvlint.run.project.dependents import dependents
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.nested import judging
from tvlint.run.project.reading import read_document
from tvlint.run.project.world_size import stated

LARGEST = 4 << 20
"""Bytes of the largest file that is edited."""
MOST_FIXED = 200
"""So many findings of a run get fixes: each takes several readings of its file."""
MOST_TRIED = 2000
"""So many launches, sections, plans or KiB are read again to try the fixes of a file: with more in it, each takes longer."""
MOST_OFFERED = 3
"""So many fixes of one finding are offered."""
MOST_NAMING = 20
"""A file that so many others name is not edited: a change of it is for a person to think through."""


MOST_HELPED = 40
"""The help of so many findings in plan text is tried, whether or not the report shows fixes."""
MOST_TRIED_FOR_HELP = 400
"""As `MOST_TRIED`, where the report shows no fixes; help that would take longer is printed as it is."""

_GOES_BACK = Pattern(r"^.*\bbackward\b", re.MULTILINE)
_NAMES_SEGMENTS = Pattern(r"^segment\s", re.MULTILINE)

MOST_CHAINED = 8
"""So many fixes hold together at most where none holds alone."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The new contents of files, and how many findings they repair."""

    contents: Mapping[str, bytes]
    count: int


def with_fixes(report: Report, rules: Rules, session: Session) -> Report:
    """Return the report with the fixes of its findings that hold; of a finding whose file takes too long, none."""
    found: list[Finding] = []
    files: dict[str, File] = {}
    mentions = Mentions(report.checked)
    left = MOST_FIXED
    for finding in report.findings:
        path = checked_in(finding)
        if path not in files:
            files[path] = File(path, mentions, rules)
        offered: tuple[Fix, ...] | Problem = ()
        if left and _may_have_fixes(finding, unsafe=True):
            left -= 1
            offered = session.steps.do(path, partial(files[path].offered, finding), "the fixes")
        found.append(replace(finding, fixes=() if isinstance(offered, Problem) else offered))
    return replace(report, findings=tuple(found))


def with_tried_help(report: Report, rules: Rules, session: Session) -> Report:
    """Return the report without help that names an edit of plan text which does not repair its finding.

    Where the help of a rule leaves open which edit is meant, the one that holds takes its place.
    """
    found: list[Finding] = []
    files: dict[str, File] = {}
    mentions, left = Mentions(report.checked), MOST_HELPED
    for finding in report.findings:
        path = finding.location.path
        help: str | Problem = finding.help
        if left and finding.help and finding.rule in REPAIRS and path == checked_in(finding) and finding.location.line:
            left -= 1
            files.setdefault(path, File(path, mentions, rules, MOST_TRIED_FOR_HELP))
            help = session.steps.do(path, partial(files[path].tried_help, finding), "the help")
        found.append(replace(finding, help=finding.help if isinstance(help, Problem) else help))
    return replace(report, findings=tuple(found))


def _may_have_fixes(finding: Finding, unsafe: bool) -> bool:
    """Return whether fixes of the finding are looked for; for a note only what its reader proposes."""
    if unsafe and finding.severity is not Severity.NOTE:
        return True
    return any(unsafe or fix.is_safe for fix in finding.fixes)


def fixed(report: Report, rules: Rules, session: Session, unsafe: bool) -> Fixed:
    """Return the files after the fixes of the report's findings; `unsafe` are those that a person chooses from, too."""
    contents: dict[str, bytes] = {}
    count = 0
    mentions = Mentions(report.checked)
    findings = [finding for finding in report.findings if _may_have_fixes(finding, unsafe)]
    for path in dict.fromkeys(map(checked_in, findings)):
        wanted = Counter(fingerprint(finding) for finding in findings if checked_in(finding) == path)
        while count < MOST_FIXED:
            work = partial(_next, path, wanted, mentions, rules, contents, unsafe)
            changed = session.steps.do(path, work, "the fixes")
            if isinstance(changed, Problem) or not changed.contents:
                break
            contents |= changed.contents
            count += changed.count
    return Fixed(contents, count)


def checked_in(finding: Finding) -> str:
    """Return the checked file that shows the finding."""
    return finding.found_in or finding.location.path


def _next(
    path: str, wanted: Counter[str], mentions: Mentions, rules: Rules, contents: Mapping[str, bytes], unsafe: bool
) -> Fixed:
    """Return the contents that change with the next fixes of findings that are wanted; none where no fix is left.

    What is the same mistake in many launches is repaired in all of them at once, where that holds.
    """
    with instead(contents):
        file = File(path, mentions, rules)
        findings = [finding for finding in file.before.findings if wanted[fingerprint(finding)]]
        for alike in file.alike(findings, unsafe):
            for some in _parts(alike):
                if file.hold(some):
                    edits = dict.fromkeys(edit for proposal, _ in some for edit in proposal.fix.edits)
                    return Fixed(file.edited(edits) or {}, len(some))
        for finding in findings:
            for fix in file.holding(finding, unsafe):
                return Fixed(file.edited(fix.edits) or {}, 1)
        return Fixed(_chained(file, wanted), 1)


def _parts(found: list[tuple[_Proposal, Finding]]) -> Iterator[list[tuple[_Proposal, Finding]]]:
    """Yield all of several proposals, then the halves, and so on, as long as they are several."""
    if len(found) > 1:
        yield found
        yield from _parts(found[: len(found) // 2])
        yield from _parts(found[len(found) // 2 :])


def _chained(file: File, wanted: Counter[str]) -> Mapping[str, bytes]:
    """Return the contents after several safe fixes that hold together: one mistake may hide another one behind it."""
    contents: dict[str, bytes] = {}
    blocked = file.before.findings
    for step in range(MOST_CHAINED):
        with instead(contents):
            here = File(file.path, file.mentions, file.rules)
            safe = (
                here.edited(fix.edits)
                for finding in here.before.findings
                for fix in finding.fixes
                if fix.is_safe and (step or wanted[fingerprint(finding)])
            )
            changed = next(filter(None, safe), None)
        if changed is None:
            break
        contents |= changed
        with instead(contents):
            after = File(file.path, file.mentions, file.rules).before
        if step and any(_better(file.before, after, [finding]) for finding in blocked):
            return contents
    return {}


@dataclass(frozen=True, slots=True)
class Trial:
    """The reports on some files before and after they have new contents."""

    before: Report
    after: Report
    file: File
    paths: tuple[str, ...]
    contents: Mapping[str, bytes]

    def changes_only(self, changes: tuple[Change, ...] | None) -> bool:
        """Return whether no settings differ but those that are to change; where a reader proposes, whether none is lost."""
        before = self.file.settings(self.paths)
        with instead(self.contents):
            after = self.file.settings(self.paths)
        if before is None or after is None or len(before) != len(after):
            return False
        both = list(zip(before, after, strict=True))
        if changes is None:
            return not any(option_of(name) is not None for old, new in both for name in old.keys() - new.keys())
        names = {change.name for change in changes}
        return all(set(_differing(old, new)) <= names for old, new in both)


def _differing(old: dict[str, object], new: dict[str, object]) -> Iterator[str]:
    for name in {*old, *new}:
        if (name in old) is not (name in new) or old.get(name) != new.get(name):
            yield name


@dataclass(slots=True)
class _Proposal:
    """A fix, and the settings that it changes; None: those that a reader could not make out before."""

    fix: Fix
    changes: tuple[Change, ...] | None


class Mentions:
    """The checked files that name others; each is read once."""

    def __init__(self, checked: tuple[str, ...]) -> None:
        self.checked = frozenset(checked)
        self._contents: dict[str, bytes] = {}
        self._known: dict[str, tuple[str, ...]] = {}

    def of(self, path: str) -> tuple[str, ...]:
        """Return the checked files that name the one at `path`."""
        if not self._contents:
            self._contents = {name: _content_of(name) for name in sorted(self.checked)}
        if path not in self._known:
            name = os.fsencode(os.path.basename(path))
            holding = [each_name for each_name, data in self._contents.items() if name in data]
            self._known[path] = tuple(dependents(holding, (path,)))
        return self._known[path]


def _content_of(path: str) -> bytes:
    try:
        return content(path, LARGEST)
    except OSError:
        return b""


class File:
    """A checked file, what was found in it, and the trials of its fixes."""

    def __init__(self, path: str, mentions: Mentions, rules: Rules, most_tried: int = 0) -> None:
        self.path, self.mentions, self.rules = path, mentions, rules
        self._texts: dict[str, Text | None] = {}
        self._left = most_tried or MOST_TRIED
        self._repairs: dict[str | None, Mapping[str, tuple[tuple[Change, ...], ...]]] = {}

    def offered(self, finding: Finding) -> tuple[Fix, ...]:
        """Return the fixes that are offered for the finding: those that are safe, and else the first few."""
        found = []
        for fix in self.holding(finding, unsafe=True):
            if fix.is_safe:
                return (fix,)
            found.append(fix)
            if len(found) == MOST_OFFERED:
                break
        return tuple(found)

    def tried_help(self, finding: Finding) -> str:
        """Return the help of a finding in plan text as far as it was tried: empty where each edit that it may mean fails.

        An edit that would need its counterpart in backward holds where it does so for the lines before.
        """
        text = self.text(finding.location.path)
        if text is None or not next(repairs(finding, text), None):
            return finding.help
        fix = next(self.holding(finding, unsafe=True), None)
        if fix is not None:
            return fix.message if finding.rule in LEFT_OPEN else finding.help
        forward = _GOES_BACK.split(text.text, maxsplit=1)[0]
        if forward != text.text and not _NAMES_SEGMENTS.search(text.text):
            with instead({self.path: forward.encode("utf-8")}):
                file = File(self.path, self.mentions, self.rules, MOST_TRIED_FOR_HELP)
                if next(file.holding(finding, unsafe=True), None) is not None:
                    return finding.help
        return finding.help if self._left < 0 or "`" not in finding.help else ""

    def holding(self, finding: Finding, unsafe: bool) -> Iterator[Fix]:
        """Yield the fixes of the finding that hold."""
        seen = set()
        for proposal in self._proposals(finding, unsafe):
            fix = proposal.fix
            if fix.edits in seen or not (fix.is_safe or unsafe):
                continue
            seen.add(fix.edits)
            if self._holds(proposal, finding):
                yield fix

    def alike(self, findings: Iterable[Finding], unsafe: bool) -> Iterable[list[tuple[_Proposal, Finding]]]:
        """Return the first proposal for each finding, those together that change the same settings of different launches.

        Repairs of plans are left out: one of them may be all that several findings need.
        """
        found: dict[object, list[tuple[_Proposal, Finding]]] = {}
        seen: set[object] = set()
        for finding in findings:
            proposal = next((each for each in self._proposals(finding, unsafe) if each.fix.is_safe or unsafe), None)
            if proposal is None or (proposal.changes is None and not proposal.fix.is_safe):
                continue
            names = None if proposal.changes is None else frozenset(change.name for change in proposal.changes)
            launch = proposal.fix.edits if names is None else finding.section
            if not seen & {launch, proposal.fix.edits}:
                seen |= {launch, proposal.fix.edits}
                found.setdefault(names, []).append((proposal, finding))
        return found.values()

    def edited(self, edits: Iterable[Edit]) -> dict[str, bytes] | None:
        """Return the contents of the files after the edits; None where they do not fit."""
        by_file: dict[str, list[Edit]] = {}
        for edit in edits:
            by_file.setdefault(edit.location.path, []).append(edit)
        found = {}
        for path, edits_of_file in by_file.items():
            text = self.text(path)
            new = text.edited(edits_of_file) if text is not None else None
            if new is None:
                return None
            found[path] = new.encode("utf-8")
        return found

    @cached_property
    def before(self) -> Report:
        """The report on the file as it is."""
        return self._checked((self.path,))

    @cached_property
    def _configurations(self) -> tuple[Configuration, ...]:
        project = judging(self.path, self.rules.project)
        document = read_document(self.path, project.operators)
        if document is None or isinstance(document, Problem):
            return ()
        return tuple(as_known(document, stated(self.path), project))

    def _repairs_in(self, configuration: Configuration) -> Mapping[str, tuple[tuple[Change, ...], ...]]:
        """Return the changes of sizes that satisfy all rules, by the rule that is violated."""
        section = configuration.section
        if section not in self._repairs:
            judged = [rule for rule in self.rules.applied.values() if rule.kind is RuleKind.CONFIG]
            values = Values(configuration)
            violated = [rule for rule in judged if rule.severity is not Severity.NOTE and judge(rule, values) is False]
            self._repairs[section] = {
                rule.name: tuple(
                    tuple(Change(each.setting.name, each.value) for each in alternative) for alternative in repair.alternatives
                )
                for rule, repair in nearest(configuration, judged, violated)
            }
        return self._repairs[section]

    def _proposals(self, finding: Finding, unsafe: bool) -> Iterator[_Proposal]:
        for fix in finding.fixes:
            yield _Proposal(fix, None)
        rule = self.rules.applied.get(finding.rule)
        if not unsafe or rule is None:
            return
        if rule.kind is not RuleKind.CONFIG:
            text = self.text(finding.location.path)
            if text is not None:
                yield from (_Proposal(fix, None) for fix in repairs(finding, text))
            return
        for configuration in self._configurations:
            if finding.section == configuration.section:
                own_repairs = (*self._repairs_in(configuration).get(rule.name, ()), *proposed(rule, Values(configuration)))
                for changes in own_repairs:
                    if edits := together(self._edits(change, configuration, finding) for change in changes):
                        message = " and ".join(words(change, configuration.settings.get(change.name)) for change in changes)
                        yield _Proposal(Fix(message, edits), changes)

    def _edits(self, change: Change, configuration: Configuration, finding: Finding) -> tuple[Edit, ...]:
        beside = _beside(configuration, finding)
        setting = configuration.settings.get(change.name) or beside
        text = self.text(setting.location.path) if setting is not None else None
        if setting is None or text is None:
            return ()
        return edits_of(change, configuration, text, setting.location.path, beside)

    def text(self, path: str) -> Text | None:
        """Return the text of a file that may be edited: the checked one, and of others what belongs to its checkout."""
        if path not in self._texts:
            around = os.path.dirname(self.path) or os.curdir
            is_own = path == self.path or path in self.mentions.checked or may_be_shown(path, around)
            try:
                self._texts[path] = Text(content(path, LARGEST).decode("utf-8")) if is_own else None
            except (OSError, ValueError):
                self._texts[path] = None
        return self._texts[path]

    def trial(self, contents: Mapping[str, bytes]) -> Trial | None:
        """Return what is found before and after the files have new contents; None where too many others name them."""
        around = {self.path: None}
        for path in contents:
            around |= dict.fromkeys(self.mentions.of(path))
        if len(around) > MOST_NAMING:
            return None
        paths = tuple(around)
        before = self.before if paths == (self.path,) else self._checked(paths)
        with instead(contents):
            return Trial(before, self._checked(paths), self, paths, contents)

    def _holds(self, proposal: _Proposal, finding: Finding) -> bool:
        return self.hold([(proposal, finding)])

    def hold(self, found: Sequence[tuple[_Proposal, Finding]]) -> bool:
        """Return whether all proposals, which change the same settings, hold together for their findings.

        A rule that was broken may be unknown then: where not all words of a launch are known, it is judged as written.
        """
        text = self.text(self.path)
        self._left -= max(1, len(self._configurations), len(text.text) >> 10 if text is not None else 0)
        if self._left < 0:
            return False
        contents = self.edited(dict.fromkeys(edit for proposal, _ in found for edit in proposal.fix.edits))
        trial = self.trial(contents) if contents else None
        if trial is None:
            return False
        changes = found[0][0].changes
        judged = _unknown(trial.before) | {each.rule for each in trial.before.findings}
        keeps = changes is None or not _unknown(trial.after) - judged
        return keeps and _better(trial.before, trial.after, [finding for _, finding in found]) and trial.changes_only(changes)

    def _checked(self, paths: tuple[str, ...]) -> Report:
        return check(Candidates(paths), self.rules.applied, self.rules.known, self.rules.project, repairs=0)[0]

    def settings(self, paths: tuple[str, ...]) -> list[dict[str, object]] | None:
        """Return the settings of every configuration of the files; None where one cannot be read."""
        found: list[dict[str, object]] = []
        for path in paths:
            document = read_document(path, judging(path, self.rules.project).operators)
            if isinstance(document, Problem):
                return None
            for configuration in document.configurations if document is not None else ():
                found.append({setting.name: _comparable(setting.value) for setting in configuration.settings.values()})
        return found


def _comparable(value: SettingValue | Unknown) -> object:
    """Return what tells a value from others: of one that is not known, why not, wherever that stands."""
    return (Unknown, value.cause, value.given) if isinstance(value, Unknown) else value


def _better(before: Report, after: Report, findings: Iterable[Finding]) -> bool:
    """Return whether the findings are gone and nothing else has come."""
    if after.problems or len(after.checked) < len(before.checked):
        return False
    old, new = (Counter(map(fingerprint, report.findings)) for report in (before, after))
    gone = Counter(map(fingerprint, findings))
    return not new - (old - gone) and len(after.silenced) == len(before.silenced)


def _unknown(report: Report) -> set[str]:
    return {item.rule for item in report.not_evaluated}


def _beside(configuration: Configuration, finding: Finding) -> Setting | None:
    """Return the setting that the finding stands at, else the first one of its file."""
    settings = list(configuration.settings.values())
    at = [setting for setting in settings if finding.location in (setting.location, setting.name_location)]
    return next(iter([*at, *(setting for setting in settings if setting.name_location.path == finding.location.path)]), None)
