"""Products and attention of the one head that a rank holds, which it need not tell apart from others by a dimension.

Of queries, keys and values of all heads, side by side, a rank with one head holds the block that is this head. What it computes
of the blocks of two operands is one index of what the reference computes of all heads, each with a dimension of their own. So
is a block under a new dimension, which a rank makes for its one head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from string import ascii_letters

from tvlint.analyses.relations.derivation.operators.in_steps import InSteps
from tvlint.analyses.relations.derivation.state import Machine, Saved
from tvlint.analyses.relations.terms.constant_factors import bare
from tvlint.analyses.relations.terms.expressions import SUM_OF_PRODUCTS
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.memo import Form
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.analyses.relations.transfer.reshape import readings, viewed
from tvlint.ir.operators import Compute, Literal, Operand
from tvlint.ops.spec import ONE, Bound, Family, OpSpec, Trait, UnsupportedError

Evaluate = Callable[[Form, tuple[Value, ...]], Saved]
_BY_ELEMENT = (Trait.MASKING, Trait.SUM, Trait.SCALING)
_Block = tuple[int, int]
"""How many blocks a dimension has, and which of them a rank holds."""


def of_one_head_alone(
    machine: Machine, spec: OpSpec, form: Form, values: tuple[Value, ...], evaluate: Evaluate
) -> Saved | None:
    """Return the operator on a rank's blocks as one index of what it does on all blocks; None where it has none such, or the
    reference does not compute that.
    """
    terms = machine.world.terms
    if not terms.multiplied_out or terms.sealed < 0 or not values:
        return None
    work = _OnBlocks(machine, values, evaluate=evaluate)
    try:
        if Trait.VIEW in spec.traits and len(values) == 1:
            return _with_other_dimensions(work, spec, form)
        if Trait.ATTENTION in spec.traits or {Trait.CONTRACTION, Trait.PRODUCT} <= spec.traits:
            return _of_blocks(work, spec, form)
        if not spec.traits.isdisjoint(_BY_ELEMENT) and len(values) == 2:
            return _beside_a_matrix(work, spec, form)
    except (Mismatch, UnsupportedError):
        return None
    return None


@dataclass(slots=True, kw_only=True)
class _OnBlocks(InSteps):
    """Operators on the blocks that a rank holds of each operand."""

    evaluate: Evaluate

    def run(self, form: Form, *places: int) -> int:
        """Run an operator on the values at places; return the place of its result."""
        return self.add(self.evaluate(form, tuple(map(self.value, places))), *places)

    def product(self, places: Sequence[int], bound: Bound, dim: int) -> int:
        """Run a product of operands that have one more dimension than `bound` says, each at place `dim`."""
        given, (made,) = bound.operands, bound.outputs
        letters = {name: ascii_letters[at] for at, name in enumerate(dict.fromkeys(name for names in given for name in names))}
        if ONE in letters or not letters.keys() >= set(made) or len(letters) >= len(ascii_letters):
            raise UnsupportedError("a product that repeats an operand")
        texts = ["".join(letters[name] for name in names) for names in (*given, made)]
        one, other, result = (text[:dim] + ascii_letters[-1] + text[dim:] for text in texts)
        names: tuple[Operand, ...] = (Literal(f"{one},{other}->{result}"), "0", "1")
        return self.run(self.machine.cases.form(Compute("torch.einsum", names, ("",)), {}), *places)

    def moved(self, place: int, before: int, after: int) -> int:
        """Move a dimension to another place."""
        order = [dim for dim in range(len(self.value(place).box)) if dim != before]
        order.insert(after, before)
        permute = Compute("torch.permute", ("0", Literal(tuple(order))), ("",))
        return place if before == after else self.run(self.machine.cases.form(permute, {}), place)

    def apart(self, place: int, dim: int, block: _Block, to: int) -> int:
        """Give the blocks of a dimension of an operand a dimension of their own, at place `to`."""
        world, value, (count, which) = self.machine.world, self.values[place], block
        shape = world.local_shape(value)
        choices = readings(world, value, (*shape[:dim], 1, *shape[dim:]))
        fitting = [each for each in choices if each[1][dim] == count and each[3][dim] == ((which, which + 1),)]
        if not fitting:
            raise UnsupportedError("a block that is no index of a view")
        made = viewed(world, value, fitting[:1])
        return self.moved(self.add(Saved("view", None, Family.RESHAPE, (value,), (made,)), place), dim, to)

    def joined(self, place: int, dim: int, to: int) -> int:
        """Join a dimension with the one at place `to` of the others, before which it then stands."""
        moved = self.moved(place, dim, to)
        shape = self.machine.world.local_shape(self.value(moved))
        return self.viewed(moved, (*shape[:to], *shape[to + 1 :]))

    def is_known(self, place: int) -> bool:
        """Return whether the reference computes the value at a place, in whatever order of dimensions."""
        terms = self.machine.world.terms
        term, _ = bare(terms, terms.whole(self.value(place).term))
        head, operands = terms.keys[term], terms.operands[term]
        laid_out = head[0] == SUM_OF_PRODUCTS and len(operands) == 1 and len(head[1]) == 1 and head[1][0][1][0][1] == 1
        return not terms.foreign(operands[0] if laid_out else term)


def _with_other_dimensions(work: _OnBlocks, spec: OpSpec, form: Form) -> Saved | None:
    """Return a block under a new dimension, or without the dimension of which it is one index, as the reference has it."""
    (value,) = work.values
    bound = spec.bind(form.call([work.machine.world.local_shape(value)]))
    blocks = _blocks(work.machine, value)
    if len(blocks) != 1 or not len(bound.operands) == len(bound.outputs) == 1:
        return None
    (before,), (after,) = bound.operands, bound.outputs
    if [name for name in before if name in after] != [name for name in after if name in before]:
        return None
    ((dim, block),) = blocks.items()
    if len(after) == len(before) + 1:
        new = next(at for at, name in enumerate(after) if name not in before)
        made = work.apart(0, dim, block, new)
        return work.saved(spec.name, bound, made) if work.is_known(made) else None
    if len(after) != len(before) - 1 or before[dim] in after:
        return None
    for to in range(len(after)):
        once = _OnBlocks(work.machine, work.values, evaluate=work.evaluate)
        made = once.joined(0, dim, to)
        if once.is_known(made):
            return once.saved(spec.name, bound, made)
    return None


def _of_blocks(work: _OnBlocks, spec: OpSpec, form: Form) -> Saved | None:
    shapes = [work.machine.world.local_shape(value) for value in work.values]
    bound = spec.bind(form.call(shapes))
    attends, count = Trait.ATTENTION in spec.traits, len(shapes[0])
    if count < 2 or any(len(shape) != count for shape in shapes) or len(shapes) != (3 if attends else 2):
        return None
    if attends and any(operand is not None for operand in form.operands):
        return None
    held = [{dim: block for dim, block in _blocks(work.machine, value).items() if dim >= count - 2} for value in work.values]
    if any(len(each) != 1 for each in held) or len({block for each in held for block in each.values()}) > 1:
        return None
    dims, (block, *_) = [next(iter(each)) for each in held], held[0].values()
    apart = [work.apart(place, dim, block, count - 2) for place, dim in enumerate(dims)]
    made = work.run(replace(form, outputs=(None,)), *apart) if attends else work.product(apart, bound, count - 2)
    if not work.is_known(made):
        return None
    last = attends or bound.operands[-1][dims[-1]] in bound.outputs[0]
    return work.saved(spec.name, bound, work.joined(made, count - 2, count - 1 if last else count - 2))


def _beside_a_matrix(work: _OnBlocks, spec: OpSpec, form: Form) -> Saved | None:
    """Return what is done element by element with a rank's block of the rows of all heads and a matrix that all heads share."""
    held, shapes = [_blocks(work.machine, value) for value in work.values], [*map(work.machine.world.local_shape, work.values)]
    bound, count = spec.bind(form.call(shapes)), len(shapes[0])
    if len(held[0]) != 1 or held[1] or count < 3 or any(size != 1 for size in shapes[1][:-2]) or len(shapes[1]) > count:
        return None
    ((dim, block),) = held[0].items()
    if dim != count - 2:
        return None
    done = work.run(replace(form, outputs=(None,)), work.apart(0, dim, block, dim), 1)
    return work.saved(spec.name, bound, work.joined(done, dim, dim))


def _blocks(machine: Machine, value: Value) -> dict[int, _Block]:
    """Return of which dimensions a rank holds one of several equal blocks, and which one."""
    terms, ways = machine.world.terms, machine.world.values.pieces_of(value)
    whole = terms.whole(value.term)
    found: dict[int, _Block] = {}
    for dim, (way, size) in enumerate(zip(ways, terms.shape[whole], strict=True)):
        (low, high), *others = way
        if others or dim == terms.slot[whole] or high - low == size or size % (high - low) or low % (high - low):
            continue
        found[dim] = size // (high - low), low // (high - low)
    return found
