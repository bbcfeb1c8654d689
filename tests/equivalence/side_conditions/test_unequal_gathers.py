"""Members of a collective give tensors of one shape, but for a gather that states the size of each."""

from __future__ import annotations

import pytest

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

TRAINED = """\
  t = linear(z, u)
  k: f32[] = sum(t)
  d_t = backward k (grad(k))
  _, grad(u) = backward t (d_t)
"""
DECLARED = """\
input x f32[8,8]
input z f32[8,8]
weight u f32[8,8]
loss k
output y
"""
REFERENCE = f"weight w f32[8,8] frozen\n{DECLARED}program\n  y = linear(x, w)\n{TRAINED}"


def parallel(gather: str, first: str = "0:5", last: str = "5:8") -> str:
    """Return rows of a weight that two ranks share unequally, and gather what they give."""
    rows = f"  h = linear(x, w)\n  y: f32[8,8] = {gather} over tp\n{TRAINED}"
    return (
        f"mesh tp=2\nweight w f32[5,8] frozen region [{first},0:8] of w[8,8]\n{DECLARED}program tp=0\n{rows}"
        f"program tp=1\n  weight w f32[3,8] frozen region [{last},0:8] of w[8,8]\n{rows}"
    )


@pytest.mark.parametrize(
    ("plan", "outcome", "reasons"),
    [
        (parallel("all-gather(h, dim=1, splits=[5,3])"), Outcome.PROVED, set()),
        (parallel("all-gather(h, dim=1)"), Outcome.UNKNOWN, {"unequal-splits"}),
        (parallel("all-gather(h, dim=1, splits=[3,5])"), Outcome.UNKNOWN, {"unequal-splits"}),
        (parallel("all-gather(h, dim=1, splits=[4,4])"), Outcome.UNKNOWN, {"unequal-splits"}),
        (parallel("all-gather(h, dim=1, splits=[5,3])", last="4:7"), Outcome.REFUTED, {"gathers-wrong-pieces"}),
        (parallel("all-gather(h, dim=1, splits=[5,3])", "3:8", "0:3"), Outcome.REFUTED, {"pieces-not-in-rank-order"}),
    ],
    ids=["stated", "not stated", "stated the other way", "stated equal", "overlapping", "the other way round"],
)
def test_a_gather_of_unequal_pieces_states_their_sizes(plan: str, outcome: Outcome, reasons: set[str]) -> None:
    verdict = verdict_on(plan, REFERENCE)
    assert verdict.outcome is outcome
    assert reasons <= {reason.name for reason in verdict.reasons}


def cut(chunk: str, first: int = 5, gather: str = "all-gather(h, dim=0, splits=[5,3])") -> str:
    """Return rows of an input that two ranks cut out of it, and gather what they give."""
    rows = "".join(
        f"program tp={rank}\n  c: f32[{count},8] = {chunk} over tp\n  h: f32[{count},8] = linear(c, w)\n"
        f"  y: f32[8,8] = {gather} over tp\n{TRAINED}"
        for rank, count in enumerate((first, 8 - first))
    )
    return f"mesh tp=2\nweight w f32[8,8] frozen\n{DECLARED}{rows}"


@pytest.mark.parametrize(
    ("plan", "outcome", "reasons"),
    [
        (cut("chunk(x, dim=0, splits=[5,3])"), Outcome.PROVED, set()),
        (cut("chunk(x, dim=0, splits=[5,2])"), Outcome.REFUTED, {"wrong-shape-claim"}),
        (cut("chunk(x, dim=0, splits=[5,4])"), Outcome.REFUTED, {"wrong-shape-claim"}),
        (cut("chunk(x, dim=0, splits=[4,4])"), Outcome.REFUTED, {"wrong-shape-claim"}),
        (cut("chunk(x, dim=0, splits=[5,2,1])"), Outcome.UNKNOWN, {"unequal-splits"}),
        (cut("chunk(x, dim=0, splits=[3,5])", 3), Outcome.UNKNOWN, {"unequal-splits"}),
        (cut("chunk(x, dim=0, splits=[3,5])", 3, "all-gather(h, dim=0, splits=[3,5])"), Outcome.PROVED, set()),
    ],
)
def test_parts_of_unequal_sizes_are_cut_as_they_are_stated(plan: str, outcome: Outcome, reasons: set[str]) -> None:
    verdict = verdict_on(plan, REFERENCE)
    assert verdict.outcome is outcome, verdict.reasons
    assert reasons <= {reason.name for reason in verdict.reasons}


@pytest.mark.parametrize(
    ("rows", "last", "said"),
    [
        (4, "0:4", "gathers the same indices 0:4 from every rank"),
        (4, "3:7", "gathers indices 0:4, 3:7, which overlap"),
        (3, "5:8", "gathers indices 0:3, 5:8, which leave a gap"),
        (4, "4:8", ""),
    ],
    ids=["the same", "overlapping", "apart", "side by side"],
)
def test_a_gather_says_how_its_pieces_do_not_fit(rows: int, last: str, said: str) -> None:
    steps = f"  h = linear(x, w)\n  y: f32[8,{2 * rows}] = all-gather(h, dim=1) over tp\n{TRAINED}"
    plan = (
        f"mesh tp=2\nweight w f32[{rows},8] frozen region [0:{rows},0:8] of w[8,8]\n{DECLARED}program tp=0\n{steps}"
        f"program tp=1\n  weight w f32[{rows},8] frozen region [{last},0:8] of w[8,8]\n{steps}"
    )
    messages = [reason.message for reason in verdict_on(plan, REFERENCE).reasons if reason.name == "gathers-wrong-pieces"]
    assert [own for own in messages if said in own] == messages
    assert bool(messages) == bool(said)


UNUSED = """
mesh dp=2
weight w f32[8,8]
input x f32[5,8] region [0:5,0:8] of x[8,8]
loss l dp:P
program dp=0
  h = linear(x, w)
FIRST
  l: f32[] = sum(h)
  d_h = backward l (grad(l))
  _, grad(w) = backward h (d_h)
  reduce-gradients w over dp
program dp=1
  input x f32[3,8] region [5:8,0:8] of x[8,8]
  h = linear(x, w)
LAST
  l: f32[] = sum(h)
  d_h = backward l (grad(l))
  _, grad(w) = backward h (d_h)
  reduce-gradients w over dp
"""
WHOLE = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  l: f32[] = sum(h)
  d_h = backward l (grad(l))
  _, grad(w) = backward h (d_h)
"""
HALF = "  c: f16[8,8] = to(w, torch.float16)\n"


@pytest.mark.parametrize(
    ("first", "last", "reason"),
    [
        (each := "  q = all-gather(h, dim=0, splits=[5,3]) over dp", each, ""),
        (each := "  q = gather(h, dim=0, root=0, splits=[5,3]) over dp", each, ""),
        (each := "  q = all-reduce(w) over dp", each, ""),
        (each := "  q = all-gather(h, dim=0) over dp", each, "unequal-splits"),
        (each := "  q = gather(h, dim=0, root=0) over dp", each, "unequal-splits"),
        (each := "  q = all-to-all(h, dim=1, concat-dim=0) over dp", each, "unequal-splits"),
        (f"{HALF}  q = all-reduce(c) over dp", "  q = all-reduce(w) over dp", "mismatched-collective"),
        (f"{HALF}  q = all-gather(c, dim=0) over dp", "  q = all-gather(w, dim=0) over dp", "mismatched-collective"),
    ],
)
def test_what_does_not_run_is_not_proved_though_nothing_uses_it(first: str, last: str, reason: str) -> None:
    verdict = verdict_on(UNUSED.replace("FIRST", first).replace("LAST", last), WHOLE)
    assert verdict.outcome is (Outcome.UNKNOWN if reason else Outcome.PROVED)
    assert [own.name for own in verdict.reasons][:1] == [reason][: bool(reason)]
