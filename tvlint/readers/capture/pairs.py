"""Complex numbers as pairs of real ones, in a last dimension of two.

What views a complex tensor as a real one, or the other way round, is then no operator. Sums and products of complex numbers
are those of their parts; an operator that is not listed here is not followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvlint.readers.capture.lifting.program import Apply, Argument, Program, Ref, Type
from tvlint.readers.capture.tapes.tape import Mark

_PART_BY_PART = ("add", "sub")


class Pairs:
    """The operators on pairs of one program."""

    def __init__(self, program: Program, mark: Mark) -> None:
        self.program, self.mark = program, mark

    def of(self, base: str, arguments: Mapping[str, Argument], are_pairs: Sequence[bool], shape: tuple[int, ...]) -> str | None:
        """Return what an operator gives of operands that are pairs or real ones; None where it is not followed."""
        if base == "gather":
            return self._gathered(arguments, shape) if are_pairs == [True] else None
        operands = [arguments.get(name) for name in ("self", "other") if name in arguments]
        if len(arguments) != len(operands) or len(operands) != len(are_pairs):
            return None
        names = [operand.name for operand in operands if isinstance(operand, Ref)]
        if len(names) < len(operands):
            return None
        made = None
        if base == "conj_physical" and are_pairs == [True]:
            made = self._joined(self._part(names[0], 0), self._applied("neg.default", self._part(names[0], 1)))
        elif base == "mul" and are_pairs == [True, True]:
            made = self._product(*names)
        elif base == "mul" and len(names) == 2:
            pair, real = names if are_pairs[0] else reversed(names)
            made = self._applied("mul.Tensor", pair, self._viewed(real, (*self.program.shape(real), 1)))
        elif base in _PART_BY_PART and are_pairs == [True, True]:
            made = self._applied(f"{base}.Tensor", *names)
        return made if made is not None and self.program.shape(made) == shape else None

    def _product(self, one: str, other: str) -> str:
        (a, b), (c, d) = ((self._part(name, 0), self._part(name, 1)) for name in (one, other))
        both = [self._applied("mul.Tensor", *factors) for factors in ((a, c), (b, d), (a, d), (b, c))]
        return self._joined(self._applied("sub.Tensor", *both[:2]), self._applied("add.Tensor", *both[2:]))

    def _gathered(self, arguments: Mapping[str, Argument], shape: tuple[int, ...]) -> str | None:
        """Return both numbers of each pair that indices choose."""
        pairs, dim, index = (arguments.get(name) for name in ("self", "dim", "index"))
        if len(arguments) != 3 or not (isinstance(pairs, Ref) and isinstance(index, Ref) and isinstance(dim, int)):
            return None
        single = self._viewed(index.name, (*self.program.shape(index.name), 1))
        both = self._made("expand", {"self": Ref(single), "size": shape}, shape, single)
        where: dict[str, Argument] = {"self": pairs, "dim": dim % (len(shape) - 1), "index": Ref(both)}
        return self._made("aten.gather.default", where, shape, pairs.name)

    def _part(self, pair: str, place: int) -> str:
        shape = self.program.shape(pair)
        where: dict[str, Argument] = {"self": Ref(pair), "dim": len(shape) - 1, "start": place, "length": 1}
        return self._made("narrow", where, (*shape[:-1], 1), pair)

    def _joined(self, real: str, imaginary: str) -> str:
        shape = self.program.shape(real)
        parts: dict[str, Argument] = {"tensors": (Ref(real), Ref(imaginary)), "dim": len(shape) - 1}
        return self._made("cat", parts, (*shape[:-1], 2), real)

    def _viewed(self, value: str, shape: tuple[int, ...]) -> str:
        return self._made("view", {"self": Ref(value), "size": shape}, shape, value)

    def _applied(self, op: str, *names: str) -> str:
        given: dict[str, Argument] = {key: Ref(name) for key, name in zip(("self", "other"), names, strict=False)}
        return self._made(f"aten.{op}", given, _broadcast([self.program.shape(name) for name in names]), names[0])

    def _made(self, op: str, arguments: Mapping[str, Argument], shape: tuple[int, ...], like: str) -> str:
        name = self.program.fresh(Type(shape, self.program.types[like].dtype))
        self.program.nodes.append(Apply(op, arguments, (name,), self.mark))
        return name


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of what works element by element on tensors of these shapes."""
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*aligned, strict=True))
