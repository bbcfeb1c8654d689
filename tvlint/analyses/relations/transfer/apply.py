"""Transfer relations through operators and their vector-Jacobian products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from math import prod
from typing import Any

from tvlint.analyses.relations.terms import arithmetic
from tvlint.analyses.relations.terms.constant_factors import bare, rational, times
from tvlint.analyses.relations.terms.loss_identities import term_of
from tvlint.analyses.relations.terms.normal_form import normal
from tvlint.analyses.relations.terms.terms import PIECES
from tvlint.analyses.relations.transfer.context import Mismatch, World, indices_of, is_zero, is_zeros
from tvlint.analyses.relations.transfer.extents import Result, averaging, not_whole, result_of, share_of
from tvlint.analyses.relations.transfer.index_maps import MOST_PIECES, Pieces, is_all_of, length
from tvlint.analyses.relations.transfer.operator_uses import Use
from tvlint.analyses.relations.transfer.pending_ranges import Coefficient, Pending
from tvlint.analyses.relations.transfer.relation import NEGATED, Fold, Joined, Leaf, Value
from tvlint.ops.spec import ONE, Names, Trait
from tvlint.ops.table import has_trait
from tvlint.plurals import counted


def run(world: World, use: Use, total_slots: int) -> Value:
    """Return the relation of the operator's result, in normal form where terms are stated in that.

    Raises Mismatch where the result is not a linear contribution to what the operator computes on whole operands.
    """
    if not world.terms.normal:
        return _run(world, use, total_slots)
    terms, counted = world.terms, 1
    name = str(use.head[0]).removesuffix(" gradient")
    if use.averaged and (name == "mean" or (terms.arithmetic and arithmetic.is_arithmetic(name))):
        indices = indices_of(world, use.operands)
        counted = prod(indices[name].size * (total_slots if indices[name].slotted else 1) for name in use.averaged)
        summed = replace(
            use,
            head=(use.head[0].replace("mean", "sum"), *use.head[1:]),
            reduced=use.reduced | (use.averaged - set(use.result)),
        )
        factor = averaging(world, use.averaged, indices, total_slots)
        found = _run(world, replace(summed, averaged=frozenset()), total_slots)
        terms.means.add(found.term)
        found = world.values.scaled(found, factor)
    else:
        found = _run(world, use, total_slots)
    inner, constant = bare(terms, found.term)
    tell = arithmetic.sum_of_products if terms.arithmetic else normal
    again = tell(terms, terms.keys[inner], terms.operands[inner], terms.shape[inner], terms.slot[inner])
    term = times(terms, times(terms, again, constant), rational(Fraction(1, counted)))
    made = world.values.retermed(found, term)
    if found in world.values.joined:
        all_names = [names for names, _ in use.operands]

        def anew(operands: Sequence[Value]) -> Value:
            return run(world, replace(use, operands=tuple(zip(all_names, operands, strict=True))), total_slots)

        operands = tuple(value for _, value in use.operands)
        world.values.joined[made] = world.values.joined[found]._replace(anew=anew, operands=operands)
    return made


def run_on_pieces(world: World, use: Use, total_slots: int) -> Value:
    """Return the relation of the result of an operator on tensors that hold several pieces of dimensions.

    What an operator does at every index of a dimension alike it does so however they are numbered; a sum over pieces is the sum
    of what each adds. Raises Mismatch as `run` does.
    """
    values, op = world.values, str(use.head[0]).removesuffix(" gradient")
    held = _pieces_of_names(world, use)
    several = {name: value for name, (value, _) in held.items() if len(value) > 1}
    added: dict[str, Pieces] = {}
    for name, pieces in several.items():
        size = held[name][1]
        operand = next(i for i, (names, _) in enumerate(use.operands) if name in names)
        if world.alone and name in (use.masked or ()) and name not in use.ranges and [*pieces] != sorted(pieces):
            text = f"masks {size} positions as if in their order, and gets {len(pieces)} pieces of them in another one"
            raise Mismatch("pieces-not-in-rank-order", text, refutes=True, operand=operand)
        if name in use.ranges or name in (use.masked or ()):
            text = f"states or implies where its indices lie, and gets {len(pieces)} pieces of {size} indices"
            raise Mismatch("split-dimension", text, refutes=False, operand=operand)
        if name in use.whole and use.splits.get(name) != "maps":
            if not is_all_of(pieces, size):
                raise not_whole(use, name, held[name], operand)
            anyhow = has_trait(op, Trait.ATTENTION) and (op != use.head[0] or name not in use.result)
            if name not in use.splits and not anyhow and not has_trait(op, Trait.SOFTMAX, Trait.NORMALISATION):
                text = f"needs {size} indices in their order, and gets them in {len(pieces)} pieces"
                sure = world.alone and has_trait(op, Trait.SCAN)
                raise Mismatch("pieces-not-in-rank-order" if sure else "split-dimension", text, refutes=sure, operand=operand)
        elif name in use.reduced | use.averaged and name not in use.result and not is_all_of(pieces, size):
            added[name] = pieces
    if prod(len(pieces) for pieces in added.values()) > MOST_PIECES:
        raise Mismatch("split-twice", "sums over too many pieces", refutes=False)
    found = []
    for chosen in product(*added.values()):
        bounds = {**{name: (0, length(value)) for name, value in several.items()}, **dict(zip(added, chosen, strict=True))}
        operands = tuple((names, _on_box(world, names, value, bounds)) for names, value in use.operands)
        one = run(world, replace(use, operands=operands), total_slots)
        share = prod(
            Fraction(bounds[name][1] - bounds[name][0], length(value)) for name, value in added.items() if name in use.averaged
        )
        found.append(values.scaled(one, share))
    total = found[0]
    if len(found) > 1:
        total = values.of_leaves(total.term, total.box, [leaf for one in found for leaf in values.leaves_of(one)])
    return values.with_pieces(total, [several.get(name, (bounds,)) for name, bounds in zip(use.result, total.box, strict=True)])


def _pieces_of_names(world: World, use: Use) -> dict[str, tuple[Pieces, int]]:
    """Return the pieces of every name and its size, which all operands must agree on."""
    found: dict[str, tuple[Pieces, int]] = {}
    for position, (names, value) in enumerate(use.operands):
        whole = world.terms.shape[world.terms.whole(value.term)]
        if len(names) != len(whole):
            text = f"takes {counted(len(names), 'dimension')} of a tensor of {len(whole)}"
            raise Mismatch("mismatched-dimensions", text, refutes=False, operand=position)
        for name, piece, size in zip(names, world.values.pieces_of(value), whole, strict=True):
            known = found.setdefault(name, (piece, size)) if name != ONE else (piece, size)
            if known != (piece, size):
                same = known[1] == size and not any(is_zero(value) for _, value in use.operands)
                text = "combines other pieces of a dimension of one operand than of another"
                raise Mismatch("mismatched-shards" if same else "mismatched-dimensions", text, refutes=same, operand=position)
    return found


def _on_box(world: World, names: Names, value: Value, bounds: Mapping[str, tuple[int, int]]) -> Value:
    """Return the relation of an operand, with the dimensions of these names in these bounds."""
    plain = world.values.out_of_pieces(value)
    return world.values.with_box(plain, tuple(bounds.get(name, bound) for name, bound in zip(names, plain.box, strict=True)))


def run_again(
    world: World,
    total_slots: int,
    known: dict[Any, Any],
    key: tuple[Any, ...],
    use: Callable[[], Use | None],
    values: Sequence[Value],
    gradients: Mapping[int, Value],
) -> Value | None:
    """Return the relation of the result of `use`, of which `known` has what does not depend on terms; None where it is no use.

    The operands are some of `values` and `gradients`. Together with their extents, `key` is all that this depends on where
    the operator, its annotation, the world and `total_slots` are always the same ones.
    """
    in_pieces = any(world.terms.keys[value.term][0] == PIECES for value in (*values, *gradients.values()))
    if world.terms.normal or in_pieces:
        made = use()
        return None if made is None else (run_on_pieces if in_pieces else run)(world, made, total_slots)
    key = (*key, *[value.extent for value in values], *[value.extent for value in gradients.values()])
    result: Result | None
    try:
        result = known[key]
    except KeyError:
        made = use()
        result = known[key] = None if made is None else result_of(world, made, total_slots)
    if result is None:
        return None
    return _applied(world, result, [values[place] if place >= 0 else gradients[~place] for place in result.places])


def _run(world: World, use: Use, total_slots: int) -> Value:
    return _applied(world, result_of(world, use, total_slots), [value for _, value in use.operands])


def _applied(world: World, result: Result, operands: Sequence[Value]) -> Value:
    """Return the relation that the result is for these operands of the use."""
    terms, values = world.terms, world.values
    bare_operands, shares = _shares_beside_parts(world, result, operands)
    of = tuple([bare_operands[i].term for i in result.counted])
    if terms.normal:
        term = terms.term(result.head, of, result.shape, result.slot)
    else:
        term = term_of(terms, result.head, of, result.shape, result.slot)
    if result.fold is not None or result.pending is None:
        unfit = (i for i in sorted(result.counted) if not bare_operands[i].clean and (result.fold or bare_operands[i].fold))
        i = next(unfit, None)
        if i is not None:
            raise incomplete(world, bare_operands[i], i)
        if result.fold is not None:
            return values.folded(term, result.box, result.fold)
        return values.multiple(term, result.box, 0)
    pending = frozenset([entry._replace(origin=term) for entry in result.pending])
    found = _linear_result(world, result, bare_operands, term, pending, shares)
    if found.leaves and any(group.issuperset(result.counted) for group in result.linear if len(group) > 1):
        values.joined[found] = Joined(partial(_applied, world, result), tuple(operands), result.head, result.commutative)
    return found


def _shares_beside_parts(
    world: World, result: Result, operands: Sequence[Value]
) -> tuple[Sequence[Value], Mapping[int, Coefficient]]:
    """Return the operands without the constants of those that a part of a sum is added to, and these constants.

    So `a_i + b / n` on each of n ranks is a part of `a` and the share 1 / n of `b`, and the ranks' add up to `a + b`.
    Operands without parts have one coefficient.
    """
    parts = {i for i in result.counted if operands[i].leaves}
    added = next((group for group in result.linear if len(group) > 1 and group.issuperset(result.counted)), None)
    if added is not None and not parts:
        found = dict(zip(result.counted, world.values.of_one_coefficient([operands[i] for i in result.counted]), strict=True))
        return [found.get(i, operand) for i, operand in enumerate(operands)], {}
    joint = next((group for group in result.linear if len(group) > 1 and not parts.isdisjoint(group)), None) if parts else None
    shares: dict[int, Coefficient] = {}
    bare = list(operands)
    for i in joint or ():
        if i not in parts and operands[i].clean:
            shares[i], term = share_of(world, operands[i].term)
            bare[i] = operands[i] if term == operands[i].term else world.values.retermed(operands[i], term)
    return bare, shares


def _linear_result(
    world: World,
    result: Result,
    operands: Sequence[Value],
    term: int,
    pending: frozenset[Pending],
    shares: Mapping[int, Coefficient],
) -> Value:
    """Return the result when some operands are parts or multiples of their terms."""
    values, box, factor = world.values, result.box, result.factor
    unclean = [(i, operands[i]) for i in sorted(result.counted) if not operands[i].clean]
    if not unclean:
        if not pending and factor == 1:
            return values.clean(term, box)
        return values.through(values.clean(term, box), term, "start", box, factor, pending)
    if any(value.fold is not None for _, value in unclean):
        i, value = next((i, value) for i, value in unclean if value.fold is not None)
        follows = _moves(str(result.head[0])) or (value.fold is not None and _keeps(str(result.head[0]), value.fold))
        if len(result.counted) == 1 and follows and not pending and factor == 1:
            return values.through(value, term, 0, box, 1, pending)
        negates = has_trait(str(result.head[0]), Trait.NEGATION) and not pending
        if negates and value.fold is not None and value.fold.kind in NEGATED:
            return values.folded(term, box, value.fold._replace(kind=NEGATED[value.fold.kind]), value.coefficient)
        raise incomplete(world, value, i)
    groups = {next((g for g in result.linear if i in g), None) for i, _ in unclean}
    if None in groups:
        i, value = next((i, v) for i, v in unclean if not any(i in g for g in result.linear))
        raise incomplete(world, value, i)
    parts = [(i, value) for i, value in unclean if value.leaves]
    partial_groups = {next(g for g in result.linear if i in g) for i, _ in parts}
    if len(partial_groups) > 1:
        raise Mismatch(
            "partial-times-partial",
            "multiplies two partial sums, so that products of parts on different ranks are missing",
            refutes=True,
            operand=parts[1][0],
        )
    joint = next((g for g in result.linear if len(g) > 1 and any(i in g for i, _ in unclean)), None)
    for i, value in unclean:
        if not value.leaves and (joint is None or i not in joint):
            factor = factor * value.coefficient
    if joint is None:
        if not parts:
            return values.through(values.clean(term, box), term, "start", box, factor, pending)
        ((i, value),) = parts
        return values.through(value, term, result.counted.index(i), box, factor, pending)
    if any(i not in joint for i, _ in parts):
        raise Mismatch("partial-times-scaled", "multiplies a partial sum with a multiple", refutes=False)
    token = world.terms.token
    leaves = [
        Leaf(
            token((leaf.token, term, result.counted.index(i))),
            leaf.coefficient * factor * shares.get(i, 1),
            leaf.pending | pending,
        )
        for i in sorted(result.counted)
        if i in joint and not is_zeros(world.terms, operands[i])
        for leaf in values.leaves_of(operands[i])
    ]
    return values.of_leaves(term, box, leaves)


def _moves(op: str) -> bool:
    """Return whether the operator moves elements and computes nothing, so that a maximum of parts stays one."""
    return has_trait(op, Trait.VIEW, Trait.BROADCAST)


def _keeps(op: str, fold: Fold) -> bool:
    """Return whether the operator grows with its operand: the greatest of the results is that of the greatest, as the least is.

    A sum may have its one tensor on either side.
    """
    return fold.kind in NEGATED and has_trait(op, Trait.RISING) and not has_trait(op, Trait.SUM)


def fold_text(fold: Fold) -> str:
    """Return what a value is that has not seen all of a folded dimension."""
    seen = ", ".join(f"{low}:{high}" for low, high in fold.covered) or "none"
    what = {"max": "a maximum", "min": "a minimum", "merge": "attention", "gradient": "the gradient of attention"}[fold.kind]
    return f"{what} over indices {seen} of {fold.size}"


def incomplete(world: World, value: Value, operand: int) -> Mismatch:
    """Return what is wrong where an operator needs the whole of an operand that is a part or a multiple."""
    if value.fold is not None:
        text = f"uses {fold_text(value.fold)} as if it were complete"
        wrong = value.fold.kind != "gradient" and bool(value.fold.covered)
        return Mismatch("part-used-as-complete", text, refutes=wrong, operand=operand)
    if value.leaves and not any(leaf.pending for leaf in value.leaves):
        text = f"uses a sum as if it were the reference's, and {world.values.multiples_in(value)}"
        return Mismatch("unequal-addends", text, refutes=True, operand=operand)
    if value.leaves:
        return Mismatch("missing-allreduce", "uses a partial sum as if it were complete", refutes=True, operand=operand)
    return Mismatch(
        "scaled-value", f"uses {value.coefficient} times the value as if it were the value", refutes=True, operand=operand
    )
