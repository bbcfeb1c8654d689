"""Rows in the order of sorted indices, as rows in their own order.

A mixture of experts sorts the pairs of a token and an expert by the expert, computes row by row, and puts the rows back in
their order or adds them up by token. The places that a sort gives are a permutation p, and for each operator f that works row
by row

    f(x[p]) = f(x)[p],   y[p][q] = y where q[p] = 0, 1, ...,   zeros[i // k] += y[p] at i = p is the sum of y over k neighbours,

and a sum over rows does not see their order. Where a row is multiplied with the matrix of its range of sorted indices, whose
ends are running sums of how often each index is there, it is multiplied with the matrix at its index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.calls import ADD, COUNT, EXPAND, GROUPED, REPLACE, RUNNING, SORT, TAKE, VIEW, ZEROS
from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifted, inputs_of
from tvlint.readers.capture.lifting.program import Ref, Type
from tvlint.readers.capture.rewriting.writer import Writer, row_name

_CAST, _QUOTIENT = "torch.Tensor.to", "torch.floor_divide"


@dataclass(frozen=True, slots=True)
class _Rows:
    """A value with its rows in sorted order: `value` has them in their own, along dimension `row`; `places` are of the sort."""

    places: str
    value: str
    row: int = 0


def with_rows_in_order(lifted: Lifted) -> Lifted:
    """Return the program with rows in their own order wherever it restores that of rows that it sorted, or sums over them."""
    if not any(isinstance(node, Call) and node.op == SORT for node in lifted.nodes):
        return lifted
    rewriting = _Rewriting(lifted)
    for node in lifted.nodes:
        rewriting.take(node)
    return replace(lifted, nodes=rewriting.nodes) if rewriting.restored else lifted


class _Rewriting(Writer):
    """A program while rows are put in order.

    `keys` are what was sorted, by the places that the sort gave; `pairs` say of which sort a value holds places, divided by
    which number; `inverse` holds of which sort a value undoes the places; `counts` and `ends` how many ranges a sort has, the
    smallest index first; `descending` are the places of sorts that put it last.
    """

    def __init__(self, lifted: Lifted) -> None:
        super().__init__(lifted)
        self.keys: dict[str, str] = {}
        self.pairs: dict[str, tuple[str, int]] = {}
        self.inverse: dict[str, str] = {}
        self.rows: dict[str, _Rows] = {}
        self.counts: dict[str, tuple[str, int]] = {}
        self.ends: dict[str, tuple[str, int]] = {}
        self.descending: set[str] = set()
        self.again: dict[int, Call] = {}
        self.restored = False

    def take(self, node: object) -> None:
        """Keep a node, and compute what it gives for rows in their own order."""
        if isinstance(node, Call) and node.outputs:
            if self._restores(node):
                self.restored = True
                return
            self.nodes.append(node)
            self._read(node)
        elif not (isinstance(node, GradientOf) and self._gradient(node)):
            self.nodes.append(node)  # type: ignore[arg-type]

    # ---- what is in sorted order ----

    def _read(self, node: Call) -> None:
        names, made = inputs_of(node), node.outputs[0]
        if node.op == SORT:
            self._sorted(node, names[0])
        elif node.op == _QUOTIENT and names[0] in self.keys:
            self._divided(node, names[0])
        elif node.op == REPLACE and len(names) == 3 and names[1] in self.keys and not node.attributes:
            self._undone(made, *names)
        elif node.op == TAKE and names[1] in self.pairs and node.attributes.get("dim") == 0:
            self._taken(node, names[0], *self.pairs[names[1]])
        elif node.op == ADD and names[1] in self.inverse and node.attributes.get("dim") == 0:
            if self.is_nothing(names[0]) and names[2] not in self.rows:
                self.rows[made] = _Rows(self.inverse[names[1]], names[2])
        elif node.op in COUNT and len(names) == 1 and (places := self._places_of(names[0])):
            self._counted(node, places)
        elif node.op in RUNNING and node.attributes.get("dim") in (0, -1) and names[0] in self.counts:
            self.ends[made] = self.counts[names[0]]
        elif node.op == _CAST and (names[0] in self.ends or names[0] in self.counts):
            known = self.ends if names[0] in self.ends else self.counts
            known[made] = known[names[0]]
        elif node.op == GROUPED:
            self._multiplied(node)
        elif any(name in self.rows for name in names):
            self._computed(node)

    def _sorted(self, node: Call, keys: str) -> None:
        if len(self.program.shape(keys)) != 1 or len(node.outputs) != 2:
            return
        values, places = node.outputs
        self.keys[places] = keys
        self.pairs[places] = places, 1
        self.rows[values] = _Rows(places, keys)
        if node.attributes.get("descending"):
            self.descending.add(places)
        elif keys in self.keys:
            self.inverse[places] = keys

    def _divided(self, node: Call, places: str) -> None:
        number = node.inputs[1].value if isinstance(node.inputs[1], Literal) else None
        if isinstance(number, int) and number > 0 and self.program.shape(places)[0] % number == 0:
            self.pairs[node.outputs[0]] = places, number

    def _undone(self, made: str, base: str, places: str, counted: str) -> None:
        """Keep that numbers 0, 1, ... at each place of a permutation are the other permutation."""
        maker, shape = self.makers.get(counted), self.program.shape(places)
        counts = isinstance(maker, Call) and maker.op == "torch.arange" and maker.inputs == (Literal(shape[0]),)
        if counts and self.program.shape(base) == shape:
            self.inverse[made] = places

    def _taken(self, node: Call, name: str, places: str, times: int) -> None:
        """Let rows at sorted places be the rows themselves, each as often as it is taken."""
        shape, number = self.program.shape(name), self.program.shape(places)[0]
        if shape[0] * times != number:
            return
        type, wide = self.program.types[name], (shape[0], times, *shape[1:])
        if times > 1:
            apart = self.view(name, (shape[0], 1, *shape[1:]), node.mark)
            name = self.emit(EXPAND, (apart,), type.of_shape(wide), node.mark, size=wide)
            name = self.view(name, (number, *shape[1:]), node.mark)
        self.rows[node.outputs[0]] = _Rows(places, name)

    def _places_of(self, name: str) -> str:
        """Return the places of the sort whose sorted indices a value holds, perhaps as another type; empty for others."""
        maker = self.makers.get(name)
        while isinstance(maker, Call) and maker.op == _CAST and self.program.types[maker.outputs[0]].dtype != "bool":
            name = inputs_of(maker)[0]
            maker = self.makers.get(name)
        rows = self.rows.get(name)
        return rows.places if rows is not None and rows.value == self.keys.get(rows.places) else ""

    def _counted(self, node: Call, places: str) -> None:
        (number,) = self.program.shape(node.outputs[0])
        expected = {"bins": number, "min": 0, "max": number - 1}
        if places not in self.descending and (node.op != COUNT[0] or dict(node.attributes) == expected):
            self.counts[node.outputs[0]] = places, number

    def _multiplied(self, node: Call) -> None:
        """Multiply each row with the matrix at its index."""
        names, mark = inputs_of(node), node.mark
        rows, ends = self.rows.get(names[0]), self.ends.get(names[-1])
        shape = self.program.shape(names[1]) if len(names) == 3 else ()
        if rows is None or rows.row or len(shape) != 3 or names[1] in self.rows or ends != (rows.places, shape[0]):
            return
        number, type = self.program.shape(names[0])[0], self.program.types[names[1]]
        matrices = self.emit(TAKE, (names[1], self.keys[rows.places]), type.of_shape((number, *shape[1:])), mark, dim=0)
        one = self.view(rows.value, (number, 1, shape[1]), mark)
        product = self.emit("torch.bmm", (one, matrices), type.of_shape((number, 1, shape[2])), mark)
        self.rows[node.outputs[0]] = _Rows(rows.places, self.view(product, (number, shape[2]), mark))

    def _computed(self, node: Call) -> None:
        """Compute what works row by row on rows in their own order as well."""
        row = self._row_of_results(node)
        if row is None:
            return
        made = tuple(self.program.fresh(self.program.types[name]) for name in node.outputs)
        call = self._in_order(node, made)
        self.nodes.append(call)
        self.again[id(node)] = call
        places = self._places(node)
        self.rows.update({name: _Rows(places, new, row) for name, new in zip(node.outputs, made, strict=True)})

    # ---- what no longer is ----

    def _restores(self, node: Call) -> bool:
        """Compute a result that does not depend on the order of rows from those in their own; return whether it is one."""
        names, made, mark = inputs_of(node), node.outputs[0], node.mark
        rows = self.rows.get(names[-1]) if names else None
        along = node.attributes.get("dim") == 0 and len(names) > 1
        if node.op == TAKE and along and names[1] in self.inverse:
            rows = self.rows.get(names[0])
            if rows is None or rows.row or rows.places != self.inverse[names[1]]:
                return False
            self.view(rows.value, self.program.shape(rows.value), mark, made)
            return True
        if node.op == ADD and along and names[1] in self.pairs:
            places, times = self.pairs[names[1]]
            return rows is not None and (rows.places, rows.row) == (places, 0) and self._added(node, rows.value, times)
        if node.op == GROUPED:
            return self._added_by_index(node)
        if rows is None and not any(name in self.rows for name in names):
            return False
        return self._summed(node)

    def _added(self, node: Call, value: str, times: int) -> bool:
        """Add up what the pairs of each token give."""
        shape, mark, type = self.program.shape(value), node.mark, self.program.types[node.outputs[0]]
        base = inputs_of(node)[0]
        if type.shape != (shape[0] // times, *shape[1:]):
            return False
        total = self.view(value, (shape[0] // times, times, *shape[1:]), mark)
        made = node.outputs[0] if self.is_nothing(base) else self.program.fresh(type)
        self.emit("torch.sum", (total,), type, mark, made, dim=(1,), keepdim=False)
        if made != node.outputs[0]:
            self.emit("torch.add", (base, made), type, mark, node.outputs[0])
        return True

    def _added_by_index(self, node: Call) -> bool:
        """Add the product of each row with another to the matrix at its index."""
        names, mark = inputs_of(node), node.mark
        one, other = (self.rows.get(name) for name in names[:2])
        if one is None or other is None or (one.row, other.row, one.places) != (1, 0, other.places) or len(names) != 3:
            return False
        type = self.program.types[node.outputs[0]]
        if self.ends.get(names[2]) != (one.places, type.shape[0]):
            return False
        (width, number), length = self.program.shape(one.value), self.program.shape(other.value)[1]
        turned = self.emit("torch.permute", (one.value,), type.of_shape((number, width)), mark, dims=(1, 0))
        products = self.emit(
            "torch.mul",
            (self.view(turned, (number, width, 1), mark), self.view(other.value, (number, 1, length), mark)),
            type.of_shape((number, width, length)),
            mark,
        )
        nothing = self.emit(ZEROS, (type.shape,), Type(type.shape, type.dtype), mark, dtype=type.dtype)
        self.emit(ADD, (nothing, self.keys[one.places], products), type, mark, node.outputs[0], dim=0)
        return True

    def _summed(self, node: Call) -> bool:
        """Compute a sum over rows."""
        bound = None if node.op in (VIEW, EXPAND) else self.bound_of(node)
        name = "" if bound is None or not self._places(node) else row_name(node, bound, self._dims(node))
        if bound is None or not name or any(name in dims for dims in bound.outputs) or name in bound.whole:
            return False
        given = {place for place, each in enumerate(inputs_of(node)) if each in self.rows}
        if not any(positions <= given for positions in bound.linear):
            return False
        self.nodes.append(self._in_order(node, node.outputs))
        return True

    def _gradient(self, node: GradientOf) -> bool:
        """Compute the gradients of an operator that works row by row, for rows in their own order."""
        forward, given = self.again.get(id(node.forward)), [self.rows.get(name) for name in node.inputs]
        if forward is None or len({rows and rows.places for rows in given}) != 1 or given[0] is None:
            return False
        if any(rows is None or rows.row != self.rows[name].row for rows, name in zip(given, node.forward.outputs, strict=True)):
            return False
        outputs = []
        for name, operand in zip(node.outputs, inputs_of(node.forward), strict=False):
            held = self.rows.get(operand)
            if not name or held is None:
                outputs.append(name)
                continue
            outputs.append(self.program.fresh(self.program.types[name]))
            self.rows[name] = replace(held, value=outputs[-1])
        values = tuple(rows.value for rows in given if rows is not None)
        self.nodes.append(replace(node, forward=forward, inputs=values, outputs=tuple(outputs)))
        if all(name not in self.rows for name in node.outputs if name):
            return True
        kept = tuple(name if name in self.rows else "" for name in node.outputs)
        self.nodes.append(replace(node, outputs=kept))
        return True

    # ---- dimensions ----

    def _dims(self, node: Call) -> Mapping[str, int]:
        return {name: self.rows[name].row for name in inputs_of(node) if name in self.rows}

    def _places(self, node: Call) -> str:
        """Return the places of the one sort in whose order the rows of a call are; empty where there are several."""
        found = {self.rows[name].places for name in inputs_of(node) if name in self.rows}
        return found.pop() if len(found) == 1 else ""

    def _row_of_results(self, node: Call) -> int | None:
        """Return the dimension that is that of the rows in the results of a call, if it works row by row."""
        dims = self._dims(node)
        if not self._places(node):
            return None
        if node.op in (VIEW, EXPAND):
            shape, (row,) = self.program.shape(node.outputs[0]), dims.values()
            same = row == 0 and shape[:1] == self.program.shape(inputs_of(node)[0])[:1]
            return 0 if same else None
        bound = self.bound_of(node)
        name = "" if bound is None else row_name(node, bound, dims)
        if bound is None or not name or name in bound.whole or len(bound.outputs) != len(node.outputs):
            return None
        places = {names.index(name) if name in names else None for names in bound.outputs}
        return places.pop() if len(places) == 1 else None

    def _in_order(self, node: Call, outputs: tuple[str, ...]) -> Call:
        held = {name: Ref(self.rows[name].value) for name in inputs_of(node) if name in self.rows}
        inputs = tuple(held.get(each.name, each) if isinstance(each, Ref) else each for each in node.inputs)
        return replace(node, inputs=inputs, outputs=outputs)
