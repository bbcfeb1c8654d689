"""Breaks generated plans in every way of the family, runs each, and compares what the proof says; prints a table by kind.

python benchmarks/mutants.py [--seeds FIRST:LAST] [--every N] [--show]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests")]

from oracle.generate import random_pair  # noqa: E402
from oracle.judge import truth  # noqa: E402
from oracle.mutate import mutants  # noqa: E402

from tvlint.equivalence.verdict.prove import prove  # noqa: E402


def main() -> int:
    """1 if a mutant that computes something else is proved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:10", help="the generated pairs, FIRST:LAST")
    parser.add_argument("--every", type=int, default=1, help="take every N-th mutant only")
    parser.add_argument("--number", type=int, help="take this mutant of each pair only")
    parser.add_argument("--show", action="store_true", help="list every disagreement")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split(":"))
    table: dict[str, Counter[str]] = defaultdict(Counter)
    started = time.perf_counter()
    for seed in range(first, last):
        pair = random_pair(seed)
        for number, mutant in enumerate(mutants(pair.parallel)):
            chosen = number % arguments.every == seed % arguments.every
            if not (chosen if arguments.number is None else number == arguments.number):
                continue
            found = truth(pair.reference, mutant)
            try:
                verdict = prove(mutant.plan, pair.reference)
                said, why = verdict.outcome.value, "; ".join(f"{r.name}: {r.message}" for r in verdict.reasons[:2])
            except Exception as error:
                said, why = "crash", repr(error)
            right = found.label
            table[mutant.kind][f"{right} {said}"] += 1
            odd = said == "crash" or (right == "wrong" and said == "proved") or (right == "equal" and said == "refuted")
            if arguments.show and odd:
                print(f"{right} but {said}: seed {seed} ({pair.name}), mutant {number}: {mutant.kind}: {mutant.description}")
                print(f"    ran: {found.reason}; proof: {why[:300]}", flush=True)
    columns = sorted({column for row in table.values() for column in row})
    print(f"{'kind':36}" + "".join(f"{column:>20}" for column in columns))
    for kind, row in sorted(table.items()):
        print(f"{kind:36}" + "".join(f"{row[column]:>20}" for column in columns))
    total = sum(table.values(), Counter())
    print(f"{'all':36}" + "".join(f"{total[column]:>20}" for column in columns))
    print(f"{sum(total.values())} mutants in {time.perf_counter() - started:.1f} s")
    return 1 if total["wrong proved"] else 0


if __name__ == "__main__":
    sys.exit(main())
