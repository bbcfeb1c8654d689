"""The baselines of projects: the findings that were there when tvlint came, so that only new ones fail.

What a project file judges stands in the baseline that it names, wherever the run is started. An entry is what a finding is
(`tvlint.identity`) in a file, and how often. A file that was renamed keeps its entries: those of a file that is gone count for
equal findings in a file that has none.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from tvlint.findings import Finding, Problem, Report
from tvlint.identity import fingerprint
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass, replace
from tvlint.reporters.escape.data import data
from tvlint.reporters.text.totals import by_place
from tvlint.rulebook.pages import load_rules
from tvlint.run.output.outputs import write_file
from tvlint.run.project.discovery import shown, why_not_in_project
from tvlint.run.project.nested import folder_of
from tvlint.run.project.policy import trusted_content
from tvlint.run.project.project_file import Project, ProjectError

NAME = "tvlint-baseline.json"
FORMAT = 1
LARGEST = 64 << 20
"""Bytes of the largest baseline that is read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """So many equal findings of a file, by its path from the folder of the baseline; `message` is that of the first."""

    path: str
    rule: str
    fingerprint: str
    count: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The file of a baseline, and what stood in it when the run began."""

    path: Path
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """The rules that a run does not look for, and whether it looks at all files of the project."""

    left_out: Collection[str] = ()
    is_whole: bool = False


PART = Scope()


@dataclass(frozen=True, slots=True)
class Compared:
    """The findings that a baseline lacks and those that it holds, and the entries that match nothing of what was looked for."""

    new: tuple[Finding, ...]
    known: tuple[Finding, ...]
    stale: tuple[Entry, ...]


def paths_of(project: Project, named: str, unnamed: str = "") -> dict[str, Path]:
    """Return the baselines of a run, by the folder of the project file that names each: empty for that of the run.

    One that was `named` counts for all files; `unnamed` is that of a project file that names none. Raises `ProjectError` where
    a project file names what it may not.
    """
    if named:
        return {"": Path(named)}
    paths = {folder: _path_of(each) for folder, each in {"": project, **project.nested}.items() if each.baseline}
    return {"": project.folder / unnamed, **paths} if unnamed else paths


def baselines(project: Project, named: str) -> dict[str, Baseline]:
    """Return the baselines of a run with what stands in them, by folder. Raises `ProjectError` where one cannot be read."""
    return {folder: Baseline(path, load(path, project)) for folder, path in paths_of(project, named).items()}


def part_of(report: Report, folder: str, folders: Collection[str], project: Project) -> Report:
    """Return the findings, and the files checked, of which the baseline of one of the folders holds what is known."""

    def is_part(path: str) -> bool:
        name = folder_of(path, project)
        return (name if name in folders else "") == folder

    findings = tuple(finding for finding in report.findings if is_part(finding.found_in or finding.location.path))
    return replace(report, findings=findings, checked=tuple(filter(is_part, report.checked)))


def compare_all(report: Report, known: Mapping[str, Baseline], project: Project, scope: Scope = PART) -> Compared:
    """Return what the baselines lack and hold of what their project files judge, and what of them is no more."""
    found = []
    for folder in {"": None, **known}:
        part = part_of(report, folder, known, project)
        entries, at = (known[folder].entries, known[folder].path.parent) if folder in known else ((), project.folder)
        found.append(compare(part, entries, at, scope))
    new, held, stale = (
        tuple(chain.from_iterable(each)) for each in zip(*((each.new, each.known, each.stale) for each in found), strict=True)
    )
    return Compared(new if len(found) == 1 else tuple(by_place(new)), held, stale)


def _path_of(project: Project) -> Path:
    """Return the baseline that the project names. Raises `ProjectError` where it may not."""
    path = project.folder / project.baseline
    if reason := why_not_in_project(str(path), project):
        raise ProjectError((Problem(f"not looked at: {reason}", Location(shown(path)), "name it with `--baseline`"),))
    return path


def load(path: Path, project: Project) -> tuple[Entry, ...]:
    """Return the entries of a baseline, of the revision that the project file is of. Raises `ProjectError` where it cannot be
    read.
    """
    try:
        document = json.loads(trusted_content(project, path, LARGEST).decode("utf-8"))
    except OSError as error:
        raise _wrong(path, f"the baseline cannot be read: {(error.strerror or 'unknown reason').lower()}") from None
    except (ValueError, RecursionError):
        raise _wrong(path, "the baseline is no JSON") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT or not isinstance(document.get("findings"), list):
        raise _wrong(path, f"the baseline is not of format {FORMAT}")
    found = [_entry(item) for item in document["findings"]]
    if any(entry is None for entry in found):
        raise _wrong(path, "the baseline holds an entry that is none")
    return tuple(entry for entry in found if entry is not None)


def _entry(item: Any) -> Entry | None:
    if not isinstance(item, dict):
        return None
    texts = [item.get(key, "") for key in ("path", "rule", "fingerprint", "message")]
    count = item.get("count")
    if not all(isinstance(text, str) for text in texts) or type(count) is not int or count < 1:
        return None
    return Entry(texts[0], texts[1], texts[2], count, texts[3])


def _wrong(path: Path, message: str) -> ProjectError:
    return ProjectError((Problem(message, Location(shown(path)), "`tvlint baseline write` writes it anew"),))


def save(path: Path, entries: Iterable[Entry]) -> None:
    """Write the entries, in order. Raises `OutputError` where they cannot be written."""
    ordered = sorted(entries, key=lambda entry: (entry.path, entry.rule, entry.fingerprint))
    listed = [
        {
            "path": each_entry.path,
            "rule": each_entry.rule,
            "fingerprint": each_entry.fingerprint,
            "count": each_entry.count,
            "message": each_entry.message,
        }
        for each_entry in ordered
    ]
    write_file(str(path), data({"format": FORMAT, "findings": listed}))


def entries_of(findings: tuple[Finding, ...], folder: Path) -> tuple[Entry, ...]:
    """Return the entries of a baseline in the folder that holds exactly the findings."""
    found: dict[tuple[str, str], Entry] = {}
    for finding in by_place(findings):
        key = (_from(folder, place_of(finding)), fingerprint(finding))
        old = found.get(key, Entry(*key[:1], finding.rule, key[1], 0, finding.message))
        found[key] = replace(old, count=old.count + 1)
    return tuple(found.values())


def compare(report: Report, entries: tuple[Entry, ...], folder: Path, scope: Scope = PART) -> Compared:
    """Return what the baseline, in the folder, lacks and holds of the report, and what of it is no more.

    What is reported once a run stands at the first file that it is found in: another one where fewer files are checked. A file
    that is gone may stand elsewhere by another name, which only a look at the whole project shows.
    """
    once = {entry.rule for entry in entries if is_once_a_run(entry.rule)}
    reported = {finding.rule for finding in report.findings}
    left = Counter[tuple[str, str]]()
    for entry in entries:
        left[entry.path, entry.fingerprint] += 0 if entry.rule in once & reported else entry.count
    ordered = by_place(report.findings)
    paths = {place: _from(folder, place) for place in map(place_of, ordered)}
    places = {entry.path for entry in entries}
    gone = {place for place in places if not os.path.lexists(folder / place)}
    known: set[int] = set()
    for number, finding in enumerate(ordered):
        key = (paths[place_of(finding)], fingerprint(finding))
        if finding.rule in once:
            known.add(number)
        elif left[key] > 0:
            left[key] -= 1
            known.add(number)
    moved: dict[str, list[tuple[str, str]]] = {}
    for key, count in left.items():
        if key[0] in gone:
            moved.setdefault(key[1], []).extend([key] * count)
    for number, finding in enumerate(ordered):
        from_gone = moved.get(fingerprint(finding))
        if number not in known and from_gone and paths[place_of(finding)] not in places:
            left[from_gone.pop()] -= 1
            known.add(number)
    checked = {_from(folder, path) for path in report.checked}
    stale = tuple(
        replace(entry, count=count)
        for entry in {(entry.path, entry.fingerprint): entry for entry in entries}.values()
        if (count := left[entry.path, entry.fingerprint]) > 0
        and entry.rule not in scope.left_out
        and (entry.path in checked or (scope.is_whole and entry.path in gone))
    )
    return Compared(
        tuple(finding for number, finding in enumerate(ordered) if number not in known),
        tuple(finding for number, finding in enumerate(ordered) if number in known),
        stale,
    )


def is_once_a_run(rule: str) -> bool:
    """Return whether one finding of the rule stands for all of a run."""
    rules = load_rules()
    return rule in rules and rules[rule].once == "run"


def place_of(finding: Finding) -> str:
    """Return the file that an entry names: of what is found in a plan the plan, wherever its source lies."""
    return finding.found_in if finding.ranks and finding.found_in else finding.location.path


def beyond(entries: tuple[Entry, ...], report: Report, folder: Path, scope: Scope) -> tuple[Entry, ...]:
    """Return the entries of a baseline in the folder that a run in the scope cannot find, whatever its report holds."""
    checked = {_from(folder, path) for path in report.checked}
    return tuple(entry for entry in entries if entry.rule in scope.left_out or not (scope.is_whole or entry.path in checked))


def pruned(entries: tuple[Entry, ...], stale: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return the entries without what matches nothing."""
    less = Counter({(entry.path, entry.fingerprint): entry.count for entry in stale})
    return tuple(
        replace(entry, count=count) for entry in entries if (count := entry.count - less[entry.path, entry.fingerprint]) > 0
    )


def grown(old: tuple[Entry, ...], new: tuple[Entry, ...]) -> int:
    """Return how many findings the new entries hold that the old ones do not, wherever they stand."""
    before, after = Counter[str](), Counter[str]()
    for entry in old:
        before[entry.fingerprint] += entry.count
    for entry in new:
        after[entry.fingerprint] += entry.count
    return (after - before).total()


def _from(folder: Path, path: str) -> str:
    """Return the path from the folder, as it is written on every system."""
    return os.path.relpath(os.path.abspath(path), folder.absolute()).replace(os.sep, "/")
