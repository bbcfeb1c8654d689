"""Flags that a program sorts for itself, and not to choose the tokens of experts, stay sorted."""

from __future__ import annotations

import numpy as np
import pytest

from tvlint.readers.capture.lifting.lift import Call
from tvlint.readers.capture.lifting.program import Apply, GivenValue, Program, Ref, RootValue, Type
from tvlint.readers.capture.rank import in_operators, prepare
from tvlint.readers.capture.tapes.tape import Mark, Tape


@pytest.mark.parametrize("shape", [(12,), (24,), (12, 3)], ids=["of the flags", "longer", "rows"])
def test_what_flags_choose_of_no_experts_is_taken_at_places_of_sorted_flags(shape: tuple[int, ...]) -> None:
    program, mark = Program(0), Mark(micro_batch=0)
    given, values = program.fresh(Type((3, 4), "float32")), program.fresh(Type(shape, "float32"))
    program.given |= {given: GivenValue(None, np.zeros((3, 4))), values: GivenValue(None, np.zeros(shape))}
    flags, flat, ordered = (program.fresh(Type(size, "bool")) for size in ((3, 4), (12,), (12,)))
    every, places = (program.fresh(Type((size,), "int64")) for size in (12, 5))
    chosen, total = program.fresh(Type((5, *shape[1:]), "float32")), program.fresh(Type((), "float32"))
    program.nodes += [
        Apply("aten.gt.Scalar", {"self": Ref(given), "other": 0}, (flags,), mark),
        Apply("view", {"self": Ref(flags), "size": (12,)}, (flat,), mark),
        Apply("aten.sort.stable", {"self": Ref(flat), "stable": True, "dim": 0, "descending": True}, (ordered, every), mark),
        Apply("narrow", {"self": Ref(every), "dim": 0, "start": 0, "length": 5}, (places,), mark),
        Apply("aten.index.Tensor", {"self": Ref(values), "indices": (Ref(places),)}, (chosen,), mark),
        Apply("aten.sum.default", {"self": Ref(chosen)}, (total,), mark),
    ]
    program.roots.append(RootValue(total, "", mark))
    lifted = prepare(Tape(0, {}, ()), in_operators("a.capture.jsonl.gz", program)).lifted
    assert [node.op for node in lifted.nodes if isinstance(node, Call)] == [
        "torch.gt", "torch.Tensor.view", "torch.sort", "torch.narrow", "torch.index_select", "torch.sum",
    ]  # fmt: skip
