"""Options of the launcher before a program."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.readers.megatron.arguments import flag_of
from tvlint.readers.megatron.launcher import TORCH, Launch
from tvlint.readers.megatron.unknown_options import distance
from tvlint.readers.shell.values import Word, before, known_text, location_of, span_of

OF_TORCH = frozenset(
    {
        "duplicate-stderr-filters",
        "duplicate-stdout-filters",
        "event-log-handler",
        "help",
        "local-addr",
        "local-ranks-filter",
        "log-dir",
        "logs-specs",
        "master-addr",
        "master-port",
        "max-restarts",
        "module",
        "monitor-interval",
        "nnodes",
        "no-python",
        "node-rank",
        "nproc-per-node",
        "numa-binding",
        "rdzv-backend",
        "rdzv-conf",
        "rdzv-endpoint",
        "rdzv-id",
        "redirects",
        "role",
        "run-path",
        "shutdown-timeout",
        "signals-to-handle",
        "standalone",
        "start-method",
        "tee",
        "use-env",
        "virtual-local-rank",
    }
)
"""Options of `torchrun`, torch 2.13 (torch/distributed/run.py), and `--use-env` of `torch.distributed.launch`."""
OF_DEEPSPEED = frozenset(
    {
        "autotuning",
        "bind-core-list",
        "bind-cores-to-rank",
        "elastic-training",
        "enable-each-rank-log",
        "exclude",
        "force-multi",
        "help",
        "hostfile",
        "include",
        "launcher",
        "launcher-args",
        "master-addr",
        "master-port",
        "max-elastic-nodes",
        "min-elastic-nodes",
        "module",
        "no-local-rank",
        "no-python",
        "no-ssh",
        "no-ssh-check",
        "node-rank",
        "num-gpus",
        "num-nodes",
        "save-pid",
        "ssh-port",
        "venv-script",
    }
)
"""Options of `deepspeed`, version 0.17 (deepspeed/launcher/runner.py)."""
SHORTEST = 7
"""Letters of the shortest name whose neighbour is no other option."""


def misspelled_launcher_options(launch: Launch) -> Iterator[Finding]:
    """Yield a finding for each option before the program that is a letter or two away from one of the launcher's."""
    names = [(known_text(item.pieces) or "").rpartition("/")[2] if isinstance(item, Word) else "" for item in launch.launcher]
    place = next((place for place, name in enumerate(names) if name in TORCH or name == "deepspeed"), None)
    if place is None or len(launch.arguments) == len(launch.launcher):
        return
    options = OF_DEEPSPEED if names[place] == "deepspeed" else OF_TORCH
    for item in launch.launcher[place + 1 :]:
        flag = flag_of(item)
        name = flag[2:].replace("_", "-")
        if not isinstance(item, Word) or len(name) < SHORTEST or any(each.startswith(name) for each in options):
            continue
        near = [each for each in options if distance(name, each, 2) <= 2]
        if len(near) != 1:
            continue
        meant = "--" + (near[0].replace("-", "_") if "_" in flag else near[0])
        at = location_of(span_of(before(item.pieces, len(flag))))
        message = f"`{names[place]}` has no option `{flag[:80]}`"
        fix = Fix(f"write `{meant}`", (Edit(at, meant),), is_safe=True)
        yield Finding("misspelled-option", Severity.ERROR, message, at, f"did you mean `{meant}`?", fixes=(fix,))
