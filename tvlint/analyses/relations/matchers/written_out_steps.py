"""What steps that a plan writes out put in the place of states and buffers, and is of another weight or of one rank."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.gradients.written_out_steps import local_statistics, of_another
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.matchers.projection import Projection


def of_other_weights_and_ranks(projection: Projection) -> Iterator[Defect]:
    """Yield the copies of such values."""
    ranks = {rank for program in projection.plan.programs for rank in program.ranks}
    for found in of_another(projection.facts):
        of = f"`{found.state}`, which is of `{found.weight}`," if found.state != found.weight else f"`{found.weight}`"
        text = f"{of} is overwritten on {{ranks}} "
        text += f"with what is made of `{found.other}`"
        repair = f"make `{found.weight}` and its states of these and of its gradient"
        for rank in sorted(ranks.intersection(found.ranks)):
            yield _at(projection, found.where, Defect("state-of-another-shard", True, text, rank, repair=repair))
    for local in local_statistics(projection.facts):
        text = f"`{local.buffer}` is overwritten on {{ranks}} with what is made of `{local.local}`, which each rank has of its "
        text += f"own data, though `{local.total}` sums that over the ranks"
        repair = f"make `{local.buffer}` of `{local.total}`"
        for rank in sorted(ranks.intersection(local.ranks)):
            yield _at(projection, local.where, Defect("divergent-replicas", True, text, rank, repair=repair))


def _at(projection: Projection, where: tuple[str, int], defect: Defect) -> Defect:
    segment, index = where
    return at(projection.facts.plan.segments[segment].operators[index], segment, defect)
