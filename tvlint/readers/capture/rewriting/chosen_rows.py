"""Rows of tokens that each expert has chosen, as all rows with zeros in the place of those that it has not.

`masked_select` and `index_select` give each expert as many rows as have chosen it, which is data. An operator that works row by
row gives the same for a chosen row if the others stand beside it. So a value of chosen rows becomes one of all rows, for one
expert after the other: rows are chosen by a product with the choices, brought back by another one and a sum over the experts,
and a contraction over rows is the same where one of its operands has zeros in the others. Chunks of rows that are sorted,
joined and exchanged by expert and by the rank that they come from are then whole experts or whole parts of the tokens.

The order of chunks says whose each is. The replay holds the result to the recorded numbers; what does not fit stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from tvlint.ir.operators import Literal
from tvlint.ops.spec import Bound
from tvlint.readers.capture.lifting.calls import CHOOSE, EXPAND, GATHER, NARROW, PUT, SELECT, VIEW
from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifted, LiftedNode, inputs_of
from tvlint.readers.capture.lifting.program import Exchange, Ref, Type
from tvlint.readers.capture.rewriting.writer import Writer, row_name
from tvlint.readers.capture.tapes.tape import Mark

_ADD, _SCATTER_ADD = "aten.index_add.default", "torch.scatter_add"
_PERMUTE, _CAT = "torch.permute", "torch.cat"

Shape = tuple[int, ...]
Pieces = tuple[tuple[int, int], ...]


class _NotRowsError(Exception):
    """Chosen rows are used in another way."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The two dimensions that tokens are counted along, and of how many ranks' parts each of them is put together.

    The ranks that gave parts are in the order of the second dimension, those of one part of it in that of the first.
    """

    shape: tuple[int, int]
    parts: tuple[int, int] = (1, 1)

    @property
    def ranks(self) -> int:
        """Return how many ranks gave parts."""
        return prod(self.parts)

    @property
    def count(self) -> int:
        """Return how many tokens there are."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Choice:
    """The places of chosen tokens, expert by expert, as the flags of all tokens say, which are values of [experts, tokens]."""

    mask: str
    experts: int
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Rows:
    """Chosen rows as all rows: dimension `row` of `value` counts experts, and for each of them all tokens.

    `pieces` are the chosen rows in the order in which the program has them, each of an expert and of a rank; `is_zero` says
    that the other rows are zero.
    """

    value: str
    pieces: Pieces
    experts: int
    tokens: Tokens
    is_zero: bool
    row: int = 0

    @property
    def is_whole(self) -> bool:
        """Return whether these are all rows that the value stands for."""
        return sorted(self.pieces) == [(expert, rank) for expert in range(self.experts) for rank in range(self.ranks)]

    @property
    def ranks(self) -> int:
        """Return from how many ranks the tokens come, one part behind the other."""
        return max(rank for _, rank in self.pieces) + 1


def with_all_rows(lifted: Lifted, whole: Iterable[tuple[int, int]] = ()) -> Lifted:
    """Return the program with values of all rows in place of those of rows that experts chose, if they can be followed.

    `whole` are the dimensions along which the single-device program counts its tokens.
    """
    rewriting = _Rewriting(lifted, tuple(whole))
    if not rewriting.layouts:
        return lifted
    try:
        for node in lifted.nodes:
            rewriting.take(node)
        rewriting.check(name for name, _ in lifted.gradients.values())
    except _NotRowsError:
        return lifted
    return replace(lifted, nodes=rewriting.nodes, tokens=tuple(each.shape for each in rewriting.layouts.values()))


class _Rewriting(Writer):
    """A program while its chosen rows are rewritten.

    `layouts` are the dimensions that numbers of tokens count; `ordered` the values whose tokens are in the order of these
    dimensions, and which dimension they are.
    """

    def __init__(self, lifted: Lifted, whole: tuple[tuple[int, int], ...]) -> None:
        super().__init__(lifted)
        self.rows: dict[str, Rows] = {}
        self.choices: dict[str, Choice] = {}
        self.ordered: dict[str, tuple[str, int]] = {}
        self.again: dict[int, Call] = {}
        self.chunks: dict[str, set[tuple[int, int]]] = {}
        self.layouts: dict[int, Tokens] = {}
        self.inner = 1
        for node in lifted.nodes:
            if isinstance(node, Call) and node.op == NARROW and _number(node, 1) == 0:
                self.chunks.setdefault(inputs_of(node)[0], set()).add((_number(node, 2), _number(node, 3)))
            if isinstance(node, Call) and node.op == CHOOSE:
                self._lay_out(inputs_of(node)[0], whole)

    def _lay_out(self, name: str, whole: tuple[tuple[int, int], ...]) -> None:
        """Keep the dimensions of the tokens from which rows are taken: those of the value that is viewed as rows of them."""
        node, group = self.makers.get(name), tuple[int, ...]()
        if isinstance(node, Exchange) and node.kind == "all-gather" and node.dim == 0:
            group, node = node.group, self.makers.get(node.inputs[0])
        source = inputs_of(node)[0] if isinstance(node, Call) and node.op == VIEW else ""
        shape = self.program.shape(source) if source else ()
        if len(shape) != 3:
            return
        first, second, _ = shape
        cut = [one // first for one, _ in whole if one % first == 0]
        self.inner = max(self.inner, min(cut, default=1))
        self.layouts[first * second] = Tokens((first, second))
        if group:
            parts = self._parts(group)
            wide = first * parts[0], second * parts[1]
            self.layouts[prod(wide)] = Tokens(wide, parts)

    def _parts(self, group: Sequence[int]) -> tuple[int, int]:
        """Return in how many parts of each dimension the ranks of a group hold the tokens.

        Neighbours hold parts of the first dimension, as many as the single-device program has of it.
        """
        places = [rank % self.inner for rank in sorted(group)]
        first = len(set(places))
        if places != sorted(set(places)) * (len(places) // first):
            raise _NotRowsError
        return first, len(places) // first

    # ---- what is made ----

    def permute(self, name: str, dims: Shape, mark: Mark) -> str:
        """Return a value with its dimensions in another order."""
        shape = self.program.shape(name)
        if dims == tuple(range(len(dims))):
            return name
        return self.emit(
            _PERMUTE, (name,), self.program.types[name].of_shape(tuple(shape[dim] for dim in dims)), mark, dims=dims
        )

    def product(self, one: str, other: str, shape: Shape, mark: Mark) -> str:
        """Return the product of two values."""
        return self.emit("torch.mul", (one, other), self.program.types[one].of_shape(shape), mark)

    def in_order(self, name: str, dim: int, mark: Mark) -> str:
        """Return a value with its tokens in the order of the dimensions that they are counted along."""
        if name in self.ordered and self.ordered[name][1] == dim:
            return self.ordered[name][0]
        tokens, shape = self._tokens(self.program.shape(name)[dim]), self.program.shape(name)
        if tokens.parts[1] == 1:
            return name
        first, second = tokens.shape[0], tokens.shape[1] // tokens.parts[1]
        cut = self.view(name, (*shape[:dim], tokens.parts[1], first, second, *shape[dim + 1 :]), mark)
        rest = tuple(range(dim + 3, len(shape) + 2))
        return self.view(self.permute(cut, (*range(dim), dim + 1, dim, dim + 2, *rest), mark), shape, mark)

    def as_gathered(self, name: str, dim: int, mark: Mark, made: str) -> None:
        """Let a value be `name` with its tokens in the order in which the program has them."""
        shape = self.program.shape(name)
        tokens = self._tokens(shape[dim])
        if tokens.parts[1] > 1:
            self.ordered[made] = name, dim
            first, second = tokens.shape[0], tokens.shape[1] // tokens.parts[1]
            cut = self.view(name, (*shape[:dim], first, tokens.parts[1], second, *shape[dim + 1 :]), mark)
            rest = tuple(range(dim + 3, len(shape) + 2))
            name = self.permute(cut, (*range(dim), dim + 1, dim, dim + 2, *rest), mark)
        self.view(name, shape, mark, made)

    def _tokens(self, count: int) -> Tokens:
        if count not in self.layouts:
            raise _NotRowsError
        return self.layouts[count]

    # ---- what is read ----

    def take(self, node: LiftedNode) -> None:
        """Rewrite one node, or keep it. Raises _NotRowsError."""
        if isinstance(node, Exchange) and self._exchanged(node):
            return
        if isinstance(node, GradientOf) and (id(node.forward) in self.again or self._reads_rows(node)):
            self._gradient(node)
        elif isinstance(node, Call) and node.op == SELECT:
            self._selected(node)
        elif isinstance(node, Call) and any(name in self.choices for name in inputs_of(node)):
            self._chosen(node)
        elif isinstance(node, Call) and self._reads_rows(node):
            self._of_rows(node)
        else:
            self.check(inputs_of(node))
            self.nodes.append(node)
            if isinstance(node, Call):
                self._keep_order(node)

    def check(self, names: Iterable[str]) -> None:
        """Raise _NotRowsError where a name is one of chosen rows."""
        if any(name in self.rows or name in self.choices for name in names):
            raise _NotRowsError

    def _reads_rows(self, node: LiftedNode) -> bool:
        return any(name in self.rows for name in inputs_of(node))

    def _keep_order(self, node: Call) -> None:
        """Compute what is the same for each token in the order of their dimensions too, where the program has another one."""
        names = inputs_of(node)
        if len(node.outputs) != 1 or not any(name in self.ordered for name in names):
            return
        try:
            bound = self._bound(node)
        except _NotRowsError:
            return
        operands = list(zip(names, bound.operands, strict=False))
        found = {dims[self.ordered[name][1]] for name, dims in operands if name in self.ordered}
        (token,) = found if len(found) == 1 else ("",)
        cut = bound.whole | bound.sizes.keys() | bound.ranges.keys()
        if not token or token in cut or len(bound.outputs) != 1 or len(operands) != len(names):
            return
        if token not in bound.outputs[0]:
            return
        if any(token in dims for name, dims in operands if name not in self.ordered):
            return
        again = self.program.fresh(self.program.types[node.outputs[0]])
        inputs = tuple(
            Ref(self.ordered[each.name][0]) if isinstance(each, Ref) and each.name in self.ordered else each
            for each in node.inputs
        )
        self.nodes.append(replace(node, inputs=inputs, outputs=(again,)))
        self.ordered[node.outputs[0]] = again, bound.outputs[0].index(token)

    # ---- rows are chosen, and brought back ----

    def _selected(self, node: Call) -> None:
        name, mask = inputs_of(node)
        shape, made = self.program.shape(mask), node.outputs[0]
        self.check((name, mask))
        if len(shape) != 2 or self.program.shape(name) != shape:
            raise _NotRowsError
        choice = Choice(mask, shape[0], self._tokens(shape[1]))
        if self._counts(name):
            self.choices[made] = choice
            return
        wanted = self.view(self.in_order(name, 1, node.mark), (prod(shape),), node.mark)
        value = self.product(wanted, self._flags(choice, self.program.types[name].dtype, node.mark), (prod(shape),), node.mark)
        self.rows[made] = self._all_of(value, choice)

    def _counts(self, name: str) -> bool:
        """Return whether a value counts the tokens, for each expert."""
        node = self.makers.get(name)
        while isinstance(node, Call) and node.op in (EXPAND, VIEW):
            node = self.makers.get(inputs_of(node)[0])
        size = Literal(self.program.shape(name)[-1])
        return isinstance(node, Call) and node.op == "torch.arange" and node.inputs in ((size,), (Literal(0), size))

    def _all_of(self, value: str, choice: Choice) -> Rows:
        return Rows(value, tuple((expert, 0) for expert in range(choice.experts)), choice.experts, choice.tokens, is_zero=True)

    def _flags(self, choice: Choice, dtype: str, mark: Mark) -> str:
        """Return one for each expert and token that has chosen it, and zero for others, as numbers in one dimension."""
        count = choice.experts * choice.tokens.count
        flags = self.view(self.in_order(choice.mask, 1, mark), (count,), mark)
        return self.emit("torch.Tensor.to", (flags,), Type((count,), dtype), mark, dtype=dtype)

    def _chosen(self, node: Call) -> None:
        """Rewrite an operator that reads the places of chosen rows."""
        names, made = inputs_of(node), node.outputs[0]
        if node.op in (VIEW, EXPAND) and names[0] in self.choices:
            self.choices[made] = self.choices[names[0]]
        elif node.op in (CHOOSE, GATHER) and node.attributes.get("dim") == 0 and len(names) == 2:
            self.check(names[:1])
            self._taken(node, names[0], self.choices[names[1]])
        elif node.op in (_ADD, _SCATTER_ADD) and node.attributes == {"dim": 0} and names[1] in self.choices:
            self._brought_back(node, names[0], self.choices[names[1]], names[2])
        else:
            raise _NotRowsError

    def _taken(self, node: Call, name: str, choice: Choice) -> None:
        shape = self.program.shape(name)
        if len(shape) != 2 or shape[0] != choice.tokens.count or self.program.shape(node.outputs[0])[1:] != shape[1:]:
            raise _NotRowsError
        one = self.in_order(name, 0, node.mark)
        flags = self.view(
            self._flags(choice, self.program.types[name].dtype, node.mark), (choice.experts, shape[0], 1), node.mark
        )
        value = self.product(one, flags, (choice.experts, *shape), node.mark)
        self.rows[node.outputs[0]] = self._all_of(self.view(value, (choice.experts * shape[0], shape[1]), node.mark), choice)

    def _brought_back(self, node: Call, base: str, choice: Choice, source: str) -> None:
        """Add up what the experts give for each token."""
        rows, made = self._as_chosen(source, choice), self.program.types[node.outputs[0]]
        if not self.is_nothing(base) or len(made.shape) != 2 or rows.row:
            raise _NotRowsError
        wide = (choice.experts, *made.shape)
        flags = self.view(self._flags(choice, made.dtype, node.mark), (*wide[:2], 1), node.mark)
        value = self.product(self.view(rows.value, wide, node.mark), flags, wide, node.mark)
        total = self.emit("torch.sum", (value,), made, node.mark, dim=(0,), keepdim=False)
        self.as_gathered(total, 0, node.mark, node.outputs[0])

    def _put(self, node: Call) -> None:
        """Put numbers of chosen rows into the places of the choices, among zeros."""
        base, mask, source = inputs_of(node)
        shape = self.program.shape(mask)
        choice = Choice(mask, shape[0], self._tokens(shape[-1]))
        rows, dtype = self._as_chosen(source, choice), self.program.types[node.outputs[0]].dtype
        if not self.is_nothing(base) or len(self.program.shape(rows.value)) != 1:
            raise _NotRowsError
        value = self.product(rows.value, self._flags(choice, dtype, node.mark), (prod(shape),), node.mark)
        self.as_gathered(self.view(value, shape, node.mark), 1, node.mark, node.outputs[0])

    def _as_chosen(self, name: str, choice: Choice) -> Rows:
        """Return rows that are in the order in which they were chosen."""
        rows = self.rows.get(name)
        wanted = tuple((expert, 0) for expert in range(choice.experts))
        if rows is None or (rows.pieces, rows.experts, rows.tokens) != (wanted, choice.experts, choice.tokens):
            raise _NotRowsError
        return rows

    # ---- what is computed of rows ----

    def _of_rows(self, node: Call) -> None:
        names, made = inputs_of(node), node.outputs
        if node.op == PUT and len(names) == 3:
            return self._put(node)
        known = [self.rows[name] for name in names if name in self.rows]
        first, is_along = known[0], _number(node, 1) if node.op == NARROW else node.attributes.get("dim")
        if node.op == NARROW and is_along == first.row:
            self.rows[made[0]] = self._chunk(node, first)
            return None
        if node.op == _CAT and is_along == first.row and len(known) == len(names):
            self.rows[made[0]] = self._joined(node, known)
            return None
        if any((each.pieces, each.experts, each.tokens) != (first.pieces, first.experts, first.tokens) for each in known):
            raise _NotRowsError
        if not first.is_whole:
            raise _NotRowsError
        if node.op in (VIEW, EXPAND):
            self._viewed(node, first)
        elif node.op == _CAT and len(known) == len(names) and all(each.row == first.row for each in known):
            self._apply(node, first.row, is_zero=all(each.is_zero for each in known))
        else:
            self._computed(node)
        return None

    def _chunk(self, node: Call, rows: Rows) -> Rows:
        """Return the rows of a chunk: those of a piece, or of all pieces of an expert, by its place among all chunks."""
        name = inputs_of(node)[0]
        chunks = sorted(self.chunks[name])
        ends = [start + length for start, length in chunks]
        size = self.program.shape(name)[rows.row]
        if rows.row or [start for start, _ in chunks] != [0, *ends[:-1]] or ends[-1] != size:
            raise _NotRowsError
        groups: list[Pieces] = [(piece,) for piece in rows.pieces]
        if len(groups) != len(chunks):
            experts = list(dict.fromkeys(expert for expert, _ in rows.pieces))
            groups = [tuple(piece for piece in rows.pieces if piece[0] == expert) for expert in experts]
            if len(groups) != len(chunks) or tuple(piece for group in groups for piece in group) != rows.pieces:
                raise _NotRowsError
        group = groups[chunks.index((_number(node, 2), _number(node, 3)))]
        if len(group) < rows.ranks:
            return replace(rows, pieces=group)
        shape, count = self.program.shape(rows.value), rows.tokens.count
        apart = self.view(rows.value, (rows.experts, *rows.tokens.shape, *shape[1:]), node.mark)
        type = self.program.types[rows.value].of_shape((1, *rows.tokens.shape, *shape[1:]))
        value = self.emit(NARROW, (apart, 0, group[0][0], 1), type, node.mark)
        value = self.view(value, (count, *shape[1:]), node.mark)
        return replace(rows, value=value, pieces=tuple((0, rank) for _, rank in group), experts=1)

    def _joined(self, node: Call, known: Sequence[Rows]) -> Rows:
        """Return the rows of chunks together: all of one value in another order, or those of several experts."""
        first = known[0]
        if len({each.value for each in known}) == 1:
            joined = replace(first, pieces=tuple(piece for each in known for piece in each.pieces))
            if not joined.is_whole:
                raise _NotRowsError
            return joined
        if any(not each.is_whole or (each.tokens, each.row, each.ranks) != (first.tokens, 0, first.ranks) for each in known):
            raise _NotRowsError
        pieces: list[tuple[int, int]] = []
        experts = 0
        for each in known:
            pieces += [(expert + experts, rank) for expert, rank in each.pieces]
            experts += each.experts
        rest = self.program.shape(first.value)[1:]
        apart = [self.view(each.value, (each.experts, *first.tokens.shape, *rest), node.mark) for each in known]
        type = self.program.types[first.value].of_shape((experts, *first.tokens.shape, *rest))
        value = self.emit(_CAT, apart, type, node.mark, dim=0)
        value = self.view(value, (experts * first.tokens.count, *rest), node.mark)
        return Rows(value, tuple(pieces), experts, first.tokens, all(each.is_zero for each in known))

    def _viewed(self, node: Call, rows: Rows) -> None:
        name, made = inputs_of(node)[0], self.program.shape(node.outputs[0])
        if node.op == VIEW and not rows.row and self.program.shape(name) == made[::-1] and len(made) == 2 and made[1] == 1:
            turned = self.permute(rows.value, (1, 0), node.mark)  # which of one row is a view
            self.rows[node.outputs[0]] = replace(rows, value=turned, row=1)
            return
        if rows.row or not made or made[0] != self.program.shape(name)[0]:
            raise _NotRowsError
        shape = (self.program.shape(rows.value)[0], *made[1:])
        type = self.program.types[node.outputs[0]].of_shape(shape)
        if node.op == VIEW:
            value = self.view(rows.value, shape, node.mark)
        else:
            value = self.emit(EXPAND, (rows.value,), type, node.mark, size=shape)
        self.rows[node.outputs[0]] = replace(rows, value=value)

    def _computed(self, node: Call) -> None:
        """Compute on all rows, row by row, or with a sum over them that does not see the others."""
        bound = self._bound(node)
        name = self._row_name(node, bound)
        zeros = {
            place for place, each in enumerate(inputs_of(node)) if each in self.rows and self.rows[each].is_zero
        }  # positions among the operands that are tensors
        if all(name in names for names in bound.outputs) and name not in bound.whole:
            is_zero = any(positions <= zeros for positions in bound.linear)
            self._apply(node, bound.outputs[0].index(name), is_zero=is_zero)
            return
        summed = not any(name in names for names in bound.outputs) and name not in bound.whole | bound.averaged
        if not summed or not any(positions <= zeros for positions in bound.linear):
            raise _NotRowsError
        self.nodes.append(self._replaced(node, node.outputs))

    def _bound(self, node: Call) -> Bound:
        bound = self.bound_of(node)
        if bound is None:
            raise _NotRowsError
        return bound

    def _row_name(self, node: Call, bound: Bound) -> str:
        """Return the name of the rows' dimension, which no operand without rows may have."""
        name = row_name(node, bound, {value: self.rows[value].row for value in inputs_of(node) if value in self.rows})
        if not name:
            raise _NotRowsError
        return name

    def _replaced(self, node: Call, outputs: tuple[str, ...]) -> Call:
        held = {name: Ref(self.rows[name].value) for name in inputs_of(node) if name in self.rows}
        inputs = tuple(held.get(each.name, each) if isinstance(each, Ref) else each for each in node.inputs)
        return replace(node, inputs=inputs, outputs=outputs)

    def _apply(self, node: Call, row: int, *, is_zero: bool) -> None:
        """Apply the same operator to all rows."""
        first = next(self.rows[name] for name in inputs_of(node) if name in self.rows)
        count = first.experts * first.tokens.count
        made = []
        for name in node.outputs:
            type = self.program.types[name]
            made.append(self.program.fresh(type.of_shape((*type.shape[:row], count, *type.shape[row + 1 :]))))
            self.rows[name] = replace(first, value=made[-1], row=row, is_zero=is_zero)
        call = self._replaced(node, tuple(made))
        self.nodes.append(call)
        self.again[id(node)] = call

    def _gradient(self, node: GradientOf) -> None:
        """Compute the gradient of an operator that works row by row, of which only chosen rows have a gradient."""
        forward = self.again.get(id(node.forward))
        given = [self.rows.get(name) for name in node.inputs]
        if forward is None or any(rows is None or not rows.is_zero or not rows.is_whole for rows in given):
            raise _NotRowsError
        (rows,) = (rows for rows in given[:1] if rows is not None)
        outputs = []
        for name, operand in zip(node.outputs, inputs_of(node.forward), strict=False):
            held = self.rows.get(operand)
            if not name or held is None:
                outputs.append(name)
                continue
            shape = self.program.shape(held.value)
            outputs.append(self.program.fresh(self.program.types[name].of_shape(shape)))
            self.rows[name] = replace(held, value=outputs[-1], is_zero=True, pieces=rows.pieces)
        values = tuple(rows.value for rows in given if rows is not None)
        self.nodes.append(replace(node, forward=forward, inputs=values, outputs=tuple(outputs)))

    # ---- what ranks exchange ----

    def _exchanged(self, node: Exchange) -> bool:
        """Rewrite a collective of chosen rows, or of tokens from which rows are chosen; return whether it is one."""
        if not node.inputs or len(node.inputs) != 1 or len(node.outputs) != 1:
            return False
        (name,), (made,) = node.inputs, node.outputs
        if name in self.rows:
            rows = self.rows[name]
            (self._sent if node.kind == "all-to-all" else self._shared)(node, rows)
            return True
        shapes = self.program.shape(name), self.program.shape(made)
        if node.dim != 0 or not all(shapes) or node.kind not in ("all-gather", "reduce-scatter"):
            return False
        large = self.layouts.get(max(shape[0] for shape in shapes))
        small = self.layouts.get(min(shape[0] for shape in shapes))
        if large is None or small is None or large.ranks != len(node.group) or small.ranks != 1:
            return False
        gathers = node.kind == "all-gather"
        before = small if gathers else large
        value = name if gathers else self.in_order(name, 0, node.mark)
        part = "" if gathers else self._own_part(value, node)
        sent, last = node, None
        if part:
            value, last = part, len(before.shape)
            sent = replace(node, kind="all-to-all", reduce="")
        got = self.view(value, (*before.shape, *self.program.shape(value)[1:]), node.mark)
        for dim, group in self._stages(node.group, large.parts[0]):
            got = self._along(sent, got, group, dim, last)
        if gathers:
            self.as_gathered(self.view(got, shapes[1], node.mark), 0, node.mark, made)
        else:
            self.view(got, shapes[1], node.mark, made)
        return True

    def _stages(self, group: Sequence[int], first: int) -> list[tuple[int, tuple[int, ...]]]:
        """Return the ranks among which a collective of a group runs along one dimension, then along the other."""
        ranks = sorted(group)
        outer, inner = divmod(ranks.index(self.program.rank), first)
        stages = (0, tuple(ranks[outer * first : (outer + 1) * first])), (1, tuple(ranks[inner::first]))
        return [(dim, members) for dim, members in stages if len(members) > 1]

    def _along(self, node: Exchange, value: str, group: tuple[int, ...], dim: int, joined: int | None = None) -> str:
        """Add a collective that gathers a dimension, or that gives each rank its part, perhaps for the whole of another."""
        shape, ranks = list(self.program.shape(value)), len(group)
        gathers = node.kind == "all-gather"
        if (node.handle and group != tuple(sorted(node.group))) or (not gathers and shape[dim] % ranks):
            raise _NotRowsError
        shape[dim] = shape[dim] * ranks if gathers else shape[dim] // ranks
        if joined is not None:
            shape[joined] *= ranks
        got = self.program.fresh(self.program.types[value].of_shape(tuple(shape)))
        self.nodes.append(
            replace(node, inputs=(value,), outputs=(got,), group=group, dim=dim, joined=joined, splits=(), receive_splits=())
        )
        return got

    def _own_part(self, name: str, node: Exchange) -> str:
        """Return what a value is that each rank of a collective has in its own columns, with zeros in those of the others.

        A sum of such values puts them side by side.
        """
        call = next((call for call in reversed(self.nodes) if isinstance(call, Call) and name in call.outputs), None)
        if call is None or call.op != "torch.nn.functional.pad" or node.reduce != "sum" or call.attributes.get("value") != 0:
            return ""
        (part,) = inputs_of(call)
        width, place = self.program.shape(part)[-1], sorted(node.group).index(self.program.rank)
        around = (place * width, (len(node.group) - 1 - place) * width)
        return part if call.attributes.get("pad") == around else ""

    def _shared(self, node: Exchange, rows: Rows) -> None:
        """Gather the tokens of ranks that each hold a part of the same experts, or add up what these give for the tokens."""
        ranks, shape, parts = len(node.group), self.program.shape(rows.value), self._parts(node.group)
        if node.kind not in ("all-gather", "reduce-scatter") or node.dim != 0 or rows.row or not rows.is_whole or ranks < 2:
            raise _NotRowsError
        gathers = node.kind == "all-gather"
        of_rank = rows.ranks if gathers else rows.ranks // ranks
        pieces = rows.pieces if gathers else rows.pieces[: len(rows.pieces) // ranks]
        of_all = tuple((expert, member * of_rank + rank) for member in range(ranks) for expert, rank in pieces)
        wide = [length * part if gathers else length // part for length, part in zip(rows.tokens.shape, parts, strict=True)]
        if not gathers and of_all != rows.pieces:
            raise _NotRowsError
        value = self.view(rows.value, (rows.experts, *rows.tokens.shape, *shape[1:]), node.mark)
        for dim, group in self._stages(node.group, parts[0]):
            value = self._along(node, value, group, 1 + dim)
        value = self.view(value, (rows.experts * prod(wide), *shape[1:]), node.mark)
        tokens = replace(rows.tokens, shape=(wide[0], wide[1]))
        self.rows[node.outputs[0]] = Rows(value, of_all if gathers else pieces, rows.experts, tokens, rows.is_zero)

    def _sent(self, node: Exchange, rows: Rows) -> None:
        """Send the tokens of this rank to the ranks that hold their experts, or back."""
        ranks, shape = len(node.group), self.program.shape(rows.value)
        if rows.row or not rows.is_whole or ranks < 2:
            raise _NotRowsError
        (first, second), parts = rows.tokens.shape, self._parts(node.group)
        stages = self._stages(node.group, parts[0])
        value = self.view(rows.value, (rows.experts, first, second, *shape[1:]), node.mark)
        if rows.pieces == tuple((expert, 0) for expert in range(rows.experts)) and rows.experts % ranks == 0:
            experts, wide = rows.experts // ranks, (first * parts[0], second * parts[1])
            pieces = tuple((expert, rank) for rank in range(ranks) for expert in range(experts))
            for dim, group in stages[::-1]:
                value = self._along(node, value, group, 0, 1 + dim)
        elif rows.pieces == tuple((expert, rank) for rank in range(ranks) for expert in range(rows.experts)):
            experts, wide = rows.experts * ranks, (first // parts[0], second // parts[1])
            pieces = tuple((expert, 0) for expert in range(experts))
            for dim, group in stages:
                value = self._along(node, value, group, 1 + dim, 0)
        else:
            raise _NotRowsError
        value = self.view(value, (experts * prod(wide), *shape[1:]), node.mark)
        self.rows[node.outputs[0]] = Rows(value, pieces, experts, replace(rows.tokens, shape=wide), rows.is_zero)


def _number(node: Call, place: int) -> int:
    operand = node.inputs[place] if place < len(node.inputs) else None
    value = operand.value if isinstance(operand, Literal) else None
    return value if isinstance(value, int) else -1
