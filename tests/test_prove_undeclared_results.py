"""Plans that do not declare what an operator makes, whose sizes then follow from nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracle.generate import random_pair

from tvlint.findings import Outcome
from tvlint.ir.plan import Compute
from tvlint.proof.prove import prove

PAIR = random_pair(15)


@pytest.mark.parametrize("last", ["gate_fw", "linear"])
def test_a_result_that_is_declared_nowhere_is_no_crash(last: str) -> None:
    plan = PAIR.parallel
    operators = [own for segment in plan.segments.values() for own in segment.operators if isinstance(own, Compute)]
    made = {name for own in operators if own.op.rsplit(".", 1)[-1] == last for name in own.outputs}
    assert made
    left = {name: tensor for name, tensor in plan.tensors.items() if name not in made}
    assert prove(replace(plan, tensors=left), PAIR.reference).outcome is not Outcome.REFUTED
