"""gradient-of-another-tensor: the gradient of one value is used for another."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.def_use import reads
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.optimizer_updates import is_step
from tvlint.analyses.relations.misused_gradients import Misused, misused_gradients
from tvlint.analyses.relations.scales import place_of
from tvlint.findings import Related
from tvlint.ir.location import Location
from tvlint.ir.operators import Communicate, Compute
from tvlint.ir.plan import Role
from tvlint.rule import Sighting


def check(facts: Facts) -> Iterator[Sighting]:
    """Yield backward operators that take, or give, a gradient at the place of another tensor, and steps with one that none
    gives so.
    """
    every = list(misused_gradients(facts))
    given = {misused.name for misused in every if misused.how == "given"}
    for misused in every:
        if misused.how == "stepped" and misused.name in given:
            continue
        words = {"tensor": misused.tensor, "name": misused.name, "owner": misused.owner, "times": misused.times}
        words |= dict(zip(("one", "other"), misused.parted, strict=True))
        about, ranks = (misused.tensor, misused.name, misused.owner), facts.fold.everywhere((misused.rank,))
        place, again = place_of(facts, misused.operator), _read_again(facts, misused)
        if again is None:
            yield Sighting(place, ranks, words, about=about, case=misused.how)
        else:
            related = (Related(f"`{misused.tensor}` is updated with `{misused.name}` here", place),)
            yield Sighting(again, ranks, words, related, about, "unread")


def _read_again(facts: Facts, misused: Misused) -> Location | None:
    """Return where the weight whose gradient steps another one is read last, where nothing reads the other one."""
    plan = facts.plan
    if misused.how != "stepped" or misused.tensor not in plan.tensors or plan.tensors[misused.tensor].role is not Role.WEIGHT:
        return None
    readers = [
        operator
        for operator in plan.run_on(misused.rank)
        if isinstance(operator, Communicate) or (isinstance(operator, Compute) and not is_step(operator))
    ]
    of_owner = [operator for operator in readers if misused.owner in reads(operator)]
    is_read = any(misused.tensor in reads(operator) for operator in readers)
    return place_of(facts, of_owner[-1]) if len(of_owner) > 1 and not is_read else None
