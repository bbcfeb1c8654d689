"""The names of recorded operators, and operators on lists of tensors as what they are of each."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.readers.capture.tapes.spelling import FOREACH, UNSCALE
from tvlint.readers.capture.tapes.tape import Argument, Operation


def base_of(op: str) -> str:
    """Return the function's name without module and overload."""
    return op.split(".")[1] if op.count(".") else op


def giving(op: str) -> str:
    """Return the operator of `aten` that gives as a result what `op` writes."""
    module, base, *overload = op.split(".")
    named = [name for name in overload if name not in ("out", "default") and not name.endswith("_out")] or ["default"]
    return ".".join((module, base.rstrip("_") if not base.startswith("_") else base.removesuffix("_"), *named))


def one_by_one(event: Operation) -> Iterator[Operation]:
    """Yield the operators that an operator on lists of tensors is; the operator itself where it is none."""
    base = base_of(event.op)
    lists = {
        name: argument
        for name, argument in event.arguments.items()
        if isinstance(argument, tuple) and len(argument) == _length(event)
    }
    if base == UNSCALE and len(event.writes or ()) == _length(event) + 1:
        yield from _unscaled(event)
        return
    if not base.startswith(FOREACH) or not lists:
        yield event
        return
    op = event.op.replace(FOREACH, "", 1)
    for at in range(_length(event)):
        arguments = {**event.arguments, **{name: value[at] for name, value in lists.items()}}
        outputs = event.outputs[at : at + 1] if event.outputs else ()
        writes = event.writes[at : at + 1] if event.writes else ()
        yield Operation(op, arguments, outputs or writes, writes, None, event.mark)


def _unscaled(event: Operation) -> Iterator[Operation]:
    """Yield the search for infinite numbers in gradients, and the multiplication of each by the inverse of the loss scale."""
    gradients, found = event.argument("self"), event.writes[-1:]
    yield Operation(f"{event.op} (its search)", event.arguments, found, found, None, event.mark)
    for gradient, written in zip(gradients if isinstance(gradients, tuple) else (), event.writes, strict=False):
        arguments: dict[str, Argument] = {"self": gradient, "other": event.argument("inv_scale")}
        yield Operation("aten.mul.Tensor", arguments, (written,), (written,), None, event.mark)


def _length(event: Operation) -> int:
    listed = event.arguments.get("self")
    return len(listed) if isinstance(listed, tuple) else -1
