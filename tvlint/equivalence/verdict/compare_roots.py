"""Compare the backward roots of a plan with the reference's.

What a gradient starts with, and at which copies and parts of a value, shows in the gradients of weights. That none starts at a
value, or one more, is reported here, where gradients differ by it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.relations.defect import Trouble, at
from tvlint.analyses.relations.derivation.state import Derived
from tvlint.analyses.relations.terms.loss_identities import multiplied
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ir.plan import Plan
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait


def judge_roots(terms: Terms, plan: Plan, reference: Derived, derived: Derived) -> Iterator[Trouble]:
    """Yield the values at which gradients start in one of the plans only; nothing where both have some of these.

    Those may be one value, written in two ways. Nothing is said either where it is not known where all gradients start.
    """
    if derived.roots_open or reference.roots_open:
        return
    certain = derived.finished and not derived.fatal and not derived.troubles
    expected = {addend: root.of for root in reference.roots for addend in addends(terms, root.value.term)}
    found = {addend: root for root in derived.roots for addend in addends(terms, root.value.term)}
    missing, surplus = expected.keys() - found.keys(), found.keys() - expected.keys()
    if missing and not surplus:
        for addend in sorted(missing):
            text = f"gradients start at `{expected[addend]}` in the reference, and here at no copy or part of it"
            yield Trouble("missing-root", certain, text, plan.programs[0].ranks[0])
    if surplus and not missing:
        for root in derived.roots:
            if not surplus.isdisjoint(addends(terms, root.value.term)):
                text = f"gradients start at `{root.of}` on {{ranks}}, and in the reference none start there"
                yield at(root.operator, root.segment, Trouble("surplus-root", certain, text, root.rank))


def addends(terms: Terms, term: int) -> frozenset[int]:
    """Return the values of which the term is a sum of multiples."""
    found, waiting = set(), [term]
    while waiting:
        own = waiting.pop()
        below, operands = multiplied(terms, own), terms.operands[own]
        alike = len(operands) == 2 and all(terms.shape[each] == terms.shape[own] for each in operands)
        if below is not None:
            waiting.append(below[1])
        elif alike and has_trait(str(terms.keys[own][0]), Trait.SUM):
            waiting.extend(operands)
        else:
            found.add(own)
    return frozenset(found)
