"""Which share of single mistakes in pipeline schedules the rules find: `python -m benchmarks.schedule_mutants`."""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.schedules import oracle
from tests.schedules.families import examples, interleaved
from tests.schedules.findings import findings_of
from tests.schedules.lowering import homes, lowered
from tests.schedules.mutants import mutants
from tvlint.findings import Severity


def main(each: int, stride: int) -> None:
    """Mutate every `stride`-th example in `each` ways of each kind and print a table."""
    found: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    harmless = false = 0
    for number, (named, _, rows) in enumerate(examples()):
        if number % stride:
            continue
        home = homes(rows)
        for base in (rows, lowered(rows), lowered(rows, waits=False)):
            for mutant in mutants(base, number, each):
                errors = [finding for finding in findings_of(mutant.rows) if finding.severity is Severity.ERROR]
                try:
                    oracle.run(mutant.rows, home)
                    harmless += 1
                    false += bool(errors)
                except oracle.Broken:
                    total[named, mutant.how] += 1
                    found[named, mutant.how] += bool(errors)
    for (named, how), count in sorted(total.items()):
        print(f"{named:<42} {how:<10} {found[named, how]:>5} of {count:<5} {found[named, how] / count:.1%}")
    share = found.total() / total.total()
    print(f"all: {found.total()} of {total.total()} ({share:.1%}); {false} of {harmless} harmless ones reported")
    rows = lowered(interleaved(8, 4, 48, 8))
    started = time.process_time()
    findings = findings_of(rows)
    print(f"{sum(map(len, rows)):,} actions: {time.process_time() - started:.2f} s, {len(findings)} findings")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2, int(sys.argv[2]) if len(sys.argv) > 2 else 7)
