"""Reports built by hand, for the tests of the reporters: an ordinary one, an empty one, and one full of hostile text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tvlint.findings import (
    Edit,
    Finding,
    Fix,
    NotEvaluated,
    Outcome,
    Pairing,
    Problem,
    Reason,
    Related,
    Report,
    Severity,
    StageCounts,
    Verdict,
)
from tvlint.ir.coverage import Coverage
from tvlint.ir.location import Location
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.outline import Cell, Lane, Outline
from tvlint.ir.plan import Phase
from tvlint.reporters.context import Context
from tvlint.rule import Rule, RuleKind

TRAIN_SH = """\
#!/bin/bash
GPUS=8
MODEL_ARGS=(
    --num-layers 47
    --pipeline-model-parallel-size 2
    --num-attention-heads 32 --tensor-model-parallel-size 3
)
torchrun --nproc_per_node $GPUS pretrain_gpt.py "${MODEL_ARGS[@]}"
"""

EVIL = (
    "a|b%0A\n::add-mask::secret\n##[error]x \x1b[31mred\x1b[0m \x07 </script><img src=x onerror=alert(1)> "
    "\u202egnp\u202c \U0001f600 `x`"
)

EVIL_SH = (
    "#!/bin/bash\n::add-mask::hunter2 ##[error]x \x1b[2Jcleared \u202egnp\u202c | <b>`\U0001f600\n"
    "\techo '::stop-commands::x' 日本語 flag\n"
)

RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            "layers-not-divisible-by-pp",
            RuleKind.CONFIG,
            Severity.ERROR,
            "layers do not divide over the pipeline stages",
            sources=("megatron/core/transformer/transformer_config.py:1234",),
            path="rules/megatron/pipeline/layers-not-divisible-by-pp.md",
        ),
        Rule(
            "heads-not-divisible-by-tp",
            RuleKind.CONFIG,
            Severity.ERROR,
            "attention heads do not divide over tensor-parallel ranks",
        ),
        Rule("missing-allreduce", RuleKind.PLAN, Severity.ERROR, "a partial sum is used as if it were complete"),
        Rule("query-groups-ignored", RuleKind.CONFIG, Severity.WARNING, "`--num-query-groups` has no effect"),
        Rule("unsupported-operator", RuleKind.PROOF, Severity.WARNING, "what an operator computes is not known"),
        Rule("world-size-not-divisible", RuleKind.CONFIG, Severity.ERROR, "the world size does not divide"),
    )
}

EXPLANATIONS = {
    "layers-not-divisible-by-pp": (
        "Every pipeline stage holds the same number of layers.\n\n## Why\n\nMegatron stops at start-up.\n"
    ),
    "heads-not-divisible-by-tp": "Heads are whole.\n",
    "missing-allreduce": "Partial.\n",
    "query-groups-ignored": "It is ignored.\n",
    "unsupported-operator": "Unknown.\n",
    "world-size-not-divisible": "It does not.\n",
}

MESH = Mesh((Axis("pp", 2), Axis("dp", 2), Axis("tp", 2)))


def write_sources(root: Path) -> None:
    """Put the files that the reports point at under `root`."""
    (root / "train.sh").write_text(TRAIN_SH, encoding="utf-8")
    (root / "evil.sh").write_text(EVIL_SH, encoding="utf-8")
    (root / "tvlint.toml").write_text("[[proof]]\n", encoding="utf-8")
    (root / "plans").mkdir(exist_ok=True)
    (root / "plans" / "parallel.pkl").write_bytes(b"\x80\x04\x00.")
    (root / "plans" / "reference.pkl").write_bytes(b"\x80\x04\x00.")


def context(root: Path, **changes: object) -> Context:
    """Return the context of a report on a folder that a person named."""
    named = frozenset({root.resolve()})
    given = {"rules": RULES, "explanation": _explanation, "root": root, "version": "1.2.3", "named": named}
    return Context(**{**given, **changes})  # type: ignore[arg-type]


def _explanation(rule: Rule) -> str:
    return EXPLANATIONS[rule.name]


def _layers() -> Finding:
    return Finding(
        "layers-not-divisible-by-pp",
        Severity.ERROR,
        "47 layers do not divide over 2 pipeline stages",
        Location("train.sh", 4, 18, 4, 20),
        "use 46 or 48 layers, or set `--decoder-first-pipeline-num-layers 24`",
        (Related("the pipeline size is set here", Location("train.sh", 5, 5, 5, 37)),),
        fixes=(
            Fix("set `--num-layers` to 48", (Edit(Location("train.sh", 4, 18, 4, 20), "48"),)),
            Fix("put both on one line", (_at("train.sh", 4, 20), _at("train.sh", 5, 37))),
        ),
    )


def _at(path: str, line: int, column: int) -> Edit:
    return Edit(Location(path, line, column, line, column), " ")


def _heads() -> Finding:
    return Finding(
        "heads-not-divisible-by-tp",
        Severity.ERROR,
        "32 attention heads do not divide over 3 tensor-parallel ranks",
        Location("train.sh", 6, 30, 6, 60),
    )


def _partial() -> Finding:
    return Finding(
        "missing-allreduce",
        Severity.WARNING,
        "`t550` is a partial sum over tp; `add` uses it as complete",
        Location("site-packages/model/llama.py", 120, pointer="device 0/segment 3/operator 34", text="    x = x + self.mlp(x)"),
        "all-reduce `t550` over tp before `add`",
        ranks=(0, 2, 4, 6),
        related=(Related("the plan", Location("plans/parallel.pkl", pointer="device 0/segment 3/operator 33")),),
        found_in="plans/parallel.pkl",
    )


PROVED = Verdict(
    "plans/reference.pkl",
    "plans/parallel.pkl",
    Outcome.PROVED,
    StageCounts(45, 12, 45, 0, 0),
    assumptions=("real arithmetic, not floats", "the data loader gives each rank the slice that the plan declares"),
    facts=(("ranks", "8"), ("parameters covered", "21")),
    seconds=1.2345,
    peak_bytes=210 << 20,
)

REFUTED = Verdict(
    "plans/reference.pkl",
    "plans/parallel.pkl",
    Outcome.REFUTED,
    StageCounts(45, 12, 40, 3, 2),
    (
        Reason(
            "missing-allreduce",
            True,
            "`t550` is a partial sum over tp of `linear`; `add` uses it as complete",
            Location(
                "site-packages/model/llama.py", 120, pointer="device 0/segment 3/operator 34", text="    x = x + self.mlp(x)"
            ),
            (0, 1),
            "add",
            "`t550` complete on ranks 0,1",
            "addend 0 of 2 on rank 0, addend 1 of 2 on rank 1",
            "all-reduce (sum) `t550` over ranks 0,1",
            (Related("`t550` is produced here", Location("site-packages/model/llama.py", 98, text="    return self.down(h)")),),
        ),
    ),
    ("real arithmetic, not floats",),
    seconds=0.42,
    peak_bytes=3 << 30,
)

UNKNOWN = Verdict(
    "plans/reference.pkl",
    "plans/other.pkl",
    Outcome.UNKNOWN,
    StageCounts(9, 4, 8, 0, 1),
    (
        Reason(
            "unsupported-operator",
            False,
            "`my.fused_kernel` is not in the operator table",
            Location("plans/other.pkl", pointer="device 1/segment 0/operator 7"),
            (1,),
            "my.fused_kernel",
        ),
    ),
    seconds=0.031,
)

OUTLINE = Outline(
    "plans/parallel.pkl",
    MESH,
    2,
    tuple(
        Lane(ranks, tuple(Cell(phase, stage, micro_batch) for phase, micro_batch in order))
        for ranks, stage, order in (
            ((0, 1), 0, ((Phase.FORWARD, 0), (Phase.FORWARD, 1), (Phase.BACKWARD, 0), (Phase.BACKWARD, 1), (Phase.REDUCE, -1))),
            ((4, 5), 1, ((Phase.FORWARD, 0), (Phase.BACKWARD, 0), (Phase.FORWARD, 1), (Phase.BACKWARD, 1), (Phase.REDUCE, -1))),
        )
    ),
    Coverage(118, 140),
)

EMPTY = Report()
CLEAN = Report(verdicts=(PROVED,), checked=("train.sh", "plans/parallel.pkl"), outlines=(OUTLINE,))
FULL = Report(
    (_layers(), _heads(), _partial()),
    (REFUTED, UNKNOWN, PROVED),
    (NotEvaluated("world-size-not-divisible", Location("train.sh", 8, 27), "needs the world size: depends on `$NNODES`"),),
    (Problem("the file ends inside an array", Location("broken.json", 1, 3), "is it complete?"),),
    ("train.sh", "plans/parallel.pkl", "plans/other.pkl"),
    (OUTLINE,),
    pairings=tuple(Pairing(f"plans/{name}.pkl", Location("tvlint.toml", 1, 1, 1, 10)) for name in ("parallel", "other")),
)

_EVIL_PLACE = Location("evil.sh", 2, 1, 2, 20, EVIL, EVIL)
HOSTILE = Report(
    (
        Finding("missing-allreduce", Severity.ERROR, EVIL, _EVIL_PLACE, EVIL, (Related(EVIL, _EVIL_PLACE),), (0, 1)),
        Finding(
            "missing-allreduce",
            Severity.NOTE,
            EVIL,
            Location("evil.sh", 3, 32, 3, 36),
            fixes=(Fix(EVIL, (Edit(_EVIL_PLACE, EVIL),)),),
        ),
        Finding("missing-allreduce", Severity.WARNING, EVIL, Location(f"dir/{EVIL}", 1, 1, 3, 2)),
        Finding("missing-allreduce", Severity.WARNING, "\ud800 lone \0", Location("\0", 10**9, 10**9, 1, 1)),
    ),
    (
        Verdict(
            EVIL,
            EVIL,
            Outcome.REFUTED,
            StageCounts(),
            (Reason("x-y", True, EVIL, _EVIL_PLACE, (1,), EVIL, EVIL, EVIL, EVIL, (Related(EVIL, _EVIL_PLACE),)),),
            (EVIL,),
            ((EVIL, EVIL),),
        ),
    ),
    (NotEvaluated("missing-allreduce", _EVIL_PLACE, EVIL),),
    (Problem(EVIL, _EVIL_PLACE, EVIL),),
    (EVIL,),
    (Outline(EVIL, MESH, 1, (Lane((0,), (Cell(Phase.FORWARD, 0, 0),)),)),),
)

ALL = {"empty": EMPTY, "clean": CLEAN, "full": FULL, "hostile": HOSTILE}
