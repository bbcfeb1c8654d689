"""Reasons that say what to write instead; written so, the plan is proved."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

_VOCABULARY = "weight e f32[8,4]{placed}\ninput x i64[4]\nloss l\n"
_ENDS = "t = tanh(h)\nl: f32[1] = sum(t)\n"
_REFERENCE = with_backward(f"{_VOCABULARY.format(placed='')}program\nh = embedding(x, e)\n{_ENDS}")
_MASKED = """m: bool[4] = lt(x, {start}) || none
s: i64[4] = sub(x, {start}) || none
z: i64[4] = masked_fill(s, m, 0) || none
h0 = embedding(z, e)
h = all-reduce(h0) over tp
"""
_STATED = "h0 = embedding(x, e, start={start}, stop={stop})\nh = all-reduce(h0) over tp\n"


def _vocabulary(lines: str) -> str:
    head = "mesh tp=2\n" + _VOCABULARY.format(placed=" tp:S(0)")
    ranks = (f"program tp={rank}\n{lines.format(start=4 * rank, stop=4 * rank + 4)}{_ENDS}" for rank in (0, 1))
    return with_backward(head + "".join(ranks))


def test_masks_that_leave_rows_in_look_up_beyond_a_part_and_parts_that_are_stated_are_proved() -> None:
    verdict = verdict_on(_vocabulary(_MASKED), _REFERENCE)
    assert "an index of `embedding` is beyond the 4" in next(reason.message for reason in verdict.reasons if reason.refutes)
    assert any("`embedding(x, w, start=.., stop=..)`" in reason.message for reason in verdict.reasons)
    assert verdict_on(_vocabulary(_STATED), _REFERENCE).outcome is Outcome.PROVED
    shifted = _vocabulary(_STATED).replace("start=4, stop=8", "start=3, stop=7")
    assert verdict_on(shifted, _REFERENCE).outcome is not Outcome.PROVED


_PACKED = """weight g f32[8,4]{placed}
weight d f32[4,8]{down}
input x f32[4,4]
loss l
program
h = linear(x, g)
a: f32[4,{half}], b: f32[4,{half}] = split(h, {half}, dim=1)
m = mul(a, b)
p = linear(m, d)
y = {ends}
t = tanh(y)
l: f32[1] = sum(t)
"""


def _packed(half: int, placed: str = "", down: str = "", ends: str = "identity(p)") -> str:
    text = _PACKED.format(placed=placed, down=down, half=half, ends=ends).replace("f32[4,8]", "f32[4,4]")
    return with_backward(text)


def test_packed_weights_in_several_pieces_are_proved_as_one_tensor_of_parts_and_not_as_two_of_one_name() -> None:
    reference = _packed(4)
    tensor_parallel = "mesh tp=2\n" + _packed(2, " tp:S(0, parts=[4,4])", " tp:S(1)", "all-reduce(p) over tp")
    verdict = verdict_on(tensor_parallel, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    head = "mesh tp=2\nweight d f32[4,4] tp:S(1)\ninput x f32[4,4]\nloss l\n"
    body = "a = linear(x, ga)\nb = linear(x, gb)\n" + _PACKED[_PACKED.index("m = mul") :].format(ends="all-reduce(p) over tp")
    ranks = []
    for rank in (0, 1):
        low, high = 2 * rank, 2 * rank + 2
        weights = f"weight ga f32[2,4] region [{low}:{high},0:4] of g[8,4]\n"
        weights += f"weight gb f32[2,4] region [{4 + low}:{4 + high},0:4] of g[8,4]\n"
        program = with_backward(f"weight d\nweight ga\nweight gb\nprogram tp={rank}\n{body}")
        ranks.append(program.replace("weight d\nweight ga\nweight gb\n", "").replace("\n", f"\n{weights}", 1))
    assert verdict_on(head + "".join(ranks), reference).outcome is Outcome.UNKNOWN
    weights = "weight d f32[4,4]{1}\nweight ga f32[4,4]{0}\nweight gb f32[4,4]{0}\ninput x f32[4,4]\nloss l\nprogram\n"
    apart = with_backward(weights.format("", "") + body.replace("all-reduce(p) over tp", "identity(p)"))
    split = with_backward("mesh tp=2\n" + weights.format(" tp:S(0)", " tp:S(1)") + body)
    assert verdict_on(split, apart).outcome is Outcome.PROVED


@pytest.mark.parametrize(
    ("lines", "outcome", "words"),
    [
        ('c: bf16[4,4] = to(h, dtype="bfloat16")\nf: f32[4,4] = float(c)\nt = tanh(f)', Outcome.UNKNOWN, "casts round"),
        (
            "p = pad(h, [0,0,0,2], value=1.0)\nn: f32[4,4] = narrow(p, 0, 0, 4)\nt = tanh(n)",
            Outcome.UNKNOWN,
            "both plans, or in neither",
        ),
        ("m = tril(h)\nt = tanh(m)", Outcome.REFUTED, "`is_causal=True`"),
    ],
)
def test_an_operator_that_the_reference_does_not_have_comes_with_advice(lines: str, outcome: Outcome, words: str) -> None:
    plan = "weight w f32[4,4]\ninput x f32[4,4]\nloss l\nprogram\nh = linear(x, w)\n{lines}\nl: f32[1] = sum(t)\n"
    reference, parallel = (with_backward(plan.format(lines=own)) for own in ("t = tanh(h)", lines))
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is outcome
    assert any(words in reason.message for reason in verdict.reasons), [reason.message for reason in verdict.reasons]


def test_a_reducer_over_ranks_that_hold_different_pieces_is_advised_away() -> None:
    lines = "weight w f32[8,4]{placed}\ninput x f32[4,4]\nloss l\nprogram\nh = linear(x, w)\n{loss}"
    reference = with_backward(lines.format(placed="", loss="l: f32[1] = sum(h)\n"))
    parallel = "mesh tp=2\n" + lines.format(placed=" tp:S(0)", loss="l0: f32[1] = sum(h)\nl = all-reduce(l0) over tp\n")
    right = with_backward(parallel)
    assert verdict_on(right, reference).outcome is Outcome.PROVED
    verdict = verdict_on(f"{right}reduce-gradients w over ranks 0,1\n", reference)
    assert verdict.outcome is Outcome.REFUTED
    assert verdict.reasons[0].name == "mismatched-shards"
    assert verdict.reasons[0].repair == "do not reduce the gradients of `w`, of which each rank holds another piece"
