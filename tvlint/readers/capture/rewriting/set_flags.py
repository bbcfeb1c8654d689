"""Places where flags are set, and places of sorted choices, as places that flags choose.

`nonzero` gives the places of set flags of [tokens, slots] or [slots, tokens] in columns, the token in one of them; flags that
index a value take its rows at such places. A sort of the experts that each token has chosen in its slots, all of them other
ones, puts the slots of one expert after the other, as do flags of [experts, tokens]. Rows that are taken at these places, or
put back there, are those that `masked_select` gives by the flags. The order of places may be another one, which nothing sees:
what is left of them when all rows have taken their place is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.calls import (
    ADD,
    CHOOSE,
    EXPAND,
    MASKED,
    NARROW,
    NONZERO,
    PUT,
    REPLACE,
    SELECT,
    SORT,
    TAKE,
    VIEW,
    ZEROS,
)
from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifted, LiftedNode, inputs_of
from tvlint.readers.capture.lifting.program import Ref, Type
from tvlint.readers.capture.rewriting.writer import Writer
from tvlint.readers.capture.tapes.tape import Mark

_ADDED = "aten.index_add.default"


@dataclass(frozen=True, slots=True)
class _Set:
    """Set flags: `flags` of [slots, tokens] or [experts, tokens], and the places of their tokens.

    `picks` are ones of [tokens, slots, experts] where a slot has chosen an expert; empty where the flags are those of slots.
    """

    flags: str
    places: str
    picks: str = ""


def with_set_flags_selected(lifted: Lifted) -> Lifted:
    """Return the program with rows that flags choose in place of those at the places where flags are set."""
    if not any(isinstance(node, Call) and node.op in (NONZERO, MASKED, SORT) for node in lifted.nodes):
        return lifted
    rewriting = _Rewriting(lifted)
    for node in lifted.nodes:
        if not rewriting.take(node):
            rewriting.nodes.append(node)
    return replace(lifted, nodes=rewriting.nodes) if rewriting.is_used else lifted


class _Rewriting(Writer):
    """A program while it is rewritten.

    `found` are set flags by the name of their places; `columns` says of which found places a value is which column, and
    `tokens` in which the tokens are; `rows` by which number a column is multiplied, `flat` which column counts slowest in
    places among all flags; `masks` are flags that index values; `picked` what was taken at flat places.
    """

    def __init__(self, lifted: Lifted) -> None:
        super().__init__(lifted)
        self.found: dict[str, _Set] = {}
        self.columns: dict[str, tuple[str, int]] = {}
        self.tokens = _token_columns(lifted, self.makers)
        self.rows: dict[str, tuple[str, int, int]] = {}
        self.flat: dict[str, tuple[str, int]] = {}
        self.masks: dict[str, _Set] = {}
        self.picked: dict[int, tuple[str, int]] = {}
        self.is_used = False

    def take(self, node: LiftedNode) -> bool:
        """Rewrite a node that reads such places; return whether it is one."""
        if isinstance(node, GradientOf):
            return id(node.forward) in self.picked and self._gradient(node)
        if not isinstance(node, Call) or not node.outputs:
            return False
        taken = self._rewritten(node, inputs_of(node))
        self.is_used |= taken
        return taken

    def _rewritten(self, node: Call, names: tuple[str, ...]) -> bool:
        along = len(names) > 1 and node.attributes == {"dim": 0}
        if node.op == NONZERO:
            self._found(node, names[0])
        elif node.op == SORT:
            self._sorted(node, names[0])
        elif len(names) == 1:
            self._column(node, names[0])
        elif len(names) == 2 and node.op == "torch.add":
            self._sum(node.outputs[0], *names)
        elif along and names[1] in self.columns and node.op in (TAKE, CHOOSE, ADD, _ADDED):
            found, column = self.columns[names[1]]
            return column == self.tokens.get(found, 0) and self._of_tokens(node, self.found[found], names)
        elif along and names[1] in self.flat:
            return self._at_slots(node, names)
        elif node.op in (MASKED, REPLACE) and len(names) > 1 and set(node.attributes) <= {"accumulate"}:
            return self._indexed(node, names)
        return False

    # ---- places ----

    def _chosen(self, flags: str, length: int, mark: Mark, picks: str = "") -> _Set:
        """Return flags of [slots, tokens] with the places of tokens that they choose, of which there are `length`."""
        shape = self.program.shape(flags)
        every = self.emit("torch.arange", (shape[1],), Type(shape[1:], "int64"), mark, dtype="int64")
        every = self.emit(EXPAND, (self.view(every, (1, shape[1]), mark),), Type(shape, "int64"), mark, size=shape)
        return _Set(flags, self.emit(SELECT, (every, flags), Type((length,), "int64"), mark), picks)

    def _found(self, node: Call, name: str) -> None:
        """Choose by flags what is at the places where they are set."""
        shape, made, mark = self.program.shape(name), node.outputs[0], node.mark
        if len(shape) not in (1, 2) or not all(shape):
            return
        column = self.tokens.setdefault(made, len(shape) - 1)
        wide = (1, *shape) if len(shape) == 1 else shape if column else shape[::-1]
        flags = self._flags(name, mark)
        if len(shape) == 2 and not column:
            flags = self.emit("torch.permute", (flags,), Type(wide, "bool"), mark, dims=(1, 0))
        self.found[made] = self._chosen(self.view(flags, wide, mark), self.program.shape(made)[0], mark)

    def _flags(self, name: str, mark: Mark) -> str:
        type = self.program.types[name]
        return name if type.dtype == "bool" else self.emit("torch.ne", (name, 0), Type(type.shape, "bool"), mark)

    def _sorted(self, node: Call, keys: str) -> None:
        """Choose by flags what is at the places of sorted choices, of each token as many as it has slots."""
        view = self.makers.get(keys)
        chosen = inputs_of(view)[0] if isinstance(view, Call) and view.op == VIEW else keys
        top, shape, mark = self.makers.get(chosen), self.program.shape(chosen), node.mark
        one_row = len(self.program.shape(keys)) == 1 and len(node.outputs) == 2 and not node.attributes.get("descending")
        if not one_row or len(shape) != 2 or not isinstance(top, Call) or chosen != top.outputs[-1]:
            return
        if top.op != "torch.topk" or top.attributes.get("dim") not in (1, -1):
            return
        number, places = self.program.shape(inputs_of(top)[0])[1], node.outputs[1]
        wide = (*shape, number)
        hot = self.emit("torch.nn.functional.one_hot", (chosen, number), Type(wide, "int64"), mark)
        chosen_by = self.emit("torch.sum", (hot,), Type((shape[0], number), "int64"), mark, dim=(1,), keepdim=False)
        turned = self.emit("torch.permute", (chosen_by,), Type((number, shape[0]), "int64"), mark, dims=(1, 0))
        self.found[places] = self._chosen(self._flags(turned, mark), prod(shape), mark, hot)
        self.flat[places] = places, 0
        if shape[1] == 1:
            self.columns[places] = places, 0

    def _column(self, node: Call, name: str) -> None:
        """Keep a column of places, as it is viewed, multiplied and divided."""
        made, numbers = node.outputs[0], [each.value for each in node.inputs[1:] if isinstance(each, Literal)]
        number = numbers[0] if numbers and isinstance(numbers[0], int) else 0
        if node.op == NARROW and name in self.found and numbers[:1] == [1] and numbers[2:] == [1]:
            self.columns[made] = name, int(str(numbers[1]))
        elif node.op == VIEW and len(self.program.shape(made)) == 1 and (name in self.columns or self._is_column(name)):
            self.columns[made] = self.columns.get(name, (name, 0))
        elif node.op == "torch.mul" and name in self.columns and number:
            self.rows[made] = *self.columns[name], number
        elif node.op == "torch.floor_divide" and name in self.found and number == self._slots(name):
            self.columns[made] = name, 0

    def _is_column(self, name: str) -> bool:
        """Return whether found places have one column."""
        return name in self.found and self.program.shape(name)[1:] == (1,)

    def _slots(self, name: str) -> int:
        """Return how many slots the tokens have whose sorted choices are at places; none for others."""
        picks = self.found[name].picks
        return self.program.shape(picks)[1] if picks else 0

    def _sum(self, made: str, one: str, other: str) -> None:
        """Keep places among all flags."""
        if one not in self.rows or other not in self.columns:
            return
        found, slow, number = self.rows[one]
        if found not in self.tokens or self.columns[other] != (found, 1 - slow):
            return
        slots, tokens = self.program.shape(self.found[found].flags)
        if number == (tokens if self.columns[other][1] == self.tokens[found] else slots):
            self.flat[made] = found, slow

    # ---- what is at them ----

    def _of_tokens(self, node: Call, given: _Set, names: tuple[str, ...]) -> bool:
        """Take rows of tokens, or add to them, by flags."""
        shape, made = self.program.shape(names[0]), node.outputs[0]
        slots, tokens = self.program.shape(given.flags)
        if shape[0] != tokens:
            return False
        if node.op in (ADD, _ADDED):
            self._added(names[0], given, names[2], node)
        elif len(shape) == 1 and slots == 1:
            self.emit(
                SELECT, (self.view(names[0], (1, tokens), node.mark), given.flags), self.program.types[made], node.mark, made
            )
        else:
            self.emit(CHOOSE, (names[0], given.places), self.program.types[made], node.mark, made, dim=0)
        return True

    def _nothing(self, type: Type, mark: Mark) -> str:
        nothing = self.emit(ZEROS, (type.shape,), type, mark, dtype=type.dtype)
        self.makers[nothing] = self.nodes[-1]
        return nothing

    def _added(self, base: str, given: _Set, source: str, node: Call) -> None:
        """Add rows to those of tokens."""
        made, mark = node.outputs[0], node.mark
        type, wide = self.program.types[made], self.program.shape(given.flags)
        alone = self.is_nothing(base)
        total = made if alone else self.program.fresh(type)
        if len(type.shape) == 1:
            put = self.emit(PUT, (self._nothing(type.of_shape(wide), mark), given.flags, source), type.of_shape(wide), mark)
            self.emit("torch.sum", (put,), type, mark, total, dim=(0,), keepdim=False)
        else:
            nothing = base if alone else self._nothing(type, mark)
            self.emit(_ADDED, (nothing, given.places, source), type, mark, total, dim=0)
        if not alone:
            self.emit("torch.add", (base, total), type, mark, made)

    def _indexed(self, node: Call, names: tuple[str, ...]) -> bool:
        """Take rows where flags of one dimension are set, or put others there."""
        type, shape = self.program.types[names[1]], self.program.shape(names[0])
        rows = self.program.shape(names[2] if node.op == REPLACE else node.outputs[0])
        if type.dtype != "bool" or len(type.shape) != 1 or type.shape != shape[:1] or rows[1:] != shape[1:] or not rows:
            return False
        if names[1] not in self.masks:
            self.masks[names[1]] = self._chosen(self.view(names[1], (1, *type.shape), node.mark), rows[0], node.mark)
        given = self.masks[names[1]]
        if node.op == MASKED or node.attributes.get("accumulate"):
            moved = replace(node, op=TAKE if node.op == MASKED else _ADDED)
            return self._of_tokens(moved, given, names)
        flags = self.view(names[1], (shape[0], *(1 for _ in shape[1:])), node.mark)
        rest = self.emit("torch.masked_fill", (names[0], flags, 0), self.program.types[names[0]], node.mark)
        self._added(rest, given, names[2], node)
        return True

    def _at_slots(self, node: Call, names: tuple[str, ...]) -> bool:
        """Take numbers of tokens and slots by flags, or put them there."""
        found, slow = self.flat[names[1]]
        given, type, made = self.found[found], self.program.types[node.outputs[0]], node.outputs[0]
        length = prod(self.program.shape(given.picks)[:2] if given.picks else self.program.shape(given.flags))
        if prod(self.program.shape(names[0])) != length:
            return False
        if node.op == TAKE:
            chosen = self.emit(SELECT, (self._spread(names[0], given, found, slow, node.mark), given.flags),
                               type.of_shape(type.shape[:1]), node.mark)  # fmt: skip
            self.view(chosen, type.shape, node.mark, made)
            self.picked[id(node)] = found, slow
            return True
        if node.op != ADD or not self.is_nothing(names[0]):
            return False
        self._gathered(names[2], given, (found, slow), type, node.mark, made)
        return True

    def _spread(self, name: str, given: _Set, found: str, slow: int, mark: Mark) -> str:
        """Return numbers of tokens and slots as numbers of the flags."""
        type, (first, tokens) = self.program.types[name], self.program.shape(given.flags)
        if not given.picks:
            slowest = slow == self.tokens[found]
            value = self.view(name, (tokens, first) if slowest else (first, tokens), mark)
            return self._turned(value, mark) if slowest else value
        shape = self.program.shape(given.picks)
        hot = self.emit("torch.Tensor.to", (given.picks,), Type(shape, type.dtype), mark, dtype=type.dtype)
        value = self.emit("torch.mul", (hot, self.view(name, (*shape[:2], 1), mark)), type.of_shape(shape), mark)
        value = self.emit("torch.sum", (value,), type.of_shape((tokens, first)), mark, dim=(1,), keepdim=False)
        return self._turned(value, mark)

    def _gathered(self, source: str, given: _Set, place: tuple[str, int], type: Type, mark: Mark, made: str) -> None:
        """Put numbers that flags chose at the tokens and slots that they are of, among zeros."""
        wide = self.program.shape(given.flags)
        source = self.view(source, self.program.shape(source)[:1], mark)
        value = self.emit(PUT, (self._nothing(type.of_shape(wide), mark), given.flags, source), type.of_shape(wide), mark)
        if given.picks:
            shape = self.program.shape(given.picks)
            hot = self.emit("torch.Tensor.to", (given.picks,), Type(shape, type.dtype), mark, dtype=type.dtype)
            turned = self.view(self._turned(value, mark), (shape[0], 1, shape[2]), mark)
            value = self.emit("torch.mul", (hot, turned), type.of_shape(shape), mark)
            value = self.emit("torch.sum", (value,), type.of_shape(shape[:2]), mark, dim=(2,), keepdim=False)
        elif place[1] == self.tokens[place[0]]:
            value = self._turned(value, mark)
        self.view(value, type.shape, mark, made)

    def _turned(self, name: str, mark: Mark) -> str:
        type = self.program.types[name]
        return self.emit("torch.permute", (name,), type.of_shape(type.shape[::-1]), mark, dims=(1, 0))

    def _gradient(self, node: GradientOf) -> bool:
        """Put the gradient of numbers that were taken by flags at their places, among zeros."""
        found, slow = self.picked[id(node.forward)]
        if any(node.outputs[1:]) or not node.outputs[0]:
            return False
        made = node.outputs[0]
        self._gathered(node.inputs[0], self.found[found], (found, slow), self.program.types[made], node.mark, made)
        return True


def _token_columns(lifted: Lifted, makers: Mapping[str, LiftedNode]) -> dict[str, int]:
    """Return which column of found places rows are taken at."""
    known: dict[str, int] = {}
    for node in lifted.nodes:
        if isinstance(node, Call) and node.op in (TAKE, CHOOSE) and len(inputs_of(node)) == 2:
            known.update(_column_of(inputs_of(node)[1], makers))
    return known


def _column_of(name: str, makers: Mapping[str, LiftedNode]) -> Iterable[tuple[str, int]]:
    """Yield the found places of which a value is a column, and which."""
    view = makers.get(name)
    cut = makers.get(inputs_of(view)[0]) if isinstance(view, Call) and view.op == VIEW else None
    if isinstance(cut, Call) and cut.op == NARROW and isinstance(cut.inputs[0], Ref) and isinstance(cut.inputs[2], Literal):
        found = makers.get(cut.inputs[0].name)
        if isinstance(found, Call) and found.op == NONZERO and isinstance(cut.inputs[2].value, int):
            yield cut.inputs[0].name, cut.inputs[2].value
