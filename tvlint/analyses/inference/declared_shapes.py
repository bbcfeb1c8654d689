"""Local shapes that the plan states of results, against those that their operators give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tvlint.analyses.communication.collective_order import disagreements
from tvlint.analyses.dataflow.def_use import uses, writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.inference.operand_fit import operand_fit
from tvlint.analyses.inference.uneven_shards import remainders
from tvlint.analyses.relations.findings import is_wrong_in_relations
from tvlint.ir.operators import Communicate, Compute


@dataclass(frozen=True, slots=True)
class Stated:
    """At (`segment`, `index`) the operator `called` gives `name` the shape `given`, and the plan says `stated`."""

    segment: str
    index: int
    name: str
    called: str
    stated: list[int]
    given: list[int]


def misstated_shapes(facts: Facts) -> Iterator[Stated]:
    """Results whose declared local shape is another than follows from the shapes of the operands, once each.

    Exported pieces are left alone: their shape is that of their region, which is judged by what it is made of.
    """
    seen: set[str] = set()
    plan = facts.plan
    for (segment, index), given in operand_fit(facts).given.items():
        operator = plan.segments[segment].operators[index]
        if not isinstance(operator, Compute | Communicate) or all(name in seen for name in operator.outputs):
            continue
        if all(name in plan.tensors and plan.tensors[name].region is not None for name in operator.outputs):
            continue
        for name, (shape, _) in zip(operator.outputs, given, strict=False):
            stated = plan.tensors[name].shape if name in plan.tensors else shape
            if stated != shape and prod((*stated, *shape)) != 1 and name not in seen:
                seen.add(name)
                yield Stated(segment, index, name, called(operator), list(stated), list(shape))


def called(operator: Compute | Communicate) -> str:
    """Return the operator in a word."""
    return operator.kind.value if isinstance(operator, Communicate) else operator.op.rsplit(".", 1)[-1]


def unexplained(facts: Facts) -> Iterator[Stated]:
    """Those of which nothing else that is wrong at the operator, or before, is the cause."""
    explained = set()
    for parted in disagreements(facts):
        explained |= {(call.site.segment, call.site.index) for call in (*parted.ours, *parted.theirs)}
    doubtful = {found.tensor.name for found in remainders(facts.plan)}
    stated = {(found.segment, found.index): found for found in misstated_shapes(facts)}
    for segment in facts.plan.segments.values() if stated else ():
        for index, operator in enumerate(segment.operators):
            where = (segment.name, index)
            wrong = where in explained or is_wrong_in_relations(facts, operator)
            if wrong or not doubtful.isdisjoint(uses(operator)):
                doubtful.update(writes(operator))
            elif where in stated and stated[where].name not in doubtful:
                yield stated[where]
