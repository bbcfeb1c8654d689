"""What one rank makes otherwise than the others of a collective, at one place."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_text, rules_of_text

GATED = """mesh tp=4
weight g f32[16,8] tp:S(0)
weight u f32[16,8] tp:S(0)
weight d f32[8,16] tp:S(1)
input x f32[4,8]
output y f32[4,8]
program tp=0
  a = linear(x, g)
  b = linear(x, u)
{first}
  q = linear(h, d)
  y = all-reduce(q) over tp
program ranks 1-3
  a = linear(x, g)
  b = linear(x, u)
  s = silu(a)
  h = mul(s, b)
  q = linear(h, d)
  y = all-reduce(q) over tp
"""


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("  s = silu(a)\n  h = mul(b, s)", ""),
        ("  s = silu(b)\n  h = mul(s, a)", "takes `g` and `u` the other way round than on ranks 1-3"),
        ("  s = silu(a)\n  r = mul(s, 2.0)\n  h = mul(r, b)", "is 2 times what it is on ranks 1-3"),
        ('  s = silu(a)\n  r: bf16[4,4] = to(s, "bf16")\n  t: f32[4,4] = to(r, "f32")\n  h = mul(t, b)', ""),
    ],
)
def test_a_part_of_a_sum_is_made_as_the_others(first: str, words: str) -> None:
    found = [finding for finding in findings_of_text(GATED.format(first=first)) if finding.rule == "divergent-replicas"]
    assert [words in finding.message for finding in found] == ([True] if words else [])


ROWS = """mesh {axis}=2
weight w f32[16,8] {axis}:S(0)
weight v f32[8,8]
input x f32[4,8]
output y
program {axis}=0
  h = linear(x, w)
{first}
  y: f32[4,16] = all-gather(k, dim=1) over {axis}
program {axis}=1
  h = linear(x, w)
  k = relu(h)
  y: f32[4,16] = all-gather(k, dim=1) over {axis}
"""


def test_gathered_pieces_are_made_alike() -> None:
    assert rules_of_text(ROWS.format(axis="tp", first="  k = relu(h)")) == set()
    assert "divergent-replicas" in rules_of_text(ROWS.format(axis="tp", first="  k = gelu(h)"))
    assert "divergent-replicas" in rules_of_text(ROWS.format(axis="tp", first="  r = relu(h)\n  k = mul(r, 0.5)"))


MEANT = [
    """mesh tp=2
input x f32[4,8]
output y f32[4,8]
program tp=0
  h = relu(x)
  y = all-reduce(h) over tp
program tp=1
  r = relu(x)
  h = mul(r, 0.0)
  y = all-reduce(h) over tp
""",
    """mesh dp=2
weight w f32[8,8]
input x f32[4,8] region [0:4,0:8] of x[6,8]
output y
program dp=0
  h = linear(x, w)
  m = mean(h, dim=0)
  k = mul(m, 2.0)
  y = all-reduce(k) over dp
program dp=1
  input x f32[2,8] region [4:6,0:8] of x[6,8]
  h = linear(x, w)
  m = mean(h, dim=0)
  y = all-reduce(m) over dp
""",
    """mesh cp=2
input a f32[4,8]
input b f32[4,8]
output y
program cp=0
  h = sub(a, b)
  y: f32[8,8] = all-gather(h, dim=0) over cp
program cp=1
  near = identity(b)
  far = identity(a)
  h = sub(near, far)
  y: f32[8,8] = all-gather(h, dim=0) over cp
""",
    """mesh tp=2
weight w f32[8,16] tp:S(1)
weight b f32[8]
input x f32[4,16] tp:S(1)
output y f32[4,8]
program tp=0
  h = linear(x, w, b)
  y = all-reduce(h) over tp
program tp=1
  h = linear(x, w)
  y = all-reduce(h) over tp
""",
]


@pytest.mark.parametrize("text", MEANT)
def test_ranks_may_weigh_choose_and_compare(text: str) -> None:
    assert "divergent-replicas" not in rules_of_text(text)


COPIES = """mesh tp=2
weight w f32[8,8]
input x f32[4,8]
loss l
program tp=0
  h = linear(x, w)
  a = silu(h)
{first}
program tp=1
  h = linear(x, w)
  a = silu(h)
  b = div(a, 2.0)
  l = sum(b)
  db = backward l (grad(l))
  da = backward b (db)
  dh = backward a (da)
  _, grad(w) = backward h (dh)
  update w
"""


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("  b = div(a, 2.0)\n  l = sum(b)\n  db = backward l (grad(l))\n  da = backward b (db)\n  dh = backward a (da)", ""),
        ("  b = mul(a, 0.5)\n  l = sum(b)\n  db = backward l (grad(l))\n  da = backward b (db)\n  dh = backward a (da)", ""),
        (
            "  b = div(a, 4.0)\n  l = sum(b)\n  db = backward l (grad(l))\n  da = backward b (db)\n  dh = backward a (da)",
            "`b` on rank 1 is 2 times what it is on rank 0",
        ),
        (
            "  b = div(a, 2.0)\n  l = sum(b)\n  db = backward l (grad(l))\n  da = backward b (db)\n"
            '  low: bf16[4,8] = to(da, "bf16")\n  wide: f32[4,8] = to(low, "f32")\n  dh = backward a (wide)',
            "`wide` on rank 0 is a cast of what it is on rank 1",
        ),
    ],
)
def test_ranks_with_the_same_data_return_one_loss_and_step_with_one_gradient(first: str, words: str) -> None:
    text = COPIES.format(first=first + "\n  _, grad(w) = backward h (dh)\n  update w")
    found = [finding.message for finding in findings_of_text(text) if finding.rule == "divergent-replicas"]
    assert found == ([words] if words else [])
