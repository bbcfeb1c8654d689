"""Compare the backward roots of a plan with the reference's.

What a gradient starts with, and at which copies and parts of a value, shows in the gradients of weights. That none starts at a
value, or one more, or that one counts more than another, is reported here, where gradients differ by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.state import Derived, Root
from tvlint.analyses.relations.terms.loss_identities import multiplied
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ir.plan import Plan
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait


def judge_roots(terms: Terms, plan: Plan, reference: Derived, derived: Derived) -> Iterator[Defect]:
    """Yield the values at which gradients start in one of the plans only; nothing where both have some of these.

    Those may be one value, written in two ways. Nothing is said either where it is not known where all gradients start.
    """
    if derived.roots_open or reference.roots_open:
        return
    certain = derived.finished and not derived.fatal and not derived.defects
    expected = {addend: root.of for root in reference.roots for addend in addends(terms, root.value.term)}
    found = {addend: root for root in derived.roots for addend in addends(terms, root.value.term)}
    missing, surplus = expected.keys() - found.keys(), found.keys() - expected.keys()
    if missing and not surplus:
        for addend in sorted(missing):
            text = f"gradients start at `{expected[addend]}` in the reference, and here at no copy or part of it"
            yield Defect("missing-root", certain, text, plan.programs[0].ranks[0])
    if surplus and not missing:
        for root in derived.roots:
            if not surplus.isdisjoint(addends(terms, root.value.term)):
                text = f"gradients start at `{root.of}` on {{ranks}}, and in the reference none start there"
                yield at(root.operator, root.segment, Defect("surplus-root", certain, text, root.rank))
    if not surplus and not missing and not derived.foreign:
        yield from _unequal(terms, reference, derived, certain)


def _unequal(terms: Terms, reference: Derived, derived: Derived, certain: bool) -> Iterator[Defect]:
    """Yield the values that gradients start from with another share than from others; a common factor is none.

    Only of complete values: what a part, or one micro-batch, has a share of shows in the gradients.
    """
    expected = shares(terms, reference.roots)
    held: dict[int, list[Root]] = {}
    for root in derived.roots:
        held.setdefault(root.rank, []).append(root)
    for rank, roots in held.items():
        found = shares(terms, roots)
        if not expected or not found or expected.keys() != found.keys():
            continue
        ratios = {addend: found[addend] / expected[addend] for addend in sorted(found) if expected[addend]}
        first = next(iter(ratios.values()), Fraction(0))
        for root in roots if first else ():
            odd = [ratios[addend] / first for addend in addends(terms, root.value.term) if ratios.get(addend, first) != first]
            if odd:
                text = f"the gradient that starts at `{root.of}` on {{ranks}} counts {odd[0]} times as much beside the others"
                unequal = Defect("unequal-roots", certain, f"{text} as in the reference", rank)
                yield at(root.operator, root.segment, unequal)


def shares(terms: Terms, roots: Sequence[Root]) -> dict[int, Fraction]:
    """Return how often each value counts among those that gradients start from; nothing where one is a part or a fold."""
    found: dict[int, Fraction] = {}
    for root in roots:
        if root.value.leaves or root.value.fold is not None:
            return {}
        share = Fraction(root.value.coefficient) * root.start
        for addend, factor in multiples(terms, root.value.term).items():
            found[addend] = found.get(addend, Fraction(0)) + share * factor
    return found


def addends(terms: Terms, term: int) -> frozenset[int]:
    """Return the values of which the term is a sum of multiples."""
    return frozenset(multiples(terms, term))


def multiples(terms: Terms, term: int) -> dict[int, Fraction]:
    """Return the values of which the term is a sum of multiples, and how often each counts."""
    found: dict[int, Fraction] = {}
    waiting = {term: Fraction(1)}
    while waiting:
        latest = max(waiting)
        share = waiting.pop(latest)
        below, operands = multiplied(terms, latest), terms.operands[latest]
        alike = len(operands) == 2 and all(terms.shape[operand] == terms.shape[latest] for operand in operands)
        if below is not None:
            waiting[below[1]] = waiting.get(below[1], Fraction(0)) + share * below[0]
        elif alike and has_trait(str(terms.keys[latest][0]), Trait.SUM):
            for each_operand in operands:
                waiting[each_operand] = waiting.get(each_operand, Fraction(0)) + share
        else:
            found[latest] = share
    return found
