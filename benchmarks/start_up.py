"""Prints what a check of configurations costs beside yamllint: CPU seconds of whole processes, in turn, and their ratios.

python benchmarks/start_up.py [--runs N] [--tvlint COMMAND] [--yamllint COMMAND]

Each row is one configuration or 200; ratios of runs that follow one another hold on a loaded machine too, seconds do not.
Install tvlint as a wheel (`pip install .`): an editable installation reads the rule pages one by one.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

YAML = """\
MODEL_ARGS:
  --num-layers: {layers}
  --hidden-size: {hidden}
  --num-attention-heads: 8
  --micro-batch-size: 4
  --global-batch-size: 32
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: 2
  --bf16: true
"""


def main() -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--tvlint", default="tvlint", help="how tvlint is started")
    parser.add_argument("--yamllint", default="yamllint", help="how yamllint is started")
    arguments = parser.parse_args()
    print(f"{'':<16}{'tvlint':>9}{'yamllint':>10}{'ratio':>8}")
    for count in (1, 200):
        with tempfile.TemporaryDirectory() as folder:
            for number in range(count):
                Path(folder, f"{number}.yaml").write_text(YAML.format(layers=24 + 2 * (number % 8), hidden=512 + 64 * number))
            check = [*shlex.split(arguments.tvlint), "check", ".", "--no-cache"]
            pairs = [
                (seconds(check, folder), seconds([*shlex.split(arguments.yamllint), "."], folder))
                for _ in range(arguments.runs + 1)
            ][1:]
        own, other = (median(each) for each in zip(*pairs, strict=True))
        ratio = median(one / two for one, two in pairs)
        print(f"{count:>4} file{'s' if count > 1 else ' '}      {own:>9.3f}{other:>10.3f}{ratio:>8.2f}")
    return 0


def seconds(command: Sequence[str], folder: str) -> float:
    """Return the CPU seconds of the command and of what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
