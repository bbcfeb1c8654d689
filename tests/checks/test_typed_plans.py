"""Plans whose operators do not fit together, each beside the right plan that differs least."""

from __future__ import annotations

import re

import pytest

from tests.builders.plan_findings import findings_of_text
from tvlint.findings import Severity

_CHOICE = re.compile(r"\{\{(.*?)\|(.*?)\}\}", re.DOTALL)
"""What is wrong, and what is right in its place."""

PAIRS = {
    "names-typo-operand": (
        "use-before-definition",
        8,
        """\
mesh tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[4,8]
program
  h = linear(x, w1)
  act = gelu(h)
  p = linear({{acct|act}}, w2)
  y = all-reduce(p) over tp
""",
    ),
    "names-typo-collective": (
        "use-before-definition",
        6,
        """\
mesh tp=2
weight w2 f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  part = linear(x, w2)
  y = all-reduce({{prat|part}}) over tp
""",
    ),
    "names-typo-weight": (
        "use-before-definition",
        5,
        """\
mesh tp=2
weight layers.0.fc f32[16,8]
input x f32[4,8]
program
  h = linear(x, {{layers.0.fcc|layers.0.fc}})
  y = gelu(h)
""",
    ),
    "names-never-made-no-neighbour": (
        "use-before-definition",
        5,
        """\
weight w f32[8,8]
input x f32[4,8]
program
  y = linear(x, w)
  z = add(y, {{residual|x}})
""",
    ),
    "names-used-before": (
        "use-before-definition",
        4,
        """\
weight w f32[8,8]
input x f32[4,8]
program
{{  z = gelu(y)
  y = linear(x, w)|  y = linear(x, w)
  z = gelu(y)}}
""",
    ),
    "names-typo-in-list": (
        "use-before-definition",
        6,
        """\
input x f32[4,8]
input u f32[4,8]
program
  a = gelu(x)
  b = gelu(u)
  c = cat([a, {{bb|b}}], dim=1)
""",
    ),
    "names-typo-backward-grad": (
        "use-before-definition",
        9,
        """\
weight w f32[8,8]
input x f32[4,8]
loss l
program
  h = linear(x, w)
  a = gelu(h)
  l: f32[] = sum(a)
  da = backward l (grad(l))
  dh = backward a ({{dda|da}})
  _, grad(w) = backward h (dh)
  update w
""",
    ),
    "names-made-twice": (
        "value-made-twice",
        6,
        """\
weight w f32[8,8]
weight v f32[8,8]
input x f32[4,8]
program
  h = linear(x, w)
  {{h|k}} = linear(x, v)
  y = gelu(h)
""",
    ),
    "names-undefined-other-rank": (
        "use-before-definition",
        8,
        """\
mesh tp=2
weight w f32[8,8]
input x f32[4,8]
program tp=0
  h = linear(x, w)
  y = gelu(h)
program tp=1
{{|  h = linear(x, w)
}}  y = gelu(h)
""",
    ),
    "shape-linear": (
        "shape-mismatch",
        4,
        """\
input x f32[4,4]
weight w f32[16,{{8|4}}]
program
  y = linear(x, w)
""",
    ),
    "shape-linear-bias": (
        "shape-mismatch",
        5,
        """\
input x f32[4,8]
weight w f32[16,8]
weight b f32[{{8|16}}]
program
  y = linear(x, w, b)
""",
    ),
    "shape-matmul": (
        "shape-mismatch",
        4,
        """\
input x f32[4,8]
weight w f32[{{16,8|8,16}}]
program
  y = matmul(x, w)
""",
    ),
    "shape-bmm-batches": (
        "shape-mismatch",
        4,
        """\
input a f32[4,2,8]
input b f32[{{2|4}},8,6]
program
  y = bmm(a, b)
""",
    ),
    "shape-add": (
        "shape-mismatch",
        4,
        """\
input a f32[4,4]
input b f32[4,{{8|4}}]
program
  y = add(a, b)
""",
    ),
    "shape-mul-broadcast": (
        "shape-mismatch",
        4,
        """\
input a f32[4,8]
input b f32[{{4|8}}]
program
  y = mul(a, b)
""",
    ),
    "shape-layernorm-dim": (
        "shape-mismatch",
        3,
        """\
input x f32[4,32]
program
  y = layer_norm(x, [{{64|32}}])
""",
    ),
    "shape-layernorm-weight": (
        "shape-mismatch",
        5,
        """\
input x f32[4,32]
weight g f32[{{16|32}}]
weight b f32[{{16|32}}]
program
  y = layer_norm(x, [32], g, b)
""",
    ),
    "shape-rmsnorm-weight": (
        "shape-mismatch",
        4,
        """\
input x f32[4,32]
weight g f32[{{64|32}}]
program
  y = rms_norm(x, [32], g)
""",
    ),
    "shape-topk": (
        "shape-mismatch",
        4,
        """\
input x f32[16,4]
program
  p = softmax(x, dim=-1)
  v, i = topk(p, {{8|2}})
""",
    ),
    "shape-softmax-dim": (
        "shape-mismatch",
        3,
        """\
input x f32[16,4]
program
  p = softmax(x, dim={{2|1}})
""",
    ),
    "shape-sum-dim": (
        "shape-mismatch",
        3,
        """\
input x f32[16,4]
program
  p = sum(x, dim={{3|-1}})
""",
    ),
    "shape-transpose-dim": (
        "shape-mismatch",
        3,
        """\
input x f32[16,4]
program
  p = transpose(x, 0, {{2|1}})
""",
    ),
    "shape-view": (
        "shape-mismatch",
        3,
        """\
input x f32[16,4]
program
  p = view(x, [8, {{4|8}}])
""",
    ),
    "shape-cat": (
        "shape-mismatch",
        4,
        """\
input a f32[4,8]
input b f32[{{3|4}},8]
program
  c = cat([a, b], dim=1)
""",
    ),
    "shape-stack": (
        "shape-mismatch",
        4,
        """\
input a f32[4,8]
input b f32[4,{{6|8}}]
program
  c = stack([a, b], dim=0)
""",
    ),
    "shape-attention-heads": (
        "shape-mismatch",
        5,
        """\
input q f32[2,{{4|8}},16,64]
input k f32[2,8,16,64]
input v f32[2,8,16,64]
program
  o = scaled_dot_product_attention(q, k, v)
""",
    ),
    "shape-attention-headdim": (
        "shape-mismatch",
        5,
        """\
input q f32[2,8,16,{{32|64}}]
input k f32[2,8,16,64]
input v f32[2,8,16,64]
program
  o = scaled_dot_product_attention(q, k, v)
""",
    ),
    "shape-cross-entropy": (
        "shape-mismatch",
        4,
        """\
input s f32[16,100]
input t i64[{{8|16}}]
program
  l = cross_entropy(s, t)
""",
    ),
    "shape-mse": (
        "shape-mismatch",
        4,
        """\
input s f32[16,8]
input t f32[16,{{4|8}}]
program
  l = mse_loss(s, t)
""",
    ),
    "shape-einsum": (
        "shape-mismatch",
        4,
        """\
input a f32[4,8]
input b f32[{{6|8}},16]
program
  y = einsum("ik,kj->ij", a, b)
""",
    ),
    "shape-chunk-of-shard": (
        "contraction-of-mismatched-shards",
        6,
        """\
mesh tp=2
input x f32[4,8] tp:S(1)
weight w f32[16,8] tp:S(1)
program
  {{c = chunk(x, dim=1) over tp|c = identity(x)}}
  p = linear(c, w)
  y = all-reduce(p) over tp
""",
    ),
    "shape-scatter-not-divisible": (
        "shape-mismatch",
        4,
        """\
mesh tp=4
input x f32[{{6|8}},8] tp:P
program
  y = reduce-scatter(x, dim=0) over tp
""",
    ),
    "shape-per-rank": (
        "shape-mismatch",
        8,
        """\
mesh tp=2
weight w f32[16,8]
input x f32[4,8]
program tp=0
  y = linear(x, w)
program tp=1
  input x f32[4,{{6|8}}]
  y = linear(x, w)
""",
    ),
    "shape-optimizer": (
        "shape-mismatch",
        6,
        """\
weight w f32[8,8]
input g f32[8,{{4|8}}]
state m f32[8,8]
state v f32[8,8]
program
  adam_step(w!, g, m!, v!)
""",
    ),
    "shape-grad-output": (
        "shape-mismatch",
        6,
        """\
weight w f32[16,8]
input x f32[4,8]
input dy f32[4,{{8|16}}]
program
  y = linear(x, w)
  _, grad(w) = backward y (dy)
""",
    ),
    "shape-where": (
        "shape-mismatch",
        5,
        """\
input m bool[4,8]
input a f32[4,8]
input b f32[4,{{6|8}}]
program
  y = where(m, a, b)
""",
    ),
    "shape-embedding-weight": (
        "shape-mismatch",
        4,
        """\
input i i64[4,8]
weight e f32[100,16{{,2|}}]
program
  y = embedding(i, e)
""",
    ),
    "shape-after-gather": (
        "shape-mismatch",
        6,
        """\
mesh tp=2
input x f32[4,8] tp:S(1)
weight w f32[16,{{4|8}}]
program
  g = all-gather(x, dim=1) over tp
  y = linear(g, w)
""",
    ),
    "shape-conv-channels": (
        "shape-mismatch",
        4,
        """\
input x f32[2,{{4|3}},8,8]
weight w f32[16,3,3,3]
program
  y = conv2d(x, w)
""",
    ),
    "message-recv-undeclared-then-used": (
        "shape-mismatch",
        10,
        """\
mesh pp=2
weight w f32[8,8]
weight v f32[8,{{16|8}}]
input x f32[4,8]
program pp=0
  h = linear(x, w)
  send h to pp+1
program pp=1
  recv h from pp-1
  y = linear(h, v)
""",
    ),
    "dtype-linear": (
        "dtype-mismatch",
        4,
        """\
input x bf16[8,16]
weight w {{f32|bf16}}[32,16]
program
  y = linear(x, w)
""",
    ),
    "dtype-matmul": (
        "dtype-mismatch",
        4,
        """\
input x f16[8,16]
weight w {{bf16|f16}}[16,32]
program
  y = matmul(x, w)
""",
    ),
    "dtype-cast-forgotten": (
        "dtype-mismatch",
        5,
        """\
input x bf16[8,16]
weight w f32[32,16]
program
  {{c = mul(w, 1.0)|c = to(w, "bfloat16")}}
  y = linear(x, c)
""",
    ),
    "dtype-embedding-index": (
        "dtype-mismatch",
        4,
        """\
input i {{f32|i64}}[4,8]
weight e f32[100,16]
program
  y = embedding(i, e)
""",
    ),
    "dtype-whole-linear": (
        "dtype-mismatch",
        4,
        """\
input x {{i64|f32}}[4,8]
weight w f32[16,8]
program
  y = linear(x, w)
""",
    ),
    "dtype-layernorm-int": (
        "dtype-mismatch",
        3,
        """\
input x {{i64|f32}}[4,8]
program
  y = layer_norm(x, [8])
""",
    ),
    "dtype-softmax-int": (
        "dtype-mismatch",
        3,
        """\
input x {{i64|f32}}[4,8]
program
  y = softmax(x, dim=1)
""",
    ),
    "dtype-target-float": (
        "dtype-mismatch",
        4,
        """\
input s f32[16,100]
input t {{f32|i64}}[16]
program
  l = cross_entropy(s, t)
""",
    ),
    "dtype-attention": (
        "dtype-mismatch",
        5,
        """\
input q bf16[2,8,16,64]
input k {{f32|bf16}}[2,8,16,64]
input v bf16[2,8,16,64]
program
  o = scaled_dot_product_attention(q, k, v)
""",
    ),
    "dtype-gather-index": (
        "dtype-mismatch",
        4,
        """\
input x f32[4,8]
input i {{f32|i64}}[4,2]
program
  o = gather(x, 1, i)
""",
    ),
    "dtype-mixed-after-promotion": (
        "dtype-mismatch",
        6,
        """\
input a bf16[4,8]
input b {{f32|bf16}}[4,8]
weight w bf16[16,8]
program
  c = add(a, b)
  y = linear(c, w)
""",
    ),
    "dtype-grad-weight-int": (
        "dtype-mismatch",
        4,
        """\
weight w {{i32|f32}}[16,8]
input x f32[4,8]
program
  y = linear(x, w)
  z = gelu(y)
""",
    ),
    "declared-annotation-shape": (
        "shape-mismatch",
        4,
        """\
input x f32[4,8]
weight w f32[16,{{6|8}}]
program
  y = torch.nn.functional.linear(x, w) as "b k+, n k+ -> b n"
  z = gelu(y)
""",
    ),
    "split-sizes": (
        "shape-mismatch",
        3,
        """\
input x f32[4,8]
program
  a, b = split(x, [4,{{6|4}}], dim=1)
""",
    ),
    "index-out-of-range": (
        "shape-mismatch",
        3,
        """\
input x f32[4,8]
program
  a = select(x, 1, {{9|3}})
""",
    ),
    "broadcast-rank3": (
        "shape-mismatch",
        4,
        """\
input x f32[2,4,8]
weight b f32[{{4|2}},1,8]
program
  a = add(x, b)
""",
    ),
}


@pytest.mark.parametrize("moved", ["roll(x, -1, 1)", "flip(x, [1])", "repeat(x, [1, 1])", "tril(x)", "detach(x)"])
def test_whole_numbers_that_are_moved_stay_whole_numbers(moved: str) -> None:
    text = f"mesh cp=2\ninput x i64[2,16]\nprogram\n  y = {moved}\n  z: i64[2,8] = relu(y)\n"
    assert [finding.rule for finding in findings_of_text(text)] == ["wrong-shape-claim"]


@pytest.mark.parametrize("name", PAIRS)
def test_what_does_not_fit_is_one_error_at_its_line(name: str) -> None:
    rule, line, text = PAIRS[name]
    errors = [own for own in findings_of_text(_CHOICE.sub(r"\1", text)) if own.severity is Severity.ERROR]
    assert [(error.rule, error.location.line) for error in errors] == [(rule, line)]


@pytest.mark.parametrize("name", PAIRS)
def test_nothing_is_said_of_what_fits(name: str) -> None:
    assert findings_of_text(_CHOICE.sub(r"\2", PAIRS[name][2])) == []


def test_the_name_that_was_meant_is_proposed() -> None:
    (error,) = findings_of_text("input x f32[4,8]\nprogram\n  act = gelu(x)\n  y = gelu(acct)\n")
    assert error.help == "did you mean `act`?"


ANNOTATED = "weight w f32[8,16]\nweight g f32[16]\ninput x f32[4,16]\ninput i i64[4]\nprogram\n  {}\n"


@pytest.mark.parametrize(
    ("operator", "is_false"),
    [
        ('y = linear(x, w) as "m k+, n k+ -> m n"', False),
        ('y = linear(x, w) as "* k+, n k+ -> * n"', False),
        ('y = linear(x, w) as "m k+, n k+ -> n m"', True),
        ('y = gelu(x) as "m k+ -> m"', True),
        ('y = gelu(x) as "m k -> k m"', True),
        ('y = gelu(x) as "m^ k^ -> m^ k^"', False),
        ('y: f32[] = sum(x) as "a+ b+ -> 1"', False),
        ('y = transpose(x, 0, 1) as "a b -> b a"', False),
        ('y = transpose(x, 0, 1) as "a b -> a b"', True),
        ('y = mul(x, g) as "a b, b -> a b"', False),
        ('y = embedding(i, w) as "n, v^ h -> n h"', False),
        ('y = embedding(i, w) as "n, v^ h -> h n"', True),
        ('y = own_kernel(x) as "a b -> b a"', False),
        ('y = gelu(x) as "not understood"', False),
    ],
)
def test_annotations_say_what_operators_do(operator: str, is_false: bool) -> None:
    found = {finding.rule for finding in findings_of_text(ANNOTATED.format(operator))}
    assert found == ({"false-annotation"} if is_false else set())


POSITIONS = """mesh cp=2
weight w f32[8,8]
input x f32[2,16,8] cp:S(1)
input e f32[16,8]
output y f32[2,16,8] cp:S(1)
program cp=0
  i = {}
  h = add(x, i)
  y = linear(h, w)
program cp=1
  i = {}
  h = add(x, i)
  y = linear(h, w)
"""


@pytest.mark.parametrize(
    ("first", "second", "rules"),
    [
        ("narrow(e, 0, 0, 8)", "narrow(e, 0, 8, 8)", set()),
        ("full([8, 8], 1.0)", "full([8, 8], 1.0)", set()),
        ("full([8, 8], 1.0)", "full([8, 8], 2.0)", set()),
        ("narrow(e, 0, 0, 8)", "narrow(e, 0, 0, 8)", {"mismatched-shards"}),
    ],
)
def test_what_each_rank_makes_or_cuts_for_itself_lies_as_nobody_knows(first: str, second: str, rules: set[str]) -> None:
    assert {finding.rule for finding in findings_of_text(POSITIONS.format(first, second))} == rules


SHARDED = """mesh dp=2
weight w f32[8,8] dp:S(0)
input x f32[8,8] dp:S(0)
loss l
program
  f = all-gather(w, dim=0) over dp
  y = linear(x, f)
  l = sum(y)
  dy = backward l (grad(l))
  _, df = backward y (dy)
  grad(w) = {} over dp
  update w
"""


@pytest.mark.parametrize(
    ("reduced", "rules"),
    [("reduce-scatter(df, dim=0)", set()), ("all-reduce(df)", {"shape-mismatch"})],
)
def test_a_weight_is_updated_with_a_gradient_of_its_shape(reduced: str, rules: set[str]) -> None:
    assert {finding.rule for finding in findings_of_text(SHARDED.format(reduced))} == rules
