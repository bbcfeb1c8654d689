"""Products that several ranks compute alike, beside operators that are split over the same ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.findings import Finding, Related, Severity
from tvlint.ir.operators import Compute
from tvlint.ops.spec import Trait
from tvlint.ops.table import spec_of
from tvlint.readers.nnscaler.gencode.lower.operators import IDENTITY
from tvlint.readers.nnscaler.gencode.lower.replica import Built

_COPIES = frozenset({IDENTITY, "nnscaler.runtime.function.multiref", "_operator.getitem"})


@dataclass(frozen=True, slots=True)
class _Repeated:
    """An operator that `ranks` run alike in a method."""

    kind: str
    method: str
    ranks: tuple[int, ...]
    operator: Compute


def replicated(built: Built) -> Iterator[Finding]:
    """Yield one note for every kind of product that all ranks of a unit repeat in a segment that is split over them.

    The same name on several ranks is the same slice of the same value: pieces that differ have names of their own.
    """
    by_kind: dict[str, list[_Repeated]] = {}
    for found in _repeated(built):
        by_kind.setdefault(found.kind, []).append(found)
    for kind, places in by_kind.items():
        first = places[0]
        assert first.operator.source is not None
        ranks = ", ".join(map(str, first.ranks))
        more = f", and {len(places) - 1} more like it" if len(places) > 1 else ""
        origin = first.operator.source.origin
        yield Finding(
            "replicated-operator",
            Severity.NOTE,
            f"`{kind}` computes the same on the ranks {ranks} in `{first.method}`, where others are split over them{more}",
            first.operator.source,
            "a policy that cannot split an operator runs it on every rank; split another dimension, or leave it if it is small",
            () if origin is None else (Related("generated from this line of the model", origin),),
            first.ranks,
        )


def _repeated(built: Built) -> Iterator[_Repeated]:
    methods: dict[str, dict[int, dict[tuple[str, tuple[str, ...]], Compute]]] = {}
    for (rank, method), body in built.bodies.items():
        this_operator = (entry.operator for entry in body.operators)
        made = {(one.op, one.outputs): one for one in this_operator if isinstance(one, Compute) and one.op not in _COPIES}
        methods.setdefault(method, {})[rank] = made
    for method, by_rank in methods.items():
        ranks = tuple(sorted(by_rank))
        common = set.intersection(*(set(made) for made in by_rank.values()))
        if len(ranks) < 2 or all(len(made) == len(common) for made in by_rank.values()):
            continue
        for key, operator in by_rank[ranks[0]].items():
            spec = spec_of(operator.op) if key in common else None
            if spec is not None and Trait.CONTRACTION in spec.traits and operator.source is not None:
                yield _Repeated(operator.op.rsplit(".", 1)[-1], method, ranks, operator)
