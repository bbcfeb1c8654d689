"""A first project file for a repository, made of what is found in it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tvlint.findings import Problem, Severity
from tvlint.frameworks.kin import FRAMEWORKS
from tvlint.reporters.text.totals import counted
from tvlint.run.project.discovery import MAXIMAL_FILES
from tvlint.run.project.reading import read_document
from tvlint.run.project.world_size import lacks_world_size, stated

NNSCALER = "nnscaler"
"""Its files say themselves on how many ranks they run, and no rule asks elsewhere."""
SINGLE = ("single", "reference", "serial", "baseline")
"""What people call the plan of one device."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a repository holds: files of each kind by their paths, configurations by framework, and launches of unknown size."""

    configurations: tuple[str, ...] = ()
    plans: tuple[tuple[str, int], ...] = ()
    """Each with its number of ranks."""
    schedules: tuple[str, ...] = ()
    frameworks: tuple[tuple[str, int], ...] = ()
    without_world_size: int = 0

    @property
    def files(self) -> tuple[str, ...]:
        """All files that tvlint checks."""
        return (*self.configurations, *(path for path, _ in self.plans), *self.schedules)


def look(paths: Iterable[str]) -> Seen:
    """Return what the files hold; what cannot be read is for `tvlint check` to report."""
    configurations, plans, schedules = [], [], []
    frameworks: Counter[str] = Counter()
    unsized = 0
    for path in list(paths)[:MAXIMAL_FILES]:
        document = read_document(path)
        if document is None or isinstance(document, Problem):
            continue
        if document.configurations:
            configurations.append(path)
            frameworks.update({each.framework for each in document.configurations})
            asking = [each for each in document.configurations if each.framework != NNSCALER]
            unsized += any(map(lacks_world_size, asking)) and not stated(path).settings
        if document.plan is not None:
            plans.append((path, document.plan.mesh.size))
        if document.schedule is not None:
            schedules.append(path)
    return Seen(tuple(configurations), tuple(plans), tuple(schedules), tuple(frameworks.most_common()), unsized)


def project_file(seen: Seen, baseline: str) -> str:
    """Return the text of a project file for the repository; `baseline` names the file of known findings, if there is one."""
    return "\n".join(line for part in (_head(seen), *_parts(seen, baseline)) for line in (*part, ""))


def pairs(seen: Seen) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the plans of one device that are named so, or are the only one of their folder, with its parallel plans."""
    by_folder: dict[str, list[tuple[str, int]]] = {}
    for path, ranks in seen.plans:
        by_folder.setdefault(os.path.dirname(path), []).append((path, ranks))
    for plans in by_folder.values():
        single = [path for path, ranks in plans if ranks == 1]
        parallel = tuple(path for path, ranks in plans if ranks > 1)
        for path in single if parallel else ():
            if len(single) == 1 or any(word in os.path.basename(path).lower() for word in SINGLE):
                yield path, parallel


def _head(seen: Seen) -> list[str]:
    kinds = (("configuration", len(seen.configurations)), ("plan", len(seen.plans)), ("schedule", len(seen.schedules)))
    listed = [counted(count, name) for name, count in kinds if count]
    found = ", ".join(listed) or "nothing to check yet"
    return [
        "# The project file of tvlint. `tvlint config verify` names every mistake in it.",
        f"# `tvlint init` found {found}.",
    ]


def _parts(seen: Seen, baseline: str) -> Iterator[list[str]]:
    yield ["# Files and folders that `tvlint check` looks at.", 'paths = ["."]']
    yield ["# Patterns of paths that it leaves out.", '# exclude = ["third_party/*"]']
    if seen.frameworks:
        names = ", ".join(f"{name} ({count:,})" for name, count in seen.frameworks)
        first = seen.frameworks[0][0]
        yield [
            f"# The framework of files that do not show theirs, and its version. Found: {names}.",
            f'# framework = "{first}"',
            *(f'# version = "{version}"' for version in (_version(first),) if version),
        ]
    if seen.without_world_size:
        yield [
            f"# How many ranks run where a file does not say it ({seen.without_world_size:,} here do not): batch and groups",
            "# are judged then, too. A comment `# tvlint: world-size=64` says it of one file.",
            "# world-size = 64",
        ]
    yield ["# The mildest finding that fails: error, warning or note.", f'fail-on = "{Severity.ERROR.value}"']
    if baseline:
        yield [
            "# Findings that were here before: counted, and no failure. `tvlint baseline prune` takes out what is fixed.",
            f"baseline = {json.dumps(baseline)}",
        ]
    else:
        yield ["# Findings that may stay, as `tvlint baseline write` keeps them.", '# baseline = "tvlint-baseline.json"']
    yield ["# Rules that do not apply here, with the reason.", '# ignore = ["unknown-world-size"]']
    for reference, parallel in pairs(seen):
        yield [
            "# Plans to prove: that each of `parallel` trains the same model as `reference`.",
            "# [[proof]]",
            f"# reference = {json.dumps(reference)}",
            f"# parallel = {json.dumps(list(parallel))}",
        ]


def _version(framework: str) -> str:
    """Return a version of the framework as an example; empty where no rule asks for one."""
    if framework == NNSCALER:
        return "0.8"
    return "0.16" if framework in FRAMEWORKS else ""
