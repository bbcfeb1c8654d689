"""Proves one tensor-parallel model over more and more data-parallel replicas, and prints the time of each proof.

python benchmarks/replicas.py [--replicas 1 8 64 512] [--layers 2] [--broken]

The plans are plan text that writes out every rank as a point of a mesh `dp=N tp=8`; time is CPU time after reading. The last
column is the time as a multiple of that of eight replicas (or of the first, where eight are not among them).
"""

from __future__ import annotations

import argparse
import sys
import time

from tvlint.equivalence.verdict.prove import prove
from tvlint.ir.plan import Plan
from tvlint.readers.plan_text.reader import read

HIDDEN = 64


def text(replicas: int, parallel: bool, layers: int, broken: bool = False) -> str:
    """A residual model of `layers` two-matrix layers, on one device or over `replicas` of eight tensor-parallel ranks."""
    rows, size = 2 * replicas, 4 * HIDDEN
    first, second, cut = ("tp:S(0)", "tp:S(1)", "dp:S(0)") if parallel else ("", "", "")
    lines = [f"mesh dp={replicas} tp=8" if parallel else "mesh dp=1"]
    for i in range(layers):
        lines += [f"weight u{i} f32[{size},{HIDDEN}] {first}", f"weight d{i} f32[{HIDDEN},{size}] {second}"]
    lines += [f"input x0 f32[{rows},{HIDDEN}] {cut}", "loss l", "program"]
    for i in range(layers):
        lines += [f"h{i} = linear(x{i}, u{i})", f"a{i} = gelu(h{i})", f"p{i} = linear(a{i}, d{i})"]
        lines += [f"y{i} = all-reduce(p{i}) over tp" if parallel else f"y{i} = identity(p{i})", f"x{i + 1} = add(x{i}, y{i})"]
    lines += [f"s = sum(x{layers})", "l = all-reduce(s) over dp" if parallel else "l = identity(s)"]
    lines.append(f"g{layers} = backward s (grad(l))")
    for i in reversed(range(layers)):
        lines += [
            f"r{i}, dy{i} = backward x{i + 1} (g{i + 1})",
            f"da{i}, grad(d{i}) = backward p{i} (dy{i})",
            f"dh{i} = backward a{i} (da{i})",
            f"q{i}, grad(u{i}) = backward h{i} (dh{i})",
            f"t{i} = all-reduce(q{i}) over tp" if parallel else f"t{i} = identity(q{i})",
            f"g{i} = add(r{i}, t{i})",
        ]
    weights = ", ".join(f"u{i}, d{i}" for i in range(layers))
    if parallel:
        lines.append(f"reduce-gradients {weights} over dp" + (" by avg" if broken else ""))
    return "\n".join([*lines, f"update {weights}"]) + "\n"


def plan(replicas: int, parallel: bool, layers: int, broken: bool = False) -> Plan:
    """The plan of that text."""
    path = "parallel.plan" if parallel else "reference.plan"
    document = read(path, text(replicas, parallel, layers, broken))
    if document.plan is None:
        raise SystemExit("\n".join(finding.message for finding in document.findings))
    return document.plan


def main() -> int:
    """1 if a plan has another verdict than it should have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--broken", action="store_true", help="plans that average gradients that have to be summed")
    arguments = parser.parse_args()
    measured: dict[int, float] = {}
    wrong = False
    for replicas in arguments.replicas:
        pair = [plan(replicas, parallel, arguments.layers, arguments.broken) for parallel in (True, False)]
        started = time.process_time()
        verdict = prove(*pair)
        measured[replicas] = time.process_time() - started
        expected = "refuted" if arguments.broken and replicas > 1 else "proved"
        wrong = wrong or verdict.outcome.value != expected
        base = measured.get(8, measured[arguments.replicas[0]])
        ratio = measured[replicas] / base if base else 0.0
        print(f"dp={replicas:<5} {8 * replicas:6} ranks  {verdict.outcome.value:8} {measured[replicas]:8.2f} s {ratio:8.2f}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
