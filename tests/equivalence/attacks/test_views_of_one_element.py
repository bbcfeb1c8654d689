"""A rank's one element of a tensor, viewed as a single number: which element it is counts."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

REFERENCE = """
weight w f32[4,4]
input h f32[4,4]
input x f32[2]
loss l f32[]
program
y = linear(h, w)
q: f32[] = sum(x)
z = mul(y, q)
l = sum(z)
dz = backward l (grad(l))
dy, _ = backward z (dz)
_, grad(w) = backward y (dy)
update w
"""

PARALLEL = """
mesh tp=2
weight w f32[4,4]
input h f32[4,4]
input x f32[2] tp:S(0)
loss l f32[]
program
y = linear(h, w)
v: f32[] = OWN
q0: f32[] = sum(x)
q: f32[] = all-reduce(q0) over tp
u: f32[] = OTHER
z0 = mul(y, q)
z1 = mul(y, v)
z2 = mul(y, u)
z3 = add(z0, z1)
z = sub(z3, z2)
l = sum(z)
dz = backward l (grad(l))
d3, d2 = backward z (dz)
d0, d1 = backward z3 (d3)
dy, _ = backward z0 (d0)
dy, _ = backward z1 (d1)
dy, _ = backward z2 (d2)
_, grad(w) = backward y (dy)
update w
"""


def parallel(own: str, other: str) -> str:
    return PARALLEL.replace("OWN", own).replace("OTHER", other)


@pytest.mark.parametrize("other", ["broadcast(v, root=0) over tp", "all-reduce max(v) over tp", "all-reduce avg(v) over tp"])
@pytest.mark.parametrize(
    ("own", "name"), [("view(x, size=[])", "reshape-of-split-dimension"), ("squeeze(x)", "unsupported-operator")]
)
def test_elements_of_two_ranks_do_not_cancel_out(own: str, name: str, other: str) -> None:
    text = parallel(own, other)
    verdict = verdict_on(text, REFERENCE)
    assert verdict.outcome is Outcome.REFUTED
    assert {"other-numbers", name} <= {reason.name for reason in verdict.reasons}


def test_a_number_that_is_the_same_on_all_ranks_cancels_out() -> None:
    text = parallel("sum(h)", "identity(v)")
    assert compare(*plans(REFERENCE, text)).outcome == "equal"
    assert verdict_on(text, REFERENCE).outcome is Outcome.PROVED


def test_a_single_number_may_be_viewed_as_one_element_and_back() -> None:
    text = parallel("sum(h)", "identity(v)").replace(
        "z1 = mul(y, v)", "v1: f32[1] = view(v, size=[1])\nv2: f32[] = view(v1, size=[])\nz1 = mul(y, v2)"
    )
    verdict = verdict_on(text, REFERENCE)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def test_a_rank_s_one_element_may_be_repeated() -> None:
    repeated = parallel("sum(h)", "identity(v)").replace(
        "z1 = mul(y, v)", "c0 = expand(x, [4])\nc1 = sub(c0, c0)\nc: f32[] = sum(c1)\nv1 = add(v, c)\nz1 = mul(y, v1)"
    )
    assert compare(*plans(REFERENCE, repeated)).outcome == "equal"
    verdict = verdict_on(repeated, REFERENCE)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "wrong-shape-claim" not in {reason.name for reason in verdict.reasons}


@pytest.mark.parametrize("line", ["q1 = select(q0, 0, 0)", "q1: f32[1,24] = view(q0, size=[1,24])"])
def test_dimensions_of_one_may_be_dropped_from_joined_ones(line: str) -> None:
    model = (
        "weight w f32[4,4]\ninput h f32[4,4]\ninput x f32[4,6]\ninput c f32[1,24]\nloss l\nprogram\ny = linear(h, w)\n"
        "q0: f32[1,1,24] = view(x, size=[1,1,24])\nq1 = select(q0, 0, 0)\nf = mul(q1, c)\nt: f32[] = sum(f)\nz = mul(y, t)\n"
        "l = sum(z)\ndz = backward l (grad(l))\ndy, _ = backward z (dz)\n_, grad(w) = backward y (dy)\nupdate w\n"
    )
    verdict = verdict_on(model.replace("q1 = select(q0, 0, 0)", line), model)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


SCORED = """
MESH
weight w f32[1,6]
input x f32[ROWS,6] CUT
input r f32[ROWS] CUT
loss l
program
v = linear(x, w)
s = squeeze(v)
d = sub(s, r)
q = pow(d, 2)
l0: f32[] = sum(q)
l: f32[] = all-reduce(l0) over dp
end reduce-gradients w over dp
"""


def scored(rows: int, ranks: int) -> str:
    return with_backward(
        SCORED.replace("MESH", f"mesh dp={ranks}").replace("ROWS", str(rows)).replace("CUT", "dp:S(0)" if ranks > 1 else "")
    )


@pytest.mark.parametrize(("rows", "outcome"), [(4, Outcome.PROVED), (2, Outcome.UNKNOWN)])
def test_dimensions_of_one_element_are_those_where_the_operator_runs(rows: int, outcome: Outcome) -> None:
    assert verdict_on(scored(rows, 2), scored(rows, 1)).outcome is outcome
    assert verdict_on(scored(rows, 2), scored(rows, 1).replace("squeeze(v)", "squeeze(v, dim=-1)")).outcome is outcome


def test_rows_that_a_rank_adds_to_all_targets_are_not_proved() -> None:
    wrong = scored(4, 2).replace("s = squeeze(v)", "s = identity(v)")
    assert verdict_on(wrong, scored(4, 1)).outcome is Outcome.REFUTED
