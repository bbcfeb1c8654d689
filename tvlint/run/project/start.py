"""A first project file for a repository, made of what is found in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from tvlint.findings import Report, Severity
from tvlint.frameworks.kin import BEFORE_RELEASES, FRAMEWORKS
from tvlint.plurals import counted

NNSCALER = "nnscaler"
"""Its files say themselves on how many ranks they run, and no rule asks elsewhere."""
SINGLE = ("single", "reference", "serial", "baseline")
"""What people call the plan of one device."""


def project_file(report: Report, baseline: str) -> str:
    """Return the text of a project file for what was checked; `baseline` names the file of known findings, if there is one."""
    return "\n".join(line for part in (_head(report), *_parts(report, baseline)) for line in (*part, ""))


def pairs(report: Report) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the plans of one device that are named so, or are the only one of their folder, with its parallel plans."""
    by_folder: dict[str, list[tuple[str, int]]] = {}
    for plan in report.outlines:
        by_folder.setdefault(os.path.dirname(plan.path), []).append((plan.path, plan.mesh.size))
    for plans in by_folder.values():
        single = [path for path, ranks in plans if ranks == 1]
        parallel = tuple(path for path, ranks in plans if ranks > 1)
        for path in single if parallel else ():
            if len(single) == 1 or any(word in os.path.basename(path).lower() for word in SINGLE):
                yield path, parallel


def _head(report: Report) -> list[str]:
    configured = sum(recognised.files for recognised in report.recognised)
    others = max(0, len(report.checked) - configured - len(report.outlines))
    kinds = (("configuration", configured), ("plan", len(report.outlines)), ("other file", others))
    found = ", ".join(counted(count, name) for name, count in kinds if count) or "nothing to check yet"
    return [
        "# The project file of tvlint. `tvlint config verify` names every mistake in it.",
        f"# `tvlint init` found {found}.",
    ]


def _parts(report: Report, baseline: str) -> Iterator[list[str]]:
    yield ["# Files and folders that `tvlint check` looks at.", 'paths = ["."]']
    yield ["# Patterns of paths that it leaves out.", '# exclude = ["third_party/*"]']
    if report.recognised:
        names = ", ".join(f"{recognised.framework} ({recognised.files:,})" for recognised in report.recognised)
        first = report.recognised[0].framework
        yield [
            f"# The framework of files that do not show theirs, and its version. Found: {names}.",
            f'# framework = "{first}"',
            *(f'# version = "{version}"' for version in (_version(first),) if version),
        ]
    unsized = sum(recognised.unsized for recognised in report.recognised if recognised.framework != NNSCALER)
    if unsized:
        yield [
            f"# The number of ranks of files that do not say it ({counted(unsized, 'file')}): tvlint needs it to judge batches",
            "# and groups. A comment `# tvlint: world-size=64` says it for one file.",
            "# world-size = 64",
        ]
    yield ["# The mildest finding that fails: error, warning or note.", f'fail-on = "{Severity.ERROR.value}"']
    if baseline:
        yield [
            "# Findings that were here before: they do not fail. `tvlint baseline prune` removes those that are fixed.",
            f"baseline = {json.dumps(baseline)}",
        ]
    else:
        yield ["# Findings that may stay, as `tvlint baseline write` keeps them.", '# baseline = "tvlint-baseline.json"']
    yield ["# Rules that do not apply here, with the reason.", '# ignore = ["unknown-world-size"]']
    for reference, parallel in pairs(report):
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
    known = FRAMEWORKS.get(framework)
    return "" if known is None or known.version == BEFORE_RELEASES else known.version or "0.16"
