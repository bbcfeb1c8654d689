"""Plans that compute something else than their reference, and once were proved."""

from __future__ import annotations

import re

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import Ring, plans
from tests.equivalence.models.test_attention import reference as attention
from tests.equivalence.references import LOOKED_UP
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ops.annotations.declared import Declared
from tvlint.ops.declaring import with_declared

pytestmark = pytest.mark.usefixtures("without_repairs")

MEAN_OF_SUM = """
weight w f32[4,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  s = sum(h, dim=0)
  l: f32[] = mean(s)
  ds = backward l (grad(l))
  dh = backward s (ds)
  _, grad(w) = backward h (dh)
"""

ON_TWO_REPLICAS = """
mesh dp=2 tp=2
replicate dp
weight w f32[4,8]
input x f32[4,8]
loss l
program
  h = linear(x, w)
  s = sum(h, dim=0)
  l0: f32[] = mean(s)
  l: f32[] = all-reduce KIND(l0) over tp
  ds = backward l0 (grad(l))
  dh = backward s (ds)
  _, grad(w) = backward h (dh)
  reduce-gradients w over dp
"""


@pytest.mark.parametrize(("kind", "outcome"), [("avg", Outcome.PROVED), ("sum", Outcome.UNKNOWN)])
def test_a_sum_over_the_batch_is_not_returned_as_many_times_as_there_are_replicas(kind: str, outcome: Outcome) -> None:
    """A mean over the batch is the number of slots times its slot's part of the whole; a mean over anything else is not."""
    assert verdict_on(ON_TWO_REPLICAS.replace("KIND", kind), MEAN_OF_SUM).outcome is outcome


ROUNDED = """
weight w f32[4,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  i = to(h, dtype="TYPE")
  q = mul(h, i)
  l = sum(q)
  dq = backward l (grad(l))
  dh, _ = backward q (dq)
  _, grad(w) = backward h (dh)
"""

ROUNDED_BEFORE_THE_SUM = """
mesh tp=2
weight w f32[4,8] tp:S(1)
input x f32[8,8] tp:S(1)
loss l
program
  p = linear(x, w)
  h = all-reduce(p) over tp
  j = to(p, dtype="TYPE")
  i = all-reduce(j) over tp
  q = mul(h, i)
  l = sum(q)
  dq = backward l (grad(l))
  dh, _ = backward q (dq)
  _, grad(w) = backward p (dh)
"""


@pytest.mark.parametrize("dtype", ["i64", "i8", "u8", "int64", "torch.int32", "torch.long", "bool"])
def test_parts_of_a_sum_are_not_rounded(dtype: str) -> None:
    verdict = verdict_on(ROUNDED_BEFORE_THE_SUM.replace("TYPE", dtype), ROUNDED.replace("TYPE", dtype))
    assert verdict.outcome is not Outcome.PROVED


@pytest.mark.parametrize(
    ("dtype", "proved"),
    [
        ("torch.int64", False), ("i64", False), ("torch.float32", True), ("f64", True), ("bf16", False), ("f16", False),
        ("torch.bfloat16", False), ("f8e4m3", False),
    ],
)  # fmt: skip
def test_sums_are_not_communicated_in_whole_numbers_or_with_fewer_digits(dtype: str, proved: bool) -> None:
    plan = ROUNDED_BEFORE_THE_SUM.replace('j = to(p, dtype="TYPE")\n  i = all-reduce(j) over tp', "i = identity(h)")
    plan = plan.replace("all-reduce(p)", f'all-reduce(p, dtype="{dtype}")')
    reference = ROUNDED.replace('to(h, dtype="TYPE")', "identity(h)")
    assert (verdict_on(plan, reference).outcome is Outcome.PROVED) == proved


@pytest.mark.parametrize("rows", ["start=4", "start=4.0, stop=20.0", "start=True, stop=17", "stop=20"])
def test_rows_that_are_stated_in_part_or_not_as_whole_numbers_are_not_left_out(rows: str) -> None:
    assert verdict_on(LOOKED_UP.replace("embedding(x, w)", f"embedding(x, w, {rows})"), LOOKED_UP).outcome is not Outcome.PROVED


ADDED = """
weight w f32[4,8]
weight b f32[8,4]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  k = mul(h, 2.0)
  a = add(h, k, b)
  l = sum(a)
  da = backward l (grad(l))
  dh, dk, _ = backward a (da)
  dh = backward k (dk)
  _, grad(w) = backward h (dh)
"""


def test_three_are_not_added_as_two() -> None:
    """With more than two operands it would not be linear in the first two."""
    parallel = ADDED.replace("a = add(h, k, b)", "a0 = add(h, k, b)\n  a = all-reduce(a0) over tp")
    parallel = parallel.replace("backward a (da)", "backward a0 (da)")
    for shape in ("w f32[4,8]", "x f32[8,8]"):
        parallel = parallel.replace(shape, f"{shape} tp:S(1)")
    assert verdict_on("mesh tp=2" + parallel, ADDED).outcome is not Outcome.PROVED


def skipping() -> dict[int, str]:
    """A causal ring of two in which the first rank looks at its own keys only, since the others are hidden from its queries."""
    text = Ring(2, causal=True).text()
    place = text.index("program cp=1")
    gone = {0: r"o1: |merge|backward m1|backward o1|send d[bc]1", 1: "recv back"}
    changes = {
        0: (
            ("mul(m1, xs)", "mul(o0, xs)"),
            ("dm1, _ = backward r", "do0, _ = backward r"),
            ("backward o0 (do0, de0)", "backward o0 (do0, _)"),
            ("add(da0, da1)", "identity(da0)"),
        ),
        1: (("add(db0, backb1)", "identity(db0)"), ("add(dc0, backc1)", "identity(dc0)")),
    }
    found = {}
    for rank, lines in ((0, text[:place]), (1, text[place:])):
        kept = "\n".join(line for line in lines.splitlines() if not re.search(gone[rank], line)) + "\n"
        for before, after in changes[rank]:
            assert before in kept
            kept = kept.replace(before, after)
        found[rank] = re.sub(" batch back[bc]1", "", kept)
    return found


POSITIONS = r", query_start=\d, query_stop=\d, key_start=\d, key_stop=\d"


@pytest.mark.parametrize("unsaid", [(), (0,), (1,)])
def test_hidden_keys_may_be_left_out_and_first_ones_need_no_positions(unsaid: tuple[int, ...]) -> None:
    text = "".join(re.sub(POSITIONS, "", own) if rank in unsaid else own for rank, own in skipping().items())
    assert (verdict_on(text, attention(causal=True)).outcome is Outcome.PROVED) == (1 not in unsaid)
    made, other = plans(text, attention(causal=True))
    assert (compare(other, made).outcome == "equal") == (1 not in unsaid)


def test_keys_that_are_seen_are_not_left_out() -> None:
    text = skipping()[0]
    own = text[text.index("program") :].replace("cp=0", "cp=1").replace("=0, query_stop=4", "=4, query_stop=8")
    own = own.replace("key_start=0, key_stop=4", "key_start=4, key_stop=8")
    both = re.sub("recv back.*", "", text + own)
    both = both.replace("add(db0, backb1)", "identity(db0)").replace("add(dc0, backc1)", "identity(dc0)")
    verdict = verdict_on(both, attention(causal=True))
    assert verdict.outcome is Outcome.REFUTED
    assert "part-used-as-complete" in [reason.name for reason in verdict.reasons]


ALL_ROWS = """
weight w f32[4,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
"""

TWO_SLICES = """
mesh tp=2
weight w f32[4,8]
input x0 f32[4,8] region [0:4,0:8] of x[8,8]
input x1 f32[4,8] region [4:8,0:8] of x[WHOLE,8]
loss l
"""


@pytest.mark.parametrize(("whole", "proved"), [("8", True), ("16", False)])
def test_slices_of_an_input_are_of_one_whole(whole: str, proved: bool) -> None:
    text = TWO_SLICES.replace("WHOLE", whole)
    for rank in (0, 1):
        text += f"""program tp={rank}
  h = linear(x{rank}, w)
  l0 = sum(h)
  l = all-reduce(l0) over tp
  dh = backward l0 (grad(l))
  _, grad(w) = backward h (dh)
  reduce-gradients w over tp
"""
    assert (verdict_on(text, ALL_ROWS).outcome is Outcome.PROVED) == proved


FROM_THE_BATCH = """
weight w f32[4,8]
buffer places i64[3]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  k = embedding(places, h, start=0, stop=4)
  l = sum(k)
  dk = backward l (grad(l))
  _, dh = backward k (dk)
  _, grad(w) = backward h (dh)
"""


def test_a_range_of_the_batch_is_not_that_range_of_every_part_of_it() -> None:
    """The reference takes the first four rows of eight, of which the second replica holds none."""
    text = (
        FROM_THE_BATCH.replace("x f32[8,8]", "x f32[4,8]")
        .replace("  k = emb", "  k0 = emb")
        .replace("backward k ", "backward k0 ")
    )
    text = "mesh dp=2\nreplicate dp" + text.replace("  l = sum", "  k = all-reduce(k0) over dp\n  l = sum")
    verdict = verdict_on(text + "  reduce-gradients w over dp\n", FROM_THE_BATCH)
    assert verdict.outcome is not Outcome.PROVED
    assert "needs-whole-batch" in [reason.name for reason in verdict.reasons]


UNKNOWN_CODE = """
weight w f32[4,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  k: f32[8,4] = f(h, CONSTANT)
  l = sum(k)
  dk = backward l (grad(l))
  dh = backward k (dk)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize("constant", ["1", "1.0", "True", "n=1", "n=1.0", "n=True", "n=[1]", "n=[True]", "0.0", "-0.0"])
@pytest.mark.parametrize("other", ["1", "n=1.0", "n=True", "n=[1]", "0.0"])
def test_constants_of_code_that_is_not_known_are_equal_only_if_they_are_the_same(constant: str, other: str) -> None:
    declared = [Declared("f", "b h -> b h", ((0,),))]
    one, two = plans(UNKNOWN_CODE.replace("CONSTANT", constant), UNKNOWN_CODE.replace("CONSTANT", other))
    verdict = prove(with_declared(one, declared), with_declared(two, declared))
    assert (verdict.outcome is Outcome.PROVED) == (constant == other)


def test_an_operator_that_does_what_another_does_is_assumed_what_the_other_is() -> None:
    text = LOOKED_UP.replace("q = gelu(y)\n  l = sum(q)", "l = my_loss(y, t)").replace("input x", "input t i64[8]\ninput x")
    text = text.replace("dq = backward l (grad(l))\n  dy = backward q (dq)", "dy, _ = backward l (grad(l))")
    declared = [Declared("my_loss", same_as="torch.nn.functional.cross_entropy")]
    verdict = prove(*(with_declared(plan, declared) for plan in plans(text, text)))
    assert verdict.outcome is Outcome.PROVED
    assert any("computes what" in said and "-100" in said for said in verdict.assumptions)


@pytest.mark.parametrize("older", ["size_average=False", "reduce=False", "size_average=True"])
def test_older_ways_to_say_how_losses_are_reduced_are_not_left_out(older: str) -> None:
    """`size_average=False` makes a sum of what is a mean without it."""
    text = (
        MEAN_OF_SUM.replace("  s = sum(h, dim=0)\n", "")
        .replace("mean(s)", "mse_loss(h, y)")
        .replace("  dh = backward s (ds)\n", "")
    )
    text = text.replace("input x", "input y f32[8,4]\ninput x").replace("ds = backward", "dh, _ = backward")
    assert verdict_on(text, text).outcome is Outcome.PROVED
    assert verdict_on(text.replace("(h, y)", f"(h, y, {older})"), text).outcome is not Outcome.PROVED


BY_NAME = """
weight w f32[4,8]
weight b f32[4]
weight c f32[4]
buffer m f32[4]
buffer v f32[4]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  n: f32[8,4] = NORM
  q = gelu(n)
  l = sum(q)
  dq = backward l (grad(l))
  dn = backward q (dq)
  dh, GRADIENTS = backward n (dn)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize(
    ("one", "other", "gradients"),
    [
        ("layer_norm(h, weight=b)", "layer_norm(h, bias=b)", "grad(b)"),
        ("layer_norm(h, weight=b, bias=c)", "layer_norm(h, bias=b, weight=c)", "grad(b), grad(c)"),
        ("group_norm(h, 2, weight=b)", "group_norm(h, 2, bias=b)", "grad(b)"),
        ("batch_norm(h, m, v, weight=b)", "batch_norm(h, m, v, bias=b)", "_, _, grad(b)"),
        ("torch.nn.functional.batch_norm(h, b, c, m, v)", "torch.batch_norm(h, b, c, m, v)", "_, _, grad(m), grad(v)"),
    ],
)
def test_a_tensor_that_is_given_by_name_is_the_operand_of_that_name(one: str, other: str, gradients: str) -> None:
    """And the functions of one name in two modules take them in two orders."""
    text = BY_NAME.replace("GRADIENTS", gradients)
    assert verdict_on(text.replace("NORM", other), text.replace("NORM", one)).outcome is not Outcome.PROVED
    if one.startswith("layer_norm"):
        assert verdict_on(text.replace("NORM", one), text.replace("NORM", one)).outcome is Outcome.PROVED


PADDED = """
weight w f32[4,2,3,3]
input x f32[8,2,3,4]
loss l
program
  h: f32[8,4,1,2] = NAME.conv2d(x, w, stride=3, padding=PADDING)
  q = gelu(h)
  l = sum(q)
  dq = backward l (grad(l))
  dh = backward q (dq)
  _, grad(w) = backward h (dh)
"""


def test_padding_that_counts_the_sides_of_one_dimension_is_not_that_of_two() -> None:
    """nnScaler's own convolution pads before the columns and after them, torch's around rows and around columns."""
    torch, own = (PADDED.replace("NAME", f"{module}").replace("PADDING", "[1, 1]") for module in _MODULES)
    assert verdict_on(torch, torch).outcome is Outcome.PROVED
    assert verdict_on(own, torch).outcome is not Outcome.PROVED
    own = own.replace("[1, 1]", "0").replace("[8,2,3,4]", "[8,2,3,6]")
    assert verdict_on(own, own).outcome is Outcome.PROVED


_MODULES = ("torch.nn.functional", "nnscaler.runtime.function")
