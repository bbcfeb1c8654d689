"""All patterns of mistakes, on the relations of one plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.single_plan import Alone
from tvlint.analyses.relations.matchers.blocks import lone_blocks
from tvlint.analyses.relations.matchers.clipping import clipped_by_others
from tvlint.analyses.relations.matchers.copies import copies_of_different_values
from tvlint.analyses.relations.matchers.divergent import computed_otherwise
from tvlint.analyses.relations.matchers.flat_steps import misplaced_in_buckets
from tvlint.analyses.relations.matchers.gradient_addends import miscounted_gradients
from tvlint.analyses.relations.matchers.halos import broken_halos
from tvlint.analyses.relations.matchers.local_counts import means_by_local_counts
from tvlint.analyses.relations.matchers.parted import (
    counted_by_every_rank,
    merged_in_part,
    returned_apart,
    values_made_otherwise,
)
from tvlint.analyses.relations.matchers.piece_order import results_out_of_order
from tvlint.analyses.relations.matchers.positions import misplaced_positions
from tvlint.analyses.relations.matchers.projection import Projection
from tvlint.analyses.relations.matchers.shards import shards_of_all
from tvlint.analyses.relations.matchers.unlike_shards import unlike_shards
from tvlint.analyses.relations.matchers.written_out_steps import of_other_weights_and_ranks
from tvlint.ir.operators import Backward, Compute


def matched(facts: Facts, alone: Alone) -> Iterator[Defect]:
    """Yield what the placements that follow from the relations show to be wrong."""
    projection = Projection(facts, alone)
    yield from lone_blocks(projection)
    yield from shards_of_all(projection)
    yield from broken_halos(projection)
    yield from results_out_of_order(projection)
    yield from computed_otherwise(projection)
    yield from means_by_local_counts(projection)
    yield from misplaced_positions(projection)
    yield from copies_of_different_values(projection)
    yield from of_other_weights_and_ranks(projection)
    otherwise = [*values_made_otherwise(projection)]
    yield from otherwise
    yield from counted_by_every_rank(projection)
    yield from returned_apart(projection)
    yield from merged_in_part(projection)
    yield from unlike_shards(projection)
    yield from (defect for defect in miscounted_gradients(projection) if not _is_gradient_of_one(defect, otherwise))
    yield from clipped_by_others(projection)
    yield from misplaced_in_buckets(projection)


def _is_gradient_of_one(defect: Defect, found: Iterable[Defect]) -> bool:
    """Return whether a defect is that of the gradient of an operator of which another defect is: they have one cause."""
    back, operators = defect.place, (each.place for each in found)
    return isinstance(back, Backward) and any(
        isinstance(operator, Compute) and operator.outputs == back.forward.outputs for operator in operators
    )
