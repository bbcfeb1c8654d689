"""Proves the ladder of real plans as a user would, one process a pair, and prints wall time, CPU time and peak memory.

python benchmarks/ladder.py [--folder FOLDER] [--only WORD]

The plans are not part of the repository: FOLDER (or `$TVLINT_SHARED/plans/ladder`, or `../shared/plans/ladder`) holds them.
Plans with tensor parallelism of 4 or more over a pipeline are proved under `declared-piece-order`; as they stand they are
refuted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

LLAMA = "llama3_default_dp1_pp1_tp1_nm1_gbs{}_ly{}_h{}_hi{}_sq128"
MOE = "moe_default_dp1_pp1_tp1_nm1_gbs1024_ly{}_h{}_hi512_sq128_{}"

PAIRS = (
    ("llama3_default_dp2_pp2_tp2_nm2_gbs512_ly32_h32_hi4096_sq128", LLAMA.format(512, 32, 32, 4096)),
    ("llama3_default_dp512_pp1_tp1_nm1_gbs512_ly32_h32_hi4096_sq128", LLAMA.format(512, 32, 32, 4096)),
    ("llama3_default_dp16_pp4_tp8_nm8_gbs512_ly32_h32_hi4096_sq128", LLAMA.format(512, 32, 32, 4096)),
    ("llama3_default_dp16_pp4_tp8_nm32_gbs512_ly80_h64_hi4096_sq128", LLAMA.format(512, 80, 64, 4096)),
    ("llama3_default_dp64_pp16_tp8_nm16_gbs2048_ly126_h128_hi1024_sq128", LLAMA.format(2048, 126, 128, 1024)),
    ("moe_default_dp16_pp2_tp4_nm16_gbs1024_ly27_h16_hi512_sq128_a6_r64", MOE.format(27, 16, "a6_r64")),
    ("moe_default_dp16_pp4_tp8_nm16_gbs1024_ly60_h128_hi512_sq128_a6_r160", MOE.format(60, 128, "a6_r160")),
    ("moe_default_dp32_pp8_tp8_nm16_gbs1024_ly61_h128_hi512_sq128_a8_r256", MOE.format(61, 128, "a8_r256")),
)


def main() -> int:
    """1 if a pair is not proved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = Path(os.environ.get("TVLINT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    parser.add_argument("--folder", type=Path, default=shared / "plans" / "ladder")
    parser.add_argument("--only", default="", help="pairs whose name holds this")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        print(f"no plans in {arguments.folder}", file=sys.stderr)
        return 1
    print(f"{'parallel plan':72} {'verdict':8} {'wall s':>7} {'CPU s':>7} {'MiB':>6}")
    failed = False
    for parallel, reference in PAIRS:
        if arguments.only in parallel:
            failed = not _timed(arguments.folder, parallel, reference) or failed
    return int(failed)


def _timed(folder: Path, parallel: str, reference: str) -> bool:
    command = [
        *(sys.executable, "-c", "import tvlint.cli; raise SystemExit(tvlint.cli.main())", "prove"),
        *(f"{folder / parallel}.pkl.xz", "--reference", f"{folder / reference}.pkl.xz"),
        *("--assume", "declared-piece-order", "-o", "concise", "--no-cache"),
    ]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    said = process.stdout.read() if process.stdout is not None else ""
    _, status, usage = os.wait4(process.pid, 0)
    wall, cpu = time.perf_counter() - started, usage.ru_utime + usage.ru_stime
    outcome = next((word for word in ("proved", "refuted", "unknown") if word in said), "?")
    print(f"{parallel:72} {outcome:8} {wall:7.1f} {cpu:7.1f} {usage.ru_maxrss // 1024:6}", flush=True)
    return os.waitstatus_to_exitcode(status) == 0


if __name__ == "__main__":
    sys.exit(main())
