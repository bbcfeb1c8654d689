"""Biases of which each rank of a sum adds a share."""

from __future__ import annotations

import pytest

from tvlint.readers.capture.equations.table import EQUATIONS
from tvlint.readers.capture.lifting import Call, Lifted, lift, outputs_of
from tvlint.readers.capture.program import Apply, End, Exchange, GivenValue, Node, Program, Ref, Type
from tvlint.readers.capture.shared_bias import with_whole_biases
from tvlint.readers.capture.tape import Mark, Named

MARK = Mark(micro_batch=0)


def program(handle: str, wait: int, dim: int = 0) -> Lifted:
    """Return a sum over two ranks of `x + bias / 2`, negated; the wait stands before the node with that number."""
    own = Program(0)
    own.types.update({name: Type((4, 6), "float32") for name in ("x", "added", "summed", "read", "again")})
    own.types.update({name: Type((6,), "float32") for name in ("bias", "share")})
    own.given.update(x=GivenValue(None, None), bias=GivenValue(Named("bias", "weight", 0, True), None))
    nodes: list[Node] = [
        Apply("aten.div.Tensor", {"self": Ref("bias"), "other": 2}, ("share",), MARK),
        Apply("aten.add.Tensor", {"self": Ref("x"), "other": Ref("share")}, ("added",), MARK),
        Exchange("reduce-scatter", ("added",), ("summed",), (0, 1), MARK, "sum", dim, handle=handle),
        Apply("aten.neg.default", {"self": Ref("summed")}, ("read",), MARK),
        Apply("aten.neg.default", {"self": Ref("read")}, ("again",), MARK),
    ]
    if wait:
        nodes.insert(wait, End(handle, MARK))
    own.nodes.extend(nodes)
    return lift(own, EQUATIONS)


@pytest.mark.parametrize(("handle", "wait"), [("", 0), ("h", 3)], ids=["at once", "waited for"])
def test_a_bias_in_shares_is_added_once_behind_the_sum(handle: str, wait: int) -> None:
    nodes = with_whole_biases(program(handle, wait)).nodes
    adds = [node for node in nodes if isinstance(node, Call) and node.op == "torch.add"]
    assert adds[-1].inputs[1] == Ref("bias")
    assert adds[-1].outputs == ("summed",)
    exchange = next(place for place, node in enumerate(nodes) if isinstance(node, Exchange))
    ends = [place for place, node in enumerate(nodes) if isinstance(node, End)]
    assert nodes.index(adds[-1]) > max([exchange, *ends])
    made = [name for node in nodes for name in outputs_of(node)]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize(("handle", "wait", "dim"), [("h", 0, 0), ("h", 4, 0), ("h", 5, 0), ("", 0, 1)])
def test_shares_stay_where_the_sum_is_read_too_early_or_cuts_the_bias(handle: str, wait: int, dim: int) -> None:
    lifted = program(handle, wait, dim)
    assert with_whole_biases(lifted).nodes == lifted.nodes
