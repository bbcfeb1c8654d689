"""Breaks folders of generated code by single edits, and counts what is told of them where; prints a table by kind.

python benchmarks/gencode_mutants.py FOLDER... [--reference PLAN] [--files 0,3] [--every N] [--show]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests")]

from tests.builders.gencode_mutants import Edit, edits  # noqa: E402
from tvlint.findings import Outcome, Report, Severity  # noqa: E402
from tvlint.ir.location import Location  # noqa: E402
from tvlint.run.proof.pair import Pair  # noqa: E402
from tvlint.run.proof.prove import prove_pair  # noqa: E402


def told(report: Report, name: str, edit: Edit) -> str:
    """`proved`, or where it is told: `at its line`, `in its file` or `elsewhere`, as `unknown` or for sure."""
    places: list[Location] = [problem.location for problem in report.problems]
    places += [finding.location for finding in report.findings if finding.severity is Severity.ERROR]
    places += [related.location for finding in report.findings for related in finding.related]
    places += [
        reason.location
        for verdict in report.verdicts
        for reason in verdict.reasons
        if reason.refutes or verdict.outcome is Outcome.UNKNOWN
    ]
    places += [related.location for verdict in report.verdicts for reason in verdict.reasons for related in reason.related]
    how = "told"
    if not report.problems and not any(finding.severity is Severity.ERROR for finding in report.findings):
        if report.verdicts[0].outcome is Outcome.PROVED:
            return "proved"
        how = "unknown" if report.verdicts[0].outcome is Outcome.UNKNOWN else "told"
    own = [place for place in places if Path(place.path).name == name]
    if any(place.line is not None and abs(place.line - edit.line) <= 1 for place in own):
        return f"{how} at its line"
    return f"{how} in its file" if own else f"{how} elsewhere"


def _show(report: Report, title: str, edit: Edit) -> None:
    print(f"{title}: {edit.text.splitlines()[edit.line - 1][:110]}")
    for verdict in report.verdicts:
        for reason in verdict.reasons[:2]:
            print(f"    {reason.name}: {reason.message[:140]} {Path(reason.location.path).name}:{reason.location.line}")


def main() -> int:
    """Print the table; edits that change nothing are among those that are proved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--reference", default="")
    parser.add_argument("--files", default="", help="ranks whose files are edited; all when left out")
    parser.add_argument("--every", type=int, default=1, help="take every N-th edit of a file only")
    parser.add_argument("--show", action="store_true", help="list every edit that is not told at its line")
    arguments = parser.parse_args()
    table: dict[str, Counter[str]] = defaultdict(Counter)
    started = time.perf_counter()
    for folder in arguments.folders:
        with tempfile.TemporaryDirectory() as parent:
            copy = Path(shutil.copytree(folder, Path(parent, "code"), copy_function=shutil.copyfile))
            chosen = arguments.files
            names = [f"gencode{rank}.py" for rank in chosen.split(",") if rank] or sorted(
                path.name for path in copy.glob("gencode*.py")
            )
            for name in names:
                text = (copy / name).read_text()
                for number, edit in enumerate(edits(text)):
                    if number % arguments.every:
                        continue
                    (copy / name).write_text(edit.text)
                    report = prove_pair(Pair(str(copy), arguments.reference))
                    said = told(report, name, edit)
                    table[edit.kind][said] += 1
                    if arguments.show and not said.endswith("at its line"):
                        _show(report, f"{said}: {folder.name[:40]}/{name}:{edit.line}: {edit.kind}", edit)
                (copy / name).write_text(text)
    columns = sorted({column for row in table.values() for column in row})
    print(f"{'kind':36}" + "".join(f"{column:>18}" for column in columns))
    for kind, row in sorted(table.items()):
        print(f"{kind:36}" + "".join(f"{row[column]:>18}" for column in columns))
    total = sum(table.values(), Counter())
    print(f"{'all':36}" + "".join(f"{total[column]:>18}" for column in columns))
    print(f"{total.total()} edits in {time.perf_counter() - started:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
