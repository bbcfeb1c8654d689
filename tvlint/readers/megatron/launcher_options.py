"""Options of the launcher before a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.frameworks.megatron import is_option
from tvlint.ir.patterns import Pattern
from tvlint.near_names import distance
from tvlint.readers.megatron.arguments import flag_of
from tvlint.readers.megatron.launcher import TORCH, Launch
from tvlint.readers.shell.values import Item, Piece, Word, after, before, known_text, leading_text, location_of, span_of

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
OF_ACCELERATE = frozenset(
    {
        "aws-access-key-id",
        "aws-secret-access-key",
        "config-file",
        "cpu",
        "debug",
        "deepspeed-config-file",
        "deepspeed-exclusion-filter",
        "deepspeed-hostfile",
        "deepspeed-inclusion-filter",
        "deepspeed-moe-layer-cls-names",
        "deepspeed-multinode-launcher",
        "downcast-bf16",
        "dynamo-backend",
        "dynamo-mode",
        "dynamo-use-dynamic",
        "dynamo-use-fullgraph",
        "dynamo-use-regional-compilation",
        "enable-cpu-affinity",
        "env",
        "fp8-amax-compute-algo",
        "fp8-amax-history-len",
        "fp8-backend",
        "fp8-enable-fsdp-float8-all-gather",
        "fp8-format",
        "fp8-interval",
        "fp8-margin",
        "fp8-opt-level",
        "fp8-override-linear-precision",
        "fp8-pad-inner-dim",
        "fp8-use-autocast-during-eval",
        "fsdp-activation-checkpointing",
        "fsdp-activation-checkpointing-offload",
        "fsdp-auto-wrap-policy",
        "fsdp-backward-prefetch",
        "fsdp-cpu-ram-efficient-loading",
        "fsdp-forward-prefetch",
        "fsdp-min-num-params",
        "fsdp-offload-params",
        "fsdp-reshard-after-forward",
        "fsdp-sharding-strategy",
        "fsdp-state-dict-type",
        "fsdp-sync-module-states",
        "fsdp-transformer-layer-cls-to-wrap",
        "fsdp-use-orig-params",
        "fsdp-version",
        "gpu-ids",
        "gradient-accumulation-steps",
        "gradient-clipping",
        "help",
        "log-dir",
        "machine-rank",
        "main-process-ip",
        "main-process-port",
        "main-training-function",
        "max-restarts",
        "mixed-precision",
        "module",
        "monitor-interval",
        "mpirun-ccl",
        "mpirun-hostfile",
        "multi-gpu",
        "no-python",
        "no-tpu-cluster",
        "num-cpu-threads-per-process",
        "num-machines",
        "num-processes",
        "offload-optimizer-device",
        "offload-optimizer-nvme-path",
        "offload-param-device",
        "offload-param-nvme-path",
        "quiet",
        "rdzv-backend",
        "rdzv-conf",
        "role",
        "same-network",
        "tee",
        "tpu",
        "tpu-cluster",
        "tpu-use-sudo",
        "use-deepspeed",
        "use-fsdp",
        "use-megatron-lm",
        "use-parallelism-config",
        "use-xpu",
        "vm",
        "zero-stage",
        "zero3-init-flag",
        "zero3-save-16bit-model",
    }
)
"""Options of `accelerate launch`, version 1.15 (accelerate/commands/launch.py), but for those of sizes of its plugins."""
OF_RAY_JOB = frozenset(
    {
        *("address", "entrypoint-label-selector", "entrypoint-memory", "entrypoint-num-cpus", "entrypoint-num-gpus"),
        *("entrypoint-resources", "headers", "help", "job-id", "log-color", "log-style", "metadata-json", "no-wait"),
        *("runtime-env", "runtime-env-json", "submission-id", "verbose", "verify", "working-dir"),
    }
)
"""Options of `ray job submit`, version 2.49 (ray/dashboard/modules/job/cli.py)."""
OF_HYDRA = frozenset(
    {
        "cfg",
        "config-dir",
        "config-name",
        "config-path",
        "experimental-rerun",
        "help",
        "hydra-help",
        "info",
        "multirun",
        "package",
        "resolve",
        "run",
        "shell-completion",
        "version",
    }
)
"""Options of every program of Hydra, version 1.3 (hydra/_internal/utils.py: get_args_parser)."""
OF_SRUN = frozenset(
    {
        *("accel-bind", "account", "acctg-freq", "bb", "bbf", "bcast", "begin", "chdir", "cluster-constraint", "clusters"),
        *("comment", "compress", "constraint", "container", "container-id", "container-image", "container-mount-home"),
        *("container-mounts", "container-name", "container-remap-root", "container-save", "container-workdir"),
        *("container-entrypoint", "container-env", "container-writable", "container-readonly", "no-container-mount-home"),
        *("no-container-remap-root", "no-container-entrypoint", "contiguous", "core-spec", "cores-per-socket", "cpu-bind"),
        *("cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot", "dependency", "disable-status"),
        *("distribution", "epilog", "error", "exact", "exclude", "exclusive", "export", "export-file", "external", "extra"),
        *("extra-node-info", "get-user-env", "gid", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket"),
        *("gpus-per-task", "gres", "gres-flags", "group", "het-group", "help", "hint", "hold", "immediate", "input"),
        *("interactive", "job-name", "jobid", "join", "kill-on-bad-exit", "label", "licenses", "mail-type", "mail-user"),
        *("mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "mpi", "msg-timeout", "multi-prog"),
        *("network", "nice", "no-allocate", "no-kill", "nodefile", "nodelist", "nodes", "ntasks", "ntasks-per-core"),
        *("ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "ntasks-per-tres", "oom-kill-step", "open-mode", "output"),
        *("overcommit", "overlap", "oversubscribe", "partition", "power", "preserve-env", "prefer", "priority", "profile"),
        *("prolog", "propagate", "pty", "qos", "quiet", "quit-on-interrupt", "reboot", "relative", "reservation", "resv-ports"),
        *("segment", "send-libs", "signal", "slurmd-debug", "sockets-per-node", "spread-job", "stepmgr", "switches"),
        *("task-epilog", "task-prolog", "test-only", "thread-spec", "threads", "threads-per-core", "time", "time-min", "tmp"),
        *("treewidth", "tres-bind", "tres-per-task", "uid", "unbuffered", "usage", "use-min-nodes", "verbose", "version"),
        *("tasks", "tasks-per-node", "wait", "wckey", "wait-for-children", "x11"),
    }
)
"""Options of `srun`, Slurm 25.05 (srun(1)), and those of containers that pyxis adds; it takes no underscores."""
LONGEST = 80
VARIABLE = Pattern(r"[A-Z][A-Z_]+")
PLAIN = Pattern(r"[\w.:+-]+")
"""A value that no template fills in."""
SHORTEST = 5
"""Letters of the shortest name that is an option but for a letter, where no other one is."""
SURELY_LONG = 7
"""From so many letters on, two may differ."""
SRUN = "srun"
OTHERS = {"deepspeed": OF_DEEPSPEED, "accelerate": OF_ACCELERATE, "submit": OF_RAY_JOB, SRUN: OF_SRUN}
"""Options of launchers that do not come with torch."""
PLUGINS = ("megatron-lm-", "parallelism-config-")
"""How options of `accelerate launch` begin that are not listed."""


NUMBER = Pattern(r"[+-]?\d+")
COUNTS = {
    **dict.fromkeys(("node-rank", "master-port", "max-restarts"), NUMBER),
    **dict.fromkeys(("num-gpus", "num-nodes", "num-processes", "num-machines", "machine-rank", "main-process-port"), NUMBER),
    "nproc-per-node": Pattern(r"\d+|[a-z]+"),
    "nnodes": Pattern(r"\d+(?::\d+)?"),
}
"""What launchers take for options of which they make an integer; the ranks of a node may be what it has of a device."""


CHOICES = {"mixed-precision": ("no", "fp16", "bf16", "fp8"), "zero-stage": ("0", "1", "2", "3")}
"""What `accelerate launch` takes of a few words (accelerate/commands/launch.py, accelerate/utils/dataclasses.py)."""


def mistaken_launcher_options(launch: Launch) -> Iterator[Finding]:
    """Yield a finding for each option before the program that is a letter or two away from one of the launcher's, and for each
    value that is no number where the launcher makes one of it.
    """
    names = [(known_text(item.pieces) or "").rpartition("/")[2] if isinstance(item, Word) else "" for item in launch.launcher]
    known = [place for place, name in enumerate(names) if name in TORCH or name in OTHERS]
    places = [each for each in known if names[each] != "submit" or names[max(each - 2, 0) : each] == ["ray", "job"]]
    is_whole = launch.path or names[:1] == [SRUN]
    ends = [*places, len(launch.launcher) - (0 if is_whole else len(launch.arguments))][1:]
    for place, end in zip(places, ends, strict=True):
        given = _before_command(launch.launcher[place + 1 : end])
        shown = "ray job submit" if names[place] == "submit" else names[place]
        yield from _misspelled(given, OTHERS.get(names[place], OF_TORCH), shown, "_" if shown == SRUN else "-")
        yield from _not_numbers(given)
        yield from _no_choices(given) if names[place] == "accelerate" else ()
        if names[place] not in OTHERS and launch.path:
            yield from _of_program(given)


def _before_command(items: Sequence[Item]) -> Sequence[Item]:
    """Return the words up to the second in a row that is no option: the first may be a value, the second begins a command."""
    options = [isinstance(item, Word) and leading_text(item.pieces).startswith("-") for item in items]
    starts = (at for at in range(1, len(items)) if not options[at] and not options[at - 1])
    return items[: next(starts, len(items))]


def _of_program(items: Sequence[Item]) -> Iterator[Finding]:
    """Yield a finding for each option of Megatron before the program, which torch's launcher takes for its own."""
    for item in items:
        flag = flag_of(item)
        if (
            isinstance(item, Word)
            and is_option(flag)
            and not any(each.startswith(flag[2:].replace("_", "-")) for each in OF_TORCH)
        ):
            at = location_of(span_of(before(item.pieces, len(flag))))
            message = f"`{flag[:LONGEST]}` stands before the program, and the launcher has no such option"
            yield Finding("unknown-option", Severity.ERROR, message, at, "put it behind the program")


def _values(items: Sequence[Item]) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    """Yield each option with what stands after it."""
    for item, following in zip_longest(items, items[1:]):
        flag = flag_of(item)
        if flag and isinstance(item, Word):
            is_joined = len(leading_text(item.pieces)) > len(flag)
            yield (
                flag,
                after(item.pieces, len(flag) + 1) if is_joined else following.pieces if isinstance(following, Word) else (),
            )


def _no_choices(items: Sequence[Item]) -> Iterator[Finding]:
    for flag, pieces in _values(items):
        choices, text = CHOICES.get(flag[2:].replace("_", "-"), ()), known_text(pieces)
        if choices and text and PLAIN.fullmatch(text) and text.lower() not in choices:
            message = f"`{flag}` does not take `{text[:LONGEST]}`"
            help = f"one of {', '.join(f'`{choice}`' for choice in choices)}"
            yield Finding("option-value-not-a-choice", Severity.ERROR, message, location_of(span_of(pieces)), help)


def _not_numbers(items: Sequence[Item]) -> Iterator[Finding]:
    for flag, pieces in _values(items):
        allowed, text = COUNTS.get(flag[2:].replace("_", "-")), known_text(pieces)
        if allowed is None:
            continue
        if text and PLAIN.fullmatch(text) and not allowed.fullmatch(text):
            message = f"`{flag}` takes an integer, not `{text[:LONGEST]}`"
            help = f"write `${text}`" if VARIABLE.fullmatch(text) else ""
            yield Finding("option-value-not-a-number", Severity.ERROR, message, location_of(span_of(pieces)), help)


def mistaken_hydra_options(launch: Launch, *, is_alone: bool) -> Iterator[Finding]:
    """Yield a finding for each option after a program of Hydra that is a letter or two away from one of Hydra's, or, where
    Hydra alone reads the command line, that is none of them.
    """
    found = [*_misspelled(launch.arguments, OF_HYDRA, "hydra", "_")]
    yield from found
    places = {each.location for each in found}
    for item in launch.arguments if is_alone else ():
        flag = flag_of(item)
        if not isinstance(item, Word) or not flag.startswith("--") or any(each.startswith(flag[2:]) for each in OF_HYDRA):
            continue
        at = location_of(span_of(before(item.pieces, len(flag))))
        if at not in places:
            message = f"Hydra reads the command line of `{launch.program[:LONGEST]}`, and has no option `{flag[:LONGEST]}`"
            yield Finding("unknown-option", Severity.ERROR, message, at, "write an override (`name=value`), or remove it")


def _misspelled(items: Iterable[Item], options: frozenset[str], parser: str, joint: str) -> Iterator[Finding]:
    """Yield a finding for each option that is a letter or two off; `joint` is what the parser takes an underscore for."""
    for item in items:
        flag = flag_of(item)
        name = flag[2:].replace("_", joint)
        is_option = any(each.startswith(name) for each in options) or name.startswith(PLUGINS)
        if not isinstance(item, Word) or len(name) < SHORTEST or is_option:
            continue
        most = 2 if len(name) >= SURELY_LONG else 1
        words = sorted(name.replace("_", "-").split("-"))
        near = [each for each in options if distance(name, each, most) <= most or sorted(each.split("-")) == words]
        if len(near) != 1:
            continue
        meant = "--" + (near[0].replace("-", "_") if "_" in flag and joint == "-" else near[0])
        at = location_of(span_of(before(item.pieces, len(flag))))
        message = f"`{parser}` has no option `{flag[:LONGEST]}`"
        fix = Fix(f"write `{meant}`", (Edit(at, meant),), is_safe=True)
        yield Finding("misspelled-option", Severity.ERROR, message, at, f"did you mean `{meant}`?", fixes=(fix,))
