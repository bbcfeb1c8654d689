"""Sums, means, and operators that need whole rows: softmax, normalisation, losses."""

from __future__ import annotations

from collections.abc import Callable

from tvlint.ops.spec import ONE, Bound, Call, OpSpec, UnsupportedError, stars


def _dims(call: Call, rank: int) -> tuple[int, ...]:
    dim = call.attributes.get("dim")
    if dim is None:
        return tuple(range(rank))
    listed = dim if isinstance(dim, tuple) else (dim,)
    found = []
    for entry in listed:
        if not isinstance(entry, int) or isinstance(entry, bool) or not -rank <= entry < rank:
            raise UnsupportedError(f"`{call.op}` over dim {dim} of a tensor of {rank} dimensions")
        found.append(entry % rank)
    return tuple(sorted(set(found)))


def _reduction(average: bool) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call.reject_unknown("dim", "keepdim", "dtype")
        shape = call.shape(0)
        names = stars(len(shape))
        dims = _dims(call, len(shape))
        keep = bool(call.attributes.get("keepdim", False))
        kept = tuple(ONE if i in dims else name for i, name in enumerate(names) if keep or i not in dims)
        if not kept and call.outputs and call.outputs[0] == (1,):
            kept = (ONE,)
        gone = frozenset(names[i] for i in dims)
        return Bound(
            (names,),
            (kept,),
            reduced=frozenset() if average else gone,
            averaged=gone if average else frozenset(),
            linear=(frozenset({0}),),
            attributes=(call.attributes.get("dtype"),),
        )

    return bind


def _rows(call: Call) -> Bound:
    call.reject_unknown("dim", "dtype", "_stacklevel")
    names = stars(len(call.shape(0)))
    if "dim" not in call.attributes:
        raise UnsupportedError(f"`{call.op}` without `dim`")
    dims = _dims(call, len(names))
    if len(dims) != 1:
        raise UnsupportedError(f"`{call.op}` over {len(dims)} dims")
    return Bound((names,), (names,), whole=frozenset(names[i] for i in dims), attributes=(call.attributes.get("dtype"),))


def _normalisation(operand_count: int, *attributes: str) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call.reject_unknown("normalized_shape", *attributes)
        if len(call.inputs) > operand_count:
            raise UnsupportedError(f"`{call.op}` of {len(call.inputs)} operands")
        names = stars(len(call.shape(0)))
        size = len(call.shape(1)) if len(call.inputs) > 1 else 1
        normalized = call.attributes.get("normalized_shape")
        if isinstance(normalized, tuple):
            size = len(normalized)
        tail = names[len(names) - size :]
        operands = (names, *(tail for _ in call.inputs[1:]))
        given = tuple(call.attributes.get(name) for name in attributes)
        return Bound(operands, (names,), whole=frozenset(tail), attributes=given)

    return bind


def _cross_entropy(call: Call) -> Bound:
    call.reject_unknown("weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
    logits, target = call.shape(0), call.shape(1)
    if len(logits) != 2 or len(target) != 1 or call.attributes.get("weight") is not None:
        raise UnsupportedError(f"`cross_entropy` of shapes {logits} and {target}")
    if call.attributes.get("reduction") not in ("sum", "none"):
        raise UnsupportedError("`cross_entropy` with a mean over tokens that are not ignored")
    given = tuple(call.attributes.get(name) for name in ("ignore_index", "label_smoothing", "reduction"))
    summed = call.attributes.get("reduction") == "sum"
    output: tuple[str, ...] = ((ONE,) if call.outputs and call.outputs[0] == (1,) else ()) if summed else ("t",)
    return Bound(
        (("t", "c"), ("t",)),
        (output,),
        reduced=frozenset({"t"}) if summed else frozenset(),
        whole=frozenset({"c"}),
        attributes=given,
        zero_gradient=frozenset({1}),
    )


def _both(name: str) -> tuple[str, ...]:
    return (f"torch.{name}", f"torch.Tensor.{name}", f"torch.nn.functional.{name}")


SPECS = (
    OpSpec("sum", _both("sum"), _reduction(average=False)),
    OpSpec("mean", _both("mean"), _reduction(average=True)),
    OpSpec("softmax", _both("softmax"), _rows),
    OpSpec("log-softmax", _both("log_softmax"), _rows),
    OpSpec("layer-norm", (*_both("layer_norm"), "nnscaler.runtime.function.layer_norm"), _normalisation(3, "eps")),
    OpSpec("rms-norm", _both("rms_norm"), _normalisation(2, "eps")),
    OpSpec("cross-entropy", _both("cross_entropy"), _cross_entropy),
)
