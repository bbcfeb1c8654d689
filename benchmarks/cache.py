"""What the cache saves on real plans, and what a cache of classes could save: runs that are new, unchanged and changed.

python benchmarks/cache.py [--folder FOLDER] [--only WORD] [--classes]

FOLDER (or `$TVLINT_SHARED/plans/ladder`, or `../shared/plans/ladder`) holds the plans, which are not part of the repository.
`--classes` takes one proof of each pair apart instead: reading both plans, deriving each, and the least that looking up every
class of segments would cost, which is to number the tensors of each segment in the order of their use and to hash that.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ladder import PAIRS

from tvlint.ir.operators import Backward, Communicate, Compute, Receive, Send
from tvlint.ir.plan import Plan, Segment

T = TypeVar("T")


def main() -> int:
    """1 if a second run differs from the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = Path(os.environ.get("TVLINT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    parser.add_argument("--folder", type=Path, default=shared / "plans" / "ladder")
    parser.add_argument("--only", default="", help="pairs whose name holds this")
    parser.add_argument("--classes", action="store_true", help="take a proof apart instead")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        print(f"no plans in {arguments.folder}", file=sys.stderr)
        return 1
    if arguments.classes:
        print(f"{'seconds for':60} {'read p.':>8} {'read r.':>8} {'derive p.':>9} {'derive r.':>9} {'rest':>6} {'look up':>8}")
    else:
        print(f"{'seconds for':60} {'first':>8} {'again':>8} {'changed':>8} {'no cache':>8} {'KiB':>6}")
    failed = False
    for parallel, reference in PAIRS:
        if arguments.only in parallel:
            paths = tuple(arguments.folder / f"{name}.pkl.xz" for name in (parallel, reference))
            failed = not (_apart if arguments.classes else _runs)(*paths) or failed
    return int(failed)


def _runs(parallel: Path, reference: Path) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        copies = [shutil.copyfile(path, Path(folder, path.name)) for path in (parallel, reference)]
        os.chmod(copies[0], 0o644)
        first, verdict = _proved(folder, copies)
        again, second = _proved(folder, copies)
        with open(copies[0], "ab") as file:
            file.write(b"\0\0\0\0")
        changed, third = _proved(folder, copies)
        bare, fourth = _proved(folder, copies, "--no-cache")
        size = max(path.stat().st_size for path in Path(folder, ".tvlint_cache").glob("*.entry"))
    same = verdict == second == third == fourth
    print(f"{parallel.name[:60]:60} {first:8.2f} {again:8.2f} {changed:8.2f} {bare:8.2f} {size >> 10:6}{'' if same else ' !'}")
    return same


def _proved(folder: str, paths: list[Path], *more: str) -> tuple[float, str]:
    """Seconds of one run, and its verdict without what it cost."""
    command = [
        *(sys.executable, "-c", "import tvlint.cli; raise SystemExit(tvlint.cli.main())", "prove"),
        *(paths[0].name, "--reference", paths[1].name, "--assume", "declared-piece-order", "-o", "json", *more),
    ]
    key = {"TVLINT_CACHE_KEY": "a key for one measurement"}
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env={**os.environ, **key}, stdout=subprocess.PIPE, check=False)
    seconds = time.perf_counter() - started
    [verdict] = json.loads(done.stdout)["verdicts"]
    return seconds, json.dumps([verdict[name] for name in ("verdict", "stages", "assumptions", "reasons")])


def _apart(parallel: Path, reference: Path) -> bool:
    from tvlint.analyses.relations.assumable import ASSUMPTIONS
    from tvlint.equivalence.verdict import derivation
    from tvlint.equivalence.verdict.prove import prove
    from tvlint.run.project.reading import read_plan

    gc.disable()
    plans = [_timed(lambda path=path: read_plan(str(path))) for path in (parallel, reference)]  # type: ignore[misc]
    derived: list[float] = []
    derive = derivation.derive

    def timed(*rest: Any, **named: Any) -> Any:
        seconds, found = _timed(lambda: derive(*rest, **named))
        derived.append(seconds)
        return found

    derivation.derive = timed
    whole, _ = _timed(lambda: prove(plans[0][1], plans[1][1], assume=frozenset(ASSUMPTIONS)))
    derivation.derive = derive
    look, _ = _timed(lambda: [_hashed(segment, plans[0][1]) for segment in plans[0][1].segments.values()])
    parts = (plans[0][0], plans[1][0], sum(derived[1:]), derived[0], whole - sum(derived), look)
    cells = [f"{part:{width}.2f}" for part, width in zip(parts, (8, 8, 9, 9, 6, 8), strict=True)]
    print(f"{parallel.name[:60]:60}", *cells)
    return True


def _timed(run: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    result = run()
    return time.perf_counter() - started, result


def _hashed(segment: Segment, plan: Plan) -> bytes:
    """A segment up to the names of its tensors: its operators, the shapes and regions of what they use."""
    numbers: dict[str, int] = {}
    told: list[Any] = []

    def number(operand: Any) -> Any:
        if not isinstance(operand, str):
            return operand.value
        if operand not in numbers:
            numbers[operand] = len(numbers)
            tensor = plan.tensors.get(operand)
            told.append(tensor and (tensor.shape, tensor.dtype, tensor.role.value, tensor.region, tensor.part))
        return numbers[operand]

    def compute(operator: Compute) -> tuple[Any, ...]:
        names = (tuple(map(number, operator.inputs)), tuple(map(number, operator.outputs)))
        return (operator.op, *names, tuple(operator.attributes.items()))

    for name in segment.inputs:
        number(name)
    for operator in segment.operators:
        if isinstance(operator, Compute):
            told.append(compute(operator))
        elif isinstance(operator, Backward):
            told.append((compute(operator.forward), tuple(map(number, operator.inputs)), tuple(map(number, operator.outputs))))
        elif isinstance(operator, Communicate):
            names = (tuple(map(number, operator.inputs)), tuple(map(number, operator.outputs)))
            told.append((operator.kind.value, *names, operator.group.ranks, operator.dim, operator.concat_dim, operator.reduce))
        elif isinstance(operator, Send | Receive):
            told.append((type(operator).__name__, number(operator.tensor), operator.peer.rank))
        else:
            told.append(type(operator).__name__)
    return hashlib.sha256(repr(told).encode()).digest()


if __name__ == "__main__":
    sys.exit(main())
