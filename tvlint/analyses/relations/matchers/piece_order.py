"""Results that every rank holds whole, with the pieces of a dimension in another order than theirs."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.matchers.projection import Projection
from tvlint.analyses.relations.transfer.index_maps import is_all_of
from tvlint.ir.operators import Compute
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait


def results_out_of_order(projection: Projection) -> Iterator[Defect]:
    """Yield the operators that make outputs of which the plan does not say how they lie, out of pieces in a wrong order."""
    plan, terms, values = projection.plan, projection.alone.world.terms, projection.alone.world.values
    for name in plan.outputs:
        tensor = plan.tensors.get(name)
        for rank, held in projection.alone.derived.environments.items():
            value, made = held.get(name), projection.alone.operators.makers_on(rank).get(name)
            if value is None or made is None or (tensor is not None and tensor.placements is not None):
                continue
            sizes = terms.shape[terms.whole(value.term)]
            for dim, (pieces, size) in enumerate(zip(values.pieces_of(value), sizes, strict=True)):
                if len(pieces) > 1 and is_all_of(pieces, size):
                    order = ", ".join(f"{low}:{high}" for low, high in pieces)
                    text = f"{name_of(made[1])} gives `{name}` on {{ranks}} "
                    text += f"with the pieces of dimension {dim} in the order {order}"
                    repair = ""
                    if isinstance(made[1], Compute) and has_trait(made[1].op, Trait.JOIN):
                        repair = f"join them in the order {', '.join(f'{low}:{high}' for low, high in sorted(pieces))}"
                    defect = Defect("pieces-not-in-rank-order", True, text, rank, repair=repair)
                    yield at(made[1], made[0], defect)
