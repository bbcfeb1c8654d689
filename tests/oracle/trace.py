"""Writes down what one device of a parallel model runs, with its backward, in the form in which nnScaler exports it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Group, Literal, Operand, Operator
from tvlint.ir.plan import Box, Role, Tensor


@dataclass(slots=True)
class Trace:
    """The forward operators of one pipeline stage on one of its ranks, and what their gradients need."""

    tensors: dict[str, Tensor]
    prefix: str
    ranks: tuple[int, ...]
    index: int
    forward: list[Operator] = field(default_factory=list)
    tape: list[tuple[Operator, str]] = field(default_factory=list)
    count: int = 0

    @property
    def tp(self) -> int:
        return len(self.ranks)

    def declare(self, shape: tuple[int, ...], differentiable: bool = True, dtype: str = "float32") -> str:
        """A new activation, and its gradient if it has one."""
        name = f"{self.prefix}.t{self.count}"
        self.count += 1
        gradient = f"g.{name}" if differentiable else ""
        self.tensors[name] = Tensor(name, shape, dtype, Role.ACTIVATION, gradient=gradient, requires_grad=differentiable)
        if gradient:
            self.tensors[gradient] = Tensor(gradient, shape, dtype, Role.GRADIENT, gradient_of=name)
        return name

    def weight(self, logical: str, whole: tuple[int, ...], dim: int | None = None, sizes: tuple[int, ...] = ()) -> str:
        """The rank's piece of a weight: all of it, or its share of `dim` (of `sizes` where the shares differ)."""
        region: Box = tuple((0, size) for size in whole)
        name = f"w.{logical}"
        if dim is not None and self.tp > 1:
            shares = sizes or (whole[dim] // self.tp,) * self.tp
            low = sum(shares[: self.index])
            region = (*region[:dim], (low, low + shares[self.index]), *region[dim + 1 :])
            name += f".{self.index}"
        shape = tuple(high - low for low, high in region)
        self.tensors[name] = Tensor(
            name, shape, "float32", Role.WEIGHT, logical, whole, region, gradient=f"g.{name}", requires_grad=True
        )
        self.tensors[f"g.{name}"] = Tensor(f"g.{name}", shape, "float32", Role.GRADIENT, gradient_of=name)
        return name

    def buffer(self, logical: str, shape: tuple[int, ...]) -> str:
        name = f"b.{logical}"
        region = tuple((0, size) for size in shape)
        self.tensors[name] = Tensor(name, shape, "float32", Role.BUFFER, logical, shape, region)
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def op(self, signature: str, inputs: tuple[Any, ...], *shapes: tuple[int, ...], **attributes: Any) -> str:
        """The first output of the operator; `inputs` that are no names are constants."""
        return self.ops(signature, inputs, *shapes, **attributes)[0]

    def ops(self, signature: str, inputs: tuple[Any, ...], *shapes: tuple[int, ...], **attributes: Any) -> tuple[str, ...]:
        operands: tuple[Operand, ...] = tuple(each if isinstance(each, str) else Literal(each) for each in inputs)
        differentiable = any(isinstance(o, str) and self.tensors[o].gradient for o in operands)
        differentiable = differentiable and not signature.endswith("create_mask")
        names = [self.declare(shape, differentiable) for shape in shapes]
        if signature.endswith("gate_fw"):
            self.tensors[names[1]] = replace(self.tensors[names[1]], gradient="", requires_grad=False)
        compute = Compute(signature, operands, tuple(names), attributes)
        self.forward.append(compute)
        if differentiable:
            self.tape.append((compute, ""))
        return tuple(names)

    def collective(
        self, kind: Collective | None, back: Collective | None, x: str, shape: tuple[int, ...], dim: int | None = None
    ) -> str:
        """`x` after collective `kind`; its gradient goes through `back` (None: unchanged)."""
        if self.tp == 1:
            return x
        y = self.declare(shape)
        self.forward.append(self._one(kind, x, y, dim))
        self.tape.append((self._one(back, f"g.{y}", f"g.{x}", dim), ""))
        return y

    def _one(self, kind: Collective | None, x: str, y: str, dim: int | None) -> Operator:
        if kind is None:
            return Compute("nnscaler.runtime.function.identity", (x,), (y,))
        return Communicate(kind, (x,), (y,), Group(ranks=self.ranks), "sum" if "reduce" in kind.value else "", dim)

    def summed(self, x: str) -> str:
        """A partial sum, completed; the gradient is the same on all ranks."""
        return self.collective(Collective.ALL_REDUCE, None, x, self.shape(x))

    def entered(self, x: str) -> str:
        """A replicated value whose uses are split, so that its gradient is to be summed."""
        return self.collective(None, Collective.ALL_REDUCE, x, self.shape(x))

    def cut(self, x: str, dim: int, back: Collective = Collective.ALL_GATHER) -> str:
        shape = self.shape(x)
        return self.collective(Collective.CHUNK, back, x, (*shape[:dim], shape[dim] // self.tp, *shape[dim + 1 :]), dim)

    def gathered(self, x: str, dim: int, back: Collective = Collective.CHUNK) -> str:
        shape = self.shape(x)
        return self.collective(Collective.ALL_GATHER, back, x, (*shape[:dim], shape[dim] * self.tp, *shape[dim + 1 :]), dim)

    def scattered(self, x: str, dim: int) -> str:
        shape = self.shape(x)
        left = (*shape[:dim], shape[dim] // self.tp, *shape[dim + 1 :])
        return self.collective(Collective.REDUCE_SCATTER, Collective.ALL_GATHER, x, left, dim)

    def exchanged(self, x: str, dim: int, concat: int) -> str:
        """All-to-all: the ranks' pieces of dimension `concat` for pieces of `dim`."""
        if self.tp == 1:
            return x
        shape = list(self.shape(x))
        shape[dim], shape[concat] = shape[dim] // self.tp, shape[concat] * self.tp
        y, group = self.declare(tuple(shape)), Group(ranks=self.ranks)
        self.forward.append(Communicate(Collective.ALL_TO_ALL, (x,), (y,), group, dim=dim, concat_dim=concat))
        back = Communicate(Collective.ALL_TO_ALL, (f"g.{y}",), (f"g.{x}",), group, dim=concat, concat_dim=dim)
        self.tape.append((back, ""))
        return y

    def copies(self, x: str, times: int) -> tuple[str, ...]:
        return self.ops("nnscaler.runtime.function.multiref", (x,), *[self.shape(x)] * times, times=times)

    def rename(self, old: str, new: str) -> None:
        """`old`, which the last operator made, is called `new`."""
        last = self.forward[-1]
        assert isinstance(last, Compute | Communicate)
        assert last.outputs == (old,)
        renamed = replace(last, outputs=(new,))
        self.forward[-1] = renamed
        entry = self.tape[-1][0]
        if isinstance(last, Compute):
            self.tape[-1] = (renamed, "")
        elif isinstance(entry, Compute | Communicate):
            self.tape[-1] = (replace(entry, inputs=(f"g.{new}",)), "")
        del self.tensors[old], self.tensors[f"g.{old}"]

    def backward(self) -> list[Operator]:
        """The operators of the backward segment."""
        found: list[Operator] = []
        for operator, _ in reversed(self.tape):
            if not isinstance(operator, Compute) or (operator.inputs[0] in self.tensors and self._is_gradient(operator)):
                found.append(operator)
                continue
            incoming = tuple(self.tensors[name].gradient for name in operator.outputs)
            outgoing = tuple(self._asked(operator, i) for i in operator.inputs if isinstance(i, str))
            found.append(Backward(operator, incoming, outgoing))
        return found

    def _is_gradient(self, operator: Compute) -> bool:
        return self.tensors[str(operator.inputs[0])].role is Role.GRADIENT

    def _asked(self, operator: Compute, name: str) -> str:
        tensor = self.tensors[name]
        opaque = operator.op.endswith("apply_mask") and name == operator.inputs[1]
        return "" if opaque else tensor.gradient
