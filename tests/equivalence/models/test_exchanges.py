"""Plans that move pieces: heads for sequences, rows of a table over ranks, shards of layers that follow each other."""

from __future__ import annotations

import pytest

from tests.equivalence.attacks.test_wrong_plans import changed, outcome, parameters
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled_tuples
from tvlint.findings import Outcome

HEADS = """
weight w f32[8,8]
weight v f32[8,8]
input  x f32[8,8]
loss l
program
  y = linear(x, w)
  q = view(y, size=[8,4,2])
  s = softmax(q, dim=0)
  o = view(s, size=[8,8])
  z = linear(o, v)
  l = sum(z)
  dz = backward l (grad(l))
  do, grad(v) = backward z (dz)
  ds = backward o (do)
  dq = backward s (ds)
  dy = backward q (dq)
  _, grad(w) = backward y (dy)
"""

HEADS_FOR_SEQUENCES = """
mesh cp=2
weight w f32[8,8]
weight v f32[8,8]
input  x f32[8,8] cp:S(0)
loss l
program
  y = linear(x, w)
  q = view(y, size=[4,4,2])
  qa = all-to-all(q, dim=1, concat-dim=0) over cp
  s = softmax(qa, dim=0)
  sa = all-to-all(s, dim=0, concat-dim=1) over cp
  o = view(sa, size=[4,8])
  z = linear(o, v)
  l0 = sum(z)
  l = all-reduce(l0) over cp
  dz = backward l0 (grad(l))
  do, grad(v) = backward z (dz)
  dsa = backward o (do)
  ds = all-to-all(dsa, dim=1, concat-dim=0) over cp
  dqa = backward s (ds)
  dq = all-to-all(dqa, dim=0, concat-dim=1) over cp
  dy = backward q (dq)
  _, grad(w) = backward y (dy)
  reduce-gradients w, v over cp
"""

TABLE = """
weight t f32[8,4]
input  i i64[6]
loss l
program
  e = embedding(i, t, start=0, stop=8)
  g = gelu(e)
  l = sum(g)
  dg = backward l (grad(l))
  de = backward g (dg)
  _, grad(t) = backward e (de)
"""


def table(*ranges: tuple[int, int]) -> str:
    """The table's rows on two ranks, each looking up the range that it says."""
    text = "mesh tp=2\nweight t0 f32[4,4] region [0:4,0:4] of t[8,4]\nweight t1 f32[4,4] region [4:8,0:4] of t[8,4]\n"
    body = TABLE[TABLE.index("  e =") :]
    text += "input i i64[6]\nloss l\n"
    for rank, (start, stop) in enumerate(ranges):
        own = (f"  p = embedding(i, t{rank}, start={start}, stop={stop})\n  e = all-reduce(p) over tp",)
        lookup = ("  e = embedding(i, t, start=0, stop=8)", *own)
        back = ("_, grad(t) = backward e (de)", f"_, grad(t{rank}) = backward p (de)")
        text += f"program tp={rank}\n" + changed(body, lookup, back)
    return text


LAYERS = """
weight w f32[8,8]
weight v f32[8,8]
input  x f32[8,8]
loss l
program
  y = linear(x, w)
  s = gelu(y)
  z = linear(s, v)
  l = sum(z)
  dz = backward l (grad(l))
  ds, grad(v) = backward z (dz)
  dy = backward s (ds)
  _, grad(w) = backward y (dy)
"""


def shards(first: tuple[str, str], second: tuple[str, str]) -> str:
    """Two layers in shards: the rows of `w` and the columns of `v` that each rank holds."""
    text = "mesh tp=2\n"
    for rank in (0, 1):
        text += f"weight w{rank} f32[4,8] region [{first[rank]},0:8] of w[8,8]\n"
        text += f"weight v{rank} f32[8,4] region [0:8,{second[rank]}] of v[8,8]\n"
    text += "input x f32[8,8]\nloss l\n"
    body = LAYERS[LAYERS.index("  y =") :]
    for rank in (0, 1):
        text += f"program tp={rank}\n" + changed(
            body,
            ("linear(x, w)", f"linear(x, w{rank})"),
            ("z = linear(s, v)", f"p = linear(s, v{rank})\n  z = all-reduce(p) over tp"),
            ("grad(v) = backward z", f"grad(v{rank}) = backward p"),
            ("grad(w)", f"grad(w{rank})"),
        )
    return text


LOW, HIGH = "0:4", "4:8"

RIGHT = {
    "heads for sequences": (HEADS_FOR_SEQUENCES, HEADS),
    "rows of a table": (table((0, 4), (4, 8)), TABLE),
    "shards": (shards((LOW, HIGH), (LOW, HIGH)), LAYERS),
    "shards in another order": (shards((HIGH, LOW), (HIGH, LOW)), LAYERS),
}

WRONG = {
    "another dimension than the heads": (
        changed(
            HEADS_FOR_SEQUENCES,
            ("qa = all-to-all(q, dim=1, concat-dim=0)", "qa = all-to-all(q, dim=2, concat-dim=0)"),
            ("sa = all-to-all(s, dim=0, concat-dim=1)", "sa = all-to-all(s, dim=0, concat-dim=2)"),
        ),
        HEADS,
    ),
    "not put back": (
        changed(
            HEADS_FOR_SEQUENCES, ("dq = all-to-all(dqa, dim=0, concat-dim=1)", "dq = all-to-all(dqa, dim=0, concat-dim=2)")
        ),
        HEADS,
    ),
    "ranges of the other rank": (table((4, 8), (0, 4)), TABLE),
    "one range twice": (table((0, 4), (0, 4)), TABLE),
    "shards that do not follow": (shards((LOW, HIGH), (HIGH, LOW)), LAYERS),
    "one shard twice": (shards((LOW, LOW), (LOW, LOW)), LAYERS),
    "one shard of the first layer twice": (shards((LOW, LOW), (LOW, HIGH)), LAYERS),
}


@pytest.mark.parametrize(("parallel", "reference"), parameters(RIGHT))
def test_a_right_plan_is_proved(parallel: str, reference: str) -> None:
    found, messages = outcome(parallel, reference)
    assert found is Outcome.PROVED, messages


@pytest.mark.parametrize(("parallel", "reference"), parameters(WRONG))
def test_a_wrong_plan_is_not_proved(parallel: str, reference: str) -> None:
    found, _ = outcome(parallel, reference)
    assert found is not Outcome.PROVED


UNEVEN = """mesh dp=2
weight w f32[4,4]
input x f32[8,4] dp:S(0)
loss l
program ranks 0
  a: f32[3,4] = all-to-all(x, dim=0, concat-dim=0, splits=[1,3], receive-splits=[1,2]) over dp
  b: f32[4,4] = all-to-all(a, dim=0, concat-dim=0, splits=[1,2], receive-splits=[1,3]) over dp
  h = linear(b, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
  reduce-gradients w over dp
program ranks 1
  c: f32[5,4] = all-to-all(x, dim=0, concat-dim=0, splits=[2,2], receive-splits=[3,2]) over dp
  d: f32[4,4] = all-to-all(c, dim=0, concat-dim=0, splits=[3,2], receive-splits=[2,2]) over dp
  h = linear(d, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
  reduce-gradients w over dp
"""
ALONE = """weight w f32[4,4]
input x f32[8,4]
loss l
program
  h = linear(x, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
"""


def test_ranks_that_exchange_unequal_parts_which_fit_are_not_refuted() -> None:
    found, messages = outcome(UNEVEN, ALONE)
    assert found is Outcome.UNKNOWN, messages


def test_ranks_that_exchange_unequal_parts_which_do_not_fit_are_refuted() -> None:
    found, messages = outcome(UNEVEN.replace("receive-splits=[3,2]) over dp", "receive-splits=[2,3]) over dp"), ALONE)
    assert found is Outcome.REFUTED, messages


EXPERTS = """
weight x f32[6,4,8]
input m f32[6,4,4]
loss l
program
  f = permute(m, dims=(2,0,1))
  f4: f32[4,6,4,1] = view(f, (4,6,4,1))
  x4: f32[1,6,4,8] = view(x, (1,6,4,8))
  y = mul(x4, f4)
  n0 = torch.narrow(y, 0, 0, 1)
  n1 = torch.narrow(y, 0, 1, 1)
  n2 = torch.narrow(y, 0, 2, 1)
  n3 = torch.narrow(y, 0, 3, 1)
  h0 = gelu(n0)
  h1 = gelu(n1)
  h2 = gelu(n2)
  h3 = gelu(n3)
  c = torch.cat([h0, h1, h2, h3], dim=0)
  d = mul(c, f4)
  o = torch.sum(d, dim=(0,))
  g = gelu(o)
  l = sum(g)
  dg = backward l (grad(l))
  do = backward g (dg)
  do1 = backward o (do)
  dc, _ = backward d (do1)
  e0 = torch.narrow(dc, 0, 0, 1)
  e1 = torch.narrow(dc, 0, 1, 1)
  e2 = torch.narrow(dc, 0, 2, 1)
  e3 = torch.narrow(dc, 0, 3, 1)
  k0 = backward h0 (e0)
  k1 = backward h1 (e1)
  k2 = backward h2 (e2)
  k3 = backward h3 (e3)
  kk = torch.cat([k0, k1, k2, k3], dim=0)
  q = mul(kk, f4)
  grad(x) = torch.sum(q, dim=(0,))
"""

EXPERTS_ON_RANKS = """
mesh ep=2
weight x f32[6,4,8] ep:S(1)
input m f32[6,4,4] ep:S(1)
loss l ep:P
program
  f = permute(m, dims=(2,0,1))
  f4: f32[4,6,2,1] = view(f, (4,6,2,1))
  x4: f32[1,6,2,8] = view(x, (1,6,2,8))
  y = mul(x4, f4)
  z = all-to-all(y, dim=0, concat-dim=2) over ep
  n0 = torch.narrow(z, 0, 0, 1)
  n1 = torch.narrow(z, 0, 1, 1)
  h0 = gelu(n0)
  h1 = gelu(n1)
  c1 = torch.cat([h0, h1], dim=0)
  c = all-to-all(c1, dim=2, concat-dim=0) over ep
  d = mul(c, f4)
  o = torch.sum(d, dim=(0,))
  g = gelu(o)
  l = sum(g)
  dg = backward l (grad(l))
  do = backward g (dg)
  do1 = backward o (do)
  dc, _ = backward d (do1)
  dc2 = all-to-all(dc, dim=0, concat-dim=2) over ep
  e0 = torch.narrow(dc2, 0, 0, 1)
  e1 = torch.narrow(dc2, 0, 1, 1)
  k0 = backward h0 (e0)
  k1 = backward h1 (e1)
  k2 = torch.cat([k0, k1], dim=0)
  kk = all-to-all(k2, dim=2, concat-dim=0) over ep
  q = mul(kk, f4)
  grad(x) = torch.sum(q, dim=(0,))
"""


def test_rows_of_experts_that_are_exchanged_are_those_of_all_experts_side_by_side() -> None:
    assert outcome(EXPERTS_ON_RANKS, EXPERTS)[0] is Outcome.PROVED


@pytest.mark.parametrize(
    ("before", "after"),
    sampled_tuples(
        [
            ("torch.cat([h0, h1], dim=0)", "torch.cat([h1, h0], dim=0)"),
            ("torch.cat([h0, h1], dim=0)", "torch.cat([h0, h0], dim=0)"),
            ("torch.cat([k0, k1], dim=0)", "torch.cat([k1, k0], dim=0)"),
            ("n1 = torch.narrow(z, 0, 1, 1)", "n1 = torch.narrow(z, 0, 0, 1)"),
            ("e1 = torch.narrow(dc2, 0, 1, 1)", "e1 = torch.narrow(dc2, 0, 0, 1)"),
            ("k2 = torch.cat([k0, k1], dim=0)", "k3 = torch.cat([k0, k1], dim=0)\n  k2 = mul(k3, 2.0)"),
        ],
        3,
    ),
)
def test_rows_of_other_experts_are_not_proved(before: str, after: str, without_repairs: None) -> None:
    assert outcome(changed(EXPERTS_ON_RANKS, (before, after)), EXPERTS)[0] is not Outcome.PROVED


CUT = "mesh tp=3\ninput x f32[8,4]\noutput y\n"
PIECE = "program ranks {ranks}\nc: f32[{length},4] = chunk(x, dim=0) over tp\ny = relu(c)\n"
RELU = "input x f32[8,4]\noutput y\nprogram\ny = relu(x)\n"


@pytest.mark.parametrize(("first", "last", "refutes"), [(3, 2, False), (3, 4, True), (2, 2, True), (4, 2, True), (8, 2, True)])
def test_a_piece_of_a_length_that_no_cut_gives_is_refuted(first: int, last: int, refutes: bool) -> None:
    """Eight elements for three ranks are pieces of 3, 3 and 2, however they are cut."""
    plan = CUT + PIECE.format(ranks="0-1", length=first) + PIECE.format(ranks="2", length=last)
    verdict = verdict_on(plan, RELU)
    names = {reason.name for reason in verdict.reasons if reason.refutes}
    assert verdict.outcome is not Outcome.PROVED
    assert ("wrong-shape-claim" in names) == refutes
