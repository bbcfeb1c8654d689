"""The names under which the gradients of weights add up."""

from __future__ import annotations

from collections import Counter

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.gradients.lifecycle import weight_gradients
from tvlint.ir.operators import ReduceGradients, Update
from tvlint.ir.plan import Plan


def accumulators(plan: Plan) -> dict[str, str]:
    """Return the weight of each name under which a gradient adds up.

    Where a rank makes what a weight names as its gradient, that is the one name there; what is else made of gradients of the
    weight (an addend, a reduced shard, a clipped gradient) is a value of its own. Other ranks may name theirs otherwise.
    """
    owners = weight_gradients(plan)
    chosen = {owner: plan.tensors[owner].gradient for owner in owners.values()}
    others: set[str] = set()
    for program in plan.programs:
        made = {name for _, _, operator in plan.run_by(program) for name in writes(operator)}
        others.update(name for name in made & owners.keys() if name != chosen[owners[name]] and chosen[owners[name]] in made)
    return {name: owner for name, owner in owners.items() if name not in others}


def addends(plan: Plan) -> dict[str, str]:
    """Return by name, with their weights, the gradients that a plan adds up and steps with itself.

    A rank makes several of a weight, none of which is named as its gradient, and nothing goes by the weight's name.
    """
    by_name = {weight for each in plan.operators() if isinstance(each, ReduceGradients | Update) for weight in each.weights}
    owners = {name: owner for name, owner in weight_gradients(plan).items() if not plan.tensors[owner].gradient}
    if plan.micro_batches > 1 or not owners:
        return {}
    several = set[str]()
    for program in plan.programs:
        made = {name for _, _, operator in plan.run_by(program) for name in writes(operator)} & owners.keys()
        counted = Counter(owners[name] for name in made)
        several |= {owner for owner, count in counted.items() if count > 1}
    return {name: owner for name, owner in owners.items() if owner in several - by_name}
