"""Memory that has several names, which a run on numbers keeps apart: what overwrites one of them changes the others."""

from __future__ import annotations

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.relations.derivation.operators.overwriting import may_share
from tvlint.ir.operators import Compute
from tvlint.ir.plan import Plan, Program, Role


def seen_elsewhere(plan: Plan) -> str:
    """Return what is overwritten and may be seen under another name afterwards; empty where nothing is."""
    if any(tensor.storage for tensor in plan.tensors.values()):
        return "tensors of the plan share their storages"
    return next(filter(None, (_seen_elsewhere(plan, program) for program in plan.programs)), "")


def _seen_elsewhere(plan: Plan, program: Program) -> str:
    roots: dict[str, str] = {}
    changed: dict[str, str] = {}
    for step in program.steps:
        for operator in plan.segments[step.segment].operators:
            over = []
            if isinstance(operator, Compute) and operator.in_place:
                over = [str(operator.inputs[place]) for place in operator.in_place]
            changed.update((roots.get(name, name), name) for name in over)
            for name in reads(operator):
                if changed.get(roots.get(name, name), name) != name:
                    return f"`{name}` may be the memory of `{changed[roots.get(name, name)]}`, which is overwritten"
            for name in writes(operator):
                first = next(iter(reads(operator)), "")
                roots.pop(name, None)
                if first and first != name and may_share(operator):
                    roots[name] = roots.get(first, first)
    kept = [
        name
        for name, root in roots.items()
        if root in changed and changed[root] != name and plan.has_role(name, Role.WEIGHT, Role.STATE)
    ]
    return f"`{kept[0]}` may be memory that is overwritten" if kept else ""
