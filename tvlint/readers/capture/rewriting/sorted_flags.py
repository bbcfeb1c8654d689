"""Places of flags that a stable sort puts in front, as places that the flags choose.

Megatron finds the tokens of each expert by sorting the flags of all experts and tokens, the set ones first, and keeping as many
places as are set. Those are the places that `masked_select` gives by the flags, in its order. That as many are kept is what the
recorded step shows; the replay holds the result to its numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.calls import ADD, NARROW, PUT, REMAINDER, SELECT, SORT, TAKE, VIEW, ZEROS
from tvlint.readers.capture.lifting.lift import Call, Lifted, inputs_of
from tvlint.readers.capture.lifting.program import Ref
from tvlint.readers.capture.rewriting.writer import Writer
from tvlint.readers.capture.tapes.tape import Mark

_FIRST_SET = {"dim": 0, "descending": True, "stable": True}


def with_flags_selected(lifted: Lifted) -> Lifted:
    """Return the program with rows that flags choose in place of those at the first places of sorted flags."""
    rewriting = _Rewriting(lifted)
    for node in lifted.nodes:
        if not (isinstance(node, Call) and rewriting.take(node)):
            rewriting.nodes.append(node)
    return replace(lifted, nodes=rewriting.nodes) if rewriting.places else lifted


class _Rewriting(Writer):
    """A program while it is rewritten; `places` are first places of sorted flags, with flags of two dimensions."""

    def __init__(self, lifted: Lifted) -> None:
        super().__init__(lifted)
        self.places: dict[str, str] = {}

    def take(self, node: Call) -> bool:
        """Rewrite a call; return whether it is one that reads such places."""
        names, made = inputs_of(node), node.outputs[0]
        if node.op == NARROW and (flags := self._sorted_flags(node)):
            self.places[made] = flags
        if len(names) == 1 and names[0] in self.places and node.op == REMAINDER:
            return self._rest(node, self.places[names[0]])
        if len(names) == 2 and names[1] in self.places and node.op == TAKE and node.attributes == {"dim": 0}:
            shape = self.program.shape(self.places[names[1]])
            if self.program.shape(names[0]) != (prod(shape),):
                return False
            wide = self.emit(VIEW, (names[0], shape), self.program.types[names[0]].of_shape(shape), node.mark)
            self._add(SELECT, (wide, self.places[names[1]]), made, node.mark)
            return True
        if len(names) == 3 and names[1] in self.places and node.op == ADD and node.attributes == {"dim": 0}:
            return self._put(node, *names)
        return False

    def _sorted_flags(self, node: Call) -> str:
        """Return the flags of two dimensions of which a range holds the first places; empty where it is none of those."""
        sort = self.makers.get(inputs_of(node)[0])
        if node.inputs[1:3] != (Literal(0), Literal(0)) or not isinstance(sort, Call):
            return ""
        if sort.op != SORT or dict(sort.attributes) != _FIRST_SET:
            return ""
        flat = self.makers.get(inputs_of(sort)[0])
        if sort.outputs[1:] != inputs_of(node) or not isinstance(flat, Call) or flat.op != VIEW:
            return ""
        (flags,) = inputs_of(flat)
        type = self.program.types[flags]
        return flags if type.dtype == "bool" and len(type.shape) == 2 else ""

    def _rest(self, node: Call, flags: str) -> bool:
        """Let places among all tokens be those among the tokens of each expert."""
        shape, made = self.program.shape(flags), node.outputs[0]
        if node.inputs[1:] != (Literal(shape[1]),):
            return False
        type = self.program.types[made]
        count = self.emit("torch.arange", (shape[1],), type.of_shape(shape[1:]), node.mark, dtype=type.dtype)
        row = self.emit(VIEW, (count, (1, shape[1])), type.of_shape((1, shape[1])), node.mark)
        every = self.emit("torch.Tensor.expand", (row,), type.of_shape(shape), node.mark, size=shape)
        self._add(SELECT, (every, flags), made, node.mark)
        return True

    def _put(self, node: Call, base: str, places: str, source: str) -> bool:
        """Let what is added to zeros at the places be put there, each of which is one place only."""
        made, flags = node.outputs[0], self.places[places]
        shape, type = self.program.shape(flags), self.program.types[node.outputs[0]]
        if not self.is_nothing(base) or type.shape != (prod(shape),):
            return False
        nothing = self.emit(ZEROS, (shape,), type.of_shape(shape), node.mark, dtype=type.dtype)
        self.makers[nothing] = self.nodes[-1]
        wide = self.program.fresh(type.of_shape(shape))
        self._add(PUT, (nothing, flags, source), wide, node.mark)
        self.nodes.append(Call(VIEW, (Ref(wide), Literal(type.shape)), {}, (made,), node.mark))
        return True

    def _add(self, op: str, names: Iterable[str], made: str, mark: Mark) -> None:
        self.nodes.append(Call(op, tuple(map(Ref, names)), {}, (made,), mark))
