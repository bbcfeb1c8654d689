"""What steps that a plan writes out put in the place of states and buffers, and is of another weight or of one rank."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.gradients.optimizer_steps import misplaced
from tvlint.analyses.gradients.written_out_steps import local_statistics, of_another
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.matchers.projection import Projection


def of_other_weights_and_ranks(projection: Projection) -> Iterator[Defect]:
    """Yield the copies of such values."""
    ranks = {rank for program in projection.plan.programs for rank in program.ranks}
    for other in of_another(projection.facts):
        of = f"`{other.state}`, which is of `{other.weight}`," if other.state != other.weight else f"`{other.weight}`"
        text = f"{of} is overwritten on {{ranks}} "
        text += f"with what is made of `{other.other}`"
        repair = f"make `{other.weight}` and its states of these and of its gradient"
        for rank in sorted(ranks.intersection(other.ranks)):
            yield _at(projection, other.where, Defect("state-of-another-shard", True, text, rank, repair=repair))
    for wrong in misplaced(projection.facts):
        text = (
            f"`{wrong.weight}` is stepped on {{ranks}} with `{wrong.name}`, {wrong.given} of `{wrong.owner}`, in the place of "
        )
        for rank in projection.facts.fold.everywhere(wrong.ranks):
            found = Defect(
                "state-of-another-shard", True, text + wrong.wanted, rank, repair="give the step its operands in order"
            )
            yield _at(projection, wrong.where, found)
    for local in local_statistics(projection.facts):
        text = f"`{local.buffer}` is overwritten on {{ranks}} with what is made of `{local.local}`, which each rank has of its "
        text += f"own data, though `{local.total}` sums that over the ranks"
        repair = f"make `{local.buffer}` of `{local.total}`"
        for rank in sorted(ranks.intersection(local.ranks)):
            yield _at(projection, local.where, Defect("divergent-replicas", True, text, rank, repair=repair))


def _at(projection: Projection, where: tuple[str, int], defect: Defect) -> Defect:
    segment, index = where
    return at(projection.facts.plan.segments[segment].operators[index], segment, defect)
