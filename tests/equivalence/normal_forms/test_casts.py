"""Casts that keep every number, and casts to the type of another tensor, against plans that have none or name the type."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tvlint.equivalence.verdict.prove import is_proved

TEXT = """
mesh tp=2
weight w TYPE[6,8] tp:S(0)
input x TYPE[2,4,8]
loss l
program
BODY
l0: f32[] = sum(z)
l = all-reduce(l0) over tp
"""
WHOLE = TEXT.replace("mesh tp=2\n", "").replace(" tp:S(0)", "").replace("l0:", "l:").replace("l = all-reduce(l0) over tp\n", "")
PLAIN = "h = linear(x, w)\nz = tanh(h)"
NARROWED = 'f = float(x)\nr = rms_norm(f, [8])\nt = to(r, dtype="bfloat16")\nh = linear(t, w)\nz = tanh(h)'
ALIKE = NARROWED.replace('to(r, dtype="bfloat16")', "type_as(r, x)")
FLOAT = PLAIN.replace("z = tanh(h)", "f = float(h)\nz = tanh(f)")
RIGHT = {
    "to the own type": ("f32", FLOAT, PLAIN),
    "to the own type, by its name": ("f32", FLOAT.replace("float(h)", 'to(h, dtype="float32")'), PLAIN),
    "to the own type, by its short name": ("f32", FLOAT.replace("float(h)", 'to(h, "f32")'), PLAIN),
    "to the own type, by its short name as an attribute": ("f32", FLOAT.replace("float(h)", 'to(h, dtype="f32")'), PLAIN),
    "to the own type, stored otherwise": (
        "f32",
        FLOAT.replace("float(h)", 'to(h, dtype="float32", non_blocking=True, copy=True)'),
        PLAIN,
    ),
    "to no other type or device": ("f32", FLOAT.replace("float(h)", "torch.Tensor.to(h)"), PLAIN),
    "to a device": ("f32", FLOAT.replace("float(h)", 'to(h, "cuda:0", non_blocking=True)'), PLAIN),
    "to a device, by name": ("bf16", FLOAT.replace("float(h)", 'to(h, device="cpu")'), PLAIN),
    "to the type of another of that type": ("f32", FLOAT.replace("float(h)", "type_as(h, x)"), PLAIN),
    "to the type of another": ("bf16", ALIKE, NARROWED),
    "to the type of another, in both": ("bf16", ALIKE, ALIKE),
}
WRONG = {
    "to a narrower type": ("f32", FLOAT.replace("float(h)", "bfloat16(h)"), PLAIN),
    "to a narrower type, by its short name": ("f32", FLOAT.replace("float(h)", 'to(h, "bf16")'), PLAIN),
    "to whole numbers, by their short name": ("f32", FLOAT.replace("float(h)", 'to(h, "i32")'), PLAIN),
    "to no device that keeps numbers": ("f32", FLOAT.replace("float(h)", 'to(h, "meta")'), PLAIN),
    "to a narrower type, on a device": ("f32", FLOAT.replace("float(h)", 'to(h, "bf16", device="cuda")'), PLAIN),
    "to whole numbers": ("f32", FLOAT.replace("float(h)", 'to(h, dtype="int64")'), PLAIN),
    "to the type of another, which is left out": ("bf16", ALIKE.replace("type_as(r, x)", "identity(r)"), NARROWED),
    "to the type of another of another type": ("bf16", ALIKE.replace("type_as(r, x)", "type_as(r, f)"), NARROWED),
    "of another value": ("bf16", ALIKE.replace("type_as(r, x)", "type_as(f, x)"), NARROWED),
}


def text(head: str, dtype: str, body: str) -> str:
    return with_backward(head.replace("TYPE", dtype).replace("BODY", body))


@pytest.mark.parametrize("name", RIGHT)
def test_casts_that_keep_numbers_are_none(name: str) -> None:
    dtype, plan, reference = RIGHT[name]
    assert is_proved(*plans(text(TEXT, dtype, plan), text(WHOLE, dtype, reference)))


@pytest.mark.parametrize("name", WRONG)
def test_casts_that_round_are_told_apart(name: str) -> None:
    dtype, plan, reference = WRONG[name]
    assert not is_proved(*plans(text(TEXT, dtype, plan), text(WHOLE, dtype, reference)))


SQUARED = "weight w f32[6,8]\ninput x f32[4,8]\nloss l\nprogram\nh = linear(x, w)\n{}\ny = mul(h, c)\nl: f32[] = sum(y)\n"
FIVEFOLD = with_backward(SQUARED.format("c = mul(h, 5.0) || none"))
DECLARED_OTHERWISE = {
    "whole numbers": 'a: i64[4,6] = mul(h, 2.5) || none\nk = to(a, dtype="int64") || none\n',
    "whole numbers, of what is kept": "b: i64[4,6] = mul(h, 2.5) || none\na: i64[4,6] = clone(b) || none\n"
    'k = to(a, dtype="int64") || none\n',
    "flags": 'a: bool[4,6] = mul(h, 2.5) || none\nk = to(a, dtype="bool") || none\n',
    "other numbers": 'f: f32[4,6] = to(h, dtype="int64") || none\na = mul(h, 2.5) || none\nk = type_as(a, f) || none\n',
    "nothing else": "a: f32[4,6] = mul(h, 2.5) || none\nk = type_as(a, x) || none\n",
}


@pytest.mark.parametrize("name", DECLARED_OTHERWISE)
def test_a_cast_rounds_what_its_operator_gives_whatever_is_declared(name: str) -> None:
    text = with_backward(SQUARED.format(DECLARED_OTHERWISE[name] + "c: f32[4,6] = mul(k, 2.0) || none"))
    assert is_proved(*plans(text, FIVEFOLD)) == (name == "nothing else")


def test_a_cast_of_whole_numbers_to_these_is_none() -> None:
    lines = 'p = ge(h, 0.5) || none\nn = {}\nc: f32[4,6] = to(n, dtype="float32") || none'
    kept = 'a = to(p, dtype="int64") || none\nb = add(a, a) || none\nn = to(b, dtype="int64") || none'
    text = with_backward(SQUARED.format(lines.replace("n = {}", kept)))
    plain = with_backward(SQUARED.format(lines.replace("n = {}", kept.replace('to(b, dtype="int64")', "clone(b)"))))
    assert is_proved(*plans(text, plain))


HEADS = """
mesh dp=2
weight w f32[16,8] dp:S(0)
input x bf16[4,8] dp:S(0)
loss l f32[] dp:P
program
c = CAST
g: bf16[16,8] = all-gather(c, dim=0) over dp
v: bf16[4,4,8] = view(g, [4, 4, 8])
y = einsum("ab,cdb->acd", x, v)
z = gelu(y)
l = sum(z)
"""
HEADS_ALONE = """
weight w f32[16,8]
input x bf16[4,8]
loss l
program
v = view(w, [4, 4, 8])
c = CAST
y = einsum("ab,cdb->acd", x, c)
z = gelu(y)
l: f32[] = sum(z)
"""
TO_BF16 = 'to(v, dtype="bfloat16")'


def of_heads(text: str, cast: str, *edits: tuple[str, str]) -> str:
    text = text.replace("CAST", cast)
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    return with_backward(text)


def test_rows_that_are_cast_before_they_are_viewed_are_cast_behind_the_view_too() -> None:
    assert is_proved(*plans(of_heads(HEADS, TO_BF16.replace("v", "w")), of_heads(HEADS_ALONE, TO_BF16)))


@pytest.mark.parametrize(
    "edits",
    [
        [('"bfloat16"', '"float16"')],
        [('"bfloat16"', '"int64"')],
        [("einsum(", "gelu(x)\ny = einsum("), ("y = gelu", "u = gelu"), ('"ab,cdb->acd", x', '"ab,cdb->acd", u')],
        [('to(w, dtype="bfloat16")', "gelu(w)")],
    ],
)
def test_rows_that_are_cast_or_viewed_otherwise_are_others(edits: list[tuple[str, str]]) -> None:
    assert not is_proved(*plans(of_heads(HEADS, TO_BF16.replace("v", "w"), *edits), of_heads(HEADS_ALONE, TO_BF16)))


@pytest.mark.parametrize("dtype", ["bfloat16", "int64"])
def test_a_factor_stands_before_or_behind_a_cast_to_numbers_that_are_not_whole(dtype: str) -> None:
    before = of_heads(HEADS_ALONE, f'to(h, dtype="{dtype}")', ("c = to", "h = mul(v, 0.5)\nc = to"))
    behind = of_heads(HEADS, "mul(k, 0.5)", ("c = mul", f'k = to(w, dtype="{dtype}")\nc = mul'))
    assert is_proved(*plans(behind, before)) == (dtype == "bfloat16")


AT_ONCE = """
weight w f32[8,8]
input x f32[8,8]
loss l f32[]
program
  h = linear(x, w)
  y = silu(h)
  q = gelu(y)
  l = sum(q)
  dq = backward l (grad(l))
  dy = backward q (dq)
  dh = backward y (dy)
  _, grad(w) = backward h (dh)
"""
IN_STEPS = AT_ONCE.replace("  y = silu(h)\n", "  a: f32[8,8] = sigmoid(h)\n  y = mul(a, h)\n").replace(
    "  dh = backward y (dy)\n", "  da: f32[8,8], dh = backward y (dy)\n  dh = backward a (da)\n"
)


@pytest.mark.parametrize("before", ["a: f32", "da: f32"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f8e4m3"])
def test_what_is_declared_with_fewer_digits_than_it_is_made_of_is_rounded(before: str, dtype: str) -> None:
    rounded = IN_STEPS.replace(f"  {before}", f"  {before.replace('f32', dtype)}")
    assert rounded != IN_STEPS
    assert is_proved(*plans(IN_STEPS, AT_ONCE))
    assert is_proved(*plans(rounded, rounded))
    assert not is_proved(*plans(rounded, AT_ONCE))
    assert not is_proved(*plans(AT_ONCE, rounded))


@pytest.mark.parametrize(("dtype", "proved"), [("bfloat16", False), ("bf16", False), ("torch.float16", False), ("f32", True)])
@pytest.mark.parametrize("op", ["softmax", "log_softmax", "softmin"])
def test_what_is_computed_in_another_type_is_rounded(op: str, dtype: str, proved: bool) -> None:
    wide = AT_ONCE.replace("silu(h)", f"{op}(h, dim=1)")
    stated = wide.replace(f"  y = {op}(h, dim=1)", f'  s = {op}(h, dim=1, dtype="{dtype}")\n  y = to(s, dtype="float32")')
    stated = stated.replace("  dh = backward y (dy)", "  ds = backward y (dy)\n  dh = backward s (ds)")
    assert is_proved(*plans(stated, wide)) is proved
    assert is_proved(*plans(wide, stated)) is proved
    assert is_proved(*plans(stated, stated))
