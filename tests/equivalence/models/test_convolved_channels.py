"""Verdicts on convolutions whose channels, each a group of its own, lie on several ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracle.compare import compare

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.findings import Outcome
from tvlint.ops.field import Floats
from tvlint.ops.spec import Call
from tvlint.ops.table import spec_of

ALONE = """
weight v f32[4,1,2]
weight b f32[4]
input x f32[2,4,3]
loss l
program
  t = tanh(x)
  h: f32[2,4,2] = torch.conv1d(t, v, bias=b, groups=4)
  q = gelu(h)
  l: f32[] = sum(q)
  dq = backward l (grad(l))
  dh = backward q (dq)
  _, grad(v), grad(b) = backward h (dh)
"""


def split(ranks: int, own: int, weight: str = "tp:S(0)") -> str:
    """The plan with a part of the channels on each of `ranks`, in `own` groups there."""
    text = (
        ALONE.replace("[4,1,2]", f"[4,1,2] {weight}")
        .replace("b f32[4]", "b f32[4] tp:S(0)")
        .replace("[2,4,3]", "[2,4,3] tp:S(1)")
    )
    text = text.replace("groups=4", f"groups={own}").replace("h: f32[2,4,2]", f"h: f32[2,{4 // ranks},2]")
    return f"mesh tp={ranks}" + text.replace(
        "l: f32[] = sum(q)", "s: f32[] = sum(q)\n  l: f32[] = all-reduce(s) over tp"
    ).replace("backward l (", "backward s (")


@pytest.mark.parametrize(("ranks", "own"), [(2, 2), (4, 1)])
def test_a_rank_states_the_groups_of_its_own_channels(ranks: int, own: int) -> None:
    verdict = verdict_on(split(ranks, own), ALONE)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert compare(*plans(ALONE, split(ranks, own))).outcome == "equal"


@pytest.mark.parametrize(("ranks", "own"), [(2, 4), (2, 1), (4, 2), (4, 4)])
def test_other_groups_than_those_of_its_own_channels_are_not_taken(ranks: int, own: int) -> None:
    """A call that fails on what the rank has is no call on all channels, though that call would have a meaning."""
    verdict = verdict_on(split(ranks, own), ALONE)
    assert verdict.outcome is not Outcome.PROVED
    assert any("conv1d" in reason.message and f"in {own} groups" in reason.message for reason in verdict.reasons)


def test_channels_of_another_part_of_the_weight_are_not_taken() -> None:
    """Every rank has the weight of the first channels."""
    text = (
        split(2, 2, "")
        .replace("  h:", "  k: f32[2,1,2] = torch.narrow(v, 0, 0, 2)\n  h:")
        .replace("(t, v, bias", "(t, k, bias")
    )
    text = text.replace("_, grad(v)", "_, dk") + "  grad(v) = backward k (dk)\n"
    verdict = verdict_on(text, ALONE)
    assert verdict.outcome is Outcome.REFUTED
    assert any("the gradient of `v` on every rank is another one" in reason.message for reason in verdict.reasons)


_SHARED = "input x f32[2,4,{at}]\nloss l\nprogram\nh = conv{n}d(x, u)\na = gelu(h)\n"
_WEIGHTS = "weight u f32[6,4,{ones}]{rows}\nweight w f32[4,6,{threes}]{columns}\nweight b f32[4]\n"


def _of_input_channels(n: int) -> tuple[str, str]:
    sizes = {"n": n, "at": ",".join("5" * n), "ones": ",".join("1" * n), "threes": ",".join("3" * n)}
    one = _WEIGHTS + _SHARED + "c = conv{n}d(a, w, b, padding=1)\nz = tanh(c)\nl: f32[] = mean(z)\n"
    two = f"v = view(b, [1, 4{', 1' * n}])\nc = add(s, v)\nz = tanh(c)\nl: f32[] = mean(z)\n"
    two = "mesh tp=2\n" + _WEIGHTS + _SHARED + "p = conv{n}d(a, w, padding=1)\ns = all-reduce(p) over tp\n" + two
    return one.format(**sizes, rows="", columns=""), two.format(**sizes, rows=" tp:S(0)", columns=" tp:S(1)")


@pytest.mark.parametrize("n", [1, 2])
def test_a_bias_is_added_behind_the_sum_over_channels(n: int) -> None:
    reference, parallel = map(with_backward, _of_input_channels(n))
    assert verdict_on(parallel, reference).outcome is Outcome.PROVED
    assert isinstance(on_numbers_of(*plans(parallel, reference)), Agreement)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("s = all-reduce(p) over tp", "s = identity(p)"),
        ("c = add(s, v)", "c = sub(s, v)"),
        ("c = add(s, v)", "c = identity(s)"),
        ("p = conv1d(a, w, padding=1)", "p = conv1d(a, w, b, padding=1)"),
        ("v = view(b, [1, 4, 1])", "f = flip(b, [0])\nv = view(f, [1, 4, 1])"),
    ],
)
def test_a_bias_that_is_added_otherwise_is_not_proved(before: str, after: str) -> None:
    reference, parallel = _of_input_channels(1)
    assert before in parallel
    changed = with_backward(parallel.replace(before, after))
    assert verdict_on(changed, with_backward(reference)).outcome is not Outcome.PROVED


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_convolution_is_one_without_a_bias_and_the_bias_added(dims: int) -> None:
    draw = np.random.default_rng(dims)
    operands = [draw.normal(size=(2, 4, *[5] * dims)), draw.normal(size=(6, 2, *[3] * dims)), draw.normal(size=6)]
    spec = spec_of(f"torch.conv{dims}d")
    call = Call(f"torch.conv{dims}d", tuple(one.shape for one in operands), {"stride": 2, "padding": 1, "groups": 2})
    assert spec is not None
    assert spec.evaluate is not None
    assert spec.steps is not None
    (alone, _), *_, (last, _) = spec.steps(call)
    assert (alone, last) == (f"conv{dims}d", "add")
    (whole,) = spec.evaluate(spec.bind(call), operands, Floats())
    (plain,) = spec.evaluate(spec.bind(replace(call, inputs=call.inputs[:2])), operands[:2], Floats())
    np.testing.assert_allclose(whole, plain + operands[2].reshape(6, *[1] * dims))


def test_a_convolution_that_counts_each_side_by_itself_keeps_its_bias() -> None:
    spec = spec_of("nnscaler.runtime.function.conv1d")
    assert spec is not None
    assert spec.steps is not None
    assert spec.steps(Call("nnscaler.runtime.function.conv1d", ((2, 4, 5), (6, 4, 3), (6,)), {"padding": (1, 1)})) == ()
